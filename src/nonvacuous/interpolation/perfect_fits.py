"""More weights than examples: infinitely many perfect fits, and which of them an optimizer finds.

The steps of stochastic gradient descent on a linear model are multiples of the examples. Started
at zero it therefore stays in their span, where only one perfect fit lies: the one of smallest norm.
Started elsewhere it keeps what it started with outside the span. Methods that rescale every
coordinate (Adam, AdaGrad) leave the span, and end at another perfect fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nonvacuous.errors import BadInput
from nonvacuous.interpolation.kernels import Kernel, PointGram
from nonvacuous.interpolation.solve import as_points, interpolate, one_hot
from nonvacuous.seeds import derived_seed


@dataclass(frozen=True)
class Fit:
    """One way to fit all examples.

    name           who made it
    residual       max |X w − y| on the training examples
    norm           ‖w‖
    outside        ‖the part of w that no combination of examples gives‖ / ‖w‖
    expected       relative distance to where theory says that this method ends; None: nothing said
    to_minimum     relative distance to the perfect fit of smallest norm
    test_error     mean squared error on test examples
    """

    name: str
    residual: float
    norm: float
    outside: float
    expected: float | None
    to_minimum: float
    test_error: float


#: Fits, and the weights of each.
Fits = dict[Fit, np.ndarray]


@dataclass(frozen=True)
class LinearProblem:
    """Training examples X, y with fewer rows than columns, and test examples."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray

    def __post_init__(self) -> None:
        rows, columns = self.inputs.shape
        if rows >= columns:
            raise BadInput(
                f"{rows} examples with {columns} weights: for more than one perfect fit there must "
                "be more weights than examples"
            )
        if np.linalg.matrix_rank(self.inputs) < rows:
            raise BadInput(
                "the training inputs are linearly dependent: not every labeling can be fitted. "
                "Leave out repeated examples"
            )


def random_problem(
    *, examples: int = 40, weights: int = 120, test: int = 2000, noise: float = 0.1, seed: int = 0
) -> LinearProblem:
    """Inputs whose variance falls from coordinate to coordinate, and a linear target with noise."""
    generator = np.random.default_rng(derived_seed(seed, "linear problem"))
    scales = 1 / np.sqrt(1 + np.arange(weights) / 10)
    truth = generator.normal(size=weights) * scales
    parts = []
    for count in (examples, test):
        inputs = generator.normal(size=(count, weights)) * scales
        parts += [inputs, inputs @ truth + noise * generator.normal(size=count)]
    return LinearProblem(*parts)


def minimum_norm(problem: LinearProblem) -> np.ndarray:
    """The perfect fit of smallest norm, X⁺ y."""
    return nearest_fit(problem, np.zeros(problem.inputs.shape[1]))


def nearest_fit(problem: LinearProblem, weights: np.ndarray) -> np.ndarray:
    """The perfect fit nearest to these weights, w + X⁺ (y − X w), by a QR factorization of Xᵀ."""
    q, r = np.linalg.qr(problem.inputs.T)
    remainder = problem.targets - problem.inputs @ weights
    return np.asarray(weights + q @ np.linalg.solve(r.T, remainder))


def compare_fits(problem: LinearProblem, *, seed: int = 0, epochs: int = 4000) -> Fits:
    """The minimum-norm fit beside those that each optimizer reaches from its starting point."""
    generator = np.random.default_rng(derived_seed(seed, "starting point"))
    elsewhere = generator.standard_normal((problem.inputs.shape[1],))
    zero = np.zeros_like(elsewhere)
    smallest = minimum_norm(problem)
    near = stochastic_descent(problem, zero, epochs=epochs, seed=seed)
    far = stochastic_descent(problem, elsewhere, epochs=epochs, seed=seed)
    ends: tuple[tuple[str, np.ndarray, np.ndarray | None], ...] = (
        ("minimum norm", smallest, smallest),
        ("SGD from zero", near, smallest),
        ("SGD from elsewhere", far, nearest_fit(problem, elsewhere)),
        ("Adam from zero", adaptive_descent(problem, kind="Adam"), None),
        ("AdaGrad from zero", adaptive_descent(problem, kind="Adagrad"), None),
    )
    return {judge(problem, *end): end[1] for end in ends}


