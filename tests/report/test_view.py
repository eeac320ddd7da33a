"""The wording of whole certificates: good news, bad news and no news."""

from __future__ import annotations

import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from nonvacuous import bounds
from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.comparison import compare
from nonvacuous.records import (
    Assumption,
    BoundRecord,
    LossRecord,
    Observation,
    PaperAccounting,
    RescalingRecord,
    RiskRecord,
    SpendRecord,
    TwinRecord,
)
from nonvacuous.report import tables, view
from nonvacuous.report.view import View
from nonvacuous.report.wording import percent_up
from nonvacuous.study.runs import Run, figures_of
from nonvacuous.study.site import table
from tests.certificates import sealed
from tests.report import samples


def view_of(certificate: Certificate) -> View:
    return view.View(certificate, comparison=compare(certificate), run_folder="runs/one")


def badges_of(shown: view.View) -> list[str]:
    (badges,) = re.findall('<ul class="badges">(.*?)</ul>', view.render(shown), flags=re.DOTALL)
    return re.findall("<bdi>(.*?)</bdi>", badges)


def told_of(shown: view.View) -> list[str]:
    """What the page tells about rescaling, sentence by sentence."""
    page = view.render(shown)
    return [unescape(told) for told in re.findall('<p class="told"><bdi>(.*?)</bdi></p>', page)]


def test_a_valid_certificate_is_told_as_a_frequency() -> None:
    shown = view_of(samples.posterior())
    assert shown.promise.striptags() == "Wrong on fewer than 16 in 1,000 new examples, on average."
    assert "<em>fewer than 16 in 1,000</em>" in shown.promise
    assert badges_of(shown) == [
        "Valid",
        "Non-vacuous",
        "Predictor: randomized network",
        "Loss: zero-one (right or wrong)",
    ]
    assert 'class="why"' not in view.render(shown)


def test_the_confidence_is_about_the_procedure() -> None:
    shown = view_of(samples.posterior()).confidence.striptags()
    assert shown.startswith("95% confidence in the procedure: of 20 training samples")
    assert shown.endswith("on average at most one would yield a false claim.")


def test_it_is_held_against_guessing_and_the_twin() -> None:
    shown = view_of(samples.posterior()).verdict
    assert "It is better than always answering “0”, wrong at least 89.5% of the time" in shown
    assert (
        "promises at most 0.922%: the certificate is 1.73 times as large, dominated by its twin"
        in shown
    )


def test_a_certificate_tighter_than_its_twin_says_so() -> None:
    twin = TwinRecord(
        description="tested once", errors=900, examples=30_000, failure=0.05, risk_upper=0.033
    )
    shown = view_of(samples.build(held_out_twin=twin)).verdict
    assert "the certificate is tighter than its twin" in shown


def test_a_test_with_a_tighter_twin_is_held_against_it() -> None:
    assert "the plainest certificate there is" in view_of(samples.holdout()).verdict
    twin = TwinRecord(
        description="checkpoint 2", errors=1, examples=30_000, failure=0.05, risk_upper=0.002
    )
    tests = {"mode": "progressive", "predictor": "mixture", "held_out_twin": twin}
    shown = view_of(samples.holdout().model_copy(update=tests))
    assert "dominated by its twin" in shown.verdict and shown.tighter
    assert "plainest" not in shown.verdict


def test_a_test_error_above_the_promise_is_not_passed_over() -> None:
    observed = (Observation(name="the network on the test examples", errors=30, trials=1_000),)
    assert "lies above the promise" in view_of(samples.build(observed=observed)).verdict
    assert "lies above" not in view_of(samples.posterior()).verdict


def test_a_vacuous_certificate_promises_nothing() -> None:
    shown = view_of(samples.vacuous())
    assert shown.promise.striptags() == "Nothing is promised: it may be wrong on every new example."
    assert "Vacuous" in badges_of(shown)
    assert shown.verdict.startswith("No: any network at all satisfies this.")


