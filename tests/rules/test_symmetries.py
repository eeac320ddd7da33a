"""Symmetries in the KL: honest use passes, and every way to claim too much is refused."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import status_of
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.records import ComplexityRecord, SymmetrySaving
from nonvacuous.risk.losses import Loss, bounded_cross_entropy, zero_one
from nonvacuous.rules.arithmetic import complexity_nats, total_nats
from nonvacuous.rules.symmetries import captured, disagreeing_saving, symmetry_savings
from tests.audit import worlds
from tests.audit.planting import assert_refused, bound_with
from tests.audit.worlds import changed

ONLY = "symmetries lower the price of the randomized network only"
ALLOWED = "symmetries are used only where they hold"
RECOMPUTED = "what symmetries save can be recomputed"
SEEN = "the network has the symmetries that are used"


@pytest.fixture(scope="module")
def honest() -> Evidence:
    return worlds.symmetric()


def with_savings(evidence: Evidence, *savings: SymmetrySaving) -> Evidence:
    """The evidence that these savings would give: consistent in itself."""
    assert evidence.complexity is not None
    terms = evidence.complexity.terms
    complexity = ComplexityRecord(
        terms=terms, symmetries=savings, kl_nats=complexity_nats(terms, savings)
    )
    return changed(
        evidence,
        complexity=complexity,
        bound=bound_with(evidence, kl_nats=complexity.kl_nats),
        risk_upper=None,
    )


def savings_of(evidence: Evidence) -> tuple[SymmetrySaving, ...]:
    assert evidence.complexity is not None
    return evidence.complexity.symmetries


@pytest.mark.slow_if("which0")
@pytest.mark.parametrize(
    "which", [("translation", "permutation"), ("translation",), ("permutation",), ()]
)
def test_honest_use_is_valid(which: tuple[str, ...]) -> None:
    evidence = worlds.symmetric(which=which)
    assumptions = audit.run(evidence)
    assert [a for a in assumptions if a.effect != "none"] == []
    assert {saving.symmetry for saving in savings_of(evidence)} == set(which)
    assert status_of(assumptions) == "valid"


def test_a_loss_that_does_not_see_the_shift_may_forget_it() -> None:
    evidence = worlds.symmetric(loss=bounded_cross_entropy(0.01))
    assert {s.symmetry for s in savings_of(evidence)} == {"translation", "permutation"}
    assert status_of(audit.run(evidence)) == "valid"


def test_terms_stay_whole_and_the_rest_is_the_difference(honest: Evidence) -> None:
    complexity = honest.complexity
    assert complexity is not None
    assert honest.posterior is not None and honest.prior is not None
    assert {t.tensor: t.nats for t in complexity.terms} == honest.posterior.kl_to(honest.prior)
    saved = math.fsum(saving.nats for saving in complexity.symmetries)
    assert complexity.symmetry_nats == saved > 0
    assert complexity.kl_nats >= total_nats(complexity.terms) - saved > 0
    assert complexity.kl_nats == pytest.approx(total_nats(complexity.terms) - saved, rel=1e-12)


# ------------------------------------------------------------------------------ planted mistakes


def test_row_17_symmetries_in_the_price_of_a_drawn_network(honest: Evidence) -> None:
    drawn = worlds.drawn()
    assert drawn.complexity is not None
    saving = SymmetrySaving(symmetry="translation", place="2.bias", units=3, nats=1e-6)
    terms = drawn.complexity.terms
    planted = drawn.complexity.model_copy(
        update={"symmetries": (saving,), "kl_nats": complexity_nats(terms, (saving,))}
    )
    assert_refused(changed(drawn, complexity=planted), ONLY, "drawn", "pays for its own weights")


@pytest.mark.parametrize("factor", [1.001, 0.999])
def test_row_22_a_saving_of_another_size(honest: Evidence, factor: float) -> None:
    first, *others = savings_of(honest)
    wrong = first.model_copy(update={"nats": first.nats * factor})
    assert_refused(with_savings(honest, wrong, *others), RECOMPUTED, "it saves")


def test_row_02_the_units_of_a_permutation_that_is_none(honest: Evidence) -> None:
    shifts = [s for s in savings_of(honest) if s.symmetry == "translation"]
    order = SymmetrySaving(symmetry="permutation", place="4", units=3, nats=0.5)
    assert_refused(with_savings(honest, *shifts, order), ALLOWED, "'4'", "what the network returns")
    foreign = SymmetrySaving(symmetry="translation", place="0.weight", units=8, nats=0.5)
    assert_refused(with_savings(honest, foreign), ALLOWED, "'0.weight'")


def test_row_22_more_than_all_orders_there_are(honest: Evidence) -> None:
    order = next(s for s in savings_of(honest) if s.symmetry == "permutation")
    limit = math.lgamma(order.units + 1)
    wrong = order.model_copy(update={"nats": limit + 1e-3})
    assert_refused(with_savings(honest, wrong), ALLOWED, "more than ln 8!")
    inflated = order.model_copy(update={"units": 20, "nats": limit + 1})
    assert_refused(with_savings(honest, inflated), RECOMPUTED, "there are 8")


def test_row_22_the_same_symmetry_twice(honest: Evidence) -> None:
    first = savings_of(honest)[0]
    half = first.model_copy(update={"nats": first.nats / 4})
    assert_refused(with_savings(honest, half, half), ALLOWED, "twice")


def test_row_22_layers_that_share_a_tensor(honest: Evidence) -> None:
    """Both orders are fine alone; together they are a mixture that nobody has priced."""
    savings = []
    for layer, units in (("0", 8), ("2", 6)):
        savings.append(SymmetrySaving(symmetry="permutation", place=layer, units=units, nats=1.0))
    assert_refused(with_savings(honest, *savings), ALLOWED, "'2.weight' belongs to both")


def test_row_22_shift_and_order_added_up_naively() -> None:
    """Each saving as it would be alone: the shift's part of the units' differences counts twice."""
    evidence = close_units()
    alone = alone_savings(evidence)
    assert [(s.symmetry, s.place) for s in alone] == [
        ("translation", "4.weight"),
        ("translation", "4.bias"),
        ("permutation", "2"),
    ]
    assert_refused(with_savings(evidence, *alone), RECOMPUTED, "permutation of '2'")


def close_units() -> Evidence:
    """Units that can be told apart by a shift of their outgoing weights only."""
    base = worlds.symmetric()
    assert base.posterior is not None
    means = {name: mean.clone() for name, mean in base.posterior.means.items()}
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        means[name] = torch.zeros_like(means[name])
    means["4.weight"] = (0.5 * torch.arange(6.0)).expand(3, 6).clone()
    posterior = DiagonalGaussian(means=means, scales=base.posterior.scales)
    module = copy.deepcopy(base.module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(means[name])
    assert base.prior is not None
    return changed(
        base,
        posterior=posterior,
        module=module,
        complexity=worlds.complexity_of(posterior, base.prior),
    )


def alone_savings(evidence: Evidence) -> list[SymmetrySaving]:
    assert evidence.posterior is not None and evidence.prior is not None
    return [
        saving
        for which in ("translation", "permutation")
        for saving in symmetry_savings(
            captured(evidence.module, evidence.examples.inputs),
            evidence.posterior,
            evidence.prior,
            loss="zero-one",
            which=(which,),
        )
    ]


def test_row_22_a_prior_that_tells_the_units_apart(honest: Evidence) -> None:
    assert honest.prior is not None
    means = {name: mean.clone() for name, mean in honest.prior.means.items()}
    means["0.weight"][2, 1] = 0.1
    apart = DiagonalGaussian(means=means, scales=honest.prior.scales)
    assert_refused(changed(honest, prior=apart), ALLOWED, "'0.weight' differ from unit to unit")


def test_row_22_a_loss_that_sees_the_shift(honest: Evidence) -> None:
    absolute = Loss("my own", 0.0, 1.0, zero_one.function, binary=True)
    assert_refused(changed(honest, loss=absolute), ALLOWED, "'my own' is not known to ignore")


def test_row_22_negative_kl(honest: Evidence) -> None:
    assert honest.complexity is not None
    huge = SymmetrySaving(
        symmetry="permutation", place="0", units=8, nats=2 * honest.complexity.kl_nats
    )
    with pytest.raises(InvalidCertificate, match="negative KL"):
        complexity_nats(honest.complexity.terms, (huge,))
    planted = honest.complexity.model_copy(update={"symmetries": (huge,), "kl_nats": 0.0})
    name = "the KL is summed in float64 and rounded up"
    assert_refused(changed(honest, complexity=planted), name, "negative KL")


def test_row_22_a_kl_below_terms_less_savings(honest: Evidence) -> None:
    assert honest.complexity is not None
    low = math.nextafter(honest.complexity.kl_nats, 0.0)
    planted = honest.complexity.model_copy(update={"kl_nats": low})
    name = "the KL is summed in float64 and rounded up"
    assert_refused(changed(honest, complexity=planted), name, "less what symmetries save")


class Watching(nn.Sequential):
    """Looks harmless to a graph made of two examples, and tells its units apart in others."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self[0](inputs))
        if len(inputs) > 2:
            hidden = hidden * torch.linspace(0.5, 1.5, hidden.shape[1], dtype=hidden.dtype)
        scores: Tensor = self[4](torch.relu(self[2](hidden)))
        return scores


