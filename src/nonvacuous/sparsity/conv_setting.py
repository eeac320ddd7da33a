"""The setting of a convolutional certificate, the constants inside its loss, and what both cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from nonvacuous.bounds.sparsity import choice_nats
from nonvacuous.errors import InvalidCertificate
from nonvacuous.sparsity.constants import Charge, far, scalar
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.conv_theorem import Anchor, ConvBounds, ConvTail
from nonvacuous.sparsity.setting import Tailed

#: Steps per factor of two of the drift, which may be anything from the prior's size to nothing.
_DRIFT_FINENESS = 4
#: How much of the product of norms may be added to the prior's gradients.
BLENDS = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class ConvSetting(Tailed):
    """Choices for convolutions: noise scales, escape probability, the tail of Theorem E, and

    blend      with sparsity, position in BLENDS
    """

    tail: str = "cap"
    factor: int = 1
    blend: int = 4

    @property
    def tail_rule(self) -> ConvTail:
        return ConvTail(self.tail, self.tail_factor, BLENDS[self.blend])

    def charges(self, *, sparse: bool) -> tuple[Charge, ...]:
        """What naming these choices costs; constants of the network are charged elsewhere."""
        blend = Charge("tail: share of norms", f"{BLENDS[self.blend]:g}", choice_nats(len(BLENDS)))
        return (*self.own_charges(), *((blend,) if sparse else ()))


def network_bounds(
    chain: ConvChain, prior: ConvChain, *, sparse: bool
) -> tuple[ConvBounds, tuple[Charge, ...]]:
    """Round the constants of the network up on the grids that the prior fixes, and charge them."""
    known = prior.reference()
    charges: list[Charge] = []
    spectral: list[float | None] = [None]
    rows: list[float | None] = [None]
    distance: list[float | None] = [None]
    pools = [pool_norm(stage.pool, stage.middle) for stage in chain.stages[:-1]]
    for mine, theirs in zip(chain.stages[1:-1], known.stages[1:-1], strict=True):
        name = mine.layer.name
        norm = conv_norm(mine.layer, mine.before).value
        value, line = scalar(
            f"operator norm of layer {name}", norm, conv_norm(theirs.layer, theirs.before).value
        )
        spectral.append(value)
        charges.append(line)
        row = unit_norm(mine.layer)
        longest, line = scalar(f"kernel norm of layer {name}", row, unit_norm(theirs.layer))
        rows.append(longest)
        charges.append(line)
        if value < norm or longest < row:
            raise InvalidCertificate(
                f"a norm of layer {name} was rounded below the network's own. A certificate from "
                "it would be false; please report this network as a bug"
            )
    if sparse:
        for mine, theirs, scale in zip(
            chain.stages[1:-1], prior.stages[1:-1], known.stages[1:-1], strict=True
        ):
            value, line = _distance(mine, theirs, unit_norm(scale.layer))
            distance.append(value)
            charges.append(line)
    drift, line = _drift(chain, prior, float(Anchor.of(known).norms.max()))
    charges.append(line)
    bounds = ConvBounds(tuple(spectral), tuple(rows), tuple(distance), tuple(pools), drift)
    return bounds, tuple(charges)


def _distance(mine: Stage, theirs: Stage, known: float) -> tuple[float, Charge]:
    layer, other = mine.layer, theirs.layer
    moved = conv_norm(replace(layer, weight=layer.weight - other.weight), mine.before).value
    largest = float(torch.maximum(layer.weight.abs(), other.weight.abs()).max())
    # Rounding of the difference, entry by entry: at most this much in the operator norm.
    lost = 2.0**-50 * layer.weight.numel() * largest
    name = f"distance of layer {layer.name} from the prior"
    return far(name, moved * (1.0 + 1e-10) + lost, known, fineness=_DRIFT_FINENESS)


def _drift(chain: ConvChain, prior: ConvChain, known: float) -> tuple[float, Charge]:
    moved = chain.output - prior.output
    largest = max(float((row[None] - moved).square().sum(1).max()) for row in moved)
    # Where both networks' weights share a large part, moving away from it was rounded relative to
    # that part and not to what is left of it.
    heaviest = float(torch.maximum(chain.output.abs(), prior.output.abs()).max())
    lost = 2.0**-50 * math.sqrt(moved.shape[1]) * heaviest
    distance = math.sqrt(largest) * (1.0 + 1e-10) + lost
    return far(
        "distance of output weights from the prior", distance, known, fineness=_DRIFT_FINENESS
    )
