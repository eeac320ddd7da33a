"""Published numbers, rounded as they are printed.

"validity.md" is the project's page on how certificates become false; its last two paragraphs give
what held-out data certify and what Monte-Carlo estimation costs. Every number there is checked
here, and nowhere is a tolerance wider than the last printed digit.
"""

from __future__ import annotations

import pytest

from nonvacuous import bounds


def percent(value: float) -> float:
    """As printed: per cent with two decimals."""
    return round(100 * value, 2)


# validity.md: "10,000 examples at 1.0 % error certify 1.18 % (delta = .05), 30,000 at 1.0 %
# certify 1.10 %". The third row (10,000 at 4 % certify 4.34 %) is the exact binomial tail too:
# the one-sided Clopper-Pearson limit of 400 errors, which is 0.043374.
@pytest.mark.parametrize(
    ("errors", "examples", "printed"),
    [(100, 10_000, 1.18), (300, 30_000, 1.10), (400, 10_000, 4.34)],
)
def test_held_out_examples(errors: int, examples: int, printed: float) -> None:
    assert percent(bounds.holdout(errors=errors, examples=examples, failure=0.05)) == printed


# validity.md: "PAC-Bayes-kl with KL = 0 pays ln(2 sqrt(n)) = about 6 nats more (1.46 %, 1.26 %)".
@pytest.mark.parametrize(("examples", "printed"), [(10_000, 1.46), (30_000, 1.26)])
def test_pac_bayes_without_divergence(examples: int, printed: float) -> None:
    value = bounds.seeger(empirical_risk=0.01, kl_nats=0.0, examples=examples, failure=0.05)
    assert percent(value) == printed


# validity.md: "10^5 independent (weights, example) pairs with the exact binomial tail -> .01076;
# 10^6 -> .01023" (delta' = .01, empirical risk .01).
@pytest.mark.parametrize(("trials", "printed"), [(100_000, 0.01076), (1_000_000, 0.01023)])
def test_price_of_independent_pairs(trials: int, printed: float) -> None:
    value = bounds.sampling(errors=trials // 100, trials=trials, failure=0.01)
    assert round(value, 5) == printed


# validity.md: "1,000 shared draws over the full set -> .0239; 150,000 -> .01086" (delta' = .01,
# empirical risk .01). These two follow the literature's ln(2/delta') (Langford and Caruana 2001;
# Dziugaite and Roy 2017; Perez-Ortiz et al. 2021), which is the price of a two-sided statement.
# One side needs ln(1/delta') only, and that is what `sampling_bounded` charges: the published
# numbers are its values at failure = delta'/2, and at delta' itself it does a little better.
@pytest.mark.parametrize(
    ("draws", "digits", "published", "one_sided"),
    [(1000, 4, 0.0239, 0.0227), (150_000, 5, 0.01086, 0.0108)],
)
def test_price_of_shared_draws(draws: int, digits: int, published: float, one_sided: float) -> None:
    total = 0.01 * draws
    two_sided = bounds.sampling_bounded(total=total, trials=draws, failure=0.01 / 2)
    assert round(two_sided, digits) == published
    value = bounds.sampling_bounded(total=total, trials=draws, failure=0.01)
    assert round(value, digits) == one_sided
    assert value < two_sided
