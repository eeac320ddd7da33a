"""Slow, independent versions of the capacity numbers, and networks that prove lower bounds.

Nothing here imports the library. Numbers are computed in 60 digits from the statements; the
networks are built and evaluated in exact fractions, so that "fits" means equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from tests.bounds.oracles import mp, mpf, real

Matrix = list[list[Fraction]]
Layer = tuple[Matrix, list[Fraction]]


def hoeffding_radius(examples: int, failure: float) -> mpf:
    """The r at which 2 exp(-2 n r^2) equals the failure probability."""
    return mp.sqrt(mp.log(2 / real(failure)) / mpf(2 * examples))


def rademacher_gap(rademacher: float, examples: int, failure: float) -> mpf:
    """R + sqrt(9 ln(2/failure) / 2n)."""
    return real(rademacher) + mp.sqrt(9 * mp.log(2 / real(failure)) / mpf(2 * examples))


def labelings(points: int, parameters: Sequence[int], comparisons: Sequence[int]) -> mpf:
    """G(m), multiplied out."""
    product = mpf(1)
    for layer in range(len(parameters)):
        variables = sum(parameters[: layer + 1])
        degree = sum(1 for count in parameters[: layer + 1] if count)
        polynomials = points * comparisons[layer]
        trivial = mpf(2) ** polynomials
        if variables == 0 or polynomials < variables:
            product *= trivial if variables else 1
            continue
        warren = 2 * (2 * mp.e * polynomials * degree / mpf(variables)) ** variables
        product *= min(trivial, warren)
    return product


def vc_upper(parameters: Sequence[int], comparisons: Sequence[int]) -> int:
    """One before the first m with 2^m > G(m), found by counting up."""
    points = 1
    while mpf(2) ** points <= labelings(points, parameters, comparisons):
        points += 1
    return points - 1


def published_closed_form(parameters: Sequence[int], units: Sequence[int]) -> mpf:
    """Bartlett et al. (2019), Theorem 6: L + (sum of W_i) log2(4 e R log2(2 e R)) for ReLU."""
    depth = len(parameters)
    effective = sum(sum(parameters[: layer + 1]) for layer in range(depth))
    r = sum((layer + 1) * units[layer] for layer in range(depth))
    return depth + effective * mp.log(4 * mp.e * r * mp.log(2 * mp.e * r, 2), 2)


# ------------------------------------------------------------------ networks in fractions


def evaluate(layers: Sequence[Layer], point: Sequence[Fraction]) -> Fraction:
    """The scalar output of a fully connected ReLU network."""
    values = list(point)
    for number, (weights, biases) in enumerate(layers):
        values = [
            sum((w * v for w, v in zip(row, values, strict=True)), start=bias)
            for row, bias in zip(weights, biases, strict=True)
        ]
        if number < len(layers) - 1:
            values = [max(value, Fraction(0)) for value in values]
    assert len(values) == 1
    return values[0]


def carrying(size: int, coordinates: int, points: Sequence[Sequence[Fraction]]) -> Layer:
    """A layer that hands the first coordinates on, shifted to be positive on these points."""
    shift = max(abs(value) for point in points for value in point) + 1
    weights = [[Fraction(int(i == j)) for j in range(size)] for i in range(coordinates)]
    return weights, [shift] * coordinates


def knots(values: Sequence[Fraction]) -> list[Layer]:
    """One hidden layer of len(values) - 1 units with these values at 0, 1, 2, ..."""
    slopes = [after - before for before, after in pairwise(values)]
    changes = [slope - (slopes[i - 1] if i else 0) for i, slope in enumerate(slopes)]
    hidden = [[Fraction(1)] for _ in changes], [Fraction(-i) for i in range(len(changes))]
    return [hidden, ([changes], [Fraction(values[0])])]


def moment_curve(count: int, dimension: int) -> list[list[Fraction]]:
    """Points (t, t^2, ..., t^d) at t = 1, 2, ...: no hyperplane holds more than d of them."""
    return [[Fraction(t) ** k for k in range(1, dimension + 1)] for t in range(1, count + 1)]


def four_units_per_group(
    points: Sequence[Sequence[Fraction]], values: Sequence[Fraction]
) -> list[Layer]:
    """One hidden layer of 4 ceil(n / d) units with these values at points of the moment curve.

    Group the points by d. t(x) vanishes on one group and on no other point; s(x) is affine with the
    group's values. (relu(t + ks + e) - relu(t + e) - relu(t + ks - e) + relu(t - e)) / k equals s
    where t = 0 and 0 where |t| >= 2e, as long as |k s| <= e everywhere.
    """
    dimension = len(points[0])
    weights: Matrix = []
    biases: list[Fraction] = []
    output: list[Fraction] = []
    for start in range(0, len(points), dimension):
        group = range(start, min(start + dimension, len(points)))
        zero_at = [points[i][0] for i in group]
        t = _polynomial_with_zeros(zero_at, dimension)
        s = _interpolating_polynomial(zero_at, [values[i] for i in group], dimension)
        others = [points[i] for i in range(len(points)) if i not in group]
        e = min((abs(_affine(t, x)) for x in others), default=Fraction(2)) / 2
        k = e / (1 + max(abs(_affine(s, x)) for x in points))
        for sign, factor, shift in ((1, k, e), (-1, 0, e), (-1, k, -e), (1, 0, -e)):
            row = [a + factor * b for a, b in zip(t, s, strict=True)]
            weights.append(row[1:])
            biases.append(row[0] + shift)
            output.append(Fraction(sign) / k)
    return [(weights, biases), ([output], [Fraction(0)])]


def _affine(coefficients: Sequence[Fraction], point: Sequence[Fraction]) -> Fraction:
    return coefficients[0] + sum(
        (c * x for c, x in zip(coefficients[1:], point, strict=True)), start=Fraction(0)
    )


def _polynomial_with_zeros(zeros: Sequence[Fraction], degree: int) -> list[Fraction]:
    """Coefficients, constant first; fewer zeros than the degree get zeros where no point is."""
    padded = [*zeros, *(Fraction(-1 - i) for i in range(degree - len(zeros)))]
    coefficients = [Fraction(1)]
    for zero in padded:
        shifted = [Fraction(0), *coefficients]
        coefficients = [
            a - zero * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients


def _interpolating_polynomial(
    at: Sequence[Fraction], values: Sequence[Fraction], degree: int
) -> list[Fraction]:
    total = [Fraction(0)] * (degree + 1)
    for i, value in enumerate(values):
        others = [z for j, z in enumerate(at) if j != i]
        basis = _polynomial_with_zeros(others, len(others))
        scale = Fraction(1)
        for z in others:
            scale *= at[i] - z
        for k, coefficient in enumerate(basis):
            total[k] += value * coefficient / scale
    return total
