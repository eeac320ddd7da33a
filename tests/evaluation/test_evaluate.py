"""nv.evaluate: what it counts, what it promises, what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous import bounds
from nonvacuous.errors import BadInput, WrongMode

from .worlds import classes

EVENT = {"settings": {"metric": "event"}, "unseen": True}


def test_the_headline_is_the_exact_tail() -> None:
    predictions, labels, _ = classes()
    report = nv.evaluate(predictions=predictions, labels=labels, unseen=True)
    errors = int((predictions != labels).sum())
    call = {"errors": errors, "examples": 1000}
    assert report.risk_upper == bounds.holdout(**call, failure=0.05)
    assert report.risk_lower == bounds.holdout_lower(**call, failure=0.05)
    upper = bounds.holdout(**call, failure=0.025)
    assert report.evaluation.interval[1] == pytest.approx(upper)
    assert report.status == "valid" and report.mode == "evaluate" and not report.is_vacuous
    assert report.empirical.errors == errors
    assert report.baseline.shown_better
    lines = str(report).splitlines()
    assert lines[0].startswith("VALID: error rate of predictor <= ")


def test_zero_errors_are_not_zero_risk() -> None:
    report = nv.evaluate(losses=np.zeros(50), **EVENT)
    assert report.risk_upper == pytest.approx(1 - 0.05 ** (1 / 50))
    assert report.risk_lower == 0.0


@pytest.mark.parametrize("column", ["site", "tested", "wrong", "note"])
def test_a_page_names_its_groups_whatever_their_column_is_called(column, tmp_path: Path) -> None:
    predictions, labels, sites = classes()
    sites = np.where(np.arange(len(sites)) < 3, "rare", sites)  # too few: the table has a note
    report = nv.evaluate(
        predictions=predictions, labels=labels, groups={column: sites}, unseen=True
    )
    page = tmp_path / "page.html"
    nv.report(report, page)
    for name in ("A", "rare"):
        assert f'<th scope="row"><bdi>{name}</bdi></th><td' in page.read_text()


def test_groups_alone_together_and_worst() -> None:
    predictions, labels, sites = classes()
    report = nv.evaluate(
        predictions=predictions, labels=labels, groups={"site": sites}, unseen=True
    )
    part = report.groups["site"]["A"]
    errors = int(((predictions != labels) & (sites == "A")).sum())
    call = {"errors": errors, "examples": int((sites == "A").sum())}
    assert part.risk_upper == bounds.holdout(**call, failure=0.05)
    assert part.risk_upper_together == pytest.approx(bounds.holdout(**call, failure=0.05 / 3))
    assert part.risk_lower == bounds.holdout_lower(**call, failure=0.05)
    worst = max(s.risk_upper for s in report.groups["site"].values())
    assert report.evaluation.worst_group_upper == worst
    recall = report.groups["true class"]["2"]
    assert recall.examples == int((labels == 2).sum())
    precision = report.groups["predicted class"]["2"]
    assert precision.examples == int((predictions == 2).sum())


def test_a_group_without_an_answer_may_be_anything(tmp_path: Path) -> None:
    predictions, labels, sites = ["a"] * 200 + ["?"] * 20, ["a"] * 220, ["A"] * 200 + ["B"] * 20
    report = nv.evaluate(
        predictions=predictions,
        labels=labels,
        groups={"site": sites},
        unseen=True,
        settings={"metric": "selective error", "abstain": "?"},
        folder=tmp_path / "run",
    )
    assert report.groups["site"]["B"].risk_upper == report.evaluation.worst_group_upper == 1.0
    assert "insufficient" in nv.report(report, tmp_path / "page.html").read_text()
    nv.verify(tmp_path / "run").raise_if_failed()


def test_small_groups_are_marked_insufficient() -> None:
    predictions, labels, _ = classes(200, errors=0.0)
    group = ["large"] * 196 + ["tiny"] * 4
    report = nv.evaluate(predictions=predictions, labels=labels, groups={"g": group}, unseen=True)
    assert report.groups["g"]["large"].sufficient
    assert not report.groups["g"]["tiny"].sufficient


@pytest.mark.parametrize("metric", ["recall", "precision", "jaccard", "f1"])
def test_metrics_of_one_class(metric: str) -> None:
    predictions, labels, _ = classes(2000)
    report = nv.evaluate(
        predictions=predictions,
        labels=labels,
        unseen=True,
        settings={"metric": metric, "positive": 3},
    )
    truth, answer = labels == 3, predictions == 3
    hits = int((truth & answer).sum())
    total = {
        "recall": truth.sum(),
        "precision": answer.sum(),
    }.get(metric, (truth | answer).sum())
    lower = bounds.holdout_lower(errors=hits, examples=int(total), failure=0.05)
    expected = 2 * lower / (1 + lower) if metric == "f1" else lower
    assert 1 - report.risk_upper == pytest.approx(expected, abs=1e-9)
    least = bounds.holdout_lower(errors=int(total) - hits, examples=int(total), failure=0.05)
    least = least / (2 - least) if metric == "f1" else least
    assert report.evaluation.risk_lower == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("metric", ["f1", "jaccard", "balanced error"])
@pytest.mark.parametrize("balance", ["tilt", "shares"])
def test_means_over_classes_bracket_the_measured_value(metric: str, balance: str) -> None:
    predictions, labels, _ = classes(3000)
    settings = {"metric": metric, "balance": balance, "classes": np.unique(labels).tolist()}
    report = nv.evaluate(predictions=predictions, labels=labels, unseen=True, settings=settings)
    assert report.risk_lower < report.empirical.mean < report.risk_upper < 0.2
    assert report.evaluation.interval[0] <= report.risk_lower


def test_abstention_counts_answers_and_bounds_their_share() -> None:
    predictions, labels, _ = classes(1000, errors=0.1)
    answers = np.where(np.arange(1000) % 4 == 0, -1, predictions)
    settings = {"metric": "selective error", "abstain": -1}
    report = nv.evaluate(predictions=answers, labels=labels, unseen=True, settings=settings)
    kept = answers != -1
    wrong = int((answers != labels)[kept].sum())
    assert report.empirical.errors == wrong and report.empirical.trials == kept.sum()
    assert report.risk_upper == pytest.approx(
        bounds.holdout(errors=wrong, examples=int(kept.sum()), failure=0.025)
    )
    assert 0.7 < report.evaluation.coverage_lower < 0.75


def test_top_k_from_scores_and_from_ranks() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.random((400, 6)), generator.integers(0, 6, 400)
    settings = {"metric": "top-k", "top": 3, "classes": tuple(range(6))}
    report = nv.evaluate(predictions=scores, labels=labels, unseen=True, settings=settings)
    ranked = np.argsort(-scores, axis=1)
    errors = int((~(ranked[:, :3] == labels[:, None]).any(axis=1)).sum())
    assert report.empirical.errors == errors
    again = nv.evaluate(predictions=ranked, labels=labels, unseen=True, settings=settings)
    assert again.empirical.errors == errors


def test_votes_are_no_ranked_answers_and_the_last_rows_of_a_batch_no_votes() -> None:
    labels = np.arange(1025) % 10
    ranked = np.stack([labels, (labels + 1) % 10], axis=1)
    ranked[-1] = 0, 1
    call = {"settings": {"metric": "top-k", "top": 1}, "unseen": True}
    whole = nv.evaluate(predictions=ranked, labels=labels, **call)
    batches = [(ranked[:1024], labels[:1024]), (ranked[1024:], labels[1024:])]
    report = nv.evaluate(lambda answers: answers, batches, **call)
    assert report.empirical == whole.empirical
    for votes in ([[1, 0], [0, 1]], [[2, 2], [3, 1]]):
        with pytest.raises(BadInput, match="may be votes or scores"):
            nv.evaluate(predictions=np.array(votes), labels=[0, 1], **call)


def test_ranked_answers_may_be_words_or_positions(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "owl"])
    ranked = np.argsort(-np.random.default_rng(1).random((300, 3)), axis=1)
    labels = np.arange(300) % 3
    errors = int((~(ranked[:, :2] == labels[:, None]).any(axis=1)).sum())
    settings = {"metric": "top-k", "top": 2, "classes": tuple(names.tolist())}
    for answers, folder in ((names[ranked], tmp_path / "words"), (ranked, tmp_path / "positions")):
        report = nv.evaluate(
            predictions=answers,
            labels=names[labels],
            unseen=True,
            settings=settings,
            folder=folder / "run",
        )
        assert report.empirical.errors == errors
        assert nv.verify(folder / "run").verified
    call = {"labels": names[labels], "unseen": True, "settings": settings}
    ranked[7, 1] = 3
    with pytest.raises(BadInput, match="position 3 in row 7"):
        nv.evaluate(predictions=ranked, **call)
    words = np.where(ranked == 3, "fox", names[ranked % 3])
    with pytest.raises(BadInput, match="'fox' is not one of the declared"):
        nv.evaluate(predictions=words, **call)
    words[7, 1] = ""
    with pytest.raises(BadInput, match="first in row 7"):
        nv.evaluate(predictions=words, **call)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"predictions": np.full((6, 2), "cat")}, "ranked answers"),
        ({"predictions": np.eye(6)}, "scores of classes"),
        ({"groups": {"site": np.zeros((6, 2))}}, "site must have one value per row"),
        ({"clusters": np.full((6, 2), "x")}, "clusters must have one value per row"),
        ({"ids": np.zeros((6, 1))}, "ids must have one value per row"),
    ],
)
def test_a_table_for_a_column_is_refused(columns: dict, complaint: str) -> None:
    call = {"predictions": ["cat"] * 6, "labels": ["cat"] * 6, "unseen": True, **columns}
    settings = {"classes": ("cat", "dog")}
    with pytest.raises(BadInput, match=complaint):
        nv.evaluate(**call, settings=settings)


def test_losses_by_betting_with_a_declared_range() -> None:
    generator = np.random.default_rng(0)
    losses = generator.exponential(2.0, 500)
    report = nv.evaluate(losses=losses, unseen=True, settings={"metric": "loss", "range": (0, 10)})
    scaled = np.clip(losses, 0, 10) / 10
    assert report.empirical.total == pytest.approx(scaled.sum())
    assert report.risk_lower < scaled.mean() < report.risk_upper < scaled.mean() + 0.05
    assert "clipped to [0, 10]" in report.statement
    with pytest.raises(BadInput, match="declared"):
        nv.evaluate(losses=losses, unseen=True, settings={"metric": "loss"})


@pytest.mark.parametrize("bounds_of", [(0, 10), (-1, 1)])
def test_losses_at_both_ends_of_their_range_alone_are_promised(bounds_of: tuple) -> None:
    low, high = bounds_of
    losses = [low] * 28 + [high] * 12
    tail = {"errors": 12, "examples": 40, "failure": 0.05}
    for seed in range(10):  # some orders are lucky, and those that begin with one end are
        settings = {"metric": "loss", "range": bounds_of, "seed": seed}
        report = nv.evaluate(losses=losses, unseen=True, settings=settings)
        assert report.risk_upper >= bounds.holdout(**tail)
        assert report.evaluation.risk_lower <= bounds.holdout_lower(**tail) * (1 + 1e-12)


def test_other_theorems_stand_beside_betting_and_are_not_chosen() -> None:
    losses = np.random.default_rng(4).beta(0.2, 8, 400)
    report = nv.evaluate(losses=losses, unseen=True, settings={"metric": "loss"})
    beside = report.evaluation.beside
    assert set(beside) == {"kl", "empirical Bernstein"}
    kl = bounds.sampling_bounded(total=losses.sum(), trials=400, failure=0.05)
    assert beside["kl"] == pytest.approx(kl)
    variance = losses.var(ddof=1)
    call = {"empirical_risk": losses.mean(), "variance": variance, "examples": 400}
    end = bounds.bernstein(**call, failure=0.05)
    assert end <= beside["empirical Bernstein"] < end + 1e-6
    assert report.bound.name == "betting"
    # Here the kl bound happens to be smaller: it was not declared, so it is not the promise.
    settings = {"metric": "loss", "seed": 2}
    few = nv.evaluate(losses=[0.0] * 9 + [0.999], unseen=True, settings=settings)
    assert few.evaluation.beside["kl"] < few.risk_upper and few.bound.name == "betting"


def test_of_many_losses_only_sums_are_kept(monkeypatch) -> None:
    """The number alone decides which theorem speaks, and no number depends on the batches."""
    from nonvacuous.evaluation import tables, tally

    generator = np.random.default_rng(5)
    losses, site = generator.beta(0.5, 4, 5000), generator.choice(["A", "B"], 5000)
    call = {"losses": losses, "groups": {"site": site}, "unseen": True}
    call["settings"] = {"metric": "loss"}
    bets = nv.evaluate(**call)
    monkeypatch.setattr(tally, "MOST_BETS", 1000)
    report = nv.evaluate(**call)
    assert report.bound.name == "empirical Bernstein"
    assert nv.verify(report, data={"losses": losses, "site": site}).passed
    assert bets.risk_upper < report.risk_upper < bets.risk_upper + 0.005
    assert report.risk_lower < bets.risk_lower < report.empirical.mean
    assert report.empirical.mean == pytest.approx(losses.mean())
    own = losses[site == "A"]
    assert report.groups["site"]["A"].examples == len(own)
    assert report.groups["site"]["A"].errors == pytest.approx(own.sum(), abs=1e-5)
    monkeypatch.setattr(tables, "BATCH", 77)
    again = nv.evaluate(**call)
    assert again.evaluation == report.evaluation and again.risk_upper == report.risk_upper


def test_clusters_keep_one_line_each_however_the_rows_are_cut(monkeypatch) -> None:
    from nonvacuous.evaluation import tables, tally

    generator = np.random.default_rng(6)
    losses, site = generator.random(3000), generator.choice(["A", "B"], 3000)
    patient = generator.integers(0, 200, 3000)
    call = {"losses": losses, "groups": {"site": site}, "clusters": patient, "unseen": True}
    call["settings"] = {"metric": "loss"}
    report = nv.evaluate(**call)
    means = [losses[patient == p].mean() for p in range(200)]
    assert report.empirical.mean == pytest.approx(np.mean(means))
    own = [losses[(patient == p) & (site == "A")].mean() for p in set(patient[site == "A"])]
    assert report.groups["site"]["A"].errors == pytest.approx(sum(own))
    monkeypatch.setattr(tables, "BATCH", 77)
    assert nv.evaluate(**call).evaluation == report.evaluation
    monkeypatch.setattr(tally, "MOST_BETS", 100)
    assert nv.evaluate(**call).bound.name == "empirical Bernstein"


def test_repeated_ids_are_found_in_bounded_memory(monkeypatch) -> None:
    from nonvacuous.evaluation import likeness, tables

    monkeypatch.setattr(likeness, "MOST_HASHES", 500)
    monkeypatch.setattr(tables, "BATCH", 300)
    answers = {"predictions": np.arange(6000) % 2, "labels": np.arange(6000) % 2, "unseen": True}
    for ids in (np.arange(6000), np.arange(6000).astype(str)):
        assert nv.evaluate(**answers, ids=ids).status == "valid"
        double = np.r_[ids[:3000], ids[:3000]]
        report = nv.evaluate(**answers, ids=double)
        assert named(report, "conditional") == ["the examples are independent draws"]


def test_regression_and_brier() -> None:
    generator = np.random.default_rng(0)
    truth = generator.normal(size=300)
    guess = truth + generator.normal(scale=0.1, size=300)
    settings = {"metric": "absolute error", "range": (0, 1)}
    report = nv.evaluate(predictions=guess, labels=truth, unseen=True, settings=settings)
    assert report.risk_upper < 0.15
    labels = generator.integers(0, 2, 300)
    chances = np.where(labels == 1, 0.9, 0.2)
    report = nv.evaluate(
        predictions=chances, labels=labels, unseen=True, settings={"metric": "brier"}
    )
    assert report.empirical.mean == pytest.approx(np.mean((chances - labels) ** 2))


def test_scores_of_a_harness_are_successes() -> None:
    accuracy = np.r_[np.ones(80), np.zeros(20)]
    report = nv.evaluate(losses=accuracy, unseen=True, settings={"metric": "success"})
    assert report.empirical.errors == 20
    report = nv.evaluate(losses=accuracy * 0.5, unseen=True, settings={"metric": "score"})
    assert report.empirical.mean == pytest.approx(0.6)


def test_a_cluster_is_one_draw() -> None:
    """Each of 40 patients has 50 rows with the same outcome: 2,000 rows are 40 draws."""
    wrong = np.repeat(np.arange(40) < 4, 50).astype(float)
    patients = np.repeat(np.arange(40), 50)
    rows = nv.evaluate(losses=wrong, **EVENT)
    report = nv.evaluate(losses=wrong, clusters=patients, **EVENT)
    assert report.empirical.trials == 40 and report.evaluation.unit == "clusters"
    assert report.risk_upper > 2 * rows.risk_upper / 1.5
    single = nv.evaluate(losses=wrong, clusters=np.arange(2000), **EVENT)
    assert single.risk_upper == rows.risk_upper
    with pytest.raises(BadInput, match="clusters"):
        predictions, labels, _ = classes(40)
        nv.evaluate(
            predictions=predictions,
            labels=labels,
            clusters=np.arange(40),
            settings={"metric": "balanced error"},
        )


def test_classes_and_the_constant_answer_count_clusters_too() -> None:
    """Copies of a row show nothing more, neither about a class nor about the constant answer."""
    predictions, labels, _ = classes(120, errors=0.1, count=3)
    copies = np.repeat(np.arange(120), 30)
    call = {"unseen": True, "settings": {"classes": (0, 1, 2)}}
    one = nv.evaluate(predictions=predictions, labels=labels, **call)
    many = nv.evaluate(
        predictions=predictions[copies], labels=labels[copies], clusters=copies, **call
    )
    for column in ("true class", "predicted class"):
        for value, part in many.groups[column].items():
            exact = one.groups[column][value]
            assert part.examples == exact.examples and part.errors == pytest.approx(exact.errors)
            rows = {"errors": 30 * round(exact.errors), "examples": 30 * exact.examples}
            as_draws = nv.bounds.holdout(**rows, failure=0.05)
            assert part.risk_upper > as_draws + 0.01, "rows are not draws"
    assert many.evaluation.scores == {}
    assert 0.0 < many.baseline.margin_lower < one.baseline.margin_lower + 0.02
    assert many.baseline.shown_better and not many.is_vacuous
    table = {"predictions": predictions[copies], "labels": labels[copies], "clusters": copies}
    assert nv.verify(many, data=table).passed
    constant = nv.evaluate(
        predictions=np.zeros(3600, dtype=int), labels=labels[copies], clusters=copies, **call
    )
    assert not constant.baseline.shown_better and constant.is_vacuous
    with pytest.raises(BadInput, match="clusters"):
        nv.evaluate(
            predictions=predictions, labels=labels, clusters=np.arange(120),
            settings={"metric": "selective error", "abstain": 0},
        )  # fmt: skip


def test_the_baseline_is_not_beaten_by_a_constant() -> None:
    labels = np.array(["no"] * 950 + ["yes"] * 50)
    report = nv.evaluate(predictions=np.array(["no"] * 1000), labels=labels, unseen=True)
    assert not report.baseline.shown_better and report.is_vacuous
    assert report.baseline.name == "no"
    assert "not shown to be better than always answering “no”" in str(report)


def test_attempts_share_the_confidence() -> None:
    predictions, labels, _ = classes()
    one = nv.evaluate(predictions=predictions, labels=labels, unseen=True)
    ten = nv.evaluate(
        predictions=predictions, labels=labels, unseen=True, settings={"attempts": 10}
    )
    assert ten.risk_upper == bounds.holdout(
        errors=one.empirical.errors, examples=1000, failure=0.005
    )
    assert ten.confidence == 0.95


def test_predictors_of_every_kind() -> None:
    torch = pytest.importorskip("torch")
    inputs = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(int)

    class Estimator:
        def predict(self, x: np.ndarray) -> np.ndarray:
            return (x[:, 0] > 0).astype(int)

    module = torch.nn.Linear(4, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.0] * 4, [1.0, 0, 0, 0]]))
        module.bias.zero_()
    module.eval()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(inputs), torch.tensor(labels)), batch_size=32
    )
    for predictor, data in (
        (Estimator(), (inputs, labels)),
        (lambda x: (x[:, 0] > 0).astype(int), (inputs, labels)),
        (module, (torch.tensor(inputs), labels)),
        (module, loader),
        (module, iter(loader)),
    ):
        report = nv.evaluate(predictor, data, unseen=True)
        assert report.empirical.errors == 0 and report.empirical.trials == 300
        assert "same answers" in " ".join(a.detail for a in report.assumptions)
    with pytest.raises(WrongMode, match="eval"):
        nv.evaluate(module.train(), (torch.tensor(inputs), labels), unseen=True)


@pytest.mark.slow
def test_arrays_need_no_torch() -> None:
    code = (
        "import sys, nonvacuous as nv;"
        "r = nv.evaluate(predictions=[0,1]*50, labels=[0,1]*50, unseen=True);"
        "nv.compare([0,1]*50, [0,0]*50, [0,1]*50); nv.plan(0.1, 0.02); nv.monitor(r).update([0,1]);"
        "nv.disagreement(r, [0], [0]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ----------------------------------------------------------------------------- planted mistakes


def named(report: nv.Certificate, effect: str) -> list[str]:
    return [a.name for a in report.assumptions if a.effect == effect]


def test_unseen_must_be_said() -> None:
    predictions, labels, _ = classes()
    report = nv.evaluate(predictions=predictions, labels=labels)
    assert report.status == "conditional"
    assert named(report, "conditional") == ["the predictor never saw these examples"]


def test_groups_made_from_the_errors_are_refused() -> None:
    predictions, labels, _ = classes()
    hard = np.where(predictions != labels, "hard", "easy")
    report = nv.evaluate(predictions=predictions, labels=labels, groups={"g": hard}, unseen=True)
    assert report.status == "refused"
    assert named(report, "refused") == ["no group was chosen by its errors"]


def test_repeated_examples_are_noticed() -> None:
    predictions, labels, _ = classes(100)
    double = np.r_[np.arange(100), np.arange(100)]
    report = nv.evaluate(
        predictions=predictions[double], labels=labels[double], ids=double, unseen=True
    )
    assert named(report, "conditional") == ["the examples are independent draws"]


@pytest.mark.parametrize(("width", "status"), [(20, "conditional"), (3, "valid")])
def test_copies_of_inputs_of_few_numbers(width: int, status: str) -> None:
    """A few numbers may come together again by chance, many with many values do not."""
    inputs = np.random.default_rng(0).normal(size=(150, width))
    data = (np.tile(inputs, (10, 1)), np.tile(np.arange(150) % 2, 10))
    report = nv.evaluate(lambda rows: rows[:, 0] > 0, data, unseen=True)
    assert report.status == status


def test_repeated_inputs_are_noticed_and_near_ones_named() -> None:
    generator = np.random.default_rng(7)
    images = generator.random((300, 8, 8)).astype(np.float32)
    labels = np.arange(300) % 2

    def tested(inputs, answers=lambda x: np.zeros(len(x), dtype=int), **rest):
        report = nv.evaluate(answers, (inputs, labels[: len(inputs)]), unseen=True, **rest)
        return report.status, {a.name: a.detail for a in report.assumptions}[
            "the examples are independent draws"
        ]

    status, detail = tested(images)
    assert status == "valid" and "0 of 300 inputs are the same as another one." in detail
    status, detail = tested(np.concatenate([images[:290], images[:10]]))
    assert status == "conditional" and "10 of 300 inputs are the same" in detail
    copies = 0.5 * images[:20] + 0.1 + generator.normal(scale=1e-4, size=(20, 8, 8))
    status, detail = tested(np.concatenate([images[:280], copies.astype(np.float32)]))
    assert status == "valid" and "20 more hardly differ from one" in detail
    double = np.concatenate([images[:150]] * 2)
    assert tested(double, clusters=np.r_[np.arange(150), np.arange(150)])[0] == "valid"
    # Four yes-or-no answers come twice by chance: that is no mistake.
    status, detail = tested(generator.integers(0, 2, (300, 4)))
    assert status == "valid" and "inputs are the same" in detail
    from nonvacuous.evaluation.likeness import Likeness

    likeness = Likeness()
    likeness.add(generator.integers(0, 4, (5000, 32)))  # doubles whose last bits are all zero
    assert likeness.repeated() == 0
    texts = [f"What is the capital of the country with the number {i}?" for i in range(300)]
    assert "0 of 300" in tested(texts)[1]
    assert tested([*texts[:299], texts[0]])[0] == "conditional"
    assert "1 more hardly differ" in tested([*texts[:299], texts[0].upper() + "  ?"])[1]


def test_classes_in_another_order_are_noticed() -> None:
    predictions, labels, _ = classes()
    permuted = np.array([3, 0, 4, 1, 2])[predictions]
    report = nv.evaluate(predictions=permuted, labels=labels, unseen=True)
    assert named(report, "conditional") == ["predictions and labels name their classes alike"]


def test_a_predictor_that_looks_at_its_batch_is_refused() -> None:
    inputs = np.random.default_rng(0).normal(size=(200, 1))
    report = nv.evaluate(
        lambda x: (x[:, 0] > x[:, 0].mean()).astype(int),
        (inputs, (inputs[:, 0] > 0).astype(int)),
        unseen=True,
    )
    assert report.status == "refused"


@pytest.mark.slow
def test_a_model_selected_on_the_test_set_is_noticed(tmp_path) -> None:
    _, labels, _ = classes()
    for seed in range(3):
        guesses = np.where(np.random.default_rng(seed + 9).random(1000) < 0.05, 0, labels)
        report = nv.evaluate(
            predictions=guesses, labels=labels, unseen=True, folder=tmp_path / str(seed)
        )
        expected = "valid" if seed == 0 else "conditional"
        assert report.status == expected
    assert named(report, "conditional") == ["every test on these examples is paid for"]
    again = nv.evaluate(predictions=guesses, labels=labels, unseen=True, folder=tmp_path / "2")
    assert again == report
    paid = [
        nv.evaluate(
            predictions=np.roll(labels, shift),
            labels=labels,
            unseen=True,
            folder=tmp_path / f"paid/{shift}",
            settings={"attempts": 3},
        ).status
        for shift in range(3)
    ]
    assert "conditional" not in paid[:1]


# ----------------------------------------------------------------------------- bad input

BAD = {
    "lengths differ": ({"predictions": [0, 1], "labels": [0]}, "lengths"),
    "nothing": ({}, "needs"),
    "empty": ({"predictions": [], "labels": []}, "no examples"),
    "probabilities": ({"predictions": [0.2, 0.7], "labels": [0, 1]}, "probabilities"),
    "scores": ({"predictions": np.ones((4, 3)) / 3, "labels": [0, 1, 2, 0]}, "argmax"),
    "not a number": ({"predictions": [0.0, np.nan], "labels": [0, 1]}, "row 1"),
    "missing label": ({"predictions": [0, 1], "labels": ["a", None]}, "missing"),
    "other labels": ({"predictions": ["x", "y"], "labels": ["a", "b"]}, "no prediction is one"),
    "mixed kinds": ({"predictions": [0, "b"], "labels": [0, 1]}, "words"),
    "missing group": (
        {"predictions": [0, 1], "labels": [0, 1], "groups": {"g": ["a", None]}},
        "unknown",
    ),
    "unnamed group": ({"predictions": [0], "labels": [0], "groups": [[1]]}, "columns by name"),
    "confidence": ({"predictions": [0], "labels": [0], "confidence": 1.0}, "confidence"),
    "metric": ({"predictions": [0], "labels": [0], "settings": {"metric": "auc"}}, "metric"),
    "positive": ({"predictions": [0], "labels": [0], "settings": {"metric": "recall"}}, "class"),
    "no such class": (
        {"predictions": [0], "labels": [0], "settings": {"metric": "recall", "positive": 7}},
        "no class 7",
    ),
    "undeclared class": (
        {
            "predictions": ["cat", "dgo"],
            "labels": ["cat", "dog"],
            "settings": {"classes": ("cat", "dog")},
        },
        "Did you mean 'dog'",
    ),
    "event": ({"losses": [0.5], "settings": {"metric": "event"}}, "'loss'"),
    "nobody answered": (
        {
            "predictions": [-1, -1],
            "labels": [0, 1],
            "settings": {"metric": "selective error", "abstain": -1},
        },
        "answered",
    ),
    "no predictor": ({"predictor": 3, "data": ([1], [1])}, "predictor"),
    "no pair": ({"predictor": len, "data": [1, 2]}, "pair"),
    "answers": ({"predictor": lambda x: [1], "data": ([1, 2], [0, 1])}, "1 answers for 2"),
    "one answer": ({"predictor": lambda x: {"logits": x}, "data": ([1], [1])}, "single dict"),
    "a class in capitals": (
        {
            "predictions": ["positive", "negative"],
            "labels": ["negative", "negative"],
            "settings": {"metric": "f1", "positive": "Positive"},
        },
        "Did you mean 'positive'",
    ),
    "one column": (
        {"data": {"y": [0, 1]}, "predictions": "y", "labels": "y"},
        "compared with itself",
    ),
    "own table of classes": (
        {"predictions": [0, 1], "labels": [0, 1], "groups": {"true class": ["a", "b"]}},
        "another name",
    ),
    "own table of answers": (
        {"data": {"p": [0], "y": [0]}, "labels": "y", "groups": ["predicted class"]},
        "another name",
    ),
    "one label": ({"predictions": [1], "labels": np.array(1)}, "one entry for each example"),
    "one number": ({"predictions": 1, "labels": [1]}, "one entry for each example"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_explained(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(BadInput, match=words):
        nv.evaluate(**call)


@pytest.mark.parametrize("wrong", ["class", "columns"])
def test_what_failed_spends_no_attempt(tmp_path, monkeypatch, wrong: str) -> None:
    predictions, labels, _ = classes(400)
    call = {"predictions": predictions, "labels": labels, "unseen": True}
    settings = {"metric": "f1", "positive": 9 if wrong == "class" else 1}
    with monkeypatch.context() as patch:
        if wrong == "columns":  # the disk is full, or the process is killed

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr("nonvacuous.evaluation.evaluate.write_atomically", full)
        with pytest.raises((BadInput, OSError)):
            nv.evaluate(**call, settings=settings, folder=tmp_path / "one")
    assert not (tmp_path / "attempts.jsonl").exists()
    report = nv.evaluate(**call, settings={"metric": "error"}, folder=tmp_path / "one")
    assert report.status == "valid"


@pytest.mark.parametrize("metric", ["absolute error", "brier"])
def test_the_ledger_knows_shuffled_labels(tmp_path, metric: str) -> None:
    """A DataLoader that shuffles made every one of many regressors the only one tested."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 300) / (2 if metric == "absolute error" else 1)
    settings = {"metric": metric} | ({"range": (0, 1)} if metric == "absolute error" else {})
    for number, status in enumerate(["valid", "conditional"]):
        order = generator.permutation(300)
        guesses = generator.uniform(0.1, 0.9, 300)
        report = nv.evaluate(
            predictions=guesses,
            labels=labels[order].astype(int) if metric == "brier" else labels[order],
            unseen=True,
            settings=settings,
            folder=tmp_path / str(number),
        )
        assert report.status == status
        assert nv.verify(tmp_path / str(number)).passed


