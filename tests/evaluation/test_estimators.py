"""Predictors and inputs as people have them: estimators, frames, batches of several arrays."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.errors import BadInput

X = np.random.default_rng(0).normal(size=(400, 2))
NOISY = X[:, 0] + 0.5 * np.random.default_rng(1).normal(size=400)
BRIER = {"metric": "brier"}


@pytest.mark.parametrize("labels", [(NOISY > 0) * 1, NOISY > 0, np.where(NOISY > 0, "b", "a")])
def test_probabilities_of_an_estimator_are_read_where_the_metric_wants_them(labels: Any) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    model = LogisticRegression().fit(X[:200], labels[:200])
    test = X[200:], labels[200:]
    report = nv.evaluate(model, test, settings=nv.Evaluation(metric="brier"), unseen=True)
    chances = model.predict_proba(test[0])[:, 1]
    truth = test[1] == model.classes_[1]
    assert report.empirical.mean == pytest.approx(np.mean((chances - truth) ** 2))
    score = nv.sklearn.certified_scorer(settings=nv.Evaluation(metric="brier"))(model, *test)
    assert score == 1.0 - report.risk_upper
    top = nv.evaluate(model, test, settings={"metric": "top-k", "top": 1}, unseen=True)
    assert top.empirical.errors == int((model.predict(test[0]) != test[1]).sum())
    with pytest.raises(BadInput, match="classes are not those of the LogisticRegression"):
        nv.evaluate(model, test, settings=BRIER | {"classes": ("b", "a")})
    with pytest.raises(BadInput, match="a LinearSVC has no predict_proba"):
        nv.evaluate(LinearSVC().fit(X[:200], labels[:200]), test, settings=BRIER)


def test_classes_are_no_probabilities() -> None:
    labels = (X[:, 0] > 0) * 1
    for answers in (labels, labels.astype(float), labels > 0):
        with pytest.raises(BadInput, match="these are classes, not probabilities"):
            nv.evaluate(predictions=answers, labels=labels, settings=BRIER)
    with pytest.raises(BadInput, match=r"outside \[0, 1\]: these are classes or scores"):
        nv.evaluate(predictions=[0, 1, 2], labels=[0, 1, 2], settings=BRIER)
    chances = np.r_[0.5, labels[1:]]
    batches = [(X[:1], labels[:1]), (X[1:], labels[1:])]
    given = iter([chances[:1], chances[1:]])
    report = nv.evaluate(lambda _: next(given, chances[:1]), iter(batches[:1]), settings=BRIER)
    assert report.empirical.mean == 0.25
    assert nv.evaluate(predictions=chances, labels=labels, settings=BRIER).empirical.mean < 0.01


def test_columns_beside_a_predictor_name_their_rows_alike() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": X[:, 0]}, index=np.arange(400) + 0.5)
    site = pandas.Series(np.where(X[:, 0] > 0, "a", "b"), index=frame.index)
    data = frame, (X[:, 0] > 0) * 1

    def answer(inputs: Any) -> Any:
        return (inputs["x"] > 0) * 1

    mixed = site.sample(frac=1, random_state=0)
    for beside in ({"groups": {"site": mixed}}, {"clusters": mixed}, {"ids": mixed}):
        with pytest.raises(BadInput, match=r"inputs and .* name their rows differently"):
            nv.evaluate(answer, data, **beside)
    report = nv.evaluate(answer, data, groups={"site": site}, unseen=True)
    assert report.groups["site"]["a"].examples == int((X[:, 0] > 0).sum())


Pair = namedtuple("Pair", ["a", "b"])


@pytest.mark.parametrize("size", [2, 50])
@pytest.mark.parametrize("made", [dict, tuple, list, Pair])
def test_batches_of_several_arrays(size: int, made: Any) -> None:
    def answer(inputs: Any) -> Any:
        first, second = inputs.values() if isinstance(inputs, dict) else inputs
        return (first + second > 0) * 1

    parts = {"a": X[:, 0], "b": X[:, 1]}
    labels = (X.sum(axis=1) > 0) * 1
    batches = []
    for start in range(0, 400, size):
        own = {name: part[start : start + size] for name, part in parts.items()}
        inputs = own if made is dict else Pair(**own) if made is Pair else made(own.values())
        batches.append((inputs, labels[start : start + size]))
    report = nv.evaluate(answer, batches, unseen=True)
    assert (report.empirical.errors, report.empirical.trials) == (0, 400)
    tried = any("same answers" in assumption.detail for assumption in report.assumptions)
    assert tried or (size == 2 and made is not dict)


def test_a_module_is_called_with_one_tensor() -> None:
    torch = pytest.importorskip("torch")
    batch = {"a": torch.zeros(4, 2)}, torch.zeros(4, dtype=torch.long)
    with pytest.raises(BadInput, match=r"lambda inputs: module\(\*\*inputs\)"):
        nv.evaluate(torch.nn.Linear(2, 2).eval(), [batch])


def test_a_device_without_room_is_not_blamed_on_the_inputs(monkeypatch) -> None:
    torch = pytest.importorskip("torch")

    def full(*_: object) -> None:
        raise RuntimeError("out of memory")

    module = torch.nn.Linear(2, 2).eval()
    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.raises(RuntimeError, match=r"^out of memory"):
        nv.evaluate(module, (X.astype(np.float32), (X[:, 0] > 0) * 1))


def test_frames_of_words_and_numbers_are_inputs() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"word": ["x", "y"] * 200, "number": X[:, 0]})
    report = nv.evaluate(
        lambda rows: (rows["number"] > 0) * 1, (frame, (X[:, 0] > 0) * 1), unseen=True
    )
    assert report.status == "valid" and report.empirical.errors == 0
    words = pandas.DataFrame({"word": ["w" * 50] * 400, "other": np.arange(400).astype(str)})
    report = nv.evaluate(lambda rows: np.zeros(len(rows), int), (words, [0] * 400), unseen=True)
    assert report.status == "valid"


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_inputs_may_have_missing_numbers(odd: float) -> None:
    inputs = np.random.default_rng(0).normal(size=(200, 40))
    inputs[::3, 5] = odd
    inputs[1] = inputs[2] + 1e-6
    labels = np.arange(200) % 2
    report = nv.evaluate(lambda rows: rows[:, 0] > 0, (inputs, labels), unseen=True)
    independent = next(a for a in report.assumptions if "independent" in a.name)
    assert "0 of 200 inputs are the same as another one, 1 more hardly" in independent.detail


def test_flags_beside_the_arrays_of_a_batch_and_batches_without_rows() -> None:
    def answer(inputs: Any) -> Any:
        return (inputs["x"][:, 0] > 0) * 1 if inputs["flag"] and inputs["none"] is None else 0

    labels = (X[:, 0] > 0) * 1
    batches = [({"x": X, "flag": True, "none": None}, labels)]
    assert nv.evaluate(answer, batches, unseen=True).status == "valid"
    batches = [(X, labels), (X[:0], labels[:0])]
    report = nv.evaluate(lambda inputs: (inputs[:, 0] > 0) * 1, batches, unseen=True)
    assert report.empirical.trials == 400


def test_columns_beside_a_predictor_may_come_from_a_generator() -> None:
    call = {"predictor": lambda inputs: (inputs[:, 0] > 0) * 1, "data": (X, (X[:, 0] > 0) * 1)}
    report = nv.evaluate(**call, ids=(f"row {row}" for row in range(400)), unseen=True)
    assert report.status == "valid"
    for ids in (5, np.array(5)):
        with pytest.raises(BadInput, match="one entry for each example"):
            nv.evaluate(**call, ids=ids)


def test_columns_beside_a_loader_have_its_order_or_are_refused() -> None:
    """Groups and clusters of other rows made false promises."""
    torch = pytest.importorskip("torch")
    data = torch.utils.data

    class Stream(data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Any:
            return iter(pairs)

    pairs = data.TensorDataset(torch.tensor(X), torch.tensor((X[:, 0] > 0) * 1))
    sites = np.arange(400) // 200
    call = {"predictor": lambda rows: (rows[:, 0] > 0) * 1, "unseen": True}
    for loader in data.DataLoader(pairs, 64), data.DataLoader(Stream(), 64):
        report = nv.evaluate(**call, data=loader, groups={"site": sites})
        assert [part.examples for part in report.groups["site"].values()] == [200, 200]
    shuffled = data.DataLoader(pairs, 64, shuffle=True)
    assert nv.evaluate(**call, data=shuffled).status == "valid"
    halves = data.DataLoader(pairs, batch_sampler=[range(200, 400), range(200)])
    tqdm = pytest.importorskip("tqdm").tqdm
    for loader in (shuffled, halves, tqdm(shuffled, disable=True)):
        for beside in {"groups": {"site": sites}}, {"clusters": sites}, {"ids": range(400)}:
            with pytest.raises(BadInput, match="an order of its own"):
                nv.evaluate(**call, data=loader, **beside)
    drawn = data.DataLoader(pairs, 64, sampler=data.WeightedRandomSampler(torch.ones(400), 4000))
    with pytest.raises(BadInput, match="draws with replacement"):
        nv.evaluate(**call, data=drawn)


def test_labels_beside_a_predictor_are_refused() -> None:
    """They took the place of those in the data, whatever order these had."""
    labels = (X[:, 0] > 0) * 1
    for data in X, (X, labels):
        with pytest.raises(BadInput, match="give its labels there"):
            nv.evaluate(lambda rows: (rows[:, 0] > 0) * 1, data, labels=labels)


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array", "coo_matrix"])
def test_inputs_may_be_a_sparse_matrix(kind: str) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    inputs = getattr(sparse, kind)(X)
    labels = (X[:, 0] > 0) * 1
    report = nv.evaluate(lambda rows: (rows @ [1, 0] > 0) * 1, (inputs, labels), unseen=True)
    assert report.status == "valid" and report.empirical.trials == 400
    with pytest.raises(BadInput, match="400 inputs and 399 labels"):
        nv.evaluate(lambda rows: rows, (inputs, labels[1:]))
