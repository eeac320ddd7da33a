"""Training with all settings as keywords, as tests like to vary them one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nonvacuous.settings import Settings
from nonvacuous.training import erm, posterior
from nonvacuous.training.erm import Trained, TrainSettings
from nonvacuous.training.loop import Records
from nonvacuous.training.posterior import PosteriorSettings, TrainedPosterior

_TRACES = {field.name for field in fields(Records)}


def train(*given: Any, **options: Any) -> Trained:
    return erm.train(*given, **_sorted(TrainSettings, options))


def train_posterior(*given: Any, **options: Any) -> TrainedPosterior:
    return posterior.train_posterior(*given, **_sorted(PosteriorSettings, options))


def _sorted(kind: type[Settings], options: dict[str, Any]) -> dict[str, Any]:
    own = {name: options.pop(name) for name in list(options) if name in kind.model_fields}
    traces = {name: options.pop(name) for name in list(options) if name in _TRACES}
    return {"settings": kind(**own), "records": Records(**traces), **options}
