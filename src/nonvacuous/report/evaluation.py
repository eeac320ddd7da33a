"""The page of a test, and of a watch over its promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nonvacuous.bounds.rounding import shown_down, shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.evaluation_records import EvaluationRecord, Slice
from nonvacuous.report.plots import Series, bars, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.report.wording import (
    capital,
    clean,
    confidence_percent,
    frequency,
    odds,
    percent,
    percent_down,
    percent_up,
    shortened,
    whole,
)

#: Rows of a table of groups, and of classes, on the page; the certificate has them all.
_MOST, _MOST_CLASSES = 8, 4
_WORDS = {
    "checked": "checked",
    "asserted": "declared",
    "not checkable": "cannot be checked",
    "violated": "NOT met",
}


def page_of(certificate: Certificate, *, where: str = ".") -> StudyPage:
    """What a test says, in the order of a person's questions."""
    record = _record(certificate)
    declared = {c: g for c, g in record.groups.items() if not c.endswith(" class")}
    sections = [
        Section("How sure?", _confidence(certificate), figures=(_picture(certificate, declared),))
    ]
    if declared:
        worst = _up(certificate, record.worst_group_upper or 1.0)
        sections.append(
            Section(
                "For whom?",
                (f"No group is worse than {worst}, at the same confidence.",),
                tables=tuple(_groups(certificate, c, group) for c, group in declared.items()),
            )
        )
    if record.groups.get("true class"):
        sections.append(Section("Which classes?", tables=(_classes(certificate),)))
    sections.append(_grounds(certificate))
    check = f"nonvacuous verify {clean(where)}"
    sections.append(
        Section(
            "Can I check it?",
            (
                f"Anybody who has the columns can count again: {check}",
                f"{clean(certificate.statement)} Theorem: {clean(certificate.bound.theorem)}.",
            ),
        )
    )
    return StudyPage(
        title=f"{shortened(clean(certificate.model.architecture), 48)} on "
        f"{shortened(clean(certificate.data.name), 48)}",
        kind="Test",
        question="How wrong can it be on examples it has not seen?",
        lead=lead(certificate),
        badges=_badges(certificate),
        sections=tuple(sections),
        footer=(f"Certificate {certificate.digest}", f"Seed {certificate.seed}"),
    )


def _record(certificate: Certificate) -> EvaluationRecord:
    """What a test says; its numbers are shares of examples where there is nothing ``beside``."""
    assert certificate.evaluation is not None
    return certificate.evaluation


def _up(certificate: Certificate, value: float) -> str:
    return shown_up(value) if _record(certificate).beside else percent_up(value)


def lead(certificate: Certificate) -> str:
    """The promise in one sentence that a stranger understands."""
    name = clean(certificate.model.architecture)
    if certificate.status == "refused":
        return f"No promise about {name} is made: this test was refused."
    before = "If its conditions hold, " if certificate.status == "conditional" else ""
    if certificate.loss.name == "zero-one":
        said = f"{name} is wrong on {frequency(certificate.risk_upper)} new examples"
    else:
        most = shown_up(certificate.risk_upper)
        said = f"{clean(certificate.loss.name)} of {name} is at most {most}"
        settings = _record(certificate).settings
        limits = settings.range
        if limits is not None and settings.metric != "score":
            own = limits[0] + certificate.risk_upper * (limits[1] - limits[0])
            said += f", that is {shown_up(own)} before scaling"
    sentence = f"{before}{said}."
    if certificate.is_vacuous:
        why = "it may be wrong always" if certificate.risk_upper >= 1.0 else certificate.unshown
        sentence = f"VACUOUS: {why}. {capital(sentence)}"
    return sentence if before or certificate.is_vacuous else capital(sentence)


def _badges(certificate: Certificate) -> tuple[str, ...]:
    record, measured = _record(certificate), certificate.empirical.mean
    badges = [
        capital(certificate.status),
        f"{confidence_percent(certificate.budget.failure)} confidence",
        f"{whole(certificate.data.bound.examples)} {record.unit}",
        f"In the test: {f'{measured:.4g}' if record.beside else percent(measured)}",
    ]
    if certificate.baseline is not None:
        shown = "Better" if certificate.shown_better else "Not shown to be better"
        badges.append(f"{shown} than always answering “{clean(certificate.baseline.name)}”")
    if record.coverage_lower is not None:
        badges.append(f"Answers at least {percent_down(record.coverage_lower)} of all")
    return tuple(badges)


