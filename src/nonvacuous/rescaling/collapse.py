"""From full tensors to the small sums that the solver works on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups
from nonvacuous.rescaling.reading import Reading, Sums, row_sums
from nonvacuous.rescaling.terms import Collector, Matrix, Side, Term, Terms


def collapse(reading: Reading, groups: ScaleGroups) -> Terms:
    """The terms of the KL along the orbit of a posterior under ``groups``, relative to a prior."""
    device = reading.device
    builder = Builder(groups, device)
    counts, touched = np.zeros(groups.size), np.zeros(groups.size)
    rows = []
    for name in reading.tensors:
        scales = [scale for scale in groups.exponents[name] if scale.moves]
        for scale in scales:
            _count(scale, math.prod(reading.shapes[name]), counts, touched)
        axes = sorted({axis for scale in scales for axis in scale.axes})
        sums, numbers = row_sums(reading, name, axes)
        kept = builder.add(name, sums, axes, scales)
        rows.append(torch.stack([*torch.aminmax(sums.squares), kept, *numbers]))
    # A GPU is asked once, when everything is under way.
    columns = torch.stack(rows).cpu().numpy().T
    lowest, highest, pinned, prior_squares, logs = columns
    for name, low, high in zip(reading.tensors, lowest, highest, strict=True):
        if not (low > 0 and math.isfinite(high)):
            raise BadInput(
                f"tensor {name!r}: (scale^2 + mean^2) / prior_scale^2 leaves the range of float64 "
                f"({low:g} to {high:g}), so the best scale would lie at infinity; choose "
                "posterior and prior scales nearer to each other"
            )

    def each(values: np.ndarray) -> dict[str, float]:
        known = dict(zip(reading.tensors, values.tolist(), strict=True))
        return dict.fromkeys(reading.shapes, 0.0) | known

    return Terms(
        starts=tuple(builder.starts),
        sizes=tuple(builder.sizes),
        terms=tuple(builder.terms),
        counts=torch.from_numpy(counts).to(device),
        touched=torch.from_numpy(touched).to(device),
        weights={name: math.prod(shape) for name, shape in reading.shapes.items()},
        remainders=each(pinned + prior_squares),
        log_variances=each(logs),
    )


def _count(scale: AxisScale, weights: int, counts: np.ndarray, touched: np.ndarray) -> None:
    """Add the weights that each channel touches through one scale."""
    repeats = float(weights // np.size(scale.index))
    index = np.asarray(scale.index).reshape(-1)
    times = np.bincount(index[index >= 0], minlength=len(counts)) * repeats
    counts += scale.power * times
    touched += abs(scale.power) * times


# Terms out of the sums of one tensor: which channels meet in it, group by group.


class Builder:
    """Turns the sums of tensors into terms, one for each combination of groups that they meet.

    Index -1 (pinned) belongs to group -1.
    """

    def __init__(self, groups: ScaleGroups, device: torch.device) -> None:
        self.device = device
        self.starts = [group.start for group in groups.groups]
        self.sizes = [group.size for group in groups.groups]
        self.group_of = np.full(groups.size + 1, -1, dtype=np.int64)
        for number, group in enumerate(groups.groups):
            self.group_of[group.start : group.start + group.size] = number
        for missing in np.flatnonzero(self.group_of[:-1] < 0):
            raise BadInput(
                f"log-scale {missing} belongs to no group; the groups must cover all {groups.size} "
                "of them: take the groups from scale_groups(graph)"
            )
        self.terms: list[Term] = []

    def add(self, name: str, sums: Sums, axes: list[int], scales: list[AxisScale]) -> Tensor:
        """Take in a tensor's sums over all axes but ``axes``, on which ``scales`` act.

        Returns what no scale can change.
        """
        self.name = name
        self.kept = torch.zeros((), dtype=torch.float64, device=self.device)
        if len(scales) == 2 and not set(scales[0].axes) & set(scales[1].axes):
            self._add_matrix(sums, axes, scales)
        else:
            self._add_entries(sums, axes, scales)
        return self.kept

    def _keep(self, sums: Sums) -> None:
        """A part that no scale can change."""
        self.kept += sums.squares.sum()
        if sums.products is not None:
            self.kept -= 2 * sums.products.sum()

    def _add_matrix(self, sums: Sums, axes: list[int], scales: list[AxisScale]) -> None:
        order = [axes.index(axis) for scale in scales for axis in scale.axes]
        flat = [np.asarray(scale.index).reshape(-1) for scale in scales]
        matrix = sums.map(lambda t: t.permute(order).reshape(len(flat[0]), len(flat[1])))
        for row_group, rows in self._split(flat[0]):
            for column_group, columns in self._split(flat[1]):
                part = matrix.map(partial(_block, rows=rows, columns=columns))
                self._add_block(
                    part,
                    (flat[0][rows], flat[1][columns]),
                    (row_group, column_group),
                    (scales[0].power, scales[1].power),
                )

    def _split(self, index: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Places of an index by group; -1 for those that are pinned."""
        owner = self.group_of[index]
        return [(int(group), np.flatnonzero(owner == group)) for group in np.unique(owner)]

    def _add_block(
        self,
        sums: Sums,
        index: tuple[np.ndarray, np.ndarray],
        owners: tuple[int, int],
        powers: tuple[float, float],
    ) -> None:
        """A block whose rows lie in one group and whose columns lie in one group."""
        if owners[0] == owners[1] != -1:
            # The same channel may be on both sides: leave it to the entries, which merge it.
            height, width = len(index[0]), len(index[1])
            spread = np.stack([np.repeat(index[0], width), np.tile(index[1], height)])
            same = np.flatnonzero(spread[0] == spread[1])
            if len(same):
                chosen = torch.from_numpy(same).to(self.device)
                self._add_flat(sums.map(lambda t: t.reshape(-1)[chosen]), spread[:, same], powers)
                sums = sums.map(lambda t: t.reshape(-1).index_fill(0, chosen, 0.0).view(t.shape))
        sides = []
        for axis in (0, 1):
            if owners[axis] < 0:
                sums = sums.map(partial(torch.sum, dim=axis, keepdim=True))
                continue
            channels = index[axis] - self.starts[owners[axis]]
            sums, distinct = self._merge(sums, channels, axis)
            sides.append(self._side(distinct + self.starts[owners[axis]], powers[axis]))
        if len(sides) == 2:
            self._append(Matrix, sums.map(Tensor.contiguous), sides)
        elif sides:
            self._append(Term, sums.map(Tensor.flatten), sides)
        else:
            self._keep(sums)

    def _merge(self, sums: Sums, channels: np.ndarray, axis: int) -> tuple[Sums, np.ndarray]:
        """Sum the rows (or columns) that belong to the same channel; channels come out sorted."""
        distinct, counts = np.unique(channels, return_counts=True)
        repeats = int(counts[0])
        if np.array_equal(channels, np.repeat(distinct, repeats)):
            shape = (len(distinct), repeats)

            def fold(t: Tensor) -> Tensor:
                split = (*shape, t.shape[1]) if axis == 0 else (t.shape[0], *shape)
                return t.reshape(split).sum(axis + 1)

            return sums if repeats == 1 else sums.map(fold), distinct
        collector = Collector.of(channels, self.device)

        def gather(t: Tensor) -> Tensor:
            return collector.collect(t) if axis == 0 else collector.collect(t.T).T

        return sums.map(gather), distinct

    def _append(self, kind: type[Term], sums: Sums, sides: Sequence[Side]) -> None:
        self.terms.append(kind(self.name, tuple(sides), sums.squares, sums.products))

    def _add_entries(self, sums: Sums, axes: list[int], scales: list[AxisScale]) -> None:
        """Any number of scales on any axes: one entry for each element of the summed tensor."""
        if not scales:
            self._keep(sums)
            return
        shape = tuple(sums.squares.shape)
        absent = tuple(axis for axis in range(axes[-1]) if axis not in axes)
        spread = [scale.spread(axes[-1] + 1).squeeze(absent) for scale in scales]
        index = np.stack([np.broadcast_to(each, shape).reshape(-1) for each in spread])
        self._add_flat(sums.map(Tensor.flatten), index, [scale.power for scale in scales])

    def _add_flat(self, sums: Sums, index: np.ndarray, powers: Sequence[float]) -> None:
        """Entries with one index per scale, in rows: split by pattern, merge repeats, and keep."""
        for pattern, positions in _patterns(index, self.group_of):
            chosen = torch.from_numpy(positions).to(self.device)
            part = sums.map(partial(torch.index_select, dim=0, index=chosen))
            total: dict[int, float] = {}
            for label, power in zip(pattern, powers, strict=True):
                if label >= 0:
                    total[label] = total.get(label, 0.0) + float(power)
            live = [label for label, power in total.items() if power != 0]
            if not live:
                self._keep(part)
                continue
            kept = index[live][:, positions]
            first, inverse = _distinct(kept)
            if not np.array_equal(inverse, np.arange(len(inverse))):
                part = part.map(Collector.of(inverse, self.device).collect)
            rows = zip(kept[:, first], live, strict=True)
            self._append(Term, part, [self._side(row, total[label]) for row, label in rows])

    def _side(self, index: np.ndarray, power: float) -> Side:
        """Of channels of one group, one for each row or entry."""
        group = int(self.group_of[index[0]])
        channels = index - self.starts[group]
        if np.array_equal(channels, np.arange(self.sizes[group])):
            return Side(group, power)
        positions = torch.from_numpy(channels).to(self.device)
        return Side(group, power, positions, Collector.of(channels, self.device))


def _block(values: Tensor, *, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    return _select(_select(values, rows).T, columns).T


def _select(values: Tensor, rows: np.ndarray) -> Tensor:
    """Rows of a matrix, as a view where they are all of them or lie side by side."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return values[first : last + 1]
    return values[torch.from_numpy(rows).to(values.device)]


def _patterns(index: np.ndarray, group_of: np.ndarray) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Entries that are alike: same groups on all sides, and the same sides on one channel.

    A pattern labels every side: -1 where it is pinned, else the number of the first side that
    is on the same channel. Entries of one pattern lie in the same group on every side.
    """
    labels = np.where(index < 0, -1, (index[:, None] == index).argmax(axis=0))
    first, inverse = _distinct(np.concatenate([labels, group_of[index]]))
    return [
        (tuple(int(label) for label in labels[:, column]), np.flatnonzero(inverse == kind))
        for kind, column in enumerate(first)
    ]


def _distinct(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct column first occurs, and for every column which of them it is."""
    _, first, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
