"""The pages of results and of papers say what the result files say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_pages_are_what_the_files_say() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/show.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
