"""Passes over the examples: what every unit does, and how far from zero it does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.chain_geometry import PlainChain
from nonvacuous.sparsity.greedy import NormTables, greedy_sparsity
from nonvacuous.sparsity.radii import LocalScales, forward, local_radii
from nonvacuous.sparsity.stability import LayerStability, StabilityCount

#: Numbers held at once for one layer: 32 MiB of float64.
_NUMBERS = 2**22


@dataclass(frozen=True, eq=False)
class Choice:
    """The greedy choice at one epsilon for every example, and how stable the units are.

    ratio   the effective activity ratio; None for convolutions, which have none
    """

    epsilon: float
    sparsity: tuple[Tensor, ...]
    ratio: Tensor | None
    stability: tuple[LayerStability, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """What one pass has seen of the network's own units.

    norms      length of every input, the constant included
    margins    score of the label minus the best other score, for every example
    active     for each hidden layer, how many units are active on each example
    lit        for each hidden layer, on how many examples each unit is active
    """

    norms: Tensor
    margins: Tensor
    active: tuple[Tensor, ...]
    lit: tuple[Tensor, ...]
    choices: tuple[Choice, ...]

    @property
    def errors(self) -> int:
        """Examples that are not classified right; a tie is an error."""
        return int((self.margins <= 0).sum())


def measure(
    chain: PlainChain,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float],
    level: float,
    progress: Progress | None = None,
) -> Measured:
    """One forward pass in float64, chunk by chunk."""
    tables = NormTables.of(chain.weights)
    counts = [StabilityCount() for _ in epsilons]
    parts: list[dict[str, Tensor]] = []
    hidden_layers = range(len(chain.weights) - 1)
    for rows, values in _chunks(chain, inputs, "activity", progress):
        hidden, outputs = forward(chain.weights, values)
        own = [chain.units(layer) for layer in hidden]
        part = {"norms": values.norm(dim=1), "margins": _margins(outputs, labels[rows])}
        for k in hidden_layers:
            part[f"active {k}"] = (own[k] > 0).sum(1)
            part[f"lit {k}"] = (own[k] > 0).sum(0)[None]
        for number, epsilon in enumerate(epsilons):
            found = greedy_sparsity(tables, hidden, part["norms"], epsilon=epsilon, level=level)
            counts[number].add(own, found.thresholds)
            part[f"ratio {number}"] = found.ratio
            for k in hidden_layers:
                part[f"sparsity {number} {k}"] = found.sparsity[k]
        parts.append(part)
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return Measured(
        norms=whole["norms"],
        margins=whole["margins"],
        active=tuple(whole[f"active {k}"] for k in hidden_layers),
        lit=tuple(whole[f"lit {k}"].sum(0) for k in hidden_layers),
        choices=tuple(
            Choice(
                epsilon,
                tuple(whole[f"sparsity {number} {k}"] for k in hidden_layers),
                whole[f"ratio {number}"],
                counts[number].result(),
            )
            for number, epsilon in enumerate(epsilons)
        ),
    )


def measure_radii(
    chain: PlainChain, inputs: Tensor, scales: LocalScales, *, progress: Progress | None = None
) -> tuple[Tensor, ...]:
    """The radii of every example at the sparsity that ``scales`` was made for."""
    found: list[tuple[Tensor, ...]] = []
    for _, values in _chunks(chain, inputs, "radii", progress):
        hidden, _ = forward(chain.weights, values)
        found.append(local_radii(hidden, scales))
    return tuple(torch.cat(layer) for layer in zip(*found, strict=True))


def check_alive(measured: Measured, names: Sequence[str]) -> None:
    """Refuse a layer in which nothing is ever active: the network is constant then."""
    for name, lit in zip(names, measured.lit, strict=False):
        if not bool(lit.any()):
            raise BadInput(
                f"layer {name} is dead: none of its {len(lit)} units is active on any of the "
                f"{len(measured.norms):,} examples, so every input gets the same scores. Train the "
                "network again, with a smaller learning rate or another seed."
            )


def _chunks(
    chain: PlainChain, inputs: Tensor, phase: str, progress: Progress | None
) -> Iterator[tuple[slice, Tensor]]:
    widest = max(max(weight.shape) for weight in chain.weights)
    size = max(1, _NUMBERS // widest)
    reporter = Reporter(progress, phase)
    for start in range(0, len(inputs), size):
        rows = slice(start, min(start + size, len(inputs)))
        yield rows, chain.inputs(inputs[rows])
        reporter.report(rows.stop, len(inputs), f"{rows.stop:,} of {len(inputs):,} examples")


def _margins(outputs: Tensor, labels: Tensor) -> Tensor:
    places = labels.to(outputs.device)[:, None]
    own = outputs.gather(1, places)[:, 0]
    return own - outputs.scatter(1, places, -torch.inf).amax(1)
