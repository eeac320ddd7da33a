"""The study of measures for people: a ranking, three pictures, and what they mean in words."""

from __future__ import annotations

from collections.abc import Sequence

from nonvacuous.measures.correlation import Estimate
from nonvacuous.measures.correlation_summary import Standing
from nonvacuous.papers.measures.pictures import by_hyperparameter, ranking, sign_errors, spoken
from nonvacuous.papers.measures.settings import AXES, CHANCE, MeasuresSettings
from nonvacuous.papers.measures.study import StudyResult
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash

KINDS = {"mlp": "perceptrons", "cnn": "convolutional networks"}
#: What each verdict means, in the order in which they are told.
VERDICTS = {
    "predicts": "Larger goes with a larger gap, over all pairs and when one thing changes at a "
    "time, both beyond chance, and for no hyper-parameter the other way round",
    "in part": "Right on the whole, but the wrong way round, beyond chance, when what stands in "
    "brackets changes, or no better than chance by one of the two",
    "nothing": "Not to be told from random numbers",
    "inverted": "Warning: larger goes with a smaller gap, so its order is the wrong way round",
}


def tables(result: StudyResult) -> tuple[Table, Table]:
    return short_table(result), times_table(result)


def page(result: StudyResult, command: str) -> StudyPage:
    standings, settings = result.judged, result.settings
    # The axes that any measure speaks of.
    axes = [name for name in AXES if any(name in own.granulated for own in standings)]
    return StudyPage(
        title="Measures on trial",
        question="Which complexity measures predict the generalization gap?",
        lead=lead(result),
        badges=(
            f"{len(result.reached):,} networks on {settings.data}",
            f"{result.left_out:,} left out",
            f"training loss {settings.stop_loss:g}",
        ),
        sections=(
            Section("What predicts, and what does not?", _words(result)),
            Section.of(
                "How well does each order the networks?",
                _ORDER_TEXT,
                Figure(ranking(standings)),
                ranking_table(result),
            ),
            Section.of(
                "Which changes does it predict?",
                _GRANULATED_TEXT,
                Figure(by_hyperparameter(standings, axes)),
                granulated_table(result, axes),
            ),
            *(Section.of(_GAUGES, _GAUGES_TEXT, table) for table in gauges_tables(result)),
            Section.of(
                "How bad can it be?",
                _SIGN_TEXT,
                Figure(sign_errors(standings)),
                robustness_table(result),
            ),
            Section.of("Which networks?", *_networks(result), _grid_table(settings)),
            Section.of("How long did it take?", times_table(result)),
        ),
        footer=(command, f"seed {settings.seed}"),
    )


_ORDER_TEXT = (
    "Every measure is turned so that larger should mean worse; margins are counted downward. 1 is "
    "the order of the gaps, -1 the reverse, 0 no relation. The gap is the test error minus the "
    "training error. Intervals hold 95 % of bootstrap draws, a combination of hyper-parameters "
    "being drawn as a whole; of twenty such intervals one may miss."
)
_GRANULATED_TEXT = (
    "The rank correlation among networks that differ in one hyper-parameter alone. A large filled "
    "disk: the measure predicts what this change does to the gap. A hollow one: it says the "
    "opposite. None: it does not notice the change, or cannot tell. A measure that is large in one "
    "column only knows that hyper-parameter, not generalization."
)
_SIGN_TEXT = (
    "An environment is one change of one hyper-parameter with all others fixed. Pale bars: the "
    "middle half of the environments; lines: nine tenths; the dot: the mean; the cross: the worst "
    "kind of change, averaged over everything else. Pairs whose gaps differ by less than chance "
    "are left out. A measure that explains generalization would have its cross left of the coin."
)
_GAUGES = "Is a measure better in its best gauge?"
_GAUGES_TEXT = (
    "The same function has many weights: rescaling a channel changes norms, sharpness and "
    "divergence but no prediction. Each measure is compared with itself where the norm (or the "
    "divergence) is smallest over rescaling. Intervals are those of the difference."
)
_INFORMATION_TEXT = (
    "Told: which of two networks has the larger gap is unknown; this share of what is unknown the "
    "measure tells once the hyper-parameters under given are known of both, those two or fewer "
    "that leave it least to tell (normalized conditional mutual information)."
)


