"""The sections of a randomization study's page, each one question and its answer."""

from __future__ import annotations

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.randomization.results import ConditionResult, Study
from nonvacuous.report.study import Figure, Section, Table
from nonvacuous.report.wording import plural
from nonvacuous.studies.randomization_figures import half_corrupted

_MISSING = "–"


def findings_section(study: Study) -> Section:
    marks = {"problem": "Problem: ", "good": "", "note": "Note: "}
    rows = tuple((f"{marks[entry.level]}{entry.name}", entry.text) for entry in study.findings)
    return Section("What was found", tables=(Table(("finding", "what it says"), rows),))


def conditions_section(study: Study, drawn: dict[str, str]) -> Section:
    confidence = f"{100 * study.settings.confidence:g} %"
    rows = tuple(
        (
            entry.name,
            f"{100 * entry.train_error.value:.1f} %",
            entry.test_error.text(),
            entry.gap.text(),
            _fitting(entry),
            _MISSING if entry.relative_time is None else f"{entry.relative_time.value:.1f} ×",
        )
        for entry in study.conditions
    )
    headings = (
        "training data",
        "training error",
        "test error",
        "gap",
        "fitted",
        "time to fit",
    )
    return Section(
        "The same training, other data",
        paragraphs=(
            f"{study.architecture} ({study.parameters:,} weights) on {study.examples:,} examples "
            f"with {study.dimensions:,} inputs and {study.classes} classes. In every condition "
            f"{study.settings.seeds} networks start from the same weights; only the training data "
            "differ. Test labels are always the true ones. Guessing errs on "
            f"{100 * study.guessing:.0f} %.",
            "The gap is the test error minus the training error: what the training error hides. "
            "Time to fit counts epochs until no training label is wrong, relative to true labels.",
        ),
        figures=_pictures(
            drawn,
            ("figure-1a", "Training error after every epoch, mean over seeds."),
            ("figure-1c", f"Errors as labels are lost; band: {confidence} interval."),
            ("figure-1b", f"Epochs to fit every label; band: {confidence} interval over seeds."),
        ),
        tables=(
            Table(
                headings,
                rows,
                caption=f"In brackets: {confidence} interval ({_how(study)}).",
                numeric=(False, True, True, True, False, True),
            ),
        ),
    )


def _descriptions(study: Study) -> tuple[tuple[str, str], ...]:
    """Every kind of condition once, whatever its strength."""
    kinds: dict[str, str] = {}
    for entry in study.conditions:
        name, colon, _ = entry.name.partition(":")
        kinds.setdefault(f"{name}:P" if colon else name, entry.description)
    return tuple(kinds.items())


def _how(study: Study) -> str:
    return study.condition("true").test_error.how


def _fitting(entry: ConditionResult) -> str:
    if entry.fitting == "fit":
        if entry.fit_epochs is None:
            return "yes"
        return f"after {entry.fit_epochs.value:.0f} epochs"
    return f"{entry.fitted} of {len(entry.outcomes)}: {entry.fitting}"


def curves_section(study: Study, drawn: dict[str, str]) -> Section | None:
    entry = half_corrupted(study)
    if entry is None or "clean-and-corrupted" not in drawn:
        return None
    return Section(
        "Signal first, noise later?",
        paragraphs=(
            f"In {entry.name} some training labels were drawn anew. If the curve of the examples "
            "that kept their label runs ahead of the others, the network picks up what the labels "
            "have in common before it memorizes those that fit nothing.",
        ),
        figures=_pictures(drawn, ("clean-and-corrupted", "Share answered right, mean over seeds.")),
    )


def learning_section(study: Study, drawn: dict[str, str]) -> Section | None:
    found = study.permutations
    if found is None:
        return None
    return Section(
        "Could the test error be luck?",
        paragraphs=(
            f"{plural(len(found.permuted), 'more network')} "
            f"{'was' if len(found.permuted) == 1 else 'were'} trained on the same labels dealt out "
            f"at random. With true labels the test error is {100 * found.observed:.1f} %, with "
            f"permuted ones {100 * min(found.permuted):.1f} % at best. p = {found.p_value:.3g}: "
            "how often permuted labels do at least as well, counting the true ones as one of the "
            f"permutations; {plural(len(found.permuted), 'permutation')} cannot give less than "
            f"{1 / (1 + len(found.permuted)):.3g}.",
        ),
        figures=_pictures(drawn, ("permutations", "Where true labels stand among permuted ones.")),
    )


