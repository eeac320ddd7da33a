"""What ``nonvacuous sparsity`` prints, and the rows that its page shows too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.report.study import Table

Row = tuple[str, ...]


def activity_table(record: Mapping[str, Any]) -> Table:
    """One line per hidden layer: how much of it is active, and its radius where it has one."""
    headings: Row = ("layer", "units", "active", "5 to 95 %", "never", "always")
    rows: list[Row] = [
        (
            activity["name"],
            f"{activity['units']:,}",
            f"{activity['mean'] / activity['units']:.1%}",
            f"{activity['active'][0]:.0f} to {activity['active'][-1]:.0f}",
            f"{activity['never']:,}",
            f"{activity['always']:,}",
        )
        for activity in record["activity"]
    ]
    if record["radii"]:
        headings = (*headings, "asked", "radius")
        rows = [
            (*row, f"{radii['sparsity']:,}", radius_text(radii["radius"][2]))
            for row, radii in zip(rows, record["radii"], strict=True)
        ]
    return Table(headings, tuple(rows))


def radius_text(value: float | None) -> str:
    """A radius; without one, nothing can wake a unit up."""
    return "any" if value is None else f"{value:.2g}"


def epsilon_table(record: Mapping[str, Any]) -> Table:
    """One line per epsilon: what surely stays as it is when the weights move by it."""
    names = [entry["name"] for entry in record["activity"]]
    known = all(entry["mean_ratio"] is not None for entry in record["epsilons"])
    headings = ("weights move by", *(("activity ratio",) if known else ()),
                *(f"inactive in {name}" for name in names),
                *(f"unstable in {name}" for name in names))  # fmt: skip
    rows = tuple(
        (
            f"{entry['epsilon']:g}",
            *((f"{entry['mean_ratio']:.1%}",) if known else ()),
            *(f"{layer['mean']:.1f}" for layer in entry["layers"]),
            *(f"{layer['unstable']:.1%}" for layer in entry["layers"]),
        )
        for entry in record["epsilons"]
    )
    return Table(headings, rows)


def bound_table(record: Mapping[str, Any]) -> Table:
    """The certificate beside a plain test and the bounds from norms."""
    rows: list[Row] = [
        (
            f"Theorem {entry['theorem']}, {entry['variant']}",
            risk_text(entry["risk_upper"]),
            f"KL {entry['kl_nats']:,.0f}, searches {entry['grid_nats']:,.0f} nats; noisy loss "
            f"{entry['loss_upper']:.1%}; p {entry['escape']:.2g}; n {entry['examples']:,}",
        )
        for entry in record["certificates"]
    ]
    rows += [
        (
            f"plain test: {entry['what']}",
            risk_text(entry["risk"]),
            f"{entry['errors']:,} of {entry['examples']:,} wrong",
        )
        for entry in record["held_out"]
    ]
    rows += [
        (
            entry["name"],
            risk_text(entry["risk"]),
            f"norms alone add {_large(entry['gap'])} at margin {entry['margin']:.3g}",
        )
        for entry in record["norm_bounds"]
    ]
    return Table(
        ("bound on the risk", "at most", "made of"), tuple(rows), numeric=(False, True, False)
    )


def _large(number: float) -> str:
    return f"{number:,.0f}" if 100 <= number < 1e9 else f"{number:.3g}"


def risk_text(risk: float) -> str:
    """A bound that says nothing is said to say nothing."""
    return "1 (vacuous)" if risk >= 0.99995 else shown_up(risk)


def caveats(record: Mapping[str, Any]) -> list[str]:
    """What the numbers rest on."""
    lines = []
    if record["certificates"]:
        lines.append(f"Each bound holds on its own, with confidence {record['confidence']:g}.")
        lines.append(certificate_verdict(record))
    else:
        lines.append("No certificate: it needs a prior chosen without these data (--prior zero).")
    if record["seen_norm"] and record["norm_bounds"]:
        lines.append(
            f"Neyshabur and Golowich take for granted that no input is longer than "
            f"{record['input_norm']:.4g}, the longest seen."
        )
    lines += record["notes"]
    return lines


def certificate_verdict(record: Mapping[str, Any]) -> str:
    """Whether sparsity helped, and whether the certificate beats a plain test."""
    by_variant = {entry["variant"]: entry["risk_upper"] for entry in record["certificates"]}
    words = []
    best = min(by_variant.values())
    if risk_text(best) == risk_text(1.0):
        words.append("The certificate is vacuous")
    elif {"sparse", "dense"} <= by_variant.keys():
        sparse, dense = by_variant["sparse"], by_variant["dense"]
        if abs(sparse - dense) <= 0.01 * dense:
            words.append("Sparsity makes no difference to the certificate here")
        elif sparse < dense:
            words.append(f"Sparsity lowers the certificate by {1 - sparse / dense:.0%}")
        else:
            words.append(f"Using sparsity costs {sparse / dense - 1:.0%}: the dense form is better")
    plain = [entry["risk"] for entry in record["held_out"]]
    if plain:
        words.append(
            "no bound here beats a plain test"
            if min(plain) <= best
            else "the certificate beats the plain test"
        )
    return ("; ".join(words) or "One certificate was made") + "."


def write_text(record: Mapping[str, Any], console: Console) -> None:
    console.print(record["answer"], soft_wrap=True)
    for table in (activity_table(record), epsilon_table(record), bound_table(record)):
        words = table.numeric is not None
        numeric = tuple(number > 0 and not words for number in range(len(table.headings)))
        console.print()
        replace(table, numeric=numeric).print(console)
    console.print()
    for line in caveats(record):
        console.print(line, soft_wrap=True)
    asked = "asked: units to be inactive for the radius (95 % of the examples have so many); "
    console.print(
        f"active: above zero on an average example; {asked if record['radii'] else ''}unstable: "
        f"sign in doubt at level {record['level']:g}. Seed {record['seed']}.",
        soft_wrap=True,
    )
