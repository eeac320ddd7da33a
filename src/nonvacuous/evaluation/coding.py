"""Columns of any kind as whole numbers: one code per value, and one digest per column."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput

#: How a row is named that has no line in a file of text.
ROW = "row {} (counted from 0)"


def plain(values: Any, name: str) -> Any:
    """A column as a numpy array (or an arrow array of text): numbers as int64, float64 or bool.

    Missing values, nested ones and mixtures of numbers and words are refused, with the row.
    """
    if hasattr(values, "dictionary_encode"):
        return _from_arrow(values, name)
    array = to_numpy(values)
    if array.ndim == 0:
        raise BadInput(f"{name} is a single {type(values).__name__}; give one for each example.")
    if array.dtype == object:
        array = _from_objects(array, name)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
            raise BadInput(f"{name} has whole numbers of 2^63 and more; give them as words.")
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        lost = ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
        _check_there(lost, name, words=False)
        whole = array.astype(np.int64) if float(np.abs(array).max(initial=0.0)) < 2**53 else None
        if array.ndim == 1 and whole is not None and (whole == array).all():
            return whole
        return array.astype(np.float64)
    if array.dtype.kind in "US":
        try:
            array = array.astype(str)
        except UnicodeDecodeError as error:
            raise BadInput(f"{name} holds bytes that are no text in ASCII; decode them.") from error
        _check_there((array == "").any(axis=tuple(range(1, array.ndim))), name, words=True)
        _check_characters(array, name)
        return array
    raise BadInput(
        f"{name} holds {array.dtype} values; numbers and words are understood. Give what are names "
        "as words, as in .astype(str)."
    )


def one_each(values: Any, name: str) -> Any:
    """A plain column with one value for each row: names, among which true is 1."""
    column = plain(values, name)
    if getattr(column, "ndim", 1) > 1:
        raise BadInput(f"{name} must have one value per row, got shape {column.shape}.")
    if not is_text(column):
        check_exact(column, name)
        column = column.astype(np.int64) if column.dtype.kind == "b" else column
    return column


def check_exact(column: np.ndarray, name: str) -> None:
    """Refuse numbers that may be names, and of which several have become the same double."""
    if column.dtype.kind == "f" and np.abs(column).max(initial=0.0) >= 2**53:
        raise BadInput(
            f"{name} has whole numbers of 2^53 and more as floats, of which several are the same: "
            "give them as words, as they were first written."
        )


def to_numpy(values: Any) -> np.ndarray:
    """A tensor, a column of a table or anything like an array as one of numpy's."""
    if hasattr(values, "detach"):  # of torch, whose bfloat16 numpy does not know
        values = values.detach().cpu()
        values = (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        lost, values = np.ma.getmaskarray(values), np.array(values.data, dtype=object)
        values[lost] = None
    kinds = set(map(type, values)) if isinstance(values, list | tuple) else set()
    if any(issubclass(kind, str) for kind in kinds):
        # Among words numpy would make a word of anything, of a missing value too.
        return np.array(values, dtype=object if len(kinds) > 1 else str)
    try:
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError as error:
        raise BadInput(f"a column cannot be read as numbers or words ({error}).") from error


def is_text(column: Any) -> bool:
    """Whether a plain column holds words."""
    return hasattr(column, "dictionary_encode") or column.dtype.kind == "U"


def as_array(column: Any) -> np.ndarray:
    """A column as a numpy array, words included."""
    if hasattr(column, "dictionary_encode"):
        return np.array(column.to_pylist(), dtype=str)
    return to_numpy(column)


def is_lost(value: Any) -> bool:
    """Whether a value says that there is none: of JSON, of text, of floats, of pandas."""
    if isinstance(value, str | float):
        return value == "" or value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    items = array.tolist()
    words = any(isinstance(item, str) for item in items)
    _check_there(list(map(is_lost, items)), name, words=words)
    kinds = {type(item) for item in items}
    if all(issubclass(kind, str) for kind in kinds):
        return np.array(items, dtype=str)
    if all(issubclass(kind, int | float | np.bool_ | np.integer | np.floating) for kind in kinds):
        return np.array(items)
    raise BadInput(
        f"{name} {'mixes' if len(kinds) > 1 else 'has'} values of the kinds "
        f"{', '.join(sorted(kind.__name__ for kind in kinds))}; use numbers or words alone, as in "
        ".astype(str)."
    )


def _from_arrow(values: Any, name: str) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    words = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    lost = values.is_null()
    if words:
        lost = pa.compute.or_(lost, pa.compute.fill_null(pa.compute.equal(values, ""), False))
    _check_there(lost.to_numpy(zero_copy_only=False), name, words=words)
    if words:
        return values.cast(pa.large_string())
    if pa.types.is_nested(values.type):
        return plain(values.to_pylist(), name)
    return plain(values.to_numpy(zero_copy_only=False), name)


def _check_characters(array: np.ndarray, name: str) -> None:
    """Refuse halves of characters (surrogates without their others), which no file can hold."""
    size = max(1, array.itemsize // 4 * (array.size // max(1, len(array))))
    halves = np.flatnonzero(np.ascontiguousarray(array).ravel().view(np.uint32) >> 11 == 0x1B)
    if len(halves):
        raise BadRow(
            f"{name} has half of a character (a lone surrogate) in",
            int(halves[0]) // size,
            ". Write it without, or name the value otherwise.",
        )


class BadRow(BadInput):
    """A value that cannot be used, and its row; whoever has read it from a file names the line."""

    def __init__(
        self, before: str, row: int, after: str, where: Callable[[int], str] = ROW.format
    ) -> None:
        super().__init__(f"{before} {where(row)}{after}")
        self.parts = before, row, after


def _check_there(lost: Any, name: str, *, words: bool) -> None:
    """Refuse rows that are ``lost``: without a value."""
    rows = np.flatnonzero(lost)
    if not len(rows):
        return
    kind = "missing" if words else "missing or infinite"
    remedy = (
        "Give them a name of their own (such as 'unknown'), or leave the rows out for a reason "
        "that does not depend on the errors."
        if words
        else "Leave the row out if it was not tested, or say what is missing; a row that is left "
        "out because of its error makes the test false."
    )
    said = f"{name} has {len(rows)} {kind} value(s), the first in"
    raise BadRow(said, int(rows[0]), f". {remedy}")


class Coder:
    """Values as codes 0, 1, 2, ... in the order of their first batch; ``values`` names them.

    Where one value is a fraction all numbers are named as doubles, whichever batch came first.
    """

    def __init__(self, known: Iterable[str | int | float] = ()) -> None:
        self.values: list[str | int | float] = list(known)
        self._fractions = False
        self._codes: dict[str | int | float, int] = {v: code for code, v in enumerate(self.values)}

    def __call__(self, column: Any) -> np.ndarray:
        """Codes of a column that :func:`plain` made."""
        if hasattr(column, "dictionary_encode"):
            encoded = column.dictionary_encode()
            codes = self._table(encoded.dictionary.to_pylist())
            return np.asarray(codes[encoded.indices.to_numpy()])
        if not len(column):
            return np.empty(0, dtype=np.int64)
        if column.dtype.kind == "i":
            low, high = int(column.min()), int(column.max())
            if high - low < 1 << 16:
                shifted = column - low
                seen = np.flatnonzero(np.bincount(shifted))
                table = np.zeros(high - low + 1, dtype=np.int64)
                table[seen] = self._table((seen + low).tolist())
                return np.asarray(table[shifted])
        distinct, where = np.unique(column, return_inverse=True)
        return self._table(distinct.tolist())[where]

    def sorted_codes(self) -> list[int]:
        """The codes in the order of their values, which does not depend on batches or formats."""
        return sorted(
            range(len(self.values)), key=lambda c: (isinstance(self.values[c], str), self.values[c])
        )

    def code(self, value: str | int | None) -> int:
        """The code of a value, by how it is written; -1 where it never occurred."""
        return next((c for c, v in enumerate(self.values) if str(v) == str(value)), -1)

    def _table(self, values: Sequence[str | int | float]) -> np.ndarray:
        if not self._fractions and any(isinstance(value, float) for value in values):
            self._fractions = True
            self.values = [_as_double(value) for value in self.values]
        for value in values:
            if value not in self._codes:
                self._codes[value] = len(self.values)
                self.values.append(_as_double(value) if self._fractions else value)
        return np.array([self._codes[value] for value in values], dtype=np.int64)


def _as_double(value: str | int | float) -> str | int | float:
    """The number as a double, where that is the same number."""
    return float(value) if isinstance(value, int) and abs(value) < 2**53 else value


class ColumnDigest:
    """SHA-256 of a column, the same however it is cut into batches and wherever it is stored.

    Whole numbers are read as such, and as doubles as soon as one number of the column is a
    fraction: a batch of whole numbers alone is no column of another kind.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, tuple[Any, Any]] = {}
        #: By shape, all numbers so far as doubles, from the first batch of whole numbers on.
        self._doubles: dict[str, Any] = {}

    def update(self, column: Any) -> None:
        if hasattr(column, "dictionary_encode"):
            offsets = np.frombuffer(column.buffers()[1], dtype="<i8")
            offsets = offsets[column.offset : column.offset + len(column) + 1]
            content = memoryview(column.buffers()[2] or b"")[offsets[0] : offsets[-1]]
            self._feed("text", np.diff(offsets).astype("<i8").tobytes(), content)
        elif column.dtype.kind == "U":
            encoded = [text.encode() for text in column.ravel().tolist()]
            lengths = np.array([len(text) for text in encoded], dtype="<i8")
            kind = "text" if column.ndim == 1 else f"text {column.shape[1:]}"
            self._feed(kind, lengths.tobytes(), b"".join(encoded))
        else:
            self._feed_numbers(column, f"{column.shape[1:]}")

    def _feed_numbers(self, column: np.ndarray, shape: str) -> None:
        if column.dtype.kind in "bi":
            if shape not in self._doubles:
                before = self._hashes.get(f"real {shape}")
                self._doubles[shape] = before[0].copy() if before else hashlib.sha256()
            self._feed(f"whole {shape}", _bytes_of(column, "<i8"), b"")
        else:
            self._feed(f"real {shape}", _bytes_of(column, "<f8"), b"")
        if shape in self._doubles:
            self._doubles[shape].update(_bytes_of(column, "<f8"))

    def _feed(self, kind: str, first: Any, second: Any) -> None:
        pair = self._hashes.setdefault(kind, (hashlib.sha256(), hashlib.sha256()))
        pair[0].update(first)
        pair[1].update(second)

    @property
    def mixed(self) -> bool:
        """Whether some of it are words and some numbers: 1 and "1" have one name."""
        return len({kind.startswith("text") for kind in self._hashes}) > 1

    @property
    def whole(self) -> bool:
        """Whether all of it are whole numbers, one for each row."""
        return set(self._hashes) == {"whole ()"}

    def hexdigest(self) -> str:
        hashes = dict(self._hashes)
        for shape, doubles in self._doubles.items():
            if f"real {shape}" in hashes:
                del hashes[f"whole {shape}"]
                hashes[f"real {shape}"] = doubles, hashlib.sha256()
        return _joined(hashes)

    def as_cut(self) -> str:
        """What older versions wrote: batches of whole numbers apart from those with fractions."""
        return _joined(self._hashes)


def _bytes_of(column: np.ndarray, kind: str) -> memoryview:
    return np.ascontiguousarray(column.astype(kind, copy=False)).data.cast("B")


def _joined(hashes: dict[str, tuple[Any, Any]]) -> str:
    whole = hashlib.sha256()
    for kind, (first, second) in sorted(hashes.items()):
        whole.update(kind.encode() + first.digest() + second.digest())
    return whole.hexdigest()
