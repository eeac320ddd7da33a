"""The page that ``nonvacuous measures`` writes: the answer, the attack as a picture, all values."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from nonvacuous.report.plots import bars
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.study.study import Single

_SHORT = {"rescaling": "gauge", "permutation": "order", "output scale": "output scale"}
Shown = Mapping[str, Any]
#: Training here ends at 0 errors and this loss, so that two networks are compared at equal fit.
FIT_LOSS = 0.05


def number(entry: Shown | None) -> str:
    """A value as a person reads it; beyond the range of floats by its power of ten."""
    if entry is None:
        return "-"
    if "undefined" in entry:
        return "undefined"
    if entry["number"] is not None:
        return f"{entry['number']:.4g}"
    power = math.floor(entry["log10"])
    return f"{10 ** (entry['log10'] - power):.3f}e+{power}"


def claims(entry: Shown) -> str:
    """What a measure claims not to depend on, in short."""
    return ", ".join(_SHORT[kind] for kind in _SHORT if kind in entry["invariant"]) or "-"


def more_complex(entry: Shown, other: Shown) -> str:
    """Which of two networks a measure calls the more complex one."""
    if "undefined" in entry or "undefined" in other:
        return "-"
    # Beyond the range of floats there are only logarithms; negative numbers have none.
    by = "log10" if None not in (entry["log10"], other["log10"]) else "number"
    one, two = entry[by], other[by]
    # Equal in the digits that are shown is equal.
    tolerance = {"abs_tol": 4e-5} if by == "log10" else {"rel_tol": 1e-4}
    if math.isclose(one, two, **tolerance):
        return "no difference"
    higher = two > one
    return "the other" if higher == (entry["higher"] == "worse") else "this one"


def panel_table(record: Shown) -> Table:
    """One line per measure, with a second column of values where there is another network."""
    entries = record["panel"]["measures"]
    if record["against"] is None:
        alone = tuple((e["name"], number(e), claims(e)) for e in entries)
        return Table(("measure", "value", "same whatever the"), alone)
    pairs = zip(entries, record["against"]["panel"]["measures"], strict=True)
    both = tuple((e["name"], number(e), number(o), more_complex(e, o)) for e, o in pairs)
    return Table(("measure", "value", record["against"]["spec"], "more complex"), both)


def attack_table(record: Shown) -> Table:
    """One line per measure: what it did in all gauges, those that move farthest first."""
    entries = sorted(
        record["attack"]["measures"], key=lambda e: (e["verdict"] != "moves", -_moved(e))
    )
    rows = tuple(
        (e["name"], number(e["low"]), number(e["high"]), decades(e), e["verdict"]) for e in entries
    )
    headings = ("measure", "smallest", "largest", "decades", "verdict")
    return Table(headings, rows, caption="Every measure in all gauges")


def decades(entry: Shown) -> str:
    """By how many powers of ten it moved."""
    if entry["verdict"] == "undefined":
        return "-"
    if entry["verdict"] != "moves":
        return "0"
    width = "crosses 0" if entry["decades"] is None else f"{entry['decades']:.3g}"
    return f"{width}, undefined in {entry['missing']}" if entry["missing"] else width


def _moved(entry: Shown) -> float:
    return entry["decades"] or 0.0


def answer(record: Shown) -> str:
    """The finding in a sentence or two."""
    parts = []
    entries = record["panel"]["measures"]
    defined = [e for e in entries if "undefined" not in e]
    if record["attack"] is not None:
        verdicts = [e for e in record["attack"]["measures"] if e["verdict"] != "undefined"]
        moving = [e for e in verdicts if e["verdict"] == "moves"]
        gauges = f"In {record['attack']['gauges']} gauges of the same function"
        text = f"{gauges}, {len(moving)} of {len(verdicts)} measures change"
        if moving:
            farthest = max(moving, key=_moved)
            text += f", {farthest['name']} by {decades(farthest)} decades"
        broken = [e["name"] for e in moving if e["claims"]]
        if broken:
            text += f" (and {', '.join(broken)} against its claim)"
        parts.append(text + ".")
    if record["against"] is not None:
        pairs = zip(entries, record["against"]["panel"]["measures"], strict=True)
        sides = [more_complex(e, o) for e, o in pairs]
        parts.append(
            f"{sides.count('the other')} of {len(sides) - sides.count('-')} measures call the "
            f"network trained on {record['against']['spec']} the more complex one."
        )
    if not parts:
        free = sum("rescaling" in e["invariant"] for e in defined)
        parts.append(
            f"{len(defined)} of {len(entries)} measures are defined for this network; {free} of "
            "them are the same however the function is written down."
        )
    return " ".join(parts)


def undefined_reasons(record: Shown) -> list[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for entry in record["panel"]["measures"]:
        if "undefined" in entry:
            reasons.setdefault(entry["undefined"], []).append(entry["name"])
    return [(", ".join(names), reason) for reason, names in reasons.items()]


def training_text(record: Shown) -> str:
    sides = [("trained here", record["trained"])]
    if record["against"] is not None:
        sides.append((f"the one on {record['against']['spec']}", record["against"]["trained"]))
    parts = [
        f"{who}: {t['epochs']} epochs, loss {t['loss']:.3f}, {t['errors']:,} of "
        f"{record['examples']:,} examples wrong"
        for who, t in sides
        if t is not None
    ]
    text = "; ".join(parts) + "." if parts else ""
    return f"{text[:1].upper()}{text[1:]}"


def comparison_text(record: Shown) -> str:
    """What the second network is, and what is expected of a measure."""
    other, own = record["against"], record["trained"]
    if own is None or other["trained"] is None:
        begun = (
            f"The other network was trained on {other['spec']}. How a network was trained that did "
            "not train here is not known, so compare with care."
        )
    else:
        begun = (
            "Both networks began with the same weights and were trained in the same way, until no "
            f"error was left and the loss was at most {FIT_LOSS}: the other on {other['spec']}."
        )
        if own["errors"] or other["trained"]["errors"]:
            begun += " Not both of them got there: they differ in fit as well."
    return (
        f"{begun} It cannot predict more than its corrupted data hold, so a measure that is to "
        "explain generalization should call it the more complex one."
    )


def write_formulas(records: Sequence[Shown], console: Console) -> None:
    """One line for each measure, under the heading of its family."""
    family = None
    for entry in records:
        if entry["family"] != family:
            family = entry["family"]
            console.print(family, style="bold", soft_wrap=True)
        line = f"  {entry['name']}: {entry['formula']}. {entry['source']}."
        console.print(line, soft_wrap=True)


def write_text(result: Single, console: Console) -> None:
    """The answer, the table, and what else was asked for."""
    record = result.record
    console.print(answer(record), style="bold", soft_wrap=True)
    console.print()
    words = ("measure", "same whatever the", "verdict", "more complex")
    for table in (panel_table, attack_table) if record["attack"] is not None else (panel_table,):
        shown = table(record)
        numeric = tuple(name not in words for name in shown.headings)
        replace(shown, numeric=numeric, caption="").print(console)
        console.print()
    for names, reason in undefined_reasons(record):
        console.print(f"undefined: {names}: {reason}.", soft_wrap=True)
    if record["against"] is not None:
        console.print(comparison_text(record), soft_wrap=True)
    tail = f"{record['examples']:,} examples of {record['data']}. Seed {record['seed']}."
    console.print(f"{training_text(record)} {tail}".strip(), soft_wrap=True)


#: So many bars can be told apart on a telephone.
_DRAWN = 15


def page(result: Single, command: str) -> StudyPage:
    record = result.record
    errors = record["panel"]["training_errors"]
    badges = [f"{record['examples']:,} examples, {errors:,} of them wrong"]
    sections = [_values(record), _formulas(record), _NOT_SAID]
    if record["attack"] is not None:
        badges.append(f"{record['attack']['free_scales']:,} free scales")
        sections.insert(0, _attack(record))
    if record["against"] is not None:
        badges.append(f"against {record['against']['spec']}")
    return StudyPage(
        title="Measures",
        question=f"Which measures of {record['model']} on {record['data']} mean anything?",
        lead=answer(record),
        badges=tuple(badges),
        sections=tuple(sections),
        footer=(command, f"seed {record['seed']}; Python {sys.version.split()[0]}"),
    )


def _attack(record: Shown) -> Section:
    attacked = record["attack"]
    entries = [e for e in attacked["measures"] if e["verdict"] != "undefined"]
    moving = sorted((e for e in entries if e["verdict"] == "moves"), key=_moved, reverse=True)
    still = [e for e in entries if e["verdict"] != "moves"]
    shown = {e["name"]: _moved(e) for e in moving[:_DRAWN]}
    shown = shown or {f"{e['name']} ({e['verdict']})": 0.0 for e in still[:_DRAWN]}
    picture = bars(
        list(shown),
        {"decades": list(shown.values())},
        title=f"The same function in {attacked['gauges']} gauges",
        x_label="largest over smallest value, in decades",
    )
    caption = f"The {len(shown)} that moved farthest; {len(still)} stayed put."
    return Section.of(
        "What moves when only the way of writing changes?",
        "Multiplying what a hidden channel receives by a factor, and dividing what reads it by the "
        "same factor, changes every weight and no prediction. A measure that changes under this "
        "cannot by itself say anything about the function. The logarithms of the factors were "
        f"drawn with standard deviation {attacked['spread']:g}.",
        Figure(picture, caption if moving else "None moved."),
        attack_table(record),
        folded="All of them, as a table",
    )


def _values(record: Shown) -> Section:
    return Section.of(
        "All measures",
        "" if record["against"] is None else comparison_text(record),
        training_text(record),
        *(f"Undefined: {names}: {why}." for names, why in undefined_reasons(record)),
        panel_table(record),
        folded="Every value",
    )


def _formulas(record: Shown) -> Section:
    rows = tuple(
        (e["name"], e["formula"], e["source"], claims(e)) for e in record["panel"]["measures"]
    )
    headings = ("measure", "formula", "source", "same whatever the")
    return Section.of(
        "What is computed",
        "A convolution counts as the matrix [output channels, input channels x kernel positions]. "
        "Batch normalization, where there is any, was folded first. Everything is float64, "
        "products in logarithms. "
        "“Same whatever the”: what a measure claims not to depend on: the gauge (rescaling of "
        "hidden channels), the order of hidden channels, the output scale.",
        Table(headings, rows, numeric=(False,) * 4),
        folded="Every formula and its source",
    )


_NOT_SAID = Section.of(
    "What this does not say",
    "That a measure does not move says that it is a property of the function, not that it predicts "
    "how well the network generalizes; only many networks can show that. Bounds at or near 1 say "
    "nothing at all; each holds alone with a confidence of 95 %, not all of them together. The "
    "smallest certificates come from nonvacuous certify.",
)
