"""A certificate for one fixed network: search, freeze, fresh noise, one number with every term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from nonvacuous.bounds.holdout import sampling
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.judging import InputsT, Judge, PassT, Priced, SettingT
from nonvacuous.sparsity.setting import SparseSettings, total_nats

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
        return {**_plain(asdict(self)), "confidence": self.confidence}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> SparsityCertificate:
        try:
            return TypeAdapter(cls).validate_python(dict(record))
        except ValidationError as error:
            raise BadInput(f"this is not a sparsity certificate: {error}") from error


def divided(failure: float, theorem: str) -> tuple[float, float]:
    """``confidence`` and ``sampling_failure`` of a certificate that may fail with ``failure``.

    Theorem A draws no noise, and leaves the second unused.
    """
    share = 0.0 if theorem == "A" else _SAMPLING_SHARE
    return 1.0 - (1.0 - share) * failure, _SAMPLING_SHARE * failure


def final_estimate(
    evaluator: Judge[SettingT, InputsT, PassT],
    setting: SettingT,
    inputs: InputsT,
    settings: SparseSettings,
    *,
    seed: int,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Draw fresh noise for a setting that is final, and turn the counts into the certificate.

    The seed is derived from the network and the setting: it does not exist before they do.
    """
    fresh = derived_seed(seed, "final", evaluator.digest(), setting)
    reporter = Reporter(progress, "fresh noise")
    trials = settings.passes * len(inputs)
    # Losses are added up where they are: a look at them would wait for the device.
    judged: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    for part, noisy in evaluator.fresh_passes(setting, inputs, passes=settings.passes, seed=fresh):
        losses, level, margin = evaluator.judged(setting, part, noisy)
        judged.append((losses.sum()[None], level, margin))
        done += len(part)
        reporter.report(done, trials, f"{done:,} noisy networks")
    counts, levels, margins = (torch.cat(column) for column in zip(*judged, strict=True))
    errors, failure = int(counts.sum()), settings.sampling_share
    reporter.report(trials, trials, f"{errors} of {trials}", always=True)
    return assembled(
        evaluator,
        setting,
        examples=len(inputs),
        failure=settings.failure,
        sampling_failure=failure,
        errors=errors,
        trials=trials,
        loss_upper=sampling(errors=errors, trials=trials, failure=failure, identical=False),
        threshold=float(levels.median()),
        margin=float(margins.median()),
        network_errors=evaluator.network_errors(inputs),
        seed=seed,
    )


def assembled(
    evaluator: Priced[SettingT], setting: SettingT, **counted: Any
) -> SparsityCertificate:
    """The certificate from what was ``counted``, and what the theorem says of the setting."""
    charges = evaluator.charges(setting)
    return SparsityCertificate(
        risk_upper=evaluator.bound(
            setting,
            counted["loss_upper"],
            examples=counted["examples"],
            failure=counted["failure"],
        ),
        theorem=evaluator.theorem,
        variant="sparse" if evaluator.sparse else "dense",
        kl_nats=evaluator.kl(setting),
        grid_nats=total_nats(charges),
        escape=setting.escape_probability,
        scales=evaluator.scales(setting),
        squared_distances=evaluator.distances,
        charges=charges,
        details={"setting": _plain(asdict(setting)), **evaluator.details(setting)},
        **counted,
    )


def _plain(value: Any) -> Any:
    """Lists, not tuples, so that what is written reads back as the same."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
