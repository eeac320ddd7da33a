"""A picture of a network: what computes what, and which channels scale together.

Plain SVG. A box is a layer (or a run of operations without weights); its chips say what happens to
its weights: λ1 multiplies them, 1/λ1 divides them. Lines carry the color of the channels that
they pass on, gray where these keep the scale 1. Numbers and dashes say everything that colors do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx
import numpy as np
from scipy.optimize import isotonic_regression

from nonvacuous.networks import LayerGraph, Node, ScaleGroups
from nonvacuous.report import html, wording

#: Dark enough for white text and lines on white, told apart by most color-blind readers.
COLORS = ("#0b66a8", "#b4500a", "#1b7f4d", "#8a3b8f", "#7a6400", "#a8324a", "#3f5f73", "#5a4bb0")
_GRAY, _RED = "#767676", "#b00020"
_BOX, _GAP, _ROW, _HEIGHT, _MARGIN = 240, 28, 84, 50, 24
_LEGEND_LINE = 22
#: Rows are gone through so often, first to find their order, then to straighten the lines.
_ORDERINGS, _SWEEPS = 16, 96
#: The width of a line that passes a row, in columns; between two such points it pulls strongly.
_PASSING, _STRAIGHT = 0.34, 8


@dataclass(frozen=True)
class Box:
    """One box: its nodes in order, the groups that touch its weights, the groups it passes on."""

    name: str
    nodes: tuple[Node, ...]
    multiplied: tuple[int, ...]
    divided: tuple[int, ...]
    stream: tuple[int, ...]
    blocked: bool

    @property
    def heading(self) -> str:
        return self.nodes[0].layer or ("input" if not self.nodes[0].op else "")

    @property
    def detail(self) -> str:
        # aten.conv2d.default is conv2d.
        names = [node.op.split(".")[1] if "." in node.op else node.op for node in self.nodes]
        names = list(dict.fromkeys(filter(None, names)))
        shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
        sizes = "x".join(map(str, self.nodes[-1].shape[1:])) or "one number"
        return f"{shown}   {sizes}" if shown else sizes


def picture(graph: LayerGraph, groups: ScaleGroups, *, title: str) -> str:
    """The picture as SVG text."""
    boxes = _boxes(graph, groups)
    owner = {node.name: box.name for box in boxes for node in box.nodes}
    edges = [
        (owner[source], box.name)
        for box in boxes
        for source in box.nodes[0].inputs
        if source in owner
    ]
    layout = layered([box.name for box in boxes], edges)
    legend = []
    for k, group in enumerate(groups.groups):
        text = f"{group.name}: {wording.plural(group.size, 'channel')}, each with its own scale"
        legend.append((f"λ{k + 1}", color_of(k), text))
    legend.append(("", _GRAY, "dashed gray: channels that keep the scale 1"))
    if graph.support:
        legend.append(("", _RED, "dashed red: no scale passes this layer (see the text output)"))
    width = max(layout.width * (_BOX + _GAP), 520) + 2 * _MARGIN
    left, top = (width - layout.width * (_BOX + _GAP)) / 2, _MARGIN + 34
    below = top + layout.height * _ROW + 12
    by_name = {box.name: box for box in boxes}

    def at(point: tuple[float, int]) -> tuple[float, float]:
        column, row = point
        return left + column * (_BOX + _GAP), top + row * _ROW + _HEIGHT / 2

    return html.page(
        "network.svg.jinja",
        title=title,
        channels="; ".join(f"{group.name}, {group.size} channels" for group in groups.groups),
        size=(width, below + len(legend) * _LEGEND_LINE + _MARGIN),
        box_size=(_BOX, _HEIGHT),
        margin=_MARGIN,
        lines=[
            _line([*map(at, points)], by_name[start], by_name[end])
            for (start, end), points in layout.lines.items()
        ],
        boxes=[_drawn(box, *at(layout.points[box.name])) for box in boxes],
        legend=[(below + k * _LEGEND_LINE, *entry) for k, entry in enumerate(legend)],
    )


def color_of(group: int) -> str:
    """The color of a group; the numbers on the chips tell apart what the colors repeat."""
    return COLORS[group % len(COLORS)]


@dataclass(frozen=True)
class Layout:
    """Middles in units of columns and rows; a line lists the points that it passes."""

    points: Mapping[str, tuple[float, int]]
    lines: Mapping[tuple[str, str], tuple[tuple[float, int], ...]]
    width: float
    height: int


def layered(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """Where boxes go: as many rows down as the longest way from the input, near their neighbors.

    >>> drawing = layered(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    >>> [drawing.points[name][1] for name in "abc"], len(drawing.lines["a", "c"])
    ([0, 1, 2], 3)
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    levels: list[list[str]] = [list(level) for level in networkx.topological_generations(graph)]
    rows = {name: row for row, level in enumerate(levels) for name in level}
    # A line that passes rows has a point of its own in each, around which the boxes make room.
    links, chains = networkx.DiGraph(), {}
    links.add_nodes_from(names)
    for start, end in graph.edges:
        passed = range(rows[start] + 1, rows[end])
        chains[start, end] = [start, *(f"{start} > {end} @ {row}" for row in passed), end]
        networkx.add_path(links, chains[start, end])
        for row, point in zip(passed, chains[start, end][1:-1], strict=True):
            levels[row].append(point)
    width = {name: 1.0 if name in rows else _PASSING for name in links}
    x = _columns(levels, links, width)
    left = min((x[name] - width[name] / 2 for name in x), default=0.0)
    points = {name: (x[name] - left, k) for k, level in enumerate(levels) for name in level}
    return Layout(
        points={name: points[name] for name in names},
        lines={edge: tuple(points[name] for name in chain) for edge, chain in chains.items()},
        width=max((x[name] + width[name] / 2 for name in x), default=1.0) - left,
        height=len(levels),
    )


def _columns(
    levels: list[list[str]], links: networkx.DiGraph, width: Mapping[str, float]
) -> dict[str, float]:
    """Middles near those of the neighbors, as the shortest lines have them; the rows are sorted."""
    pull = {(a, b): _STRAIGHT if width[a] == width[b] == _PASSING else 1 for a, b in links.edges}
    x = {name: k - len(level) / 2 for level in levels for k, name in enumerate(level)}
    best, shortest = x, math.inf
    for sweep in range(_SWEEPS):
        down, ordering = sweep % 2 == 0, sweep < _ORDERINGS
        for level in levels if down else reversed(levels):
            wanted = {}
            for name in level:
                near = [(x[other], pull[other, name]) for other in links.pred[name]]
                after = [(x[other], pull[name, other]) for other in links.succ[name]]
                near = near + after if not ordering else near if down else after
                total = sum(weight for _, weight in near)
                wanted[name] = sum(at * w for at, w in near) / total if near else x[name]
            if ordering:
                level.sort(key=wanted.__getitem__)
            middles = _apart([wanted[name] for name in level], [width[name] for name in level])
            x = {**x, **dict(zip(level, middles, strict=True))}
        length = sum(weight * abs(x[a] - x[b]) for (a, b), weight in pull.items())
        if length < shortest:
            best, shortest = x, length
    return best


def _apart(targets: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Middles of boxes of these widths, in the order of their targets and as near as possible."""
    middles = np.add(widths[1:], widths[:-1]) / 2
    offsets = np.cumsum([0.0, *middles])
    moved = isotonic_regression(np.subtract(targets, offsets)).x
    return [float(x) for x in moved + offsets]


def _boxes(graph: LayerGraph, groups: ScaleGroups) -> list[Box]:
    touched = {
        (name, power > 0, number)
        for number, group in enumerate(groups.groups)
        for name, _, power in group.tensors
    }
    blocked = {(entry.layer, entry.op) for entry in graph.support}
    stream: dict[str, tuple[int, ...]] = {}
    boxes: list[Box] = []
    readers = Counter(source for node in graph.nodes for source in node.inputs)
    for name, shape in graph.inputs.items():
        stream[name] = ()
        entry = Node(name, "", "", {}, (shape,), (True,))
        boxes.append(Box(name, (entry,), (), (), (), blocked=False))
    for node in graph.nodes:
        multiplied, divided = (
            tuple(sorted({g for name, up, g in touched if name in node.parameters and up is side}))
            for side in (True, False)
        )
        stops = (node.layer, node.op) in blocked
        passed = multiplied
        if not (node.parameters or stops):
            passed = tuple(dict.fromkeys(g for s in node.inputs for g in stream.get(s, ())))
        stream[node.name] = passed
        last = boxes[-1]
        if (
            not (node.parameters or stops or last.blocked or last.nodes[0].parameters)
            and node.inputs == (last.nodes[-1].name,)
            and readers[last.nodes[-1].name] == 1
            and last.nodes[-1].op
            and last.nodes[0].layer == node.layer
        ):
            boxes[-1] = replace(last, nodes=(*last.nodes, node), stream=passed)
        else:
            boxes.append(Box(node.name, (node,), multiplied, divided, passed, blocked=stops))
    return boxes


def _line(points: list[tuple[float, float]], start: Box, end: Box) -> dict[str, Any]:
    (x, y), *rest = points
    y += _HEIGHT / 2
    steps = [f"M{x:.1f},{y:.1f}"]
    for number, (next_x, next_y) in enumerate(rest):
        last = number == len(rest) - 1
        arrive = next_y - _HEIGHT / 2 - (6 if last else 0)
        bend = (y + arrive) / 2
        steps.append(f"C{x:.1f},{bend:.1f} {next_x:.1f},{bend:.1f} {next_x:.1f},{arrive:.1f}")
        x, y = next_x, arrive
        if not last:
            y = next_y + _HEIGHT / 2
            steps.append(f"L{x:.1f},{y:.1f}")
    carried = ", ".join(f"λ{group + 1}" for group in start.stream) or "scale 1"
    color = color_of(start.stream[0]) if start.stream else _GRAY
    what = f"{carried} from {start.name} to {end.name}"
    return {"what": what, "path": " ".join(steps), "color": color, "fixed": not start.stream,
            "x": x, "y": y}  # fmt: skip


def _drawn(box: Box, x: float, y: float) -> dict[str, Any]:
    """What a box in this middle looks like: chips from the right, names in the room they leave."""
    x, y = x - _BOX / 2, y - _HEIGHT / 2
    chips = [(f"λ{g + 1}", g) for g in box.multiplied] + [(f"1/λ{g + 1}", g) for g in box.divided]
    right, drawn = x + _BOX - 6.0, []
    for label, group in reversed(chips if len(chips) <= 3 else chips[:2]):
        size = 12 + 7.2 * len(label)
        right -= size
        drawn.append((label, right, size, color_of(group)))
        right -= 3
    more = len(chips) - len(drawn)
    name, room = box.heading, int((right - (22 if more else 0) - x - 12) / 7.2)
    detail = f"no scale passes: {box.detail}" if box.blocked else box.detail
    weights = ", ".join(name for node in box.nodes for name in node.parameters) or "no weights"
    return {
        "x": x,
        "y": y,
        "border": _RED if box.blocked else (color_of(box.stream[0]) if box.stream else _GRAY),
        "blocked": box.blocked,
        "chips": drawn,
        "more": (right - 12, more),
        # The end of a dotted name tells more than its beginning.
        "heading": name if len(name) <= room else "..." + name[-max(1, room - 3) :],
        "detail": detail if len(detail) <= 34 else f"{detail[:31]}...",
        "title": f"{name} {box.detail}: {weights}",
    }
