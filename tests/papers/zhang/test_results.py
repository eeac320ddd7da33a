"""The table, the figure and the regularizers: rows, judgments and pages, from made-up results."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_tests
from hypothesis import strategies as st

from nonvacuous.bounds import holdout
from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang import (
    figure as zhang_figure,
)
from nonvacuous.papers.zhang import (
    regularization as zhang_regularization,
)
from nonvacuous.papers.zhang import (
    table as zhang_table,
)
from nonvacuous.papers.zhang.networks import RANDOM_WITH_REGULARIZERS, TABLE_1, Cell, GroupTiming
from nonvacuous.papers.zhang.settings import (
    FigureSettings,
    Recipe,
    RegularizationSettings,
    TableSettings,
    ZhangSettings,
)
from nonvacuous.randomization.intervals import Interval
from nonvacuous.report import plots
from nonvacuous.report.study import render
from nonvacuous.study.running import Surroundings, finished_cells, run_study, write_pages
from tests.examples import some

from .worlds import SHARED, in_table, made_up, tiny, write_images

PAPER = TableSettings()
TIMING = GroupTiming(
    network="alexnet",
    networks=5,
    epochs=80,
    seconds=40.0,
    method="streams",
    device="cuda",
    solo_seconds=0.3,
)


def row_result(number: int, train: float, test: float) -> zhang_table.RowResult:
    """Row `number` of the table with these accuracies in percent."""
    row = next(row for row in zhang_table.table_rows(PAPER) if row.number == number)
    errors = ((round(1000 - 10 * train), round(1000 - 10 * test)),)
    return zhang_table.RowResult(row, made_up(row.cell, errors))


# -- the table ------------------------------------------------------------------------------------


def test_rows_are_the_papers():
    rows = zhang_table.table_rows(PAPER)
    assert rows == TABLE_1
    assert rows[0].cell == Cell("inception", "true", "crop", True)
    assert rows[12].cell == Cell("alexnet", "random-labels")
    for other in (PAPER.changed(data="digits"), PAPER.changed(examples=5000)):
        assert all(row.train is row.test is None for row in zhang_table.table_rows(other))


def test_networks_of_ones_own_get_three_rows():
    own = {"mine": Recipe(model="mlp:4", epochs=1)}
    rows = zhang_table.table_rows(PAPER.changed(networks=own))
    assert [(row.number, row.cell.corruption, row.cell.decay) for row in rows] == [
        (1, "true", True),
        (2, "true", False),
        (3, "random-labels", False),
    ]
    both = zhang_table.table_rows(PAPER.changed(networks={**PAPER.networks, **own}))
    assert [row.number for row in both] == list(range(1, 23))


@pytest.mark.parametrize(
    ("only", "numbers", "expected"),
    [
        ((), (), list(range(1, 20))),
        (("mlp",), (), list(range(14, 20))),
        (("inception",), (), [1, 2, 3, 4, 5]),
        (("inception-no-bn", "mlp-1"), (), [6, 7, 8, 17, 18, 19]),
        ((), ("15-16", "18", "19"), [15, 16, 18, 19]),
        (("alexnet",), ("1-9",), [9]),
    ],
)
def test_choosing_rows(only, numbers, expected):
    chosen = zhang_table.chosen_rows(PAPER, only=only, numbers=numbers)
    assert [row.number for row in chosen] == expected


@pytest.mark.parametrize("text", ["0", "20", "x", "9-", "12-9", "-3", "1.5", ""])
def test_rows_that_are_not_there(text):
    with pytest.raises(BadInput, match="is not a row of the table; give numbers from 1 to 19"):
        zhang_table.chosen_rows(PAPER, numbers=[text])


@given(st.sets(st.integers(1, 19), min_size=1))
def test_any_set_of_rows_can_be_written_down(numbers):
    chosen = zhang_table.chosen_rows(PAPER, numbers=[str(number) for number in numbers])
    assert {row.number for row in chosen} == numbers


@pytest.mark.parametrize(
    ("number", "train", "test", "fits", "agrees", "chance"),
    [
        (4, 99.3, 83.3, True, True, None),
        (4, 99.2, 83.2, False, False, None),
        (4, 100.0, 88.2, True, True, None),
        (5, 100.0, 9.0, True, True, True),
        (5, 100.0, 11.1, True, True, False),
        (5, 100.0, 8.9, True, True, False),
        (19, 99.4, 13.2, True, False, False),
    ],
)
def test_judgments(number, train, test, fits, agrees, chance):
    row = row_result(number, train, test)
    judged = row.judged
    assert (judged["fits"], judged["test_agrees"], judged["at_chance"]) == (fits, agrees, chance)


def test_the_page_of_the_table(tmp_path):
    rows = tuple(row_result(n, 100.0, t) for n, t in ((4, 86.0), (5, 10.2), (12, 70.0)))
    result = zhang_table.TableResult(PAPER, rows, (TIMING,))
    assert result.summary["test_agrees"] == {"yes": 2, "of": 3}
    assert "(not: 12)" in zhang_table.verdict(result)
    paths = write_pages(zhang_table.STUDY, result, tmp_path, command="")
    page = paths["report.html"].read_text()
    assert "get 100.0 % or more of them right" in page
    assert "85.75" in page and "+0.25" in page and "-6.07" in page
    assert "Not computed here: rows 1, 2, 3, 6" in page
    assert "3.0" in page  # times faster: 0.3 s alone, 0.1 s together
    stored = json.loads(paths["results.json"].read_text())
    assert [row["number"] for row in stored["rows"]] == [4, 5, 12]
    assert stored["timings"][0]["speedup"] == pytest.approx(3.0)
    text = paths["table.md"].read_text()
    assert "| 4 | Inception | true | no | no | 100.00 | 100.00 | 86.00 | 85.75 | +0.25 |" in text


def test_the_table_from_beginning_to_end_in_two_calls(tmp_path):
    settings = in_table(tiny(write_images(tmp_path)))
    first = run_study(zhang_table.STUDY, settings.changed(rows=("1-2",)), tmp_path / "r")
    assert [row.printed.number for row in first.rows] == [1, 2]
    whole = run_study(
        zhang_table.STUDY, settings, tmp_path / "r", surroundings=Surroundings(resume=True)
    )
    assert [row.printed.number for row in whole.rows] == [1, 2, 3, 4, 5, 6]
    assert whole.rows[:2] == first.rows
    assert zhang_table.STUDY.page(whole, "").lead.startswith("Trained on random labels")


# -- the figure -----------------------------------------------------------------------------------


def figure(errors: list[int], *, slow: int = 1) -> zhang_figure.FigureResult:
    """A sweep with these test errors in 1,000; the last level fits `slow` measurements later."""
    settings = FigureSettings(networks={"alexnet": PAPER.networks["alexnet"]})
    settings = settings.changed(levels=tuple(i / (len(errors) - 1) for i in range(len(errors))))
    found = {}
    for place, wrong in enumerate(errors):
        cell = Cell("alexnet", zhang_figure.corruption_at(settings.levels[place]))
        wait = slow if place == len(errors) - 1 else 1
        found[cell] = made_up(cell, ((500, wrong),) * wait + ((0, wrong),))
    return zhang_figure.FigureResult(
        settings,
        curves={
            name: made_up(Cell("alexnet", name), ((20, 900), (0, 900)))
            for name in zhang_figure.CURVES
        },
        sweep={"alexnet": zhang_figure._sweep(settings, "alexnet", found)},
        timings=(TIMING,),
        classes=10,
    )


def test_cells_of_the_figure():
    cells = zhang_figure.STUDY.networks(FigureSettings())
    assert len(cells) == len(set(cells)) == 3 * 6 + 3
    assert Cell("inception", "gaussian") in cells and Cell("alexnet", "partial:0.6") in cells
    assert Cell("alexnet", "gaussian") not in cells


@settings_of_tests(max_examples=some(50), deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=6))
def test_a_sorted_sweep_rises(errors):
    assert figure(sorted(errors)).rises("alexnet")


def test_rising_within_intervals():
    # 300 of 1,000 has an interval of about 27 to 33 %: 290 after 300 may be chance, 200 is not.
    assert figure([300, 290, 900]).rises("alexnet")
    assert not figure([300, 200, 900]).rises("alexnet")
    result = figure([100, 500, 901], slow=3)
    assert result.ends_at_chance("alexnet")
    assert not figure([100, 500, 860]).ends_at_chance("alexnet")
    last = result.sweep["alexnet"][-1]
    assert last.slowdown == pytest.approx(8 / 4)
    assert last.test_error.high == holdout(errors=901, examples=1000, failure=0.025)


@pytest.mark.slow
def test_the_page_of_the_figure(tmp_path):
    result = figure([100, 500, 900])
    paths = write_pages(zhang_figure.STUDY, result, tmp_path, command="")
    assert all(paths[f"figure-1{panel}.svg"].read_text().startswith("<svg") for panel in "abc")
    page = paths["report.html"].read_text()
    assert "without ever falling on the way" in page and "guessing" in page
    assert page.count("<svg") == 3
    assert "not steadily" in zhang_figure.STUDY.page(figure([300, 200, 900]), "").lead
    # All networks may have been taken over from the table: then nothing took time here.
    assert "All training: 0 seconds" in render(
        zhang_figure.STUDY.page(replace(result, timings=()), "")
    )


def test_the_figure_takes_networks_from_the_table(tmp_path, monkeypatch):
    settings = tiny(write_images(tmp_path))
    run_study(zhang_table.STUDY, in_table(settings), tmp_path / "table")
    shared = {n: getattr(settings, n) for n in SHARED}
    wanted = FigureSettings(**shared, levels=(0.0, 0.5, 1.0), table=tmp_path / "table")
    result = run_study(zhang_figure.STUDY, wanted, tmp_path / "figure")
    assert [point.level for point in result.sweep["small"]] == [0.0, 0.5, 1.0]
    assert result.settings.curves_of == "small"
    finished = finished_cells(zhang_table.STUDY, tmp_path / "table")
    known = zhang_table.STUDY.trained(in_table(settings), finished)
    assert result.sweep["small"][0].result == known[Cell("small")]
    assert sum(timing.networks for timing in result.timings) == 2 + 3
    # The images are of three classes: who guesses errs on two thirds of them.
    drawn = []
    monkeypatch.setattr(plots, "lines", lambda *_, **how: drawn.append(how.get("level")) or "")
    zhang_figure.STUDY.page(result, "")
    assert drawn[0] == ("guessing", pytest.approx(200 / 3))
    guessed = replace(result.sweep["small"][-1], test_error=Interval(0.667, 0.66, 0.67, ""))
    assert replace(result, sweep={"small": (guessed,)}).ends_at_chance("small")


def test_levels_are_shares():
    assert FigureSettings(levels=(0.5,)).levels == (0.0, 0.5, 1.0)
    with pytest.raises(BadInput, match="not shares of labels"):
        FigureSettings.of({"levels": (0.0, 1.5)})


def test_curves_are_of_a_network_that_there_is():
    assert FigureSettings.quick().changed(only=("mlp-1x1200",)).curves_of == "mlp-1x1200"
    with pytest.raises(BadInput, match=r"^curves-of: there is no network 'inceptoin'; there are"):
        FigureSettings().changed(curves_of="inceptoin")


# -- the regularizers -----------------------------------------------------------------------------


def matrix(**changes: object) -> zhang_regularization.RegularizationResult:
    settings = RegularizationSettings().changed(**changes)
    found = {
        cell: made_up(cell, ((30, 250), (0, 300)))
        for cell in zhang_regularization.matrix_cells(settings)
    }
    switches = zhang_regularization._switches(settings, found)
    return zhang_regularization.RegularizationResult(settings, switches, (TIMING,))


def switches_of(result, network):
    return tuple(switch for switch in result.switches if switch.network == network)


def test_dropout_and_stronger_decay_stand_beside_the_papers_regularizers():
    result = matrix(decay_times=(1.0, 8.0))
    alexnet = {s.kind.regularizers: s for s in switches_of(result, "alexnet")}
    assert list(alexnet) == [
        "none",
        "weight decay",
        "weight decay × 8",
        "dropout",
        "random crops",
        "random crops, weight decay",
    ]
    for name in ("dropout", "weight decay × 8"):
        switch = alexnet[name]
        assert switch.true is not None and switch.random is not None
        assert (switch.published_test, switch.published_train, switch.fails) == (None, None, False)
    record = alexnet["weight decay × 8"].to_dict()
    assert (record["weight_decay_times"], record["dropout"]) == (8.0, False)
    assert alexnet["dropout"].to_dict()["dropout"] is True


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("full",), {("full",)}),
        (("dropout",), {("dropout",)}),
        (("none", "decay"), {(), ("decay",)}),
        (("crop", "decay"), {("crop",), ("decay",), ("crop", "decay")}),
    ],
)
def test_some_regularizers_only(names, kinds):
    cells = zhang_regularization.matrix_cells(RegularizationSettings(regularizers=names))
    assert {cell.switched_on for cell in cells} == kinds


def test_some_labels_and_strengths_only():
    asked = {"regularizers": ("decay",), "decay_times": (8.0,), "labels": ("random",)}
    cells = zhang_regularization.matrix_cells(RegularizationSettings(**asked))
    assert len(cells) == 5
    assert {(c.corruption, c.decay_times) for c in cells} == {("random-labels", 8.0)}


def test_a_folder_of_something_else_is_no_table(tmp_path):
    (tmp_path / "cells/x").mkdir(parents=True)
    cell = {"name": "x", "settings": {}, "seed": 0, "format": "nonvacuous-cell/1"}
    sweep = {"format": "nonvacuous-sweep/1", "run": "m:f", "cells": [cell]}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    ended = {**cell, "state": "done", "result": {}}
    (tmp_path / "cells/x/result.json").write_text(json.dumps(ended))
    settings = RegularizationSettings.quick().changed(table=tmp_path)
    with pytest.raises(BadInput, match=r"^--table: .*x holds no result of zhang-regularization"):
        zhang_regularization.STUDY.cells(settings, ())


def test_regularizers_that_are_not_there():
    with pytest.raises(BadInput, match="there is no 'noise'; there are none, decay"):
        RegularizationSettings.of({"regularizers": ("noise",)})
    with pytest.raises(BadInput, match="labels: there is no 'false'; there are true, random"):
        RegularizationSettings.of({"labels": ("false",)})
    with pytest.raises(BadInput, match=r"^decay-times: 0 is not positive"):
        RegularizationSettings.of({"decay_times": (0.0,)})
    nothing = RegularizationSettings(only=("alexnet",), regularizers=("full",))
    with pytest.raises(BadInput, match="full leave no network to train"):
        zhang_regularization.STUDY.networks(nothing)


def test_every_published_number_stands_once_in_the_matrix():
    switches = matrix().switches
    tests = [s.published_test for s in switches if s.published_test is not None]
    assert sorted(tests) == sorted(row.test for row in TABLE_1 if row.cell.corruption == "true")
    trains = [s.published_train for s in switches if s.published_train is not None]
    expected = [row.train for row in TABLE_1 if row.cell.corruption != "true"]
    expected += [train for train in RANDOM_WITH_REGULARIZERS.values() if train is not None]
    assert sorted(trains) == sorted(expected)
    assert [s.network for s in switches if s.fails] == ["alexnet"]
    both = next(s for s in switches if s.kind == Cell("inception", "true", "crop", True))
    assert both.published_train is None and both.random is None


def test_gains_and_early_stopping():
    result = matrix()
    first = result.switches[0]
    assert first.plain
    assert first.early_stopping == pytest.approx(5.0)
    better = made_up(Cell("alexnet", decay=True), ((0, 200),))
    switches = tuple(
        replace(s, true=better) if s.network == "alexnet" and s.kind.decay else s
        for s in result.switches
    )
    changed = replace(result, switches=switches)
    assert changed.gain("alexnet") == pytest.approx(10.0)
    assert changed.gain("mlp-1x512") == pytest.approx(0.0)
    assert changed.batch_norm_gain == pytest.approx(0.0)
    assert replace(result, switches=switches_of(result, "alexnet")).batch_norm_gain is None


def test_the_page_of_the_regularizers(tmp_path):
    paths = write_pages(zhang_regularization.STUDY, matrix(), tmp_path, command="")
    page = paths["report.html"].read_text()
    for words in ("did not converge", "99.93", "full augmentation", "77.84", "batch normalization"):
        assert words in page
    assert "11 of 11 networks still fit" in page


def test_the_matrix_from_beginning_to_end(tmp_path):
    settings = tiny(write_images(tmp_path))
    run_study(zhang_table.STUDY, in_table(settings), tmp_path / "table")
    asked = settings.changed(only=("small",), table=tmp_path / "table")
    result = run_study(zhang_regularization.STUDY, asked, tmp_path / "r")
    small = switches_of(result, "small")
    assert [s.kind.switched_on for s in small] == [(), ("decay",), ("dropout",), ("crop",)]
    assert all(s.true is not None and s.random is not None for s in small)
    # What the table has of the other network is shown, nothing more is trained.
    assert [s.random is None for s in switches_of(result, "convolutional")] == [False, True]
    assert sum(timing.networks for timing in result.timings) == 5
    plain, dropped = small[0].true, small[2].true
    assert dropped.training["dropout"] == 0.5
    # The same start and order of examples: what differs is dropped units.
    assert plain.history != dropped.history


# -- the settings ---------------------------------------------------------------------------------


def test_settings_from_files(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('data = "digits"\n[networks.alexnet]\nepochs = 3\n')
    settings = ZhangSettings.from_toml(path)
    assert settings.networks == {
        "alexnet": PAPER.networks["alexnet"].model_copy(update={"epochs": 3})
    }
    for text, message in (
        ("speed = 3", "there is no setting 'speed'"),
        ("[networks.alexnet]\nlayers = 3", "there is no setting 'networks.alexnet.layers'"),
        ("[networks.mine]\nepochs = 3", "networks.mine: a network needs a model"),
        ("[networks.alexnet]\ntogether = 0", "networks.alexnet.together must be greater"),
        ("x =", "is not TOML"),
        ("[networks]", "name no network"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=message):
            ZhangSettings.from_toml(path)
    with pytest.raises(BadInput, match="cannot be read"):
        ZhangSettings.from_toml(tmp_path / "absent.toml")
    with pytest.raises(BadInput, match="too few"):
        PAPER.changed(epochs=0)


def test_settings_travel_through_json():
    for settings in (PAPER, FigureSettings(), ZhangSettings.quick(), FigureSettings.quick()):
        record = json.loads(json.dumps(settings.record()))
        assert type(settings).of(record) == settings
