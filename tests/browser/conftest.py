"""One headless Chromium for all browser tests, and pages that report what they try to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nonvacuous.comparison import compare
from nonvacuous.report import write_report
from tests.report import samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Visit:
    """A loaded page with everything it said and asked for."""

    page: Page
    file: Path
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Not at the top: the tests without a browser share this package.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    """Write the report of a sample, open it from its file, and listen."""
    contexts = []

    def open_report(name: str, *, width: int = 1280, **options: Any) -> Visit:
        certificate = samples.SAMPLES[name]()
        file = write_report(
            certificate,
            tmp_path / f"{name}.html",
            comparison=compare(certificate),
            history=samples.events(),
            run_folder="runs/one",
        )
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        seen = Visit(context.new_page(), file)
        seen.page.on("console", lambda message: seen.console.append(message.text))
        seen.page.on("pageerror", lambda error: seen.console.append(str(error)))
        seen.page.on("dialog", lambda dialog: seen.console.append(f"dialog {dialog.message}"))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(file.as_uri())
        return seen

    yield open_report
    for context in contexts:
        context.close()
