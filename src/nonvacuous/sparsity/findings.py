"""What a sparsity study has found, as frozen records of plain numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

#: The shares of examples at which distributions are written down.
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class LayerActivity:
    """How many units of a hidden layer are active (above zero).

    name     where the layer stands in the network
    units    its width
    active   how many are active on an example: mean, and at SHARES of the examples
    never    units that are active on no example
    always   units that are active on every example
    """

    name: str
    units: int
    mean: float
    active: tuple[float, ...]
    never: int
    always: int


@dataclass(frozen=True)
class LayerRadii:
    """The sparse local radii of a hidden layer, when most examples are asked to be that sparse.

    sparsity   how many units are asked to be inactive: as many as are so on 95 % of the examples
    zero       the share of examples on which fewer are
    radius     the radius at SHARES of the examples
    row        the largest row norm over the active inputs
    joint      the bound on the norm from active inputs to active units, and which one it was
    reach      how long the activations of the layer before can be
    """

    name: str
    sparsity: int
    zero: float
    radius: tuple[float, ...]
    row: float
    joint: float
    way: str
    reach: float


@dataclass(frozen=True)
class LayerAtEpsilon:
    """One hidden layer when all weights may move by a relative epsilon.

    sparsity    greedy sparsity s*(x, epsilon): mean, smallest, and at SHARES of the examples
    active      of all pairs of unit and example, the share that surely stays active
    inactive    ... that surely stays inactive
    unstable    ... whose sign may change
    kinds       how many units are of which kind over all examples
    """

    name: str
    mean: float
    smallest: int
    sparsity: tuple[float, ...]
    active: float
    inactive: float
    unstable: float
    kinds: Mapping[str, int]


@dataclass(frozen=True)
class AtEpsilon:
    """Everything that depends on how far the weights may move.

    ratio      the effective activity ratio: mean, and at SHARES of the examples; None and nothing
               for a convolutional network, whose weights belong to all positions at once
    """

    epsilon: float
    mean_ratio: float | None
    ratio: tuple[float, ...]
    layers: tuple[LayerAtEpsilon, ...]


@dataclass(frozen=True)
class NormBound:
    """A bound from norms, at the margin that suits it best.

    margin          taken from a grid, which is paid for
    margin_errors   training examples below it
    gap             the term of norms, uncut
    risk            the bound on the risk, at most 1
    """

    name: str
    margin: float
    margin_errors: int
    gap: float
    risk: float


@dataclass(frozen=True)
class HeldOut:
    """A plain test: errors on examples that trained nothing, and their binomial tail.

    what   whose errors on which examples
    """

    what: str
    errors: int
    examples: int
    risk: float


@dataclass(frozen=True)
class Shown:
    """Values behind the pictures, for some of the examples, layer by layer."""

    radii: tuple[tuple[float, ...], ...]
    sparsity: tuple[tuple[int, ...], ...]
    epsilon: float


@dataclass(frozen=True)
class SparsityStudy:
    """What was found about one network on one set of examples.

    sizes          inputs, units of each hidden layer, classes
    biases         whether biases were turned into weights on a constant
    errors         of the network on the examples
    input_norm     how long an input is taken to be at most
    seen_norm      whether that is only the longest one seen, and so an assumption
    failure        the failure probability of each bound on its own
    radii          nothing for a convolutional network; ``notes`` say what else has no meaning there
    certificates   every term of the sparsity certificate, where a prior was given
    """

    data: str
    examples: int
    errors: int
    sizes: tuple[int, ...]
    biases: bool
    input_norm: float
    seen_norm: bool
    level: float
    failure: float
    seed: int
    activity: tuple[LayerActivity, ...]
    radii: tuple[LayerRadii, ...]
    epsilons: tuple[AtEpsilon, ...]
    norm_bounds: tuple[NormBound, ...]
    held_out: tuple[HeldOut, ...]
    certificates: tuple[Any, ...]
    shown: Shown
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        first = self.epsilons[0]
        middle = self.epsilons[len(self.epsilons) // 2]
        shares = " and ".join(f"{entry.mean / entry.units:.0%}" for entry in self.activity)
        unstable = [entry.unstable for entry in middle.layers]
        words = [f"On an average example {shares} of the hidden units are active"]
        if first.mean_ratio is not None:
            words.append(
                f"{first.mean_ratio:.0%} of the weights count when they may move by "
                f"{first.epsilon:.4g}"
            )
        doubt = f"{max(unstable):.0%} of a layer's signs are in doubt when "
        doubt += f"{'the weights' if len(words) == 1 else 'they'} may move by {middle.epsilon:.4g}"
        return f"{', '.join(words)}, and {doubt}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; the values behind the pictures are left out."""
        record = asdict(replace(self, certificates=()))
        del record["shown"], record["certificates"]
        certificates = [entry.to_dict() for entry in self.certificates]
        more = {"answer": self.answer, "shares": SHARES, "certificates": certificates}
        # None for what is infinite: JSON has no word for it.
        plain: dict[str, Any] = json.loads(
            json.dumps(record | more), parse_constant=lambda infinite: None
        )
        return plain
