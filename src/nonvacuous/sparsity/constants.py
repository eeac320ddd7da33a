"""Constants of the network that stand inside the loss: rounded up on grids, and charged for.

The loss may look at the noisy network, the example and the setting, never at the network W itself.
So each constant of W is written down as part of the setting: a reference value that is known before
the bound examples (from the prior, or from the shapes where the prior is zero) times 2^(j/64), with
the smallest j that is not below the truth. Naming j costs ln(1/w(j)) nats, and the charges are
listed by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.bounds.sparsity import choice_nats, integer_nats
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.sparsity.norms import descending_sums, row_norms, spectral_norm, unit_norms
from nonvacuous.sparsity.weights import Layers

Entries = Literal["each", "all"]
Value = TypeVar("Value")
#: Exponents that may flatten the reference's table; the first costs ln 2, the others ln 16.
EXPONENTS = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0)
#: Tables of class pairs beyond this many entries are replaced by their maximum over the pairs.
LARGEST_TABLE = 20_000_000
_PAIR_FINENESS = 8
_UP = 1.0 + 1e-12
#: Steps of the grid for constants per factor of two.
FINENESS = 64


@dataclass(frozen=True)
class Charge:
    """One line of the ledger: what was chosen, and the nats that naming it costs."""

    name: str
    choice: str
    nats: float


class Ledger:
    """Adds up the charges of values that are rounded up one after the other."""

    def __init__(self) -> None:
        self.charges: list[Charge] = []

    def paid(self, rounded: tuple[Value, Charge | list[Charge]]) -> Value:
        """The value, whose charges are noted."""
        value, lines = rounded
        self.charges.extend([lines] if isinstance(lines, Charge) else lines)
        return value


def chosen_among(choices: int) -> tuple[Charge, ...]:
    """The line for reporting one of several certificates, theorems or priors fixed in advance."""
    if choices == 1:
        return ()
    return (Charge("which certificate is reported", f"one of {choices}", choice_nats(choices)),)


def scalar(
    name: str, value: float, known: float, *, fineness: int = FINENESS
) -> tuple[float, Charge]:
    """The smallest grid value ``known`` * 2^(j / fineness) that is not below ``value``."""
    if known <= 0.0:
        raise BadInput(
            f"{name}: it is 0 in the prior, so no grid reaches it (does the layer read padding "
            "only?); give the prior a layer that reads its input"
        )
    index = _index(value / known, fineness)
    while known * 2.0 ** (index / fineness) < value:
        index += 1
    rounded = known * 2.0 ** (index / fineness)
    if not rounded >= value:
        raise _too_small(name)
    return rounded, _step(name, index, fineness)


def _step(name: str, index: int, fineness: int = FINENESS) -> Charge:
    return Charge(name, f"reference x 2^({index}/{fineness})", integer_nats(index))


def _too_small(names: str) -> InvalidCertificate:
    return InvalidCertificate(
        f"rounded below the network's own: {names}. A certificate from them would be false; please "
        "report this network as a bug"
    )


def _covering(truth: Tensor, known: Tensor, exponent: float | None) -> tuple[Tensor, int]:
    """The smallest multiple of ``known``, to a power, with no entry below ``truth``; its step."""
    shape = known
    if exponent is not None:
        shape = known[..., -1:] * (known / known[..., -1:]) ** exponent * _UP
    index = _index(float((truth / shape).max()), FINENESS)
    while bool((shape * 2.0 ** (index / FINENESS) < truth).any()):
        index += 1
    return shape * 2.0 ** (index / FINENESS), index


def _index(ratio: float, fineness: int) -> int:
    # One step down and then up again until nothing is below: no tolerance can creep in.
    return math.ceil(fineness * math.log2(max(ratio, 1e-300))) - 1


def far(name: str, distance: float, known: float, *, fineness: int) -> tuple[float, Charge]:
    """A distance from the prior, on a grid that begins at a sixteenth of the prior's size."""
    start = known / 16.0
    # A network that did not move would need an endless step down: 2^-20 of the prior is enough.
    return scalar(name, max(distance, start * 2.0**-16), start, fineness=fineness)


