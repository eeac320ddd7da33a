"""A randomization study for people: one page, its pictures, and results.json beside them."""

from __future__ import annotations

import itertools
from dataclasses import replace

from pydantic import TypeAdapter
from rich.console import Console

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.randomization.results import ConditionResult, Study
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.report.wording import plural, printable
from nonvacuous.studies.randomization_figures import figures, half_corrupted
from nonvacuous.study.study import Single


def _study(result: Single) -> Study:
    return TypeAdapter(Study).validate_python(dict(result.record))


def drawn_of(result: Single) -> dict[str, str]:
    return figures(_study(result))


def page(result: Single, command: str) -> StudyPage:
    """The whole page, in the order of a person's questions."""
    study = _study(result)
    drawn = figures(study)
    every = (
        _findings(study),
        _conditions(study, drawn),
        _curves(study, drawn),
        _learning(study, drawn),
        _leak(study),
        _capacity(study),
        _certificates(study, drawn),
        _regularization(study),
        _same(study),
    )
    return StudyPage(
        title=f"Randomization: {study.architecture} on {study.data}",
        question="Does this network learn, or would it fit anything?",
        lead=lead(study),
        badges=_badges(study),
        sections=tuple(filter(None, every)),
        footer=(
            command,
            f"Seed {study.settings.seed}; {plural(study.networks, 'network')} trained by "
            f"{study.trained_by} in {study.seconds:,.0f} s.",
        ),
    )


def lead(study: Study) -> str:
    if study.problems:
        return f"Something is wrong: {study.problems[0].name}."
    true, random = study.condition("true"), study.condition("random-labels")
    error = f"{100 * true.test_error.value:.1f} %"
    memorized = f"{100 * (1 - random.train_error.value):.0f} %"
    doubt = _doubt(study)
    if doubt:
        return f"Whether it learns is not shown: {error} test error, {doubt}."
    if not _learned(study):
        return (
            f"No sign of learning: {error} test error, which random labels do as well; it fits "
            f"{memorized} of those."
        )
    if random.fitted == len(random.outcomes):
        return (
            f"It learns, and could have memorized: {error} test error, and no training error on "
            "random labels."
        )
    return f"It learns: {error} test error; it can fit {memorized} of random labels."


def _learned(study: Study) -> bool:
    """The verdict of the permutation test; where none was made, of the interval."""
    error, permuted = study.condition("true").test_error, study.permutations
    if permuted is None:
        return error.high < _constant(study)
    return error.low < study.guessing and permuted.p_value <= study.settings.failure


def _constant(study: Study) -> float:
    """The error of the best answer that looks at no input."""
    return min(e for e in (study.guessing, study.largest_class) if e is not None)


def _doubt(study: Study) -> str:
    """Why the numbers look like learning and do not show it; empty where that is not so."""
    error, permuted = study.condition("true").test_error, study.permutations
    if _learned(study) or error.low >= study.guessing:
        return ""
    if permuted is None:
        near = "guessing lies within its interval"
        if error.high < study.guessing:
            near = f"always answering the largest class errs on {100 * _constant(study):.1f} %"
        return f"and {near}; no permutations were trained"
    if not permuted.is_smallest:
        return ""
    count = len(permuted.permuted)
    enough = next(n for n in itertools.count(count) if 1 / (n + 1) <= study.settings.failure)
    return (
        f"but {plural(count, 'permutation')} of the labels cannot tell (p = "
        f"{permuted.p_value:.3g}; {enough} could)"
    )


def _badges(study: Study) -> tuple[str, ...]:
    problems = f"{plural(len(study.problems), 'problem')} found"
    badges = [problems if study.problems else "no leak found"]
    if study.configuration is not None:
        badges.append(f"one configuration {study.configuration[:12]} in all conditions")
    if study.permutations is not None:
        badges.append(f"permutation p = {study.permutations.p_value:.3g}")
    badges.append(plural(study.settings.seeds, "seed"))
    return tuple(badges)


_MARKS = {"problem": "PROBLEM", "good": "found", "note": "note"}


def write_text(result: Single, console: Console) -> None:
    """The answer in one sentence, then what it rests on."""
    study = _study(result)
    console.print(printable(lead(study)), style="bold", soft_wrap=True)
    console.print()
    _table(study).print(console)
    console.print()
    for finding in study.findings:
        text = f"{_MARKS[finding.level]:8}{finding.name}: {finding.text}"
        console.print(printable(text), soft_wrap=True)


def _table(study: Study) -> Table:
    rows = [
        {
            "training data": printable(entry.name),
            "training": f"{100 * entry.train_error.value:.1f} %",
            "test error": entry.test_error.text(),
            "fitted after": _fitting(entry),
        }
        for entry in study.conditions
    ]
    for row, made in zip(rows, study.certificates, strict=False):
        row["certified"] = "-" if made.risk_upper is None else shown_up(made.risk_upper)
    caption = (
        "Errors against the labels given (training) and the true ones (test); in brackets "
        f"{100 * study.settings.confidence:g} % intervals."
    )
    return Table.of(rows, caption, words=("training data",))


