"""Worlds with known risks, in which the claims of a theorem are counted as true or false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from nonvacuous.bounds.table import Theorem
from tests.bounds import oracles

WORLDS = 10_000
SURPRISE = 1e-4


def assert_covered(false_claims: np.ndarray, failure: float) -> None:
    """Fail if there are more false claims than chance explains."""
    worlds, observed = len(false_claims), int(false_claims.sum())
    chance = stats.binom.sf(observed - 1, worlds, failure)
    assert chance >= SURPRISE, (
        f"{observed} of {worlds} claims were false; at failure {failure} that happens "
        f"with probability {chance:.1e}."
    )


def in_every_world(bound: Callable[..., float], **columns: np.ndarray) -> np.ndarray:
    """The bound in each world: the library's own function, once per distinct set of arguments."""
    table = np.stack(list(columns.values()), axis=1)
    distinct, where = np.unique(table, axis=0, return_inverse=True)
    values = [bound(**dict(zip(columns, row, strict=True))) for row in distinct.tolist()]
    return np.array(values)[where.reshape(-1)]


# --------------------------------------------------------------------------- a finite class


@dataclass(frozen=True)
class FiniteClass:
    """Hypotheses with known risks, a sample for each world, and a posterior that saw it.

    The prior is uniform, the posterior is proportional to exp(-sharpness * empirical errors):
    the hypotheses that were lucky on the sample get the weight, as in training.
    """

    examples: int
    tails: np.ndarray  # (worlds, hypotheses, levels - 1): empirical frequency of loss >= level
    true_tails: np.ndarray  # (hypotheses, levels - 1)
    levels: tuple[float, ...]
    posterior: np.ndarray  # (worlds, hypotheses)
    drawn: np.ndarray  # (worlds,): one hypothesis from each posterior

    @property
    def steps(self) -> np.ndarray:
        return np.diff(self.levels)

    def average(self, values: np.ndarray) -> np.ndarray:
        return (self.posterior * values).sum(axis=1)

    @property
    def empirical(self) -> np.ndarray:
        """Empirical risk of every hypothesis in every world."""
        return self.tails @ self.steps

    @property
    def true(self) -> np.ndarray:
        return self.true_tails @ self.steps

    @property
    def kl(self) -> np.ndarray:
        ratio = self.posterior * self.posterior.shape[1]
        return self.average(np.log(np.maximum(ratio, 1e-300)))


def finite_class(
    seed: int, examples: int, probabilities: np.ndarray, levels: tuple[float, ...], sharpness: float
) -> FiniteClass:
    """``probabilities`` has a row per hypothesis and a column per level of the loss."""
    generator = np.random.default_rng(seed)
    hypotheses = len(probabilities)
    counts = generator.multinomial(examples, probabilities, size=(WORLDS, hypotheses))
    # At least level j: the sum of the columns from j on.
    tails = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1][:, :, 1:] / examples
    true_tails = probabilities[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    empirical = tails @ np.diff(levels)
    exponent = -sharpness * examples * empirical
    weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    posterior = weights / weights.sum(axis=1, keepdims=True)
    uniform = generator.random((WORLDS, 1))
    drawn = np.minimum((posterior.cumsum(axis=1) < uniform).sum(axis=1), hypotheses - 1)
    return FiniteClass(examples, tails, true_tails, levels, posterior, drawn)


@cache
def zero_one_world(name: str) -> FiniteClass:
    generator = np.random.default_rng(11)
    if name == "noise":  # nothing to learn: every gain on the sample is luck
        examples, risks, sharpness = 60, np.full(300, 0.4), 2.0
    elif name == "signal":
        examples, risks, sharpness = 100, generator.uniform(0.02, 0.5, 100), 0.5
    else:  # one hypothesis: no divergence to hide behind
        examples, risks, sharpness = 40, np.array([0.15]), 1.0
    probabilities = np.stack([1 - risks, risks], axis=1)
    return finite_class(12, examples, probabilities, (0.0, 1.0), sharpness)


# --------------------------------------------------------------------------- for every theorem

#: Failure probability of the claims, and how many samples are drawn for a theorem of the table.
FAILURE, FEW_WORLDS = 0.1, 2000
GRID = (0.1, 0.4, 0.9)
Columns = dict[str, np.ndarray]


def false_claims(theorem: Theorem) -> np.ndarray:
    """In which of the worlds the theorem's claim is false.

    A theorem with other inputs than these worlds have brings its own, beside its oracle: a function
    ``NAME_world(dice, worlds)`` that returns the inputs' columns and the truth in each world.
    """
    own = getattr(oracles, f"{theorem.name}_world", None)
    dice = np.random.default_rng(list(theorem.name.encode()))
    columns, truth = own(dice, FEW_WORLDS) if own else _world(theorem, dice)
    fixed: dict[str, Any] = {"grid": GRID, "failure": FAILURE, "examples": 60, "trials": 60}
    fixed |= {name: theorem.inputs[name].example for name in theorem.fixed_before if name != "grid"}
    fixed = {name: value for name, value in fixed.items() if name in theorem.parameters}
    fixed |= {n: theorem.inputs[n].example for n in theorem.free if n in theorem.required}
    needed = {name: values for name, values in columns.items() if name in theorem.parameters}
    whole = [name for name, spec in theorem.inputs.items() if spec.whole]

    def value(**call: float) -> float:
        call |= {name: int(number) for name, number in call.items() if name in whole}
        return theorem.function(**{**fixed, **call})

    values = in_every_world(value, **needed)
    return values > truth if theorem.lower else values < truth


def _world(theorem: Theorem, dice: np.random.Generator) -> tuple[Columns, np.ndarray]:
    if "stochastic" in theorem.about:
        world = zero_one_world("noise")
        risk = np.clip(world.average(world.empirical), 0, 1)
        columns = {
            "empirical_risk": risk,
            "second_moment": risk,
            "kl_nats": np.maximum(world.kl, 0),
        }
        truth = world.average(world.true)
    elif theorem.about == ("drawn",):
        world = zero_one_world("noise")
        rows = np.arange(WORLDS)
        ratio = world.posterior * world.posterior.shape[1]
        columns = {
            "empirical_risk": world.empirical[rows, world.drawn],
            "log_density_ratio": np.log(ratio[rows, world.drawn]),
            "renyi_nats": np.maximum(np.log(np.mean(ratio**2.0, axis=1)), 0),
        }
        truth = world.true[world.drawn]
    else:  # one predictor, errors counted
        counts = dice.binomial(60, 0.2, FEW_WORLDS).astype(float)
        columns, truth = {"errors": counts, "total": counts}, np.full(FEW_WORLDS, 0.2)
    return {name: values[:FEW_WORLDS] for name, values in columns.items()}, truth[:FEW_WORLDS]
