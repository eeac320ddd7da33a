"""A certificate for one fixed network: search, freeze, fresh noise, one number with every term.

And one that was made earlier, gone through again from what its record holds, a frozen setting and a
seed: nothing is searched then. Whoever writes certificates and whoever checks them call this.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.conv_theorem import ConvEvaluator
from nonvacuous.sparsity.gauge import gauged
from nonvacuous.sparsity.judging import Evaluator, Judge, Judged
from nonvacuous.sparsity.setting import CONV_THEOREM, AnySetting, Scales, SparseSettings, total_nats
from nonvacuous.sparsity.theorem_a import UniformEvaluator
from nonvacuous.sparsity.weights import Layers, Network

AnyEvaluator = Judge[Any]


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
    judge: AnyEvaluator,
    setting: AnySetting,
    inputs: Any,
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
    judge: AnyEvaluator,
    setting: AnySetting,
    inputs: Any,
    examples: Examples,
    *,
    seed: int,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Draw fresh noise for a setting that is final, and turn the counts into the certificate."""
    asked = judge.asked
    own, phase = final_seed(seed, judge.network.digest(), setting), "fresh noise"
    count = count_losses(
        judge, setting, inputs, passes=asked.passes, seed=own, phase=phase, progress=progress
    )
    loss_upper = judge.loss_upper(setting, count.errors, count.trials)
    charges = judge.charges(setting)
    return SparsityCertificate(
        risk_upper=judge.bound(setting, loss_upper, examples=len(inputs)),
        theorem=judge.theorem,
        variant=asked.variant,
        examples=len(inputs),
        failure=asked.failure,
        sampling_failure=asked.sampling_share if judge.sampled else 0.0,
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
        network_errors=judge.network.errors(examples),
        seed=seed,
        details={"setting": json.loads(json.dumps(asdict(setting))), **judge.details(setting)},
    )


def certify_sparse(
    network: nn.Module | Network,
    prior: nn.Module | Network,
    examples: Examples,
    settings: SparseSettings | None = None,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed ``network`` with examples that ``prior`` has not seen.

    Covered are chains of linear layers and convolutions with ReLU between them, a convolution
    followed by at most one max or average pooling; every other layer is refused by name. With
    convolutions the theorem is E (docs/theory/sparsity.md, 10) and the gauge the given one.

    device   where noise is drawn and losses are counted, in float64; without it, where the examples
             lie. Constants of the network are measured on the processor. Each kind of device has
             random numbers of its own: the same seed gives another certificate there, which is as
             valid
    """
    chosen = settings or SparseSettings()
    where = examples.inputs.device if device is None else torch.device(device)
    layers, center = (
        read_network(one, examples.inputs[:2]) if isinstance(one, nn.Module) else one
        for one in (network, prior)
    )
    if isinstance(layers, Layers) and isinstance(center, Layers):
        layers.check_alive()
        layers, center = gauged(layers, center, chosen.gauge)
    with torch.no_grad():
        judge = evaluator_of(layers, center, chosen, device=where)
        inputs = judge.read(examples)
        setting = judge.search(inputs, seed=seed, progress=progress)
        certificate = final_estimate(judge, setting, inputs, examples, seed=seed, progress=progress)
    if chosen.gauge == "given":
        return certificate
    return replace(certificate, details={**certificate.details, "gauge": chosen.gauge})


def evaluator_of(
    layers: Network, prior: Network, asked: SparseSettings, *, device: torch.device | str = "cpu"
) -> AnyEvaluator:
    """The theorem for this network and prior, ready to judge a setting, if there is one."""
    layers.check_same_shape(prior)
    kind: Any = UniformEvaluator if asked.theorem == "A" else Evaluator
    if isinstance(layers, ConvChain):
        kind = ConvEvaluator
        if asked.theorem != CONV_THEOREM:
            raise BadInput(
                f"theorem {asked.theorem} covers linear layers only; a convolutional network is "
                f'certified by theorem "{CONV_THEOREM}"'
            )
        if asked.gauge != "given":
            raise BadInput(
                f"gauge {asked.gauge!r} is there for linear layers only; a convolutional network "
                'is certified with the weights it has: gauge="given"'
            )
    evaluator: AnyEvaluator = kind(layers, prior, asked, torch.device(device))
    return evaluator


def recount(
    evaluator: AnyEvaluator,
    setting: AnySetting,
    examples: Examples,
    *,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> Count:
    """Count the losses of a frozen setting with the noise that ``seed`` draws.

    ``seed`` is that of the noise itself (:func:`final_seed`): another one gives fresh trials.
    """
    phase = "counting again"
    with torch.no_grad():
        inputs = evaluator.read(examples)
        return count_losses(
            evaluator, setting, inputs, passes=passes, seed=seed, phase=phase, progress=progress
        )