def _fitting(entry: ConditionResult) -> str:
    if entry.fitting != "fit":
        return entry.fitting.removeprefix("learning ")
    if entry.fit_epochs is None:
        return "fitted"
    epochs = f"{entry.fit_epochs.value:.0f} epochs"
    if entry.relative_time is None or entry.name == "true":
        return epochs
    return f"{epochs} ({entry.relative_time.value:.1f} x)"


_MISSING = "–"


def _findings(study: Study) -> Section:
    marks = {"problem": "Problem: ", "good": "", "note": "Note: "}
    rows = tuple((f"{marks[entry.level]}{entry.name}", entry.text) for entry in study.findings)
    return Section.of("What was found", Table(("finding", "what it says"), rows))


def _conditions(study: Study, drawn: dict[str, str]) -> Section:
    confidence = f"{100 * study.settings.confidence:g} %"
    seeds = study.settings.seeds
    started = f"{plural(seeds, 'network')} start{'s' * (seeds == 1)}"
    rows = (
        {
            "training data": entry.name,
            "training error": f"{100 * entry.train_error.value:.1f} %",
            "test error": entry.test_error.text(),
            "gap": entry.gap.text(),
            "fitted": _how_fitted(entry),
            "time to fit": f"{time.value:.1f} ×" if (time := entry.relative_time) else _MISSING,
        }
        for entry in study.conditions
    )
    caption = f"In brackets: {confidence} interval ({study.condition('true').test_error.how})."
    return Section.of(
        "The same training, other data",
        f"{study.architecture} ({study.parameters:,} weights) on {study.examples:,} examples with "
        f"{study.dimensions:,} inputs and {study.classes} classes. In every condition "
        f"{started} from the same weights; only the training data "
        "differ. Test labels are always the true ones. Guessing errs on "
        f"{_guessing(study)}.",
        "The gap is the test error minus the training error: what the training error hides. Time "
        "to fit counts epochs until no training label is wrong, relative to true labels.",
        *_pictures(
            drawn,
            ("figure-1a", "Training error after every epoch, mean over seeds."),
            ("figure-1c", f"Errors as labels are lost; band: {confidence} interval."),
            ("figure-1b", f"Epochs to fit every label; band: {confidence} interval over seeds."),
        ),
        Table.of(rows, caption, words=("training data", "fitted")),
    )


def _guessing(study: Study) -> str:
    """What a guess does, and beside it the largest class where that does better."""
    guess, best = (f"{100 * error:.0f} %" for error in (study.guessing, _constant(study)))
    return guess if best == guess else f"{guess}, always answering the largest class on {best}"


def _how_fitted(entry: ConditionResult) -> str:
    if entry.fitting != "fit":
        return f"{entry.fitted} of {len(entry.outcomes)}: {entry.fitting}"
    return "yes" if entry.fit_epochs is None else f"after {entry.fit_epochs.value:.0f} epochs"


def _curves(study: Study, drawn: dict[str, str]) -> Section | None:
    entry = half_corrupted(study)
    if entry is None:
        return None
    return Section.of(
        "Signal first, noise later?",
        f"In {entry.name} some training labels were drawn anew. If the curve of the examples that "
        "kept their label runs ahead of the others, the network picks up what the labels have in "
        "common before it memorizes those that fit nothing.",
        *_pictures(drawn, ("clean-and-corrupted", "Share answered right, mean over seeds.")),
    )


def _learning(study: Study, drawn: dict[str, str]) -> Section | None:
    tests = study.permutations
    if tests is None:
        return None
    count = len(tests.permuted)
    return Section.of(
        "Could the test error be luck?",
        f"{plural(count, 'more network')} {'was' if count == 1 else 'were'} trained on the same "
        "labels dealt out at random. With true labels the test error is "
        f"{100 * tests.observed:.1f} %, with permuted ones {100 * min(tests.permuted):.1f} % at "
        f"best. p = {tests.p_value:.3g}: how often permuted labels do at least as well, counting "
        f"the true ones as one of the permutations; {plural(count, 'permutation')} cannot give "
        f"less than {1 / (1 + count):.3g}.",
        *_pictures(drawn, ("permutations", "Where true labels stand among permuted ones.")),
    )


