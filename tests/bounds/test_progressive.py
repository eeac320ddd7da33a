"""The gate for progressive validation against slow oracles, and what it guards against."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from nonvacuous import bounds
from nonvacuous.errors import BadInput

from .oracles import mp, mpf


def exact_k(trials: int, threshold: float, failure: float) -> int:
    """What the exact binomial tail would allow."""
    return int(stats.binom.ppf(failure, trials, threshold)) - 1


def gate_k(trials: int, threshold: float, failure: float) -> int:
    """What the gate allows."""
    call = {"trials": trials, "threshold": threshold, "failure": failure}
    return sum(bounds.gate(errors=k, **call) < 1.0 for k in range(int(trials * threshold))) - 1


@pytest.mark.parametrize(
    ("mass", "k", "published"),
    [(20, 12, 0.0571), (100, 83, 0.0807), (50, 38, 0.0781), (300, 271, 0.0890)],
)
def test_values_of_the_theory(mass: int, k: int, published: float) -> None:
    value = bounds.gate_failure(errors=k, trials=10 * mass, threshold=0.1)
    assert value == pytest.approx(published, abs=6e-5)


def test_errors_allowed_by_tail_gate_and_tilt() -> None:
    mass, failure = 100.0, 0.05
    poisson = int(stats.poisson.ppf(failure, mass)) - 1
    tilted = max(k for k in range(100) if (mass / max(k, 1)) ** k * math.exp(k - mass) <= failure)
    assert (poisson, gate_k(1_000_000, 1e-4, failure), tilted) == (83, 80, 76)


@pytest.mark.parametrize(("mass", "k"), [(5.0, 1), (20.0, 12), (60.0, 48)])
def test_h_is_the_chance_of_a_first_passage(mass: float, k: int) -> None:
    """q - N(q) reaches M - k before q = M: simulated, looking before every jump and at the end."""
    draws, jumps = 200_000, int(mass + 8 * math.sqrt(mass) + 10)
    generator = np.random.default_rng(k)
    reached = 0
    for _ in range(4):
        times = generator.exponential(size=(draws // 4, jumps)).cumsum(axis=1)
        heights = np.where(times <= mass, times - np.arange(jumps), -np.inf).max(axis=1)
        at_end = mass - (times <= mass).sum(axis=1)
        reached += int((np.maximum(heights, at_end) >= mass - k).sum())
    value = bounds.gate_failure(errors=k, trials=1000, threshold=mass / 1000)
    spread = 5 * math.sqrt(value * (1 - value) / draws)
    assert abs(reached / draws - value) < spread


def best_chance(trials: int, goal: int, k: int, unit: int) -> float:
    """Dynamic program over all adaptive strategies with risks that are multiples of 1/unit."""
    left = np.arange(goal + 1)
    # value[r + 1, x]: chance to win with r errors and mass x left; a win is x = 0 with r >= 0.
    value = np.zeros((k + 2, goal + 1))
    value[1:, 0] = 1.0
    for _ in range(trials):
        after = np.zeros_like(value)
        for p in range(unit + 1):
            spent = np.maximum(left - p, 0)
            step = (1 - p / unit) * value[1:, spent] + p / unit * value[:-1, spent]
            after[1:] = np.maximum(after[1:], step)
        after[1:, 0] = 1.0
        value = after
    return float(value[k + 1, goal])


@pytest.mark.parametrize(
    ("trials", "threshold", "k"), [(30, 0.2, 2), (60, 0.25, 8), (200, 0.1, 12), (40, 0.5, 13)]
)
def test_h_is_above_every_adaptive_strategy(trials: int, threshold: float, k: int) -> None:
    unit = 20
    chance = best_chance(trials, round(unit * trials * threshold), k, unit)
    value = bounds.gate_failure(errors=k, trials=trials, threshold=threshold)
    assert stats.binom.cdf(k, trials, threshold) < chance <= value
    if (trials, k) == (200, 12):  # "if", not "iff"
        assert chance == pytest.approx(0.047, abs=1e-3) and value == pytest.approx(0.057, abs=1e-3)


@pytest.mark.slow
def test_h_is_nearly_reached_by_small_steps() -> None:
    fine = best_chance(400, 1_000, 3, 100)  # mass 10 in steps of 1/100
    assert 0.9 < fine / bounds.gate_failure(errors=3, trials=400, threshold=10 / 400) <= 1.0


@pytest.mark.parametrize("step", [0.3, 1.7])
def test_the_proof_step_by_step_in_many_digits(step: float) -> None:
    """h never rises on average: phi(p) <= h(r, x), from the series itself, in 60 digits."""

    def h(r: int, x: mpf) -> mpf:
        if r < 0:
            return mpf(0)
        b = x - r
        if b <= 0:
            return mpf(1)
        terms = (b * (b + j) ** (j - 1) * mp.exp(-(b + j)) / mp.factorial(j) for j in range(r + 1))
        return mp.fsum(terms)

    for r, part in itertools.product((0, 1, 2, 5, 11), (1, 3, 8)):
        x = r + mpf(step) * part / 3
        for tenth in range(11):
            p = mpf(tenth) / 10
            assert (1 - p) * h(r, x - p) + p * h(r - 1, x - p) <= h(r, x) * (1 + mpf(10) ** -50)
        # Second differences, from which this follows.
        assert h(r, x) - 2 * h(r - 1, x) + h(r - 2, x) >= 0


def lucky_rate(trials: int, threshold: float, k: int, *, worlds: int) -> float:
    """A learner of risk ``threshold`` that errs always from the moment it can afford to.

    It spends mass and errors one for one; its mean risk is at the threshold or above.
    """
    generator = np.random.default_rng(0)
    mass, wins = trials * threshold, 0
    chunk = 2_000
    steps = threshold * np.arange(1, trials + 1)
    for _ in range(worlds // chunk):
        wrong = (generator.random((chunk, trials)) < threshold).cumsum(axis=1)
        wins += int(((np.ceil(mass - steps) + wrong <= k).any(axis=1)).sum())
    return wins / worlds


@pytest.mark.parametrize(("trials", "threshold"), [(1000, 0.05), (2000, 0.05)])
def test_the_planted_exact_tail_is_seen_to_fail(trials: int, threshold: float) -> None:
    failure, worlds = 0.05, 20_000
    planted, sound = exact_k(trials, threshold, failure), gate_k(trials, threshold, failure)
    assert stats.binom.cdf(planted, trials, threshold) <= failure
    spread = 4 * math.sqrt(failure * (1 - failure) / worlds)
    assert lucky_rate(trials, threshold, planted, worlds=worlds) > failure + spread
    assert lucky_rate(trials, threshold, sound, worlds=worlds) <= failure + spread


def test_the_exact_tail_fails_up_to_twice_as_often_and_no_more() -> None:
    ratios = []
    for mass in (5, 20, 100, 1_000, 20_000):
        k = int(stats.poisson.ppf(0.05, mass))
        value = bounds.gate_failure(errors=k, trials=10**9, threshold=mass / 10**9)
        ratios.append(value / stats.poisson.cdf(k, mass))
    assert ratios == sorted(ratios) and 1.9 < ratios[-1] <= 2.0


def test_the_gate_needs_its_margin_and_never_rises() -> None:
    call = {"trials": 500, "threshold": 0.1, "failure": 0.05}
    passed = [bounds.gate(errors=k, **call) for k in range(60)]
    assert passed == sorted(passed) and set(passed) == {0.1, 1.0}
    assert bounds.gate(errors=0, trials=10, threshold=0.0, failure=0.5) == 1.0


def two_batches(first: int, second: int, threshold: float, k: int) -> float:
    """The best chance of a learner with two batches: any first risk, a second for every count."""
    mass, best = (first + second) * threshold, 0.0
    counts = np.arange(first + 1)
    for p in np.linspace(0.0, 1.0, 401):
        needed = (mass - first * p) / second
        if needed <= 1.0:
            # Every risk that reaches the mass, after every count: the smallest is best.
            risks = np.linspace(max(needed, 0.0), 1.0, 21)
            after = stats.binom.cdf(k - counts[:, None], second, risks).max(axis=1)
            best = max(best, float(stats.binom.pmf(counts, first, p) @ after))
    return best


@pytest.mark.parametrize(
    ("first", "second", "threshold", "k"),
    [(30, 30, 0.25, 8), (10, 90, 0.2, 12), (90, 10, 0.2, 12), (20, 20, 0.5, 13), (1, 9, 0.35, 2)],
)
def test_two_batches_leave_nothing_to_adapt(
    first: int, second: int, threshold: float, k: int
) -> None:
    trials = first + second
    exact = stats.binom.cdf(k, trials, threshold)
    call = {"errors": k, "trials": trials, "threshold": threshold}
    assert bounds.gate_failure(**call, batches=2) == pytest.approx(exact, rel=1e-8)
    assert exact <= bounds.gate_failure(**call, batches=2) < bounds.gate_failure(**call)
    assert two_batches(first, second, threshold, k) <= exact * (1 + 1e-12)


def test_hoeffdings_step_by_brute_force() -> None:
    """All chances on a grid that sum to M: at most k successes is likeliest where all are equal."""
    trials, steps = 5, 10
    for total in range(steps, trials * steps, 3):
        equal = total / steps / trials
        for k in range(math.floor(total / steps - 1) + 1):
            most = stats.binom.cdf(k, trials, equal)
            for chances in itertools.combinations_with_replacement(range(steps + 1), trials):
                if sum(chances) == total:
                    law = np.ones(1)
                    for chance in chances:
                        law = np.convolve(law, (1 - chance / steps, chance / steps))
                    assert law[: k + 1].sum() <= most + 1e-12


def test_three_batches_beat_the_exact_tail_and_not_h() -> None:
    """Why two and no more: a look after the first, and the second and third risk still open."""
    first, later, threshold, k = 40, 10, 0.5, 23
    trials = first + 2 * later
    counts, best = np.arange(first + 1), 0.0
    few = np.arange(later + 1)
    for p in np.linspace(0.4, 0.9, 21):
        left = trials * threshold - first * p
        after = np.zeros(first + 1)
        for second in np.linspace(max(0.0, left / later - 1.0), min(1.0, left / later), 41):
            last = min(max(left / later - second, 0.0), 1.0)
            laws = (stats.binom.pmf(few, later, risk) for risk in (second, last))
            law = np.append(np.convolve(*laws).cumsum(), np.ones(k))
            after = np.maximum(after, np.where(counts <= k, law[np.maximum(k - counts, 0)], 0.0))
        best = max(best, float(stats.binom.pmf(counts, first, p) @ after))
    call = {"errors": k, "trials": trials, "threshold": threshold}
    assert 1.1 * stats.binom.cdf(k, trials, threshold) < best
    assert best <= bounds.gate_failure(**call, batches=3) == bounds.gate_failure(**call)


def test_near_the_mass_the_tail_of_two_batches_is_not_used() -> None:
    """Hoeffding's step asks for k <= M - 1; above, the general theorem alone speaks."""
    call = {"errors": 10, "trials": 100, "threshold": 0.105}
    assert bounds.gate_failure(**call, batches=2) == bounds.gate_failure(**call)
    with pytest.raises(BadInput, match="batches"):
        bounds.gate_failure(**call, batches=0)
    # The tail itself against many digits, where it is far out and where there are many tests.
    for errors, trials, threshold in ((3, 200_000, 0.001), (900, 20_000, 0.05), (0, 4_000, 0.5)):
        value = bounds.gate_failure(errors=errors, trials=trials, threshold=threshold, batches=2)
        p = mpf(threshold)
        exact = mp.fsum(
            mp.binomial(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(errors + 1)
        )
        assert exact <= value <= max(exact * (1 + mpf("1e-8")), mpf(5e-324))