@dataclass(frozen=True, eq=False)
class Measured:
    """The constants of one network, each rounded up beyond float64's own error.

    pair_norms   (classes, classes, width + 1): norm of the n largest entries of w_y - w_c
    pair_sums    likewise: sum of the n largest positive entries of w_y - w_c
    rows         per hidden layer but the first: the table of the largest norm of n entries of a
                 row, or the norm of each row
    spectral     per hidden layer but the first: the spectral norm
    """

    pair_norms: Tensor
    pair_sums: Tensor
    rows: tuple[Tensor, ...]
    spectral: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Constants:
    """The grid values that stand inside the loss; never below those of the network.

    The first two tables have the shape of :class:`Measured`'s, or (1, 1, width + 1) where one table
    serves all pairs. The first layer needs neither ``rows`` nor ``spectral``: they are zero there.
    ``drift`` bounds the norm of the positive part of (w_y - w_c) minus the prior's, for all pairs,
    and ``moved`` the spectral norm of what each hidden layer is away from the prior's.
    """

    pair_norms: Tensor
    pair_sums: Tensor | None
    rows: tuple[Tensor, ...]
    spectral: tuple[float, ...]
    drift: float | None
    charges: tuple[Charge, ...]
    moved: tuple[float, ...] = ()

    def norms(self, labels: Tensor, units: Tensor | None = None) -> Tensor:
        """For every example's label, every class and the example's number of units, or all."""
        return self._of_pairs(self.pair_norms, labels, units)

    def sums(self, labels: Tensor, units: Tensor | None = None) -> Tensor:
        assert self.pair_sums is not None
        return self._of_pairs(self.pair_sums, labels, units)

    @staticmethod
    def _of_pairs(table: Tensor, labels: Tensor, units: Tensor | None) -> Tensor:
        if units is None:
            return table[..., -1][labels] if len(table) > 1 else table[..., -1]
        return table[labels, :, units] if len(table) > 1 else table[0, 0][units][:, None]

    @cached_property
    def longest(self) -> tuple[float, ...]:
        """The row norms of whole rows as plain numbers; 0 for the first layer."""
        return tuple(float(table[-1]) for table in self.rows)

    def to(self, device: torch.device | str) -> Constants:
        return replace(
            self,
            pair_norms=self.pair_norms.to(device),
            pair_sums=None if self.pair_sums is None else self.pair_sums.to(device),
            rows=tuple(table.to(device) for table in self.rows),
        )


def measured(layers: Layers, *, units: bool = False) -> Measured:
    """Measure a network; with ``units``, the row norm of each unit instead of tables of them."""
    output = layers.weights[-1]
    classes, width = output.shape
    collapse = classes * classes * (width + 1) > LARGEST_TABLE
    norms, sums = [], []
    for row in output:
        difference = row[None] - output
        norm = descending_sums(difference.square(), -1).sqrt()
        total = descending_sums(difference.clamp(min=0), -1)
        norms.append(norm.amax(0, keepdim=True) if collapse else norm)
        sums.append(total.amax(0, keepdim=True) if collapse else total)
    if collapse:
        norms = [torch.stack(norms).amax(0)]
        sums = [torch.stack(sums).amax(0)]
    slack = 1.0 + (width + 16) * 2.0**-51
    hidden = layers.weights[1:-1]
    return Measured(
        torch.stack(norms) * slack,
        torch.stack(sums) * slack,
        tuple(map(unit_norms if units else row_norms, hidden)),
        tuple(map(spectral_norm, hidden)),
    )


