"""The 28 known ways to a false certificate, planted one by one: rows 1 to 9.

Every fault is planted in otherwise honest evidence, and the check that guards against it must be
the one that finds it.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence, Search
from nonvacuous.audit.registry import CHECKS, ROWS
from nonvacuous.certificate import status_of
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.records import (
    BoundRecord,
    BudgetRecord,
    ComplexityRecord,
)
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.rules.arithmetic import bound_record, recompute_bound
from nonvacuous.rules.attempts import Standing

from . import test_rows_10_to_24, test_rows_25_to_28, worlds
from .planting import assert_conditional, assert_refused, bound_with, found
from .worlds import changed


@pytest.fixture
def honest() -> Evidence:
    return worlds.stochastic()


# ------------------------------------------------------------------------------ honest evidence


@pytest.mark.parametrize(
    "make",
    [
        worlds.stochastic,
        worlds.drawn,
        worlds.holdout,
        lambda: worlds.stochastic(loss=bounded_cross_entropy()),
        lambda: worlds.stochastic(module=worlds.WithBuffer()),
        lambda: changed(worlds.stochastic(), mode="post-hoc", prior_saw=None),
    ],
)
def test_honest_evidence_is_valid(make: Any) -> None:
    assumptions = audit.run(make())
    assert [a for a in assumptions if a.effect != "none"] == []
    assert status_of(assumptions) == "valid"
    assert len({a.name for a in assumptions}) == len(assumptions)
    assert all(a.detail.endswith(".") for a in assumptions)


def test_every_row_has_a_guard() -> None:
    assert {row for check in CHECKS.values() for row in check.rows} == set(range(1, ROWS + 1))


def test_every_row_has_a_test() -> None:
    names = [*globals(), *vars(test_rows_10_to_24), *vars(test_rows_25_to_28)]
    tested = {int(name.split("_")[2]) for name in names if name.startswith("test_row_")}
    assert tested == set(range(1, ROWS + 1))


def test_facts_about_the_world_are_always_listed(honest: Evidence) -> None:
    by_name = {a.name: a for a in audit.run(honest)}
    for name in (
        "examples are independent and identically distributed",
        "the data are what they are said to be",
    ):
        assert by_name[name].status == "not checkable"
    assert by_name["architecture and settings were chosen before looking"].status == "asserted"


def test_unknown_kinds_of_certificate_are_refused_at_once(honest: Evidence) -> None:
    with pytest.raises(BadInput, match="no certificate of mode 'magic'"):
        audit.run(changed(honest, mode="magic"))
    with pytest.raises(BadInput, match="'ensemble'"):
        audit.run(changed(honest, predictor="ensemble"))


def test_a_check_that_breaks_down_refuses(honest: Evidence) -> None:
    class Broken(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            raise ZeroDivisionError("inside the network")

    broken = changed(honest, module=Broken(*copy.deepcopy(honest.module)).eval())
    assert_refused(broken, "each prediction depends on its own example alone", "inside the network")


# --------------------------------------------------------------------------------- the 24 rows


def test_row_01_n_of_the_whole_data_set(honest: Evidence) -> None:
    whole = changed(honest, bound=bound_with(honest, examples=len(honest.examples)))
    assert_refused(whole, "n comes from the stored indices", "n = 120", "70 bound examples")


def test_row_01_record_of_other_examples(honest: Evidence) -> None:
    assert honest.data is not None and honest.data.prior is not None
    swapped = honest.data.model_copy(update={"bound": honest.data.prior})
    assert_refused(changed(honest, data=swapped), "n comes from the stored indices")


def test_row_01_split_of_other_data(honest: Evidence) -> None:
    parts = honest.split
    foreign = Split(parts.prior, parts.bound, parts.heldout, content="0" * 64)
    assert_refused(changed(honest, split=foreign), "the split belongs to these examples")


def test_row_02_kl_leaves_out_a_layer(honest: Evidence) -> None:
    assert honest.complexity is not None
    terms = honest.complexity.terms[:-1]
    short = ComplexityRecord(terms=terms, kl_nats=math.fsum(t.nats for t in terms))
    assert_refused(
        changed(honest, complexity=short), "the KL counts every random tensor", "'2.bias'"
    )


def test_row_02_kl_of_fewer_weights(honest: Evidence) -> None:
    assert honest.complexity is not None
    first, *rest = honest.complexity.terms
    smaller = honest.complexity.model_copy(
        update={"terms": (first.model_copy(update={"size": first.size - 1}), *rest)}
    )
    assert_refused(changed(honest, complexity=smaller), "the KL counts every random tensor")


def test_row_02_a_parameter_outside_the_posterior(honest: Evidence) -> None:
    class Extra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = copy.deepcopy(honest.module)
            self.add_module("0", inner[0])
            self.add_module("2", inner[2])
            self.gain = nn.Parameter(torch.full((3,), 1.5))
            self.eval()

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.get_submodule("0")(inputs).relu()
            scores: Tensor = self.get_submodule("2")(hidden) * self.gain
            return scores

    trained_beside = changed(honest, module=Extra())
    assert_refused(trained_beside, "prior and posterior cover every parameter", "'gain'")
    # Recorded before the bound examples and unchanged, it is part of the architecture.
    recorded = changed(trained_beside, fixed_before={"gain": torch.full((3,), 1.5)})
    assert found(recorded, "prior and posterior cover every parameter").status == "checked"
    assert found(recorded, "what is not random was fixed before the bound examples").status == (
        "checked"
    )
    # Recorded, but changed since: the KL does not pay for it.
    learned = changed(trained_beside, fixed_before={"gain": torch.ones(3)})
    assert_refused(learned, "what is not random was fixed before the bound examples", "'gain'")


def test_row_02_weights_that_are_not_finite(honest: Evidence) -> None:
    diverged = copy.deepcopy(honest.module)
    with torch.no_grad():
        next(diverged.parameters())[0, 0] = math.nan
    assert_refused(changed(honest, module=diverged), "all weights are finite", "'0.weight'")


def test_row_03_kl_before_the_last_step(honest: Evidence) -> None:
    assert honest.posterior is not None and honest.prior is not None
    stepped = DiagonalGaussian(
        means={name: mean + 1e-3 for name, mean in honest.posterior.means.items()},
        scales=honest.posterior.scales,
    )
    after = changed(honest, posterior=stepped)
    assert_refused(after, "the KL belongs to the frozen posterior", "changed after the KL")
    # Even with the digests forged, the tensors tell.
    digest = stepped.digest()
    forged = changed(after, posterior_at_kl=digest, posterior_at_risk=digest)
    assert_refused(forged, "the KL belongs to the frozen posterior", "frozen tensors give")


def test_row_03_risk_before_the_last_step(honest: Evidence) -> None:
    late = changed(honest, posterior_at_risk="0" * 64)
    assert_refused(late, "the risk belongs to the frozen posterior")


def test_row_04_buffers_learned_on_the_bound_examples() -> None:
    evidence = worlds.stochastic(module=worlds.WithBuffer())
    learned = copy.deepcopy(evidence.module)
    learned.get_buffer("center").add_(0.25)
    name = "what is not random was fixed before the bound examples"
    assert_refused(changed(evidence, module=learned), name, "'center'")
    assert_refused(changed(evidence, fixed_before=None), name, "nobody recorded")
    assert_refused(changed(evidence, fixed_before={}), name, "'center'")


class WithAttribute(nn.Module):
    """The same network with its statistics in a plain attribute, a list, or another object."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.layers = worlds.network()
        self.center: Any = torch.zeros(4)
        if place == "list":
            self.center = [self.center]
        if place == "array":
            self.center = self.center.numpy()
        if place == "object":
            self.center = SimpleNamespace(value=torch.arange(160.0).reshape(40, 4))
        self.eval()

    def value(self) -> Tensor:
        found = {
            "attribute": lambda: self.center,
            "list": lambda: self.center[0],
            "array": lambda: torch.from_numpy(self.center),
            "object": lambda: self.center.value[0],
        }[self.place]()
        assert isinstance(found, Tensor)
        return found

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs - self.value())
        return scores


