"""What ``nonvacuous sparsity`` makes of its bounds: a constant answer is the measure."""

from __future__ import annotations

from typing import Any

from nonvacuous.studies.sparsity_page import _bounds
from nonvacuous.studies.sparsity_tables import bound_table, caveats, certificate_verdict


def record(**changes: Any) -> dict[str, Any]:
    """Three classes, of which one has 70 % of the examples."""
    entry = {"theorem": "E", "kl_nats": 12.0, "grid_nats": 3.0, "loss_upper": 0.2, "escape": 0.03}
    certificates = [
        {**entry, "variant": variant, "risk_upper": risk, "examples": 720}
        for variant, risk in (("sparse", 0.7913), ("dense", 0.25))
    ]
    return {
        "certificates": certificates,
        "held_out": [{"what": "the prior itself", "errors": 9, "examples": 720, "risk": 0.02}],
        "norm_bounds": [{"name": "Bartlett", "risk": 1.0, "gap": 3.0, "margin": 0.1}],
        "largest_class": {"name": "apple", "error": 0.304},
        "sizes": [6, 20, 3],
        "confidence": 0.95,
        "seen_norm": False,
        "notes": [],
    } | changes


def test_a_bound_that_a_constant_answer_meets_is_vacuous() -> None:
    found = [row[1] for row in bound_table(record()).rows]
    assert found == ["0.7914 (vacuous)", "0.2500", "0.0201", "1 (vacuous)"]
    assert "Always “apple” errs on 30.4% of these examples" in caveats(record())[0]
    assert not certificate_verdict(record()).startswith("The certificate is vacuous")
    poor = record(certificates=record()["certificates"][:1])
    assert certificate_verdict(poor).startswith("The certificate is vacuous")


def test_the_line_stands_at_the_largest_class() -> None:
    (figure,) = _bounds(record()).figures
    assert "always the largest class" in figure.svg and "guessing" not in figure.svg
    assert "plain test: the prior itself" in figure.svg


def test_without_bounds_there_is_no_empty_chart() -> None:
    section = _bounds(record(certificates=[], held_out=[], norm_bounds=[]))
    assert not section.figures and not section.tables
    assert section.paragraphs[0].startswith("No certificate")


def test_a_folder_of_an_older_version_is_held_against_guessing() -> None:
    older = record()
    del older["largest_class"]
    found = [row[1] for row in bound_table(older).rows]
    assert found == ["0.7914 (vacuous)", "0.2500", "0.0201", "1 (vacuous)"]
    assert caveats(older)[0].startswith("Guessing errs on 66.7% of these examples")
    assert not certificate_verdict(older).startswith("The certificate is vacuous")
    (figure,) = _bounds(older).figures
    assert "guessing" in figure.svg
