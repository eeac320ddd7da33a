"""The kinds of promises: one method for each, and nobody else asks for a mode by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nonvacuous
from nonvacuous.kinds import ALL_MODES, KINDS
from nonvacuous.methods import METHODS

SOURCE = Path(nonvacuous.__file__).parent


def test_every_kind_has_one_method() -> None:
    assert tuple(METHODS) == ALL_MODES
    for mode, method in METHODS.items():
        predictor = method.model_fields.get("predictor")
        if predictor is None:  # the promise is about one thing alone
            assert len(KINDS[mode].predictors) == 1
        else:
            assert predictor.default in KINDS[mode].predictors


def comparisons(path: Path) -> Iterator[int]:
    """Lines that compare something with the name of a mode."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            inner = [part for side in sides for part in ast.walk(side)]
            about_mode = any(
                "mode" in (getattr(p, "id", ""), getattr(p, "attr", "")) for p in inner
            )
            named = any(isinstance(p, ast.Constant) and p.value in KINDS for p in inner)
            if about_mode and named:
                yield node.lineno


def test_nobody_compares_modes() -> None:
    places = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if "methods" not in path.parts
        for line in comparisons(path)
    }
    assert not places
