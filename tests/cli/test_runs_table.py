"""``nonvacuous runs`` in a terminal: no number is ever broken, and no bound is rounded down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.cli import exits
from nonvacuous.cli.runs import fitted, shown
from nonvacuous.records import BoundRecord, Observation
from tests.certificates import sealed

RISK = 0.24752229752899155
MEAN = Observation(
    name="the network with the mean weights on the test examples", errors=20, trials=360
)


@pytest.fixture
def runs(place: Path) -> Path:
    """Certificates in folders with the long names of a sweep."""
    for number in range(3):
        name = f"model=mlp-{2**number},learning_rate=0.01,seed={number}-bc7f09b5d75f"
        folder = place / "runs" / name
        folder.mkdir(parents=True)
        sealed(risk_upper=RISK + number / 10).save(folder / "certificate.json")
        (folder / "config.toml").write_text(f'mode = "posterior"\nseed = {number}\n')
    return place / "runs"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """Make what is printed believe in a terminal of so many columns."""

    def believe(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")

    return believe


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize("columns", [30, 60, 80, 100, 132])
def test_no_line_and_no_number_is_broken(runs, invoke, terminal, columns):
    terminal(columns)
    done = invoke("runs", "runs", "--columns", "all")
    assert done.code == exits.DONE
    lines = plain(done.out)
    rows = [line for line in lines if "bc7f09b5d75f" in line or "…" in line]
    assert len(rows) == 3, "one line for each run"
    assert max(map(len, lines)) <= columns
    for row in rows:
        for word in row.split():
            if re.match(r"\d", word):
                assert "…" not in word, row
    assert "No room for" in done.err and "--csv" in done.err and "--columns" in done.err


def test_a_terminal_of_eighty_columns_keeps_what_decides(runs, invoke, terminal):
    terminal(80)
    text = "\n".join(plain(invoke("runs", "runs").out))
    for words in ("status", "0.2476", "0.3476", "0.4476", "0.0501", "0.025"):
        assert words in text


def test_a_file_has_every_column_whole(runs, invoke):
    done = invoke("runs", "runs", "--columns", "all")
    assert "No room for" not in done.err
    assert "learning_rate=0.01,seed=2-bc7f09b5d75f" in done.out
    assert "empirical_risk" in done.out and "…" not in done.out


def test_the_test_error_of_another_predictor_is_named(place, invoke):
    sealed(observed=(MEAN,)).save(_folder(place / "runs/a") / "certificate.json")
    assert "mean weights" in invoke("runs", "runs").out
    sealed().save(_folder(place / "other/a") / "certificate.json")
    assert "tested" not in invoke("runs", "other").out


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "question",
    [
        "select min(risk_upper) from runs",
        "select risk_upper from runs order by 1 limit 1",
        "select min(risk_upper) as best from runs",
        "select round(min(risk_upper), 10) as best from runs",
    ],
)
def test_answers_in_sql_round_no_bound_down(runs, invoke, question):
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install '.[sql]'")
    number = re.search(r"0\.\d+", invoke("runs", "runs", "--sql", question).out)
    assert number is not None
    assert float(number[0]) >= round(RISK, 10)


@given(st.floats(0.0, 1.0))
def test_whatever_may_be_a_bound_is_not_shown_smaller(value):
    for name in ("risk_upper", "twin", "max(twin)", "best", "a.risk_upper"):
        assert float(shown(name, value, known=["risk_upper", "twin"])) >= value


def test_other_numbers_have_more_digits_in_sql():
    assert shown("kl_nats", 12.3456789, known=["kl_nats"]) == "12.3457"
    assert shown("avg(kl_nats)", 12.3456789, known=["kl_nats"]) == "12.3456789"
    # A name that only looks like that of a bound.
    assert shown("twins", 0.24752, known=["twins"]) == "0.24752"


columns = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=6), st.tuples(st.integers(1, 60), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip


@given(columns, st.integers(20, 200))
def test_columns_that_are_kept_fit(columns, room):
    natural = {name: width for name, (width, _) in columns.items()}
    numeric = {name: number for name, (_, number) in columns.items()}
    widths = fitted(natural, numeric, room=room)
    assert list(widths) == [name for name in natural if name in widths]
    assert len(widths) == 1 or sum(widths.values()) + 3 * len(widths) <= room
    for name, width in widths.items():
        assert width == natural[name] if numeric[name] else width <= natural[name]
    if sum(natural.values()) + 3 * len(natural) <= room:
        assert widths == natural


def test_a_declared_threshold_is_not_rounded(place: Path, invoke) -> None:
    """The double 0.2 lies above 1/5: rounded up the gate would be another promise."""
    gate = BoundRecord(name="gate", theorem="a gate", inputs={"threshold": 0.2})
    (place / "runs" / "gate").mkdir(parents=True)
    sealed("holdout", risk_upper=0.2, bound=gate).save(place / "runs/gate/certificate.json")
    done = invoke("runs", "runs")
    assert "< 0.2 " in done.out and "0.2001" not in done.out
    assert "1 of 1 run\n" in done.err
