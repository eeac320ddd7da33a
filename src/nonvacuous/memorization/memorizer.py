"""``memorize``: from points and values to a certified network and all there is to know of it."""

from __future__ import annotations

import bisect
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from nonvacuous.bounds.capacity import MemorizationSizes, memorization_sizes
from nonvacuous.errors import BadInput
from nonvacuous.memorization import inputs, networks
from nonvacuous.memorization.construction import (
    Construction,
    StoredWeights,
    construct,
    hidden_widths,
    stored_weights,
)
from nonvacuous.memorization.exact import ExactCertificate, certify_exactly
from nonvacuous.memorization.networks import MemorizingNetwork, Residual, dense_values
from nonvacuous.memorization.projection import Direction, check_finite, line_up, project_float
from nonvacuous.progress import Progress


@dataclass(frozen=True, eq=False)
class Memorizer:
    """A network that has memorized points: exact, certified, and exportable to float64.

    points, dimensions   n and d
    shape                the shape of one point
    classes              number of classes where the values are classes 0, 1, 2, ..., else None
    certificate          zero mismatches in exact rational arithmetic
    duplicates           copies among the points, and what no function can get right
    direction            the random direction along which the points are told apart
    construction         positions, knots and weights as whole numbers and fractions
    fraction_bits        values are whole numbers times 2**-fraction_bits
    seconds              how long reading, construction and certificate took together
    """

    points: int
    dimensions: int
    shape: tuple[int, ...]
    classes: int | None
    certificate: ExactCertificate
    duplicates: inputs.Duplicates
    direction: Direction
    construction: Construction
    fraction_bits: int
    seed: int
    seconds: float

    @property
    def depth(self) -> int:
        """Layers of weights."""
        return self.construction.depth

    @property
    def parameters(self) -> int:
        """Numbers that the network stores: 2n + d, and one more from three layers on."""
        return 2 * len(self.construction) + self.dimensions + (self.depth > 2)

    @property
    def theorem_parameters(self) -> int:
        """2n + d."""
        return 2 * self.points + self.dimensions

    @property
    def width(self) -> int:
        """Units of the widest hidden layer, those included that pass something on."""
        return max(hidden_widths(self.construction.blocks, len(self.construction)))

    @property
    def sizes(self) -> MemorizationSizes:
        """What this and other theorems need to memorize as many points of as many dimensions."""
        return memorization_sizes(examples=self.points, inputs=self.dimensions)

    @property
    def smallest_eigenvalue(self) -> float:
        """The lemma's: the smallest gap between a point and its knot, over the whole range."""
        made = self.construction
        gaps = (z - b for z, b in zip(made.positions, made.knots, strict=True))
        return min(gaps) / (made.positions[-1] - made.knots[0])

    @cached_property
    def weights(self) -> StoredWeights:
        """Knots and weights in float64, by exact feedback."""
        return stored_weights(
            self.construction, unit=self.direction.unit, fraction_bits=self.fraction_bits
        )

    def module(
        self, *, scores: bool | None = None, dtype: torch.dtype = torch.float64
    ) -> MemorizingNetwork:
        """An ordinary ``nn.Module`` in float64.

        scores   True: one score for each class; False: the memorized number itself, shape
                 (points, 1); by default scores where the values are classes
        dtype    anything but float64 is refused, with a count of what would come out wrong
        """
        if scores is None:
            scores = self.classes is not None
        if scores and self.classes is None:
            raise BadInput(
                "the memorized values are not classes 0, 1, 2, ..., so there are no class scores; "
                "ask for module(scores=False)"
            )
        if dtype != torch.float64:
            raise networks.refuse_dtype(dtype, self.residual_in(dtype))
        direction = torch.from_numpy(self.direction.weights())
        if not bool(torch.isfinite(direction).all()):
            raise BadInput(
                "points: a feature is so small that its weight leaves the range of float64; "
                "multiply the points by a constant first"
            )
        classes = self.classes if scores else None
        return self._network(direction, grid=self.direction.grid, classes=classes)

    def predict(self, points: Any) -> np.ndarray:
        """The network's value at each point, by binary search: exact at memorized points."""
        given, _ = inputs.read_points(points, shape=self.shape)
        check_finite(given)
        rows = self.direction.prepare(given)
        if not self.direction.is_exact:
            return self._exactly(*self.direction.project(rows))
        positions = project_float(rows, self.direction.weights())
        knots, values, slopes = self._rounded
        segment = np.searchsorted(knots, positions, side="right") - 1
        inside = np.maximum(segment, 0)
        reached = values[inside] + slopes[inside] * (positions - knots[inside])
        return np.where(segment < 0, 0.0, reached)

    def _exactly(self, positions: list[int], unit: int) -> np.ndarray:
        """Values at exact positions in units of 2**unit, rounded once at the end."""
        own, scale = self.direction.unit, 1 << self.fraction_bits
        fine = min(unit, own)
        knots, values, slopes = self._table
        bends = [bend << (own - fine) for bend in knots]
        reached = np.zeros(len(positions), dtype=np.float64)
        for i, position in enumerate(positions):
            here = position << (unit - fine)
            segment = bisect.bisect_right(bends, here) - 1
            if segment >= 0:
                way = Fraction(here - bends[segment], 1 << (own - fine))
                reached[i] = float((values[segment] + slopes[segment] * way) / scale)
        return reached

    @cached_property
    def _table(self) -> tuple[list[int], list[int], list[Fraction]]:
        """Where the network's function along its direction bends, and its value and slope there."""
        made = self.construction
        values = [0, *made.values]
        steps = zip(values, made.values, made.knots, made.positions, strict=False)
        slopes = [Fraction(to - start, position - knot) for start, to, knot, position in steps]
        # The last point as a bend too, so that every memorized value stands in the table.
        return [*made.knots, made.positions[-1]], values, [*slopes, slopes[-1]]

    @cached_property
    def _rounded(self) -> tuple[np.ndarray, ...]:
        (knots, values, slopes), scale = self._table, 1 << self.fraction_bits
        columns = knots, [value / scale for value in values], [float(s / scale) for s in slopes]
        return tuple(np.array(column, dtype=np.float64) for column in columns)

    def classify(self, points: Any) -> np.ndarray:
        """The class of each point: the one nearest to the network's value."""
        if self.classes is None:
            raise BadInput("the memorized values are not classes 0, 1, 2, ...; use predict")
        return networks.nearest_class(self.predict(points), self.classes)

    def forward(
        self, points: Any, *, device: torch.device | str = "cpu", progress: Progress | None = None
    ) -> np.ndarray:
        """The honest way: every unit at every point in float64, n steps for each point."""
        rows, _ = inputs.read_points(points, shape=self.shape)
        network = self.module(scores=False)
        return dense_values(network, rows, units=self.width, device=device, progress=progress)

    def residual(
        self,
        points: Any,
        values: Any = None,
        *,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> Residual:
        """How far :meth:`forward` is from the values (by default the labels of the examples)."""
        started = time.perf_counter()
        outputs = self.forward(points, device=device, progress=progress)
        wanted = inputs.read_values(values, points, count=len(outputs)).floats()
        return Residual.of(outputs, wanted, self.classes, since=started)

    def residual_in(self, dtype: torch.dtype) -> Residual:
        """The honest way along the direction, with all numbers rounded to another type."""
        if not dtype.is_floating_point:
            raise BadInput(f"{dtype} is not a floating-point type; use torch.float64")
        started = time.perf_counter()
        made, unit = self.construction, 1 << -self.direction.unit
        network = self._network(torch.ones(1, dtype=dtype))
        positions = np.array([[position / unit] for position in made.positions])
        outputs = dense_values(network, positions, units=self.width)
        values = np.array([value / (1 << self.fraction_bits) for value in made.values])
        return Residual.of(outputs, values, self.classes, since=started)

    def _network(self, direction: torch.Tensor, **more: Any) -> MemorizingNetwork:
        """The stored numbers in the type of the direction."""
        stored = self.weights
        knots, weights = (
            torch.from_numpy(each).to(direction.dtype) for each in (stored.knots, stored.weights)
        )
        return MemorizingNetwork(
            direction, knots, weights, end=stored.end, blocks=stored.blocks, **more
        )

    def save(self, path: str | Path) -> Path:
        """Write the float64 network as safetensors; ``nonvacuous.memorization.load`` reads it."""
        return networks.save_network(self.module(), path)

    def to_dict(self) -> dict[str, Any]:
        """A record of plain numbers."""
        names = (
            "points", "dimensions", "depth", "width", "classes", "parameters",
            "theorem_parameters", "seed", "seconds",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in names},
            "certificate": asdict(self.certificate),
            "duplicates": asdict(self.duplicates),
            "direction": {
                "exact_in_float64": self.direction.is_exact,
                "pixel_grid": self.direction.grid,
                "draws": self.direction.draws,
            },
            "smallest_eigenvalue": self.smallest_eigenvalue,
            "sizes": asdict(self.sizes),
        }