def judge(
    problem: LinearProblem, name: str, weights: np.ndarray, expected: np.ndarray | None = None
) -> Fit:
    """Everything a table wants to know about one fit."""
    outside = weights - _projected(problem.inputs, weights)
    norm = float(np.linalg.norm(weights))
    errors = problem.test_inputs @ weights - problem.test_targets
    return Fit(
        name=name,
        residual=float(np.abs(problem.inputs @ weights - problem.targets).max()),
        norm=norm,
        outside=float(np.linalg.norm(outside)) / max(norm, 1e-300),
        expected=None if expected is None else _relative(weights, expected),
        to_minimum=_relative(weights, minimum_norm(problem)),
        test_error=float(np.mean(errors**2)),
    )


def stochastic_descent(
    problem: LinearProblem, start: np.ndarray, *, epochs: int, seed: int
) -> np.ndarray:
    """SGD on the squared loss, one example at a time in random order, until nothing moves."""
    generator = np.random.default_rng(derived_seed(seed, "order of examples"))
    x, y = problem.inputs, problem.targets
    # A step that solves its own example exactly: the largest that cannot diverge.
    rates = 1 / np.square(x).sum(1)
    weights = start.astype(np.float64).copy()
    for _ in range(epochs):
        before = weights.copy()
        for i in generator.permutation(len(x)):
            weights -= rates[i] * (x[i] @ weights - y[i]) * x[i]
        if np.linalg.norm(weights - before) <= 1e-16 * np.linalg.norm(weights):
            break
    return weights


def adaptive_descent(problem: LinearProblem, *, kind: str, steps: int = 20_000) -> np.ndarray:
    """Adam or AdaGrad from zero on the mean squared loss of all examples, to a residual near 0."""
    x, y = torch.from_numpy(problem.inputs), torch.from_numpy(problem.targets)
    weights = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    rate = {"Adam": 0.01, "Adagrad": 0.1}[kind]
    optimizer: torch.optim.Optimizer = getattr(torch.optim, kind)([weights], lr=rate)
    for step in range(steps):
        remainder = x @ weights.detach() - y
        if float(remainder.abs().max()) < 1e-12:
            break
        weights.grad = x.T @ remainder / len(x)
        optimizer.step()
        # Adam dances around a minimum unless its steps die down.
        if kind == "Adam" and step > steps // 2 and step % 200 == 0:
            for group in optimizer.param_groups:
                group["lr"] *= 0.7
    # What is left is less than anybody sees; take it off without entering or leaving the span.
    return nearest_fit(problem, weights.detach().numpy())


def family(problem: LinearProblem, sizes: np.ndarray, *, seed: int = 0) -> Fits:
    """Perfect fits: the smallest plus so much of one direction in which no example has a part."""
    generator = np.random.default_rng(derived_seed(seed, "direction"))
    drawn = generator.standard_normal((problem.inputs.shape[1],))
    direction = drawn - _projected(problem.inputs, drawn)
    direction /= np.linalg.norm(direction)
    members = {f"{size:g}": minimum_norm(problem) + size * direction for size in sizes}
    return {judge(problem, name, weights): weights for name, weights in members.items()}


def _softplus_loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss whose curvature changes with the prediction, unlike that of the squared loss."""
    difference = predictions - targets
    return (torch.nn.functional.softplus(difference) - 0.5 * difference).mean()


def hessian_difference(
    problem: LinearProblem,
    weights: np.ndarray,
    others: np.ndarray,
    *,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _softplus_loss,
) -> float:
    """The largest difference between the Hessians of the training loss at two sets of weights.

    By automatic differentiation, not by formula. For any loss the Hessian is a function of the
    predictions X w only, so that at two perfect fits it is the same matrix: no flatness of the
    training loss tells a good one from a bad one.
    """
    x, y = torch.from_numpy(problem.inputs), torch.from_numpy(problem.targets)
    one, other = (
        torch.autograd.functional.hessian(lambda w: loss(x @ w, y), torch.from_numpy(np.array(own)))
        for own in (weights, others)
    )
    return float((one - other).abs().max())


def _projected(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of the weights in the span of the examples."""
    q, _ = np.linalg.qr(x.T)
    return np.asarray(q @ (q.T @ weights))


