"""The network as a function: one fixed prediction for one example, a loss in its range, and the
symmetries that a complexity makes use of: allowed, there, and worth what is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from nonvacuous.audit import probing
from nonvacuous.audit.complexity_checks import parts
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, check, holds, refuse
from nonvacuous.kinds import ALL_MODES, KINDS, RANDOM_MODES
from nonvacuous.records import ComplexityRecord
from nonvacuous.rescaling import permutation, quotients, unit_layers
from nonvacuous.rescaling.output_layer import OutputLayer, invariance_of
from nonvacuous.risk.forward import close_scores
from nonvacuous.rules import arithmetic, drawing
from nonvacuous.rules.symmetries import wrong_savings
from nonvacuous.seeds import derived_seed


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
    network = probing.mean_network(evidence)
    many = evidence.examples.subset(evidence.split.bound[: probing.BATCH])
    dependence = probing.batch_dependence(network, few.inputs)
    if dependence := dependence or probing.size_dependence(network, many.inputs):
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
    network, inputs = probing.mean_network(evidence), probing.probes(evidence).inputs
    changed = probing.overwritten(network, inputs)
    if evidence.predictor in ("stochastic", "mixture") and probing.reseeds(network, inputs):
        return refuse(
            "predicting sets torch's global seed, so that whatever is drawn after a prediction is "
            "drawn again after the next one; the promise is about draws that are made afresh for "
            "each input. Give the network a torch.Generator of its own, or leave the seed alone."
        )
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
        labels = few.labels.to(outputs.device)
        together = loss(outputs, labels)
        for scores in _provocations(evidence.examples.classes):
            for label in range(evidence.examples.classes):
                loss(scores, torch.full((len(scores),), label))
        alone = torch.cat(
            [loss(*pair) for pair in zip(outputs.split(1), labels.split(1), strict=True)]
        )
        if not torch.allclose(alone, together, rtol=1e-3, atol=1e-4):
            return refuse(
                f"the loss {loss.name!r} of an example changes with the others beside it, or "
                "before it, as where losses are divided by the largest of them: it is not a loss "
                "of one prediction. Scale it by a number that is fixed beforehand."
            )
    return holds("checked on predictions of the network and on extreme scores.")


@check(
    rows=(15, 17, 18),
    since=1,
    name="the errors can be counted again",
    modes=tuple(mode for mode in ALL_MODES if not KINDS[mode].noisy),
    predictors=("drawn", "deterministic"),
)
def counted_again(evidence: Evidence) -> Outcome:
    drawn = None
    if evidence.predictor == "drawn":
        if evidence.posterior is None:
            return refuse("there is no posterior that the network could have been drawn from.")
        drawn = drawing.draw_network(evidence.posterior, evidence.risk.seed)
    network = probing.Network.of(evidence.module, drawn)
    again = probing.recount(network, evidence.bound_part, evidence.loss)
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


_NONE = holds("none is used: the KL is that of the tensors.")


@check(
    rows=(17,),
    since=1,
    name="symmetries lower the price of the randomized network only",
    modes=RANDOM_MODES,
)
def randomized_only(evidence: Evidence) -> Outcome:
    _, _, complexity = parts(evidence)
    if not complexity.symmetries:
        return _NONE
    named = arithmetic.theorem(evidence.bound.name)
    if evidence.predictor != "stochastic" or named.complexity != "kl_nats":
        return refuse(
            f"symmetries are said to save {complexity.symmetry_nats:.6g} nats in a certificate "
            f"about the {evidence.predictor} predictor by {named.name!r}. They lower the KL; a "
            "bound for one drawn network pays for its own weights, which have no such average. "
            "Leave them out."
        )
    return holds(f"{named.name!r} is a bound in the KL, for the randomized network.")


@check(rows=(2, 22), since=1, name="symmetries are used only where they hold", modes=RANDOM_MODES)
def allowed(evidence: Evidence) -> Outcome:
    _, prior, complexity = parts(evidence)
    if not complexity.symmetries:
        return _NONE
    if impossible := impossible_saving(complexity):
        return refuse(f"{impossible}.")
    network = quotients.symmetries_of(evidence.captured)
    layers = {layer.name: layer for layer in network.layers}
    chosen: list[unit_layers.UnitLayer] = []
    for saving in complexity.symmetries:
        if saving.symmetry == "translation":
            if not invariance_of(evidence.loss.name).shift:
                return refuse(
                    f"the shift of the scores is forgotten, but the loss {evidence.loss.name!r} is "
                    "not known to ignore it: the KL would belong to another predictor."
                )
            if network.output is None or saving.place not in network.output.tensors:
                return refuse(f"{saving.place!r} is no tensor of a last layer: {_why(network)}")
            continue
        if saving.place not in layers:
            words = f"the units of {saving.place!r} are not known to be interchangeable"
            return refuse(f"{words}: {_why(network)}")
        # Raises where the prior tells the units apart, naming the tensor.
        permutation.check_exchangeable(prior, layers[saving.place])
        chosen.append(layers[saving.place])
    for one, other in combinations(chosen, 2):
        common = sorted(one.names & other.names)
        if common:
            return refuse(
                f"the orders of {one.name!r} and of {other.name!r} are both forgotten, but "
                f"{common[0]!r} belongs to both: averaging over one makes the posterior of the "
                "other a mixture, and the savings may not be added. Leave one of them out."
            )
    listed = ", ".join(f"{saving.symmetry} of {saving.place}" for saving in complexity.symmetries)
    return holds(
        f"the loss {evidence.loss.name!r} and the prior ignore what is forgotten ({listed})."
    )


@check(rows=(2, 3, 22), since=1, name="what symmetries save can be recomputed", modes=RANDOM_MODES)
def recomputed(evidence: Evidence) -> Outcome:
    posterior, prior, complexity = parts(evidence)
    if not complexity.symmetries:
        return _NONE
    wrong = wrong_savings(evidence.captured, posterior, prior, complexity, loss=evidence.loss.name)
    if wrong is not None:
        return refuse(f"{wrong}. Compute it with rules.symmetries.symmetry_savings.")
    return holds(f"{complexity.symmetry_nats:.6g} nats, from the frozen tensors.")


@check(rows=(22,), since=1, name="the network has the symmetries that are used", modes=RANDOM_MODES)
def seen_in_predictions(evidence: Evidence) -> Outcome:
    """A look at the function itself: what follows from a graph is not believed without it."""
    _, _, complexity = parts(evidence)
    if not complexity.symmetries:
        return _NONE
    network, inputs = probing.mean_network(evidence), probing.probes(evidence).inputs
    if changed := probing.precisely(network, inputs, partial(_changed, evidence), fine=1e-7):
        return refuse(
            f"{changed} changes what the network predicts, so it is no symmetry of it. Leave it "
            "out (quotients=())."
        )
    return holds(f"applied at random, they change no prediction on {len(inputs)} bound examples.")


def impossible_saving(complexity: ComplexityRecord) -> str | None:
    """A saving that no network can have, from the record alone; None if there is none."""
    terms = {term.tensor: term.nats for term in complexity.terms}
    listed = [(saving.symmetry, saving.place) for saving in complexity.symmetries]
    if len(set(listed)) != len(listed):
        return "a symmetry is listed twice"
    for saving in complexity.symmetries:
        if saving.symmetry == "translation":
            limit = terms.get(saving.place)
            if limit is None:
                return f"the shift of {saving.place!r} is forgotten, which is no tensor of the KL"
            what = f"the KL of {saving.place!r}"
        else:
            limit = math.lgamma(saving.units + 1)
            what = f"ln {saving.units}!, for the orders of {saving.units} units"
        if saving.nats > limit * (1 + 1e-12):
            return (
                f"the {saving.symmetry} of {saving.place!r} is said to save {saving.nats!r} nats, "
                f"more than {what} ({limit!r})"
            )
    return None


def _why(network: quotients.Symmetries) -> str:
    reasons = [f"{refusal.layer}: {refusal.reason}" for refusal in network.refused]
    return "; ".join(reasons) or "the network has no such layer."


def _changed(
    evidence: Evidence, network: probing.Network, inputs: Tensor, tolerance: float
) -> str | None:
    """The first symmetry that, applied at random, is seen in the outputs; None if none is."""
    complexity, symmetries = parts(evidence)[2], quotients.symmetries_of(evidence.captured)
    generator = torch.Generator().manual_seed(derived_seed(evidence.seed, "symmetries"))
    expected = network.run(inputs)[0]
    layers = {layer.name: layer for layer in symmetries.layers}
    moves: list[tuple[str, dict[str, Tensor], bool]] = []
    shifted = [s.place for s in complexity.symmetries if s.symmetry == "translation"]
    if shifted and symmetries.output is not None:
        weights = _shifted(network.tensors, symmetries.output, shifted, generator)
        moves.append(("a common shift of the scores", weights, True))
    for saving in complexity.symmetries:
        if saving.symmetry == "permutation" and saving.place in layers:
            weights = _reordered(network.tensors, layers[saving.place], generator)
            moves.append((f"another order of the units of {saving.place!r}", weights, False))
    for words, weights, up_to_shift in moves:
        moved = probing.Network(network.module, {**network.tensors, **weights}, network.device)
        outputs, before = moved.run(inputs)[0], expected
        if up_to_shift:
            outputs = outputs - outputs.mean(1, keepdim=True)
            before = before - before.mean(1, keepdim=True)
        if not bool(close_scores(outputs, before, 2.0 * tolerance).all()):
            return words
    return None


def _shifted(
    tensors: Mapping[str, Tensor], output: OutputLayer, names: list[str], generator: torch.Generator
) -> dict[str, Tensor]:
    """The last layer with one random number added to all scores of each column."""
    moved = {}
    for name in (name for name in output.tensors if name in names):
        tensor = tensors[name]
        noise = torch.randn(tensor.shape[1:], generator=generator, dtype=torch.float64)
        moved[name] = tensor + noise.to(tensor) * (tensor.abs().mean() + 1e-3)
    return moved


def _reordered(
    tensors: Mapping[str, Tensor], layer: unit_layers.UnitLayer, generator: torch.Generator
) -> dict[str, Tensor]:
    """The weights with the units of a layer in a random order."""
    order = torch.randperm(layer.units, generator=generator)
    moved: dict[str, Tensor] = {}
    for name, axis, entries in layer.tensors:
        positions = (order[:, None] * entries + torch.arange(entries)).flatten()
        tensor = moved.get(name, tensors[name])
        moved[name] = tensor.index_select(axis, positions.to(tensor.device))
    return moved
