"""The published numbers of the randomization paper, and what they say about themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonvacuous.models import build
from nonvacuous.papers.zhang.networks import (
    IMAGENET,
    RANDOM_WITH_REGULARIZERS,
    STEPS_TO_FIT,
    TABLE_1,
    TITLES,
    Cell,
)
from nonvacuous.papers.zhang.settings import (
    FigureSettings,
    ReusingSettings,
    TableSettings,
    ZhangSettings,
)

#: Table 1's numbers of parameters, for images of 3 x 28 x 28 and ten classes.
PARAMETERS = {
    "inception": 1_649_402,
    "inception-no-bn": 1_649_402,
    "alexnet": 1_387_786,
    "mlp-3x512": 1_735_178,
    "mlp-1x512": 1_209_866,
}
SETTINGS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("network", PARAMETERS)
def test_parameter_counts_are_the_published_ones(network):
    module = build(ZhangSettings().networks[network].model, (3, 28, 28), 10, seed=0)
    assert sum(part.numel() for part in module.parameters()) == PARAMETERS[network]


def test_the_table_has_nineteen_rows():
    assert [row.number for row in TABLE_1] == list(range(1, 20))
    assert {row.cell.network for row in TABLE_1} == set(TITLES) == set(PARAMETERS)
    assert len({row.cell for row in TABLE_1}) == 19
    by_network = [sum(row.cell.network == name for row in TABLE_1) for name in TITLES]
    assert by_network == [5, 3, 5, 3, 3]


def test_every_network_fits_and_random_labels_stay_at_guessing():
    assert all(row.train >= 99.3 for row in TABLE_1)
    random = [row for row in TABLE_1 if row.cell.corruption == "random-labels"]
    assert [row.cell.network for row in random] == list(TITLES)
    assert all(abs(row.test - 10.0) <= 1.0 and not row.cell.switched_on for row in random)


def test_a_few_rows_as_printed():
    shown = {row.number: (row.cell, row.train, row.test) for row in TABLE_1}
    assert shown[1] == (Cell("inception", "true", "crop", True), 100.0, 89.05)
    assert shown[6] == (Cell("inception-no-bn", decay=True), 100.0, 83.00)
    assert shown[13] == (Cell("alexnet", "random-labels"), 99.82, 9.86)
    assert shown[19] == (Cell("mlp-1x512", "random-labels"), 99.34, 10.61)
    # Their sum guards the other digits.
    assert sum(row.test for row in TABLE_1) == pytest.approx(1086.94, abs=0.005)


def test_random_labels_with_regularizers():
    random = {(cell.network, cell.switched_on): cell for cell in RANDOM_WITH_REGULARIZERS}
    assert RANDOM_WITH_REGULARIZERS[random["inception", ("crop",)]] == 99.93
    assert RANDOM_WITH_REGULARIZERS[random["inception", ("full",)]] == 99.28
    assert RANDOM_WITH_REGULARIZERS[random["alexnet", ("decay",)]] is None
    assert ("alexnet", ("crop",)) not in random
    assert {cell.corruption for cell in RANDOM_WITH_REGULARIZERS} == {"random-labels"}
    assert len(RANDOM_WITH_REGULARIZERS) == 6


def test_other_published_numbers():
    assert list(STEPS_TO_FIT.values()) == sorted(STEPS_TO_FIT.values())
    assert [test for *_, test in IMAGENET] == [77.84, 59.80, 0.1]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zhang-table-1", TableSettings),
        ("zhang-regularization", ReusingSettings),
        ("zhang-figure-1", FigureSettings),
    ],
)
def test_settings_files_hold_the_defaults(name, kind):
    assert kind.from_toml(SETTINGS / f"{name}.toml") == kind()


def test_learning_rates_are_the_papers_where_they_can_be():
    networks = ZhangSettings().networks
    assert networks["inception"].learning_rate == 0.1
    assert networks["alexnet"].learning_rate == 0.01