def _relative(weights: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(weights - expected)) / max(float(np.linalg.norm(expected)), 1e-300)


@dataclass(frozen=True)
class Judged:
    """One interpolant: its norm, and what it gets wrong."""

    name: str
    norm: float
    residual: float
    train_errors: int
    train_examples: int
    test_errors: int
    test_examples: int


def compare_interpolants(
    points: Any,
    labels: np.ndarray,
    test_points: Any,
    test_labels: np.ndarray,
    *,
    kernel: Kernel,
    classes: int,
    seed: int = 0,
) -> tuple[Judged, ...]:
    """The minimum-norm interpolant, and two that fit the same training examples as perfectly.

    forced      also made to pass through random labels at the test points: in the same space of
                functions there is one, of larger norm, that is wrong at nine of ten of them
    elsewhere   a combination of kernels around random points instead of the training points
    """
    train, test = as_points(points), as_points(test_points, what="test points")
    true = one_hot(labels, classes)
    generator = np.random.default_rng(derived_seed(seed, "bad interpolants"))
    good = interpolate(train, true, kernel=kernel)
    wrong = generator.integers(0, classes, len(test))
    forced = interpolate(
        torch.cat([train, test]), np.concatenate([true, one_hot(wrong, classes)]), kernel=kernel
    )

    made = {"smallest norm": good, "forced to random labels at the test points": forced}
    answers = {
        name: (f.norms["values"], f.residual, f.predict(train), f.predict(test))
        for name, f in made.items()
    }
    answers["kernels around random points"] = _centered_elsewhere(
        train, test, torch.from_numpy(true), kernel, generator
    )
    return tuple(
        Judged(
            name,
            norm,
            residual,
            train_errors=int((fitted.argmax(1) != labels).sum()),
            train_examples=len(labels),
            test_errors=int((tested.argmax(1) != test_labels).sum()),
            test_examples=len(test_labels),
        )
        for name, (norm, residual, fitted, tested) in answers.items()
    )


def _centered_elsewhere(
    train: torch.Tensor,
    test: torch.Tensor,
    targets: torch.Tensor,
    kernel: Kernel,
    generator: np.random.Generator,
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """As many kernels as examples, around points with every coordinate drawn from the data.

    Coordinates are drawn independently, so that the centers look like no example. Returns the
    norm, the residual, and the values at training and test points.
    """
    rows = generator.integers(0, len(train), (len(train), train.shape[1]))
    drawn = train.numpy()[rows, np.arange(train.shape[1])]
    spread = train.numpy().std() * 0.5
    centers = torch.from_numpy(drawn + spread * generator.normal(size=drawn.shape))
    gram = PointGram(kernel, centers)
    between = gram.across(train)
    factor, pivots, trouble = torch.linalg.lu_factor_ex(between)
    if int(trouble):
        raise BadInput(
            "kernels around random points do not span all labelings of these examples: they are "
            "too narrow or the examples repeat. Take a wider kernel (a smaller gamma)"
        )
    coefficients = torch.linalg.lu_solve(factor, pivots, targets)
    for _ in range(3):
        remainder = targets - between @ coefficients
        coefficients = coefficients + torch.linalg.lu_solve(factor, pivots, remainder)
    inside = gram.tile(slice(0, len(centers)), slice(0, len(centers)))
    norm = float((coefficients * (inside @ coefficients)).sum().clamp(min=0).sqrt())
    fitted, tested = between @ coefficients, gram.across(test) @ coefficients
    return norm, float((fitted - targets).abs().max()), fitted.numpy(), tested.numpy()