def test_a_certificate_above_guessing_is_not_sold_as_non_vacuous() -> None:
    shown = view_of(samples.hopeless())
    assert shown.promise.striptags().startswith(
        "Vacuous, not shown to be better than always answering “0”: wrong on fewer than 999"
    )
    texts = badges_of(shown)
    assert "Vacuous: not shown better than one class" in texts and "Non-vacuous" not in texts


def test_a_refused_certificate_shows_no_number_that_could_be_taken_for_a_promise() -> None:
    certificate = samples.refused()
    shown = view_of(certificate)
    assert shown.promise.striptags() == "No promise is made: this certificate was refused."
    reason = "“The prior saw no bound example” was found false: 40 bound"
    assert f"<li><bdi>{reason}" in view.render(shown)
    assert {mark.kind for mark in shown.marks} == {"training", "test", "guessing"}
    assert shown.steps == () and shown.bounds == ()
    assert "95%" not in shown.confidence.striptags()
    everything = view.render(shown)
    assert repr(certificate.risk_upper) not in everything
    assert "1.6%" not in everything and "16 in 1,000" not in everything


def test_a_conditional_certificate_names_its_condition_first() -> None:
    shown = view_of(samples.conditional())
    assert shown.promise.striptags().startswith(
        "If its conditions hold, wrong on fewer than 16 in 1,000"
    )
    (reasons,) = re.findall('<div class="why">.*?</div>', view.render(shown), flags=re.DOTALL)
    assert reasons.count("<li>") == 1 and "is in doubt: 3 certificates were computed" in reasons
    # Found as it should not be, it may still hold: the terminal says no more than this.
    doubtful = shown.certificate.assumptions[-1].model_copy(update={"status": "violated"})
    kept = (*shown.certificate.assumptions[:-1], doubtful)
    found = view.render(view_of(samples.build(assumptions=kept)))
    assert "is in doubt: 3 certificates" in found and "was found false: 3" not in found
    assert badges_of(shown)[0] == "Conditional"


def test_a_held_out_certificate_has_no_complexity() -> None:
    shown = view_of(samples.holdout())
    assert shown.promise.striptags() == "Wrong on fewer than 7 in 100 new examples, on average."
    assert shown.layers == () and shown.rescaling == ()
    assert [step.name for step in shown.steps] == ["Errors counted", "+ finite sample"]
    assert {mark.kind for mark in shown.marks} == {"training", "certificate", "guessing"}
    page = view.render(shown)
    assert "<bdi>Network</bdi>" in page
    assert "<bdi>Prior</bdi>" not in page and "<bdi>Posterior</bdi>" not in page
    assert "samples of test examples" in shown.confidence.striptags()
    assert "zero complexity" not in page


def test_a_loss_that_is_no_frequency_is_not_told_as_one() -> None:
    risk = RiskRecord(
        errors=None,
        total=2_000.5,
        trials=20_000,
        scheme="pairs",
        identical=False,
        seed=1,
        risk_upper=0.11,
    )
    loss = LossRecord(name="cross-entropy with probabilities of at least 0.0001")
    shown = view_of(samples.build(loss=loss, empirical=risk, risk_upper=0.187))
    assert (
        shown.promise.striptags()
        == "A mean loss of at most 18.7% of its range (0 to 1) on new examples."
    )
    assert "guessing" not in {mark.kind for mark in shown.marks}
    assert "Losses that sum to 2,000.5" in view.render(shown)


def test_a_margin_loss_says_what_it_counts() -> None:
    shown = view_of(samples.build(loss=LossRecord(name="margin 0.5")))
    assert shown.promise.striptags().startswith(
        "Wrong, or only just right, on fewer than 16 in 1,000"
    )


def test_the_scale_marks_the_test_error_as_no_part_of_the_promise() -> None:
    marks = {mark.kind: mark for mark in view_of(samples.posterior()).marks}
    assert marks["test"].note == "not part of the promise"
    assert marks["certificate"].text == "≤ 1.59%"
    assert marks["guessing"].value == pytest.approx(0.9)


