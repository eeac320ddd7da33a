"""Kernels: how alike two points are, as a function of their distance or of their inner product."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class Kernel:
    """A positive semi-definite kernel.

    name         what it is called
    parameters   its numbers, such as {"gamma": 0.02}
    based_on     "distances": a function of ‖x−y‖²; "products": a function of ⟨x, y⟩
    function     maps a tile of squared distances or of inner products, in place or not, to values
    rank_limit   for points of so many coordinates: the most points through which a function can
                 be made to pass whatever their values; None where there is no such limit
    """

    name: str
    parameters: Mapping[str, float]
    based_on: Literal["distances", "products"]
    function: Callable[[Tensor], Tensor]
    rank_limit: Callable[[int], int | None] = lambda _: None

    def __str__(self) -> str:
        numbers = ", ".join(f"{key} {value:g}" for key, value in self.parameters.items())
        return f"{self.name} ({numbers})" if numbers else self.name


def gaussian(gamma: float = 1.0) -> Kernel:
    """exp(−gamma ‖x−y‖²), squared Euclidean distance.

    >>> gaussian(0.5).function(torch.tensor([2.0], dtype=torch.float64)).item()
    0.36787944117144233
    """
    rate = _positive("gamma", gamma)
    return Kernel("gaussian", {"gamma": rate}, "distances", lambda d: d.mul_(-rate).exp_())


def laplace(gamma: float = 1.0) -> Kernel:
    """exp(−gamma ‖x−y‖), Euclidean distance: rougher than the Gaussian, never near-singular."""
    rate = _positive("gamma", gamma)
    return Kernel("laplace", {"gamma": rate}, "distances", lambda d: d.sqrt_().mul_(-rate).exp_())


def polynomial(degree: float = 3, offset: float = 1.0, scale: float = 1.0) -> Kernel:
    """(scale ⟨x, y⟩ + offset) to the power of a whole number."""
    power = int(degree)
    if power != degree or power < 1:
        raise BadInput(f"polynomial: the degree must be a whole number from 1, not {degree!r}")
    factor = _positive("scale", scale)
    if not (math.isfinite(offset) and offset >= 0):
        raise BadInput(
            f"polynomial: the offset must not be negative, else this is no kernel; got {offset!r}"
        )
    return Kernel(
        "polynomial",
        {"degree": power, "offset": float(offset), "scale": factor},
        "products",
        lambda p: p.mul_(factor).add_(offset).pow_(power),
        # Monomials of that degree in the coordinates (and, with an offset, of lower degree).
        lambda d: math.comb(d + power - (offset == 0), power),
    )


def linear() -> Kernel:
    """⟨x, y⟩: its interpolant is the linear function with the smallest weights."""
    return Kernel("linear", {}, "products", lambda p: p, lambda d: d)


#: Kernels by name; others may be entered. Each takes numbers by name and gives a :class:`Kernel`.
KERNELS: dict[str, Callable[..., Kernel]] = {
    "gaussian": gaussian,
    "laplace": laplace,
    "polynomial": polynomial,
    "linear": linear,
}


def kernel_of(name: str, **parameters: float) -> Kernel:
    """The kernel of that name with these numbers.

    >>> str(kernel_of("gaussian", gamma=0.02))
    'gaussian (gamma 0.02)'
    """
    factory = KERNELS.get(name)
    if factory is None:
        close = difflib.get_close_matches(name, KERNELS, n=1)
        raise BadInput(
            f"there is no kernel {name!r}; there are {', '.join(KERNELS)}"
            + (f"; did you mean {close[0]}?" if close else "")
        )
    try:
        return factory(**parameters)
    except TypeError as error:
        raise BadInput(
            f"the kernel {name} does not take {', '.join(parameters)} ({error})"
        ) from error


def median_squared_distance(points: Tensor, *, seed: int = 0, sample: int = 2000) -> float:
    """The median of ‖x−x'‖² over pairs of a random sample: the scale on which a kernel works."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[:sample].to(points.device)
    few = points[chosen].reshape(len(chosen), -1).double()
    if len(few) < 2:
        return 1.0
    return float(torch.pdist(few.cpu()).square().median())


def _positive(name: str, value: float) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a positive number, got {value!r}")
    return number
