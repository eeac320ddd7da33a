"""What one asks of a data set or a network: the computation, the page and the words of each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nonvacuous.study.study import Study

#: The module of each command's study below this package, with the study as STUDY.
STUDIES = {
    "memorize": "memorization",
    "interpolate": "interpolate",
    "measures": "measures",
    "sparsity": "sparsity",
}


def study_of(name: str) -> Study[Any, Any]:
    """The study behind a name of the table."""
    module = importlib.import_module(f"nonvacuous.studies.{STUDIES[name]}")
    study: Study[Any, Any] = module.STUDY
    return study
