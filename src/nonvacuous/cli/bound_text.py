"""The calculator's result as text."""

from __future__ import annotations

from functools import partial
from typing import Any

from nonvacuous.bounds.table import OWN_EVENT
from nonvacuous.cli.output import write_paragraphs
from nonvacuous.report import wording

percent_up, percent_down = (
    partial(function, digits=4) for function in (wording.percent_up, wording.percent_down)
)
_SUBJECTS = {
    "randomized": "the randomized network (weights drawn afresh from the posterior)",
    "drawn": "the one network drawn from the posterior",
    "held-out": "the network, from examples that trained nothing",
}


def write_text(record: dict[str, Any]) -> None:
    vacuous = " (vacuous: this says nothing)" if record["is_vacuous"] else ""
    write_paragraphs(
        f"Risk of {_SUBJECTS[record['predictor']]}:\nat most {percent_up(record['risk_upper'])}"
        f"{vacuous} with confidence {record['confidence']:g}, by {record['best']}.",
        _table(record),
        *_notes(record),
    )


def _table(record: dict[str, Any]) -> str:
    rows = [("", "bound", "at most", "theorem", "free parameter")]
    for row in record["bounds"]:
        best = row["name"] == record["best"]
        mark = "*" if best else "+" if row["relation"] == OWN_EVENT else ""
        upper = percent_up(row["risk_upper"])
        rows.append((mark, row["name"], upper, row["theorem"], row["free_parameter"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{mark:1}  {name:{widths[1]}}  {upper:>{widths[2]}}  {theorem:{widths[3]}}  {free}"
        for mark, name, upper, theorem, free in rows
    )


def _notes(record: dict[str, Any]) -> list[str]:
    if record["predictor"] == "held-out":
        low, high = record["interval"]
        return [
            f"At least {percent_down(record['risk_lower'])}, as a claim on its own at the same "
            f"confidence; both ends together: {percent_down(low)} to {percent_up(high)}.",
            "* exact, so the other rows are never smaller: they show what Chernoff's bound and the "
            "moment of PAC-Bayes-kl cost before any complexity is paid.",
            "Upper ends are rounded up, lower ends down.",
        ]
    # A certificate calls the theorem by the name of the function alone.
    name = "seeger" if record["predictor"] == "randomized" else "disintegrated"
    notes = [
        f"{name}_exact is the theorem that certificates quote as {name}: in Python "
        f"nv.bounds.{name}(..., exact_moment=True). Without that keyword it is the row {name}."
    ]
    if record["predictor"] == "randomized":
        reference = record["held_out_reference"]
        notes += [
            _choice_note(record),
            f"For scale: {reference['errors']} errors on {reference['examples']} held-out examples "
            f"would promise at most {percent_up(reference['risk_upper'])}.",
        ]
    inputs = record["inputs"]
    notes += [
        f"Sampling: {inputs['errors']} errors in {inputs['trials']} trials put the empirical risk "
        f"at most at {percent_up(inputs['empirical_risk'])}, for {entry['failure']:g} of the "
        "failure probability."
        for entry in record["budget"]["entries"]
        if entry["name"] == "sampling"
    ]
    return [*notes, "Percentages are rounded up."]


def _choice_note(record: dict[str, Any]) -> str:
    events = record["events"]
    if record["compared"]:
        return (
            f"* the smallest. Every row was given failure {record['failure_each']:g}, one share "
            f"for each of {events} events, so all rows hold together and picking the smallest is "
            "paid for, provided that this comparison was decided on before looking."
        )
    others = [row["name"] for row in record["bounds"] if row["relation"] == OWN_EVENT]
    total = 1.0 - events * record["budget"]["failure"]
    smaller = record["smaller_but_not_chosen"]
    remark = f" ({', '.join(smaller)} came out smaller here.)" if smaller else ""
    promise = f"with confidence {total:.6g} only" if total > 0 else "with no confidence at all"
    return (
        "* to be chosen before looking: the unmarked rows follow from the same event and are never "
        "smaller, so nothing is gained by comparing them.\n"
        f"+ {', '.join(others)}: true on another event, valid if chosen alone beforehand. The "
        f"smallest of all, picked afterwards, would be guaranteed {promise}; --compare-paid "
        f"gives each of the {events} events its share and reports the smallest.{remark}"
    )
