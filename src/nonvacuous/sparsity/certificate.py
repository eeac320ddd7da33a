"""A certificate for one fixed network: search, freeze, fresh noise, one number with every term."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from nonvacuous.bounds import checks
from nonvacuous.bounds.holdout import sampling
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.gauge import Gauge
from nonvacuous.sparsity.judging import InputsT, Judge, PassT, SettingT, median
from nonvacuous.sparsity.noise import Inputs, clean_pass, network_errors
from nonvacuous.sparsity.setting import Scales, total_nats
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting

Theorem = Literal["A", "D", "E", "F"]
Variant = Literal["sparse", "dense"]
#: What the Monte-Carlo estimate gets where one failure probability covers it too.
_SAMPLING_SHARE = 0.2
THEOREMS, VARIANTS = ("A", "D", "E", "F"), ("sparse", "dense")


@dataclass(frozen=True)
class SparseSettings:
    """How a fixed network is certified.

    theorem, variant   to be chosen before looking at results: each is its own claim
    confidence         1 - failure of the PAC-Bayes bound alone; the Monte-Carlo estimate may fail
                       with ``sampling_failure`` on top, so the claim holds with confidence
                       ``confidence - sampling_failure``
    choices            how many certificates the reported one is chosen from (theorems, variants,
                       priors, seeds, all named in advance): each pays ln(choices) nats and gets
                       an equal share of ``sampling_failure``
    passes             noisy networks drawn for each example in the final estimate
    subset             examples on which settings are compared; by default 3000 (2000 where there
                       are convolutions)
    gauge              which weights that compute the same function the noise is put on: those
                       given, those "nearest" to the prior, or both networks "balanced"; to be
                       chosen before looking at results. Squared distances are those of the gauge
    block              Theorem A, sparse: hidden units are counted in blocks of so many neighbors;
                       to be chosen before looking at results, or paid for by `choices`
    """

    theorem: Theorem = "E"
    variant: Variant = "sparse"
    confidence: float = 0.95
    sampling_failure: float = 0.01
    choices: int = 1
    passes: int = 4
    subset: int | None = None
    gauge: Gauge = "given"
    block: int = 1

    def __post_init__(self) -> None:
        if self.theorem not in THEOREMS or self.variant not in VARIANTS:
            raise BadInput(
                f"theorem must be one of {', '.join(THEOREMS)} and variant one of "
                f"{', '.join(VARIANTS)}, got {self.theorem!r} and {self.variant!r}"
            )
        checks.failure_of(self.confidence)
        checks.failure_probability(self.sampling_failure, "sampling_failure")
        checks.count("choices", self.choices, minimum=1)
        checks.count("passes", self.passes, minimum=1)
        if checks.count("block", self.block, minimum=1) > 1 and self.theorem != "A":
            raise BadInput("blocks of units are for Theorem A: the others look at every unit")

    @property
    def failure(self) -> float:
        return checks.failure_of(self.confidence)

    @property
    def sampling_share(self) -> float:
        """What the Monte-Carlo estimate of each of the ``choices`` may fail with."""
        return self.sampling_failure / self.choices

    @property
    def sparse(self) -> bool:
        return self.variant == "sparse"


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
        """Plain numbers and text, ready for JSON."""
        record = asdict(self)
        record["scales"], record["squared_distances"] = (
            list(self.scales),
            list(self.squared_distances),
        )
        record["charges"] = [asdict(line) for line in self.charges]
        return {**record, "confidence": self.confidence}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> SparsityCertificate:
        """Read what :meth:`to_dict` wrote."""
        try:
            values = {key: value for key, value in record.items() if key != "confidence"}
            values["scales"] = tuple(values["scales"])
            values["squared_distances"] = tuple(values["squared_distances"])
            values["charges"] = tuple(Charge(**line) for line in values["charges"])
            return cls(**values)
        except (KeyError, TypeError) as error:
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
    *,
    failure: float,
    sampling_failure: float,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Draw fresh noise for a setting that is final, and turn the counts into the certificate.

    The seed is derived from the network and the setting: it does not exist before they do.
    """
    fresh = derived_seed(seed, "final", evaluator.digest(), setting)
    reporter = Reporter(progress, "fresh noise")
    trials = passes * len(inputs)
    # Losses are added up where they are: a look at them would wait for the device.
    counts: list[torch.Tensor] = []
    levels: list[torch.Tensor] = []
    margins: list[torch.Tensor] = []
    done = 0
    for part, noisy in evaluator.fresh_passes(setting, inputs, passes=passes, seed=fresh):
        losses, level, margin = evaluator.judged(setting, part, noisy)
        counts.append(losses.sum())
        levels.append(level)
        margins.append(margin)
        done += len(part)
        reporter.report(done, trials, f"{done:,} noisy networks")
    errors = int(torch.stack(counts).sum())
    reporter.report(trials, trials, f"{errors} of {trials}", always=True)
    loss_upper = sampling(errors=errors, trials=trials, failure=sampling_failure, identical=False)
    charges = evaluator.charges(setting)
    return SparsityCertificate(
        risk_upper=evaluator.bound(setting, loss_upper, examples=len(inputs), failure=failure),
        theorem=evaluator.theorem,
        variant="sparse" if evaluator.sparse else "dense",
        examples=len(inputs),
        failure=failure,
        sampling_failure=sampling_failure,
        kl_nats=evaluator.kl(setting),
        grid_nats=total_nats(charges),
        escape=setting.escape_probability,
        errors=errors,
        trials=trials,
        loss_upper=loss_upper,
        scales=setting.sigmas,
        squared_distances=evaluator.distances,
        charges=charges,
        threshold=median(levels),
        margin=median(margins),
        network_errors=evaluator.network_errors(inputs),
        seed=seed,
        details={"setting": _plain(setting), **evaluator.details()},
    )


