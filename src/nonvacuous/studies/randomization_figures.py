"""The pictures of a randomization study: figures 1a, 1b and 1c of Zhang et al. (2017), and more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nonvacuous.randomization.intervals import Interval
from nonvacuous.randomization.learners import CurvePoint, Outcome
from nonvacuous.randomization.results import ConditionResult, Study
from nonvacuous.report.plots import Series, bars, histogram, lines

#: The learning curves that are drawn, and from how many points: beyond that marks are left out,
#: and only colors would tell curves apart.
_CURVES = ("true", "random-labels", "shuffled-pixels", "random-pixels", "gaussian")
_POINTS = 21


def figures(study: Study) -> dict[str, str]:
    """Every picture that this study has numbers for, as SVG text by name."""
    drawn = {
        "figure-1a": learning_curves(study),
        "figure-1b": time_to_fit(study),
        "figure-1c": test_errors(study),
        "clean-and-corrupted": clean_and_corrupted(study),
        "permutations": permutations(study),
        "certificates": certificates(study),
    }
    return {name: svg for name, svg in drawn.items() if svg is not None}


def learning_curves(study: Study) -> str | None:
    """Figure 1a: the training error after every epoch, in conditions from true to noise."""
    series = [
        _mean_curve(entry, entry.name, lambda p, o: 100 * p.train_errors / o.train_examples)
        for entry in study.conditions
        if entry.name in _CURVES and all(outcome.curve for outcome in entry.outcomes)
    ]
    if not series:
        return None
    title, y_label = "Learning curves", "training error, %"
    return lines(series, title=title, x_label="epoch", y_label=y_label, lowest=0.0)


def time_to_fit(study: Study) -> str | None:
    """Figure 1b: how much longer more label noise takes to fit."""
    known = [(x, entry.relative_time) for x, entry in _noise_levels(study)]
    times = [(x, time) for x, time in known if time is not None]
    if len(times) < 2:
        return None
    return lines(
        [banded("time to fit", times)],
        title="Time to fit",
        x_label="share of labels drawn at random",
        y_label="epochs, relative to true labels",
        lowest=0.0,
        level=("true labels", 1.0),
    )


def test_errors(study: Study) -> str | None:
    levels = _noise_levels(study)
    if len(levels) < 2:
        return None
    learned = [100 * entry.train_error.value for _, entry in levels]
    return lines(
        [
            banded("test error", [(x, entry.test_error) for x, entry in levels], factor=100),
            Series("training error", [x for x, _ in levels], learned),
        ],
        title="Errors against label noise",
        x_label="share of labels drawn at random",
        y_label="error, %",
        lowest=0.0,
        highest=100.0,
        level=("guessing", 100 * study.guessing),
    )


def clean_and_corrupted(study: Study) -> str | None:
    """While it memorizes noise, does it learn the signal first?"""
    entry = half_corrupted(study)
    if entry is None:
        return None
    shares: dict[str, Callable[[CurvePoint, Outcome], float]] = {
        "labels kept": lambda p, o: (p.clean_errors or 0) / (o.train_examples - _redrawn(o)),
        "labels redrawn": lambda p, o: (p.corrupted_errors or 0) / _redrawn(o),
        "test, true labels": lambda p, o: (p.test_errors or 0) / o.test_examples,
    }
    wrong = [_mean_curve(entry, label, share) for label, share in shares.items()]
    return lines(
        [replace(series, y=[100 * (1 - error) for error in series.y]) for series in wrong],
        title=f"Clean and corrupted examples ({entry.name})",
        x_label="epoch",
        y_label="right, %",
        lowest=0.0,
        highest=100.0,
    )


def half_corrupted(study: Study) -> ConditionResult | None:
    """The condition whose labels are closest to half true, half drawn, if it was watched."""
    mixed = [
        entry
        for entry in study.conditions
        if entry.noise is not None
        and 0.0 < entry.noise < 1.0
        and all(
            outcome.curve and 0 < _redrawn(outcome) < outcome.train_examples
            for outcome in entry.outcomes
        )
    ]
    return min(mixed, key=lambda entry: abs((entry.noise or 0.0) - 0.5), default=None)


def permutations(study: Study) -> str | None:
    if study.permutations is None:
        return None
    return histogram(
        {"permuted labels": [100 * value for value in study.permutations.permuted]},
        title="Test error with permuted labels",
        x_label="test error, %",
        bins=10,
        level=("true labels", 100 * study.permutations.observed),
    )


def certificates(study: Study) -> str | None:
    made = [entry for entry in study.certificates if entry.risk_upper is not None]
    if not made:
        return None
    return bars(
        [entry.condition for entry in made],
        {
            "certified": [100 * (entry.risk_upper or 0.0) for entry in made],
            "unavoidable": [100 * entry.floor for entry in made],
        },
        title="Certified error by condition",
        x_label="error on new data, at most, %",
        level=("guessing", 100 * study.guessing),
    )


def banded(label: str, points: Sequence[tuple[float, Interval]], *, factor: float = 1) -> Series:
    """Values with the band of their intervals."""
    ends = ([factor * getattr(y, end) for _, y in points] for end in ("value", "low", "high"))
    return Series(label, [x for x, _ in points], *ends)


def _redrawn(outcome: Outcome) -> int:
    """How many of a network's training labels were drawn anew."""
    return outcome.corrupted_examples or 0


def _noise_levels(study: Study) -> list[tuple[float, ConditionResult]]:
    levels = [(entry.noise, entry) for entry in study.conditions if entry.noise is not None]
    return sorted(levels, key=lambda level: level[0])


def _mean_curve(
    entry: ConditionResult, label: str, share: Callable[[CurvePoint, Outcome], float]
) -> Series:
    """The mean over all networks of what ``share`` says, after some of the epochs."""
    outcomes = entry.outcomes
    last = min(len(outcome.curve) for outcome in outcomes) - 1
    points = min(_POINTS, last + 1)
    # Evenly spread, with the first epoch and the last.
    steps = sorted({round(last * point / max(points - 1, 1)) for point in range(points)})
    means = [
        sum(share(outcome.curve[step], outcome) for outcome in outcomes) / len(outcomes)
        for step in steps
    ]
    return Series(label, [outcomes[0].curve[step].epoch for step in steps], means)
