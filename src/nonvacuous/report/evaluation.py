"""The page of a test, of a watch over its promise, and of a plan."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nonvacuous.bounds.rounding import shown_down, shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.evaluation_records import Slice
from nonvacuous.report import html
from nonvacuous.report.measured import measured_risk
from nonvacuous.report.plots import Series, bars, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.report.wording import (
    capital,
    clean,
    confidence_percent,
    odds,
    percent,
    percent_down,
    percent_up,
    plural,
    shortened,
    visible,
    whole,
)

if TYPE_CHECKING:
    from nonvacuous.evaluation.plan import Plan

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
    return _Test(certificate).page(where)


class _Test:
    """The certificate of a test in words; its numbers are shares, unless others stand beside."""

    def __init__(self, certificate: Certificate) -> None:
        assert certificate.evaluation is not None
        self.certificate, self.record = certificate, certificate.evaluation
        self.name = clean(certificate.model.architecture)
        of_losses = bool(self.record.beside)
        self.up, self.down = (shown_up, shown_down) if of_losses else (percent_up, percent_down)
        self.declared = self.record.declared

    def page(self, where: str) -> StudyPage:
        certificate, record = self.certificate, self.record
        sections = [Section.of("How sure?", *self._confidence(), self._picture())]
        if self.declared:
            worst = self.up(record.worst_group_upper or 1.0)
            said = (
                f"The worst of all groups, if it is in the test, is no worse than {worst}, at the "
                "same confidence."
            )
            tables = (self._groups(*declared) for declared in self.declared.items())
            sections.append(Section.of("For whom?", said, *tables))
        if record.groups.get("true class"):
            sections.append(Section.of("Which classes?", self._classes()))
        here, columns = shlex.quote(visible(where)), "" if certificate.artifacts else " --data FILE"
        check = Section.of(
            "Can I check it?",
            f"Anybody who has the columns can count again: nonvacuous verify {here}{columns}",
            f"{clean(certificate.statement)} Theorem: {clean(certificate.bound.theorem)}.",
        )
        return StudyPage(
            title=f"{shortened(self.name, 48)} on {shortened(clean(certificate.data.name), 48)}",
            kind="Test",
            question="How wrong can it be on examples it has not seen?",
            lead=html.words(
                "lead.txt.jinja", certificate=certificate, name=self.name, settings=record.settings
            ),
            badges=self._badges(),
            sections=(*sections, self._grounds(), check),
            footer=(f"Certificate {certificate.digest}", f"Seed {certificate.seed}"),
        )

    def _badges(self) -> tuple[str, ...]:
        certificate, record = self.certificate, self.record
        measured, counted = measured_risk(certificate), certificate.data.bound.examples
        draws = f"{whole(counted)} {record.unit}"
        if record.unit == "examples" and counted < record.rows:
            draws = f"{whole(counted)} of {plural(record.rows, 'example')} count"
        badges = [
            capital(certificate.status),
            f"{confidence_percent(certificate.budget.failure)} confidence",
            draws,
            f"In the test: {f'{measured:.4g}' if record.beside else percent(measured)}",
        ]
        if certificate.baseline is not None and (words := record.settings.beside_constants):
            shown = capital(words) if certificate.shown_better else f"Not shown: {words}"
            badges.append(f"{shown} always answering “{clean(certificate.baseline.name)}”")
        if record.coverage_lower is not None:
            badges.append(f"Answers at least {percent_down(record.coverage_lower)} of all")
        return tuple(badges)

    def _confidence(self) -> tuple[str, ...]:
        record = self.record
        samples, false = odds(self.certificate.budget.failure)
        low, high = self.down(record.interval[0]), self.up(record.interval[1])
        said = (
            f"Of {samples} such tests, on average at most {false} would yield a false promise. "
            f"Both ends at once: between {low} and {high}. The promise is about new examples drawn "
            "like those of the test, and about nothing else."
        )
        if not record.beside:
            return (said,)
        others = ", ".join(f"{clean(n)} {shown_up(v)}" for n, v in record.beside.items())
        return (
            said,
            f"Other theorems say of the same losses: {others}. Each holds alone; the promise is "
            "that of the one declared beforehand, for choosing the smallest is not free.",
        )

    def _picture(self) -> Figure:
        certificate, record = self.certificate, self.record
        rows = [
            ("everybody", measured_risk(certificate), record.risk_lower, certificate.risk_upper)
        ]
        for column, group in self.declared.items():
            for value, part in _worst_first(group)[:_MOST]:
                name = shortened(clean(f"{column} {value}"), 24)
                mean = measured_risk(certificate, part)
                rows.append((name, mean, part.risk_lower, part.risk_upper))
        names, means, lows, highs = zip(*rows, strict=True)
        settings = record.settings
        label = "share that is wrong" if settings.metric == "error" else settings.words
        svg = bars(
            names,
            {"measured": means},
            title="Measured, with the least and the most",
            x_label="mean loss" if record.beside else clean(label),
            low={"measured": lows},
            high={"measured": highs},
        )
        said = "Each line alone holds at the confidence above; the worst groups are shown."
        return Figure(svg, said if self.declared else "")

    def _groups(self, column: str, group: Mapping[str, Slice]) -> Table:
        worst = _worst_first(group)
        noted = not all(part.sufficient for part in group.values())
        # Not by their headings: a column of the user's may be called like one of ours.
        wrong = "Sum of losses" if self.record.beside else "Wrong"
        headings = (capital(clean(column)), "Tested", wrong, "At most", "All at once")
        rows = tuple(
            (
                clean(value),
                whole(part.examples),
                f"{part.errors:.4g}" if part.errors < 10_000 else f"{part.errors:,.0f}",
                self.up(part.risk_upper),
                self.up(part.risk_upper_together),
                *(["" if part.sufficient else "insufficient evidence"] if noted else []),
            )
            for value, part in worst[:_MOST]
        )
        said = "“At most” holds for each line alone, “all at once” for all lines."
        caption = said + _left_out(len(rows), len(worst))
        return Table((*headings, "Note") if noted else headings, rows, caption=caption)

    def _classes(self) -> Table:
        """Recall, precision and F1 of each class, at least; the worst first."""
        groups, scores = self.record.groups, self.record.scores
        actual, named = groups.get("true class", {}), groups.get("predicted class", {})

        def least(part: Slice | None) -> str:
            return "-" if part is None else percent_down(1.0 - part.risk_upper)

        def rank(value: str) -> float:
            if scores:
                return scores[value].f1_lower if value in scores else 0.0
            return 1.0 - actual[value].risk_upper if value in actual else 0.0

        worst = sorted({**actual, **named}, key=rank)
        rows = [
            {
                "Class": clean(value),
                "Tested": whole(actual[value].examples if value in actual else 0),
                "Recall": least(actual.get(value)),
                "Precision": least(named.get(value)),
            }
            | ({"F1": percent_down(rank(value))} if scores else {})
            for value in worst[:_MOST_CLASSES]
        ]
        said = "At least, each number alone. Recall: how many of the class are recognized. "
        said += "Precision: how many answers that name it are right."
        return Table.of(rows, caption=said + _left_out(len(rows), len(worst)))

    def _grounds(self) -> Section:
        """What the promise rests on: in numbers, what is not met, the rest for who asks."""
        known = self.certificate.assumptions
        counts = {word: sum(a.status == status for a in known) for status, word in _WORDS.items()}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        broken = (a for a in known if a.status == "violated")
        rows = tuple((capital(a.name), _WORDS[a.status], a.detail) for a in known)
        return Section.of(
            "Why believe it?",
            f"It rests on {len(known)} conditions: {said}.",
            *(f"Not met: {a.name}. {capital(a.detail)}" for a in broken),
            Table(("It rests on", "What is known", "Detail"), rows),
            folded="All conditions",
        )


def _worst_first(group: Mapping[str, Slice]) -> list[tuple[str, Slice]]:
    return sorted(group.items(), key=lambda item: -item[1].risk_upper)


def _left_out(shown: int, all_of_them: int) -> str:
    return f" The {shown} worst of {all_of_them}." if all_of_them > shown else ""


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
        said = f"Alarm for {who}: evidence that the promise no longer holds."
    else:
        said = f"No alarm after {whole(watch['time'])} labels."
    return StudyPage(
        title=f"{whole(watch['time'])} labels",
        kind="Monitor",
        question=f"Is the risk still at most {shown_up(watch['promise'])}?",
        lead=said,
        badges=(
            f"False alarm at most {state['false_alarm']:g}",
            f"{watch['errors']:g} errors in {whole(watch['time'])} labels",
            f"{state['late']} labels late, {state['missing']} missing",
        ),
        sections=(
            Section.of(
                "How strong is the evidence?",
                "While the promise holds, the evidence ever reaches the line with at most the "
                "chance of a false alarm, however often one looks. Labels that are late or "
                "missing because of the error break this.",
                Figure(svg),
                *_watched(state),
            ),
        ),
    )


def _watched(state: Mapping[str, Any]) -> tuple[Table, ...]:
    """The groups that are watched, those with the strongest evidence first."""
    groups = [(name, watch) for name, watch in state["watches"].items() if name]
    if not groups:
        return ()
    groups.sort(key=lambda item: -max((c for _, c in item[1]["history"]), default=0.0))
    rows = [
        {
            "Group": clean(name),
            "Promise": shown_up(watch["promise"]),
            "Errors": f"{watch['errors']:g} of {whole(watch['time'])}",
            "Alarm": f"alarm after {whole(watch['alarm_at'])}" if watch["alarm_at"] else "no alarm",
        }
        for name, watch in groups[:_MOST]
    ]
    rest = "".join(
        f" {whole(count)} labels are of {clean(name)}, about which nothing was promised."
        for name, count in list(state["unwatched"].items())[:3]
    )
    caption = f"Everybody and all {len(groups)} groups share the chance of a false alarm.{rest}"
    return (Table.of(rows, caption=caption),)


def plan_page(
    plan: Plan, rows: Sequence[Mapping[str, str]], sizes: Sequence[int], chances: Sequence[float]
) -> StudyPage:
    """A plan: the answer, how the chance grows with the examples, and the rows of its table."""
    svg = lines(
        [
            Series("chance to promise the target", list(sizes), list(chances)),
            Series("wanted", [sizes[0], sizes[-1]], [plan.chance] * 2),
        ],
        title="Chance to promise the target",
        x_label="examples",
        y_label="chance",
    )
    division = []
    if (part := plan.division) is not None:
        methods = (
            (f"A plain test, {whole(part.held_out)} held out", shown_up(part.test)),
            ("Testing while training (progressive)", shown_up(part.progressive)),
            ("A learned prior, at best", shown_up(part.learned_prior)),
        )
        said = f"Of {whole(part.labeled)} labeled examples: {part.advice}"
        table = Table(("Method", "Expected promise"), methods)
        division.append(Section.of("Which method?", said, table))
    return StudyPage(
        title=f"risk of at most {plan.target:g}",
        kind="Plan",
        question="How many examples does it take?",
        lead=f"{plan}.",
        badges=(f"First reached at {whole(plan.first)}", capital(plan.told_apart)),
        sections=(
            Section.of(
                "How sure is success?",
                "The chance falls while the number of allowed errors stays and jumps when one "
                "more is allowed; the number above is the one from which it is never lost.",
                Figure(svg),
                Table.of(rows),
            ),
            *division,
        ),
    )