def constants(
    layers: Layers,
    prior: Layers,
    *,
    norms: Entries,
    sums: Entries | None,
    drift: bool = False,
    named: bool = False,
    units: bool = False,
    actual: Measured | None = None,
) -> Constants:
    """Round the constants of ``layers`` up on the grids that ``prior`` fixes.

    norms    entries needed of the tables of norms: "each" number of units has its own, or only that
             of "all" units is named, and every entry repeats it
    sums     likewise for the table of sums; None where it is not needed
    drift    whether the distance from the prior's output layer is needed
    named    whether each pair of classes gets a factor of its own, named pair by pair: dear in
             nats, but worth it where the KL divergence is in the thousands
    units    whether the row norms are those of each unit, in proportion to the prior's, instead of
             the tables of the largest
    """
    truth = actual if actual is not None else measured(layers, units=units)
    known = measured(prior.reference(), units=units)
    ledger = Ledger()
    paid, each = ledger.paid, norms == "each"
    name = "norms of output weights"
    pair_norms = paid(_pair_table(name, truth.pair_norms, known.pair_norms, each, named=named))
    pair_sums = None
    if sums is not None:
        name, own = "sums of output weights", sums == "each"
        pair_sums = paid(_pair_table(name, truth.pair_sums, known.pair_sums, own, named=named))
    rows, spectral, moved = [torch.zeros(1, dtype=torch.float64, device="cpu")], [0.0], [0.0]
    for index, name in enumerate(layers.names[1:-1]):
        pair = truth.rows[index], known.rows[index]
        if units:
            rows.append(paid(_unit_table(f"row norms of the units of layer {name}", *pair)))
        else:
            rows.append(paid(_table(f"row norms of layer {name}", *pair, each)))
        what = f"spectral norm of layer {name}"
        spectral.append(paid(scalar(what, truth.spectral[index], known.spectral[index])))
        if units and drift:
            moved.append(paid(_moved(layers, prior, index + 1, known.spectral[index])))
    shift = None
    if drift:
        largest = float(known.pair_norms[..., -1].max())
        shift = paid(drifted(layers.weights[-1], prior.weights[-1], largest, fineness=1))
    return Constants(
        pair_norms,
        pair_sums,
        tuple(rows),
        tuple(spectral),
        shift,
        tuple(ledger.charges),
        tuple(moved) if units and drift else (),
    )


def check_covering(rounded: Constants, truth: Measured) -> None:
    """Refuse constants of which one is below the network's: the loss would miss its errors."""
    tables = {"norms of output weights": (rounded.pair_norms, truth.pair_norms)}
    if rounded.pair_sums is not None:
        tables["sums of output weights"] = (rounded.pair_sums, truth.pair_sums)
    # A table begins with the entry for no unit at all, which is zero.
    short = [name for name, (table, own) in tables.items() if bool((table < own)[..., 1:].any())]
    layers = zip(rounded.rows[1:], truth.rows, rounded.spectral[1:], truth.spectral, strict=True)
    for layer, (table, rows, norm, spectral) in enumerate(layers, start=2):
        if bool((table < rows).any()):
            short.append(f"row norms of hidden layer {layer}")
        if norm < spectral:
            short.append(f"spectral norm of hidden layer {layer}")
    if short:
        raise _too_small(", ".join(short))


def _unit_table(name: str, truth: Tensor, known: Tensor) -> tuple[Tensor, Charge]:
    """Each unit's row norm: the prior's times one factor for all, small ones raised beforehand.

    A unit whose weights the prior has next to none of must not force its factor on all others.
    """
    table, index = _covering(truth, torch.maximum(known, known.max() / 8.0), None)
    return table, _step(name, index)


def drifted(
    mine: Tensor,
    theirs: Tensor,
    known: float,
    *,
    fineness: int,
    least: float = 0.0,
    size: float | None = None,
) -> tuple[float, Charge]:
    """The largest distance of a w_y - w_c from the prior's, or of its entries above ``least``.

    size   that of weights relative to which the distance was rounded; by default its own
    """
    moved = mine - theirs
    pairs = ((row[None] - moved).clamp(min=least) for row in moved)
    largest = max(float(pair.square().sum(1).max()) for pair in pairs)
    # Where both networks' weights share a large part, moving away from it was rounded relative to
    # that part and not to what is left of it.
    size = float(moved.abs().max()) if size is None else size
    lost = 2.0**-50 * math.sqrt(moved.shape[1]) * size
    distance = math.sqrt(largest) * (1.0 + 1e-10) + lost
    return far("distance of output weights from the prior", distance, known, fineness=fineness)


