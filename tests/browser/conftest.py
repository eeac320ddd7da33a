"""One headless Chromium for all browser tests, and pages that report what they try to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from nonvacuous.comparison import compare
from nonvacuous.report import write_report
from tests.report import samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

Scheme = Literal["light", "dark"]
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


class Pages:
    """Pages that one test after another uses: to open one costs thrice what it costs to fill it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.idle: list[Page] = []
        self.visits: dict[Page, Visit] = {}

    def open(self, file: Path, width: int, height: int, scheme: Scheme) -> Visit:
        page = self.idle.pop() if self.idle else self._listening()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        self.visits[page] = seen = Visit(page, file)
        page.goto(file.as_uri())
        return seen

    def give_back(self) -> None:
        """As good as new: what the next test opens meets no trace of this one."""
        for page in self.visits:
            page.mouse.move(0, 0)
            page.emulate_media(media="null", color_scheme="null")
            page.goto("about:blank")
        self.idle += self.visits
        self.visits = {}

    def _listening(self) -> Page:
        page = self.browser.new_page()
        listen(page, lambda: self.visits[page])
        return page


def listen(page: Page, visit: Callable[[], Visit]) -> None:
    """Write down what the page says and asks for, in the visit that goes on by then."""

    def dismiss(dialog: Dialog) -> None:
        visit().console.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("console", lambda message: visit().console.append(message.text))
    page.on("pageerror", lambda error: visit().console.append(str(error)))
    page.on("dialog", dismiss)
    page.on("request", lambda request: visit().requests.append(request.url))


@pytest.fixture(scope="session")
def used_pages(browser: Browser) -> Pages:
    return Pages(browser)


@pytest.fixture
def visit_file(used_pages: Pages) -> Iterator[Callable[..., Visit]]:
    """Open a file and listen."""
    contexts = []

    def open_file(
        file: Path,
        *,
        width: int = 1280,
        height: int = 800,
        scheme: Scheme = "light",
        scripts: bool = True,
    ) -> Visit:
        if scripts:
            return used_pages.open(file, width, height, scheme)
        size: Any = {"width": width, "height": height}
        context = used_pages.browser.new_context(viewport=size, java_script_enabled=False)
        contexts.append(context)
        seen = Visit(context.new_page(), file)
        listen(seen.page, lambda: seen)
        seen.page.goto(file.as_uri())
        return seen

    yield open_file
    for context in contexts:
        context.close()
    used_pages.give_back()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a sample, written when the first test asks for it."""
    folder, written = tmp_path_factory.mktemp("reports"), dict[Any, Path]()

    def report(name: str) -> Path:
        sample = samples.SAMPLES[name]
        if sample not in written:
            certificate = sample()
            written[sample] = write_report(
                certificate,
                folder / f"{name}-{len(written)}.html",
                comparison=compare(certificate),
                history=samples.events(),
                run_folder="runs/one",
            )
        return written[sample]

    return report


@pytest.fixture
def visit(visit_file: Callable[..., Visit], reports: Callable[[str], Path]) -> Callable[..., Visit]:
    """Open the report of a sample from its file, and listen."""
    return lambda name, **options: visit_file(reports(name), **options)