def lead(result: StudyResult) -> str:
    """The answer in one sentence or two."""
    own = [entry for entry in result.judged if entry.name != CHANCE]
    if not own:
        return "No measure is defined for enough networks to be judged."
    best = own[0]
    robust = [s.name for s in own if s.worst_error.high < 0.5]
    counts = {verdict: sum(s.verdict == verdict for s in own) for verdict in VERDICTS}
    surely = "None is surely better than a coin in every kind of change."
    if robust:
        surely = f"Surely better than a coin in every kind of change: {', '.join(robust)}."
    return (
        f"Of {len(own)} measures, {counts['predicts']} predict the gap beyond chance and are "
        f"inverted for no hyper-parameter, {counts['in part']} do so in part, {counts['nothing']} "
        f"not at all, and {counts['inverted']} are inverted. The best, {best.name}, gets "
        f"{100 * best.sign_error.value:.0f} % of coupled pairs wrong, "
        f"{100 * best.worst_error.value:.0f} % for {change(best)}. {surely}"
    )


def change(standing: Standing) -> str:
    """The kind of change where a measure is wrong most."""
    axis, before, after = standing.worst
    return f"{spoken(axis)} {before:g} to {after:g}" if axis else "-"


def _words(result: StudyResult) -> tuple[str, ...]:
    words = []
    for verdict, meaning in VERDICTS.items():
        names = [_named(own) for own in result.judged if own.verdict == verdict]
        if names:
            words.append(f"{meaning}: {', '.join(names)}.")
    if result.not_judged:
        listed = "; ".join(f"{name} ({why})" for name, why in result.not_judged.items())
        words.append(f"Not judged: {listed}.")
    words.append(
        f"{CHANCE} are what the name says, for comparison. None of this is a guarantee: a "
        "correlation in one grid of networks on one data set may not hold elsewhere, and it is no "
        "bound."
    )
    return tuple(words)


def _named(standing: Standing) -> str:
    if standing.verdict != "in part" or not standing.inverted_for:
        return standing.name
    return f"{standing.name} ({', '.join(map(spoken, standing.inverted_for))})"


def ranking_table(result: StudyResult) -> Table:
    """All measures, best granulated rank correlation first."""
    rows = tuple(
        (
            entry.name + (" *" if entry.divided else ""),
            str(rank),
            entry.verdict,
            *_estimated(entry.tau),
            *_estimated(entry.granulated_mean),
            f"{entry.loss_tau.value:+.2f}",
        )
        for rank, entry in enumerate(result.judged, start=1)
    )
    headings = ("measure", "place", "verdict", "τ", "95 %", "granulated τ", "95 %", "τ, loss")
    caption = "τ, loss: Kendall's τ with the gap of the cross-entropy."
    if any(entry.divided for entry in result.judged):
        caption += (
            " * Divided by the square root of n, the number of examples: its formula has no n."
        )
    return Table(headings, rows, caption, numeric=(False, True, False, *(True,) * 5))


def robustness_table(result: StudyResult) -> Table:
    """How often each is wrong, where most, and what it tells beyond the hyper-parameters."""
    rows = (
        {
            "measure": own.name,
            "wrong": f"{own.sign_error.value:.2f}",
            "95 %": interval(own.sign_error, sign=""),
            "at worst": f"{own.worst_error.value:.2f}",
            "where": change(own),
            "told": f"{own.information.value:.3f}",
            "given": ", ".join(map(spoken, own.information_given)) or "nothing",
        }
        for own in result.judged
    )
    return Table.of(rows, _INFORMATION_TEXT, words=("measure", "where", "given"))


def gauges_tables(result: StudyResult) -> tuple[Table, ...]:
    """By how much a measure orders better where the norm is smallest over rescaling."""
    rows = tuple(
        (e.given, e.best, e.verdict, *_estimated(e.tau, 3), *_estimated(e.granulated, 3))
        for e in result.rescaled
    )
    headings = ("given", "best gauge", "then", "τ changes by", "95 %", "granulated τ by", "95 %")
    numeric = (*(False,) * 3, *(True,) * 4)
    return (Table(headings, rows, numeric=numeric),) if rows else ()


