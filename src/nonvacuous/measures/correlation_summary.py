"""Everything the correlation study says about one measure, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import entr

from nonvacuous.measures import correlation
from nonvacuous.measures.correlation import Codes, Coupled, Environments, Estimate, Numbers, Trials

# Conditional mutual information of Jiang et al. 2020: what a measure tells beyond the settings.
#
# For two networks, how much does the sign of the difference of a measure tell about the sign of the
# difference of the gaps, once some hyper-parameters of both are known? The share of what was
# unknown, from 0 to 1, at the worst choice of at most two hyper-parameters.

Names = tuple[str, ...]


#: Sets of hyper-parameters that are known, each as one number per network.
Conditions = Mapping[Names, Codes]


def conditions_of(axes: Mapping[str, Codes]) -> Conditions:
    """Every set of at most two hyper-parameters, the empty one included."""
    networks = len(next(iter(axes.values())))
    return {
        chosen: correlation.numbered([axes[name] for name in chosen], networks)
        for size in range(3)
        for chosen in combinations(axes, size)
    }


def normalized_information(
    measure: Numbers, gaps: Numbers, conditions: Conditions, weights: Numbers | None = None
) -> Numbers:
    """For every set I(sign of measure; sign of gap | set) over H(sign of gap | set).

    Over all ordered pairs of networks whose gaps differ, a pair counting as the product of its
    weights, for every row of ``weights`` (one row of ones by default). nan where the set leaves
    nothing unknown.
    """
    rows = np.ones((1, len(gaps))) if weights is None else weights
    known = [
        (rows[:, :, None] * np.eye(int(codes.max()) + 1)[codes]).astype(np.float32)
        for codes in conditions.values()
    ]
    # The other three of the six tables are these with the two networks exchanged.
    counts: list[list[Any]] = [[0.0] * len(known) for _ in range(3)]
    for part, said, true in correlation.signs_by_rows(measure, gaps):
        for table, (mark, outcome) in enumerate(((1, 1), (1, -1), (0, 1))):
            pairs = ((said == mark) & (true == outcome)).astype(np.float32)
            for number, own in enumerate(known):
                first = own[:, part].swapaxes(1, 2).astype(np.float64)
                counts[table][number] = counts[table][number] + first @ (pairs @ own)
    shares = [
        [_share_known(*(table[draw] for table in tables)) for tables in zip(*counts, strict=True)]
        for draw in range(len(rows))
    ]
    return np.array(shares)


def _share_known(agreeing: Numbers, opposed: Numbers, tied: Numbers) -> float:
    """From counts of pairs by the values of both networks; the gap of the first is larger where
    they agree or the measure is tied, smaller where they are opposed."""
    # Axes: values of the first, values of the second, measure (+, -, 0), gap (+, -).
    table = np.stack(
        [
            np.stack([agreeing, opposed], axis=-1),
            np.stack([opposed.T, agreeing.T], axis=-1),
            np.stack([tied, tied.T], axis=-1),
        ],
        axis=-2,
    )
    total = table.sum()
    if total <= 0:
        return float("nan")
    whole, with_measure, with_gap, given = (
        float(entr((table / total).sum(axis=axes)).sum()) for axes in ((), 3, 2, (2, 3))
    )
    unknown = with_gap - given
    return (with_measure + unknown - whole) / unknown if unknown > 1e-12 else float("nan")


def least_information(shares: Numbers, conditions: Conditions) -> tuple[float, Names]:
    """The smallest share and the hyper-parameters at which it is reached.

    Rounding may leave a share a hair below 0, which it cannot be.
    """
    if np.isnan(shares).all():
        return 0.0, ()
    least = int(np.nanargmin(shares))
    return max(0.0, float(shares[least])), list(conditions)[least]


#: Quantiles by which the sign-errors of all environments are described.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
#: How many of the sets with the least information are tried again in every draw of the bootstrap.
_CANDIDATES = 4


@dataclass(frozen=True)
class Standing:
    """How well one measure predicts the gap. It is turned so that larger should mean worse.

    networks         for which it is defined
    tau              Kendall's rank correlation over all pairs
    granulated       hyper-parameter -> rank correlation when that one alone changes
    granulated_mean  their mean
    sign_error       mean over environments of the share of pairs that it gets wrong
    sign_errors      quantiles (QUANTILES) of that share over the environments
    worst            the kind of change where it is wrong most: hyper-parameter, value before and
                     after, and the share there
    information      smallest normalized conditional mutual information, and given what
    """

    name: str
    networks: int
    tau: Estimate
    granulated: Mapping[str, Estimate]
    granulated_mean: Estimate
    sign_error: Estimate
    sign_errors: tuple[float, ...]
    worst: tuple[str, Any, Any]
    worst_error: Estimate
    information: Estimate
    information_given: tuple[str, ...]

    @property
    def inverted_for(self) -> tuple[str, ...]:
        """Hyper-parameters whose changes it gets the wrong way round, beyond chance."""
        return tuple(name for name, entry in self.granulated.items() if entry.high < 0)

    @property
    def verdict(self) -> str:
        """What the intervals allow to say, in a word.

        "inverted"   over all pairs or on average over hyper-parameters, the wrong way round
        "predicts"   both the right way round, and inverted for no hyper-parameter
        "in part"    one of both, or both and inverted for some hyper-parameter
        "nothing"    neither
        """
        if self.tau.high < 0 or self.granulated_mean.high < 0:
            return "inverted"
        right = (self.tau.low > 0) + (self.granulated_mean.low > 0)
        if right == 2 and not self.inverted_for:
            return "predicts"
        return "in part" if right else "nothing"

    def to_dict(self) -> dict[str, Any]:
        first = {"name": self.name, "networks": self.networks, "verdict": self.verdict}
        return {**first, "inverted_for": self.inverted_for, **asdict(self)}


@dataclass(frozen=True, eq=False)
class Court:
    """What all measures of the same networks share: pairs, environments, random weights.

    draws    of the bootstrap; information_draws: of the slower one for mutual information
    beyond   pairs enter the sign-error whose gaps differ by more than so many standard errors
    """

    trials: Trials
    draws: int = 300
    information_draws: int = 60
    beyond: float = 1.0
    seed: int = 0

    @cached_property
    def weights(self) -> Numbers:
        """A row of ones, for a statistic itself, and one for every draw of the bootstrap."""
        drawn = correlation.bootstrap_weights(self.trials.cells, draws=self.draws, seed=self.seed)
        return np.vstack([np.ones(len(self.trials)), drawn])

    @cached_property
    def coupled(self) -> Mapping[str, Coupled]:
        """Pairs by the one hyper-parameter that differs, those without any pair left out."""
        each = {axis: correlation.coupled_by(self.trials, axis) for axis in self.trials.axes}
        return {axis: pairs for axis, pairs in each.items() if len(pairs)}

    @cached_property
    def environments(self) -> Environments:
        """Every change of one hyper-parameter with all others fixed."""
        return correlation.environments(self.trials, beyond=self.beyond)

    @cached_property
    def conditions(self) -> Conditions:
        return conditions_of(self.trials.axes)

    def tau(self, measure: Numbers, *, gaps: Numbers | None = None) -> Estimate:
        """Kendall's rank correlation with its interval; of other gaps where some are given."""
        target = self.trials.gaps if gaps is None else gaps
        return Estimate.of(correlation.kendall_tau(measure, target, self.weights))

    def difference(self, measure: Numbers, other: Numbers) -> tuple[Estimate, Estimate]:
        """How much better ``other`` orders the networks, over all pairs and granulated.

        Both are drawn with the same weights: the interval is that of the difference.
        """
        gaps, weights = self.trials.gaps, self.weights
        taus = [correlation.kendall_tau(m, gaps, weights) for m in (measure, other)]
        single = [self._granulated_draws(m) for m in (measure, other)]
        both = single[0].keys() & single[1].keys()
        # A set has no order; sums of floats do.
        means = [_mean([own[axis] for axis in own if axis in both]) for own in single]
        return Estimate.of(taus[1] - taus[0]), Estimate.of(means[1] - means[0])

    def judge(self, name: str, measure: Numbers) -> Standing:
        """All statistics of a measure; it must be defined (not nan) for every network here."""
        return Standing(
            name=name,
            networks=len(self.trials),
            tau=self.tau(measure),
            **self._granulated(measure),
            **self._sign_errors(measure),
            **self._information(measure),
        )

    def _granulated_draws(self, measure: Numbers) -> dict[str, Numbers]:
        gaps, weights = self.trials.gaps, self.weights
        taus = {
            axis: correlation.granulated_tau(measure, gaps, pairs, weights)
            for axis, pairs in self.coupled.items()
        }
        return {axis: drawn for axis, drawn in taus.items() if not np.isnan(drawn[0])}

    def _granulated(self, measure: Numbers) -> dict[str, Any]:
        drawn = self._granulated_draws(measure)
        each = {axis: Estimate.of(own) for axis, own in drawn.items()}
        return {"granulated": each, "granulated_mean": Estimate.of(_mean(list(drawn.values())))}

    def _sign_errors(self, measure: Numbers) -> dict[str, Any]:
        among = self.environments
        if not len(among):
            coin = Estimate(0.5, 0.5, 0.5)
            sides = {"sign_errors": (0.5,) * len(QUANTILES), "worst": ("", "", "")}
            return {"sign_error": coin, "worst_error": coin, **sides}
        errors = correlation.pair_errors(measure, self.trials.gaps, among)
        whole, by_kind = correlation.sign_errors(errors, among, self.weights)
        worst = int(by_kind[0].argmax())
        axis, before, after = among.kinds[worst]
        levels = self.trials.values[axis]
        quantiles = np.quantile(correlation.environment_errors(errors, among), QUANTILES)
        return {
            "sign_error": Estimate.of(whole, least=0.0),
            "sign_errors": tuple(map(float, quantiles)),
            "worst": (axis, levels[before], levels[after]),
            "worst_error": Estimate.of(by_kind[:, worst], least=0.0),
        }

    def _information(self, measure: Numbers) -> dict[str, Any]:
        gaps, conditions = self.trials.gaps, self.conditions
        (shares,) = normalized_information(measure, gaps, conditions)
        value, given = least_information(shares, conditions)
        few = [list(conditions)[number] for number in np.argsort(shares)[:_CANDIDATES]]
        least = {names: conditions[names] for names in few}
        some = self.weights[1 : self.information_draws + 1]
        draws = normalized_information(measure, gaps, least, some)
        drawn = [value, *(least_information(row, least)[0] for row in draws)]
        information = Estimate.of(np.array(drawn), least=0.0)
        return {"information": information, "information_given": given}


def _mean(drawn: Sequence[Numbers]) -> Numbers:
    """Of each draw over hyper-parameters; zero where there are none."""
    return np.mean(drawn, axis=0) if drawn else np.zeros(2)
