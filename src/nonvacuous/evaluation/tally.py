"""Counting: all that a test needs to know of its rows, batch by batch, in memory that stays small.

Events need counts alone. Losses are kept up to ``MOST_BETS``, for bets are made on one after the
other; of more of them only sums are kept, and their variance decides (a rule that looks at the
number alone). Clusters have one line each: one is one draw, however far apart its rows lie.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.evaluation import coding, likeness, tables
from nonvacuous.evaluation.outcomes import Outcomes, outcomes, prepared
from nonvacuous.evaluation.sample import GRID, Sample, in_order_of_betting
from nonvacuous.evaluation_records import Evaluation

#: Groups that come with the classes: errors among them are 1 - recall and 1 - precision.
TRUE_CLASS, PREDICTED_CLASS = "true class", "predicted class"
#: Before a column's name: of its groups, the rows that show something of the metric's one class.
_SHOWING = "showing "
#: With more classes than this the table of confusions is not kept, only its margins.
MOST_CONFUSED = 256
#: Up to so many losses, or clusters of them, are bet on.
MOST_BETS = 1 << 20


class Tally:
    """Counts of everything, filled by :meth:`add`."""

    def __init__(self, settings: Evaluation, *, clusters: bool = False) -> None:
        if clusters and (
            settings.entry.counts == "classes" or settings.metric == "selective error"
        ):
            raise BadInput(
                f"no exact bound is known for metric {settings.metric!r} on clusters; use 'error' "
                "or a loss, or take one example from each cluster."
            )
        if settings.range is not None:
            _check_range(settings.metric, settings.entry.counts, *settings.range)
        self.settings = settings
        self.clustered = clusters
        self.rows = 0
        self.classes = coding.Coder(settings.classes or ())
        #: How often each class is true, is the answer, and both: known once all is counted.
        self.truths = self.answers = self.hits = np.zeros(0, dtype=np.int64)
        self.confusion: np.ndarray | None = np.zeros((0, 0), dtype=np.int64)
        #: Codes of the classes while rows were counted, in their present order.
        self._counted_as: list[int] = []
        self.groups: dict[str, coding.Coder] = {}
        self.digests: dict[str, coding.ColumnDigest] = {}
        self._clusters = coding.Coder()
        #: By column, the empty name for everybody; the true and the predicted class are columns.
        self._sums: dict[str, _Sums] = defaultdict(_Sums)
        self._units: dict[str, _Clusters] = defaultdict(_Clusters)
        #: The losses and their groups, row by row, while they are few enough to be bet on.
        self._kept: list[dict[str, np.ndarray]] | None = [] if self.has_losses else None
        self.ids: likeness.Distinct | None = None
        #: The same ids, or else labels, in another order name the same examples.
        self.named = likeness.Unordered()
        #: Which inputs resemble others, where a predictor was given them.
        self.likeness: likeness.Likeness | None = None

    @property
    def has_losses(self) -> bool:
        """Whether values between 0 and 1 are bounded, and not events."""
        return self.clustered or self.settings.entry.counts == "losses"

    @property
    def _one_class(self) -> bool:
        return self.settings.entry.counts == "classes" and self.settings.positive is not None

    @property
    def counted(self) -> int:
        return self._sums[""].of(0)[0]

    @property
    def errors(self) -> float:
        return self._sums[""].of(0)[1]

    def add(self, batch: dict[str, Any]) -> None:
        columns = prepared(batch)
        for role, column in columns.items():
            (digest := self.digests.setdefault(role, coding.ColumnDigest())).update(column)
            if digest.mixed:
                name = role.removeprefix("group:")
                raise BadInput(f"{name} mixes numbers and words; use numbers or words alone.")
        seen = outcomes(columns, self.settings, self.classes)
        self.rows += len(seen.losses)
        keep = slice(None) if seen.counted is None else seen.counted
        losses = seen.losses[keep]
        codes = {"": np.zeros(len(losses), dtype=np.int64)}
        for role in (role for role in columns if role.startswith("group:")):
            if self.settings.over_all_classes:
                raise BadInput(
                    f"no bound for groups is known for {self.settings.words}: leave the groups "
                    "out, or use 'error', or recall, precision or F1 of one class (positive)."
                )
            coder = self.groups.setdefault(role.removeprefix("group:"), coding.Coder())
            codes[role] = coder(columns[role])[keep]
        for name, of in ((TRUE_CLASS, seen.labels), (PREDICTED_CLASS, seen.predictions)):
            codes |= {} if of is None else {name: of[keep]}
        powers = (losses, losses**2) if self.has_losses else (losses,)
        amounts = [np.round(power * GRID) for power in powers]
        for name, own in codes.items():
            self._sums[name].add(own, amounts)
            if self._one_class and name.startswith("group:"):
                shown = self._shows(seen)
                self._sums[_SHOWING + name].add(own[shown], [amount[shown] for amount in amounts])
        self._add_confusions(codes.get(TRUE_CLASS), codes.get(PREDICTED_CLASS))
        if "ids" in columns:
            self.ids = self.ids or likeness.Distinct()
            self.ids.add(likeness.hashes_of(columns["ids"]))
            self.named.add(columns["ids"])
        elif (names := columns.get("labels")) is not None:
            # A batch of whole numbers alone may be one of a column of fractions.
            self.named.add(names if coding.is_text(names) else names.astype(np.float64) + 0.0)
        if self.clustered:
            units = self._clusters(columns["clusters"])[keep]
            for name, own in codes.items():
                self._units[name].add(units, own, losses)
        elif self._kept is not None:
            few = {name: own.astype(np.int32) for name, own in codes.items()}
            self._kept.append(few | {"": losses})
            if self.counted > MOST_BETS:
                self._kept = None

    def _shows(self, seen: Outcomes) -> np.ndarray:
        """Rows that show something of the one class that the metric is about.

        On these its risk is an error rate: of 1 - recall, 1 - precision and 1 - Jaccard.
        """
        assert seen.labels is not None and seen.predictions is not None
        code, metric = self.classes.code(self.settings.positive), self.settings.metric
        true, answered = seen.labels == code, seen.predictions == code
        rows = {"recall": true, "precision": answered}
        return np.asarray(rows.get(metric, true | answered))

    def _add_confusions(self, truth: np.ndarray | None, answers: np.ndarray | None) -> None:
        size = len(self.classes.values)
        if self.confusion is None or truth is None or answers is None or size > MOST_CONFUSED:
            self.confusion = None
            return
        table = np.bincount(truth * size + answers, minlength=size * size).reshape(size, size)
        old = self.confusion
        table[: len(old), : len(old)] += old
        self.confusion = table

    def settle(self) -> None:
        """Classes in the order of their names, whatever the order in which they came."""
        if TRUE_CLASS not in self._sums:
            return
        order = list(range(len(self.classes.values)))
        if self.settings.classes is None:
            order = self.classes.sorted_codes()
        self.classes = coding.Coder([self.classes.values[code] for code in order])
        self._counted_as = order
        self.truths, wrong = (part[order] for part in self._sums[TRUE_CLASS].parts(len(order)))
        self.hits = self.truths - wrong.astype(np.int64)
        if PREDICTED_CLASS in self._sums:
            self.answers = self._sums[PREDICTED_CLASS].parts(len(order))[0][order]
        if self.confusion is not None:
            self.confusion = self.confusion[np.ix_(order, order)]

    # ------------------------------------------------------------------ what was counted

    def sample(self, column: str = "", code: int = 0) -> Sample:
        """All that counts, or one group of a column, as independent draws."""
        if self.clustered:
            return self._cluster_means(column, code)
        examples, errors, squares = self._sums[column].of(code)
        if self._kept is None:
            return Sample(errors, examples, squares=squares if self.has_losses else None)
        losses = np.concatenate([batch[""] for batch in self._kept])
        if column:
            losses = losses[np.concatenate([batch[column] for batch in self._kept]) == code]
        return self._bet_on(losses)

    def slices(self, column: str) -> dict[str, Sample]:
        """The classes that have examples which count; all groups of a column, by the metric.

        A group of which nothing counts, as one that got no answer, may be anything.
        """
        declared, name, f1 = column not in (TRUE_CLASS, PREDICTED_CLASS), column, False
        values, codes = self.classes.values, self._counted_as
        if declared:
            coder = self.groups[column.removeprefix("group:")]
            codes = coder.sorted_codes()
            values = [coder.values[code] for code in codes]
            if self._one_class:
                name, f1 = _SHOWING + column, self.settings.metric == "f1"
        return {
            str(value): self.sample(name, code)._replace(f1=f1)
            for value, code in zip(values, codes, strict=True)
            if declared or self._sums[column].of(code)[0]
        }

    def group_counts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Examples and errors of each group of a column, row by row."""
        return self._sums[f"group:{name}"].parts(len(self.groups[name].values))

    def constants(self) -> Iterator[tuple[Sample, Sample]]:
        """For each class, over clusters: the error of always answering it, and (1 + gain) / 2.

        The gain is that error less the predictor's, between -1 and 1.
        """
        clusters, wrong, sizes = self._units[""].of_group(0)
        position = np.empty(len(self._clusters.values), dtype=np.int64)
        position[clusters] = np.arange(len(clusters))
        for code in self._counted_as:
            where, _, own = self._units[TRUE_CLASS].of_group(code)
            missed = np.ones(len(clusters))
            missed[position[where]] -= own / sizes[position[where]]
            gain = np.clip(0.5 * (1.0 + missed - wrong), 0.0, 1.0)
            yield self._bet_on(missed), self._bet_on(gain)

    def _cluster_means(self, name: str, code: int) -> Sample:
        _, means, sizes = self._units[name].of_group(code)
        # Clusters of one example each are examples; this looks at the sizes alone.
        if self.settings.counts_events and (sizes == 1).all():
            return Sample(float(means.sum()), len(means))
        return self._bet_on(means)

    @cached_property
    def _rows(self) -> str:
        """Of all columns, as their rows stand: known once all is counted."""
        parts = sorted((role, column.hexdigest()) for role, column in self.digests.items())
        return "|".join(f"{role} {digest}" for role, digest in parts)

    def _bet_on(self, losses: np.ndarray) -> Sample:
        """Losses of examples, or means of clusters, to be bet on while they are few."""
        few = len(self._clusters.values) <= MOST_BETS
        ordered = in_order_of_betting(losses, self.settings.seed, self._rows)
        total, squares = float(ordered.sum()), float((ordered**2).sum())
        return Sample(total, len(ordered), ordered if few else None, squares)


