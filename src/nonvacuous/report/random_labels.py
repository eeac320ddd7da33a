"""Real against random labels: what the same recipe promises where nothing can be learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nonvacuous.certificate import Certificate
from nonvacuous.report.tables import Bar
from nonvacuous.report.wording import percent_up, round_percent


def rows(certificate: Certificate, record: Mapping[str, Any] | None) -> tuple[Bar, ...]:
    """Two bars and guessing, from the run's ``random_labels.json``; nothing if it is another's."""
    random = _risk(record, "random_labels")
    if record is None or random is None or record.get("certificate") != certificate.digest:
        return ()
    true = certificate.risk_upper
    guess = 1.0 - 1.0 / certificate.data.classes
    return (
        Bar("Real labels", "this certificate", f"≤ {percent_up(true)}", 0.0, true, marked=True),
        Bar("Random labels", "the same recipe", f"≤ {percent_up(random)}", 0.0, random),
        Bar("Guessing", "all that random labels allow", round_percent(guess), 0.0, guess),
    )


def sentence(bars: tuple[Bar, ...]) -> str:
    """What the bars mean."""
    if not bars:
        return ""
    if bars[1].end >= bars[2].end:
        return (
            "Network, training and bound are the same; only the labels were drawn at random. The "
            "bound then promises nothing, as it must: what it promises on the real labels is owed "
            "to what they have in common."
        )
    return (
        "Labels drawn at random cannot be predicted, yet the same recipe promises less than the "
        "error of guessing. The bound has failed by bad luck, or there is a mistake: do not rely "
        "on this certificate before that is found out."
    )


def _risk(record: Mapping[str, Any] | None, name: str) -> float | None:
    part = record.get(name) if isinstance(record, Mapping) else None
    value = part.get("risk_upper") if isinstance(part, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= 1.0 else None
