"""From numbers to sentences: what a study says about a network, its training and its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from scipy import stats

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.randomization.classical import Rademacher
from nonvacuous.randomization.conditions import ConditionCertificate
from nonvacuous.randomization.results import (
    ConditionResult,
    Finding,
    LeakCheck,
    Permutations,
    Study,
)

#: Agreement with labels that training never saw must be this unlikely before it is called a fact.
_CERTAINLY = 1e-6


def findings_of(study: Study) -> tuple[Finding, ...]:
    """Everything worth a sentence, the most serious first."""
    random, failure = study.condition("random-labels"), study.settings.failure
    ignored = _labels_used(study.condition("true"), random, study.classes)
    said = [
        _configuration(study.configuration, study.conditions),
        ignored,
        _leak(study.leak, failure),
        *_certificates(study.certificates),
    ]
    if ignored is None:
        # Otherwise the networks were trained on something else, and these would be about nothing.
        said += [
            _memorizing(random, study.classes),
            _learning(study.permutations, failure),
            _rademacher(study.rademacher),
            *_unfit(study.conditions),
        ]
    order = ("problem", "good", "note")
    kept = [finding for finding in said if finding is not None]
    return tuple(sorted(kept, key=lambda finding: order.index(finding.level)))


def _configuration(digest: str | None, conditions: Sequence[ConditionResult]) -> Finding:
    if digest is not None:
        return Finding(
            "nothing but the data changed",
            "good",
            "Architecture, initial weights, order of examples and training are the same in all "
            f"{len(conditions)} conditions (configuration {digest[:12]}).",
        )
    return Finding(
        "something else changed",
        "problem",
        "Networks with the same seed did not start or train alike in all conditions, so "
        "differences between conditions may have another cause than the data. Build the model "
        "from torch's global generator, and keep files that training reads unchanged.",
    )


def _labels_used(true: ConditionResult, random: ConditionResult, classes: int) -> Finding | None:
    """A training function that has other labels than those it was given."""
    ignored = partial(Finding, "the labels given are ignored", "problem")
    pairs = list(zip(true.outcomes, random.outcomes, strict=True))
    if all(first.answers == second.answers for first, second in pairs):
        return ignored(
            "The trained networks answer exactly alike whether they were given true or random "
            "labels: training does not use the labels it is given. Every other number here is "
            "about something else than this data."
        )
    examples = sum(outcome.train_examples for outcome in random.outcomes)
    fit = examples - sum(outcome.train_errors for outcome in random.outcomes)
    agree = sum(outcome.true_agreements for outcome in random.outcomes)
    surprising = float(stats.binom.sf(agree - 1, examples, 1 / classes)) < _CERTAINLY
    if surprising and agree > fit and agree / examples > min(2 / classes, (1 + 1 / classes) / 2):
        return ignored(
            f"Given random labels, the networks answer with the true label on "
            f"{agree / examples:.0%} of the training examples and with the label given on "
            f"{fit / examples:.0%}: training has the true labels from somewhere else."
        )
    return None


def _leak(leak: LeakCheck, failure: float) -> Finding:
    test = leak.chance
    right = (
        f"Trained on random labels, the networks are right on {test.accuracy:.1%} of the test "
        f"examples where chance is {1 / test.classes:.1%}"
    )
    if leak.above_chance:
        return Finding(
            "the test set has leaked",
            "problem",
            f"{right} (p = {test.p_value:.2g}): something in training knows the true labels. No "
            "test error here can be trusted.",
        )
    if leak.duplicates:
        # Their labels were randomized too, so that networks on random labels show nothing.
        return Finding(
            "test examples occur in training",
            "problem",
            f"{leak.duplicates:,} of {leak.test_examples:,} test inputs are also training inputs, "
            "so the test error is partly a training error. Remove them from one of the two.",
        )
    if test.p_value <= failure:
        return Finding(
            "a leak cannot be excluded",
            "note",
            f"{right}: p = {test.p_value:.2g}, which one honest study in {1 / test.p_value:.0f} "
            "sees by chance. Repeat with another seed, or with more seeds.",
        )
    return Finding(
        "no leak",
        "good",
        f"After training on random labels the networks are right on {test.accuracy:.1%} of the "
        f"test examples, as chance would have it ({1 / test.classes:.1%}, p = {test.p_value:.2g}), "
        "and no test input occurs in training.",
    )


def _memorizing(random: ConditionResult, classes: int) -> Finding:
    count = len(random.outcomes)
    if random.fitted == count:
        return Finding(
            "it can memorize",
            "good",
            "The network fits random labels without a single error: its capacity suffices to "
            "memorize the training set, so nothing that depends on capacity alone can explain "
            "why it generalizes on true labels.",
        )
    accuracy = 1.0 - random.train_error.value
    if accuracy > 2.0 / classes:
        return Finding(
            "it memorizes in part",
            "note",
            f"The network fits {accuracy:.1%} of the random labels ({random.fitted} of {count} "
            f"networks fit them all; {random.fitting}).",
        )
    return Finding(
        "it does not memorize",
        "note",
        f"The network fits only {accuracy:.1%} of the random labels: in this training it cannot "
        "memorize, and a small training error on true labels means something by itself.",
    )


def _learning(permutations: Permutations | None, failure: float) -> Finding | None:
    if permutations is None:
        return None
    p_value, count = permutations.p_value, len(permutations.permuted)
    many = f"{count} permutation{'' if count == 1 else 's'}"
    lowest = permutations.is_smallest
    smallest = " (the smallest value that so many networks can give)" if lowest else ""
    if p_value <= failure:
        return Finding(
            "it learns",
            "good",
            f"The test error with true labels is lower than with {many} of them: "
            f"p = {p_value:.3g}{smallest}.",
        )
    return Finding(
        "learning is not shown",
        "note",
        f"Against {many} of the labels the test error with true labels has "
        f"p = {p_value:.3g}{smallest}: "
        + ("train more of them." if lowest else "no better than labels dealt at random."),
    )


def _rademacher(measured: Rademacher | None) -> Finding | None:
    if measured is None:
        return None
    what = "nothing" if measured.is_vacuous else "something"
    return Finding(f"Rademacher complexity says {what}", "note", measured.verdict)


def _certificates(certificates: Sequence[ConditionCertificate]) -> Iterator[Finding]:
    for entry in certificates:
        if entry.risk_upper is not None and entry.risk_upper < entry.floor:
            yield Finding(
                f"a false certificate: {entry.condition}",
                "problem",
                f"The certificate promises an error of at most {shown_up(entry.risk_upper)} on "
                f"{entry.condition}, where nobody can err less than {entry.floor:.3f}. One in "
                f"{1 / (1 - entry.confidence):.0f} may be false by bad luck; repeat it with "
                "another seed, and report it if it comes again.",
            )
    missing = [entry for entry in certificates if entry.risk_upper is None]
    if missing:
        yield Finding(
            "no certificate",
            "note",
            f"{len(missing)} of {len(certificates)} conditions have none. "
            f"{missing[0].condition}: {missing[0].reason}",
        )
    by_name = {entry.condition: entry for entry in certificates}
    true, random = by_name.get("true"), by_name.get("random-labels")
    if true is None or random is None or true.risk_upper is None or random.risk_upper is None:
        return
    if random.risk_upper >= random.guessing > true.risk_upper:
        yield Finding(
            "the certificate tells them apart",
            "good",
            f"The same bound promises an error of at most {shown_up(true.risk_upper)} on "
            f"true labels and nothing on random ones ({shown_up(random.risk_upper)}, "
            f"guessing errs {random.guessing:.3f}).",
        )
    elif true.risk_upper >= true.guessing:
        yield Finding(
            "no certificate",
            "note",
            "On true labels, too, the quick certificate of this study is no better than "
            "guessing; nonvacuous certify takes more time and usually does better.",
        )


def _unfit(conditions: Sequence[ConditionResult]) -> Iterator[Finding]:
    words = {
        "learning rate exhausted": "the learning rate had fallen to nothing before they fitted",
        "did not fit": "training ended while the learning rate was still large; try more epochs",
        "errors left": "training ended with errors left",
        "diverged": "training diverged; take a smaller learning rate",
    }
    by_reason: dict[str, list[ConditionResult]] = {}
    for entry in conditions:
        if entry.fitting != "fit":
            by_reason.setdefault(entry.fitting, []).append(entry)
    for reason, entries in by_reason.items():
        listed = ", ".join(
            f"{entry.name} ({len(entry.outcomes) - entry.fitted} of {len(entry.outcomes)} networks)"
            for entry in entries
        )
        text = f"Not all training labels were fitted in {listed}: {words.get(reason, reason)}."
        yield Finding(f"not fitted ({reason})", "note", text)
