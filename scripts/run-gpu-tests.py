"""Run the tests marked `gpu` of some files, also where pytest is not installed.

    PYTHONPATH=src python scripts/run-gpu-tests.py tests/rescaling/test_solver.py

With pytest this is `pytest -m gpu FILES`. Without it, a stand-in knows what such tests use: marks,
parameters, approximate equality. Machines with a GPU often come with torch and little else.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Approximately:
    """Equal up to a relative or an absolute difference, as pytest.approx has it."""

    def __init__(self, expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self.expected, self.rel, self.abs = expected, rel, abs

    def __eq__(self, other: object) -> bool:
        if isinstance(self.expected, Mapping):
            return (
                isinstance(other, Mapping)
                and other.keys() == self.expected.keys()
                and all(
                    Approximately(value, self.rel, self.abs) == other[key]
                    for key, value in self.expected.items()
                )
            )
        close: bool = math.isclose(other, self.expected, rel_tol=self.rel, abs_tol=self.abs)  # type: ignore[arg-type]
        return close

    def __repr__(self) -> str:
        return f"about {self.expected!r}"


class Marks:
    """pytest.mark: remembers parameters and names on the test."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def remember(test: Callable[..., Any]) -> Callable[..., Any]:
            test.__dict__.setdefault("marks", []).append(name)
            return test

        return remember

    @staticmethod
    def parametrize(names: Any, values: Any, **_: Any) -> Callable[..., Any]:
        keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
        rows = [dict(zip(keys, v if len(keys) > 1 else (v,), strict=True)) for v in values]

        def remember(test: Callable[..., Any]) -> Callable[..., Any]:
            test.__dict__.setdefault("parameters", []).append(rows)
            return test

        return remember


def stand_in() -> types.ModuleType:
    module = types.ModuleType("pytest")
    module.__dict__.update(
        mark=Marks(),
        approx=Approximately,
        param=lambda *values, **_: values if len(values) > 1 else values[0],
        fixture=lambda *given, **_: given[0] if given else (lambda function: function),
    )
    return module


def cases(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every marked test of a file with every combination of its parameters."""
    module = importlib.import_module(
        ".".join(path.resolve().relative_to(ROOT).with_suffix("").parts)
    )
    for name, test in vars(module).items():
        if name.startswith("test_") and "gpu" in getattr(test, "marks", ()):
            for rows in itertools.product(*getattr(test, "parameters", ())):
                chosen = {key: value for row in rows for key, value in row.items()}
                yield f"{name} {chosen}", lambda test=test, chosen=chosen: test(**chosen)


def main() -> int:
    files = [Path(argument) for argument in sys.argv[1:]]
    if not files:
        print(__doc__)
        return 2
    if importlib.util.find_spec("pytest") is not None:
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *map(str, files)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    import torch

    if not torch.cuda.is_available():
        print("No CUDA device on this machine.")
        return 1
    sys.path.insert(0, str(ROOT))
    sys.modules["pytest"] = stand_in()
    passed = failed = 0
    started = time.perf_counter()
    for path in files:
        for label, test in cases(path):
            try:
                test()
                passed += 1
            except Exception:
                failed += 1
                print(f"FAILED {label}")
                traceback.print_exc()
    print(f"{passed} passed, {failed} failed in {time.perf_counter() - started:.1f} s")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main())
