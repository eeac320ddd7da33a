"""The 24 known ways to a false certificate, planted one by one: rows 10 to 24."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from nonvacuous.audit.evidence import Evidence, Search
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.records import (
    BudgetRecord,
    KlTerm,
    RiskRecord,
)
from nonvacuous.risk.losses import Loss, bounded_cross_entropy
from nonvacuous.rules.arithmetic import bound_record, recompute_bound

from . import worlds
from .planting import assert_conditional, assert_refused, bound_with, found
from .worlds import changed


@pytest.fixture
def honest() -> Evidence:
    return worlds.stochastic()


def test_row_10_overspent(honest: Evidence) -> None:
    lines = [
        {"name": "sampling", "failure": 0.01, "reason": "Monte Carlo", "choices": 1},
        {"name": "bound", "failure": 0.05, "reason": "PAC-Bayes", "choices": 4},
    ]
    budget = BudgetRecord.model_validate({"failure": 0.05, "entries": tuple(lines)})
    assert_refused(
        changed(honest, budget=budget), "the failure probability is spent once", "more than is left"
    )


def test_row_10_sampling_not_paid(honest: Evidence) -> None:
    lines = ({"name": "bound", "failure": 0.05, "reason": "PAC-Bayes", "choices": 4},)
    budget = BudgetRecord.model_validate({"failure": 0.05, "entries": lines})
    assert_refused(changed(honest, budget=budget), "the sampling error is paid for", "'sampling'")
    plain = honest.risk.model_copy(update={"risk_upper": honest.risk.mean})
    assert_refused(
        changed(honest, risk=plain, bound=bound_with(honest, empirical_risk=plain.mean)),
        "the sampling error is paid for",
    )


def test_row_10_bound_at_more_than_its_share(honest: Evidence) -> None:
    greedy = changed(honest, bound=bound_with(honest, failure=0.04))
    assert_refused(greedy, "the failure probability is spent once", "ledger allows 0.00")


def test_row_10_no_line_for_the_bound(honest: Evidence) -> None:
    lines = ({"name": "sampling", "failure": 0.05, "reason": "Monte Carlo", "choices": 1},)
    budget = BudgetRecord.model_validate({"failure": 0.05, "entries": lines})
    assert_refused(changed(honest, budget=budget), "the failure probability is spent once", "bound")


def test_row_11_shared_draws_counted_per_example(honest: Evidence) -> None:
    # No record can say so; that weights were drawn afresh for each pair, the seed shows again.
    with pytest.raises(ValidationError, match="scheme"):
        RiskRecord(**honest.risk.model_dump() | {"scheme": "shared draws"})


def test_row_12_sampled_again_until_it_pleased(honest: Evidence) -> None:
    name = "the sampling seed was used once, after freezing"
    seed = honest.risk.seed
    twice = (*honest.draws, ("sampling", seed + 1))
    assert_refused(changed(honest, draws=twice), name, "2 times")
    early = (("sampling", seed), ("freeze", 0), ("sampling", seed))
    assert_refused(changed(honest, draws=early), name, "before the posterior was frozen")
    disguised = (("posterior training", seed), ("freeze", 0), ("sampling", seed))
    assert_refused(changed(honest, draws=disguised), name, "before the posterior was frozen")
    assert_refused(changed(honest, draws=()), name, "frozen 0 times")
    refrozen = (("freeze", 0), *honest.draws)
    assert_refused(changed(honest, draws=refrozen), name, "frozen 2 times")
    other = honest.risk.model_copy(update={"seed": seed + 1})
    draws = (("freeze", 0), ("sampling", seed + 1))
    assert_refused(changed(honest, risk=other, draws=draws), name, "not with the one derived")


def test_row_13_inverse_from_the_lower_end(honest: Evidence) -> None:
    value = recompute_bound(honest.bound)
    for wrong in (math.nextafter(value, 0.0), 0.99 * value, honest.risk.risk_upper):
        assert_refused(
            changed(honest, risk_upper=wrong), "the bound can be recomputed", repr(wrong)
        )


def test_row_13_an_inversion_that_is_broken_itself(
    honest: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nonvacuous.audit import claim_checks

    monkeypatch.setattr(claim_checks, "recompute_bound", lambda bound: 0.99 * value)
    value = recompute_bound(honest.bound)
    assert_refused(
        changed(honest, risk_upper=0.99 * value), "the bound can be recomputed", "wrong side"
    )


def test_row_14_average_of_bounds_over_batches(honest: Evidence) -> None:
    averaged = changed(honest, bound=bound_with(honest, empirical_risk=0.5 * honest.risk.mean))
    assert_refused(averaged, "the bound was computed from the recorded facts", "empirical_risk")


def test_row_15_mean_of_batch_means(honest: Evidence) -> None:
    fields = honest.risk.model_dump() | {"errors": 12.5, "trials": 99.5}
    assert_refused(
        changed(honest, risk=RiskRecord.model_construct(**fields)),
        "the risk is a count of independent trials",
        "average of averages",
    )


def test_row_15_division_by_a_wrong_count() -> None:
    for evidence in (worlds.drawn(), worlds.holdout()):
        longer = evidence.risk.model_copy(update={"trials": evidence.risk.trials + 30})
        assert_refused(changed(evidence, risk=longer), "the risk is a count of independent trials")
        assert_refused(changed(evidence, risk=longer), "the errors can be counted again")


def test_row_15_errors_left_out() -> None:
    for evidence in (worlds.drawn(), worlds.holdout()):
        assert evidence.risk.errors is not None
        fewer = evidence.risk.model_copy(update={"errors": evidence.risk.errors + 9})
        assert_refused(changed(evidence, risk=fewer), "the errors can be counted again")


def test_row_16_loss_outside_its_range(honest: Evidence) -> None:
    def unbounded(outputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, labels, reduction="none")

    name = "the loss stays in [0, 1]"
    lying = Loss(name="cross-entropy", lower=0.0, upper=1.0, function=unbounded)
    assert_refused(changed(honest, loss=lying), name, "outside its declared range")
    wide = Loss(name="cross-entropy", lower=0.0, upper=10.0, function=unbounded)
    assert_refused(changed(honest, loss=wide), name, "[0.0, 10.0]")


def test_row_16_sum_of_losses_recorded_as_errors(honest: Evidence) -> None:
    soft = changed(honest, loss=bounded_cross_entropy())
    assert_refused(soft, "the risk is a count of independent trials", "sum must be recorded")


def test_row_17_mean_network_measured(honest: Evidence) -> None:
    name = "the promise is about the predictor that was measured"
    for measured in ("mean", "ensemble", "deterministic"):
        assert_refused(changed(honest, measured_predictor=measured), name, measured)


def test_row_17_theorem_about_another_predictor() -> None:
    evidence = worlds.drawn()
    inputs = dict(worlds.stochastic().bound.inputs)
    randomized = changed(evidence, bound=bound_record("seeger", **inputs))
    name = "the promise is about the predictor that was measured"
    assert_refused(randomized, name, "'seeger'")
    test = changed(evidence, mode="holdout")
    assert_refused(test, name, "mode 'holdout'")


def test_row_17_another_network_than_the_drawn_one() -> None:
    evidence = worlds.drawn()
    assert evidence.drawn is not None and evidence.complexity is not None
    swapped = {name: tensor + 1e-3 for name, tensor in evidence.drawn.items()}
    name = "the price of the drawn network is its own"
    assert_refused(changed(evidence, drawn=swapped), name, "not those that the recorded seed")
    ratio = evidence.complexity.log_density_ratio
    assert ratio is not None
    cheaper = evidence.complexity.model_copy(update={"log_density_ratio": ratio - 1.0})
    assert_refused(changed(evidence, complexity=cheaper), name, "ln dQ/dP")


def test_row_18_augmented_inputs(honest: Evidence) -> None:
    flipped = changed(honest, risk_transform="as given; random flips")
    assert_refused(flipped, "the risk was measured on the evaluation inputs", "random flips")


def test_row_19_test_set_chose_a_checkpoint(honest: Evidence) -> None:
    name = "the test examples were read after the end"
    early = changed(honest, test_reads=("checkpoint selection", "freeze", "report"))
    assert_conditional(early, name, "checkpoint selection")
    assert_conditional(changed(honest, test_reads=("report",)), name)
    assert found(changed(honest, test_reads=()), name).status == "checked"


def test_row_20_variance_passed_as_scale(honest: Evidence) -> None:
    assert honest.posterior is not None and honest.prior is not None
    mixed_up = DiagonalGaussian(
        means=honest.posterior.means,
        scales={name: scale.square() for name, scale in honest.posterior.scales.items()},
    )
    wrong = worlds.complexity_of(mixed_up, honest.prior)
    assert_refused(
        changed(honest, complexity=wrong), "an independent formula gives the same KL", "variances"
    )


def test_row_21_float32_sum(honest: Evidence) -> None:
    assert honest.complexity is not None
    rounded = float(np.float32(honest.complexity.kl_nats))
    assert rounded != honest.complexity.kl_nats
    for nats in (rounded, math.fsum(t.nats for t in honest.complexity.terms)):
        coarse = honest.complexity.model_copy(update={"kl_nats": nats})
        assert_refused(
            changed(honest, complexity=coarse), "the KL is summed in float64 and rounded up"
        )


def test_row_22_a_wrong_formula(honest: Evidence) -> None:
    inputs = honest.bound.inputs
    wrong = float(inputs["empirical_risk"]) + float(inputs["kl_nats"]) / int(inputs["examples"])
    assert_refused(changed(honest, risk_upper=wrong), "the bound can be recomputed")
    renamed = honest.bound.model_copy(update={"theorem": "a folk theorem"})
    assert_refused(changed(honest, bound=renamed), "the bound is a known theorem")
    cheaper = changed(honest, bound=bound_with(honest, kl_nats=0.0))
    assert_refused(cheaper, "the bound was computed from the recorded facts", "kl_nats")
    invented = changed(honest, bound=bound_with(honest, luck=1.0))
    assert_refused(invented, "the bound can be recomputed", "unknown luck")


def test_row_23_groups(honest: Evidence) -> None:
    grouped = changed(honest, groups_declared=True)
    assert_conditional(grouped, "examples do not come in groups", "not independent")


def test_row_23_copies_across_bound_and_held_out(honest: Evidence) -> None:
    inputs = honest.examples.inputs.clone()
    inputs[int(honest.split.heldout[0])] = inputs[int(honest.split.bound[0])]
    data = Examples(inputs, honest.examples.labels, ("a", "b", "c"), "world")
    copied = changed(honest, examples=data, data=worlds.data_record(data, honest.split))
    assert_conditional(
        copied, "no example has a copy in another part of the data", "bound and held-out"
    )


def test_row_23_copies_in_the_test_set_are_mentioned(honest: Evidence) -> None:
    name = "no example has a copy in another part of the data"
    copied = found(changed(honest, test=honest.examples.subset(honest.split.bound[:5])), name)
    assert copied.effect == "none" and "5 of 5 test inputs are copies" in copied.detail


def copied_inside(honest: Evidence, count: int) -> Evidence:
    """So many bound examples with the input of the first one."""
    inputs = honest.examples.inputs.clone()
    bound = honest.split.bound
    inputs[torch.from_numpy(bound[1 : 1 + count].copy())] = inputs[int(bound[0])].clone()
    data = Examples(inputs, honest.examples.labels, ("a", "b", "c"), "world")
    return changed(honest, examples=data, data=worlds.data_record(data, honest.split))


def test_row_23_copies_inside_the_bound_part() -> None:
    name = "examples are independent and identically distributed"
    count = 300
    # A third of the examples is the prior's, a twelfth is held out.
    honest = worlds.stochastic(data=worlds.examples(count), parts=worlds.split(count))
    n = honest.bound_examples
    few = n // 100
    assert few >= 1
    for copies in (0, few):
        noted = found(copied_inside(honest, copies), name)
        assert (noted.status, noted.effect) == ("not checkable", "none")
        assert (f"{copies} bound examples repeat" in noted.detail) is (copies > 0)
    assert_conditional(
        copied_inside(honest, few + 1),
        name,
        f"{few + 1} of the {n} bound examples",
        f"only {n - few - 1} different inputs",
        "Drop the copies",
    )


def test_row_24_best_of_many_seeds(honest: Evidence) -> None:
    best = Search("seed", 20, None, "the smallest of twenty")
    assert_refused(changed(honest, searches=(best,)), "every search was paid for", "'seed'")
    restarts = Search("initial weights of the prior", 20, "free", "all posteriors at once")
    assert_refused(changed(honest, searches=(restarts,)), "every search was paid for")


def test_row_24_promise_about_other_data(honest: Evidence) -> None:
    assert honest.data is not None
    name = "the promise says no more than the theorem"
    other = honest.data.model_copy(update={"name": "all images there are"})
    assert_refused(changed(honest, data=other), name, "all images there are")
    assert_refused(changed(honest, confidence=0.99), name, "0.99")


def test_terms_of_an_unknown_tensor(honest: Evidence) -> None:
    assert honest.complexity is not None
    padded = honest.complexity.model_copy(
        update={"terms": (*honest.complexity.terms, KlTerm(tensor="ghost", size=1, nats=0.0))}
    )
    assert_refused(changed(honest, complexity=padded), "the KL counts every random tensor", "ghost")
