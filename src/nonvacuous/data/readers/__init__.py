"""One reader per file format; each returns checked examples and runs nothing found in a file."""

from __future__ import annotations

from collections.abc import Callable

from nonvacuous.data.examples import Dataset
from nonvacuous.foreign import READERS, imported

#: The readers themselves. Outside the library, one more is entered here.
FILE_READERS: dict[str, Callable[..., Dataset]] = {
    ending: imported(f"{__name__}.{path}") for ending, path in READERS.items()
}
