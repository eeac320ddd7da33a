"""Features: what a kernel gets to see of an image. None of them looks at a label.

Squared distances add up over coordinates. So where points have more coordinates than memory can
hold, features are made some at a time, standardized, counted into the distances and forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.interpolation.filters import GABOR, gabor_features, random_patches, tensor_cores


@dataclass(frozen=True, eq=False)
class Features:
    """Features of training and test inputs, and what they are.

    constant   coordinates that are the same at all training points: no kernel here can see them
    """

    train: Tensor
    test: Tensor | None
    description: str
    constant: int


#: Features that neither a number nor the inputs decide: how they are made, and what they are.
_FIXED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "raw": (lambda inputs: inputs.reshape(len(inputs), -1), "raw values"),
    "gabor": (gabor_features, GABOR),
}


def parse_features(spec: str) -> tuple[str, int | None]:
    """The name of the features and the number after it, if the text has one.

    >>> parse_features("patches:1000"), parse_features("raw")
    (('patches', 1000), ('raw', None))
    """
    match = re.fullmatch(r"([a-z-]+)(?::(\d+))?", spec)
    if match is None or match[1] not in (*_FIXED, "patches"):
        raise Unrecognized(
            f"there are no features {spec!r}; there are {', '.join(_FIXED)}, patches, and "
            "patches:NUMBER with so many filters"
        )
    return match[1], int(match[2]) if match[2] else None


def features_of(
    spec: str,
    train: Tensor,
    test: Tensor | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Features:
    """Features by a text such as raw, gabor or patches:1000 (with 1000 filters).

    Those of patches get mean zero and unit variance on the training inputs.
    """
    name, number = parse_features(spec)
    inputs = train.to(device)
    if name in _FIXED:
        if number is not None:
            raise BadInput(f"{name} features take no number; write {name}, not {name}:{number}")
        function, description = _FIXED[name]
    else:
        patches = random_patches(inputs, filters=1000 if number is None else number, seed=seed)
        function, description = patches, f"{patches.description}, standardized"
    made, other = function(inputs), None if test is None else function(test.to(device))
    if name == "patches":
        standardize = Standardizer(made)
        made, other = standardize(made), None if other is None else standardize(other)
    constant = int((made == made[0]).all(0).sum())
    return Features(made.cpu(), None if other is None else other.cpu(), description, constant)


class Standardizer:
    """Subtracts means and divides by standard deviations of (points, features).

    A constant feature becomes zero; ``varying`` is the number of the others.
    """

    def __init__(self, features: Tensor) -> None:
        self.means = features.mean(0)
        deviations = (features - self.means).square().mean(0).sqrt()
        # Rounding gives a constant feature a tiny deviation; dividing by it would make noise of it.
        constant = deviations <= 1e-6 * features.abs().amax(0)
        self.factors = torch.where(constant, 0.0, 1 / deviations.clamp(min=1e-30))
        self.varying = int((~constant).sum())

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.means) * self.factors


_ROWS = 8192


def accumulate_distances(chunks: Iterable[Tensor], *, train: int) -> tuple[Tensor, Tensor, int]:
    """Distances among the first ``train`` points, and of all others to them; float32.

    chunks   (points, some features) each: training points first, then the others. Each feature is
             standardized over the training points and rounded to float16: the distances are those
             of the rounded features, exactly but for float32 sums
    Returns both matrices and the number of features; constant features count as none.
    """
    among: Tensor | None = None
    across: Tensor | None = None
    norms: Tensor | None = None
    counted = 0
    for chunk in chunks:
        standardize = Standardizer(chunk[:train])
        features = standardize(chunk).half().float()
        counted += standardize.varying
        if among is None or across is None or norms is None:
            others = len(features) - train
            among = torch.zeros(train, train, device=features.device)
            across = torch.zeros(others, train, device=features.device)
            norms = torch.zeros(len(features), dtype=torch.float64, device=features.device)
        norms += features.square().sum(1, dtype=torch.float64)
        with tensor_cores():
            base = features[:train].T
            for target, rows in ((among, features[:train]), (across, features[train:])):
                for start in range(0, len(rows), _ROWS):
                    part = rows[start : start + _ROWS]
                    target[start : start + _ROWS].addmm_(part, base, alpha=-2)
    if among is None or across is None or norms is None:
        raise BadInput("no features were given; at least one chunk of them is needed")
    for target, rows in ((among, norms[:train]), (across, norms[train:])):
        for start in range(0, len(target), _ROWS):
            part = target[start : start + _ROWS]
            part += (rows[start : start + _ROWS, None] + norms[:train]).float()
            part.clamp_(min=0)
    _make_symmetric(among)
    among.fill_diagonal_(0)
    return among, across, counted


def _make_symmetric(matrix: Tensor) -> None:
    """Let the lower triangle decide: sums of float32 may differ in their last bit across it."""
    for start in range(0, len(matrix), _ROWS):
        rows = slice(start, start + _ROWS)
        corner = matrix[rows, rows]
        matrix[rows, rows] = corner.tril() + corner.tril(-1).T
        for left in range(0, start, _ROWS):
            columns = slice(left, left + _ROWS)
            matrix[columns, rows] = matrix[rows, columns].T
