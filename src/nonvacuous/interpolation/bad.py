"""Functions that fit every training example and know nothing: fitting is not what generalizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nonvacuous.errors import BadInput
from nonvacuous.interpolation.checks import as_points
from nonvacuous.interpolation.gram import PointGram
from nonvacuous.interpolation.kernels import Kernel
from nonvacuous.interpolation.solve import interpolate, one_hot
from nonvacuous.seeds import derived_seed


@dataclass(frozen=True)
class Judged:
    """One interpolant: its norm, and what it gets wrong."""

    name: str
    norm: float
    residual: float
    train_errors: int
    train_examples: int
    test_errors: int
    test_examples: int


def compare_interpolants(
    points: Any,
    labels: np.ndarray,
    test_points: Any,
    test_labels: np.ndarray,
    *,
    kernel: Kernel,
    classes: int,
    seed: int = 0,
) -> tuple[Judged, ...]:
    """The minimum-norm interpolant, and two that fit the same training examples as perfectly.

    forced      also made to pass through random labels at the test points: in the same space of
                functions there is one, of larger norm, that is wrong at nine of ten of them
    elsewhere   a combination of kernels around random points instead of the training points
    """
    train, test = as_points(points), as_points(test_points, what="test points")
    true = one_hot(labels, classes)
    generator = np.random.default_rng(derived_seed(seed, "bad interpolants"))
    good = interpolate(train, true, kernel=kernel)
    wrong = generator.integers(0, classes, len(test))
    forced = interpolate(
        torch.cat([train, test]), np.concatenate([true, one_hot(wrong, classes)]), kernel=kernel
    )
    found = [
        _judged(name, f.norms["values"], f.residual, f.predict(train), f.predict(test),
                labels, test_labels)
        for name, f in (
            ("smallest norm", good),
            ("forced to random labels at the test points", forced),
        )
    ]  # fmt: skip
    found.append(_centered_elsewhere(train, labels, test, test_labels, true, kernel, generator))
    return tuple(found)


def _centered_elsewhere(
    train: torch.Tensor,
    labels: np.ndarray,
    test: torch.Tensor,
    test_labels: np.ndarray,
    true: np.ndarray,
    kernel: Kernel,
    generator: np.random.Generator,
) -> Judged:
    """As many kernels as examples, around points with every coordinate drawn from the data.

    Coordinates are drawn independently, so that the centers look like no example.
    """
    rows = generator.integers(0, len(train), (len(train), train.shape[1]))
    drawn = train.numpy()[rows, np.arange(train.shape[1])]
    spread = train.numpy().std() * 0.5
    centers = torch.from_numpy(drawn + spread * generator.normal(size=drawn.shape))
    gram = PointGram(kernel, centers)
    between = gram.across(train)
    factor, pivots, trouble = torch.linalg.lu_factor_ex(between)
    if int(trouble):
        raise BadInput(
            "kernels around random points do not span all labelings of these examples: they are "
            "too narrow or the examples repeat. Take a wider kernel (a smaller gamma)"
        )
    targets = torch.from_numpy(true)
    coefficients = torch.linalg.lu_solve(factor, pivots, targets)
    for _ in range(3):
        remainder = targets - between @ coefficients
        coefficients = coefficients + torch.linalg.lu_solve(factor, pivots, remainder)
    inside = gram.tile(slice(0, len(centers)), slice(0, len(centers)))
    norm = float((coefficients * (inside @ coefficients)).sum().clamp(min=0).sqrt())
    fitted = between @ coefficients
    return _judged(
        "kernels around random points", norm, float((fitted - targets).abs().max()),
        fitted.numpy(), (gram.across(test) @ coefficients).numpy(), labels, test_labels,
    )  # fmt: skip


def _judged(
    name: str,
    norm: float,
    residual: float,
    on_train: np.ndarray,
    on_test: np.ndarray,
    labels: np.ndarray,
    test_labels: np.ndarray,
) -> Judged:
    return Judged(
        name=name,
        norm=norm,
        residual=residual,
        train_errors=int((on_train.argmax(1) != labels).sum()),
        train_examples=len(labels),
        test_errors=int((on_test.argmax(1) != test_labels).sum()),
        test_examples=len(test_labels),
    )
