"""From the equations between scales to the groups of free ones."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.networks.capture import Example, capture
from nonvacuous.networks.equations import (
    Combination,
    Equations,
    combined,
    connected,
    distinct_rows,
)
from nonvacuous.networks.layer_graph import LayerGraph
from nonvacuous.networks.log_scale import LogScale, Power, Term
from nonvacuous.networks.propagation import Birth, Propagation, propagate
from nonvacuous.networks.scale_groups import AxisScale, Group, Pinned, ScaleGroups, rescaled


def scale_groups(graph: LayerGraph, *, frozen: Sequence[str] = ()) -> ScaleGroups:
    """Find every free scale of a captured network.

    frozen   names of weights that are not random, and so must not be moved: a tensor that is
             deterministic under prior and posterior pins every group that touches it

    >>> import torch
    >>> from nonvacuous.networks import capture
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)
    ... ).eval()
    >>> print(scale_groups(capture(network, torch.zeros(2, 4))))
    group  scales  positions  weights [axis] ^power
    -----  ------  ---------  ------------------------------------------------
    0      3       0..2       0.weight [0] ^1, 0.bias [0] ^1, 2.weight [1] ^-1
    free: 3, in groups: 1
    not touched: 2.bias
    kept at 1:
      2 (2 channels)  it is what the network returns
    """
    unknown = [name for name in frozen if name not in graph.parameters]
    if unknown:
        raise BadInput(
            f"frozen: the network has no weight {unknown[0]!r}; it has "
            f"{', '.join(list(graph.parameters)[:6])}, ..."
        )
    propagation = propagate(graph, frozen=frozen)
    _drop_redundant(propagation)
    roots = _free_roots(propagation)
    number = {root: k for k, root in enumerate(roots)}
    equations, still = propagation.equations, LogScale(())
    exponents = {
        name: tuple(_axis_scales(propagation.weights.get(name, still), equations, number))
        for name in graph.parameters
    }
    return ScaleGroups(
        size=len(roots),
        groups=_groups(propagation.births, roots, exponents),
        exponents=exponents,
        pinned=_pinned(propagation),
        shapes=dict(graph.parameters),
    )


def _free_roots(propagation: Propagation) -> list[int]:
    """The free unknowns on which some weight depends, oldest first."""
    terms = [term for scale in propagation.weights.values() for term in scale.terms]
    labels = {label for term in terms for label in np.unique(term.labels).tolist()}
    return sorted(set[int]().union(*map(propagation.equations.resolve, labels)))


def _drop_redundant(propagation: Propagation) -> None:
    """Pin the directions along which no weight changes.

    The unknowns of a weight along several axes can be shifted against one another without any
    effect. Requiring every weight to stay as it is leaves exactly such directions free.
    """
    effects = Equations()
    roots = _free_roots(propagation)
    # Equations express the newest unknown by older ones: count backward, to keep the oldest here.
    backward = {root: len(roots) - k for k, root in enumerate(roots)}
    for scale in propagation.weights.values():
        effects.require_rows(
            [(backward[root], power) for root, power in combination.items()]
            for combination in _effects(scale, propagation.equations)
        )
    for root in roots:
        if effects.is_free(backward[root]):
            propagation.equations.require_rows([[(root, 1)]])


def _effects(scale: LogScale, equations: Equations) -> Iterator[Combination]:
    """A basis of what the scales can do to one weight: its first element, and differences."""
    base: Combination = {}
    for part in connected(scale.terms):
        rows = distinct_rows(part)[0]
        powers = [term.power for term in part]
        forms = (_resolved(row, powers, equations) for row in rows.tolist())
        first = next(forms)
        base = combined([(1, base), (-1, first)])
        for form in forms:
            yield combined([(1, form), (-1, first)])
    yield base


def _resolved(row: Sequence[int], powers: Sequence[Power], equations: Equations) -> Combination:
    return combined(zip(powers, map(equations.resolve, row), strict=True))


def _axis_scales(
    scale: LogScale, equations: Equations, number: Mapping[int, int]
) -> Iterator[AxisScale]:
    by_axes: dict[tuple[int, ...], list[Term]] = {}
    for term in scale.terms:
        wide = sorted(axis for axis in term.axes if scale.shape[axis] > 1)
        by_axes.setdefault(tuple(wide or sorted(term.axes)[:1]), []).append(term)
    for axes, terms in by_axes.items():
        rows, inverse = distinct_rows(terms)
        sizes = [scale.shape[axis] for axis in axes]
        powers = [term.power for term in terms]
        slots: dict[tuple[float, int], np.ndarray] = {}
        for k, row in enumerate(rows.tolist()):
            seen = Counter[float]()
            for root, factor in sorted(_resolved(row, powers, equations).items()):
                power = float(factor)
                seen[power] += 1
                if (power, seen[power]) not in slots:
                    slots[power, seen[power]] = np.full(len(rows), -1, dtype=np.int64)
                slots[power, seen[power]][k] = number[root]
        for (power, _), column in slots.items():
            yield AxisScale(axes, column[inverse].reshape(sizes), power)


def _groups(
    births: Sequence[Birth],
    roots: Sequence[int],
    exponents: Mapping[str, tuple[AxisScale, ...]],
) -> tuple[Group, ...]:
    """Runs of free scales that were made for the same weight along the same axes."""
    starts = [int(birth.labels[0]) for birth in births]
    latest = np.searchsorted(starts, roots, side="right").clip(1) - 1
    owners = [(k, root in births[k].labels) for k, root in zip(latest, roots, strict=True)]
    runs = [
        (births[k].parameter, born, len(list(members))) for (k, born), members in groupby(owners)
    ]
    layers = [_owner_layer(parameter) if born else "" for parameter, born, _ in runs]
    names = [
        (layer if layers.count(layer) == 1 else parameter) if born else "common factor"
        for layer, (parameter, born, _) in zip(layers, runs, strict=True)
    ]
    times = [names[: k + 1].count(name) for k, name in enumerate(names)]
    stops = np.cumsum([size for _, _, size in runs], dtype=np.int64)
    tensors: list[list[tuple[str, tuple[int, ...], float]]] = [[] for _ in runs]
    for weight, entries in exponents.items():
        for entry in entries:
            used = np.unique(entry.index)
            for run in np.unique(np.searchsorted(stops, used[used >= 0], side="right")).tolist():
                tensors[run].append((weight, entry.axes, entry.power))
    return tuple(
        Group(
            name=names[k] if names.count(names[k]) == 1 else f"{names[k]} ({times[k]})",
            start=int(stops[k]) - size,
            size=size,
            tensors=tuple(tensors[k]),
            layer=layers[k],
        )
        for k, (_, _, size) in enumerate(runs)
    )


def _owner_layer(parameter: str) -> str:
    return parameter.rpartition(".")[0] or parameter


def _pinned(propagation: Propagation) -> tuple[Pinned, ...]:
    """The channels written by each layer that stay at 1 for a reason that was given."""
    equations = propagation.equations
    # The first unknowns of a weight are those of the channels that it writes.
    written: dict[str, Birth] = {}
    for birth in propagation.births:
        written.setdefault(birth.parameter, birth)
    counts: dict[tuple[str, str], int] = {}
    for parameter, birth in written.items():
        pinned = [label for label in birth.labels.tolist() if not equations.resolve(label)]
        for reason, count in Counter(map(equations.reason, pinned)).items():
            key = (_owner_layer(parameter), reason)
            if reason:
                counts[key] = max(count, counts.get(key, 0))
    return tuple(
        Pinned(f"{layer} ({count} channel{'s' if count != 1 else ''})", reason)
        for (layer, reason), count in counts.items()
    )


def preservation_error(
    module: nn.Module,
    example: Example,
    *,
    groups: ScaleGroups | None = None,
    spread: float = 1.0,
    draws: int = 3,
    seed: int = 0,
) -> float:
    """How far random scales change the outputs, relative to the largest output, in float64.

    A correct set of rules gives a few times 1e-15; a wrong one gives something like 1. Every rule
    for an operator must pass this test.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    if groups is None:
        groups = scale_groups(capture(module, arguments))
    arguments = tuple(
        a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments
    )
    module = copy.deepcopy(module).double()
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        expected = _outputs(module(*arguments))
        worst = 0.0
        for _ in range(draws):
            log_scales = generator.normal(scale=spread, size=groups.size)
            moved = _outputs(rescaled(module, groups, log_scales)(*arguments))
            for one, other in zip(expected, moved, strict=True):
                largest = float(one.abs().max()) or 1.0
                worst = max(worst, float((one - other).abs().max()) / largest)
    return worst


def _outputs(value: object) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf.double() for leaf in leaves if isinstance(leaf, Tensor)]
