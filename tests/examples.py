"""How many examples a property is tried on: few by day, many at night.

They are drawn from a fixed seed, so that a red run can be repeated. Trying the same hundred every
time shows nothing new after the first; `make nightly` tries many more.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("day", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("night", derandomize=True, deadline=None, max_examples=400)


def choose_examples(*, night: bool) -> None:
    settings.load_profile("night" if night else "day")


def some(at_night: int) -> int:
    """For properties with a number of their own, since they are slow or need many."""
    return at_night if settings.get_current_profile_name() == "night" else max(8, at_night // 5)
