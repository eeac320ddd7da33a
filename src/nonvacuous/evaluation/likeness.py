"""Rows that were there before: clusters that nobody declared."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import spatial

from nonvacuous.evaluation.coding import is_text, to_numpy

#: Repeated values are looked for among so many hashes at most.
MOST_HASHES = 1 << 21
#: Inputs of fewer numbers, or shorter texts, may well come twice by chance.
RICH, LONG = 32, 40
#: Inputs that differ by less than this part of their norm hardly differ; among so many at most.
NEAR, MOST_NEAR = 0.03, 1 << 16
_DIRECTIONS = 16
# So many numbers, each with so many values among the first rows, hardly come together twice.
_TELLING, _MANY, _FIRST = 4, 100, 512


def hashes_of(column: Any, code: Callable[[str], int] = hash) -> np.ndarray:
    """A number of 64 bits for each value of a plain column: two that differ hardly share one."""
    if is_text(column):
        items = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
        bits = np.fromiter(map(code, items), dtype=np.int64, count=len(items))
        return _mixed(bits.view(np.uint64))
    return _mixed(np.ascontiguousarray(column).view(np.uint64))


def _mixed(bits: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64: every bit depends on every other."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


class Unordered:
    """What identifies some values in whatever order they come, here and in any other process."""

    def __init__(self) -> None:
        self._sums = [0, 0]

    def add(self, column: Any) -> None:
        """Values of a plain column."""
        # What Python itself makes of a text changes from one process to the next.
        bits = hashes_of(column, lambda text: zlib.crc32(text.encode()))
        for at, hashes in enumerate((bits, _mixed(~bits))):
            self._sums[at] = (self._sums[at] + int(hashes.sum(dtype=np.uint64))) % 2**64

    def hexdigest(self) -> str:
        return "".join(f"{total:016x}" for total in self._sums)


class Distinct:
    """Counts repeated values in bounded memory: of too many, only those of some hashes are kept."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._waiting: list[np.ndarray] = []
        self._mask = np.uint64(0)
        self._repeats = 0

    def add(self, values: np.ndarray) -> None:
        self._waiting.append(values[values & self._mask == 0])
        if sum(map(len, self._waiting)) > MOST_HASHES // 2:
            self._merge()

    def _merge(self) -> None:
        values = np.concatenate([self._hashes, *self._waiting])
        self._waiting = []
        values.sort()  # several times as fast as np.unique
        self._hashes = values[np.diff(values, prepend=values[:1] + np.uint64(1)) != 0]
        self._repeats += len(values) - len(self._hashes)
        while len(self._hashes) > MOST_HASHES:
            self._mask = self._mask * np.uint64(2) + np.uint64(1)
            self._hashes = self._hashes[self._hashes & self._mask == 0]

    def repeated(self) -> int:
        self._merge()
        return self._repeats


class Likeness:
    """Inputs that were given before, and those that hardly differ from another one.

    Numbers are compared up to brightness and contrast (their mean and their norm) in sixteen fixed
    random directions; texts up to case, punctuation and spaces.
    """

    def __init__(self) -> None:
        self.rows = 0
        #: Whether an input says enough to come only once by chance.
        self.rich = True
        self._exact, self._alike = Distinct(), Distinct()
        self._points: list[np.ndarray] = []
        self._weights: tuple[np.ndarray, np.ndarray] | None = None
        self._first: np.ndarray | None = None

    @property
    def telling(self) -> bool:
        """Whether an input says enough for one in a hundred not to come again by chance."""
        if self._first is None:
            return self.rich
        return sum(len(np.unique(column)) >= _MANY for column in self._first.T) >= _TELLING

    def add(self, inputs: Any) -> bool:
        """Look at one more batch; False for inputs that are neither numbers nor texts."""
        if isinstance(inputs, list | tuple) and not isinstance(inputs[0], str):
            return False
        array = to_numpy(inputs)
        single = array.ndim > 0 and array.size == len(array)
        if array.dtype.kind in "OU" and single and all(isinstance(v, str) for v in array.flat):
            self._add_texts(array.ravel().tolist())
        elif array.dtype.kind in "biuf" and array.ndim >= 1:
            self._add_numbers(array.reshape(len(array), -1).astype(np.float64))
        else:
            return False
        self.rows += len(array)
        return True

    def _add_texts(self, texts: list[str]) -> None:
        self.rich = self.rich and sum(map(len, texts)) >= LONG * len(texts)
        self._exact.add(hashes_of(np.array(texts, dtype=str)))
        bare = ["".join(c for c in text.casefold() if c.isalnum()) for text in texts]
        self._alike.add(hashes_of(np.array(bare, dtype=str)))

    def _add_numbers(self, rows: np.ndarray) -> None:
        size = rows.shape[1]
        self.rich = self.rich and size >= RICH
        if self._weights is None or len(self._weights[0]) != size:
            generator = np.random.default_rng(size)
            weights = np.asarray(2 * generator.integers(0, 2**63, size, dtype=np.uint64) + 1)
            directions = generator.normal(size=(size, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
            self._weights = weights, np.asarray(directions)
            self._first = np.empty((0, min(size, RICH)))
        if self._first is not None and len(self._first) < _FIRST:
            self._first = np.concatenate([self._first, rows[:_FIRST, :RICH]])
        odd, directions = self._weights
        self._exact.add(_mixed((hashes_of(rows) * odd).sum(axis=1)))
        if self.rich and sum(map(len, self._points)) < MOST_NEAR:
            with np.errstate(all="ignore"):  # numbers may be missing, or infinite
                centered = rows - rows.mean(axis=1, keepdims=True)
                norms = np.linalg.norm(centered, axis=1, keepdims=True)
                points = (centered / np.maximum(norms, 1e-300)) @ directions
            self._points.append(points[np.isfinite(points).all(axis=1)])

    def repeated(self) -> int:
        """How many inputs are the same as one before, at least."""
        return self._exact.repeated()

    def nearly(self) -> int:
        """How many more hardly differ from another one, at least."""
        alike = self._alike.repeated()
        if self._points:
            points = np.concatenate(self._points)[:MOST_NEAR]
            pairs = spatial.cKDTree(points).query_pairs(NEAR, output_type="ndarray")
            alike = len(np.unique(pairs[:, 1]))
        return max(0, alike - self.repeated())
