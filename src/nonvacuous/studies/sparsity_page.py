"""What ``nonvacuous sparsity`` prints, and its page: pictures first, then every term."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.report.plots import Series, bars, histogram, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.sparsity.findings import Shown
from nonvacuous.studies import sparsity_tables as tables
from nonvacuous.studies.sparsity_tables import Record
from nonvacuous.study.study import Single


def write_text(result: Single, console: Console) -> None:
    record = result.record
    console.print(record["answer"], soft_wrap=True)
    bounds = [tables.bound_table(record)] if tables.bounds_of(record) else []
    for table in (tables.activity_table(record), tables.epsilon_table(record), *bounds):
        words = table.numeric is not None
        numeric = tuple(number > 0 and not words for number in range(len(table.headings)))
        console.print()
        replace(table, numeric=numeric).print(console)
    console.print()
    for line in tables.caveats(record):
        console.print(line, soft_wrap=True)
    asked = "asked: units to be inactive for the radius (95 % of the examples have so many); "
    console.print(
        f"active: above zero on an average example; {asked if record['radii'] else ''}unstable: "
        f"sign in doubt at level {record['level']:g}. Seed {record['seed']}.",
        soft_wrap=True,
    )


def page(result: Single, command: str) -> StudyPage:
    record, shown = result.record, Shown(**result.drawn["shown"])
    certified = bool(record["certificates"])
    sections = (
        _activity(record),
        _radii(record, shown) if record["radii"] else None,
        _ratio(record),
        _stability(record, shown),
        _surely_off(record, shown),
        _bounds(record),
        _terms(record) if certified else None,
        _NOT_SAID,
    )
    return StudyPage(
        title="Sparsity",
        question=f"How sparse is {record['model']} on {record['data']}, and does it help?",
        lead=tables.certificate_verdict(record) if certified else record["answer"],
        badges=_badges(record),
        sections=tuple(filter(None, sections)),
        footer=(command, f"seed {record['seed']}; Python {sys.version.split()[0]}"),
    )


def _badges(record: Record) -> tuple[str, ...]:
    errors = record["errors"] / record["examples"]
    badges = [
        "layers " + " – ".join(map(str, record["sizes"])),
        f"{record['examples']:,} examples, {errors:.1%} of them wrong",
        "biases as weights on a constant" if record["biases"] else "no biases",
    ]
    if record["certificates"]:
        # The first, not the better of the two: a number picked after looking is another claim.
        first = record["certificates"][0]
        risk = tables.risk_text(first["risk_upper"], tables.constant_answer(record)[1])
        badges.append(f"certificate {risk}, {first['variant']}")
    return tuple(badges)


def _activity(record: Record) -> Section:
    names = [f"{e['name']} ({e['units']})" for e in record["activity"]]
    counts = {"average example": "mean", "never active": "never", "always active": "always"}
    shares = {
        name: [e[count] / e["units"] for e in record["activity"]] for name, count in counts.items()
    }
    more = "; a convolution has a unit for every channel and position."
    if record["radii"]:
        more = "; “asked” is how many units the radius below asks to be inactive."
    return Section.of(
        "How much of it is active?",
        record["answer"] if record["certificates"] else "",
        "A unit is active on an example when its pre-activation is above zero. “never” and "
        f"“always” count units over all examples{more}",
        Figure(bars(names, shares, title="Active units", x_label="share of the layer")),
        tables.activity_table(record),
        folded="Layer by layer",
    )


def _radii(record: Record, shown: Shown) -> Section:
    values = {
        entry["name"]: [math.log10(radius) for radius in layer]
        for entry, layer in zip(record["radii"], shown.radii, strict=True)
    }
    quantiles = tuple(
        (e["name"], f"{e['sparsity']:,}", f"{e['zero']:.1%}", *map(tables.radius_text, e["radius"]))
        for e in record["radii"]
    )
    norms = (
        {
            "layer": e["name"],
            "row norm": f"{e['row']:.3g}",
            "joint norm": f"{e['joint']:.3g}",
            "which bound": e["way"],
            "reach": f"{e['reach']:.3g}",
        }
        for e in record["radii"]
    )
    about_norms = (
        "The norms behind the radii, for the units that may be active: the longest row, the "
        "smallest of the spectral, Frobenius and babel bounds on the layer, and how long the "
        "activations before it can be."
    )
    shares = (f"{share:.0%}" for share in record["shares"])
    title, axis = "Sparse local radii", "radius, power of ten"
    figures: list[Figure] = []
    if any(values.values()):
        figures.append(Figure(histogram(values, title=title, x_label=axis, y_label="examples")))
    return Section.of(
        "How firmly are units off?",
        "The radius says how far, relative to its norms, all weights may move before one of the "
        "units asked to be inactive can wake up; at zero one is awake already. The columns in "
        "percent give the radius below which so many examples lie. Layers farther up have smaller "
        "radii, since the reach multiplies the norms of all layers before.",
        *figures,
        Table(("layer", "asked", "zero", *shares), quantiles),
        Table.of(norms, about_norms, words=("layer", "which bound")),
        folded="Radii and norms, layer by layer",
    )


def _ratio(record: Record) -> Section:
    entries = record["epsilons"]
    x = [entry["epsilon"] for entry in entries]
    known = entries[0]["mean_ratio"] is not None
    curves = [
        Series(
            f"off in {layer['name']}", x, [e["layers"][k]["mean"] / layer["units"] for e in entries]
        )
        for k, layer in enumerate(record["activity"])
    ]
    ratio = ""
    if known:
        means = [e["mean_ratio"] for e in entries]
        band = ([e["ratio"][end] for e in entries] for end in (0, -1))
        curves.insert(0, Series("all weights", x, means, *band))
        ratio = (
            " The activity ratio is the share of weights between the other units; its band holds "
            "90 % of the examples. Where it reaches 1, sparsity is of no use at that size of "
            "change."
        )
    picture = lines(
        curves,
        title=f"{'Effective activity ratio, and u' if known else 'U'}nits surely off",
        x_label="how far the weights may move (ε)",
        y_label="share",
        log_x=True,
        lowest=0.0,
        highest=1.02,
    )
    return Section.of(
        "What is left when the weights may move?",
        "For each example the greedy sparsity s*(x, ε) counts the units that lie below zero by at "
        f"least {record['level']:g} times what a change of relative size ε can do.{ratio}",
        Figure(picture),
        tables.epsilon_table(record),
        folded="As a table",
    )


def _stability(record: Record, shown: Shown) -> Section:
    some = [(e["epsilon"], layer) for e in record["epsilons"][::2] for layer in e["layers"]]
    labels = [f"{layer['name']}, ε = {epsilon:g}" for epsilon, layer in some]
    kinds = {"surely active": "active", "surely off": "inactive", "unstable": "unstable"}
    groups = {name: [layer[kind] for _, layer in some] for name, kind in kinds.items()}
    columns = [
        (f"{layer['name']}, ε = {entry['epsilon']:g}", layer["kinds"])
        for number, entry in enumerate(record["epsilons"])
        if number == 0 or entry["epsilon"] == shown.epsilon
        for layer in entry["layers"]
    ]
    rows = tuple((kind, *(f"{kinds[kind]:,}" for _, kinds in columns)) for kind in columns[0][1])
    headings = ("units", *(name for name, _ in columns))
    return Section.of(
        "Which units keep their sign?",
        "A unit that surely stays active is linear, one that surely stays off is absent: only "
        "unstable ones bend when the weights move.",
        Figure(bars(labels, groups, title="Signs", x_label="share of units × examples")),
        Table(headings, rows, caption="How many units, by what they do over all examples."),
        folded="As a table",
    )


def _surely_off(record: Record, shown: Shown) -> Section:
    values = {
        entry["name"]: [float(count) for count in layer]
        for entry, layer in zip(record["activity"], shown.sparsity, strict=True)
    }
    counts = [count for layer in values.values() for count in layer]
    # Bins as wide as a whole number: otherwise some would hold more numbers than others.
    spread = max(counts) - min(counts)
    picture = histogram(
        values,
        title=f"Greedy sparsity s*(x, {shown.epsilon:g})",
        x_label="units surely off",
        y_label="examples",
        bins=max(1, int(spread // math.ceil((spread + 1) / 40))),
    )
    return Section.of(
        "How does that differ between examples?",
        f"Units surely off when the weights may move by {shown.epsilon:g}, example by example. "
        "A bound for all examples at once must do with the fewest; the theorems of the "
        "certificate below use each example's own number.",
        Figure(picture),
    )


def _bounds(record: Record) -> Section:
    heading, bounds = "What does a bound make of it?", tables.bounds_of(record)
    if not bounds:
        return Section.of(heading, *tables.caveats(record))
    answer, error = tables.constant_answer(record)
    picture = bars(
        [name for name, _, _ in bounds],
        {"risk at most": [risk for _, risk, _ in bounds]},
        title="Bounds on the risk",
        x_label="risk",
        level=("guessing" if answer == tables.GUESSING else "always the largest class", error),
    )
    return Section.of(heading, *tables.caveats(record), Figure(picture), tables.bound_table(record))


#: What each term of a certificate is called, and how it is written; bounds are rounded up.
_TERMS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("risk_upper", "risk at most", shown_up),
    ("examples", "examples in the bound", "{:,}".format),
    ("network_errors", "errors of the network on them", "{:,}".format),
    ("kl_nats", "KL to the prior, nats", "{:,.1f}".format),
    ("grid_nats", "charge for the searches, nats", "{:,.1f}".format),
    ("errors", "noisy margins below the threshold", "{:,}".format),
    ("trials", "of so many noisy passes", "{:,}".format),
    ("loss_upper", "noisy loss at most", shown_up),
    ("escape", "chance p that noise hides an error", "{:g}".format),
    ("threshold", "threshold of the margin (median)", "{:.4g}".format),
    ("margin", "noisy margin (median)", "{:.4g}".format),
    ("failure", "failure of the bound", "{:.3g}".format),
    ("sampling_failure", "failure of the sampling", "{:.3g}".format),
)


def _terms(record: Record) -> Section:
    entries = record["certificates"]
    rows = [
        (name, *("infinite" if e[key] is None else form(e[key]) for e in entries))
        for key, name, form in _TERMS
    ]
    for k in range(len(entries[0]["scales"])):
        away = f"squared distance of layer {k + 1} from the prior"
        rows.append((f"noise of layer {k + 1}", *(f"{e['scales'][k]:.3g}" for e in entries)))
        rows.append((away, *(f"{e['squared_distances'][k]:.4g}" for e in entries)))
    variants = tuple(f"Theorem {e['theorem']}, {e['variant']}" for e in entries)
    return Section.of(
        "Where does the certificate come from?",
        f"{tables.certificate_verdict(record)} Prior: {record['prior']}. The risk is at most "
        "kl⁻¹(noisy loss, (KL + ln(2√n/δ) + searches) / n) / (1 − p), for the network itself "
        "and not for a noisy copy of it.",
        Table(("term", *variants), tuple(rows)),
        folded="Every term",
    )


_NOT_SAID = Section.of(
    "What does this not say?",
    "That sparsity makes networks generalize: it says what a theorem can make of the sparsity that "
    "it finds. Activity was measured on these examples; on others it may differ, and no bound "
    "above assumes that it does not. Radii, ratios and signs are facts about this network on these "
    "examples, not promises about new ones.",
)