def what_it_does_not_say(sizes: MemorizationSizes) -> tuple[str, ...]:
    """Sentences to print beside a certificate, so that nobody reads more into it."""
    n, d = sizes.examples, sizes.inputs
    return (
        f"The theorem needs {n:,} hidden units, one for each point, in one layer or spread over "
        "many. It says nothing about narrower networks that people train, such as one hidden "
        "layer of 512 units.",
        "By other theorems, not constructed here, fewer units have weights for any values: "
        f"{sizes.general_position_units:,} in one hidden layer, 4⌈n/d⌉, if no {d + 1:,} points lie "
        "on one hyperplane, which constant features break (Baum 1988; Bubeck et al. 2020); "
        f"{sizes.two_layer_width:,} in each of two hidden layers, about 2√n, for any distinct "
        "points (Yun, Sra and Jadbabaie 2019).",
        "Such weights exist, and here they are. That gradient descent finds them does not follow, "
        "nor does anything about points that were not memorized.",
    )


def memorize(
    points: Any,
    values: Any = None,
    *,
    depth: int = 2,
    seed: int = 0,
    conflicts: Literal["refuse", "majority"] = "refuse",
    progress: Progress | None = None,
) -> Memorizer:
    """A ReLU network with 2n + d weights that gives n points in d dimensions any n values.

    points      (points, ...) numbers, as an array, a tensor or nested lists; or ``Examples``
    values      one number for each point; by default the labels of the examples. Whole numbers
                from 0 up are taken for classes
    depth       layers of weights; each of the depth - 1 hidden layers memorizes a part
    seed        decides the random direction
    conflicts   what to do with copies of a point that have different values: "refuse", or
                "majority" to keep the most frequent value

    The certificate is exact: the network's value at every point, computed with fractions of whole
    numbers, equals the value given, or an error is raised. Nothing about other points follows.
    Source: Zhang, Bengio, Hardt, Recht and Vinyals (ICLR 2017), Theorem 1 and its corollary.

    >>> network = memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0])
    >>> network.parameters, network.certificate.mismatches, network.classify([[1, 0]]).tolist()
    (10, 0, [1])
    """
    if conflicts not in ("refuse", "majority"):
        raise BadInput(f'conflicts must be "refuse" or "majority", not {conflicts!r}')
    started = time.perf_counter()
    rows, shape = inputs.read_points(points)
    inputs.check_memory(*rows.shape)
    wanted = inputs.read_values(values, points, count=len(rows))
    tell: Progress = progress or (lambda *words: None)
    tell("projecting", 0, 1, "")
    ordered = line_up(rows, seed=seed)
    tell("projecting", 1, 1, "")
    kept, duplicates = inputs.settle(wanted, ordered.order, ordered.starts, conflicts=conflicts)
    tell("constructing", 0, 1, "")
    made = construct(ordered.positions, kept, depth=depth)
    tell("constructing", 1, 1, "")
    prepared = ordered.direction.prepare(rows)
    certificate = certify_exactly(
        made, ordered, prepared, unreachable=duplicates.floor, progress=progress
    )
    return Memorizer(
        points=len(rows),
        dimensions=rows.shape[1],
        shape=shape,
        classes=wanted.classes,
        certificate=certificate,
        duplicates=duplicates,
        direction=ordered.direction,
        construction=made,
        fraction_bits=wanted.fraction_bits,
        seed=seed,
        seconds=time.perf_counter() - started,
    )
