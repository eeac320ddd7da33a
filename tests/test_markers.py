"""Which tests run when: by the names of their cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems


class Case:
    """A case of a test as pytest collects it."""

    def __init__(self, case: str | None, *marks: pytest.MarkDecorator) -> None:
        self.marks = {mark.name: mark.mark for mark in marks}
        if case is not None:
            self.callspec = SimpleNamespace(id=case)

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = getattr(pytest.mark, name).mark


def chosen(items: list[Case], *, nightly: bool = False) -> list[Case]:
    config: Any = SimpleNamespace(
        getoption=lambda _: nightly,
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    return items


def test_cases_are_marked_by_words_in_their_names() -> None:
    some, others = pytest.mark.slow_if("wide", "deep"), pytest.mark.slow_unless("wide")
    for marker, case, slow in (
        (some, "wide-0", True),
        (some, "a deep one", True),
        (some, "small", False),
        (others, "wide-0", False),
        (others, "small", True),
        (others, None, True),
    ):
        (item,) = chosen([Case(case, marker)])
        assert ("slow" in item.marks) is slow, (marker, case)


def test_what_is_for_the_night_is_left_out_by_day() -> None:
    def made() -> list[Case]:
        names = pytest.mark.nightly_if("large")
        return [Case("small", names), Case("large", names), Case(None, pytest.mark.nightly)]

    assert len(chosen(made())) == 1
    assert len(chosen(made(), nightly=True)) == 3