def uniform_certificate(
    evaluator: UniformEvaluator,
    setting: UniformSetting,
    inputs: Inputs,
    *,
    failure: float,
    seed: int,
) -> SparsityCertificate:
    """Theorem A for a setting: nothing random is left, so nothing is spent on sampling."""
    before, scores = clean_pass(evaluator.on_device, inputs)
    failed, level, margin = evaluator.judged(setting, inputs, before, scores)
    errors = int(failed.sum())
    escape = setting.escape_probability
    loss_upper = min(1.0, (escape + (1.0 - escape) * errors / len(inputs)) * (1.0 + 1e-12))
    charges = evaluator.charges(setting)
    grid = total_nats(charges)
    kl = evaluator.kl(setting)
    return SparsityCertificate(
        risk_upper=derandomized(
            loss_upper=loss_upper,
            escape=escape,
            kl_nats=kl,
            grid_nats=grid,
            examples=len(inputs),
            failure=failure,
        ),
        theorem="A",
        variant="sparse" if evaluator.sparse else "dense",
        examples=len(inputs),
        failure=failure,
        sampling_failure=0.0,
        kl_nats=kl,
        grid_nats=grid,
        escape=escape,
        errors=errors,
        trials=len(inputs),
        loss_upper=loss_upper,
        scales=evaluator.scales(setting),
        squared_distances=evaluator.distances,
        charges=charges,
        threshold=median([level]),
        margin=median([margin]),
        network_errors=network_errors(evaluator.on_device, inputs),
        seed=seed,
        details={
            "setting": _plain(setting),
            "inactive": list(setting.inactive),
            "epsilons": list(setting.epsilons),
            **({} if evaluator.block == 1 else {"block": evaluator.block}),
        },
    )


def _plain(setting: Scales | UniformSetting) -> dict[str, Any]:
    """A setting as it is written: lists, not tuples, so that it reads back as the same."""
    record = asdict(setting)
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in record.items()
    }
