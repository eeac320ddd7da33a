"""The table of a site in words: what decides comes first, and nothing is promised that is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.records import DataRecord, Observation
from nonvacuous.rules.arithmetic import ledger
from nonvacuous.study.runs import Run, figures_of
from nonvacuous.study.site import Table, render, table, write_site
from tests.certificates import BROKEN, DOUBT, sealed


def run(name: str, certificate: Certificate | None = None, **settings: Any) -> Run:
    found = {} if certificate is None else figures_of(certificate)
    return Run(name, Path(name), "done", settings, found, 3, 1.5, "", certificate)


def shown(*runs: Run) -> Table:
    return table(runs, title="t", links={})


LEAD, CAUTION, SAME = "h1", 'p class="told"', 'p class="note same"'


def said(page: Table, element: str) -> str:
    """What one element of the page says; nothing where there is none."""
    found = re.search(rf"<{element}><bdi>(.*?)</bdi>", render(page))
    return found[1] if found else ""


def titles(page: Table) -> list[str]:
    return [column.title for column in page.columns]


def test_the_headline_counts_certificates_and_picks_none() -> None:
    page = shown(
        run("a", sealed(risk_upper=0.05)),
        run("b", sealed(risk_upper=0.25)),
        run("c", sealed(status="conditional", assumptions=(DOUBT,))),
        run("d", sealed(status="refused", assumptions=(BROKEN,))),
    )
    assert said(page, LEAD) == "4 certificates: 2 valid, 1 conditional, 1 refused."
    assert "What is compared?" in render(page)
    assert "needs paying for it" in said(page, CAUTION)
    assert said(page, CAUTION).startswith("Each that was not refused is a promise by itself")
    assert "5.00" not in said(page, LEAD) + said(page, CAUTION)


def test_other_data_are_named() -> None:
    one = sealed()
    other = sealed(
        data=DataRecord(name="str", classes=2, preprocessing="none", bound=one.data.bound)
    )
    page = shown(run("a", one), run("b", other))
    assert "they are about 2 data sets" in said(page, CAUTION)
    assert titles(page)[-1] == "Data"


def test_one_certificate_is_no_choice() -> None:
    page = shown(run("a", sealed()))
    assert said(page, LEAD) == "1 certificate: 1 valid, none refused."
    assert said(page, CAUTION) == ""
    assert titles(page)[-2:] == ["Data", "Model"]


def test_what_decides_comes_first_and_what_is_the_same_is_said_once() -> None:
    page = shown(
        *(run(name, sealed(risk_upper=0.1 * n), width=n, rate=0.1) for n, name in enumerate("abc"))
    )
    assert titles(page) == ["Run", "Certificate", "Status", "Held-out twin", "Test error", "width"]
    assert not page.behind
    for words in ("data digits", "model mlp:32", "mode posterior", "rate 0.1", "confidence 0.95"):
        assert words in said(page, SAME), words
    assert said(page, SAME).startswith("The same in all runs: ")


def test_a_certificate_that_a_guess_beats_says_so_beside_its_number() -> None:
    entry = shown(run("a", sealed(risk_upper=0.95))).rows[0].entries["risk_upper"]
    assert (entry.text, entry.note) == ("≤ 95.0%", "not shown better than one class")


def test_the_test_error_is_the_certified_predictors_or_says_whose() -> None:
    mean = Observation(
        name="the network with the mean weights on the test examples", errors=1, trials=100
    )
    own = Observation(name="the randomized network on the test examples", errors=7, trials=100)
    both = shown(run("a", sealed(observed=(mean, own)))).rows[0].entries["test_error"]
    assert (both.text, both.note) == ("7.00%", "")
    other = shown(run("a", sealed(observed=(mean,)))).rows[0].entries["test_error"]
    assert (other.text, other.note) == ("1.00%", "mean weights")


def test_the_training_error_is_the_networks_own() -> None:
    """A sparsity certificate starts from a loss of noise, which nobody would call that."""
    observed = (Observation(name="the network on the bound examples", errors=2, trials=100),)
    page = shown(run("a", sealed("sparsity", observed=observed)), run("b", sealed()))
    assert page.rows[0].entries["training_error"].text == "2.00%"
    assert page.rows[1].entries["training_error"].text == "3.10%"


def test_a_functions_result_joins_the_column_of_its_name_but_promises_nothing() -> None:
    found = {"test_error": 0.025, "risk_upper": 0.001, "status": "valid", "score": 40.0}
    function = Run("f", Path("f"), "done", {"x": 1}, found, 3, 1.5)
    page = shown(run("a", sealed()), function)
    everything = [column.title.lower().replace(" ", "_") for column in page.columns + page.behind]
    assert len(everything) == len(set(everything))
    row = page.rows[1]
    assert row.entries["test_error"].text == "2.50%"
    assert row.entries["risk_upper"].key is None and row.promised is None
    assert row.entries["status"].text == "done"
    assert row.entries["result_risk_upper"].text == "0.001"
    assert said(page, LEAD) == "1 certificate: 1 valid, none refused."


def test_runs_without_certificates_show_what_they_found() -> None:
    runs = [
        Run(str(n), Path(str(n)), "done", {"x": n}, {"loss": 10.0 - n, "test_error": 40.0 + n}, n)
        for n in range(3)
    ]
    page = shown(*runs)
    assert said(page, LEAD) == "3 runs, and none of them promises anything."
    assert [column.name for column in page.columns] == [
        "name", "status", "loss", "test_error", "x", "seed",
    ]  # fmt: skip
    # What a function calls a test error need not be a frequency.
    assert page.rows[0].entries["test_error"].text == "40"


def test_no_more_columns_behind_the_table_than_a_page_bears() -> None:
    settings = [{f"s{k}": n * k for k in range(1, 80)} for n in range(2)]
    page = shown(*(run(str(n), sealed(), **some) for n, some in enumerate(settings)))
    assert len(page.behind) == 24
    assert sum(column.name.startswith("s") for column in page.columns) == 1 + 16  # and the status
    assert "39 more columns: nonvacuous runs --csv has them all." in render(page)
    assert shown(run("a", sealed())).left_out == 0


def test_best_first() -> None:
    doubtful = sealed(status="conditional", assumptions=(DOUBT,), risk_upper=0.01)
    page = shown(
        run("refused", sealed(status="refused", assumptions=(BROKEN,))),
        run("doubtful", doubtful),
        run("worse", sealed(risk_upper=0.25)),
        run("best", sealed(risk_upper=0.05)),
    )
    assert [row.name for row in page.rows] == ["best", "worse", "doubtful", "refused"]


def _sharing(attempts: int) -> Certificate:
    budget = ledger(mode="posterior", failure=0.05, attempts=attempts, sampled=True)
    return sealed(budget=budget)


def test_what_is_paid_for_is_said() -> None:
    paid = shown(run("a", _sharing(3)), run("b", _sharing(2)))
    assert said(paid, CAUTION).startswith("Paid for: each of them shares its confidence among 2")
    short = shown(*(run(name, _sharing(2)) for name in "abc"))
    assert "needs paying for it" in said(short, CAUTION)


def test_the_page_of_a_test_is_that_of_its_report(tmp_path: Path) -> None:
    report = nv.evaluate(predictions=[0, 1] * 50, labels=[0, 1] * 50, unseen=True)
    (page,) = write_site([run("a", report)], tmp_path, title="t").pages
    assert "How wrong can it be on examples it has not seen?" in page.read_text("utf-8")
