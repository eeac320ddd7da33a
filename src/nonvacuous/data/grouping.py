"""Which examples must stay together in a split: groups, copies, and whatever these connect."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nonvacuous.errors import BadInput


def find_units(n: int, *, groups: Any, content_hashes: Any) -> tuple[np.ndarray, int]:
    """The unit of every example, numbered by first appearance, and how many examples share one."""
    keys = [
        _codes(values, n=n, name=name)
        for name, values in (("groups", groups), ("content_hashes", content_hashes))
        if values is not None
    ]
    if not keys:
        return np.arange(n), 0
    # Examples and key values are the nodes of a graph; what is connected must stay together, so
    # a copy that appears in two groups ties both.
    offset, nodes = n, []
    for codes in keys:
        nodes.append(codes + offset)
        offset += int(codes.max(initial=-1)) + 1
    rows, columns = np.tile(np.arange(n), len(nodes)), np.concatenate(nodes)
    graph = coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(offset, offset))
    component = connected_components(graph, directed=False)[1][:n]
    _, first, unit, sizes = np.unique(
        component, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[unit], int(sizes[sizes > 1].sum())


def _codes(values: Any, *, n: int, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (n,):
        raise BadInput(
            f"make_split: {name} has shape {array.shape}; expected one value for each "
            f"of {n} examples"
        )
    if array.dtype.kind not in "iubUS":
        raise BadInput(
            f"make_split: {name} must be integers or text (dtype {array.dtype} cannot be compared "
            "exactly); convert them with numpy.asarray(values).astype(str)"
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