MEAN = Observation(
    name="the network with the mean weights on the test examples", errors=91, trials=10_000
)
RANDOMIZED = Observation(
    name="the randomized network on the test examples", errors=117, trials=10_000
)


@pytest.mark.parametrize("observed", [(MEAN, RANDOMIZED), (RANDOMIZED, MEAN)])
def test_both_errors_on_the_scale_are_the_certified_predictors(
    observed: tuple[Observation, ...],
) -> None:
    marks = {mark.kind: mark for mark in view_of(samples.build(observed=observed)).marks}
    assert (marks["test"].name, marks["test"].text) == ("Test error", "1.17%")


@pytest.mark.parametrize(
    ("predictor", "name"),
    [
        ("stochastic", "Test error, mean weights"),
        ("drawn", "Test error, mean weights"),
    ],
)
def test_the_test_error_of_another_predictor_says_whose_it_is(predictor: str, name: str) -> None:
    certificate = samples.build(observed=(MEAN,)).model_copy(update={"predictor": predictor})
    marks = {mark.kind: mark for mark in view.marks_of(certificate)}
    assert (marks["test"].name, marks["test"].text) == (name, "0.910%")


def test_the_network_itself_is_the_certified_one_where_it_is() -> None:
    plain = Observation(name="the network on the test examples", errors=5, trials=100)
    certificate = samples.holdout().model_copy(update={"observed": (MEAN, plain)})
    marks = {mark.kind: mark for mark in view.marks_of(certificate)}
    assert (marks["test"].name, marks["test"].text) == ("Test error", "5.00%")


def test_another_predictor_above_the_promise_is_not_held_against_it() -> None:
    above = MEAN.model_copy(update={"errors": 900})
    told = view_of(samples.build(observed=(above, RANDOMIZED))).verdict
    assert "test error of the mean weights lies above the promise, which is about the rand" in told
    assert "unlucky few" not in told
    own = RANDOMIZED.model_copy(update={"errors": 900})
    assert "unlucky few" in view_of(samples.build(observed=(MEAN, own))).verdict


def test_only_test_examples_count_as_test_examples() -> None:
    observed = (Observation(name="the latest contest", errors=1, trials=10),)
    marks = view_of(samples.build(observed=observed)).marks
    assert "test" not in {mark.kind for mark in marks}


def test_what_it_rests_on_starts_with_what_must_be_believed() -> None:
    page = view.render(view_of(samples.refused()))
    groups = re.findall('class="group-([a-z-]+)"', page)
    assert groups == ["violated", "asserted", "not-checkable", "checked"]
    assert page.count("<span><strong><bdi>") == len(samples.refused().assumptions)
    page = view.render(view_of(samples.conditional()))
    assert page[page.index('<ul class="grounds') :].find("icon-triangle") < 60


def test_nobody_has_to_believe_in_sampling_where_nothing_was_sampled() -> None:
    paid = Assumption(
        name="the sampling error is paid for",
        status="asserted",
        detail="nothing was sampled: every bound example was looked at once.",
    )
    for certificate, shown in ((samples.holdout(), False), (samples.posterior(), True)):
        changed = certificate.model_copy(update={"assumptions": (*certificate.assumptions, paid)})
        assert (paid.detail.capitalize() in view.render(view_of(changed))) == shown


def test_layers_come_worst_first_and_long_lists_are_summed_up() -> None:
    shown = view_of(samples.posterior())
    assert shown.layers[0].name == "classifier.0.weight" and shown.layers[0].end == 1.0
    assert [bar.end for bar in shown.layers] == sorted((b.end for b in shown.layers), reverse=True)
    many = samples.terms({f"layer.{i}.weight": (10, 1.0 + i) for i in range(40)})
    complexity = samples.ComplexityRecord(terms=many, kl_nats=820.0)
    layers = view_of(samples.build(complexity=complexity)).layers
    assert len(layers) == 9 and layers[-1].name == "32 further tensors"
    assert layers[0].name == "layer.39.weight"


