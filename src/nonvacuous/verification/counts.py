"""Two counts of the same thing: could they have one rate?"""

from __future__ import annotations

from scipy import stats

#: A sound certificate is called false with at most this probability.
FALSE_ALARM = 1e-6


def same_rate(errors: int, trials: int, fresh_errors: int, fresh_trials: int) -> float:
    """Fisher's exact test: how likely counts this far apart are when both have one rate."""
    law = stats.hypergeom(trials + fresh_trials, errors + fresh_errors, fresh_trials)
    tails = law.cdf(fresh_errors), law.sf(fresh_errors - 1)
    return float(min(1.0, 2.0 * min(tails)))
