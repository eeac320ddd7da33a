"""What every test shares: reproducible property tests, and honest reasons for skipping."""

from __future__ import annotations

import gc
import importlib
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.examples import choose_examples

_CLOCK = pytest.StashKey[float]()
CHROMIUM = Path("/usr/bin/chromium")
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
DATA_FILES = (
    *(f"{name}/{file}" for name in ("mnist", "fashion-mnist") for file in IDX_FILES),
    "cifar10/train-00000-of-00002.parquet",
    "cifar10/train-00001-of-00002.parquet",
    "cifar10/test-00000-of-00001.parquet",
)


def _missing(reason: str) -> NoReturn:
    """Skip on a contributor's machine; fail where a skip would mean that nobody ever ran it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} With CI=true this is a failure, not a skip.", pytrace=False)
    pytest.skip(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the long forms of tests too")
    parser.addoption(
        "--cpu-durations",
        type=int,
        metavar="N",
        help="show the N tests that took most processor time (0: all), and the time of each folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    choose_examples(night=config.getoption("--nightly"))


def _processor_seconds() -> float:
    """Of this process and of those it started and saw end; other programs do not disturb it."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    now = _processor_seconds()
    report.processor_seconds = now - item.stash.get(_CLOCK, now)
    item.stash[_CLOCK] = now
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    wanted = config.getoption("--cpu-durations")
    if wanted is None:
        return
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            tests[getattr(report, "nodeid", "")] += getattr(report, "processor_seconds", 0.0)
    folders: Counter[str] = Counter()
    for name, seconds in tests.items():
        folders["/".join(name.split("::")[0].split("/")[:2])] += seconds
    terminalreporter.section(f"processor seconds: {sum(tests.values()):.1f}")
    for name, seconds in (*tests.most_common(wanted or None), ("", 0.0), *folders.most_common()):
        terminalreporter.write_line(f"{seconds:8.2f} {name}" if name else "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for kind in ("slow", "nightly"):
            if _is_among(item, f"{kind}_if") or _is_among(item, f"{kind}_unless", others=True):
                item.add_marker(kind)
    if config.getoption("--nightly"):
        return
    long = [item for item in items if item.get_closest_marker("nightly")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _is_among(item: pytest.Item, marker: str, *, others: bool = False) -> bool:
    """Whether a case of a parametrized test is one that the marker names, or one of the others."""
    marked = item.get_closest_marker(marker)
    case = item.callspec.id if hasattr(item, "callspec") else ""
    return marked is not None and any(word in case for word in marked.args) != others


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Files are written as ever; only a power cut, which no test makes, could tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def exports_are_remembered() -> Iterator[None]:
    """One in nine seconds of all tests went into exporting the same few networks again."""
    from tests.exports import remembered

    capturing = importlib.import_module("nonvacuous.networks.capture")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capturing, "exported_program", remembered(capturing.exported_program))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_CLOCK] = _processor_seconds()
    if item.get_closest_marker("browser") and not CHROMIUM.exists():
        _missing(f"{CHROMIUM} is missing: run scripts/install-chromium.sh.")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("No CUDA device on this machine.")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with MNIST, Fashion-MNIST and CIFAR-10, which are never part of the project."""
    value = os.environ.get("NONVACUOUS_DATA")
    if not value:
        _missing("NONVACUOUS_DATA is not set: it must name the folder that holds mnist/ and so on.")
    folder = Path(value).resolve()
    absent = [name for name in DATA_FILES if not (folder / name).is_file()]
    if absent:
        _missing(f"NONVACUOUS_DATA={value} lacks {', '.join(absent)}.")
    return folder
