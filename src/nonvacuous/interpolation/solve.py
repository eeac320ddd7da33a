"""nv.interpolate: the function of smallest norm through all points, and what it took."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import kernels
from nonvacuous.interpolation.equations import Solved, solve_equations
from nonvacuous.interpolation.kernels import DistanceGram, Gram, Kernel, PointGram, kernel_of
from nonvacuous.interpolation.plan import Limits, Method, Plan, Precision, make_plan
from nonvacuous.progress import Progress, Reporter

_PREDICTED_AT_ONCE = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Interpolant(Solved):
    """The function f = Σ a_i k(x_i, ·) of smallest norm with f(x_i) = y_i.

    coefficients   a, one array (points,) or (points, outputs) for each name
    norms          √tr(aᵀ K a) for each name: the norm in the kernel's space of functions
    """

    kernel: Kernel
    coefficients: Mapping[str, np.ndarray]
    norms: Mapping[str, float]
    _gram: Gram
    _kept: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values, in the order given; ("values",) if they had no name."""
        return tuple(self.coefficients)

    def __repr__(self) -> str:
        norms = ", ".join(f"{name} {norm:,.4g}" for name, norm in self.norms.items())
        return (
            f"Interpolant of {self._gram.size:,} points: {self.kernel}, norm {norms}, residual "
            f"{self.residual:.1e}"
        )

    def predict(self, points: Any, name: str | None = None) -> np.ndarray:
        """The function's values at other points; with several sets of values, of the one named."""
        if name is None:
            if len(self.coefficients) > 1:
                raise BadInput(
                    f"this interpolant has values of {len(self.names)} names; say which: "
                    f"predict(points, name) with one of {', '.join(self.names)}, or predictions"
                )
            name = self.names[0]
        return self.predictions(points, names=(name,))[name]

    def predictions(
        self, points: Any, *, names: tuple[str, ...] | None = None, progress: Progress | None = None
    ) -> dict[str, np.ndarray]:
        """The values of all functions at other points, every kernel value computed once."""
        others = as_points(points).to(self._gram.device)
        if others.shape[1] != self._gram.coordinates:
            raise BadInput(
                f"points have {others.shape[1]} coordinates, but the interpolant was made for "
                f"{self._gram.coordinates}"
            )
        chosen = names or self.names
        for name in chosen:
            if name not in self.coefficients:
                raise BadInput(f"there are no values {name!r}; there are {', '.join(self.names)}")
        parts = [self.coefficients[name][self._kept] for name in chosen]
        parts = [part.reshape(self._gram.size, -1) for part in parts]
        matrix = torch.from_numpy(np.concatenate(parts, 1)).to(self._gram.device)
        answers, reporter = [], Reporter(progress, "predicting")
        for start in range(0, len(others), _PREDICTED_AT_ONCE):
            some = others[start : start + _PREDICTED_AT_ONCE]
            answers.append((self._gram.across(some) @ matrix).cpu())
            reporter.report(start + len(some), len(others), "points")
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        together = np.split(torch.cat(answers).numpy(), ends, axis=1)
        return {
            name: values[:, 0] if self.coefficients[name].ndim == 1 else values
            for name, values in zip(chosen, together, strict=True)
        }

    def errors(
        self, points: Any, labels: Any, *, progress: Progress | None = None
    ) -> dict[str, int]:
        """For each name: at how many points the largest output is not that of the label."""
        true, counted = np.asarray(labels), {}
        for name, values in self.predictions(points, progress=progress).items():
            if values.ndim != 2 or true.shape != values.shape[:1]:
                raise BadInput(
                    f"{name} has outputs of shape {values.shape}, the labels {true.shape}: errors "
                    "take one label for each point and one output for each class (see one_hot)"
                )
            counted[name] = int((values.argmax(1) != true).sum())
        return counted