def _leak(study: Study) -> Section:
    leak, test = study.leak, study.leak.chance
    rows = [
        ("test inputs that occur in training", f"{leak.duplicates:,} of {leak.test_examples:,}"),
        ("right on the test set after random labels", f"{100 * test.accuracy:.1f} %"),
        ("chance", f"{100 / test.classes:.1f} %"),
        ("p-value, independent answers (exact binomial)", f"{test.binomial:.3g}"),
    ]
    if test.relabeling is not None:
        rows.append(("p-value, over renamings of the classes", f"{test.relabeling:.3g}"))
    if test.student is not None:
        rows.append(("p-value, over seeds (Student's t)", f"{test.student:.3g}"))
    rows.append(("a leak is reported below", f"{leak.level:.3g}"))
    return Section.of(
        "Has the test set leaked?",
        "A network that was trained on labels drawn at random knows nothing of the true ones. If "
        "it still beats chance on the test set, something in its training has seen them.",
        Table(("check", "result"), tuple(rows), numeric=(False, True)),
        folded="How it was tested",
    )


def _capacity(study: Study) -> Section:
    rows = list(study.capacity.lines)
    if study.condition("random-labels").fitting == "fit":
        why = "change one label, and the answer follows; it fitted every labeling it was given"
        rows.append(("uniform stability", "1 (the worst)", why))
    signs = study.rademacher
    if signs is not None:
        said = "says nothing: a gap is never above 1" if signs.is_vacuous else "a diagnosis only"
        vectors = plural(signs.sign_vectors, "sign vector")
        meaning = f"{vectors}; 0 is guessing, 1 fits all. A lower bound"
        rows.append(("R̂, fit of random signs", signs.complexity.text(percent=False), meaning))
        rows.append(("gap that this R̂ allows", f"{signs.gap_bound:.2f}", said))
    return Section.of(
        "What classical capacity says",
        "These numbers depend on the architecture and the inputs, never on the labels: they are "
        "the same for true and for random labels, although the gaps above are not. So they cannot "
        "be the reason why this network generalizes.",
        Table(("number", "value", "meaning"), tuple(rows), numeric=(False, True, False)),
        folded="Every number, and what it means",
    )


def _certificates(study: Study, drawn: dict[str, str]) -> Section | None:
    if not study.certificates:
        return None
    rows = (
        {
            "condition": entry.condition,
            "error at most": _MISSING if entry.risk_upper is None else shown_up(entry.risk_upper),
            "unavoidable": f"{entry.floor:.3f}",
            "verdict": ": ".join(filter(None, (entry.verdict, entry.reason))),
        }
        for entry in study.certificates
    )
    return Section.of(
        "Does a certificate know the difference?",
        "A PAC-Bayes certificate looks at the data and the labels. For every condition a "
        "randomized network was trained for the best promise about new data of the same "
        "condition. On random labels it must promise nothing: nobody can predict them.",
        "These are quick ones; nonvacuous certify takes more time and promises more. Each holds "
        f"with confidence {study.settings.confidence:g} by itself.",
        *_pictures(drawn, ("certificates", "Promised, and unavoidable by anybody.")),
        Table.of(rows),
    )


def _regularization(study: Study) -> Section | None:
    if not study.regularization:
        return None

    def mean(values: tuple[float, ...]) -> str:
        return f"{100 * sum(values) / len(values):.1f} %" if values else _MISSING

    rows = (
        {
            "regularizer": entry.name,
            "true: training error": mean(entry.true_train),
            "true: test error": mean(entry.true_test),
            "random: training error": mean(entry.random_train),
            "random: test error": mean(entry.random_test),
            "note": entry.note,
        }
        for entry in study.regularization
    )
    caption = f"Means over {plural(study.settings.seeds, 'seed')}."
    return Section.of(
        "Is it the regularization?",
        "If a regularizer were the reason for generalization, leaving it out would spoil the test "
        "error with true labels, and with it random labels could not be fitted.",
        Table.of(rows, caption, words=("regularizer", "note")),
    )


def _same(study: Study) -> Section:
    rows = (
        {
            "condition": entry.name,
            "configuration, by seed": " ".join(o.configuration[:8] for o in entry.outcomes),
            "training data, by seed": " ".join(o.data[:8] for o in entry.outcomes),
        }
        for entry in study.conditions
    )
    # Every kind of condition once, whatever its strength.
    kinds: dict[str, str] = {}
    for entry in study.conditions:
        name, colon, _ = entry.name.partition(":")
        kinds.setdefault(f"{name}:P" if colon else name, entry.description)
    return Section.of(
        "Was anything else changed?",
        "One fingerprint for each seed over everything but the data: architecture, initial "
        "weights, training and its settings. Reading down a column, the fingerprints of the "
        "configuration are equal and those of the data are not.",
        replace(Table.of(rows), numeric=(False,) * 3),
        Table(("training data", "what was done to it"), tuple(kinds.items())),
        folded="The fingerprints, and what was done to the data",
    )


def _pictures(drawn: dict[str, str], *wanted: tuple[str, str]) -> tuple[Figure, ...]:
    return tuple(Figure(drawn[name], caption) for name, caption in wanted if name in drawn)
