"""Two predictors on the same examples.

compare: is the second better than the first? disagreement: what does a model that was never tested
inherit from one that was?
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from scipy import special

from nonvacuous.bounds import checks, holdout, paired_lower, sign_test
from nonvacuous.bounds.paired import DISCORDANCE_SHARE
from nonvacuous.bounds.rounding import as_risk, down, shown_confidence, shown_up, up
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import BadRow, Coder, as_array, is_text, one_each, plain
from nonvacuous.evaluation.outcomes import outcomes
from nonvacuous.evaluation.sample import Sample, in_order_of_betting
from nonvacuous.evaluation.tables import check_rows
from nonvacuous.evaluation_records import Evaluation

Metric = Literal["error", "event", "success", "loss", "score"]
#: Examples that would tell two predictors apart are not named beyond this.
_MOST = 10**9


@dataclass(frozen=True)
class Comparison:
    """Risk of the first minus risk of the second: positive where the second (B) errs less."""

    difference_lower: float
    difference_upper: float
    #: Exact two-sided sign test, times the predictors that were chosen from; None for losses
    #: between 0 and 1. The verdict is the interval's.
    p_value: float | None
    #: A wrong and B right, and the reverse; None for losses between 0 and 1.
    wins: int | None
    losses: int | None
    examples: int
    confidence: float
    verdict: str
    names: tuple[str, str] = ("A", "B")
    #: The same for every group, each alone at this confidence.
    groups: dict[str, dict[str, Comparison]] = field(default_factory=dict)
    #: The other predictors that the first was compared with; all intervals hold at once.
    others: tuple[Comparison, ...] = ()

    def __str__(self) -> str:
        return self.verdict

    @property
    def better(self) -> str | None:
        """Whoever is shown to err less; None while they are not told apart."""
        if self.difference_lower > 0.0:
            return self.names[1]
        return self.names[0] if self.difference_upper < 0.0 else None


def compare(
    predictions_a: Any,
    predictions_b: Any,
    labels: Any = None,
    *,
    metric: Metric | None = None,
    confidence: float = 0.95,
    groups: Mapping[str, Any] | None = None,
    clusters: Any = None,
    names: Sequence[str] = ("A", "B"),
    attempts: int = 1,
    seed: int = 0,
) -> Comparison:
    """The difference of two risks with both ends, exactly, from the same examples.

    predictions_a, predictions_b   answers to the same examples. ``predictions_b`` may be several
                 predictors by name: the best of them is compared with the first, and choosing it
                 is paid for, as all of them share the failure probability
    labels       without them the columns are numbers, and ``metric`` says what they mean: event
                 (1 is bad) and success (1 is good) are right or wrong, compared exactly; loss (as
                 if nothing is said) and score lie between 0 and 1
    groups       columns by name; clusters say which rows belong together
    attempts     how many predictors, all fixed before any result was shown, were chosen from

    >>> labels = [0, 1] * 200
    >>> first = [0, 0] * 30 + [0, 1] * 170
    >>> result = compare(first, labels, labels)
    >>> result.wins, result.losses, result.better
    (30, 0, 'B')
    """
    failure = checks.failure_of(confidence) / checks.count("attempts", attempts, minimum=1)
    checks.count("seed", seed)
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != 2:
        raise BadInput(f"names are those of both predictors, as in ('old', 'new'), got {names!r}.")
    if groups is not None and not isinstance(groups, Mapping):
        raise BadInput("groups are columns by name, as in {'site': sites}.")
    challengers = {str(names[1]): predictions_b}
    if isinstance(predictions_b, Mapping):
        challengers = {str(name): column for name, column in predictions_b.items()}
        if not challengers:
            raise BadInput("there is nothing to compare with: predictions_b is empty.")
    kind = metric or ("error" if labels is not None else "loss")
    if kind not in (known := get_args(Metric)):
        raise BadInput(f"there is no metric {kind!r} here; there are {', '.join(known)}.")
    if (kind == "error") == (labels is None):
        raise BadInput(
            f"metric {kind!r} {'needs' if labels is None else 'reads no'} labels; without labels "
            "the metric is event, success, loss or score."
        )
    given = {"predictions_a": predictions_a, "labels": labels, "clusters": clusters}
    given |= {f"predictions of {name}": column for name, column in challengers.items()}
    _check_columns(given | {f"group {name}": column for name, column in (groups or {}).items()})
    columns = [plain(predictions_a, "predictions_a")]
    columns += [plain(column, name) for name, column in challengers.items()]
    truth = None if labels is None else plain(labels, "labels")
    sizes = {len(column) for column in (*columns, *([] if truth is None else [truth]))}
    if len(sizes) != 1 or not len(columns[0]):
        raise BadInput(f"both predictors answer the same examples: got {sorted(sizes)} rows.")
    settings, classes = Evaluation(metric=kind), Coder()
    try:
        first, *others = (
            outcomes({"predictions": c, "labels": truth, "losses": c}, settings, classes).losses
            for c in columns
        )
    except BadRow as error:
        raise BadInput("without labels the columns must be losses in [0, 1].") from error
    if truth is not None:
        every = zip((str(names[0]), *challengers), columns, (first, *others), strict=True)
        for name, column, wrong in every:
            _check_names(name, as_array(column), as_array(truth), wrong)
    units = None if clusters is None else _codes(clusters, "clusters", len(first))[1]
    exact = kind in ("error", "event", "success") and units is None
    codes = {name: _codes(column, name, len(first)) for name, column in (groups or {}).items()}
    compared = []
    for name, second in zip(challengers, others, strict=True):
        shared = (str(names[0]), name), failure / len(others), confidence
        tries = len(others) * attempts
        part = partial(_compared, *shared, exact=exact, tries=tries, seed=seed)
        gaps = first - second
        slices = {
            column: {
                value: part(gaps[of == code], None if units is None else units[of == code])
                for code, value in enumerate(values)
            }
            for column, (values, of) in codes.items()
        }
        compared.append(replace(part(gaps, units), groups=slices))
    best = max(compared, key=lambda one: (one.difference_lower, one.difference_upper))
    return replace(best, others=tuple(one for one in compared if one is not best))


def _check_columns(columns: Mapping[str, Any]) -> None:
    """Refuse columns that are not the same rows in the same order, or that lack some."""
    check_rows(columns)
    for name, column in columns.items():
        if isinstance(column, np.ma.MaskedArray) and column.mask.any():
            raise BadInput(
                f"{name} has {int(column.mask.sum())} masked values, which are no answers: "
                "leave these rows out of all columns, for a reason that does not depend on errors."
            )


def _check_names(name: str, answers: np.ndarray, truth: np.ndarray, wrong: np.ndarray) -> None:
    """Answers that never name a class of the labels are a mistake, not a bad predictor."""
    if wrong.all() and (truth != truth[0]).any() and not np.isin(answers, truth).any():
        raise BadInput(
            f"no answer of {name} is one of the labels: they say {answers[0]!s}, the labels "
            f"{truth[0]!s}. Write the classes alike."
        )


def _codes(column: Any, name: str, size: int) -> tuple[list[str], np.ndarray]:
    coder = Coder()
    codes = coder(one_each(column, name))
    if len(codes) != size:
        raise BadInput(f"{name!r} has {len(codes)} rows for {size} examples.")
    return [str(value) for value in coder.values], codes


def _compared(
    names: tuple[str, str],
    failure: float,
    confidence: float,
    gaps: np.ndarray,
    units: np.ndarray | None,
    *,
    exact: bool,
    tries: int,
    seed: int,
) -> Comparison:
    """From the differences of the losses, row by row: of all rows, or of those of one group."""
    half = down(failure / 2)
    wins = losses = p_value = None
    if exact:
        n = len(gaps)
        wins, losses = int((gaps > 0).sum()), int((gaps < 0).sum())
        low = paired_lower(wins=wins, losses=losses, examples=n, failure=half)
        high = -paired_lower(wins=losses, losses=wins, examples=n, failure=half)
        one = min(sign_test(wins=wins, losses=losses), sign_test(wins=losses, losses=wins))
        p_value = min(1.0, 2.0 * one * tries)
        needed = _exactly_needed(wins, losses, n, half)
    else:
        if units is not None:
            _, where, sizes = np.unique(units, return_inverse=True, return_counts=True)
            gaps = np.bincount(where, weights=gaps) / sizes
        n = len(gaps)
        rows = hashlib.sha256(gaps.astype("<f8").tobytes()).hexdigest()
        scaled = in_order_of_betting(np.clip(0.5 * (1.0 + gaps), 0.0, 1.0), seed, rows)
        sample = Sample(float(scaled.sum()), n, scaled)
        low = max(-1.0, down(2.0 * sample.lower(half) - 1.0))
        high = min(1.0, -down(-(2.0 * sample.upper(half) - 1.0)))
        # Of losses like these, by a rule of thumb.
        mean, spread, needed = float(gaps.mean()), float(gaps.var()), math.inf
        if abs(mean) >= 1e-9 and spread > 0.0:
            needed = spread * (float(special.ndtri(1.0 - half)) / mean) ** 2 * 1.2
    verdict = _verdict(low, high, n, needed, names)
    return Comparison(low, high, p_value, wins, losses, n, confidence, verdict, names)


def _verdict(low: float, high: float, n: int, needed: float, names: tuple[str, str]) -> str:
    if low > 0.0 or high < 0.0:
        better = names[1] if low > 0.0 else names[0]
        ends = (low, high) if low > 0.0 else (-high, -low)
        least, most = math.floor(1000 * ends[0]) / 10, math.ceil(1000 * ends[1]) / 10
        return f"{better} errs less, by {least:g} to {most:g} points"
    if needed >= _MOST:
        return "not told apart"
    more = needed - n if needed > n else max(1, n // 5)
    digits = 10 ** max(0, len(str(int(more))) - 2)
    more = math.ceil(more / digits) * digits
    return f"not told apart: about {more:,} more examples like these would tell"


def _exactly_needed(wins: int, losses: int, n: int, half: float) -> float:
    """Examples that would tell errors apart, as the interval of :func:`paired_lower` asks."""
    if wins == losses:
        return math.inf
    quantile = float(special.ndtri(1.0 - (1.0 - DISCORDANCE_SHARE) * half))
    needed = float(n)
    while needed < _MOST:
        needed *= 1.05
        errors = round((wins + losses) * needed / n)
        most = holdout(
            errors=errors, examples=max(errors, round(needed)), failure=DISCORDANCE_SHARE * half
        )
        if most * quantile**2 <= ((wins - losses) / n) ** 2 * needed:
            break
    return needed


@dataclass(frozen=True)
class Inherited:
    """The promise about a new model: the old one's, and how often the two differ at most."""

    risk_upper: float
    confidence: float
    disagreements: int
    inputs: int
    disagreement_upper: float
    #: Of the certificate: what it leaves open is left open here.
    status: str = "valid"

    def __str__(self) -> str:
        word = "" if self.status == "valid" else f"{self.status.upper()}, as the certificate is: "
        return word + (
            f"risk <= {shown_up(self.risk_upper)} with confidence "
            f"{shown_confidence(self.confidence)}: they differ on {self.disagreements} of "
            f"{self.inputs} inputs, on at most {shown_up(self.disagreement_upper)} of all."
        )