def interpolate(
    points: Any,
    values: Any,
    *,
    kernel: Kernel | str = "gaussian",
    device: torch.device | str = "cpu",
    method: Method = "auto",
    precision: Precision = "auto",
    memory: int | None = None,
    folder: str | Path | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Interpolant:
    """The function of smallest norm that passes through all points: no ridge, nothing hidden.

    points      (points, ...) numbers; images are laid out flat
    values      (points,) or (points, outputs) numbers; or a mapping from names to such arrays,
                which are solved for together at hardly more cost than one (true labels, half of
                them random, all random). For classes see :func:`one_hot`
    kernel      a Kernel such as kernels.gaussian(0.02), or a name: gaussian and laplace then take
                their width from the median distance
    device      "cpu", or "cuda": there the whole matrix must fit, in float64 by default
    method      "cholesky"; "conjugate-gradient", which keeps no matrix and may not converge (it
                says so); "auto" is Cholesky in memory, else on disk, else an error
    precision   of the factor. "auto": float64 where that is cheap, else float32; the answer is
                refined to float64 in any case, and a factor in float32 that is too coarse is made
                again in float64, with a warning
    memory      bytes that may be used; nine tenths of what is available by default
    folder      keeps the factor as it grows: a call that was stopped goes on from there. Also
                where tiles go that do not fit into memory
    limits      how exact, how many iterations, how large the tiles

    >>> f = interpolate([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], kernel=kernel_of("laplace"))
    >>> f.predict([[1.0]]).round(9).tolist(), f.residual < 1e-12
    ([1.0], True)
    """
    flat = as_points(points)
    targets = as_targets(values, len(flat))
    first = first_occurrences(flat)
    repeated = check_repetitions(first, targets)
    chosen = _kernel(kernel, flat)
    distinct = np.flatnonzero(first == np.arange(len(first)))
    check_rank(chosen, flat, len(distinct))
    warnings: list[str] = []
    if repeated:
        warnings.append(f"{repeated} points only repeat others, with equal values; they count once")
        flat = flat[distinct]
    if len(first) == 1:
        warnings.append("one point: the function is a multiple of the kernel around it")
    gram, limits = PointGram(chosen, flat.to(device)), limits or Limits()
    plan = partial(
        make_plan, gram.size, gram.coordinates, targets.matrix.shape[1], device=gram.device,
        method=method, memory=memory, folder=folder if folder is None else Path(folder),
        tile=limits.tile,
    )  # fmt: skip
    return _solved(
        gram, targets, distinct, plan, precision, limits, partial(_identity, chosen, flat),
        tuple(warnings), progress,
    )  # fmt: skip


def interpolate_distances(
    distances: Tensor,
    values: Any,
    *,
    kernel: Kernel,
    precision: Precision = "auto",
    memory: int | None = None,
    progress: Progress | None = None,
) -> Interpolant:
    """The same where only squared distances between points are at hand, on their device.

    distances   (points, points), symmetric
    The interpolant's ``predict`` then takes squared distances too: (other points, points).
    """
    if kernel.based_on != "distances":
        raise BadInput(
            f"the {kernel.name} kernel needs inner products; distances serve gaussian, laplace"
        )
    count = len(distances)
    if distances.ndim != 2 or distances.shape != (count, count) or not count:
        raise BadInput(f"distances must be a square matrix, not {tuple(distances.shape)}")
    for part in distances.split(4096):
        if not bool(torch.isfinite(part).all()):
            raise BadInput("distances: some are not finite numbers; mend the features")
    gram, targets = DistanceGram(kernel, distances), as_targets(values, count)
    plan = partial(make_plan, count, 0, targets.matrix.shape[1], device=gram.device, memory=memory)
    limits = Limits(iterations=0)
    return _solved(gram, targets, np.arange(count), plan, precision, limits, str, (), progress)


def _solved(
    gram: Gram,
    targets: Targets,
    kept: np.ndarray,
    plan: partial[Plan],
    precision: Precision,
    limits: Limits,
    identity: Callable[[], str],
    warnings: tuple[str, ...],
    progress: Progress | None,
) -> Interpolant:
    """Solve as planned.

    kept       the points that the matrix is of; those that repeat them get the coefficient zero
    identity   what a factor that is kept in a folder is recognized by
    """
    with tempfile.TemporaryDirectory(prefix="nonvacuous-") as temporary:

        def planned(precision: Precision) -> Plan:
            made = plan(precision=precision)
            # Tiles of a nameless run go into a folder of their own, which goes away with it.
            nameless = made.place == "disk" and plan.keywords.get("folder") is None
            return replace(made, folder=Path(temporary)) if nameless else made

        first = planned(precision)
        solution = solve_equations(
            gram,
            targets.matrix[kept].to(gram.device),
            first,
            identity="" if first.folder is None else identity(),
            limits=limits,
            replan=partial(planned, "float64") if precision == "auto" else None,
            progress=progress,
        )
    coefficients, norms = {}, {}
    squares = (solution.coefficients * solution.fitted).sum(0).cpu()  # aᵀ K a of every column
    for name, columns in targets.columns.items():
        own = solution.coefficients[:, columns].cpu().numpy()
        coefficients[name] = np.zeros((len(targets.matrix), *own.shape[1:]))
        coefficients[name][kept] = own
        coefficients[name].setflags(write=False)
        norms[name] = math.sqrt(max(0.0, float(squares[columns].sum())))
    measured = {each.name: getattr(solution, each.name) for each in fields(Solved)}
    return Interpolant(
        **measured | {"warnings": (*warnings, *solution.warnings)},
        kernel=gram.kernel,
        coefficients=MappingProxyType(coefficients),
        norms=MappingProxyType(norms),
        _gram=gram,
        _kept=kept,
    )


def one_hot(labels: Any, classes: int | None = None) -> np.ndarray:
    """(points, classes): one in the column of the label, zero elsewhere.

    >>> one_hot([1, 0]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    given = np.asarray(labels)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given.size and given.min() < 0):
        raise BadInput("labels: expected whole numbers from 0, one for each point")
    count = int(given.max()) + 1 if classes is None else classes
    if given.size and int(given.max()) >= count:
        raise BadInput(f"labels: there is a label {int(given.max())}, but only {count} classes")
    return np.asarray(np.eye(count)[given])


def _kernel(kernel: Kernel | str, points: Tensor) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if kernel in ("gaussian", "laplace"):
        scale = kernels.median_squared_distance(points) or 1.0
        gamma = 2 / scale if kernel == "gaussian" else 1 / math.sqrt(scale)
        return kernel_of(kernel, gamma=gamma)
    return kernel_of(kernel)


def _identity(kernel: Kernel, points: Tensor) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(points.cpu().numpy()).data).hexdigest()
    return f"{kernel.name} {sorted(kernel.parameters.items())} {tuple(points.shape)} {digest}"


def as_points(points: Any, *, what: str = "points") -> Tensor:
    """(points, coordinates) float64; images are laid out flat."""
    given = _real(points, what)
    if given.ndim == 0 or len(given) == 0:
        raise BadInput(f"{what}: there must be at least one point, got shape {tuple(given.shape)}")
    flat = given.reshape(len(given), -1).to(torch.float64)
    if flat.shape[1] == 0:
        raise BadInput(f"{what}: points without coordinates, shape {tuple(given.shape)}")
    bad = ~flat.isfinite().all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise BadInput(
            f"{what}: {int(bad.sum())} of {len(flat)} points have a coordinate that is not a "
            f"finite number, the first is point {first}; remove or repair them"
        )
    return flat


def _real(numbers: Any, what: str) -> Tensor:
    """What may be an array, a tensor or nested lists, as a tensor."""
    try:
        given = numbers if isinstance(numbers, Tensor) else torch.as_tensor(np.asarray(numbers))
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what}: expected numbers in rows of equal length ({error})") from error
    if given.is_complex():
        raise BadInput(f"{what}: complex numbers are not supported; give their two parts")
    return given.detach()


class Targets(NamedTuple):
    """All right-hand sides as the columns of one matrix.

    columns   which are whose, by name: a single one where a vector was given
    """

    matrix: Tensor
    columns: Mapping[str, slice | int]


def as_targets(values: Any, count: int) -> Targets:
    """Values, or values by name, for so many points."""
    named = dict(values) if isinstance(values, Mapping) else {"values": values}
    if not named:
        raise BadInput("values: no values were given; give numbers, or names with numbers")
    parts, start, columns = [], 0, dict[str, slice | int]()
    for name, entry in named.items():
        given = _real(entry, name).to("cpu", torch.float64)
        if given.ndim not in (1, 2) or len(given) != count or given.numel() == 0:
            raise BadInput(
                f"{name}: {count} points need values of shape ({count},) or ({count}, outputs), "
                f"not {tuple(given.shape)}"
            )
        if not bool(given.isfinite().all()):
            where = int((~given.reshape(count, -1).isfinite().all(1)).nonzero()[0])
            raise BadInput(
                f"{name}: the value at point {where} is not a finite number; no function passes "
                "through it"
            )
        parts.append(given.reshape(count, -1))
        columns[name] = start if given.ndim == 1 else slice(start, start + given.shape[1])
        start += parts[-1].shape[1]
    return Targets(torch.cat(parts, 1), columns)


def first_occurrences(points: Tensor) -> np.ndarray:
    """For every point the first point that equals it: its own number unless it is a repetition."""
    rows = np.ascontiguousarray((points.cpu() + 0.0).numpy())  # adding zero turns -0.0 into 0.0
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return np.asarray(first[which])


def check_repetitions(first: np.ndarray, targets: Targets) -> int:
    """How many points only repeat others; conflicting values among them are refused."""
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if not len(repeated):
        return 0
    differ = (targets.matrix[repeated] != targets.matrix[first[repeated]]).numpy()
    conflicts = np.flatnonzero(differ.any(1))
    if len(conflicts):
        other = int(repeated[conflicts[0]])
        own = differ[conflicts[0]]
        name = next(name for name, columns in targets.columns.items() if own[columns].any())
        raise BadInput(
            f"{len(conflicts)} of {len(first)} points equal an earlier point but have other "
            f"values: no function passes through both. The first are points {int(first[other])} "
            f"and {other} under {name!r}. Remove one of each, or make their values agree"
        )
    return len(repeated)


def check_rank(kernel: Kernel, points: Tensor, distinct: int) -> None:
    """Refuse kernels whose functions are too few for so many points."""
    # A coordinate that is the same everywhere adds nothing to a distance, and zero nothing at all.
    idle = points[0] if kernel.based_on == "distances" else torch.zeros_like(points[0])
    coordinates = int((points != idle).any(0).sum())
    if kernel.based_on == "products":
        coordinates = max(1, coordinates)
    limit = kernel.rank_limit(coordinates)
    if limit is not None and distinct > limit:
        raise BadInput(
            f"the {kernel} kernel on {coordinates} coordinates spans at most {limit:,} dimensions: "
            f"it cannot pass through {distinct:,} points whatever their values. Take a kernel "
            "without such a limit (gaussian, laplace), a higher degree, or fewer points"
        )