def _moved(layers: Layers, prior: Layers, layer: int, known: float) -> tuple[float, Charge]:
    mine, theirs = layers.weights[layer], prior.weights[layer]
    lost = 2.0**-50 * float(mine.norm() + theirs.norm())
    distance = spectral_norm(mine - theirs) * (1.0 + 1e-10) + lost
    name = f"distance of layer {layers.names[layer]} from the prior"
    return far(name, distance, known, fineness=4)


def _pair_table(
    name: str, truth: Tensor, known: Tensor, each: bool, *, named: bool
) -> tuple[Tensor, list[Charge]]:
    """One multiplier for the prior's tables of all pairs, or one table for all pairs, or that one
    with a factor for each pair.
    """
    common = known.amax((0, 1)).reshape(1, 1, known.shape[-1])
    one, lines_one = _table(name, truth, common, each)
    if named and truth.shape[0] > 1:
        table, line = _factors(name, truth, one)
        form = Charge(f"{name}: form", "each pair of classes named", choice_nats(3))
        return table, [*lines_one, line, form]
    # A pair that the prior hardly tells apart must not force a huge multiplier on all others.
    floor = known.amax((0, 1), keepdim=True) / 8.0
    apart, lines_apart = _table(name, truth, torch.maximum(known, floor), each)
    ends = apart[..., -1]
    if len(ends) > 1:  # a class has no margin over itself
        ends = ends[~torch.eye(len(ends), dtype=torch.bool, device=ends.device)]
    better_apart = float(ends.mean()) < float(one[..., -1].mean())
    chosen, lines = (apart, lines_apart) if better_apart else (one, lines_one)
    word = "each pair of classes as in the prior" if better_apart else "one for all pairs"
    return chosen, [*lines, Charge(f"{name}: form", word, choice_nats(3))]


def _factors(name: str, truth: Tensor, one: Tensor) -> tuple[Tensor, Charge]:
    """The common table times 2^(-i/8) for each pair, with the largest i that still covers it.

    The whole number i >= 0 has weight 1 / ((i + 1) (i + 2)), and these weights sum to one.
    """
    ratios = (truth[..., 1:] / one[..., 1:]).amax(-1).clamp(min=2.0**-8)
    steps = (-_PAIR_FINENESS * ratios.log2()).floor().clamp(min=0)
    table = one * (2.0 ** (-steps / _PAIR_FINENESS))[..., None]
    short = (table < truth).any(-1)
    steps = torch.where(short, (steps - 1).clamp(min=0), steps)
    table = one * (2.0 ** (-steps / _PAIR_FINENESS))[..., None]
    # Norms of w_y - w_c are those of w_c - w_y, and named once; sums of positive entries are not.
    counted = torch.triu(torch.ones_like(steps), diagonal=1).bool()
    if not name.startswith("norms"):
        counted |= counted.T.clone()
    nats = float(((steps + 1.0) * (steps + 2.0)).log()[counted].sum()) * _UP
    return table, Charge(f"{name}: pairs", f"{int(counted.sum())} factors 2^(-i/8)", nats)


def _table(name: str, truth: Tensor, known: Tensor, each: bool) -> tuple[Tensor, list[Charge]]:
    """A table that is never below ``truth`` (shape of ``known``, broadcast against it)."""
    last, index = _covering(truth[..., -1:], known[..., -1:], None)
    if not each:
        return last.expand(*last.shape[:-1], known.shape[-1]).contiguous(), [_step(name, index)]

    def score(exponent: float) -> float:
        # Entries in the middle are what a sparse certificate uses; a nat is worth little.
        table, step = _covering(truth[..., 1:], known[..., 1:], exponent)
        return float(table.log().mean()) + 1e-3 * integer_nats(step)

    best = min(EXPONENTS, key=score)
    table, index = _covering(truth[..., 1:], known[..., 1:], best)
    flat = choice_nats(2 if best == 1.0 else 16)
    shape = Charge(f"{name}: shape", f"reference to the power {best:g}", flat)
    return functional.pad(table, (1, 0)), [_step(name, index), shape]
