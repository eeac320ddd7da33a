"""What people have at hand, as points and values: checked, copies of a point settled."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, bfloat16, float32

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.memory import available_memory
from nonvacuous.seeds import derived_seed

#: Bytes of Python numbers kept per point, measured with some to spare: position, knot, value,
#: weight (a fraction of two whole numbers) and what the exact walk needs.
BYTES_PER_POINT = 1200
#: Values from 0 up to this many are taken for classes.
MOST_CLASSES = 10_000


@dataclass(frozen=True, eq=False)
class Values:
    """Values as whole numbers times a power of two: value = integers * 2**-fraction_bits.

    integers        Python numbers, one for each point
    fraction_bits   0 where all values are whole numbers
    classes         the number of classes where the values are the classes 0, 1, 2, ...
    """

    integers: tuple[int, ...]
    fraction_bits: int
    classes: int | None

    def floats(self) -> np.ndarray:
        """The values as float64, exactly where float64 can."""
        denominator = 1 << self.fraction_bits
        return np.array([value / denominator for value in self.integers], dtype=np.float64)


def read_points(
    anything: Any, *, shape: tuple[int, ...] | None = None
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Points from Examples, a tensor, an array or nested lists; one number per point will do.

    As rows of an array of whole numbers or floats, and the shape that one point has.
    """
    array = _as_array(anything.inputs if isinstance(anything, Examples) else anything, "points")
    if array.ndim == 0:
        raise BadInput("points: one number is not a list of points; give an array (points, ...)")
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or array.dtype == np.uint64:
        raise BadInput(
            f"points: dtype {array.dtype} cannot be taken exactly; give signed whole numbers of at "
            "most 64 bits, or float16, float32 or float64"
        )
    if len(array) == 0:
        raise BadInput("points: there are none; give at least one point and its value")
    given = tuple(int(size) for size in array.shape[1:]) or (1,)
    if math.prod(given) == 0:
        raise BadInput(f"points: each point is empty (shape {array.shape}); give features")
    if shape is not None and math.prod(shape) != math.prod(given):
        raise BadInput(
            f"points: one point has shape {given}, but this network was made for {shape}; give "
            "points of that shape"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return array.reshape(len(array), -1), given


def read_values(anything: Any, points: Any, *, count: int) -> Values:
    """The values to memorize: whole numbers or finite floats, one for each point.

    Where ``points`` are Examples and no values are given, their labels are memorized.
    """
    classes = None
    if isinstance(points, Examples):
        classes = points.classes
        anything = points.labels if anything is None else anything
    if anything is None:
        raise BadInput("values: there are none; give one number for each point")
    array = _as_array(anything, "values")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) != count:
        raise BadInput(
            f"values: shape {array.shape}, but there are {count:,} points; give one number for "
            "each point (for one-hot rows: values.argmax(axis=1))"
        )
    if array.dtype.kind in "iub":
        integers = tuple(int(value) for value in array.tolist())
        smallest, largest = min(integers), max(integers)
        if classes is None or not (smallest >= 0 and largest < classes):
            classes = largest + 1 if smallest >= 0 and largest < MOST_CLASSES else None
        return Values(integers, 0, classes)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise BadInput(f"values: dtype {array.dtype} is not a number; give integers or float64")
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        raise BadInput(
            f"values: {wrong.size:,} of {count:,} are NaN or infinite, the first at position "
            f"{int(wrong[0])}; no network can output them: repair or remove these points"
        )
    ratios = [value.as_integer_ratio() for value in array.astype(np.float64).tolist()]
    bits = max(denominator.bit_length() - 1 for _, denominator in ratios)
    integers = tuple(top << (bits - bottom.bit_length() + 1) for top, bottom in ratios)
    return Values(integers, bits, None)


def check_memory(count: int, dimensions: int) -> None:
    """Refuse now what would fail for want of memory in an hour."""
    needed, room = count * BYTES_PER_POINT + dimensions * 64, available_memory()
    if needed > room:
        raise BadInput(
            f"points: {count:,} points need about {needed / 2**30:,.1f} GiB for exact arithmetic, "
            f"but {room / 2**30:,.1f} GiB are free; memorize a part of them, or use a machine "
            "with more memory"
        )


def _as_array(values: Any, what: str) -> np.ndarray:
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        # numpy has no bfloat16; float32 holds all of its values.
        return (tensor.to(float32) if tensor.dtype == bfloat16 else tensor).numpy()
    try:
        array = np.asarray(values)
    except Exception as error:  # any foreign object may raise anything here
        raise BadInput(f"{what}: cannot be read as an array ({error})") from error
    if array.dtype.hasobject or array.dtype.kind in "USc":
        raise BadInput(
            f"{what}: dtype {array.dtype} is not a kind of real number (rows of unequal length, "
            "missing values, text?); give an array of numbers"
        )
    return array


def random_labels(examples: Examples, *, seed: int) -> np.ndarray:
    """Labels drawn independently and uniformly from the classes."""
    generator = np.random.default_rng(derived_seed(seed, "random labels"))
    return generator.integers(0, examples.classes, size=len(examples))


@dataclass(frozen=True)
class Duplicates:
    """How many points are copies, and what no function of the points can get right.

    points        all points
    distinct      different ones
    conflicting   different ones that come with two or more values
    floor         the fewest points that any function whatsoever gets wrong
    first         positions of two copies with different values, where there are any
    """

    points: int
    distinct: int
    conflicting: int
    floor: int
    first: tuple[int, int] | None


class ConflictingValues(BadInput):
    """Copies of a point have different values; ``duplicates`` says how many cannot be right."""

    def __init__(self, message: str, duplicates: Duplicates) -> None:
        super().__init__(message)
        self.duplicates = duplicates


def settle(
    values: Values, order: np.ndarray, starts: np.ndarray, *, conflicts: str
) -> tuple[tuple[int, ...], Duplicates]:
    """One value for each distinct point, the most frequent one, and what was seen on the way.

    ``conflicts="refuse"`` raises where copies of a point come with different values; "majority"
    goes on, and the report says how many points cannot be right.
    """
    ends = np.append(starts[1:], len(order))
    kept: list[int] = []
    conflicting = floor = 0
    first: tuple[int, int] | None = None
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start == 1:
            kept.append(values.integers[order[start]])
            continue
        members = sorted(order[start:end].tolist())
        counts = Counter(values.integers[i] for i in members)
        # The earliest of equally frequent values: Counter keeps the order of first occurrence.
        value, votes = max(counts.items(), key=lambda entry: entry[1])
        kept.append(value)
        if len(counts) > 1:
            conflicting += 1
            floor += len(members) - votes
            other = next(i for i in members if values.integers[i] != values.integers[members[0]])
            first = min(first or (members[0], other), (members[0], other))
    duplicates = Duplicates(len(order), len(starts), conflicting, floor, first)
    if conflicting and conflicts == "refuse":
        assert first is not None
        everything = "all points are identical; " if duplicates.distinct == 1 else ""
        raise ConflictingValues(
            f"values: {everything}{conflicting:,} of {duplicates.distinct:,} distinct points come "
            f"with different values (for instance positions {first[0]} and {first[1]}), so every "
            f"function is wrong on at least {floor:,} of {duplicates.points:,} points. Repair the "
            'values, or keep the most frequent value of each point with conflicts="majority"',
            duplicates,
        )
    return tuple(kept), duplicates
