"""The table of runs: every run folder below a folder as plain rows, and choosing among them.

Needs no torch. Conditions such as risk_upper<0.1 need nothing else either, SQL needs DuckDB.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput, NonvacuousError, Unrecognized, Unsupported, nearest
from nonvacuous.files import inside
from nonvacuous.foreign import holds_run, run_settings
from nonvacuous.report.measured import errors_on_test, measured_risk
from nonvacuous.study.folder import CELLS, ERROR, RESULT, SWEEP, ending, read_record, state_of
from nonvacuous.study.functions import plain

CERTIFICATE = "certificate.json"
#: Run folders lie at most this many folders below the one that is read.
_DEPTH = 4
#: Where settings of a certification stand in its own record.
_FROM_CONFIG = ("mode", "predictor", "seed", "architecture", "confidence")


@dataclass(frozen=True)
class Run:
    """One run folder.

    name         its path below the folder that was read
    state        done, failed, running, unfinished, waiting (not begun), or invalid: it holds a
                 certificate that contradicts itself, and counts for nothing
    settings     what was asked, and figures: what came of it
    certificate  where it has one
    """

    name: str
    folder: Path
    state: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    seconds: float | None = None
    error: str = ""
    certificate: Certificate | None = None

    def row(self) -> dict[str, Any]:
        """Everything under one name each; a result that is called like a setting is result_NAME."""
        row: dict[str, Any] = {"name": self.name, "state": self.state, **self.settings}
        for name, value in self.figures.items():
            # A certificate says the same of itself as its settings, in its own words.
            taken = name in row and self.certificate is None
            row[f"result_{name}" if taken else name] = value
        return {**row, "seed": self.seed, "seconds": self.seconds, "error": self.error or None}


def figures_of(certificate: Certificate) -> dict[str, Any]:
    """The numbers of a certificate that runs are compared by.

    A refused one promises nothing, and neither does one whose gate was not passed.
    """
    test = next(iter(errors_on_test(certificate)), None)
    twin, complexity = certificate.held_out_twin, certificate.complexity
    refused, gated = certificate.status == "refused", certificate.gate is not None
    stopped = gated and certificate.risk_upper >= 1.0
    return {
        "status": certificate.status,
        **({"gate": "not passed" if stopped else "passed"} if gated and not refused else {}),
        "risk_upper": None if refused or stopped else certificate.risk_upper,
        "vacuous": certificate.is_vacuous,
        "empirical_risk": measured_risk(certificate),
        "test_error": None if test is None else test.rate,
        # The certified predictor's where it was tested; else of the one that is named here.
        "tested": None if test is None else test.whose,
        "twin": None if twin is None or refused else twin.risk_upper,
        "baseline": None if certificate.baseline is None else certificate.baseline.rate,
        "kl_nats": None if complexity is None else complexity.kl_nats,
        "data": certificate.data.name,
        "model": certificate.model.architecture,
        "parameters": certificate.model.parameters,
        "examples": certificate.data.bound.examples,
        "mode": certificate.mode,
        "predictor": certificate.predictor,
        "confidence": certificate.confidence,
        "bound": certificate.bound.name,
    }


def read_runs(folder: str | os.PathLike[str]) -> tuple[Run, ...]:
    """Every run below a folder, by name, and the cells of sweeps that have not begun."""
    root = Path(folder)
    if not root.is_dir():
        raise Unrecognized(f"{root} is not a folder; name one that holds run folders.")
    runs = {path: _run(root, path) for path in _folders(root, is_run)}
    for sweep in _folders(root, lambda folder: (folder / SWEEP).is_file()):
        record = read_record(sweep / SWEEP) or {}
        for cell in record.get("cells", ()):
            path = sweep / CELLS / cell["name"]
            if path not in runs:
                asked = {"settings": cell["settings"], "seed": cell["seed"]}
                runs[path] = Run(_name(root, path), path, state_of(path, None), **asked)
    return tuple(runs[path] for path in sorted(runs))


def is_run(folder: Path) -> bool:
    """Whether this very folder is a run, finished or not."""
    return (folder / CERTIFICATE).is_file() or _is_cell(folder) or holds_run(folder)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all columns in the order of their first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_cell(folder: Path) -> bool:
    names = (RESULT, ERROR)
    return any((folder / name).is_file() for name in names) and ending(folder) is not None


def _folders(folder: Path, wanted: Callable[[Path], bool], depth: int = _DEPTH) -> Iterator[Path]:
    """The outermost folders that are wanted; what may not be read holds nothing of ours."""
    if wanted(folder):
        yield folder
    elif depth:
        inner: list[Path] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            inner = [
                Path(e.path)
                for e in entries
                if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
            ]
        for path in sorted(inner):
            yield from _folders(path, wanted, depth - 1)


def _name(root: Path, folder: Path) -> str:
    parts = list(folder.relative_to(root).parts)
    if len(parts) > 1 and parts[-2] == CELLS and (folder.parents[1] / SWEEP).is_file():
        del parts[-2]
    return "/".join(parts) or folder.absolute().name


def _run(root: Path, folder: Path) -> Run:
    record = ending(folder)
    certificate, trouble = _certificate(folder)
    state: str = state_of(folder, record)
    if trouble:
        state = "invalid"
    elif certificate is not None and record is None:
        state = "done"
    figures: Mapping[str, Any] = {}
    if certificate is not None:
        figures = figures_of(certificate)
    elif record is not None and not trouble:
        figures = record.get("result") or {}
    settings = record["settings"] if record is not None else _asked(folder)
    seed = record["seed"] if record is not None else settings.pop("seed", None)
    return Run(
        name=_name(root, folder),
        folder=folder,
        state=state,
        settings=settings,
        figures=figures,
        seed=certificate.seed if seed is None and certificate is not None else seed,
        seconds=None if record is None else record.get("seconds"),
        error=trouble or str(((record or {}).get("error") or {}).get("message", "")),
        certificate=certificate,
    )


def _asked(folder: Path) -> dict[str, Any]:
    stored = run_settings(folder)
    stored |= stored.get("method", {})
    return {name: stored[name] for name in _FROM_CONFIG if name in stored}


def _certificate(folder: Path) -> tuple[Certificate | None, str]:
    try:
        path = inside(folder, CERTIFICATE)
        return (Certificate.load(path), "") if path.is_file() else (None, "")
    except NonvacuousError as error:
        return None, str(error)


Row = Mapping[str, Any]
_CONDITION = re.compile(r"\s*([\w.-]+?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def select(rows: Sequence[Row], conditions: Iterable[str]) -> list[Row]:
    """The rows that meet every condition.

    >>> select([{"a": 1}, {"a": 2}, {"a": None}], ["a>1"])
    [{'a': 2}]
    """
    kept = list(rows)
    names = columns_of(rows)
    for condition in conditions:
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise BadInput(
                f"{condition!r} is not a condition: write a column, one of < <= > >= = != ~ and a "
                "value, such as risk_upper<0.1 or model~cnn."
            )
        name, sign, text = match.groups()
        column = known(name, names)
        kept = [row for row in kept if _meets(row.get(column), sign, text)]
    return kept


def ordered(rows: Sequence[Row], column: str, *, reverse: bool = False) -> list[Row]:
    """The rows by a column, smallest first unless ``reverse``; rows without it come last."""
    name = known(column, columns_of(rows))
    with_value = [row for row in rows if row.get(name) is not None]
    without = [row for row in rows if row.get(name) is None]

    def rank(row: Row) -> tuple[bool, Any]:
        """Numbers by size, then texts by their letters."""
        number = isinstance(row[name], bool | int | float)
        return not number, row[name] if number else str(row[name])

    return sorted(with_value, key=rank, reverse=reverse) + without


def known(name: str, names: Sequence[str]) -> str:
    """The column of this name, dashes and underscores alike; an error names the nearest."""
    for candidate in (name, name.replace("-", "_")):
        if candidate in names:
            return candidate
    if not names:
        return name
    hint = nearest(name.replace("-", "_"), names, "; did you mean {}?", ".")
    raise BadInput(f"there is no column {name!r}{hint} The columns are: {', '.join(names)}.")


def _meets(value: Any, sign: str, text: str) -> bool:
    if sign == "~":
        return value is not None and text.lower() in str(value).lower()
    if text.lower() in ("none", "null", ""):
        return (value is None) == (sign in ("=", "=="))
    if value is None:
        return sign == "!="
    wanted: Any = None
    if isinstance(value, bool):
        wanted = _WORDS.get(text.lower())
    elif isinstance(value, int | float):
        with contextlib.suppress(ValueError):
            wanted = float(text)
    else:
        value, wanted = str(value), text
    return sign == "!=" if wanted is None else _COMPARE[sign](value, wanted)


#: A table out of two texts in JSON: its rows, and the types of its columns.
_READ = "select unnest(from_json(?, ?)) as run"


def query(rows: Sequence[Mapping[str, Any]], sql: str) -> list[dict[str, Any]]:
    """The answer to a question about the table ``runs``, whose columns are those of the rows.

    The question sees that table and nothing else: no files, no network.
    """
    try:
        import duckdb
    except ImportError as error:
        raise Unsupported(
            "--sql needs the package duckdb. Install it with pip install 'nonvacuous[sql]', or "
            "choose with --where and --sort, which need nothing."
        ) from error
    # A column without a name cannot be asked for.
    names = list(filter(None, columns_of(rows))) or ["name"]
    types = {name: _type([row.get(name) for row in rows]) for name in names}
    table = [{name: _value(row.get(name), types[name]) for name in names} for row in rows]
    with duckdb.connect(":memory:") as database:
        given = [_as_json(table), _as_json([types])]
        try:
            database.execute(f"create table runs as select unnest(run) from ({_READ})", given)
            database.execute("set enable_external_access = false")
            database.execute("set lock_configuration = true")
            answer = database.execute(sql)
            described = answer.description
            answers = answer.fetchall() if described else []
        except duckdb.Error as error:
            raise BadInput(
                f"DuckDB does not understand the question: {' '.join(str(error).split())} The "
                f"table is called runs; its columns (capitals do not count) are {', '.join(names)}."
            ) from error
    titles = [column[0] for column in described or ()]
    return [
        {title: plain(value, _other) for title, value in zip(titles, values, strict=True)}
        for values in answers
    ]


def _as_json(record: Any) -> str:
    """JSON in Unicode, as DuckDB wants it: names of folders may be none."""
    return json.dumps(record, ensure_ascii=False).encode(errors="replace").decode()


def _type(values: Sequence[Any]) -> str:
    """One type for a column: numbers where all are numbers, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return "bigint"
    if kinds and kinds <= {int, float}:
        return "double"
    return "varchar"


def _value(value: Any, kind: str) -> Any:
    if value is None or kind != "varchar" or isinstance(value, str):
        return value
    return json.dumps(value)


def _other(value: Any) -> float | str:
    """DuckDB also gives dates, decimals and more."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
