"""The sparsity study in words and tables: what the terminal prints, and its page repeats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nonvacuous.bounds.rounding import shown_confidence, shown_up
from nonvacuous.report.study import Table
from nonvacuous.report.wording import clean

Record = Mapping[str, Any]


def activity_table(record: Record) -> Table:
    """One line per hidden layer: how much of it is active, and its radius where it has one."""
    rows = [
        {
            "layer": activity["name"],
            "units": f"{activity['units']:,}",
            "active": f"{activity['mean'] / activity['units']:.1%}",
            "5 to 95 %": f"{activity['active'][0]:.0f} to {activity['active'][-1]:.0f}",
            "never": f"{activity['never']:,}",
            "always": f"{activity['always']:,}",
        }
        for activity in record["activity"]
    ]
    for row, radii in zip(rows, record["radii"], strict=False):
        row |= {"asked": f"{radii['sparsity']:,}", "radius": radius_text(radii["radius"][2])}
    return Table.of(rows)


def radius_text(value: float | None) -> str:
    """A radius; without one, nothing can wake a unit up."""
    return "any" if value is None else f"{value:.2g}"


def epsilon_table(record: Record) -> Table:
    """One line per epsilon: what surely stays as it is when the weights move by it."""
    known = all(entry["mean_ratio"] is not None for entry in record["epsilons"])
    return Table.of(
        {"weights move by": f"{entry['epsilon']:g}"}
        | ({"activity ratio": f"{entry['mean_ratio']:.1%}"} if known else {})
        | {f"inactive in {layer['name']}": f"{layer['mean']:.1f}" for layer in entry["layers"]}
        | {f"unstable in {layer['name']}": f"{layer['unstable']:.1%}" for layer in entry["layers"]}
        for entry in record["epsilons"]
    )


GUESSING = "Guessing"


def constant_answer(record: Record) -> tuple[str, float]:
    """A constant answer and its error; a guess for older versions, which named no largest class."""
    largest = record.get("largest_class")
    if largest is None:
        return GUESSING, 1 - 1 / record["sizes"][-1]
    return f"Always “{largest['name']}”", largest["error"]


def bounds_of(record: Record) -> list[tuple[str, float, str]]:
    """Every bound: its name, the risk that it allows, and what it is made of.

    The certificate beside a plain test and the bounds from norms; a network of one's own may have
    none of them.
    """
    bounds = []
    for e in record["certificates"]:
        made = f"KL {e['kl_nats']:,.0f}, searches {e['grid_nats']:,.0f} nats; noisy loss "
        made += f"{e['loss_upper']:.1%}; p {e['escape']:.2g}; n {e['examples']:,}"
        bounds.append((f"Theorem {e['theorem']}, {e['variant']}", e["risk_upper"], made))
    for e in record["held_out"]:
        wrong = f"{e['errors']:,} of {e['examples']:,} wrong"
        bounds.append((f"plain test: {e['what']}", e["risk"], wrong))
    for e in record["norm_bounds"]:
        added = f"norms alone add {_large(e['gap'])} at margin {e['margin']:.3g}"
        bounds.append((e["name"], e["risk"], added))
    return bounds


def bound_table(record: Record) -> Table:
    constant = constant_answer(record)[1]
    rows = [(name, risk_text(risk, constant), made) for name, risk, made in bounds_of(record)]
    headings = ("bound on the risk", "at most", "made of")
    return Table(headings, tuple(rows), numeric=(False, True, False))


def _large(number: float) -> str:
    return f"{number:,.0f}" if 100 <= number < 1e9 else f"{number:.3g}"


def risk_text(risk: float, constant: float) -> str:
    """A bound that says nothing, or no more than a constant answer does, is said to be vacuous."""
    shown = "1" if risk >= 0.99995 else shown_up(risk)
    return f"{shown} (vacuous)" if risk >= min(constant, 0.99995) else shown


def caveats(record: Record) -> list[str]:
    """What the numbers rest on."""
    lines = []
    if bounds_of(record):
        answer, error = constant_answer(record)
        lines.append(
            f"{clean(answer)} errs on {error:.1%} of these examples: a bound that is no lower is "
            "vacuous."
        )
    if record["certificates"]:
        sure = shown_confidence(record["confidence"], 6)
        lines.append(f"Each bound holds on its own, with confidence {sure}.")
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


def certificate_verdict(record: Record) -> str:
    """Whether sparsity helped, and whether the certificate beats a plain test."""
    by_variant = {entry["variant"]: entry["risk_upper"] for entry in record["certificates"]}
    words, best = [], min(by_variant.values())
    if best >= constant_answer(record)[1]:
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
        beaten = min(plain) > best
        words.append(
            f"{'the certificate beats the' if beaten else 'no bound here beats a'} plain test"
        )
    return ("; ".join(words) or "One certificate was made") + "."