def test_a_ledger_line_with_choices_says_how_many_share_it() -> None:
    assert "24 choices share this line" in view.render(view_of(samples.vacuous()))
    huge = SpendRecord(name="bound", failure=0.04, reason="union", choices=10**15)
    budget = samples.BudgetRecord(failure=0.05, entries=(huge,))
    assert "about 10^15 choices" in view.render(view_of(samples.build(budget=budget)))


def test_the_command_to_verify_is_exact() -> None:
    certificate = sealed()
    assert view.View(certificate).verify_command == "nonvacuous verify ."
    odd = view.View(certificate, run_folder="my  runs/it's; rm -rf").verify_command
    assert odd == "nonvacuous verify 'my  runs/it'\"'\"'s; rm -rf'"
    assert "'runs/one/certificate.json'" in view_of(samples.posterior()).verify_python


def test_the_command_to_verify_asks_for_what_is_somebodys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in = sealed()
    model = built_in.model.model_copy(update={"architecture": "my_model:build"})
    data = built_in.data.model_copy(update={"name": "x"})

    def asked(folder: Path = tmp_path, **parts: Any) -> str:
        shown = view.View(sealed(**parts), run_folder=folder)
        return shown.verify_command.removeprefix(f"nonvacuous verify {folder}").strip()

    assert asked() == ""
    assert asked(data=data) == "--data SOURCE"
    assert asked(model=model) == "--model MODULE:FUNCTION"
    assert asked(data=data, model=model) == "--data SOURCE --model MODULE:FUNCTION"
    (tmp_path / "config.toml").write_text('source = "mine/digits.npz"\n')
    assert asked() == "--data SOURCE"
    # Whatever lies where the page happens to be written.
    monkeypatch.chdir(tmp_path)
    assert view.View(built_in).verify_command == "nonvacuous verify ."


def test_rescaling_without_columns_still_tells_both_sides() -> None:
    record = RescalingRecord(
        kl_before=90.0, kl_after=61.7, log_scales_digest=samples.digest("scales")
    )
    shown = view_of(samples.build(rescaling=record))
    assert shown.rescaling == ()
    (sentence,) = told_of(shown)
    assert "90.0 nats" in sentence and "61.7 nats" in sentence


def test_columns_stand_under_their_prior_and_one_is_certified() -> None:
    rows = view_of(samples.post_hoc()).rescaling
    assert [row.heading for row in rows if row.heading] == [
        "Prior around zero",
        "Prior around the initial weights",
    ]
    assert [row.name for row in rows if row.marked] == ["+ shift of the scores"]
    assert rows[-1].marked
    # The longest bars are cut: next to them the others would vanish.
    assert [row.name for row in rows if row.detail.endswith("cut")] == [
        "Prior scale 1",
        "Prior scale 1",
    ]
    assert all(0 < row.end <= 1 for row in rows)


def test_the_story_says_who_earns_what() -> None:
    certificate = samples.vacuous(kl_nats=1_000.0)
    found = tables.earned(certificate)
    assert found is not None and found.prior_scale is not None
    whole = found.before - found.after
    assert found.prior_scale + found.rescaling + found.symmetries == pytest.approx(whole)
    charge = math.log(24)
    assert found.before == 9_400 and found.after == pytest.approx(1_000 + charge)
    assert found.prior_scale == pytest.approx(9_400 - 1_310 - charge)
    assert found.rescaling == pytest.approx(220) and found.symmetries == pytest.approx(90)
    story = " ".join(told_of(view_of(certificate)))
    assert "the complexity would be 9,400 nats. The certificate pays 1,003" in story
    # Two kinds of shares: each says what it is a share of.
    assert "a saving of 8,397 nats, 89.3% of that complexity." in story
    assert "Choosing the prior's scale earns 8,087 nats (96.3% of the saving)" in story
    assert "rescaling the network earns 220.0 nats (2.62% of the saving)" in story
    assert "and the order of the units earns 90.0 nats (1.07% of the saving)" in story
    assert "rescaling alone would earn 6,800 nats: most of" in story
    assert "is not a bound" in story
    line = tables.saved_in_one_line(certificate)
    assert "\n" not in line
    assert "Saved by the prior's scale 8,087 nats (96.3% of the saving), rescaling 220" in line
    assert tables.saved_in_one_line(samples.posterior()) == ""


