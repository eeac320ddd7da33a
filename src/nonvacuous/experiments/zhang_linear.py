"""The linear section of Zhang et al.: which of infinitely many perfect fits does SGD find?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.data import load
from nonvacuous.experiments.settings_files import SettingsFile
from nonvacuous.experiments.zhang_kernels import KernelsSettings, bad_interpolants
from nonvacuous.files import write_atomically
from nonvacuous.interpolation.bad import Judged
from nonvacuous.interpolation.linear import (
    Fit,
    compare_fits,
    family,
    hessian_difference,
    random_problem,
)
from nonvacuous.training.progress import Progress


@dataclass(frozen=True)
class LinearSettings(SettingsFile):
    """One linear problem with more weights than examples.

    family_sizes   how much of a direction that no example sees is added: from 0 to this
    bad_*          as in the kernel reproduction
    """

    examples: int = 40
    weights: int = 120
    test: int = 2000
    noise: float = 0.1
    epochs: int = 4000
    family_size: float = 10.0
    bad_data: str = "mnist"
    bad_examples: int = 3000
    bad_test: int = 3000
    bad_gamma: str = "0.02"
    seed: int = 0

    @classmethod
    def quick(cls) -> LinearSettings:
        """A smaller problem, and the embedded digits."""
        return cls(
            examples=20,
            weights=60,
            bad_data="digits",
            bad_examples=600,
            bad_test=200,
            bad_gamma="median:2",
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LinearResult:
    """Fits, the family of perfect fits, and how far their Hessians are apart.

    hessian_differences   by the name of the fit: the largest difference to the Hessian at the
                          minimum-norm fit; "half way there", which fits nothing, is the control
    """

    settings: LinearSettings
    fits: tuple[Fit, ...]
    family: tuple[Fit, ...]
    hessian_differences: dict[str, float]
    bad: tuple[Judged, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.to_dict(),
            "fits": [_plain(fit) for fit in self.fits],
            "family": [_plain(fit) for fit in self.family],
            "hessian_differences": self.hessian_differences,
            "bad_interpolants": [asdict(entry) for entry in self.bad],
        }


CONTROL = "half way there (fits nothing)"


def run(
    settings: LinearSettings,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> LinearResult:
    """Compute everything; it takes seconds, so that resuming means computing again."""
    del device, resume, force
    problem = random_problem(
        examples=settings.examples,
        weights=settings.weights,
        test=settings.test,
        noise=settings.noise,
        seed=settings.seed,
    )
    steps = 3
    _tell(progress, 0, steps, "optimizers")
    fits = compare_fits(problem, seed=settings.seed, epochs=settings.epochs)
    _tell(progress, 1, steps, "the family of perfect fits and their Hessians")
    sizes = np.linspace(0, settings.family_size, 11)
    members = family(problem, sizes, seed=settings.seed)
    smallest = fits[0].weights
    differences = {fit.name: hessian_difference(problem, smallest, fit.weights) for fit in fits[1:]}
    differences[f"smallest + {members[-1].name} of an unseen direction"] = hessian_difference(
        problem, smallest, members[-1].weights
    )
    differences[CONTROL] = hessian_difference(problem, smallest, smallest / 2)
    _tell(progress, 2, steps, "interpolants that fit and fail")
    shared = KernelsSettings(
        bad_data=settings.bad_data,
        bad_examples=settings.bad_examples,
        bad_test=settings.bad_test,
        bad_gamma=settings.bad_gamma,
        seed=settings.seed,
    )
    bad = bad_interpolants(shared, load(settings.bad_data, data_dir=data_dir))
    _tell(progress, steps, steps, "done")
    result = LinearResult(settings, fits, members, differences, bad)
    text = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
    write_atomically(Path(folder) / "results.json", lambda stream: stream.write(text.encode()))
    return result


def _plain(fit: Fit) -> dict[str, Any]:
    record = asdict(fit)
    del record["weights"]
    return record


def _tell(progress: Progress | None, done: int, total: int, message: str) -> None:
    if progress is not None:
        progress("linear models", done, total, message)