def test_a_certificate_without_its_line_is_not_kept(tmp_path) -> None:
    predictions, labels, _ = classes(400)
    (tmp_path / "attempts.jsonl").mkdir()
    with pytest.raises(BadInput, match="ledger"):
        nv.evaluate(predictions=predictions, labels=labels, unseen=True, folder=tmp_path / "one")
    assert not (tmp_path / "one" / "certificate.json").exists()


def test_a_folder_that_cannot_be_one_is_refused_before_anything_is_read(tmp_path) -> None:
    (tmp_path / "file").write_text("mine")

    def never(inputs):
        raise AssertionError("the predictor was asked")

    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(BadInput, match=r"file is not a folder.*--out"):
            nv.evaluate(never, ([1], [1]), unseen=True, folder=folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_stream_that_ends_early_is_refused() -> None:
    class Short(list):
        def __len__(self) -> int:
            return 5

    with pytest.raises(BadInput, match="ended after 1 of 5"):
        nv.evaluate(lambda x: x, Short([(np.array([0, 1]), np.array([0, 1]))]), unseen=True)


@pytest.mark.parametrize("metric", ["event", "success", "error", "f1", "brier"])
def test_a_range_that_would_not_be_read_is_refused(metric: str) -> None:
    """Events were scaled by it, and sums a little below a whole number counted as one less."""
    given = {"predictions": [0, 1] * 500, "labels": [0, 1] * 500}
    if metric in ("event", "success"):
        given = {"losses": [1] + [0] * 999}
    with pytest.raises(BadInput, match=f"metric '{metric}' has no range"):
        nv.evaluate(**given, unseen=True, settings={"metric": metric, "range": (0, 1.001)})


def test_a_range_wider_than_a_double_is_refused() -> None:
    wide = {"metric": "loss", "range": (-1e308, 1e308)}
    with pytest.raises(BadInput, match="wider than the largest number"):
        nv.evaluate(losses=[0.1] * 5, unseen=True, settings=wide)


def test_frames_and_their_labels_are_paired_row_by_row() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).normal(size=2500)
    frame, labels = pandas.DataFrame({"x": x}), pandas.Series((x > 0) * 1)

    def answer(inputs):
        return (inputs["x"] > 0) * 1

    assert nv.evaluate(answer, (frame, labels), unseen=True).empirical.errors == 0
    with pytest.raises(BadInput, match="inputs and labels name their rows differently"):
        nv.evaluate(answer, (frame.sample(frac=1, random_state=0), labels), unseen=True)
    fractions = np.arange(2500) + 0.5
    frame.index = labels.index = fractions
    report = nv.evaluate(answer, (frame, labels), unseen=True)
    assert (report.empirical.errors, report.empirical.trials) == (0, 2500)


