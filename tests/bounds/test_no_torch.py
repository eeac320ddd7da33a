"""The mathematics of certificates does not need a network library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nonvacuous.bounds

SOURCE = str(Path(nonvacuous.bounds.__file__).parents[2])


def modules_after(statement: str) -> set[str]:
    program = (
        f"import sys; sys.path.insert(0, {SOURCE!r}); {statement}; "
        "import json; sys.stdout.write(json.dumps(sorted(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    return set(json.loads(finished.stdout))


def test_importing_bounds_leaves_torch_out() -> None:
    modules = modules_after("import nonvacuous.bounds")
    assert "nonvacuous.bounds" in modules
    assert "torch" not in modules


def test_computing_a_bound_leaves_torch_out() -> None:
    modules = modules_after(
        "import nonvacuous.bounds as b; "
        "b.seeger(empirical_risk=.1, kl_nats=1., examples=10, failure=.1, exact_moment=True); "
        "b.holdout(errors=1, examples=10, failure=.1); b.ConfidenceBudget(failure=.05)"
    )
    assert "torch" not in modules


def test_the_numbers_of_a_pac_bayes_certificate_need_no_arrays() -> None:
    call = "empirical_risk=.02, kl_nats=500., examples=60_000, failure=.05"
    modules = modules_after(
        f"import nonvacuous.bounds as b; b.seeger({call}, exact_moment=True); b.quadratic({call}); "
        f"b.catoni_union({call}); b.ConfidenceBudget(failure=.05)"
    )
    assert not {"numpy", "scipy"} & modules


def test_bounds_import_nothing_of_ours_but_errors() -> None:
    ours = {name for name in modules_after("import nonvacuous.bounds") if "nonvacuous" in name}
    others = {name for name in ours if not name.startswith("nonvacuous.bounds")}
    assert others <= {"nonvacuous", "nonvacuous.errors"}, others


def test_the_probe_sees_an_import() -> None:
    assert "colorsys" in modules_after("import colorsys")
