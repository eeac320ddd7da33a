"""Who sorts a table by its losses must not choose the order in which they are bet on."""

from __future__ import annotations

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.evaluation.former import FORMER_ORDER
from nonvacuous.evaluation.sample import in_order_of_betting

LOSSES = {"metric": "loss"}


def test_the_order_is_another_one_for_other_rows_losses_and_seeds() -> None:
    losses = np.arange(100) / 100
    once = in_order_of_betting(losses, 0, "rows")
    assert np.array_equal(once, in_order_of_betting(losses[::-1], 0, "rows"))
    assert np.array_equal(np.sort(once), losses)
    assert not np.array_equal(once, in_order_of_betting(losses, 1, "rows"))
    assert not np.array_equal(once, in_order_of_betting(losses, 0, "other rows"))
    ranks = np.argsort(in_order_of_betting(losses**2, 0, "rows"))
    assert not np.array_equal(ranks, np.argsort(once))
    signed = in_order_of_betting(np.array([0.0, -0.0, 1.0]), 0, "")
    assert signed.tobytes() == in_order_of_betting(np.array([0.0, 0.0, 1.0]), 0, "").tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("risk", [0.064, 0.214])
def test_clusters_of_rows_that_agree_are_false_as_rarely_as_declared(risk: float) -> None:
    """With one order for each set of losses 186 in 1,000 were false at 60 clusters and .064."""
    generator, false = np.random.default_rng(5), 0
    for _ in range(600):
        wrong = np.repeat((generator.random(60) < risk).astype(int), 3)
        call = {"predictions": wrong, "labels": np.zeros(180, int), "unseen": True}
        false += nv.evaluate(**call, clusters=np.repeat(np.arange(60), 3)).risk_upper < risk
    assert false / 600 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [80, 85, 130])
def test_promises_about_sorted_losses_are_false_as_rarely_as_declared(examples: int) -> None:
    """With an order that rested on the number of rows alone, up to half of them were false."""
    generator, false, differ = np.random.default_rng(examples), 0, 0
    for _ in range(300):
        losses = np.sort(generator.beta(0.3, 1.2, examples))  # 0.2 on average
        false += nv.evaluate(losses=losses, unseen=True, settings=LOSSES).risk_upper < 0.2
        other = np.sort(generator.beta(0.3, 1.2, examples) - losses)
        gaps = nv.compare(np.maximum(other, 0.0), np.maximum(-other, 0.0))
        truth = 0.0  # both means are 0.2
        differ += not gaps.difference_lower <= truth <= gaps.difference_upper
    assert false / 300 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert differ / 300 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_reports_that_bet_in_the_order_of_the_file_are_not_believed(tmp_path) -> None:
    losses = np.random.default_rng(0).random(100)
    report = nv.evaluate(losses=losses, unseen=True, settings=LOSSES, folder=tmp_path / "run")
    fields = {name: getattr(report, name) for name in type(report).model_fields if name != "digest"}
    fields["bound"] = report.bound.model_copy(update={"theorem": FORMER_ORDER})
    verification = nv.verify(nv.Certificate.sealed(**fields))
    assert not verification.passed and "Test again" in str(verification)