def test_two_batches_in_a_tuple_are_no_pair() -> None:
    x = np.random.default_rng(0).normal(size=200)
    batches = ((x[:100], x[:100] > 0), (x[100:], x[100:] > 0))
    with pytest.raises(BadInput, match="give the batches in a list"):
        nv.evaluate(lambda inputs: inputs > 0, batches, unseen=True)
    report = nv.evaluate(lambda inputs: inputs > 0, list(batches), unseen=True)
    assert report.empirical.trials == 200


@pytest.mark.parametrize("rows", [10, 2000])
def test_columns_beside_a_predictor_are_told_from_its_batches(rows: int) -> None:
    inputs, labels = np.zeros((1500, 2)), np.zeros(1500, dtype=int)
    with pytest.raises(nv.errors.BadInput, match=rf"group site has {rows} rows, but there"):
        nv.evaluate(
            lambda batch: np.zeros(len(batch), dtype=int),
            (inputs, labels),
            groups={"site": ["A"] * rows},
            unseen=True,
        )


def test_a_promise_about_measurements_is_printed_in_their_units() -> None:
    settings = nv.Evaluation(metric="absolute error", range=(0, 20))
    labels = np.arange(400) % 7
    report = nv.evaluate(predictions=labels + 2.0, labels=labels, unseen=True, settings=settings)
    first = str(report).splitlines()[0]
    promise, unscaled = re.findall(r"<= ([\d.]+), that is ([\d.]+) before scaling$", first)[0]
    assert 0.1 < report.risk_upper <= float(promise) and 2.0 < float(unscaled) < 3.0
    assert float(unscaled) >= 20 * report.risk_upper
