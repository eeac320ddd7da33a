"""A certificate for one fixed network: search, freeze, fresh noise, one number with every term."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from nonvacuous.bounds import checks
from nonvacuous.bounds.sampling import sampling
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge, reference
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.gauge import Gauge, gauged
from nonvacuous.sparsity.judging import InputsT, Judge, PassT, SettingT, median
from nonvacuous.sparsity.noise import Inputs, clean_pass, network_errors, read_inputs
from nonvacuous.sparsity.search import Evaluator, search
from nonvacuous.sparsity.setting import Scales, total_nats
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting, search_uniform
from nonvacuous.sparsity.weights import Layers

Theorem = Literal["A", "D", "E", "F"]
Variant = Literal["sparse", "dense"]
#: What the Monte-Carlo estimate gets where one failure probability covers it too.
_SAMPLING_SHARE = 0.2
THEOREMS, VARIANTS = ("A", "D", "E", "F"), ("sparse", "dense")


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


def certify_sparse(
    layers: Layers | ConvChain,
    prior: Layers | ConvChain,
    examples: Examples,
    *,
    theorem: Theorem = "E",
    variant: Variant = "sparse",
    confidence: float = 0.95,
    sampling_failure: float = 0.01,
    choices: int = 1,
    passes: int = 4,
    subset: int = 3000,
    seed: int = 0,
    device: torch.device | str | None = None,
    gauge: Gauge = "given",
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed network ``layers`` with examples that ``prior`` has not seen.

    A chain of convolutions has Theorem E and the gauge it is given in.

    confidence         1 - failure of the PAC-Bayes bound alone; the Monte-Carlo estimate may fail
                       with ``sampling_failure`` on top, so the claim holds with confidence
                       ``confidence - sampling_failure``
    theorem, variant   to be chosen before looking at results: each is its own claim
    choices            how many certificates the reported one is chosen from (theorems, variants,
                       priors, seeds, all named in advance): each pays ln(choices) nats and gets
                       an equal share of ``sampling_failure``
    passes             noisy networks drawn for each example in the final estimate
    subset             examples on which settings are compared
    device             where noise is drawn and losses are counted, in float64; without it, where
                       the examples lie. Constants of the network are measured on the processor.
                       Each kind of device has random numbers of its own: the same seed gives
                       another certificate there, which is as valid
    gauge              which weights that compute the same function the noise is put on: those
                       given, those "nearest" to the prior, or both networks "balanced"; to be
                       chosen before looking at results. Squared distances are those of the gauge
    """
    if theorem not in THEOREMS or variant not in VARIANTS:
        raise BadInput(
            f"theorem must be one of {', '.join(THEOREMS)} and variant one of "
            f"{', '.join(VARIANTS)}, got {theorem!r} and {variant!r}"
        )
    if isinstance(layers, ConvChain) or isinstance(prior, ConvChain):
        # Imported here because it builds on this module.
        from nonvacuous.sparsity.conv_certificate import certify_sparse_conv, check_covered

        one, two = check_covered(layers, prior, theorem=theorem, gauge=gauge)
        return certify_sparse_conv(
            one, two, examples, variant=variant, confidence=confidence,
            sampling_failure=sampling_failure, choices=choices, passes=passes, subset=subset,
            seed=seed, device=device, progress=progress,
        )  # fmt: skip
    failure = checks.failure_of(confidence)
    checks.failure_probability(sampling_failure, "sampling_failure")
    shares = checks.count("choices", choices, minimum=1)
    layers.check_alive()
    layers.check_same_shape(prior)
    if gauge != "given":
        chosen_gauge = gauged(layers, prior, gauge)
        found = certify_sparse(
            chosen_gauge.layers,
            chosen_gauge.prior,
            examples,
            theorem=theorem,
            variant=variant,
            confidence=confidence,
            sampling_failure=sampling_failure,
            choices=choices,
            passes=passes,
            subset=subset,
            seed=seed,
            device=device,
            progress=progress,
        )
        return replace(found, details={**found.details, "gauge": gauge})
    place = torch.device(device) if device is not None else examples.inputs.device
    inputs = read_inputs(layers.to(place), reference(prior).to(place), examples)
    if theorem == "A":
        uniform = UniformEvaluator(
            layers, prior, sparse=variant == "sparse", choices=shares, device=place
        )
        chosen = search_uniform(
            uniform, inputs, failure=failure, subset=subset, seed=seed, progress=progress
        )
        return uniform_certificate(uniform, chosen, inputs, failure=failure, seed=seed)
    evaluator = Evaluator(
        layers, prior, theorem=theorem, sparse=variant == "sparse", choices=shares, device=place
    )
    setting = search(
        evaluator,
        inputs,
        failure=failure,
        sampling_failure=sampling_failure / shares,
        trials=passes * len(inputs),
        subset=min(subset, len(inputs)),
        seed=seed,
        progress=progress,
    )
    return final_estimate(
        evaluator,
        setting,
        inputs,
        failure=failure,
        sampling_failure=sampling_failure / shares,
        passes=passes,
        seed=seed,
        progress=progress,
    )


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
    before, scores = clean_pass(evaluator.placed, inputs)
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
        network_errors=network_errors(evaluator.placed, inputs),
        seed=seed,
        details={
            "setting": _plain(setting),
            "inactive": list(setting.inactive),
            "epsilons": list(setting.epsilons),
        },
    )


def _plain(setting: Scales | UniformSetting) -> dict[str, Any]:
    """A setting as it is written: lists, not tuples, so that it reads back as the same."""
    record = asdict(setting)
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in record.items()
    }
