"""Write a benchmark's result together with everything needed to judge and repeat it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("nonvacuous", "numpy", "scipy", "torch", "scikit-learn", "safetensors")


def write_result(
    name: str, result: Mapping[str, Any], *, seed: int, folder: Path | str = RESULTS
) -> Path:
    """Write ``folder/name.json`` whole or not at all, and return its path."""
    record = {"name": name, "provenance": provenance(seed=seed), "result": dict(result)}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{name}.json"
    temporary = path.with_name(f".{name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=2, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def provenance(*, seed: int) -> dict[str, Any]:
    """Commit, machine, versions, command, seed and the date in UTC."""
    # A machine that has a copy without the repository's history is told the commit that it runs,
    # and the digest of that commit's files, as `python benchmarks/provenance.py` prints it.
    told = os.environ.get("NONVACUOUS_COMMIT")
    if told is None:
        changed = _git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    else:
        known = os.environ.get("NONVACUOUS_TREE")
        changed = None if known is None else "" if known == tree_digest() else "changed"
    return {
        "commit": told or _git("rev-parse", "HEAD") or None,
        "uncommitted_changes": None if changed is None else bool(changed),
        "machine": machine(),
        "versions": versions(),
        "command": shlex.join(["python", *map(_without_place, sys.argv)]),
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def tree_digest() -> str:
    """SHA-256 over the names and bytes of the library's and the benchmarks' source files."""
    root, digest = RESULTS.parents[1], hashlib.sha256()
    for path in sorted([*root.glob("src/**/*.py"), *root.glob("benchmarks/*.py")]):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """System, processor, the cores and threads in use, and the GPU where there is one."""
    affinity = getattr(os, "sched_getaffinity", None)
    found: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    if "torch" in sys.modules:
        import torch

        found["threads"] = str(torch.get_num_threads())
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Python and the packages that decide about speed; those not installed are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str | None:
    """What git says, or None where it is not installed or this is not its working tree."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _without_place(argument: str) -> str:
    """An absolute path says where somebody keeps things: its last part is enough.

    >>> _without_place("/home/somebody/data"), _without_place("benchmarks/risk.py")
    ('data', 'benchmarks/risk.py')
    """
    return Path(argument).name if os.path.isabs(argument) else argument


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    print(tree_digest())