def disagreement(
    report: Certificate,
    new_predictions: Any,
    old_predictions: Any,
    *,
    failure: float = 0.01,
    models: int = 1,
) -> Inherited:
    """Risk of a new model <= risk of the certified one + P(they differ), for right-or-wrong losses.

    Both predict the same unlabeled inputs: independent draws of the certified distribution that
    the new model was not made with. ``failure`` comes on top of the report's own; with several
    new ``models`` each has its share of it. What a conditional report leaves open stays open.
    """
    if not isinstance(report, Certificate):
        raise BadInput(
            f"the report is a certificate, as nv.Certificate.load reads it, not {report!r:.60}."
        )
    if report.status == "refused" or report.loss.name != "zero-one":
        raise BadInput("only the error rate of a certificate that was not refused is inherited.")
    if report.predictor in ("stochastic", "mixture"):
        raise BadInput(
            f"the certificate is about the {report.predictor} predictor, which draws a network for "
            "each input: old answers are those of one network, which may err more often. Certify "
            "one network (predictor='drawn', or nv.Sparsity), or test the old one."
        )
    if report.evaluation is not None and report.evaluation.unit == "clusters":
        raise BadInput(
            "the certificate is about the mean over clusters, in which a large one counts no more "
            "than a small one: how many rows two models differ on says nothing about it. Test the "
            "new model itself, or inherit from a test on one example of each cluster."
        )
    share = checks.failure_probability(failure) / checks.count("models", models, minimum=1)
    spent = up(report.budget.failure + failure)
    if spent >= 1.0:
        raise BadInput(
            f"failure {failure:g} comes on top of the certificate's {report.budget.failure:g}: "
            "together they leave no confidence. Give a smaller one, as in failure=0.01."
        )
    _check_columns({"new_predictions": new_predictions, "old_predictions": old_predictions})
    new = one_each(new_predictions, "new_predictions")
    old = one_each(old_predictions, "old_predictions")
    if len(new) != len(old) or not len(new):
        raise BadInput(f"both must predict the same inputs: got {len(new)} and {len(old)} answers.")
    if is_text(new) != is_text(old):
        words, digits = ("new", "old") if is_text(new) else ("old", "new")
        raise BadInput(
            f"the {words} model answers in words, the {digits} one in numbers: every answer would "
            "count as another one. Give both in the same form."
        )
    # Whoever differs errs, as if the old answers were the labels.
    apart = {"predictions": new, "labels": old}
    differ = int(outcomes(apart, Evaluation(), Coder()).losses.sum())
    end = holdout(errors=differ, examples=len(new), failure=share)
    return Inherited(
        risk_upper=as_risk(up(report.risk_upper + end)),
        confidence=1.0 - spent,
        disagreements=differ,
        inputs=len(new),
        disagreement_upper=end,
        status=report.status,
    )
