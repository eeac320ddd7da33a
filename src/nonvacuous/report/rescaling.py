"""The same network accounted for in other ways: who earns the improvement, in rows and in words."""

from __future__ import annotations

from dataclasses import dataclass

from nonvacuous.certificate import Certificate
from nonvacuous.kinds import CENTERS
from nonvacuous.records import RescalingColumn
from nonvacuous.report.tables import Bar
from nonvacuous.report.wording import capital, clean, nats, percent_up, round_percent

#: Bars this many times as long as the certificate's are cut: next to them all others would vanish.
LONGEST = 6.0

_SYMMETRIES = {
    "scale of the scores": "the scale of the scores",
    "shift of the scores": "a common shift of them",
    "order of the units": "the order of the units",
}


@dataclass(frozen=True, kw_only=True)
class Row(Bar):
    """One column of the certificate as a row under its prior, with its bar."""

    column: RescalingColumn


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


def rows(certificate: Certificate) -> tuple[Row, ...]:
    """Every column, under the heading of its prior."""
    columns = certificate.rescaling.columns if certificate.rescaling else ()
    if not columns:
        return ()
    certified = next(total_nats(column) for column in columns if column.certified)
    axis = min(max(map(total_nats, columns)), LONGEST * certified) or 1.0
    shown, center = [], ""
    for column in columns:
        amount = total_nats(column)
        cut = "; its bar is cut" if amount > axis else ""
        shown.append(
            Row(
                heading=f"Prior around {CENTERS[column.center]}" if column.center != center else "",
                name=_name(column),
                detail=f"bound ≤ {percent_up(column.kl_inverse)}{cut}",
                value=nats(amount),
                start=0.0,
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


def in_one_line(certificate: Certificate) -> str:
    """One line for a terminal; empty where there is nothing to tell."""
    gain = earned(certificate)
    if gain is None:
        return ""
    parts = [("rescaling", gain.rescaling)]
    if gain.prior_scale is not None:
        parts.insert(0, ("the prior's scale", gain.prior_scale))
    if gain.forgotten:
        parts.append(("further symmetries", gain.symmetries))
    saved = [f"{who} {nats(n)} nats{gain.share(n)}" for who, n in parts if n >= 0]
    spent = [f"{who} costs {nats(-amount)} nats" for who, amount in parts if amount < 0]
    sentences = [f"Saved by {', '.join(saved)}"] if saved else []
    if spent:
        sentences.append("; ".join(spent))
    return (
        f"Complexity {nats(gain.after)} nats; {nats(gain.before)} with {gain.fixed_scale} and the "
        f"weights as given. {'; '.join(sentences)}."
    )


def _name(column: RescalingColumn) -> str:
    """The name without its prior, which the heading tells."""
    around, _, rest = column.name.partition(", ")
    return capital(clean(rest if around.startswith("around ") and rest else column.name))