def short_table(result: StudyResult) -> Table:
    """What fits on a terminal."""
    rows = (
        {
            "measure": own.name,
            "verdict": own.verdict,
            "τ": f"{own.tau.value:+.2f}",
            "granulated": f"{own.granulated_mean.value:+.2f}",
            "wrong": f"{own.sign_error.value:.2f}",
            "worst": f"{own.worst_error.value:.2f}",
            "told": f"{own.information.value:.3f}",
        }
        for own in result.judged
    )
    return Table.of(
        rows, f"{lead(result)} Intervals and hyper-parameters: table.md and report.html."
    )


def granulated_table(result: StudyResult, shown: Sequence[str]) -> Table:
    """One column per hyper-parameter."""
    rows = tuple(
        (own.name, *(_signed(own.granulated.get(name)) for name in shown)) for own in result.judged
    )
    caption = "In brackets: its interval contains 0."
    return Table(("measure", *map(spoken, shown)), rows, caption=caption)


def times_table(result: StudyResult) -> Table:
    """Networks per minute, together and alone."""
    times = result.times
    row = {
        "device": times.device or "-",
        "method": times.method or "-",
        "networks": f"{times.networks:,}",
        "seconds": f"{times.seconds:.0f}",
        "per minute": or_dash(times.per_minute, ",.0f"),
        "one at a time": or_dash(times.per_minute_alone, ",.0f"),
        "faster": or_dash(times.speedup, ",.1f"),
        "measuring": f"{times.measuring_seconds:.0f}",
    }
    caption = (
        f"One at a time: by the time of a step of {times.alone_networks} networks spread over the "
        "grid and trained alone in the same run. Measuring: seconds of all processes together."
    )
    return Table.of([row], caption)


def interval(entry: Estimate, *, sign: str = "+") -> str:
    return f"{entry.low:{sign}.2f} to {entry.high:{sign}.2f}"


def _estimated(entry: Estimate, digits: int = 2) -> tuple[str, str]:
    return f"{entry.value:+.{digits}f}", interval(entry)


def _signed(entry: Estimate | None) -> str:
    if entry is None:
        return "-"
    said = f"{entry.value:+.2f}"
    return f"({said})" if entry.low <= 0 <= entry.high else said


def _networks(result: StudyResult) -> tuple[str, ...]:
    settings, gaps = result.settings, [entry.gap for entry in result.reached]
    small = f", averaged over squares of {settings.pool} pixels" if settings.pool > 1 else ""
    trained = (
        f"{KINDS[settings.network].capitalize()} on {settings.data}{small}, trained by stochastic "
        f"gradient descent with momentum {settings.momentum:g} and a constant rate until the "
        f"cross-entropy on their training set is at most {settings.stop_loss:g}. Wrong labels are "
        "drawn once and kept; test labels are clean. "
        f"{len(result.reached):,} of {len(result.records):,} networks got "
        f"there within {settings.epochs} epochs. Gaps run from {100 * min(gaps):.1f} to "
        f"{100 * max(gaps):.1f} points."
    )
    if not result.left_out:
        return (trained,)
    listed = "; ".join(
        f"{spoken(name)}: " + ", ".join(f"{count} with {value}" for value, count in counts.items())
        for name, counts in result.to_dict()["left_out_by"].items()
    )
    return (
        trained,
        f"Left out because they did not get there: {result.left_out:,}. By hyper-parameter, "
        f"{listed}. Where these are not spread evenly, what is left is not the whole grid.",
    )


def _grid_table(settings: MeasuresSettings) -> Table:
    axes = ((name, getattr(settings, name)) for name in AXES)
    rows = [(spoken(name), ", ".join(f"{v:g}" for v in values)) for name, values in axes]
    rows.append(("repetitions", str(settings.repetitions)))
    return Table(("hyper-parameter", "values"), tuple(rows), numeric=(False, False))
