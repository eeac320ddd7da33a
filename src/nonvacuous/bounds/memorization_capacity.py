"""How large a network must be to memorize n examples of d numbers each: known sufficient sizes.

These are theorems about the existence of weights; whether training finds them only training can
tell. docs/theory/capacity.md has the statements with their proofs or sources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nonvacuous.bounds import checks
from nonvacuous.bounds.capacity import vc_upper

__all__ = ["MemorizationSizes", "MemorizationVerdict", "memorization_sizes", "memorization_verdict"]


@dataclass(frozen=True)
class MemorizationSizes:
    """Sizes of ReLU networks that fit any labels of n examples with d inputs.

    examples, inputs         n and d
    projection_weights       2 n + d: one hidden layer of ``projection_units`` = n units that share
                             one projection; any distinct inputs (Zhang et al., 2017, Theorem 1)
    general_position_units   4 ceil(n / d): one hidden layer, when no d + 1 inputs lie on one
                             hyperplane (Baum, 1988; Bubeck et al., 2020). Duplicates, constant or
                             linearly dependent pixels break that
    general_position_weights  its weights and biases, output included
    two_layer_width          4 ceil(sqrt(n) / 2): two hidden layers of this width each, any distinct
                             inputs (Yun, Sra and Jadbabaie, 2019, Theorem 3.1)
    two_layer_weights        their weights and biases, output included
    deep_weights_order       sqrt(n): the order, up to logarithms, of the fewest weights with which
                             a network of depth about sqrt(n) memorizes well separated inputs
                             (Vardi, Yehudai and Shamir, 2022); an order, not a count
    """

    examples: int
    inputs: int
    projection_units: int
    projection_weights: int
    general_position_units: int
    general_position_weights: int
    two_layer_width: int
    two_layer_weights: int
    deep_weights_order: float


@dataclass(frozen=True)
class MemorizationVerdict:
    """What the theorems say about one fully connected ReLU network and n examples.

    any_distinct       reasons why it has weights for any labels of any n distinct inputs
    general_position   reasons that need inputs in general position
    impossible         whether some labels of any n inputs are out of reach, by the VC upper bound
    vc_upper           that bound
    """

    any_distinct: tuple[str, ...]
    general_position: tuple[str, ...]
    impossible: bool
    vc_upper: int

    @property
    def verdict(self) -> str:
        """One of: "memorizes any distinct inputs", "memorizes inputs in general position", "cannot
        memorize every labeling", "no theorem decides"."""
        if self.any_distinct:
            return "memorizes any distinct inputs"
        if self.general_position:
            return "memorizes inputs in general position"
        return "cannot memorize every labeling" if self.impossible else "no theorem decides"


def memorization_sizes(*, examples: int, inputs: int) -> MemorizationSizes:
    """Sizes that suffice to memorize ``examples`` examples of ``inputs`` numbers each.

    Each counts one output of real values. Classes cost nothing extra: from f(x) = c the scores
    c' f(x) - c' ** 2 / 2 of the classes c' are largest at c' = c.

    >>> sizes = memorization_sizes(examples=50_000, inputs=2352)
    >>> sizes.projection_weights, sizes.general_position_units, sizes.two_layer_width
    (102352, 88, 448)
    """
    n = checks.count("examples", examples, minimum=1)
    d = checks.count("inputs", inputs, minimum=1)
    units = 4 * -(-n // d)
    # The smallest k with (2 k) ** 2 >= n, in whole numbers.
    half_root = -(-(math.isqrt(n - 1) + 1) // 2)
    width = 4 * half_root
    return MemorizationSizes(
        examples=n,
        inputs=d,
        projection_units=n,
        projection_weights=2 * n + d,
        general_position_units=units,
        general_position_weights=units * (d + 2) + 1,
        two_layer_width=width,
        two_layer_weights=width * (d + 1) + width * (width + 1) + width + 1,
        deep_weights_order=math.sqrt(n),
    )


def memorization_verdict(
    *, examples: int, inputs: int, widths: Sequence[int]
) -> MemorizationVerdict:
    """Whether a fully connected ReLU network with biases meets a known sufficient condition.

    widths   units of each hidden layer

    Wide layers inside a deeper network count: the layers before carry coordinates, the layers
    after carry the result, both by units whose bias keeps them positive on finitely many inputs.

    >>> memorization_verdict(examples=50_000, inputs=2352, widths=[512]).verdict
    'memorizes inputs in general position'
    >>> memorization_verdict(examples=50_000, inputs=2352, widths=[512, 512]).any_distinct
    ('hidden layers 1 and 2: 4 floor(512 / 4) floor(512 / 4) = 65536 >= 50000',)
    """
    n = checks.count("examples", examples, minimum=1)
    d = checks.count("inputs", inputs, minimum=1)
    hidden = checks.counts("widths", widths, minimum=1)
    distinct, general = [], []
    if d + 1 >= n:
        general.append(f"affine functions of the inputs: {d} + 1 >= {n}")
    carried = d
    for layer, width in enumerate(hidden, start=1):
        if width + 1 >= n:
            distinct.append(f"hidden layer {layer}: {width} + 1 >= {n}")
        if carried * (width // 4) >= n:
            # A generic projection to fewer dimensions keeps points in general position.
            general.append(
                f"hidden layer {layer}: {carried} floor({width} / 4) = {carried * (width // 4)} "
                f">= {n}"
            )
        carried = min(carried, width)
    for layer, (first, second) in enumerate(pairwise(hidden), start=1):
        capacity = 4 * (first // 4) * (second // 4)
        if capacity >= n:
            distinct.append(
                f"hidden layers {layer} and {layer + 1}: 4 floor({first} / 4) floor({second} / 4) "
                f"= {capacity} >= {n}"
            )
    sizes = (d, *hidden)
    parameters = [(sizes[i] + 1) * hidden[i] for i in range(len(hidden))] + [sizes[-1] + 1]
    upper = vc_upper(parameters=parameters, comparisons=[*hidden, 1])
    return MemorizationVerdict(tuple(distinct), tuple(general), upper < n, upper)
