"""The network as a function: one fixed prediction for one example, and a loss in its range."""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.audit import probing
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, check, holds, refuse
from nonvacuous.kinds import ALL_MODES, KINDS
from nonvacuous.rules.drawing import draw_network


@check(rows=(5,), since=1, name="the network is in evaluation mode")
def evaluation_mode(evidence: Evidence) -> Outcome:
    for name, part in evidence.module.named_modules():
        if part.training:
            where = f"its layer {name!r}" if name else "the network"
            return refuse(
                f"{where} ({type(part).__name__}) is in training mode, in which batch "
                "normalization and dropout make predictions depend on the batch and on chance. "
                "Call module.eval() before measuring."
            )
    return holds("no part of it is in training mode.")


@check(rows=(5,), since=1, name="each prediction depends on its own example alone")
def one_at_a_time(evidence: Evidence) -> Outcome:
    few = probing.probes(evidence)
    dependence = probing.batch_dependence(probing.mean_network(evidence), few.inputs)
    if dependence is not None:
        return refuse(
            f"{dependence} (batch statistics, active dropout, or a state that is kept): this is "
            "not one function of one example, and no theorem here covers it. Normalize with fixed "
            "statistics (fold them into the weights) and switch dropout off."
        )
    return holds(
        f"{len(few)} bound examples give the same outputs alone, together, in another order and "
        "again."
    )


@check(rows=(4,), since=1, name="predicting leaves the network unchanged")
def left_unchanged(evidence: Evidence) -> Outcome:
    changed = probing.overwritten(probing.mean_network(evidence), probing.probes(evidence).inputs)
    if changed:
        return refuse(
            f"predicting overwrites {changed[0]!r}: what the network has seen enters its later "
            "predictions. Switch to evaluation mode, or remove the running statistics."
        )
    return holds("no buffer is written while predicting.")


@check(rows=(16,), since=1, name="the loss stays in [0, 1]")
def loss_range(evidence: Evidence) -> Outcome:
    loss = evidence.loss
    if (loss.lower, loss.upper) != (0.0, 1.0):
        return refuse(
            f"the loss {loss.name!r} ranges over [{loss.lower!r}, {loss.upper!r}], but the theorem "
            "is about losses in [0, 1]. Scale it."
        )
    few = probing.probes(evidence, 64)
    network = probing.mean_network(evidence)
    with probing.undisturbed(network.device):
        outputs = network.run(few.inputs)[0]
        # A value outside the range raises, with the value in the message.
        loss(outputs, few.labels.to(outputs.device))
        for scores in _provocations(evidence.examples.classes):
            for label in range(evidence.examples.classes):
                loss(scores, torch.full((len(scores),), label))
    return holds("checked on predictions of the network and on extreme scores.")


@check(
    rows=(15, 17, 18),
    since=1,
    name="the errors can be counted again",
    modes=tuple(mode for mode in ALL_MODES if not KINDS[mode].noisy),
    predictors=("drawn", "deterministic"),
)
def counted_again(evidence: Evidence) -> Outcome:
    if evidence.predictor == "drawn":
        if evidence.posterior is None:
            return refuse("there is no posterior that the network could have been drawn from.")
        device = evidence.posterior.device
        drawn = draw_network(evidence.posterior, evidence.risk.seed)
        network = probing.Network.of(
            evidence.module, {name: w.to(device) for name, w in drawn.items()}
        )
    else:
        network = probing.Network.of(evidence.module)
    examples = evidence.examples.subset(evidence.split.bound)
    again = probing.recount(network, examples, evidence.loss)
    risk = evidence.risk
    if risk.trials != again.trials or not again.agrees_with(errors=risk.errors, total=risk.total):
        counted = again.total if again.errors is None else again.errors
        recorded = risk.errors if risk.total is None else risk.total
        return refuse(
            f"the loss on the bound examples is recorded as {recorded} in {risk.trials}; counted "
            f"again on the evaluation inputs it is {counted} in {again.trials}. Was another "
            "network measured, or were the inputs augmented?"
        )
    return holds(f"counted again on all {again.trials} bound examples.")


def _provocations(classes: int) -> tuple[Tensor, ...]:
    """Scores at which badly bounded losses leave their range: ties, huge, tiny, far apart."""
    ramp = torch.linspace(-1.0, 1.0, classes)
    rows = [torch.zeros(classes), ramp, -ramp, 50.0 * ramp, -1e4 * ramp, 1e-6 * ramp]
    scores = torch.stack(rows)
    return scores, scores.double()