@pytest.mark.parametrize("place", ["attribute", "list", "array"])
def test_row_04_attributes_learned_on_the_bound_examples(place: str) -> None:
    name = "what is not random was fixed before the bound examples"
    evidence = worlds.stochastic(module=WithAttribute(place))
    assert found(evidence, name).status == "checked", "nobody learned anything"
    learned = copy.deepcopy(evidence.module)
    learned.value().add_(0.25)
    assert_refused(changed(evidence, module=learned), name, "'center", "an attribute")
    assert_refused(changed(evidence, fixed_before=None), name, "nobody recorded")
    assert_refused(changed(evidence, fixed_before={}), name, "'center", "register it as a buffer")


def test_row_04_attributes_that_no_prediction_reads_carry_nothing() -> None:
    name = "what is not random was fixed before the bound examples"
    evidence = worlds.stochastic(module=WithAttribute("attribute"))
    kept: Any = copy.deepcopy(evidence.module)
    kept.log = {"loss": [torch.tensor(0.5), torch.tensor(0.25)]}
    kept.last = torch.ones(7, 3)
    outcome = found(changed(evidence, module=kept), name)
    assert outcome.status == "checked" and "3 attributes" in outcome.detail
    kept.center.add_(0.25)
    assert_refused(changed(evidence, module=kept), name, "'center'")


