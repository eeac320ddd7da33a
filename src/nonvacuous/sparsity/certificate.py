"""A certificate for one fixed network: search, freeze, fresh noise, one number with every term."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch

from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.judging import InputsT, Judge, Judged, PassT, SettingT
from nonvacuous.sparsity.setting import Scales, SparseSettings, total_nats

#: What the Monte-Carlo estimate gets where one failure probability covers it too.
_SAMPLING_SHARE = 0.2


@dataclass(frozen=True)
class SparsityCertificate:
    """The risk of the fixed network is at most ``risk_upper``, with confidence ``confidence``.

    A tie between the label and another class counts as an error. The examples must be independent,
    and neither the prior nor the choice of theorem may have come from them.

    theorem, variant   A, D, E or F; sparse or dense (no use made of sparsity)
    examples           n of the bound: the examples that the prior has not seen
    failure            of the PAC-Bayes bound; sampling_failure: of this Monte-Carlo estimate (where
                       the best of several certificates is reported, the others' failures add up)
    kl_nats            sum of squared distances over twice the squared noise scales
    grid_nats          what naming the setting costs: the sum of ``charges``
    escape             with at most this chance the noisy loss misses an error of the network
    errors, trials     of the noisy loss: fresh noise for every example, drawn after all choices
                       were final (Theorem A needs no noise: examples that fail its conditions)
    loss_upper         upper end of the mean noisy loss
    scales             noise scale of each layer
    squared_distances  of each layer from the prior
    threshold, margin  medians over examples of the threshold that the margin must exceed (for the
                       runner-up class) and of the noisy margin itself, for people to read
    network_errors     errors of the network itself on the same examples, ties included
    details            numbers of the theorem by name
    """

    risk_upper: float
    theorem: str
    variant: str
    examples: int
    failure: float
    sampling_failure: float
    kl_nats: float
    grid_nats: float
    escape: float
    errors: int
    trials: int
    loss_upper: float
    scales: tuple[float, ...]
    squared_distances: tuple[float, ...]
    charges: tuple[Charge, ...]
    threshold: float
    margin: float
    network_errors: int
    seed: int
    details: dict[str, Any]

    @property
    def confidence(self) -> float:
        """One minus everything that may fail."""
        return 1.0 - self.failure - self.sampling_failure

    def to_dict(self) -> dict[str, Any]:
        """Lists, not tuples, so that what is written reads back as the same."""
        return {**json.loads(json.dumps(asdict(self))), "confidence": self.confidence}


def divided(failure: float, theorem: str) -> tuple[float, float]:
    """``confidence`` and ``sampling_failure`` of a certificate that may fail with ``failure``.

    Theorem A draws no noise, and leaves the second unused.
    """
    share = 0.0 if theorem == "A" else _SAMPLING_SHARE
    return 1.0 - (1.0 - share) * failure, _SAMPLING_SHARE * failure


@dataclass(frozen=True, eq=False)
class Count:
    """Losses of a frozen setting; ``close`` of the trials hang on rounding.

    threshold, margin   medians for the runner-up class
    """

    errors: int
    trials: int
    close: int
    threshold: float
    margin: float

    def agrees_with(self, *, errors: int, trials: int) -> bool:
        """The same counts, but for trials that another processor may round to the other side."""
        return trials == self.trials and abs(errors - self.errors) <= self.close


def count_losses(
    judge: Judge[SettingT, InputsT, PassT],
    setting: SettingT,
    inputs: InputsT,
    *,
    passes: int,
    seed: int,
    phase: str,
    progress: Progress | None = None,
) -> Count:
    """Count with the noise that ``seed`` draws; Theorem A draws none, and looks once."""
    trials = (passes if judge.sampled else 1) * len(inputs)
    reporter = Reporter(progress if judge.sampled else None, phase)
    # Losses are added up where they are: a look at them would wait for the device.
    seen: list[Judged] = []
    done = 0
    for part, noisy in judge.fresh_passes(setting, inputs, passes=passes, seed=seed):
        losses, level, margin, close = judge.judged(setting, part, noisy)
        seen.append((losses.sum()[None], level, margin, close.sum()[None]))
        done += len(part)
        reporter.report(done, trials, f"{done:,} noisy networks")
    counts, levels, margins, near = (torch.cat(column) for column in zip(*seen, strict=True))
    errors = int(counts.sum())
    reporter.report(trials, trials, f"{errors} of {trials}", always=True)
    return Count(errors, done, int(near.sum()), float(levels.median()), float(margins.median()))


def final_seed(seed: int, network_digest: str, setting: Scales) -> int:
    """The seed of the final noise: it does not exist before network and setting do."""
    return derived_seed(seed, "final", network_digest, setting)


def final_estimate(
    judge: Judge[SettingT, InputsT, PassT],
    setting: SettingT,
    inputs: InputsT,
    settings: SparseSettings,
    *,
    seed: int,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Draw fresh noise for a setting that is final, and turn the counts into the certificate."""
    fresh, passes = final_seed(seed, judge.network.digest(), setting), settings.passes
    count = count_losses(
        judge, setting, inputs, passes=passes, seed=fresh, phase="fresh noise", progress=progress
    )
    failure = settings.sampling_share if judge.sampled else 0.0
    loss_upper = judge.loss_upper(setting, count.errors, count.trials, failure=failure)
    charges = judge.charges(setting)
    return SparsityCertificate(
        risk_upper=judge.bound(setting, loss_upper, examples=len(inputs), failure=settings.failure),
        theorem=judge.theorem,
        variant="sparse" if judge.sparse else "dense",
        examples=len(inputs),
        failure=settings.failure,
        sampling_failure=failure,
        kl_nats=judge.kl(setting),
        grid_nats=total_nats(charges),
        escape=setting.escape_probability,
        errors=count.errors,
        trials=count.trials,
        loss_upper=loss_upper,
        scales=judge.scales(setting),
        squared_distances=judge.distances,
        charges=charges,
        threshold=count.threshold,
        margin=count.margin,
        network_errors=judge.network_errors(inputs),
        seed=seed,
        details={"setting": json.loads(json.dumps(asdict(setting))), **judge.details(setting)},
    )
