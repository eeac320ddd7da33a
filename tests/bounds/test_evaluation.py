"""Bounds for tests of a fixed predictor: oracles by enumeration and in many digits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from nonvacuous import bounds
from nonvacuous.bounds import sequential
from nonvacuous.errors import BadInput

from . import oracles
from .oracles import mp, mpf

# ----------------------------------------------------------------------------- betting


def betting_oracle(losses: list[float], failure: float) -> mpf:
    """By bisection on the capital of the statement, in 60 digits, one factor after the other."""
    n, price = len(losses), -mp.log(mpf(failure))

    def out(mean: mpf) -> bool:
        capital, total, squares = mpf(1), mpf(0), mpf(0)
        for i, loss in enumerate(map(mpf, losses), start=1):
            variance = (mpf(1) / 4 + squares) / i
            bet = min(mp.sqrt(2 * price / (n * variance)), mpf(0.9) / (1 - mean))
            capital *= 1 + bet * (mean - loss)
            if capital >= 1 / mpf(failure):
                return True
            total += loss
            squares += (loss - (mpf(1) / 2 + total) / (i + 1)) ** 2
        return False

    low, high = mpf(0), mpf(1) - mpf(2) ** -40
    if not out(high):
        return mpf(1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if out(middle) else (middle, high)
    return high


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-6])
@pytest.mark.parametrize("size", [1, 5, 60])
def test_betting_is_what_its_statement_says(size: int, failure: float) -> None:
    losses = np.random.default_rng(size).beta(1, 6, size).tolist()
    value, oracle = bounds.betting(losses, failure=failure), betting_oracle(losses, failure)
    assert oracle <= value <= oracle * (1 + mpf(10) ** -8)


def test_losses_that_rule_out_their_own_mean_are_bounded_by_it() -> None:
    losses = [0.1] * 100 + [0.9] * 100
    mean = float(np.mean(losses))
    assert betting_oracle(losses, 0.05) < mean == bounds.betting(losses, failure=0.05)
    mirrored = [1.0 - loss for loss in losses]
    assert bounds.betting_lower(mirrored, failure=0.05) == pytest.approx(np.mean(mirrored))


@pytest.mark.parametrize("failure", [0.05, 0.2])
def test_betting_covers_in_every_world_of_three_values(failure: float) -> None:
    """All 3^7 samples of losses 0, 1/2 and 1, weighted exactly."""
    n = 7
    samples = np.array(list(itertools.product((0.0, 0.5, 1.0), repeat=n)))
    uppers = np.array([bounds.betting(sample, failure=failure) for sample in samples])
    lowers = np.array([bounds.betting_lower(sample, failure=failure) for sample in samples])
    for none, half in ((0.9, 0.05), (0.5, 0.5), (0.3, 0.0), (0.1, 0.8), (0.6, 0.2)):
        chances = np.where(samples == 0, none, np.where(samples == 0.5, half, 1 - none - half))
        weights, mean = chances.prod(axis=1), half / 2 + (1 - none - half)
        assert weights[uppers < mean].sum() <= failure
        assert weights[lowers > mean].sum() <= failure


@pytest.mark.parametrize("bad", [[], [0.5, math.nan], [1.5], [-0.1], ["a"], [[0.1]], None])
def test_betting_refuses_what_is_no_loss(bad: object) -> None:
    with pytest.raises(BadInput):
        bounds.betting(bad, failure=0.05)


# ----------------------------------------------------------------------------- classes


def test_f1_and_jaccard_cover_in_every_small_world() -> None:
    """All outcomes of nine draws: hit, other relevant, irrelevant."""
    n, failure = 9, 0.1
    for hit, other in ((0.5, 0.3), (0.1, 0.1), (0.85, 0.1), (0.02, 0.9)):
        truth = hit / (hit + other)
        wrong = {"f1": 0.0, "jaccard": 0.0}
        for hits, others in itertools.product(range(n + 1), repeat=2):
            if hits + others > n:
                continue
            chance = stats.multinomial.pmf(
                [hits, others, n - hits - others], n, [hit, other, 1 - hit - other]
            )
            call = {"hits": hits, "relevant": hits + others, "failure": failure}
            wrong["jaccard"] += chance * (bounds.jaccard_lower(**call) > truth)
            wrong["f1"] += chance * (bounds.f1_lower(**call) > 2 * truth / (1 + truth))
        assert max(wrong.values()) <= failure
    assert bounds.f1_lower(hits=0, relevant=0, failure=0.05) == 0.0


@pytest.mark.parametrize("sizes", [(6, 6), (2, 12), (5, 5, 4)])
def test_balanced_error_covers_in_every_small_world(sizes: tuple[int, ...]) -> None:
    failure = 0.1
    tilt = bounds.balanced_tilt(examples=sizes, failure=failure, guess=0.2)
    outcomes = list(itertools.product(*(range(n + 1) for n in sizes)))
    call = {"examples": sizes, "failure": failure}
    plain = np.array([bounds.balanced(errors=k, **call) for k in outcomes])
    tilted = np.array([bounds.balanced_tilted(errors=k, tilt=tilt, **call) for k in outcomes])
    for risks in itertools.product((0.02, 0.3, 0.7), repeat=len(sizes)):
        pmf = np.prod(
            [stats.binom.pmf([o[c] for o in outcomes], n, risks[c]) for c, n in enumerate(sizes)],
            axis=0,
        )
        truth = float(np.mean(risks))
        assert pmf[plain < truth].sum() <= failure
        assert pmf[tilted < truth].sum() <= failure


@pytest.mark.parametrize(
    ("errors", "sizes"), [((3, 1), (40, 25)), ((0, 0), (9, 9)), ((2, 9), (9, 9))]
)
def test_the_tilted_maximum_is_the_maximum(errors: tuple[int, int], sizes: tuple[int, int]) -> None:
    """Two classes, by trying a fine grid of rates."""
    failure, tilt = 0.05, 12.0
    b = [1 - math.exp(-tilt * 0.5 / n) for n in sizes]
    allowed = sum(tilt * 0.5 / n * k for k, n in zip(errors, sizes, strict=True))
    allowed -= math.log(failure)
    p = np.linspace(0, 1, 2001)
    used = -sizes[0] * np.log1p(-b[0] * p)[:, None] - sizes[1] * np.log1p(-b[1] * p)[None, :]
    best = float(np.where(used <= allowed, 0.5 * (p[:, None] + p[None, :]), 0.0).max())
    value = bounds.balanced_tilted(errors=errors, examples=sizes, tilt=tilt, failure=failure)
    assert best <= value <= best + 1e-3


def test_a_class_without_examples_counts_as_wrong() -> None:
    call = {"errors": (0, 0), "examples": (1000, 0), "failure": 0.05}
    assert bounds.balanced(**call) > 0.5
    assert bounds.balanced_tilted(**call, tilt=300.0) > 0.5
    with pytest.raises(BadInput, match="without examples"):
        bounds.balanced(errors=(0, 1), examples=(9, 0), failure=0.05)


def test_which_balanced_bound_is_better_where() -> None:
    many = {"errors": (5,) * 10, "examples": (100,) * 10, "failure": 0.05}
    assert bounds.balanced_tilted(**many, tilt=328.0) < 0.07 < 0.13 < bounds.balanced(**many)


# ----------------------------------------------------------------------------- paired


def test_the_sign_test_is_a_sum_of_binomials() -> None:
    for wins, losses in itertools.product(range(12), repeat=2):
        m = wins + losses
        exact = Fraction(sum(math.comb(m, k) for k in range(wins, m + 1)), 2**m)
        value = bounds.sign_test(wins=wins, losses=losses)
        assert exact <= Fraction(value) <= exact * (1 + Fraction(1, 10**10))


def surplus_chance(n: int, win: float, lose: float, surplus: int) -> float:
    """P(wins - losses >= surplus) by convolving n draws, unlike the library's sum."""
    step = np.array([lose, 1 - win - lose, win])
    law = np.array([1.0])
    for _ in range(n):
        law = np.convolve(law, step)
    return float(law[max(0, surplus + n) :].sum())