def test_what_costs_is_not_said_to_save() -> None:
    certificate = samples.vacuous(kl_nats=1_000.0)
    record = certificate.rescaling
    assert record is not None
    columns = tuple(
        column.model_copy(update={"kl_nats": 9_400.0}) if column.way == "best scale" else column
        for column in record.columns
    )
    forged = record.model_copy(update={"columns": columns})
    line = tables.saved_in_one_line(certificate.model_copy(update={"rescaling": forged}))
    assert "Saved by rescaling 8,310 nats" in line
    assert line.endswith("; the prior's scale costs 3.18 nats.")
    assert "-" not in line.partition("Saved by")[2]


def test_one_prior_scale_for_each_tensor_is_the_priors_doing() -> None:
    certificate = samples.vacuous(kl_nats=1_000.0)
    record = certificate.rescaling
    assert record is not None
    columns = tuple(
        column.model_copy(update={"charge_nats": 6 * math.log(24)})
        if column.way in ("scale of the scores", "shift of the scores", "order of the units")
        else column
        for column in record.columns
    )
    forged = record.model_copy(update={"columns": columns})
    found = tables.earned(certificate.model_copy(update={"rescaling": forged}))
    assert found is not None and found.prior_scale is not None
    each = 6 * math.log(24)
    assert found.symmetries == pytest.approx(70)
    assert found.rescaling == pytest.approx(220)
    assert found.prior_scale == pytest.approx((9_400 - 1_310) + (1_090 - 1_070) - each)


def test_a_fixed_scale_leaves_rescaling_and_symmetries() -> None:
    certificate = samples.vacuous(kl_nats=1_000.0)
    record = certificate.rescaling
    assert record is not None
    columns = tuple(column for column in record.columns if not column.way.startswith("best"))
    forged = record.model_copy(update={"columns": columns})
    changed = certificate.model_copy(update={"rescaling": forged})
    found = tables.earned(changed)
    assert found is not None and found.prior_scale is None
    assert found.rescaling == pytest.approx(6_800)
    assert "choosing" not in " ".join(told_of(view_of(changed))).lower()


def test_the_papers_accounting_is_told_as_no_promise() -> None:
    certificate = samples.vacuous(kl_nats=1_000.0)
    record = certificate.rescaling
    assert record is not None and "2509.26149" not in " ".join(told_of(view_of(certificate)))
    paper = PaperAccounting.of((20_000.0, 5_000.0), prior_scale=1.0, mean=0.25, examples=10_000)
    told = certificate.model_copy(update={"rescaling": record.model_copy(update={"paper": paper})})
    (sentence,) = (line for line in told_of(view_of(told)) if "2509.26149" in line)
    assert "1.25 as given and 0.75 rescaled" in sentence and "not a promise" in sentence


def test_the_sum_over_tensors_says_what_symmetries_take_off_it() -> None:
    assert (
        ": 1,050 nats in all. Forgetting symmetries takes 30.0 for the shift of the scores and "
        "20.0 for the order of the units off it."
    ) in view.render(view_of(samples.vacuous(kl_nats=1_000.0)))
    assert ": 61.7 nats in all.<" in view.render(view_of(samples.posterior()))


def test_a_certificate_needs_no_comparison() -> None:
    shown = view.View(samples.posterior())
    assert shown.steps == () and shown.bounds == () and shown.curves == {}
    assert shown.layers