def test_row_04_tensors_that_no_list_has() -> None:
    name = "what is not random was fixed before the bound examples"
    evidence = worlds.stochastic(module=WithAttribute("object"))
    assert_refused(evidence, name, "shape (40, 4)", "Register it as a buffer")


def test_row_04_attributes_updated_while_predicting() -> None:
    class Remembering(WithAttribute):
        def forward(self, inputs: Tensor) -> Tensor:
            self.value().add_(1e-12)
            return super().forward(inputs)

    honest = worlds.stochastic(module=WithAttribute("attribute"))
    evidence = changed(honest, module=Remembering("attribute"))
    assert_refused(evidence, "predicting leaves the network unchanged", "'center'")
    assert float(evidence.module.value().abs().max()) == 0.0, "the audit changed it"


def test_row_04_buffers_updated_while_predicting() -> None:
    class Remembering(worlds.WithBuffer):
        def forward(self, inputs: Tensor) -> Tensor:
            self.center.add_(1e-12)
            return super().forward(inputs)

    evidence = changed(worlds.stochastic(module=worlds.WithBuffer()), module=Remembering().eval())
    assert_refused(evidence, "predicting leaves the network unchanged", "'center'")
    assert float(evidence.module.get_buffer("center").abs().max()) == 0.0, "the audit changed it"


class Normalizing(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), norm, nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.last(self.norm(self.first(inputs)).relu())
        return scores


def with_norm(norm: nn.Module, *, training: bool = False) -> Evidence:
    torch.manual_seed(0)
    module = Normalizing(norm).eval()
    evidence = worlds.stochastic(module=worlds.network())
    posterior = DiagonalGaussian.around(module, scale=0.1)
    digest = posterior.digest()
    module.norm.train(training)
    return changed(
        evidence,
        module=module,
        prior=posterior,
        posterior=posterior,
        complexity=worlds.complexity_of(posterior, posterior),
        posterior_at_kl=digest,
        posterior_at_risk=digest,
        fixed_before={n: b.clone() for n, b in module.named_buffers()},
    )


def test_row_05_batch_normalization_in_training_mode() -> None:
    evidence = with_norm(nn.BatchNorm1d(8), training=True)
    assert_refused(evidence, "the network is in evaluation mode", "'norm'", "BatchNorm1d")
    assert_refused(evidence, "each prediction depends on its own example alone")
    assert_refused(evidence, "predicting leaves the network unchanged", "norm.")


def test_row_05_batch_statistics_even_in_evaluation_mode() -> None:
    evidence = with_norm(nn.BatchNorm1d(8, track_running_stats=False))
    assert_refused(evidence, "each prediction depends on its own example alone")


