"""Where the boxes of a network's picture go: layers from top to bottom, few crossings.

The usual three steps for drawing a directed graph: a row for each box (the longest way from the
input), gaps where a line passes a row, and an order within each row that follows the
neighbors above and below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_DRIFTS = 120
_STRAIGHT = 8


@dataclass(frozen=True)
class Layout:
    """Positions in units of columns and rows; a line lists the places that it passes."""

    columns: Mapping[str, float]
    rows: Mapping[str, int]
    lines: Mapping[tuple[str, str], tuple[tuple[float, int], ...]]
    width: float
    height: int


def layered(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """Lay out boxes, given in an order in which every edge points forward.

    >>> drawing = layered(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    >>> drawing.rows
    {'a': 0, 'b': 1, 'c': 2}
    >>> len(drawing.lines["a", "c"])
    3
    """
    rows = _rows(names, edges)
    levels: list[list[str]] = [[] for _ in range(max(rows.values(), default=0) + 1)]
    for name in names:
        levels[rows[name]].append(name)
    chains = {}
    links: list[tuple[str, str]] = []
    for start, end in dict.fromkeys(edges):
        chain = [start]
        for row in range(rows[start] + 1, rows[end]):
            passing = f"{start} > {end} @ {row}"
            levels[row].append(passing)
            chain.append(passing)
        chain.append(end)
        chains[start, end] = chain
        links += pairwise(chain)
    _untangle(levels, links)
    columns, width = _columns(levels, links)
    row_of = {name: row for row, level in enumerate(levels) for name in level}
    return Layout(
        columns={name: columns[name] for name in names},
        rows={name: rows[name] for name in names},
        lines={
            edge: tuple((columns[name], row_of[name]) for name in chain)
            for edge, chain in chains.items()
        },
        width=width,
        height=len(levels),
    )


def _rows(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    above: dict[str, list[str]] = {name: [] for name in names}
    for start, end in edges:
        above[end].append(start)
    rows: dict[str, int] = {}
    for name in names:
        rows[name] = max((rows[other] + 1 for other in above[name]), default=0)
    return rows


def _untangle(levels: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Order each row by the mean position of the neighbors, downward and upward in turn."""
    up: dict[str, list[str]] = {}
    down: dict[str, list[str]] = {}
    for start, end in links:
        up.setdefault(end, []).append(start)
        down.setdefault(start, []).append(end)
    best, fewest = [list(level) for level in levels], _crossings(levels, links)
    for sweep in range(_SWEEPS):
        neighbors = up if sweep % 2 == 0 else down
        for level in levels if sweep % 2 == 0 else reversed(levels):
            position = {name: k for row in levels for k, name in enumerate(row)}
            own = dict(position)

            def middle(
                name: str,
                beside: dict[str, list[str]] = neighbors,
                position: dict[str, int] = position,
                own: dict[str, int] = own,
            ) -> float:
                others = [position[other] for other in beside.get(name, [])]
                return sum(others) / len(others) if others else own[name]

            level.sort(key=middle)
        crossings = _crossings(levels, links)
        if crossings < fewest:
            best, fewest = [list(level) for level in levels], crossings
    for level, ordered in zip(levels, best, strict=True):
        level[:] = ordered


def _crossings(levels: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    position = {name: k for level in levels for k, name in enumerate(level)}
    row = {name: k for k, level in enumerate(levels) for name in level}
    count = 0
    for one, (a, b) in enumerate(links):
        for c, d in links[one + 1 :]:
            if row[a] == row[c] and (position[a] - position[c]) * (position[b] - position[d]) < 0:
                count += 1
    return count


def _columns(
    levels: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]
) -> tuple[dict[str, float], float]:
    """Boxes take a whole column, passing lines a third; then rows drift toward their neighbors."""
    beside: dict[str, list[str]] = {}
    for start, end in links:
        # A line that passes several rows should do so straight.
        pull = _STRAIGHT if " > " in start and " > " in end else 1
        beside.setdefault(start, []).extend([end] * pull)
        beside.setdefault(end, []).extend([start] * pull)
    sizes = {name: 0.34 if " > " in name else 1.0 for level in levels for name in level}
    widest = max((sum(sizes[name] for name in level) for level in levels), default=1.0)
    columns: dict[str, float] = {}
    for level in levels:
        left = (widest - sum(sizes[name] for name in level)) / 2
        for name in level:
            columns[name] = left + sizes[name] / 2
            left += sizes[name]
    for sweep in range(_DRIFTS):
        for level in levels if sweep % 2 == 0 else reversed(levels):
            wanted = [
                sum(columns[other] for other in beside[name]) / len(beside[name])
                if beside.get(name)
                else columns[name]
                for name in level
            ]
            # Keep the order and the distances: push to the right where two come too close, then
            # move the row as a whole to where it is wanted.
            placed: list[float] = []
            for name, want in zip(level, wanted, strict=True):
                least = (
                    placed[-1] + (sizes[level[len(placed) - 1]] + sizes[name]) / 2
                    if placed
                    else want
                )
                placed.append(max(want, least))
            shift = sum(w - p for w, p in zip(wanted, placed, strict=True)) / len(level)
            for name, x in zip(level, placed, strict=True):
                columns[name] = x + shift
    lowest = min((columns[name] - sizes[name] / 2 for name in columns), default=0.0)
    columns = {name: x - lowest for name, x in columns.items()}
    return columns, max((columns[name] + sizes[name] / 2 for name in columns), default=1.0)