def test_row_22_a_network_that_does_otherwise_than_its_graph(honest: Evidence) -> None:
    sly = Watching(*copy.deepcopy(honest.module)).eval()
    assert_refused(changed(honest, module=sly), SEEN, "another order of the units of '0'")


@pytest.mark.slow
def test_a_network_without_a_graph_has_no_symmetries(honest: Evidence) -> None:
    class Opaque(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            if float(inputs.sum()) > 1e9:
                return inputs
            scores: Tensor = super().forward(inputs)
            return scores

    opaque = Opaque(*copy.deepcopy(honest.module)).eval()
    assert_refused(changed(honest, module=opaque), ALLOWED, "no symmetry of this network is known")


def test_savings_left_out_or_added_are_told() -> None:
    one = SymmetrySaving(symmetry="translation", place="w", units=3, nats=1.0)
    other = SymmetrySaving(symmetry="permutation", place="l", units=4, nats=2.0)
    assert disagreeing_saving((one, other), (other, one)) is None
    assert "left out" in (disagreeing_saving((one,), (one, other)) or "")
    assert "no such saving" in (disagreeing_saving((one, other), (one,)) or "")


def test_an_unknown_symmetry_is_named(honest: Evidence) -> None:
    assert honest.posterior is not None and honest.prior is not None
    with pytest.raises(BadInput, match="'rotation'"):
        symmetry_savings(
            captured(honest.module, honest.examples.inputs),
            honest.posterior,
            honest.prior,
            loss="zero-one",
            which=("rotation",),
        )