@pytest.mark.parametrize(("wins", "losses", "n"), [(6, 1, 30), (0, 0, 20), (3, 3, 25), (2, 9, 40)])
def test_the_paired_bound_is_the_least_difference_not_ruled_out(
    wins: int, losses: int, n: int
) -> None:
    failure = 0.1
    value = bounds.paired_lower(wins=wins, losses=losses, examples=n, failure=failure)
    most = bounds.holdout(errors=wins + losses, examples=n, failure=0.2 * failure)

    def supremum(difference: float) -> float:
        shares = np.linspace(abs(difference), most, 200)
        return max(
            surplus_chance(n, (s + difference) / 2, (s - difference) / 2, wins - losses)
            for s in shares
        )

    if value > -most + 1e-5:
        assert supremum(value - 1e-5) <= 0.8 * failure
    assert supremum(value + 1e-4) > 0.8 * failure


@pytest.mark.parametrize("name", ["paired_lower", "rectangle_lower"])
def test_the_paired_bounds_cover_in_every_small_world(name: str) -> None:
    n, failure = 14, 0.1
    bound = getattr(bounds, name)
    pairs = [(w, v) for w in range(n + 1) for v in range(n + 1 - w)]
    ends = np.array([bound(wins=w, losses=v, examples=n, failure=failure) for w, v in pairs])
    assert (ends >= -1).all() and (ends <= [(w - v) / n for w, v in pairs]).all()
    for win, lose in itertools.product((0.0, 0.02, 0.1, 0.25, 0.45), repeat=2):
        pmf = stats.multinomial.pmf(
            [(w, v, n - w - v) for w, v in pairs], n, [win, lose, 1 - win - lose]
        )
        assert pmf[ends > win - lose + 1e-12].sum() <= failure


