"""From a batch of columns to losses: what went wrong in each row, by the metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput, nearest
from nonvacuous.evaluation.coding import BadRow, Coder, check_exact, is_text, one_each, plain
from nonvacuous.evaluation_records import Evaluation


@dataclass(frozen=True)
class Outcomes:
    """One batch: the loss of each row that counts, and the codes of its classes."""

    losses: np.ndarray
    #: Which rows count (answered ones, for the selective error); all of them if None.
    counted: np.ndarray | None = None
    labels: np.ndarray | None = None
    predictions: np.ndarray | None = None


def outcomes(batch: dict[str, Any], settings: Evaluation, classes: Coder) -> Outcomes:
    """What the metric says about columns that :func:`~nonvacuous.evaluation.coding.plain` made."""
    metric = settings.metric
    if settings.entry.one_column:
        losses = numbers(batch["losses"], "losses")
        if metric in ("event", "success") and not ((losses == 0) | (losses == 1)).all():
            odd = float(losses[(losses != 0) & (losses != 1)][0])
            raise BadInput(
                f"metric {metric!r} reads 1 or 0, got {odd!r}; for numbers between 0 and 1 use "
                f"metric {'loss' if metric == 'event' else 'score'!r}."
            )
        losses = scaled(losses, settings)
        return Outcomes(1.0 - losses if metric in ("success", "score") else losses)
    labels, predictions = batch["labels"], batch["predictions"]
    if metric in ("absolute error", "squared error"):
        gap = np.abs(numbers(predictions, "predictions") - numbers(labels, "labels"))
        return Outcomes(scaled(gap**2 if metric == "squared error" else gap, settings))
    if metric == "brier":
        return Outcomes(_brier(numbers(predictions, "predictions", flat=False), labels, settings))
    truth = _classes(labels, "labels", settings, classes)
    if settings.classes is None and is_text(labels) != is_text(predictions):
        words, digits = ("labels", "predictions") if is_text(labels) else ("predictions", "labels")
        raise BadInput(
            f"{words} are words and {digits} numbers. If the numbers are positions, declare the "
            "classes in their order."
        )
    if metric == "top-k":
        return Outcomes(_outside_top(predictions, truth, settings, classes), labels=truth)
    answer = _classes(predictions, "predictions", settings, classes)
    wrong = (truth != answer).astype(np.float64)
    if metric == "selective error":
        return Outcomes(wrong, answer != classes.code(settings.abstain), truth, answer)
    return Outcomes(wrong, None, truth, answer)


def scaled(losses: np.ndarray, settings: Evaluation) -> np.ndarray:
    """Losses between 0 and 1: as they are, or clipped to the declared range and scaled."""
    if settings.range is not None:
        low, high = settings.range
        return np.asarray((np.clip(losses, low, high) - low) / (high - low))
    bad = np.flatnonzero((losses < 0) | (losses > 1))
    if len(bad):
        raise BadRow(
            "losses must lie in [0, 1] unless their range is declared:",
            int(bad[0]),
            f" has {float(losses[bad[0]])!r}. Declare it, as in range=(0, 10); larger ones are "
            "then clipped, and the promise says so.",
        )
    return losses


def numbers(column: Any, name: str, *, flat: bool = True) -> np.ndarray:
    if is_text(column):
        raise BadInput(f"{name} must be numbers for this metric, got words.")
    if flat and column.ndim != 1:
        raise BadInput(f"{name} must have one number per row, got shape {column.shape}.")
    return np.asarray(column, dtype=np.float64)


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _classes(column: Any, name: str, settings: Evaluation, classes: Coder) -> np.ndarray:
    _check_column(column, name)
    declared = settings.classes
    if not is_text(column):
        if declared is not None and all(isinstance(value, str) for value in declared):
            codes = _codes_of_words(column, name, declared)
            if codes is not None:
                return codes
            # Names that are numbers, as the command line gives them: no positions.
            column = column.astype(np.int64).astype(str)
        elif column.dtype.kind == "b":
            column = column.astype(np.int64)
    codes = classes(column)
    if declared is not None and len(classes.values) > len(declared):
        odd = classes.values[len(declared)]
        hint = nearest(odd, declared, " Did you mean {!r}?")
        raise BadInput(f"{name}: {odd!r} is not one of the declared classes.{hint}")
    return codes


def _check_column(column: Any, name: str) -> None:
    """Refuse what are no classes, one for each row."""
    text = is_text(column)
    if getattr(column, "ndim", 1) > 1:
        what, looks = ("words", "ranked answers") if text else ("numbers", "scores of classes")
        alone = f"{name}[:, 0]" if text else f"{name}.argmax(axis=1)"
        if column.shape[1:] == (1,):
            looks, alone = "one column in a table", f"{name}[:, 0]"
            if not text and column.dtype.kind == "f":
                alone = f"({name}[:, 0] > 0.5).astype(int), with 0 instead of 0.5 for logits"
        raise BadInput(
            f"{name} have {column.shape[1:]} {what} per row: they look like {looks}. Give the "
            f"class alone, as in {alone}, or use metric 'top-k' or 'brier'."
        )
    if text or column.dtype.kind != "f":
        return
    check_exact(column, name)
    looks = "measurements, not classes. To test them use metric 'absolute error' and the range of "
    looks += "the error (--metric 'absolute error' --range LOW HIGH); to compare predictors of "
    looks += "measurements, give their losses in [0, 1] without labels (--metric loss)"
    if ((column >= 0) & (column <= 1)).all():
        looks = "probabilities, not classes. Give the class of each row, as in "
        looks += f"({name} > 0.5).astype(int)"
    odd = float(column[column % 1 != 0][0])
    raise BadInput(f"{name} hold fractions such as {odd!r}: they look like {looks}.")


def _codes_of_words(column: np.ndarray, name: str, declared: tuple[Any, ...]) -> np.ndarray | None:
    """Which declared words are meant by numbers, or by true and false; None if words are numbers.

    Numbers are positions; true and false are names, whatever their positions.
    """
    truths = [[at for at, v in enumerate(declared) if v.lower() == w] for w in ("false", "true")]
    if column.dtype.kind == "b" and all(len(entry) == 1 for entry in truths):
        return np.where(column, truths[1][0], truths[0][0])
    if all(truths) and truths != [[0], [1]]:
        raise BadInput(
            f"{name} are numbers and the declared classes {', '.join(declared)}, of which 1 would "
            "be another one than true: give words, or declare the classes as false and true."
        )
    if any(map(_is_number, declared)):
        return None
    if column.dtype.kind == "b":
        raise BadInput(
            f"{name} are true or false, which are not among the declared classes: give their "
            f"names, as in np.where({name}, {declared[-1]!r}, {declared[0]!r})."
        )
    outside = np.flatnonzero((column < 0) | (column >= len(declared)))
    if len(outside):
        raise BadRow(
            f"{name}: position {int(column[outside[0]])} in",
            int(outside[0]),
            f" is outside the {len(declared)} declared classes.",
        )
    return column


def _outside_top(
    predictions: Any, truth: np.ndarray, settings: Evaluation, classes: Coder
) -> np.ndarray:
    if hasattr(predictions, "dictionary_encode") or predictions.ndim != 2:
        raise BadInput(
            "metric 'top-k' needs the scores of all classes (one column each, in the order of "
            "classes) or the ranked answers of each row."
        )
    top = settings.top
    if predictions.dtype.kind in "iU":  # ranked answers
        _check_ranked(predictions, classes)
        ranked = [_classes(c, "predictions", settings, classes) for c in predictions[:, :top].T]
        return np.asarray(~np.any([answer == truth for answer in ranked], axis=0), dtype=np.float64)
    if settings.classes is None or predictions.shape[1] != len(settings.classes):
        raise BadInput(
            f"scores of {predictions.shape[1]} classes need their names in that order: declare "
            f"classes with {predictions.shape[1]} entries."
        )
    # An answer that ties with another one counts as behind it.
    own = np.take_along_axis(predictions, truth[:, None], axis=1)
    return np.asarray((predictions >= own).sum(axis=1) > top, dtype=np.float64)


def _check_ranked(answers: np.ndarray, classes: Coder) -> None:
    """Refuse votes and yes-or-no scores, which would be read as the answers that they name."""
    ordered = np.sort(answers, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    # Of more classes than two, the last rows of a file may well name the first two alone.
    two = answers.shape[1] == 2 and len(classes.values) <= 2
    votes = two and set(ordered.ravel().tolist()) <= {0, 1}
    if answers.dtype.kind == "i" and (votes or twice.any()):
        raise BadRow(
            "whole numbers are read as ranked answers, and these may be votes or scores, as in",
            int(twice.argmax()),
            ": give scores as floats (.astype(float)), or each answer once.",
        )


def _brier(probabilities: np.ndarray, labels: Any, settings: Evaluation) -> np.ndarray:
    """Half the squared distance to the true class, which lies in [0, 1]."""
    if probabilities.ndim == 1:
        if ((probabilities < 0) | (probabilities > 1)).any():
            raise BadInput(
                "predictions hold numbers outside [0, 1]: these are classes or scores, not "
                "probabilities, of which metric 'brier' needs one for each class."
            )
        probabilities = np.stack([1.0 - probabilities, probabilities], axis=1)
    if settings.classes is None and (is_text(labels) or labels.dtype.kind == "f"):
        raise BadInput(
            "metric 'brier' needs classes in the order of the probabilities; where each row has a "
            "single one, it is that of the second.",
            instead={"--classes": ("A", "--classes", "B")},
        )
    names = settings.classes or tuple(range(probabilities.shape[1]))
    if len(names) != probabilities.shape[1]:
        raise BadInput(
            f"there are {probabilities.shape[1]} probabilities per row and {len(names)} classes."
        )
    truth = _classes(labels, "labels", settings.model_copy(update={"classes": names}), Coder(names))
    sums = probabilities.sum(axis=1)
    if (probabilities < 0).any() or np.abs(sums - 1.0).max(initial=0.0) > 1e-4:
        raise BadInput("the probabilities of a row must not be negative and must sum to 1.")
    one_hot = np.eye(len(names))[truth]
    return np.asarray(np.minimum(1.0, 0.5 * ((probabilities - one_hot) ** 2).sum(axis=1)))


def prepared(batch: dict[str, Any]) -> dict[str, Any]:
    """Every column plain; of one length; one group, cluster and id for each row."""
    columns = {}
    for role, values in batch.items():
        read = plain if role in ("predictions", "labels", "losses") else one_each
        columns[role] = read(values, role.removeprefix("group:"))
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise BadInput(f"the columns of a batch have different lengths: {sorted(lengths)}.")
    return columns
