"""The words the command was started with, for messages that say how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_words: ContextVar[tuple[str, ...]] = ContextVar("words", default=())


@contextmanager
def started_with(tokens: Sequence[str]) -> Iterator[None]:
    """Remember the words for as long as the command runs."""
    token = _words.set(tuple(tokens))
    try:
        yield
    finally:
        _words.reset(token)


def again(
    *extra: str, without: Sequence[str] = (), replacing: Mapping[str, str] | None = None
) -> str:
    """The same command once more: with ``extra`` words, without some, with some flags replaced.

    >>> with started_with(["certify", "--data", "my file.npz", "--device=cuda", "--force"]):
    ...     print(again("--resume", without=["--force"], replacing={"--device": "cpu"}))
    nonvacuous certify --data 'my file.npz' --device cpu --resume
    """
    changes = dict(replacing or {})
    kept: list[str] = []
    words = iter(_words.get())
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in changes:
            if not equals:
                next(words, None)
            kept += [flag, changes.pop(flag)]
        elif word not in without and word not in extra:
            kept.append(word)
    for flag, value in changes.items():
        kept += [flag, value]
    return shlex.join(["nonvacuous", *kept, *extra])
