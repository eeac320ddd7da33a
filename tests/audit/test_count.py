"""What the README says of the audit is what the registry holds."""

from __future__ import annotations

from pathlib import Path

from nonvacuous.audit.registry import CHECKS, required

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_counts_the_checks() -> None:
    kinds = [(mode, p) for mode in ("posterior", "post-hoc") for p in ("stochastic", "drawn")]
    counts = [len(required(mode=m, predictor=p)) for m, p in kinds]
    counts.append(len(required(mode="sparsity", predictor="deterministic")))
    plain = len(required(mode="holdout", predictor="deterministic"))
    progressive = len(required(mode="progressive", predictor="mixture"))
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"{min(counts)} to {max(counts)} of them ({plain} for a plain test" in text
    assert f"{progressive} for a progressive one), out of {len(CHECKS)} in all" in text