def test_history_becomes_curves_and_odd_events_are_left_out() -> None:
    events = [
        *samples.events(),
        {"phase": "posterior", "event": "epoch", "epoch": "x", "metrics": {"error": 1.0}},
        {"phase": "posterior", "event": "epoch", "epoch": 21, "metrics": None},
        {"phase": "posterior", "event": "epoch", "epoch": 22, "metrics": {"error": "0.1"}},
        {"phase": "once", "event": "epoch", "epoch": 0, "metrics": {"loss": 1.0}},
    ]
    curves = view.View(samples.posterior(), history=events).curves
    assert list(curves) == ["prior", "posterior"]
    assert [line.label for line in curves["posterior"]] == ["objective", "error"]
    assert len(curves["posterior"][1].y) == 20


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_a_view_is_a_function_of_the_certificate(name: str) -> None:
    build = samples.SAMPLES[name]
    assert vars(view_of(build())) == vars(view_of(build()))


def test_the_given_network_is_shown_as_itself() -> None:
    """Whoever brings a network sees its own error, and whose every other number is."""
    certificate = samples.post_hoc()
    seen = view_of(certificate)
    assert "Without noise" not in view.render(seen)  # its training error is not on record
    counted = Observation(
        name="the network with the mean weights on the bound examples", errors=3, trials=1_437
    )
    with_both = certificate.model_copy(update={"observed": (counted, *certificate.observed)})
    seen = view_of(with_both)
    page = view.render(seen)
    assert "0.209% of 1,437" in page and "2.50% of 360 test examples" in page
    worth = bounds.holdout(errors=9, examples=360, failure=0.05)
    assert f"at most {percent_up(worth)} with 95% confidence" in page
    names = {mark.kind: mark.name for mark in seen.marks}
    assert names["training"] == "Training error, with noise"
    assert names["test"] == "Test error, your network"
    assert names["twin"] == "Retrained twin"
    assert "Retrained on part of the data" in seen.verdict
    assert view_of(samples.posterior()).own_counted is None


def test_the_statement_rounds_as_the_rest_of_the_page() -> None:
    certificate = samples.posterior()
    seen = view_of(certificate)
    assert shown_up(certificate.risk_upper) in certificate.statement
    assert shown_up(certificate.risk_upper) not in seen.statement
    assert "1.59%" in seen.statement and "16 in 1,000" in seen.promise.striptags()


def test_only_the_headline_is_coarse() -> None:
    """Terms, theorems and legend have the digits of all numbers beside them."""
    seen = view_of(samples.posterior())
    last, before = seen.steps[-1], seen.steps[-2]
    assert last.value == percent_up(samples.posterior().risk_upper) == "1.59%"
    assert float(before.value.rstrip("%")) <= 1.59
    assert next(row.value for row in seen.bounds if row.marked) == "1.59%"
    assert "1.6%" not in view.render(seen)


def test_a_declared_threshold_stays_as_declared() -> None:
    """The double 0.2 lies above 1/5: rounded up it would be another promise."""
    certificate = sealed(
        "holdout",
        risk_upper=0.2,
        bound=BoundRecord(
            name="gate",
            theorem="a gate",
            inputs={"errors": 31, "trials": 1437, "threshold": 0.2, "failure": 0.05},
        ),
    )
    seen = view_of(certificate)
    assert seen.steps[-1].value == "< 20%"
    assert [row.value for row in seen.bounds if row.marked] == ["< 20%"]
    assert "Gate < 20%" in seen.words and "less than 20%" in seen.promise
    words = re.sub("<style>.*?</style>", "", view.render(seen), flags=re.DOTALL)
    assert not {"20.1%", "21%", "0.2001"} & set(re.findall(r"[\d.]+%?", words))
    (row,) = table((Run("a", Path("a"), "done", figures=figures_of(certificate),
                        certificate=certificate),), title="t", links={}).rows  # fmt: skip
    assert row.entries["risk_upper"].text == "< 20%"
