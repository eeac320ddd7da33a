"""``nonvacuous interpolate``: the function of smallest norm through every training example."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.study.settings import EXAMPLES, DataSettings, under
from nonvacuous.study.study import Answer, Context, Single, SingleStudy


class InterpolateSettings(DataSettings):
    """What to interpolate, and how; how decides nothing but time and memory."""

    examples: int | None = Field(None, ge=1, description=EXAMPLES)
    kernel: Literal["gaussian", "laplace", "polynomial", "linear"] = "gaussian"
    """gaussian: exp(-gamma d²), laplace: exp(-gamma d), d the distance of two points; polynomial:
    (product + 1) to --degree; linear."""
    gamma: str = "median"
    """A number; median: 2 over the median of d² (laplace: 1 over its root); median:FACTOR."""
    degree: int = Field(3, description="Of the polynomial kernel.")
    features: str = "raw"
    """raw; gabor (stripes in eight directions and two widths); patches:NUMBER (a convolutional
    network that nobody trained, with so many random patches as filters)."""
    labels: str = "true"
    """Separated by commas: true, random, partial:P (each label redrawn with probability P). All are
    solved for together."""
    drop_duplicates: bool = False
    """Leave out training inputs that equal an earlier one. Without it, equal inputs with different
    labels are an error: no function passes through both."""
    method: Literal["auto", "cholesky", "conjugate-gradient"] = "auto"
    """cholesky; conjugate-gradient, which keeps no matrix and says if it did not converge; auto:
    cholesky in memory, else on disk."""
    precision: Literal["auto", "float32", "float64"] = "auto"
    """Of the factor; the answer is refined to float64 in any case."""
    memory: str | None = None
    """The most to use, such as 8GB; nine tenths of what is free by default."""
    estimate: bool = Field(False, exclude=True, description="Only say what it would take.")

    def check(self) -> None:
        """Refuse under its flag what cannot be meant."""
        from nonvacuous.interpolation.features import parse_features
        from nonvacuous.studies.interpolation import chosen_kernel, corruptions_of

        self.memory_bytes  # noqa: B018
        with under("labels", "true"):
            corruptions_of(self.labelings)
        with under("features", "raw"):
            parse_features(self.features)
        # Any median does: only the words and numbers of the flags are looked at.
        with under("degree", "3") if self.kernel == "polynomial" else under("gamma", "median"):
            chosen_kernel(self, 1.0)

    @property
    def memory_bytes(self) -> int | None:
        """A size such as 8GB or 500MB; a number alone counts bytes."""
        if self.memory is None:
            return None
        size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)i?[bB]?", self.memory.strip())
        if size is None:
            raise BadInput(f"memory: {self.memory!r} is not a size; write something like 8GB")
        return int(float(size[1]) * 1000 ** " kmgt".index(size[2].lower() or " "))

    @property
    def labelings(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.labels.split(",") if part.strip())


class Interpolate(SingleStudy[InterpolateSettings]):
    """Fit every training example exactly with a kernel, and say what that is worth on new ones."""

    name, settings, cell = "interpolate", InterpolateSettings, InterpolateSettings
    kept = ("coefficients.npz",)
    may_change = frozenset({"method", "precision", "memory"})
    usual_folder = "runs/interpolate-DATA-FEATURES-KERNEL-seedN"
    pages = "nonvacuous.studies.interpolation_page"

    def title(self, settings: InterpolateSettings) -> str:
        return f"{settings.data}, {settings.features}, {settings.kernel}. Seed {settings.seed}"

    def folder(self, settings: InterpolateSettings, preset: str) -> Path:
        about = (Path(settings.data).stem or settings.data, settings.features, settings.kernel)
        name = f"interpolate-{'-'.join(about)}-seed{settings.seed}"
        return Path("runs") / re.sub(r"[^A-Za-z0-9.]+", "-", name)

    def answer(self, settings: InterpolateSettings, at: Context) -> Answer | None:
        if not settings.estimate:
            return None
        from nonvacuous.studies.interpolation import planned

        _, plan = planned(settings, at)
        record = asdict(plan) | {"folder": None if plan.folder is None else str(plan.folder)}
        return Answer(record, lambda console: console.print(f"{plan}."), {"--estimate": ""})

    def compute(self, cell: InterpolateSettings, at: Context) -> Single:
        from nonvacuous.studies.interpolation import interpolated

        return Single(record=interpolated(cell, at, at.folder / self.kept[0]))

    def result(self, settings: InterpolateSettings, finished: Sequence[Any], at: Context) -> Single:
        single = super().result(settings, finished, at)
        return Single(record={**single.record, "folder": str(at.folder)})

    def next_command(self, result: Single, folder: Path | None) -> str | Mapping[str, str | None]:
        if result.record["labelings"][-1]["labels"] == "true":
            return {"--labels": "true,random"}
        return "nonvacuous reproduce zhang-kernels --quick"


STUDY = Interpolate()
