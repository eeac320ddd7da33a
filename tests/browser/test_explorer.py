"""The explorer of bounds: the same numbers as the library, live, and its terms add up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nonvacuous import bounds

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
STATIC = Path(__file__).parents[2] / "docs" / "_static"


def library(*, risk: float, kl: float, examples: int, failure: float, errors: int) -> dict:
    call = dict(empirical_risk=risk, kl_nats=kl, examples=examples, failure=failure)
    best = bounds.best_trade_off(**call)
    return {
        "seeger_exact": bounds.seeger(**call, exact_moment=True),
        "seeger": bounds.seeger(**call),
        "catoni_union": bounds.catoni_union(**call),
        "catoni": bounds.catoni(**call, temperature=1.0),
        "quadratic": bounds.quadratic(**call),
        "thiemann": bounds.thiemann(**call, trade_off=best),
        "thiemann_union": bounds.thiemann_union(**call),
        "mcallester": bounds.mcallester(**call),
        "holdout": bounds.holdout(errors=errors, examples=examples, failure=failure),
        "holdout_lower": bounds.holdout_lower(errors=errors, examples=examples, failure=failure),
    }


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The fragment as a page of its own, with the script that it names beside it."""
    folder = tmp_path_factory.mktemp("explorer")
    (folder / "_static").symlink_to(STATIC)
    text = (STATIC.parent / "explorer.html").read_text("utf-8")
    (folder / "explorer.html").write_text(f"<!doctype html><meta charset=utf-8>{text}", "utf-8")
    context = browser.new_context()
    opened = context.new_page()
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto((folder / "explorer.html").as_uri())
    yield opened
    context.close()
    assert said == []


def test_every_bound_is_the_library_s(page: Page) -> None:
    random = np.random.default_rng(0)
    cases = [
        dict(risk=0.0, kl=0.0, examples=1, failure=0.5, errors=0),
        dict(risk=1.0, kl=3.0, examples=7, failure=0.05, errors=7),
        dict(risk=0.5, kl=1e6, examples=100, failure=1e-6, errors=99),
        dict(risk=1e-7, kl=0.0, examples=10**6, failure=1e-9, errors=1),
    ]
    for _ in range(60):
        examples = int(10 ** random.uniform(0.5, 6))
        cases.append(
            dict(
                risk=float(random.beta(0.5, 3)),
                kl=float(random.choice([0.0, examples * 10 ** random.uniform(-5, 1)])),
                examples=examples,
                failure=float(10 ** random.uniform(-8, -0.3)),
                errors=int(examples * random.beta(0.4, 2)),
            )
        )
    computed = page.evaluate("cases => cases.map((s) => explorer.compute(s))", cases)
    for case, values in zip(cases, computed, strict=True):
        for name, expected in library(**case).items():
            assert values[name] == pytest.approx(expected, abs=1e-9), (name, case)


def test_typing_and_sliding_move_every_row(page: Page) -> None:
    for name, value in dict(risk=0.1, kl=20, examples=500, confidence=0.9, errors=30).items():
        page.fill(f"#{name}", str(value))
    expected = library(risk=0.1, kl=20.0, examples=500, failure=1 - 0.9, errors=30)
    for name in expected.keys() - {"holdout_lower"}:
        row = page.locator(f"#row-{name}")
        assert float(row.get_attribute("data-value")) == pytest.approx(expected[name], abs=1e-9)
        promised = float(row.locator(".value").inner_text().rstrip(" %")) / 100
        assert expected[name] - 1e-9 <= promised <= expected[name] + 1.01e-4
        widths = row.locator(".bar span").evaluate_all(
            "spans => spans.map((span) => parseFloat(span.style.width))"
        )
        assert sum(widths) == pytest.approx(100 * expected[name], abs=1e-3)
        assert min(widths) >= 0
    page.focus("#kl-slider")
    page.keyboard.press("Home")
    assert page.input_value("#kl") == "0"
    assert float(page.locator("#row-seeger").get_attribute("data-value")) < expected["seeger"]
    assert "kl=0" in page.url