def _confidence(certificate: Certificate) -> tuple[str, ...]:
    record = _record(certificate)
    samples, false = odds(certificate.budget.failure)
    low = (shown_down if record.beside else percent_down)(record.interval[0])
    high = _up(certificate, record.interval[1])
    paragraphs = [
        f"Of {samples} such tests, on average at most {false} would yield a false promise. Both "
        f"ends at once: between {low} and {high}. The promise is about new examples drawn like "
        "those of the test, and about nothing else."
    ]
    if record.beside:
        others = ", ".join(f"{clean(n)} {shown_up(v)}" for n, v in record.beside.items())
        paragraphs.append(
            f"Other theorems say of the same losses: {others}. Each holds alone; the promise is "
            "that of the one declared beforehand, for choosing the smallest is not free."
        )
    return tuple(paragraphs)


def _picture(certificate: Certificate, declared: Mapping[str, Mapping[str, Slice]]) -> Figure:
    record = _record(certificate)
    rows = [("everybody", certificate.empirical.mean, record.risk_lower, certificate.risk_upper)]
    rows += [
        (
            shortened(clean(f"{column} {value}"), 24),
            part.errors / part.examples,
            part.risk_lower,
            part.risk_upper,
        )
        for column, group in declared.items()
        for value, part in _worst_first(group)[:_MOST]
    ]
    names, means, lows, highs = zip(*rows, strict=True)
    svg = bars(
        names,
        {"measured": means},
        title="Measured, with the least and the most",
        x_label="mean loss" if record.beside else "share that is wrong",
        low={"measured": lows},
        high={"measured": highs},
    )
    said = "Each line alone holds at the confidence above; the worst groups are shown."
    return Figure(svg, said if declared else "")


def _worst_first(group: Mapping[str, Slice]) -> list[tuple[str, Slice]]:
    return sorted(group.items(), key=lambda item: -item[1].risk_upper)


def _groups(certificate: Certificate, column: str, group: Mapping[str, Slice]) -> Table:
    worst = _worst_first(group)
    enough = all(part.sufficient for part in group.values())
    rows = tuple(
        (
            clean(value),
            whole(part.examples),
            f"{part.errors:.4g}",
            _up(certificate, part.risk_upper),
            _up(certificate, part.risk_upper_together),
            *(() if enough else ("" if part.sufficient else "insufficient evidence",)),
        )
        for value, part in worst[:_MOST]
    )
    more = f" The {_MOST} worst of {len(worst)}." if len(worst) > _MOST else ""
    headings = (capital(clean(column)), "Tested", "Wrong", "At most", "All at once")
    return Table(
        headings if enough else (*headings, "Note"),
        rows,
        caption=f"“At most” holds for each line alone, “all at once” for all lines.{more}",
    )


def _classes(certificate: Certificate) -> Table:
    """Recall, precision and F1 of each class, at least; the worst first."""
    record = _record(certificate)
    actual, named = record.groups.get("true class", {}), record.groups.get("predicted class", {})

    def least(part: Slice | None) -> str:
        return "-" if part is None else percent_down(1.0 - part.risk_upper)

    def rank(value: str) -> float:
        if record.scores:
            return record.scores[value].f1_lower if value in record.scores else 0.0
        return 1.0 - actual[value].risk_upper if value in actual else 0.0

    worst = sorted({**actual, **named}, key=rank)
    rows = tuple(
        (
            clean(value),
            whole(actual[value].examples if value in actual else 0),
            least(actual.get(value)),
            least(named.get(value)),
            *((percent_down(rank(value)),) if record.scores else ()),
        )
        for value in worst[:_MOST_CLASSES]
    )
    more = f" The {len(rows)} worst of {len(worst)}." if len(worst) > len(rows) else ""
    return Table(
        ("Class", "Tested", "Recall", "Precision", *(("F1",) if record.scores else ())),
        rows,
        caption="At least, each number alone. Recall: how many of the class are recognized. "
        f"Precision: how many answers that name it are right.{more}",
    )