def leak_section(study: Study) -> Section:
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
    return Section(
        "Has the test set leaked?",
        paragraphs=(
            "A network that was trained on labels drawn at random knows nothing of the true ones. "
            "If it still beats chance on the test set, something in its training has seen them.",
        ),
        tables=(Table(("check", "result"), tuple(rows), numeric=(False, True)),),
        folded="How it was tested",
    )


def capacity_section(study: Study) -> Section:
    rows = list(study.capacity.lines)
    if study.condition("random-labels").fitting == "fit":
        why = "change one label, and the answer follows; it fitted every labeling it was given"
        rows.append(("uniform stability", "1 (the worst)", why))
    found = study.rademacher
    if found is not None:
        said = "says nothing: a gap is never above 1" if found.is_vacuous else "a diagnosis only"
        rows += [
            (
                "R̂, fit of random signs",
                found.complexity.text(percent=False),
                f"{found.sign_vectors} sign vectors; 0 is guessing, 1 fits all. A lower bound",
            ),
            ("gap that this R̂ allows", f"{found.gap_bound:.2f}", said),
        ]
    return Section(
        "What classical capacity says",
        paragraphs=(
            "These numbers depend on the architecture and the inputs, never on the labels: they "
            "are the same for true and for random labels, although the gaps above are not. So "
            "they cannot be the reason why this network generalizes.",
        ),
        tables=(Table(("number", "value", "meaning"), tuple(rows), numeric=(False, True, False)),),
        folded="Every number, and what it means",
    )


def certificates_section(study: Study, drawn: dict[str, str]) -> Section | None:
    if not study.certificates:
        return None
    rows = tuple(
        (
            entry.condition,
            _MISSING if entry.risk_upper is None else shown_up(entry.risk_upper),
            f"{entry.floor:.3f}",
            entry.verdict if not entry.reason else f"{entry.verdict}: {entry.reason}",
        )
        for entry in study.certificates
    )
    return Section(
        "Does a certificate know the difference?",
        paragraphs=(
            "A PAC-Bayes certificate looks at the data and the labels. For every condition a "
            "randomized network was trained for the best promise about new data of the same "
            "condition. On random labels it must promise nothing: nobody can predict them.",
            "These are quick ones; nonvacuous certify takes more time and promises more. Each "
            f"holds with confidence {study.settings.confidence:g} by itself.",
        ),
        figures=_pictures(drawn, ("certificates", "Promised, and unavoidable by anybody.")),
        tables=(Table(("condition", "error at most", "unavoidable", "verdict"), rows),),
    )


def regularization_section(study: Study) -> Section | None:
    if not study.regularization:
        return None
    rows = tuple(
        (
            entry.name,
            *(_mean(values) for values in (entry.true_train, entry.true_test)),
            *(_mean(values) for values in (entry.random_train, entry.random_test)),
            entry.note,
        )
        for entry in study.regularization
    )
    headings = (
        "regularizer",
        "true: training error",
        "true: test error",
        "random: training error",
        "random: test error",
        "note",
    )
    return Section(
        "Is it the regularization?",
        paragraphs=(
            "If a regularizer were the reason for generalization, leaving it out would spoil the "
            "test error with true labels, and with it random labels could not be fitted.",
        ),
        tables=(
            Table(
                headings,
                rows,
                caption=f"Means over {study.settings.seeds} seeds.",
                numeric=(False, True, True, True, True, False),
            ),
        ),
    )


def same_section(study: Study) -> Section:
    rows = tuple(
        (
            entry.name,
            " ".join(outcome.configuration[:8] for outcome in entry.outcomes),
            " ".join(outcome.data[:8] for outcome in entry.outcomes),
        )
        for entry in study.conditions
    )
    return Section(
        "Was anything else changed?",
        paragraphs=(
            "One fingerprint for each seed over everything but the data: architecture, initial "
            "weights, training and its settings. Reading down a column, the fingerprints of the "
            "configuration are equal and those of the data are not.",
        ),
        tables=(
            Table(
                ("condition", "configuration, by seed", "training data, by seed"),
                rows,
                numeric=(False, False, False),
            ),
            Table(("training data", "what was done to it"), _descriptions(study)),
        ),
        folded="The fingerprints, and what was done to the data",
    )


def _pictures(drawn: dict[str, str], *wanted: tuple[str, str]) -> tuple[Figure, ...]:
    return tuple(Figure(drawn[name], caption) for name, caption in wanted if name in drawn)


def _mean(values: tuple[float, ...]) -> str:
    return f"{100 * sum(values) / len(values):.1f} %" if values else _MISSING