def test_row_05_dropout_in_training_mode() -> None:
    evidence = with_norm(nn.Dropout(0.1), training=True)
    assert_refused(evidence, "the network is in evaluation mode", "Dropout")
    assert_refused(evidence, "each prediction depends on its own example alone", "again")


def test_row_05_dropout_that_ignores_the_mode() -> None:
    class Stubborn(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return nn.functional.dropout(inputs, 0.5, training=True)

    assert_refused(with_norm(Stubborn()), "each prediction depends on its own example alone")


def test_row_05_normalization_by_fixed_statistics_is_fine() -> None:
    evidence = with_norm(nn.BatchNorm1d(8))
    for name in (
        "the network is in evaluation mode",
        "each prediction depends on its own example alone",
        "predicting leaves the network unchanged",
        "what is not random was fixed before the bound examples",
    ):
        assert found(evidence, name).status == "checked"


def test_row_05_the_probe_leaves_the_random_state_alone(honest: Evidence) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    audit.run(honest)
    assert torch.equal(before, torch.get_rng_state())


def test_row_06_the_prior_saw_bound_examples(honest: Evidence) -> None:
    seen = np.append(honest.split.prior, honest.split.bound[:2])
    assert_refused(changed(honest, prior_saw=seen), "the prior saw no bound example", "2 bound")


def test_what_a_given_prior_saw_is_its_maker_s_word() -> None:
    honest = worlds.stochastic()
    assert found(honest, "the prior saw no bound example").status == "checked"
    given = changed(honest, prior_given=True)
    stated = found(given, "the prior saw no bound example")
    assert (stated.status, stated.effect) == ("asserted", "none")
    assert "as stated by" in stated.detail
    seen = np.append(honest.split.prior, honest.split.bound[:2])
    assert_refused(changed(given, prior_saw=seen), "the prior saw no bound example", "2 bound")


def test_row_06_the_prior_saw_copies_of_bound_examples(honest: Evidence) -> None:
    inputs, labels = honest.examples.inputs.clone(), honest.examples.labels.clone()
    source, copy_at = int(honest.split.prior[0]), int(honest.split.bound[0])
    inputs[copy_at] = inputs[source]
    labels[copy_at] = (labels[source] + 1) % 3  # relabeled, and still a leak
    copied = changed(honest, examples=Examples(inputs, labels, ("a", "b", "c"), "world"))
    assert_refused(copied, "the prior saw no bound example", "copies", str(copy_at))
    assert_refused(copied, "no example has a copy in another part of the data")


def test_row_06_the_prior_records_other_examples(honest: Evidence) -> None:
    assert_refused(changed(honest, prior_saw_digest="0" * 64), "the prior saw no bound example")
    nothing = changed(honest, prior_saw_digest="0" * 64, prior_saw=None)
    assert_refused(nothing, "the prior saw no bound example")


def test_row_06_the_prior_saw_held_out_examples(honest: Evidence) -> None:
    assert_refused(
        changed(honest, prior_saw=honest.split.heldout),
        "the prior saw no bound example",
        "held-out",
    )


def test_row_06_indices_of_other_data(honest: Evidence) -> None:
    assert_refused(
        changed(honest, prior_saw=np.array([5000])), "the prior saw no bound example", "other data"
    )


def test_row_06_preprocessing_fitted_on_everything(honest: Evidence) -> None:
    fitted = changed(honest, preprocessing_saw=np.arange(len(honest.examples)))
    assert_refused(fitted, "the preprocessing saw no bound example", "70 bound examples")
    careful = changed(honest, preprocessing_saw=honest.split.prior)
    assert found(careful, "the preprocessing saw no bound example").status == "checked"


def test_row_07_earlier_certificates_that_nobody_paid_for(honest: Evidence) -> None:
    again = changed(honest, standing=Standing(earlier=(1, 1, 1)))
    assert_conditional(
        again, "earlier certificates on these examples are paid for", "examples: 3;", "4 times"
    )


def test_row_07_payment_that_did_not_happen(honest: Evidence) -> None:
    claimed = changed(honest, standing=Standing(earlier=(2,)), attempts_paid=2)
    assert_refused(claimed, "earlier certificates on these examples are paid for", "alone")


def test_row_07_payment_that_did_happen(honest: Evidence) -> None:
    lines = [
        {"name": "other certificates", "failure": 0.025, "reason": "shared", "choices": 1},
        {"name": "sampling", "failure": 0.005, "reason": "Monte Carlo", "choices": 1},
        {"name": "bound", "failure": 0.02, "reason": "PAC-Bayes", "choices": 4},
    ]
    budget = BudgetRecord.model_validate({"failure": 0.05, "entries": tuple(lines)})
    paid = changed(honest, budget=budget, standing=Standing(earlier=(2,)), attempts_paid=2)
    assert found(paid, "earlier certificates on these examples are paid for").status == "checked"
    # One that kept all for itself leaves nothing to share.
    late = changed(honest, budget=budget, standing=Standing(earlier=(1,)), attempts_paid=2)
    doubt = found(late, "earlier certificates on these examples are paid for")
    assert doubt.effect == "conditional" and "1.5 times as often" in doubt.detail
    # Issued for one before, it stays as spent as it was.
    laundered = changed(honest, budget=budget, standing=Standing((2,), issued=1), attempts_paid=2)
    doubt = found(laundered, "earlier certificates on these examples are paid for")
    assert doubt.effect == "conditional" and "stays spent" in doubt.detail


def test_row_07_examples_with_the_same_labels(honest: Evidence) -> None:
    name = "earlier certificates on these examples are paid for"
    alike = changed(honest, standing=Standing(alike=(1,)))
    assert_conditional(alike, name, "same labels", "different_data")
    declared = found(changed(honest, standing=Standing(declared=("other photographs",))), name)
    assert declared.status == "asserted" and "'other photographs'" in declared.detail


def test_row_07_prior_scale_chosen_for_free(honest: Evidence) -> None:
    name = "every search was paid for"
    unpaid = Search("prior scale", 4, None, "it looked best")
    assert_refused(changed(honest, searches=(unpaid,)), name, "nobody paid")
    declared = Search("prior scale", 4, "free", "the bound holds for all posteriors at once")
    assert_refused(changed(honest, searches=(declared,)), name, "declared free")
    elsewhere = Search("prior scale", 4, "sampling line", "paid")
    assert_refused(changed(honest, searches=(elsewhere,)), name, "not a line")
    more = Search("prior scale", 5, "bound", "paid")
    assert_refused(changed(honest, searches=(more,)), name, "pays for 4 choices, but 5")
    both = Search("prior fraction", 3, "bound", "paid")
    assert_refused(changed(honest, searches=(*honest.searches, both)), name, "but 12")
    silent = Search("posterior scale", 4, "free", " ")
    assert_refused(changed(honest, searches=(silent,)), name, "without a reason")


def test_row_08_free_parameter_tuned_without_a_union(honest: Evidence) -> None:
    inputs = {k: v for k, v in honest.bound.inputs.items() if k != "exact_moment"}
    catoni = bound_record("catoni", **inputs, temperature=2.0)
    fixed = changed(honest, bound=catoni, risk_upper=recompute_bound(catoni))
    name = "what the theorem wants fixed was fixed before the data"
    assert found(fixed, name).status == "asserted"
    assert status_of(audit.run(fixed)) == "valid"
    for charge in (None, "free"):
        tuned = Search("temperature", 50, charge, "the best of fifty")
        assert_refused(
            changed(fixed, searches=(*honest.searches, tuned)),
            "every search was paid for",
            "'temperature'",
        )


def test_row_08_a_test_chosen_by_its_result() -> None:
    chosen = Search("posterior", 10, "free", "the bound holds for all posteriors at once")
    assert_refused(
        changed(worlds.holdout(), searches=(chosen,)), "every search was paid for", "plain test"
    )


def test_row_09_bound_by_code_length(honest: Evidence) -> None:
    inputs = {"empirical_risk": 0.1, "code_bits": -12, "examples": 70, "failure": 0.01}
    bound = BoundRecord(name="code_length", theorem="Occam", inputs=inputs)
    assert_refused(
        changed(honest, bound=bound), "the bound is a known theorem", "'code_length'", "seeger"
    )
