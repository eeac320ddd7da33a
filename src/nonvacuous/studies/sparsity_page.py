"""The page that ``nonvacuous sparsity`` writes: pictures first, then every term."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.report.plots import Series, bars, histogram, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.sparsity.findings import Shown
from nonvacuous.studies.sparsity_text import (
    activity_table,
    bound_table,
    caveats,
    certificate_verdict,
    epsilon_table,
    radius_text,
)
from nonvacuous.study.study import Single


def page(result: Single, command: str) -> StudyPage:
    record, shown = result.record, Shown(**result.drawn["shown"])
    network = f"{record['model']} on {record['data']}"
    sections = (
        _activity(record),
        *((_radii(record, shown),) if record["radii"] else ()),
        _ratio(record),
        _stability(record, shown),
        _surely_off(record, shown),
        _bounds(record),
        *((_terms(record),) if record["certificates"] else ()),
        _NOT_SAID,
    )
    return StudyPage(
        title="Sparsity",
        question=f"How sparse is {network}, and does it help?",
        lead=certificate_verdict(record) if record["certificates"] else record["answer"],
        badges=_badges(record),
        sections=sections,
        footer=(command, f"seed {record['seed']}; Python {sys.version.split()[0]}"),
    )


def _badges(record: Mapping[str, Any]) -> tuple[str, ...]:
    errors = record["errors"] / record["examples"]
    badges = [
        "layers " + " – ".join(map(str, record["sizes"])),
        f"{record['examples']:,} examples, {errors:.1%} of them wrong",
        "biases as weights on a constant" if record["biases"] else "no biases",
    ]
    if record["certificates"]:
        # The first, not the better of the two: a number picked after looking is another claim.
        first = record["certificates"][0]
        badges.append(f"certificate {shown_up(first['risk_upper'])} ({first['variant']})")
    return tuple(badges)


def _activity(record: Mapping[str, Any]) -> Section:
    names = [f"{e['name']} ({e['units']})" for e in record["activity"]]
    shares = {
        "average example": [e["mean"] / e["units"] for e in record["activity"]],
        "never active": [e["never"] / e["units"] for e in record["activity"]],
        "always active": [e["always"] / e["units"] for e in record["activity"]],
    }
    return Section(
        "How much of it is active?",
        paragraphs=(
            *((record["answer"],) if record["certificates"] else ()),
            "A unit is active on an example when its pre-activation is above zero. “never” and "
            "“always” count units over all examples"
            + (
                "; “asked” is how many units the radius below asks to be inactive."
                if record["radii"]
                else "; a convolution has a unit for every channel and position."
            ),
        ),
        figures=(Figure(bars(names, shares, title="Active units", x_label="share of the layer")),),
        tables=(activity_table(record),),
        folded="Layer by layer",
    )


def _radii(record: Mapping[str, Any], shown: Shown) -> Section:
    values = {
        entry["name"]: [math.log10(radius) for radius in layer]
        for entry, layer in zip(record["radii"], shown.radii, strict=True)
    }
    quantiles = [
        (
            entry["name"],
            f"{entry['sparsity']:,}",
            f"{entry['zero']:.1%}",
            *map(radius_text, entry["radius"]),
        )
        for entry in record["radii"]
    ]
    norms = [
        (e["name"], f"{e['row']:.3g}", f"{e['joint']:.3g}", e["way"], f"{e['reach']:.3g}")
        for e in record["radii"]
    ]
    shares = tuple(f"{share:.0%}" for share in record["shares"])
    title, axis = "Sparse local radii", "radius, power of ten"
    figures: tuple[Figure, ...] = ()
    if any(values.values()):
        figures = (Figure(histogram(values, title=title, x_label=axis, y_label="examples")),)
    return Section(
        "How firmly are units off?",
        paragraphs=(
            "The radius says how far, relative to its norms, all weights may move before one of "
            "the units asked to be inactive can wake up; at zero one is awake already. The columns "
            "in percent give the radius below which so many examples lie. Layers farther up have "
            "smaller radii, since the reach multiplies the norms of all layers before.",
        ),
        figures=figures,
        tables=(
            Table(("layer", "asked", "zero", *shares), tuple(quantiles)),
            Table(
                ("layer", "row norm", "joint norm", "which bound", "reach"),
                tuple(norms),
                caption="The norms behind the radii, for the units that may be active: the longest "
                "row, the smallest of the spectral, Frobenius and babel bounds on the layer, and "
                "how long the activations before it can be.",
                numeric=(False, True, True, False, True),
            ),
        ),
        folded="Radii and norms, layer by layer",
    )


def _ratio(record: Mapping[str, Any]) -> Section:
    entries = record["epsilons"]
    x = [entry["epsilon"] for entry in entries]
    known = entries[0]["mean_ratio"] is not None
    curves = [
        Series(
            "all weights", x, [e["mean_ratio"] for e in entries],
            [e["ratio"][0] for e in entries], [e["ratio"][-1] for e in entries],
        )
    ] if known else []  # fmt: skip
    layers = [
        Series(
            f"off in {activity['name']}",
            x,
            [e["layers"][k]["mean"] / activity["units"] for e in entries],
        )
        for k, activity in enumerate(record["activity"])
    ]
    ratio = (
        " The activity ratio is the share of weights between the other units; its band holds 90 % "
        "of the examples. Where it reaches 1, sparsity is of no use at that size of change."
    )
    picture = lines(
        [*curves, *layers],
        title=f"{'Effective activity ratio, and u' if known else 'U'}nits surely off",
        x_label="how far the weights may move (ε)",
        y_label="share",
        log_x=True,
        lowest=0.0,
        highest=1.02,
    )
    return Section(
        "What is left when the weights may move?",
        paragraphs=(
            "For each example the greedy sparsity s*(x, ε) counts the units that lie below zero "
            f"by at least {record['level']:g} times what a change of relative size ε can do."
            + (ratio if known else ""),
        ),
        figures=(Figure(picture),),
        tables=(epsilon_table(record),),
        folded="As a table",
    )


def _stability(record: Mapping[str, Any], shown: Shown) -> Section:
    some = [(e["epsilon"], layer) for e in record["epsilons"][::2] for layer in e["layers"]]
    labels = [f"{layer['name']}, ε = {epsilon:g}" for epsilon, layer in some]
    kinds = {"surely active": "active", "surely off": "inactive", "unstable": "unstable"}
    groups = {name: [layer[kind] for _, layer in some] for name, kind in kinds.items()}
    middle = next(e for e in record["epsilons"] if e["epsilon"] == shown.epsilon)
    first = record["epsilons"][0]
    columns = [
        (f"{layer['name']}, ε = {entry['epsilon']:g}", layer["kinds"])
        for entry in ([first] if first is middle else [first, middle])
        for layer in entry["layers"]
    ]
    rows = [(kind, *(f"{kinds[kind]:,}" for _, kinds in columns)) for kind in columns[0][1]]
    return Section(
        "Which units keep their sign?",
        paragraphs=(
            "A unit that surely stays active is linear, one that surely stays off is absent: only "
            "unstable ones bend when the weights move.",
        ),
        figures=(Figure(bars(labels, groups, title="Signs", x_label="share of units × examples")),),
        tables=(
            Table(
                ("units", *(name for name, _ in columns)),
                tuple(rows),
                caption="How many units, by what they do over all examples.",
            ),
        ),
        folded="As a table",
    )


def _surely_off(record: Mapping[str, Any], shown: Shown) -> Section:
    values = {
        entry["name"]: [float(count) for count in layer]
        for entry, layer in zip(record["activity"], shown.sparsity, strict=True)
    }
    counts = [count for layer in values.values() for count in layer]
    # Bins as wide as a whole number: otherwise some would hold more numbers than others.
    spread = max(counts) - min(counts)
    bins = max(1, int(spread // math.ceil((spread + 1) / 40)))
    picture = histogram(
        values,
        title=f"Greedy sparsity s*(x, {shown.epsilon:g})",
        x_label="units surely off",
        y_label="examples",
        bins=bins,
    )
    return Section(
        "How does that differ between examples?",
        paragraphs=(
            f"Units surely off when the weights may move by {shown.epsilon:g}, example by example. "
            "A bound for all examples at once must do with the fewest; the theorems of the "
            "certificate below use each example's own number.",
        ),
        figures=(Figure(picture),),
    )


def _bounds(record: Mapping[str, Any]) -> Section:
    risks = {
        **{f"Theorem {e['theorem']}, {e['variant']}": e["risk_upper"] for e in
           record["certificates"]},
        **{f"test: {e['what']}": e["risk"] for e in record["held_out"]},
        **{e["name"]: e["risk"] for e in record["norm_bounds"]},
    }  # fmt: skip
    picture = bars(
        list(risks),
        {"risk at most": list(risks.values())},
        title="Bounds on the risk",
        x_label="risk",
        level=("guessing", 1 - 1 / record["sizes"][-1]),
    )
    return Section(
        "What does a bound make of it?",
        paragraphs=tuple(caveats(record)),
        figures=(Figure(picture),),
        tables=(bound_table(record),),
    )


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


def _terms(record: Mapping[str, Any]) -> Section:
    entries = record["certificates"]
    rows = [
        (name, *("infinite" if e[key] is None else form(e[key]) for e in entries))
        for key, name, form in _TERMS
    ]
    for k in range(len(entries[0]["scales"])):
        away = f"squared distance of layer {k + 1} from the prior"
        rows += [
            (f"noise of layer {k + 1}", *(f"{e['scales'][k]:.3g}" for e in entries)),
            (away, *(f"{e['squared_distances'][k]:.4g}" for e in entries)),
        ]
    variants = tuple(f"Theorem {e['theorem']}, {e['variant']}" for e in entries)
    return Section(
        "Where does the certificate come from?",
        paragraphs=(
            f"{certificate_verdict(record)} Prior: {record['prior']}. The risk is at most "
            "kl⁻¹(noisy loss, (KL + ln(2√n/δ) + searches) / n) / (1 − p), for the network itself "
            "and not for a noisy copy of it.",
        ),
        tables=(Table(("term", *variants), tuple(rows)),),
        folded="Every term",
    )


_NOT_SAID = Section(
    "What does this not say?",
    paragraphs=(
        "That sparsity makes networks generalize: it says what a theorem can make of the "
        "sparsity that it finds. Activity was measured on these examples; on others it may "
        "differ, and no bound above assumes that it does not. Radii, ratios and signs are "
        "facts about this network on these examples, not promises about new ones.",
    ),
)