def _check_range(metric: str, counts: str, low: float, high: float) -> None:
    """Refuse a range that would not be read, and one that no double can scale."""
    if counts != "losses" or metric == "brier":
        raise BadInput(
            f"metric {metric!r} has no range: it is right or wrong, or lies in [0, 1] by itself. "
            "Leave range out, or use metric 'loss' or 'score' for numbers in a range."
        )
    if not math.isfinite(high - low):
        raise BadInput(
            f"the range from {low:g} to {high:g} is wider than the largest number of a computer: "
            "nothing can be scaled by it. Declare the least and the largest loss that can occur."
        )


#: Groups of one column are fewer than this.
_GROUPS = 1 << 31


class _Sums:
    """Rows, losses and their squares by group, exact: the same however the rows are cut."""

    def __init__(self) -> None:
        self._steps = np.zeros((3, 0), dtype=np.int64)

    def add(self, codes: np.ndarray, amounts: list[np.ndarray]) -> None:
        size = max(self._steps.shape[1], int(codes.max(initial=-1)) + 1)
        self._steps = np.pad(self._steps, ((0, 0), (0, size - self._steps.shape[1])))
        self._steps[0] += np.bincount(codes, minlength=size)
        for row, weights in enumerate(amounts, start=1):
            self._steps[row] += np.bincount(codes, weights=weights, minlength=size).astype(int)

    def parts(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and losses of the first groups, so many of them."""
        steps = np.pad(self._steps, ((0, 0), (0, size - self._steps.shape[1])))
        return steps[0], steps[1] / GRID

    def of(self, code: int) -> tuple[int, float, float]:
        """Rows, losses and squares of one group."""
        count, total, squares = self._steps[:, code : code + 1].sum(axis=1).tolist()
        return count, total / GRID, squares / GRID


class _Clusters:
    """Sums of losses and numbers of rows by cluster and group: one line for each pair."""

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._totals = np.zeros(0)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, clusters: np.ndarray, codes: np.ndarray, losses: np.ndarray) -> None:
        self._waiting.append((clusters * _GROUPS + codes, losses))
        if sum(len(keys) for keys, _ in self._waiting) > max(1 << 20, len(self._keys) // 2):
            self._merge()

    def _merge(self) -> None:
        keys, losses = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        old, (totals, counts) = len(self._keys), (self._totals, self._counts)
        self._keys, where = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        self._totals = np.zeros(len(self._keys))
        self._totals[where[:old]] = totals
        np.add.at(self._totals, where[old:], losses)  # row by row, wherever the batches end
        self._counts = np.bincount(where[old:], minlength=len(self._keys))
        self._counts[where[:old]] += counts

    def of_group(self, code: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The clusters of a group, their means and their sizes."""
        if self._waiting:
            self._merge()
        own = self._keys % _GROUPS == code
        sizes = self._counts[own]
        return self._keys[own] // _GROUPS, self._totals[own] / sizes, sizes


def counted(settings: Evaluation, batches: Iterable[tables.Batch], *, clusters: bool) -> Tally:
    """The tally of all batches; an empty or incomplete stream is refused."""
    tally = Tally(settings, clusters=clusters)
    for batch in batches:
        batch.naming(tally.add)
    if tally.rows == 0:
        raise BadInput("there are no examples: the file or the stream is empty.")
    tally.settle()
    if tally.counted == 0:
        raise BadInput(f"none of the {tally.rows} examples was answered.")
    return tally
