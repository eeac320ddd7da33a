"""How long the commands take that compute next to nothing, and one bound, against another version.

    git worktree add ../before 26c4c74
    python benchmarks/startup.py --baseline ../before/src [--repeats 15]

Processor seconds, user and system, of a fresh process each, the least of ``--repeats`` rounds in
which the two versions take turns; the files are in the system's cache. Beside them the microseconds
of one ``bounds.seeger`` and of ``bounds.holdout``, in a process of each version, the least of as
many rounds of 200 calls.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from provenance import write_result

SOURCE = Path(__file__).resolve().parents[1] / "src"
RUN = "import sys; from nonvacuous.cli.app import main; sys.exit(main())"
COMMANDS = {
    "nonvacuous --version": ["--version"],
    "nonvacuous --help": ["--help"],
    "nonvacuous bound": ["bound", "--risk", "0.02", "--kl", "5000", "--examples", "60000"],
}
GOAL = 4.0
SCALAR = """
import json, sys, time
from nonvacuous import bounds
calls = {
    "seeger": lambda: bounds.seeger(
        empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05
    ),
    "holdout": lambda: bounds.holdout(errors=1200, examples=60_000, failure=0.05),
}
least = {}
for name, call in calls.items():
    rounds = []
    for _ in range(int(sys.argv[1])):
        start = time.process_time()
        for _ in range(200):
            call()
        rounds.append((time.process_time() - start) / 200)
    least[name] = min(rounds)
print(json.dumps(least))
"""


def python(source: Path, *words: str) -> tuple[float, str]:
    """Processor seconds and output of one process that imports the version in ``source``."""
    # Compiled modules are kept beside the sources: all but the first process find them there.
    changes = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **changes}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--baseline", type=Path, required=True, help="src of another version")
    parser.add_argument("--repeats", type=int, default=15)
    settings = parser.parse_args()
    versions = {"before": settings.baseline.resolve(), "now": SOURCE}
    cases = {}
    for name, words in COMMANDS.items():
        least = dict.fromkeys(versions, float("inf"))
        for _ in range(settings.repeats):
            for version, source in versions.items():
                least[version] = min(least[version], python(source, "-c", RUN, *words)[0])
        cases[name] = {**least, "ratio": least["before"] / least["now"]}
        print(f"{name}: {least['before']:.3f} s, now {least['now']:.3f} s")
    bare = min(python(SOURCE, "-c", "pass")[0] for _ in range(settings.repeats))
    scalar = {
        version: json.loads(python(source, "-c", SCALAR, str(settings.repeats))[1])
        for version, source in versions.items()
    }
    payload = {
        "claim": f"less than one part in {GOAL:g} of the time of the version before",
        "method": " ".join((__doc__ or "").split("\n\n")[2].split()),
        "settings": {"repeats": settings.repeats},
        "commands": cases,
        "python_alone": bare,
        "goal": GOAL,
        "goal_met": all(case["ratio"] >= GOAL for case in cases.values()),
        "microseconds": {
            name: {version: 1e6 * scalar[version][name] for version in versions}
            for name in ("seeger", "holdout")
        },
    }
    print(f"python alone {bare:.3f} s; microseconds {payload['microseconds']}")
    print(f"wrote {write_result('startup', payload, seed=0)}")


if __name__ == "__main__":
    main()