@pytest.mark.slow
def test_the_margin_over_the_best_constant_covers() -> None:
    """Three classes, five draws, all tables of hits and misses by class."""
    n, failure, classes = 5, 0.1, 3
    shares, risks = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.1])
    cells = np.concatenate([shares * (1 - risks), shares * risks])
    truth = (1 - shares.max()) - float(shares @ risks)
    wrong = 0.0
    for table in itertools.product(range(n + 1), repeat=2 * classes - 1):
        if sum(table) > n:
            continue
        counts = (*table, n - sum(table))
        hits, totals = counts[:3], [counts[c] + counts[c + 3] for c in range(3)]
        margin, _ = bounds.constant_margin(hits=hits, totals=totals, failure=failure)
        if margin > truth:
            wrong += float(stats.multinomial.pmf(counts, n, cells))
    assert wrong <= failure


# ----------------------------------------------------------------------------- progressive


def test_progressive_survives_every_learner_that_adapts() -> None:
    """Exact dynamic program: the best a learner can do against the bound, over risks on a grid."""
    trials, tilt, failure, grid = 8, 0.8, 0.2, np.linspace(0, 1, 11)
    limits = [
        trials * bounds.progressive(errors=s, trials=trials, tilt=tilt, failure=failure)
        for s in range(trials + 1)
    ]
    # Mass is counted in tenths: the state is (time, errors, mass so far).
    value = {
        (s, m): float(0.1 * m > limits[s] + 1e-9)
        for s in range(trials + 1)
        for m in range(10 * trials + 1)
    }
    for time in reversed(range(trials)):
        value = {
            (s, m): max(
                (1 - p) * value[s, m + round(10 * p)] + p * value[s + 1, m + round(10 * p)]
                for p in grid
            )
            for s in range(time + 1)
            for m in range(10 * time + 1)
        }
    assert value[0, 0] <= failure


@pytest.mark.parametrize(
    ("k", "trials", "threshold"), [(0, 40, 0.1), (12, 200, 0.1), (271, 3000, 0.1)]
)
def test_the_gate_in_many_digits(k: int, trials: int, threshold: float) -> None:
    oracle = oracles.gate_failure(k, trials, threshold)
    value = bounds.gate_failure(errors=k, trials=trials, threshold=threshold)
    assert oracle <= value <= oracle * (1 + mpf(10) ** -9)
    assert bounds.gate_failure(errors=trials, trials=trials, threshold=threshold) == 1.0


def test_the_gate_holds_against_every_learner_on_a_grid() -> None:
    """Exact dynamic program over risks in twentieths, with the mass that is left as the state."""
    trials, threshold, k, unit = 20, 0.35, 3, 20
    goal = round(unit * trials * threshold)
    value = {
        (r, x): float(r >= 0 and x <= 0) for r in range(-1, k + 1) for x in range(-unit, goal + 1)
    }
    start = dict(value)
    for _ in range(trials):
        value = {
            (r, x): 1.0
            if start[r, x]
            else 0.0
            if r < 0
            else max(
                (1 - p / unit) * value[r, x - p] + p / unit * value[r - 1, x - p]
                for p in range(unit + 1)
            )
            if x > 0
            else 0.0
            for r, x in start
        }
    assert value[k, goal] <= bounds.gate_failure(errors=k, trials=trials, threshold=threshold)
    # The plain binomial tail would not do: that is why the gate exists.
    assert value[k, goal] > stats.binom.cdf(k, trials, threshold)


