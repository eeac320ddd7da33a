"""Classical capacity: Hoeffding, Rademacher and VC, as plain numbers.

None of these looks at the labels that were learned, so none of them can tell a network trained on
true labels from one trained on random labels. They are here to be put on trial.
docs/theory/capacity.md proves what is computed, or names the source.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.rounding import as_risk, up
from nonvacuous.bounds.table import guarded
from nonvacuous.errors import BadInput

__all__ = [
    "MemorizationSizes",
    "MemorizationVerdict",
    "hoeffding_radius",
    "memorization_sizes",
    "memorization_verdict",
    "rademacher_gap",
    "vc_lower",
    "vc_upper",
]


@guarded
def hoeffding_radius(*, examples: int, failure: float) -> float:
    """How far the empirical risk of one fixed predictor may be from its risk, either way.

    Statement: with probability at least 1 - failure over ``examples`` independent examples,
    |empirical risk - risk| <= sqrt(ln(2 / failure) / (2 examples)).
    Assumptions: losses in [0, 1]; the predictor was fixed before the examples were drawn. A trained
    predictor on its own training examples breaks the second one.
    Source: Hoeffding (1963), Theorem 2, once for each side.

    >>> round(hoeffding_radius(examples=50_000, failure=0.05), 4)
    0.0061
    """
    return as_risk(_radius(examples, failure))


@guarded
def rademacher_gap(*, rademacher: float, examples: int, failure: float) -> float:
    """Upper bound on risk - empirical risk, for all predictors of a class at once.

    Statement: with probability at least 1 - failure, for every h of the class,
    risk <= empirical risk + R + 3 sqrt(ln(2 / failure) / (2 examples)), where R = E sup over h of
    (1/n) sum of sign_i h(x_i) is the empirical Rademacher complexity of the class on the training
    inputs and the risk counts errors.
    Assumptions: predictors with values -1 and +1; independent examples; R is the supremum itself.
    The theorem for losses in [0, 1] has 2 R(losses), and R(losses) = R / 2 for errors.
    Source: Bartlett and Mendelson (2002); in this form Mohri, Rostamizadeh and Talwalkar (2018),
    Theorem 3.5.

    An R measured by training networks on random signs is the mean of what training reached, at most
    the supremum. Then the returned number is a diagnosis and not a certificate: too small where
    training stopped short. Where the class fits every labeling R is 1, which no class exceeds; the
    bound is 1 then and says nothing, for true labels as for random ones.

    >>> round(rademacher_gap(rademacher=0.18, examples=200, failure=0.05), 4)
    0.4681
    >>> rademacher_gap(rademacher=1.0, examples=50_000, failure=0.05)
    1.0
    """
    complexity = checks.unit_interval("rademacher", rademacher)
    return as_risk(up(complexity + up(3.0 * _radius(examples, failure))))


def vc_upper(*, parameters: Sequence[int], comparisons: Sequence[int]) -> int:
    """Upper bound on the VC dimension of a piecewise linear network, layer by layer.

    parameters    trainable numbers of each layer (0 for pooling); shared weights count once
    comparisons   how many signs decide what each layer does to one input: one per ReLU; s (s-1) / 2
                  per maximum over s values; 1 for the last layer, whose sign is the prediction

    Statement: m points can be labeled in at most G(m) ways, G(m) being the product over layers i of
    2 (2 e m comparisons_i degree_i / W_i) ** W_i, where W_i counts the parameters up to layer i and
    degree_i the layers up to i that have any; where m comparisons_i < W_i the factor is
    2 ** (m comparisons_i). Returned is the largest m before 2 ** m > G(m).
    Assumptions: a feed-forward network (connections may skip layers) of affine maps and piecewise
    linear functions; predicted is the sign of one output. For a network with several classes take
    two of them: the difference of their scores is one output, with as many weights as either.
    Source: Bartlett, Harvey, Liaw and Mehrabian (2019), Theorem 6 and its proof. Their closed form
    is never smaller. It grows like W L log W whatever the data and the labels.

    >>> vc_upper(parameters=[21], comparisons=[1])  # affine functions of 20 inputs: exact
    21
    >>> vc_upper(parameters=[2353 * 512, 513], comparisons=[512, 1])  # one hidden layer of 512
    28993239
    """
    layers = _layers(parameters, comparisons)
    if len(layers) == 1:
        # Signs of a vector space of functions shatter as many points as it has dimensions.
        return layers[0][0]
    high = 2
    while _log_labelings(high, layers) >= high:
        high *= 2
        if high > checks.LARGEST_COUNT:
            raise BadInput("vc_upper: the bound exceeds 2^53; the network is too large to count")
    # log2 G(m) - m is concave and not negative at m = 1: it changes its sign once.
    low = high // 2
    return low + bisect(range(low + 1, high), 0, key=lambda m: _log_labelings(m, layers) < m)


def vc_lower(*, inputs: int, widths: Sequence[int]) -> int:
    """Lower bound on the VC dimension of a fully connected ReLU network, by construction.

    inputs   the number of inputs
    widths   units of each hidden layer; none for an affine classifier

    Statement: some set of that many points can be labeled in every way. It is the largest of:
    inputs + 1 (affine functions, passed through the layers); width + 1 of any hidden layer (points
    on a line, one knot each); d floor(width / 4) of any hidden layer, where d is the least of
    ``inputs`` and the widths before it (points in general position, d to every four units).
    Assumptions: every layer has biases; ReLU; the sign of one output is predicted.
    Source: Zhang et al. (2017), Theorem 1; Baum (1988) and Bubeck et al. (2020) for the last;
    written out in docs/theory/capacity.md.

    >>> vc_lower(inputs=2352, widths=[512])
    301056
    >>> vc_lower(inputs=1, widths=[512])
    513
    """
    carried = checks.count("inputs", inputs, minimum=1)
    # Affine functions of all inputs need no more than one unit per layer to pass through.
    best = carried + 1
    for width in checks.counts("widths", widths, minimum=1):
        best = max(best, width + 1, carried * (width // 4))
        carried = min(carried, width)
    return best


# How large a network must be to memorize n examples of d numbers each: known sufficient sizes.
#
# These are theorems about the existence of weights; whether training finds them only training can
# tell.


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


def _radius(examples: int, failure: float) -> float:
    return up(math.sqrt(up(math.log(2.0) - math.log(failure)) / (2.0 * examples)))


def _layers(parameters: Any, comparisons: Any) -> list[tuple[int, int, int]]:
    """(parameters so far, comparisons, degree) of each layer, checked."""
    own = checks.counts("parameters", parameters, minimum=0)
    signs = checks.counts("comparisons", comparisons, minimum=0)
    if not own or len(own) != len(signs):
        raise BadInput(
            f"parameters and comparisons must hold one count per layer each, got {len(own)} and "
            f"{len(signs)}."
        )
    if signs[-1] != 1:
        raise BadInput(
            "comparisons must end with 1, for the sign of the one output that predicts, got "
            f"{signs[-1]}; for several classes take the difference of two scores."
        )
    layers, total, degree = [], 0, 0
    for count, sign in zip(own, signs, strict=True):
        total += count
        degree += count > 0
        layers.append((total, sign, degree))
    if total == 0:
        raise BadInput("parameters must not all be 0: there is nothing to train.")
    return layers


def _log_labelings(points: int, layers: list[tuple[int, int, int]]) -> float:
    """log2 G(points), rounded up."""
    total = 0.0
    for variables, signs, degree in layers:
        polynomials = float(points) * signs
        logarithm = polynomials
        if variables and polynomials >= variables:
            # With as many polynomials as variables, or more, Warren's count applies.
            ratio = 2.0 * math.e * degree * (polynomials / variables)
            logarithm = min(logarithm, up(1.0 + variables * up(math.log2(ratio))))
        elif not variables:
            logarithm = 0.0  # before any parameter nothing depends on them
        total += logarithm
    return up(total, ulps=8 + len(layers))