def _grounds(certificate: Certificate) -> Section:
    """What the promise rests on: in numbers, what is not met in full, the rest for who asks."""
    known = certificate.assumptions
    counts = {word: sum(a.status == status for a in known) for status, word in _WORDS.items()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    broken = tuple(
        f"Not met: {a.name}. {capital(a.detail)}" for a in known if a.status == "violated"
    )
    rows = tuple((capital(a.name), _WORDS[a.status], a.detail) for a in known)
    return Section(
        "Why believe it?",
        (f"It rests on {len(known)} conditions: {said}.", *broken),
        tables=(Table(("It rests on", "What is known", "Detail"), rows),),
        folded="All conditions",
    )


def watch_page(state: Mapping[str, Any]) -> StudyPage:
    """A monitor's state: the evidence against the promise over time."""
    watch = state["watches"][""]
    alarms = {n or "everybody": w["alarm_at"] for n, w in state["watches"].items() if w["alarm_at"]}
    history: Sequence[Sequence[float]] = watch["history"] or [[0, 0.0]]
    times = [max(1.0, float(t)) for t, _ in history]
    capital_over_time = [math.exp(min(700.0, c)) for _, c in history]
    goal = math.exp(watch["goal"])
    svg = lines(
        [
            Series("evidence against the promise", times, capital_over_time),
            Series("alarm", [times[0], times[-1]], [goal, goal]),
        ],
        title="Evidence against the promise",
        x_label="labels seen",
        y_label="evidence",
        log_y=True,
    )
    if alarms:
        who = ", ".join(f"{clean(name)} after {whole(at)} labels" for name, at in alarms.items())
        said = f"The promise no longer holds: alarm for {who}."
    else:
        said = f"No alarm after {whole(watch['time'])} labels."
    return StudyPage(
        title="Watch",
        kind="Monitor",
        question=f"Is the risk still at most {shown_up(watch['promise'])}?",
        lead=said,
        badges=(
            f"False alarm at most {state['false_alarm']:g}",
            f"{watch['errors']:g} errors in {whole(watch['time'])} labels",
            f"{state['late']} labels late, {state['missing']} missing",
        ),
        sections=(
            Section(
                "How strong is the evidence?",
                (
                    "While the promise holds, the evidence ever reaches the line with at most the "
                    "chance of a false alarm, however often one looks. Labels that are late or "
                    "missing because of the error break this.",
                ),
                figures=(Figure(svg),),
                tables=_watched(state),
            ),
        ),
    )


def _watched(state: Mapping[str, Any]) -> tuple[Table, ...]:
    """The groups that are watched, those with the strongest evidence first."""
    groups = [(name, watch) for name, watch in state["watches"].items() if name]
    if not groups:
        return ()
    groups.sort(key=lambda item: -max((c for _, c in item[1]["history"]), default=0.0))
    rows = tuple(
        (
            clean(name),
            shown_up(watch["promise"]),
            f"{watch['errors']:g} of {whole(watch['time'])}",
            f"alarm after {whole(watch['alarm_at'])}" if watch["alarm_at"] else "no alarm",
        )
        for name, watch in groups[:_MOST]
    )
    rest = "".join(
        f" {whole(count)} labels are of {clean(name)}, about which nothing was promised."
        for name, count in list(state["unwatched"].items())[:3]
    )
    caption = f"Everybody and all {len(groups)} groups share the chance of a false alarm.{rest}"
    return (Table(("Group", "Promise", "Errors", "Alarm"), rows, caption=caption),)


def plan_page(
    plan: Mapping[str, Any], sentence: str, sizes: Sequence[int], chances: Sequence[float]
) -> StudyPage:
    """A plan: the answer, how the chance grows with the examples, and the table."""
    svg = lines(
        [
            Series("chance to promise the target", list(sizes), list(chances)),
            Series("wanted", [sizes[0], sizes[-1]], [plan["chance"]] * 2),
        ],
        title="Chance to promise the target",
        x_label="examples",
        y_label="chance",
    )
    rows = tuple(
        (
            whole(row["examples"]),
            str(row["allowed_errors"]) if row["allowed_errors"] >= 0 else "none will do",
            shown_down(row["chance"], 3),
            shown_up(row["smallest"]),
            shown_up(row["expected"]),
        )
        for row in plan["rows"]
    )
    headings = ("Examples", "Errors allowed", "Chance", "Best promise", "Expected promise")
    return StudyPage(
        title="Plan",
        kind="Plan",
        question="How many examples does it take?",
        lead=f"{sentence}.",
        badges=(
            f"First reached at {whole(plan['first'])}",
            f"Two models are told apart from {plan['detectable_difference']:.4f}",
        ),
        sections=(
            Section(
                "How sure is success?",
                (
                    "The chance falls while the number of allowed errors stays and jumps when one "
                    "more is allowed; the number above is the one from which it is never lost.",
                ),
                figures=(Figure(svg),),
                tables=(Table(headings, rows),),
            ),
            *_division(plan["division"]),
        ),
    )


def _division(part: Mapping[str, Any] | None) -> tuple[Section, ...]:
    """How to divide the labeled examples, and what each method would promise."""
    if part is None:
        return ()
    rows = (
        (f"A plain test, {whole(part['held_out'])} held out", shown_up(part["test"])),
        ("Testing while training (progressive)", shown_up(part["progressive"])),
        ("A learned prior, at best", shown_up(part["learned_prior"])),
    )
    said = f"Of {whole(part['labeled'])} labeled examples: {part['advice']}"
    table = Table(("Method", "Expected promise"), rows)
    return (Section("Which method?", (said,), tables=(table,)),)
