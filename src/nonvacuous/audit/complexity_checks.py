"""The distance between posterior and prior: complete, current, and summed without loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.probing import WATCHED, attributes_read, foreign_tensor, mean_network, probes
from nonvacuous.audit.registry import Outcome, asserted, check, holds, refuse
from nonvacuous.audit.watching import ALLOWED_NUMBERS
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.errors import BadInput
from nonvacuous.kinds import PRIOR_MODES, RANDOM_MODES
from nonvacuous.records import ComplexityRecord
from nonvacuous.rules import arithmetic, drawing
from nonvacuous.rules.digests import fixed_tensors, tensors_digest

_BLOCK = 1 << 20


def parts(evidence: Evidence) -> tuple[DiagonalGaussian, DiagonalGaussian, ComplexityRecord]:
    """Posterior, prior and their distance; :class:`BadInput` if one is missing."""
    facts = (evidence.posterior, evidence.prior, evidence.complexity)
    if facts[0] is None or facts[1] is None or facts[2] is None:
        raise BadInput(
            f"mode {evidence.mode!r} needs a posterior, a prior and a complexity; one is missing."
        )
    return facts[0], facts[1], facts[2]


def slow_kl(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> dict[str, float]:
    """KL by the textbook formula in extended precision: slow, and independent of the fast one."""
    nats = {}
    of_all = (posterior.means, posterior.scales, prior.means, prior.scales)
    for name in posterior.names:
        # Through float64: numpy knows neither bfloat16 nor the devices of torch.
        flat = [tensors[name].detach().cpu().double().reshape(-1).numpy() for tensors in of_all]
        total = np.longdouble(0)
        for start in range(0, flat[0].size, _BLOCK):
            m, s, prior_m, prior_s = (
                part[start : start + _BLOCK].astype(np.longdouble) for part in flat
            )
            quadratic = (s * s + (m - prior_m) ** 2) / (2 * prior_s * prior_s)
            total += (np.log(prior_s) - np.log(s) + quadratic - np.longdouble(0.5)).sum()
        nats[name] = float(total)
    return nats


@check(rows=(2,), since=1, name="prior and posterior cover every parameter", modes=PRIOR_MODES)
def every_parameter(evidence: Evidence) -> Outcome:
    posterior, prior, _ = parts(evidence)
    parameters = dict(evidence.module.named_parameters())
    fixed = evidence.fixed_before or {}
    for who, distribution in (("posterior", posterior), ("prior", prior)):
        for name, parameter in parameters.items():
            mean = distribution.means.get(name)
            if mean is None and name not in fixed:
                return refuse(
                    f"parameter {name!r} ({parameter.numel()} weights) is not in the {who} and was "
                    "not recorded before the bound examples were seen, so what it learned is not "
                    "paid for. Build the distributions from all parameters of the network."
                )
            if mean is not None and mean.shape != parameter.shape:
                return refuse(
                    f"parameter {name!r} has shape {tuple(parameter.shape)} in the network but "
                    f"{tuple(mean.shape)} in the {who}. Build the distributions from this network."
                )
        foreign = [name for name in distribution.names if name not in parameters]
        if foreign:
            return refuse(
                f"the {who} has a tensor {foreign[0]!r} that the network does not have: it belongs "
                "to another network."
            )
    if set(posterior.names) != set(prior.names):
        odd = sorted(set(posterior.names) ^ set(prior.names))[0]
        return refuse(f"{odd!r} is in one of posterior and prior only; the KL is not defined.")
    return holds(f"all {len(parameters)} parameter tensors are in both, or are fixed.")


@check(rows=(2,), since=1, name="the KL counts every random tensor", modes=PRIOR_MODES)
def every_term(evidence: Evidence) -> Outcome:
    posterior, _, complexity = parts(evidence)
    listed = [term.tensor for term in complexity.terms]
    if len(set(listed)) != len(listed):
        return refuse("the KL lists a tensor twice; list every tensor of the posterior once.")
    for name in posterior.names:
        if name not in listed:
            return refuse(
                f"the KL leaves out {name!r} ({posterior.means[name].numel()} weights): the sum is "
                "too small. List every tensor of the posterior."
            )
    for term in complexity.terms:
        size = posterior.means[term.tensor].numel() if term.tensor in posterior.means else 0
        if term.size != size:
            return refuse(
                f"the KL says that {term.tensor!r} has {term.size} weights; the posterior has "
                f"{size}. Recompute the terms with posterior.kl_to(prior)."
            )
    return holds(f"{len(listed)} tensors, {posterior.weights} weights.")


@check(
    rows=(2, 4),
    since=1,
    name="what is not random was fixed before the bound examples",
    says=("checked", "asserted"),
)
def fixed_parts(evidence: Evidence) -> Outcome:
    if not evidence.kind.prior and not evidence.kind.steps:
        return asserted(
            "the whole network was made without the examples that it is tested on, as stated by "
            "the one who gave it."
        )
    if foreign := foreign_tensor(mean_network(evidence), probes(evidence, WATCHED).inputs):
        return refuse(
            f"predicting uses {foreign}, and it belongs to no parameter, buffer or attribute of "
            "the network (a global variable, a closure, another object, or numbers computed "
            "outside of torch), or it is one of more such numbers than a network may bring along "
            f"({ALLOWED_NUMBERS}): it may come from the bound examples, and nothing pays for it. "
            "Register it as a buffer of the network before the prior is made."
        )
    if evidence.kind.steps:
        return holds("predicting uses only what the checkpoints own, each saved before its batch.")
    now, before = fixed_tensors(evidence.module, parts(evidence)[0].names), evidence.fixed_before
    known = before or {}
    odd = [name for name, t in now.items() if name not in known or not _same(t, known[name])]
    attributes = attribute_tensors(evidence.module)
    unread: frozenset[str] = frozenset()
    if any(name in attributes for name in odd):
        # A last activation or a log of the training carries nothing unless a prediction reads it.
        read = attributes_read(mean_network(evidence), evidence.bound_part.inputs)
        unread = frozenset(attributes) - read
        odd = [name for name in odd if name not in unread]
    aside = f" {len(unread)} attributes are read by no prediction." if unread else ""
    if len(now) == len(unread):
        return holds(f"the network has no buffers and no parameter outside the posterior.{aside}")
    if not odd and evidence.pretrained:
        return asserted(
            f"{len(now) - len(unread)} tensors outside the posterior are equal to what the prior "
            "was made with; that this was fixed before the bound examples is declared by the user, "
            f"who says: “{evidence.pretrained}”{aside}"
        )
    if not odd:
        return holds(
            f"{len(now) - len(unread)} tensors outside the posterior are equal to their earlier "
            f"values.{aside}"
        )
    name = odd[0]
    if before is None:
        return refuse(
            f"the network has tensors outside the posterior (the first is {name!r}), and nobody "
            "recorded them before the bound examples were seen: batch statistics or tables learned "
            "there would not be paid for. Record them when the prior is made (a prior at the "
            "initialization does), or use a network without them."
        )
    if name not in before:
        remedy = _UNREGISTERED if name in attributes else ""
        return refuse(f"{name!r} was not recorded before the bound examples were seen.{remedy}")
    return refuse(
        f"{name!r} is neither random nor what it was before the bound examples were seen (batch "
        "statistics that were updated, a layer trained outside the posterior, or data kept as an "
        "attribute), so the KL does not pay for it. Freeze it at its earlier value."
    )


#: What to do about a tensor in a plain attribute.
_UNREGISTERED = (
    " It is kept as a plain attribute of the network. If no example shaped it, register it as a "
    "buffer (register_buffer; layers in a list: nn.ModuleList) and build the prior from the "
    "network as it was before training."
)


@check(rows=(2, 16), since=1, name="all weights are finite")
def finite(evidence: Evidence) -> Outcome:
    named: dict[str, Tensor] = {name: t.detach() for name, t in evidence.module.named_parameters()}
    named |= {name: t.detach() for name, t in evidence.module.named_buffers()}
    for who, distribution in (("posterior", evidence.posterior), ("prior", evidence.prior)):
        if distribution is not None:
            named |= {f"{who} means of {name}": t for name, t in distribution.means.items()}
            named |= {f"{who} scales of {name}": t for name, t in distribution.scales.items()}
    for name, tensor in named.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return refuse(f"{name!r} holds NaN or infinity: training diverged. Train again.")
    return holds(f"no NaN or infinity in {len(named)} tensors.")


@check(rows=(3,), since=1, name="the KL belongs to the frozen posterior", modes=PRIOR_MODES)
def current(evidence: Evidence) -> Outcome:
    posterior, prior, complexity = parts(evidence)
    if evidence.posterior_at_kl != posterior.digest():
        return refuse(
            "the posterior changed after the KL was computed (another digest): the KL is that of "
            "an earlier one. Compute it from the frozen posterior."
        )
    words = "the frozen tensors give {}. Compute it from them."
    wrong = _disagreement(complexity, posterior.kl_to(prior), words)
    return wrong or holds("recomputed from the frozen tensors, term by term.")


@check(rows=(20,), since=1, name="an independent formula gives the same KL", modes=PRIOR_MODES)
def same_by_textbook(evidence: Evidence) -> Outcome:
    posterior, prior, complexity = parts(evidence)
    words = (
        "the textbook formula with scales as standard deviations gives {}. Were variances passed "
        "as scales?"
    )
    wrong = _disagreement(complexity, slow_kl(posterior, prior), words)
    return wrong or holds("the textbook formula in extended precision agrees, term by term.")


def _disagreement(
    complexity: ComplexityRecord, nats: dict[str, float], words: str
) -> Outcome | None:
    wrong = arithmetic.disagreement(complexity.terms, nats)
    if wrong is None:
        return None
    term, own = wrong
    recorded = f"the KL of {term.tensor!r} is recorded as {term.nats!r} nats"
    return refuse(f"{recorded}; {words.format(repr(own))}")


@check(rows=(21,), since=1, name="the KL is summed in float64 and rounded up", modes=PRIOR_MODES)
def summed_upward(evidence: Evidence) -> Outcome:
    _, _, complexity = parts(evidence)
    # Raises where the savings exceed the sum: some of them exclude one another.
    total = arithmetic.complexity_nats(complexity.terms, complexity.symmetries)
    less = ", less what symmetries save," if complexity.symmetries else ""
    if complexity.kl_nats != total:
        return refuse(
            f"the terms of the KL{less} sum to {total!r} nats, not to {complexity.kl_nats!r}. Sum "
            "them with rules.arithmetic.complexity_nats."
        )
    return holds(f"{len(complexity.terms)} terms{less} sum to {total:.6g} nats.")


@check(
    rows=(3, 17),
    since=1,
    name="the price of the drawn network is its own",
    modes=RANDOM_MODES,
    predictors=("drawn",),
)
def drawn_price(evidence: Evidence) -> Outcome:
    posterior, prior, complexity = parts(evidence)
    weights = drawing.draw_network(posterior, evidence.risk.seed)
    if evidence.drawn is not None:
        for name, tensor in weights.items():
            if name not in evidence.drawn or not _same(tensor, evidence.drawn[name]):
                return refuse(
                    f"the weights {name!r} of the drawn network are not those that the recorded "
                    "seed draws from the posterior. Draw them with rules.drawing.draw_network."
                )
    if "log_density_ratio" in evidence.bound.inputs:
        ratio, agrees = drawing.priced(posterior, prior, weights, complexity)
        if not agrees:
            return refuse(
                f"ln dQ/dP of the drawn network is recorded as {complexity.log_density_ratio!r}; "
                f"its weights give {ratio!r}."
            )
    if "renyi_nats" in evidence.bound.inputs:
        renyi = arithmetic.total_nats(
            posterior.renyi_to(prior, float(evidence.bound.inputs["order"]))
        )
        claimed = float(evidence.bound.inputs["renyi_nats"])
        if not abs(claimed - renyi) <= arithmetic.tolerance(renyi, 10 * posterior.weights):
            return refuse(f"the Renyi divergence is recorded as {claimed!r} nats; it is {renyi!r}.")
    return holds("drawn again from the recorded seed, and priced again.")


def _same(first: Tensor, second: Tensor) -> bool:
    """Equal bits, wherever the tensors live."""
    return tensors_digest({"": first}) == tensors_digest({"": second})
