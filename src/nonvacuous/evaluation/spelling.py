"""Texts of CSV as numbers or words, such that names that differ stay different."""

from __future__ import annotations

from typing import Any

from nonvacuous.errors import BadInput

#: Texts that are names although they could be read as numbers: 007 and 12E3.
_NAMES = r"^-?(0[0-9xX]|[0-9]+[eE][0-9])|^-0$"
#: Whole numbers as pandas writes them in a column of which one is missing.
_POINTS = r"^(0|-?[1-9][0-9]*)\.0$"
#: More digits than a double has.
_LONG = r"|^-?[0-9]{17,}$"


class Typed:
    """A column of text as what its first batch is: numbers, true and false, or words.

    Names that differ stay different: no text becomes a number that another text becomes too. What
    is ``measured`` has no names: numbers, however they are written.
    """

    def __init__(self, role: str, name: str, *, measured: bool) -> None:
        import pyarrow as pa

        self._name, self._measured = name, measured
        # Fractions among them are names, such as 1.1 and 1.10.
        self._named = role.startswith(("group:", "where ")) or role in ("clusters", "ids")
        # What the first batch says holds for all: 1.0 and 2.0 alone are 1 and 2.
        self._points: bool | None = None if self._named and not role.startswith("where ") else False
        whole = [] if measured else [pa.int64()]  # which a fraction in a later batch is not
        self._kinds = [*whole, pa.bool_(), pa.float64(), pa.string()]

    def __call__(self, texts: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow.csv import ConvertOptions

        bare = pc.utf8_trim_whitespace(texts)
        lost = pc.is_in(bare, value_set=pa.array(ConvertOptions().null_values))
        bare = pc.if_else(lost, None, bare)
        if self._points is not False:
            self._points = pc.all(pc.match_substring_regex(bare, _POINTS)).as_py()
            bare = pc.replace_substring_regex(bare, r"\.0$", "") if self._points else bare
        for kind in self._kinds:
            values = texts if kind == pa.string() else self._read(bare, kind)
            if values is not None:
                self._kinds = [kind]  # of the batches to come too
                as_written = self._named and kind == pa.float64()
                return pc.if_else(lost, None, texts) if as_written else values
        kinds = {"int64": "whole numbers", "bool": "true and false"}
        raise BadInput(
            f"{self._name} begins with {kinds.get(str(self._kinds[0]), 'numbers')}, and something "
            "else follows later. Save it as parquet, in which all of a column is of one kind."
        )

    def _read(self, bare: Any, kind: Any) -> Any:
        """The texts as numbers, or as true and false; None where one of them is something else."""
        import pyarrow as pa
        import pyarrow.compute as pc

        other = _NAMES if kind == pa.int64() else _NAMES + _LONG
        if kind == pa.bool_():
            other = "^[01]"  # which pyarrow reads as such
        elif self._measured:
            other = "^$"
        if pc.any(pc.match_substring_regex(bare, other)).as_py():
            return None
        try:
            bare.slice(0, 1000).cast(kind)  # words are found out soon
            values = bare.cast(kind)
        except pa.ArrowInvalid:
            return None
        if kind == pa.float64() and not self._measured and not self._named:
            self._check_spelling(bare, values)
        return values

    def _check_spelling(self, bare: Any, values: Any) -> None:
        """Classes are whole; of fractions nobody asks how they are written."""
        import pyarrow.compute as pc

        if not pc.all(pc.equal(values, pc.floor(values))).as_py():
            return
        seen: dict[float, str] = {}
        for text in bare.unique().drop_null().to_pylist():
            if (other := seen.setdefault(float(text), text)) != text:
                raise BadInput(
                    f"{self._name} writes one number as {other!r} and as {text!r}. If these are "
                    "names, save it as parquet or JSON lines, as words; if they are numbers, write "
                    "each in one way."
                )