@pytest.mark.parametrize(
    ("kept", "examples", "failure", "published"),
    [(326, 24_000, 0.01, 0.01652), (237, 10_612, 0.01, 0.02797), (300, 30_000, 0.05, 0.01195)],
)
def test_compression_at_published_points(
    kept: int, examples: int, failure: float, published: float
) -> None:
    value = bounds.compression(kept=kept, examples=examples, failure=failure)
    assert value == pytest.approx(published, abs=5e-6)


# ----------------------------------------------------------------------------- sequences


@pytest.mark.parametrize("risks", [[0.1] * 40, [0.02] * 20 + [0.6] * 20, [0.9, 0.1] * 20])
def test_the_sequence_holds_at_every_time_under_drift(risks: list[float]) -> None:
    """Exact: the chance, over all paths, that the mean risk so far ever leaves the interval."""
    failure, alive = 0.1, {0: 1.0}
    lost = 0.0
    for time, risk in enumerate(risks, start=1):
        mean = math.fsum(risks[:time]) / time
        after: dict[int, float] = {}
        for errors, chance in alive.items():
            after[errors] = after.get(errors, 0.0) + chance * (1 - risk)
            after[errors + 1] = after.get(errors + 1, 0.0) + chance * risk
        alive = {}
        for errors, chance in after.items():
            call = {"errors": errors, "trials": time, "failure": failure / 2}
            if bounds.sequence_lower(**call) <= mean <= bounds.sequence_upper(**call):
                alive[errors] = chance
            else:
                lost += chance
    assert lost <= failure


def test_the_capital_is_the_sum_of_its_definition() -> None:
    promise = 0.2
    losses = np.random.default_rng(0).integers(0, 2, 150).astype(float)
    first, logs = sequential.advance(np.full(5, -np.inf), 0, losses[:70], promise)
    logs = np.concatenate([first, sequential.advance(logs, 70, losses[70:], promise)[0]])
    weights = [float(sequential.waiting_weight(t)) for t in range(151)]
    for time in (1, 2, 64, 65, 150):
        total = mpf(0)
        for stake in sequential.stakes(promise):
            for start in range(1, time + 1):
                product = mpf(weights[start - 1]) - mpf(weights[start])
                for loss in losses[start - 1 : time]:
                    product *= 1 + mpf(stake) * (mpf(loss) - mpf(promise))
                total += product / len(sequential.STAKES)
        total += mpf(weights[time])
        value = float(logs[time - 1])
        assert value == pytest.approx(float(mp.log(total)), abs=1e-8)
        assert value <= float(mp.log(total))


# ----------------------------------------------------------------------------- planning


def test_plans_agree_with_trying_every_number() -> None:
    target, risk, chance, failure = 0.2, 0.1, 0.7, 0.1
    first, safe = bounds.examples_needed(target=target, risk=risk, chance=chance, failure=failure)
    reaches = []
    for n in range(1, 4 * safe):
        most = max(
            (
                k
                for k in range(n + 1)
                if bounds.holdout(errors=k, examples=n, failure=failure) <= target
            ),
            default=-1,
        )
        assert most == bounds.allowed_errors(examples=n, target=target, failure=failure)
        exact = stats.binom.cdf(most, n, risk) if most >= 0 else 0.0
        call = {"examples": n, "target": target, "risk": risk, "failure": failure}
        assert bounds.chance_to_promise(**call) == pytest.approx(exact)
        reaches.append(exact >= chance)
    assert first == reaches.index(True) + 1
    assert safe == len(reaches) - reaches[::-1].index(False) + 1


@pytest.mark.parametrize("call", [{"risk": 0.2}, {"target": 0.0}, {"chance": 1.0}, {"risk": -1}])
def test_impossible_plans_are_refused(call: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        bounds.examples_needed(
            **{"target": 0.1, "risk": 0.05, "chance": 0.8, "failure": 0.05, **call}
        )
