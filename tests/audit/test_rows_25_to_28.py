"""Ways to a false certificate that only sparsity certificates have, planted one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import status_of
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.methods import Sparsity
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.rules.arithmetic import bound_record, complexity_nats, recompute_bound
from nonvacuous.rules.attempts import Standing
from nonvacuous.sparsity.certify import final_seed
from nonvacuous.sparsity.setting import frozen_setting, total_nats

from . import sparse_worlds
from .planting import assert_conditional, assert_refused, bound_with
from .worlds import changed

WHOLE = "the theorem was applied to the whole network"
NOISE = "prior and posterior have the noise of the setting"
PAID = "every choice inside the loss is named and paid for"
ESCAPE = "the bound is divided by what the noise lets through"
LAST = "the noise was drawn after the setting was final"
NORMS = "every threshold uses the example's own norm"
AGAIN = "the noisy losses can be counted again"
TRIALS = "the risk is a count of independent trials"


@pytest.fixture(scope="module")
def honest() -> Evidence:
    return sparse_worlds.evidence()


def recorded(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.sparsity is not None
    return changed(evidence, sparsity=evidence.sparsity.model_copy(update=changes))


@pytest.mark.slow_if("sparse-E")
@pytest.mark.parametrize("theorem", ["E", "F", "D", "A"])
@pytest.mark.parametrize("variant", ["sparse", "dense"])
def test_honest_sparsity_evidence_is_valid(theorem: str, variant: str) -> None:
    settings = Sparsity(theorem=theorem, variant=variant, passes=2, search_examples=100)
    assumptions = audit.run(sparse_worlds.evidence(settings))
    assert [a for a in assumptions if a.effect != "none"] == []
    assert status_of(assumptions) == "valid"
    assert len({a.name for a in assumptions}) == len(assumptions)


# ------------------------------------------------------------------ rows that all modes share


@pytest.mark.slow
def test_the_prior_part_is_counted(honest: Evidence) -> None:
    whole = changed(honest, bound=bound_with(honest, examples=len(honest.examples)))
    assert_refused(whole, "n comes from the stored indices", "n = 260")


def test_a_prior_that_saw_bound_examples(honest: Evidence) -> None:
    seen = changed(honest, prior_saw=honest.split.bound, prior_saw_digest=None)
    assert_refused(seen, "the prior saw no bound example")


def test_a_layer_missing_from_the_kl(honest: Evidence) -> None:
    assert honest.complexity is not None
    terms = honest.complexity.terms[:1]
    short = honest.complexity.model_copy(update={"terms": terms, "kl_nats": complexity_nats(terms)})
    forged = changed(honest, complexity=short)
    assert_refused(forged, "the KL counts every random tensor", "layers.2.weight")
    assert_refused(forged, NOISE, "layers.2.weight", "not in the KL")


def test_a_layer_missing_from_the_record(honest: Evidence) -> None:
    assert honest.sparsity is not None
    assert_refused(recorded(honest, layers=honest.sparsity.layers[:1]), WHOLE, "1 layers")


def test_another_network_than_the_one_promised(honest: Evidence) -> None:
    other = changed(honest, module=sparse_worlds.network(seed=5))
    assert_refused(other, WHOLE, "are not those of the network")
    relabeled = changed(honest, prior_layers=honest.layers)
    assert_refused(relabeled, WHOLE, "prior")


def test_another_noise_around_the_prior(honest: Evidence) -> None:
    assert honest.prior is not None
    wide = {name: 2.0 * scale for name, scale in honest.prior.scales.items()}
    forged = changed(honest, prior=DiagonalGaussian(means=honest.prior.means, scales=wide))
    assert_refused(forged, NOISE, "around the prior")


def test_a_shorter_distance(honest: Evidence) -> None:
    assert honest.sparsity is not None
    first, *rest = honest.sparsity.layers
    near = first.model_copy(update={"squared_distance": 0.5 * first.squared_distance})
    assert_refused(recorded(honest, layers=(near, *rest)), NOISE, "squared distance")


def test_noisy_losses_are_not_of_one_law(honest: Evidence) -> None:
    risk = honest.risk.model_copy(update={"identical": True})
    assert_refused(changed(honest, risk=risk), TRIALS, "different laws")
    more = honest.risk.model_copy(update={"trials": honest.risk.trials + 1})
    assert_refused(changed(honest, risk=more), TRIALS, "wrong count")


@pytest.mark.slow
def test_losses_of_another_network(honest: Evidence) -> None:
    fewer = honest.risk.model_copy(update={"errors": 0})
    assert_refused(changed(honest, risk=fewer), AGAIN, "counted again")
    assert_refused(changed(honest, loss=bounded_cross_entropy()), AGAIN, "how often")
    measured = changed(honest, measured_predictor="deterministic")
    assert_refused(measured, "the promise is about the predictor that was measured", "noise around")


def test_no_price_for_the_sampling(honest: Evidence) -> None:
    risk = honest.risk.model_copy(update={"risk_upper": honest.risk.mean})
    assert_refused(changed(honest, risk=risk), "the sampling error is paid for")


def test_earlier_certificates_make_it_conditional(honest: Evidence) -> None:
    name = "earlier certificates on these examples are paid for"
    assert_conditional(changed(honest, standing=Standing((1, 1))), name, "3 times")


def test_a_search_that_nobody_paid_in_nats(honest: Evidence) -> None:
    without = bound_record("holdout", errors=1, examples=honest.bound_examples, failure=0.04)
    forged = changed(honest, bound=without, risk_upper=recompute_bound(without))
    assert_refused(forged, "every search was paid for", "'grid'")


# ------------------------------------------------------------------------------ rows 25 to 28


@pytest.mark.slow
def test_row_25_the_escape_probability_is_not_divided_out(honest: Evidence) -> None:
    assert_refused(changed(honest, bound=bound_with(honest, escape=0.0)), ESCAPE, "division")
    forged = changed(honest, bound=bound_with(honest, escape=0.001))
    assert_refused(recorded(forged, escape=0.001), ESCAPE)
    assert_refused(recorded(honest, loss_upper=0.0), ESCAPE, "the counts give")


def test_row_26_charges_that_do_not_sum(honest: Evidence) -> None:
    assert honest.sparsity is not None
    half = 0.5 * honest.sparsity.grid_nats
    assert_refused(recorded(honest, grid_nats=half), PAID, "sum to")


@pytest.mark.slow
def test_row_26_a_choice_that_nobody_paid_for(honest: Evidence) -> None:
    assert honest.sparsity is not None
    for left_out in range(len(honest.sparsity.charges)):
        rest = tuple(c for i, c in enumerate(honest.sparsity.charges) if i != left_out)
        forged = recorded(honest, charges=rest, grid_nats=total_nats(rest))
        assert_refused(forged, PAID, "nobody paid")
    doubled = (*honest.sparsity.charges, honest.sparsity.charges[0])
    forged = recorded(honest, charges=doubled, grid_nats=total_nats(doubled))
    assert_refused(forged, PAID, "listed twice")


def test_row_26_a_grid_constant_below_the_truth(honest: Evidence) -> None:
    assert honest.sparsity is not None
    lines = list(honest.sparsity.charges)
    place = next(i for i, c in enumerate(lines) if c.choice.startswith("reference"))
    lines[place] = lines[place].model_copy(update={"choice": "reference x 2^(-640/64)"})
    forged = recorded(honest, charges=tuple(lines))
    assert_refused(forged, PAID, "not below the truth")


def test_row_27_a_setting_chosen_again_after_the_noise(honest: Evidence) -> None:
    assert honest.sparsity is not None
    other = {**honest.sparsity.setting, "escape": (honest.sparsity.setting["escape"] + 1) % 12}
    assert_refused(recorded(honest, setting=other), LAST, "chosen again")


@pytest.mark.slow
def test_row_27_noise_drawn_again(honest: Evidence) -> None:
    another = honest.risk.model_copy(update={"seed": 5})
    assert_refused(changed(honest, risk=another), LAST)
    twice = changed(honest, draws=(*honest.draws, ("sampling", honest.risk.seed)))
    assert_refused(twice, LAST, "2 times")
    early = changed(honest, draws=(("search", honest.risk.seed), *honest.draws))
    assert_refused(early, LAST, "before the setting was frozen")
    unfrozen = changed(honest, draws=(("sampling", honest.risk.seed),))
    assert_refused(unfrozen, LAST, "0 times")


def test_row_28_a_norm_read_off_the_sample(honest: Evidence) -> None:
    assert honest.sparsity is not None
    longest = honest.sparsity.longest_input
    assert_refused(recorded(honest, shortest_input=longest), NORMS, "each example's own")
    assert_refused(recorded(honest, longest_input=2.0 * longest), NORMS)


def test_the_seed_is_that_of_the_frozen_setting(honest: Evidence) -> None:
    assert honest.sparsity is not None and honest.layers is not None
    setting = frozen_setting(
        honest.sparsity.theorem, honest.sparsity.variant, honest.sparsity.setting
    )
    assert honest.risk.seed == final_seed(7, honest.layers.digest(), setting)
    assert torch.equal(honest.layers.weights[0].float(), next(honest.module.parameters()))
