"""The rows of the report's tables: every number in words, with where its bar begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nonvacuous.bounds.table import title_and_detail
from nonvacuous.certificate import Certificate
from nonvacuous.comparison import BoundRow, Step
from nonvacuous.kinds import CENTERS
from nonvacuous.records import RescalingColumn
from nonvacuous.report import html, measured
from nonvacuous.report.wording import (
    capital,
    clean,
    declared_percent,
    finite,
    nats,
    percent,
    percent_up,
    plural,
    round_percent,
    whole,
)

#: Tensors listed one by one; the rest are summed up in one line.
TENSORS_SHOWN = 8


@dataclass(frozen=True)
class Bar:
    """One row with a bar to ``end``, from ``start`` on, as fractions of the table's axis.

    ``heading`` is set where a new group of rows begins, ``column`` where the row stands for a
    column of the rescaling.
    """

    name: str
    detail: str
    value: str
    end: float
    start: float = 0.0
    marked: bool = False
    heading: str = ""
    column: RescalingColumn | None = None


_STEPS = {
    "counted": "Errors counted",
    "sampling": "+ sampling",
    "examples": "+ finite sample",
    "complexity": "+ complexity",
    "settings": "+ the setting",
    "escape": "+ what noise misses",
    "searches": "+ searches",
    "rest": "+ the bound",
}


def shown_bound(value: float, certificate: Certificate, sign: str = "") -> str:
    """A bound in percent, rounded up; a threshold as it was declared: the risk is below it."""
    if value == certificate.gate:
        return f"< {declared_percent(value)}"
    return f"{sign}{percent_up(value)}"


def step_rows(certificate: Certificate, steps: tuple[Step, ...]) -> tuple[Bar, ...]:
    """The bound with its terms switched on in turn: each bar starts where the last one ended.

    The page knows what there is to say of each term, which is named in place of the words.
    """
    if not steps:
        return ()
    axis = max(step.risk_upper for step in steps) or 1.0
    rows, before = [], 0.0
    for step in steps:
        start, end = sorted((before / axis, step.risk_upper / axis))
        value = percent(step.risk_upper)
        if step.key != "counted":
            value = shown_bound(step.risk_upper, certificate)
        rows.append(Bar(_STEPS[step.key], step.key, value, end, start, marked=step is steps[-1]))
        before = step.risk_upper
    return tuple(rows)


def bound_rows(certificate: Certificate, rows: tuple[BoundRow, ...]) -> tuple[Bar, ...]:
    """All theorems on one axis from 0 to 100%, the promised one marked, then the twin."""
    if not rows:
        return ()
    shown = []
    for row in rows:
        name, detail = title_and_detail(row.key) or (clean(row.key), "")
        if row.promised:
            detail = f"{detail}; this is the certificate" if detail else "this is the certificate"
        value = shown_bound(row.risk_upper, certificate)
        shown.append(Bar(name, detail, value, row.risk_upper, marked=row.promised))
    twin = certificate.held_out_twin
    if twin is not None:
        counts = f"{whole(twin.errors)} of {whole(twin.examples)} wrong"
        detail = f"{clean(twin.description)} ({counts})"
        value = percent_up(twin.risk_upper)
        shown.append(Bar(measured.twin_name(certificate), detail, value, twin.risk_upper))
    axis = max(bar.end for bar in shown) or 1.0
    return tuple(replace(bar, end=bar.end / axis) for bar in shown)


def layer_rows(certificate: Certificate) -> tuple[Bar, ...]:
    """KL by tensor, worst first; what is left of a long list in one row."""
    if certificate.complexity is None:
        return ()
    total = sum(term.nats for term in certificate.complexity.terms) or 1.0
    terms = sorted(certificate.complexity.terms, key=lambda term: (-term.nats, term.tensor))
    # A single tensor is not worth a row that says "1 further tensor".
    cut = TENSORS_SHOWN if len(terms) > TENSORS_SHOWN + 1 else len(terms)
    groups = [(clean(term.tensor), term.size, term.nats) for term in terms[:cut]]
    if rest := terms[cut:]:
        name = f"{len(rest)} further tensors"
        groups.append((name, sum(t.size for t in rest), sum(t.nats for t in rest)))
    axis = max(amount for _, _, amount in groups) or 1.0
    return tuple(
        Bar(
            name,
            f"{plural(size, 'weight')}, {percent(amount / total)} of the total",
            nats(amount),
            amount / axis,
        )
        for name, size, amount in groups
    )


def label_rows(certificate: Certificate, record: Mapping[str, Any] | None) -> tuple[Bar, ...]:
    """Real against random labels: what the same recipe promises where nothing can be learned.

    Two bars and guessing, from the run's ``random_labels.json``; nothing if it is another's.
    """
    known = record if isinstance(record, Mapping) else {}
    part = known.get("random_labels")
    random = finite(part.get("risk_upper")) if isinstance(part, Mapping) else None
    own = known.get("certificate") == certificate.digest
    if not own or random is None or not 0.0 <= random <= 1.0:
        return ()
    true, shown = certificate.risk_upper, shown_bound(certificate.risk_upper, certificate, "≤ ")
    guess = 1.0 - 1.0 / certificate.data.classes
    return (
        Bar("Real labels", "this certificate", shown, true, marked=True),
        Bar("Random labels", "the same recipe", f"≤ {percent_up(random)}", random),
        Bar("Guessing", "all that random labels allow", round_percent(guess), guess),
    )


#: Bars this many times as long as the certificate's are cut: next to them all others would vanish.
_LONGEST = 6.0

_SYMMETRIES = {
    "scale of the scores": "the scale of the scores",
    "shift of the scores": "a common shift of them",
    "order of the units": "the order of the units",
}


@dataclass(frozen=True)
class Earned:
    """The complexity without any choice and as certified, in nats, and who earns the difference.

    Counted in this order: the prior's scale, then rescaling, then the further symmetries.
    ``rescaling_alone`` is what rescaling earns where the prior's scale stays fixed.
    """

    fixed_scale: str
    before: float
    after: float
    prior_scale: float | None
    rescaling: float
    symmetries: float
    rescaling_alone: float
    forgotten: tuple[str, ...]

    def share(self, amount: float) -> str:
        """A part of the whole saving in percent; nothing where nothing is saved."""
        whole = self.before - self.after
        return f" ({round_percent(amount / whole)} of the saving)" if whole > 0 else ""


def rescaling_rows(certificate: Certificate) -> tuple[Bar, ...]:
    """The same network accounted for in every way, under the heading of its prior."""
    columns = certificate.rescaling.columns if certificate.rescaling else ()
    if not columns:
        return ()
    certified = next(total_nats(column) for column in columns if column.certified)
    axis = min(max(map(total_nats, columns)), _LONGEST * certified) or 1.0
    shown, center = [], ""
    for column in columns:
        amount = total_nats(column)
        cut = "; its bar is cut" if amount > axis else ""
        shown.append(
            Bar(
                heading=f"Prior around {CENTERS[column.center]}" if column.center != center else "",
                name=_name(column),
                detail=f"bound ≤ {percent_up(column.kl_inverse)}{cut}",
                value=nats(amount),
                end=min(1.0, amount / axis),
                marked=column.certified,
                column=column,
            )
        )
        center = column.center
    return tuple(shown)


def total_nats(column: RescalingColumn) -> float:
    """KL and charge."""
    return column.kl_nats + column.charge_nats


def earned(certificate: Certificate) -> Earned | None:
    """Who earns what, within the certified prior; None where the certificate does not say."""
    columns = certificate.rescaling.columns if certificate.rescaling else ()
    certified = next((column for column in columns if column.certified), None)
    if certified is None:
        return None
    own = {column.way: column for column in columns if column.center == certified.center}
    fixed, moved = own.get("fixed scale"), own.get("fixed scale, rescaled")
    if fixed is None or moved is None:
        return None
    before, alone = total_nats(fixed), total_nats(moved)
    chosen, both = own.get("best scale"), own.get("best scale, rescaled")
    prior_scale, rescaling, last = None, before - alone, alone
    if chosen is not None and both is not None:
        prior_scale = before - total_nats(chosen)
        rescaling, last = total_nats(chosen) - total_nats(both), total_nats(both)
        each = own.get("best scale per tensor, rescaled")
        if each is not None and each.charge_nats == certified.charge_nats != both.charge_nats:
            # One scale for each tensor: what that adds is the prior scales' doing as well.
            prior_scale, last = prior_scale + last - total_nats(each), total_nats(each)
    return Earned(
        fixed_scale=_name(fixed)[:1].lower() + _name(fixed)[1:],
        before=before,
        after=total_nats(certified),
        prior_scale=prior_scale,
        rescaling=rescaling,
        symmetries=last - total_nats(certified),
        rescaling_alone=before - alone,
        forgotten=tuple(words for way, words in _SYMMETRIES.items() if way in own),
    )


def saved_in_one_line(certificate: Certificate) -> str:
    """One line for a terminal; empty where there is nothing to tell."""
    gain = earned(certificate)
    return "" if gain is None else html.words("saved.txt.jinja", gain=gain)


def _name(column: RescalingColumn) -> str:
    """The name without its prior, which the heading tells."""
    around, _, rest = column.name.partition(", ")
    return capital(clean(rest if around.startswith("around ") and rest else column.name))
