"""Counting: all that a test needs to know of its rows, batch by batch, in memory that stays small.

Events need counts alone. Losses are kept up to ``MOST_BETS``, for bets are made in an order drawn
from the seed; of more of them only sums are kept, and their variance decides (a rule that looks at
the number alone). Clusters have one line each: one is one draw, however far apart its rows lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nonvacuous.bounds import (
    bernstein,
    betting,
    betting_lower,
    holdout,
    holdout_lower,
    sampling_bounded,
)
from nonvacuous.bounds.rounding import as_risk, down
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import Coder, ColumnDigest
from nonvacuous.evaluation.likeness import Distinct, Likeness, hashes_of
from nonvacuous.evaluation.outcomes import outcomes, prepared, roles_of
from nonvacuous.evaluation.tables import Batch
from nonvacuous.evaluation_records import Evaluation
from nonvacuous.seeds import derived_seed

#: Groups that come with the classes: errors among them are 1 - recall and 1 - precision.
TRUE_CLASS, PREDICTED_CLASS = "true class", "predicted class"
#: With more classes than this the table of confusions is not kept, only its margins.
MOST_CONFUSED = 256
#: Up to so many losses, or clusters of them, are bet on.
MOST_BETS = 1 << 20
#: Losses and their squares are summed as whole multiples of 1 / _GRID: exactly, in any batches.
_GRID = float(1 << 30)


class Sample(NamedTuple):
    """Independent draws: errors among examples, or losses: in the order of betting, or their sums.

    ``squares`` is the sum of the squared losses; None for events.
    """

    errors: float
    examples: int
    values: np.ndarray | None = None
    squares: float | None = None

    def upper(self, failure: float) -> float:
        if self.values is not None:
            return betting(self.values, failure=failure)
        if self.squares is not None:
            return self._bernstein(self.errors, self.squares, failure)
        return holdout(errors=int(self.errors), examples=self.examples, failure=failure)

    def lower(self, failure: float) -> float:
        if self.values is not None:
            return betting_lower(self.values, failure=failure)
        if self.squares is not None:
            right = self.examples - self.errors
            squares = self.examples - 2.0 * self.errors + self.squares
            return as_risk(down(1.0 - self._bernstein(right, squares, failure)))
        return holdout_lower(errors=int(self.errors), examples=self.examples, failure=failure)

    def _bernstein(self, total: float, squares: float, failure: float) -> float:
        n = self.examples
        if n < 2:
            return 1.0
        # What the grid of the sums, and rounding, can have taken off.
        slack = 4.0 / _GRID
        mean = min(1.0, max(0.0, total / n + slack))
        variance = max(0.0, (squares - total**2 / n) / (n - 1)) + slack
        return bernstein(
            empirical_risk=mean, variance=min(0.5, variance), examples=n, failure=failure
        )

    @property
    def theorem(self) -> str:
        """Which bound decides."""
        if self.values is not None:
            return "betting"
        return "held-out tail" if self.squares is None else "empirical Bernstein"

    def beside(self, failure: float) -> dict[str, float]:
        """What other theorems say of the same losses, each alone; choosing one is not free."""
        if self.squares is None:
            return {}
        other = {"kl": sampling_bounded(total=self.errors, trials=self.examples, failure=failure)}
        if self.values is not None:
            other["empirical Bernstein"] = self._bernstein(self.errors, self.squares, failure)
        return other


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
        self.settings = settings
        self.clustered = clusters
        #: Codes of the classes while rows were counted, in their present order.
        self._counted_as: list[int] | None = None
        self.rows = self.counted = 0
        self.errors = 0.0
        self.classes = Coder(settings.classes or ())
        self.truths = self.answers = self.hits = np.zeros(0, dtype=np.int64)
        self.confusion: np.ndarray | None = np.zeros((0, 0), dtype=np.int64)
        self.groups: dict[str, tuple[Coder, np.ndarray, np.ndarray]] = {}
        self.digests: dict[str, ColumnDigest] = {}
        self._clusters = Coder()
        #: By column of groups, the empty name for everybody.
        self._sums: dict[str, _Sums] = {}
        self._units: dict[str, _Clusters] = {}
        #: The losses and their groups, row by row, while they are few enough to be bet on.
        self._kept: dict[str, list[np.ndarray]] | None = {}
        self._ids: Distinct | None = None
        #: Which inputs resemble others, where a predictor was given them.
        self.likeness: Likeness | None = None

    @property
    def has_losses(self) -> bool:
        """Whether values between 0 and 1 are bounded, and not events."""
        return self.clustered or self.settings.entry.counts not in ("events", "classes")

    def add(self, batch: dict[str, Any]) -> None:
        columns = prepared(batch)
        for role, column in columns.items():
            self.digests.setdefault(role, ColumnDigest()).update(column)
        seen = outcomes(columns, self.settings, self.classes)
        self.rows += len(seen.losses)
        keep = slice(None) if seen.counted is None else seen.counted
        losses = seen.losses[keep]
        self.counted += len(losses)
        self.errors += float(losses.sum())
        if seen.labels is not None:
            self._add_classes(seen.labels[keep], seen.predictions, keep, losses)
        groups = {
            name: self._add_group(name, columns[f"group:{name}"], keep, losses)
            for name in (r.removeprefix("group:") for r in columns if r.startswith("group:"))
        }
        if "ids" in columns:
            self._ids = self._ids or Distinct()
            self._ids.add(hashes_of(columns["ids"]))
        if self.has_losses:
            units = self._clusters(columns["clusters"])[keep] if self.clustered else None
            if units is not None and seen.labels is not None:
                groups = {**groups, TRUE_CLASS: seen.labels[keep]}
                if seen.predictions is not None:
                    groups[PREDICTED_CLASS] = seen.predictions[keep]
            self._add_losses(losses, units, groups)

    def _add_losses(
        self, losses: np.ndarray, units: np.ndarray | None, groups: dict[str, np.ndarray]
    ) -> None:
        for name, codes in {"": np.zeros(len(losses), dtype=np.int64), **groups}.items():
            if units is None:
                self._sums.setdefault(name, _Sums()).add(codes, losses)
            else:
                self._units.setdefault(name, _Clusters()).add(units, codes, losses)
        if units is None and self._kept is not None:
            self._kept.setdefault("", []).append(losses)
            for name, codes in groups.items():
                self._kept.setdefault(name, []).append(codes.astype(np.int32))
            if self.counted > MOST_BETS:
                self._kept = None

    def _add_classes(
        self, truth: np.ndarray, answers: np.ndarray | None, keep: Any, losses: np.ndarray
    ) -> None:
        size = len(self.classes.values)
        self.truths = _grown(self.truths, size) + np.bincount(truth, minlength=size)
        wrong = np.bincount(truth, weights=losses, minlength=size).astype(np.int64)
        self.hits = _grown(self.hits, size) + np.bincount(truth, minlength=size) - wrong
        if answers is None:
            self.confusion = None
            return
        answers = answers[keep]
        self.answers = _grown(self.answers, size) + np.bincount(answers, minlength=size)
        if self.confusion is None or size > MOST_CONFUSED:
            self.confusion = None
            return
        table = np.bincount(truth * size + answers, minlength=size * size).reshape(size, size)
        old = self.confusion
        table[: len(old), : len(old)] += old
        self.confusion = table

    def _add_group(self, name: str, column: Any, keep: Any, losses: np.ndarray) -> np.ndarray:
        empty = np.zeros(0)
        coder, examples, errors = self.groups.get(name, (Coder(), empty, empty))
        codes: np.ndarray = coder(column)[keep]
        size = len(coder.values)
        examples = _grown(examples, size) + np.bincount(codes, minlength=size)
        errors = _grown(errors, size) + np.bincount(codes, weights=losses, minlength=size)
        self.groups[name] = (coder, examples, errors)
        return codes

    def settle(self) -> None:
        """Classes in the order of their names, whatever the order in which they came."""
        if self.settings.classes is not None or not len(self.truths):
            return
        order = self._counted_as = self.classes.sorted_codes()
        size = len(order)
        self.classes = Coder([self.classes.values[code] for code in order])
        self.truths, self.hits = _grown(self.truths, size)[order], _grown(self.hits, size)[order]
        if len(self.answers):
            self.answers = _grown(self.answers, size)[order]
        if self.confusion is not None:
            self.confusion = self.confusion[np.ix_(order, order)]

    # ------------------------------------------------------------------ what was counted

    def sample(self) -> Sample:
        """All that counts, as independent draws."""
        if not self.has_losses:
            return Sample(self.errors, self.counted)
        return self._losses("", 0)

    def slices(self, name: str) -> dict[str, Sample]:
        """The groups of one column; those without an example that counts are left out."""
        coder, examples, errors = self.groups[name]
        present = [code for code in coder.sorted_codes() if examples[code]]
        if self.has_losses:
            pairs = {code: self._losses(name, code) for code in present}
        else:
            pairs = {code: Sample(float(errors[code]), int(examples[code])) for code in present}
        return {str(coder.values[code]): pairs[code] for code in present}

    def class_sample(self, column: str, code: int) -> Sample:
        """The clusters of one class, true or predicted: each counts by its own mean."""
        return self._cluster_means(column, self._code(code))

    def _code(self, code: int) -> int:
        return code if self._counted_as is None else self._counted_as[code]

    def constants(self) -> Iterator[tuple[Sample, Sample]]:
        """For each class, over clusters: the error of always answering it, and (1 + gain) / 2.

        The gain is that error less the predictor's, between -1 and 1.
        """
        clusters, wrong, sizes = self._units[""].of_group(0)
        position = np.empty(len(self._clusters.values), dtype=np.int64)
        position[clusters] = np.arange(len(clusters))
        for code in range(len(self.classes.values)):
            where, _, own = self._units[TRUE_CLASS].of_group(self._code(code))
            missed = np.ones(len(clusters))
            missed[position[where]] -= own / sizes[position[where]]
            ranked = np.argsort(self._ranks[clusters])
            yield (
                self._means(missed[ranked]),
                self._means(np.clip(0.5 * (1.0 + missed - wrong), 0.0, 1.0)[ranked]),
            )

    def _losses(self, name: str, code: int) -> Sample:
        """The losses of one group, or the means of its clusters."""
        if self.clustered:
            return self._cluster_means(name, code)
        if self._kept is None:
            return self._sums[name].sample(code)
        losses = np.concatenate(self._kept[""])
        if name:
            losses = losses[np.concatenate(self._kept[name]) == code]
        ordered = losses[self._order(len(losses))]
        return Sample(float(losses.sum()), len(losses), ordered, float((losses**2).sum()))

    def _cluster_means(self, name: str, code: int) -> Sample:
        clusters, means, sizes = self._units[name].of_group(code)
        rank = np.argsort(self._ranks[clusters])
        means, sizes = means[rank], sizes[rank]
        # Clusters of one example each are examples; this looks at the sizes alone.
        if self.settings.counts_events and (sizes == 1).all():
            return Sample(float(means.sum()), len(means))
        return self._means(means)

    def _means(self, means: np.ndarray) -> Sample:
        """Means of clusters in the order of their names, to be bet on while they are few."""
        few = len(self._clusters.values) <= MOST_BETS
        ordered = means[self._order(len(means))] if few else None
        return Sample(float(means.sum()), len(means), ordered, float((means**2).sum()))

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Positions of the clusters in the order of their names, which no format changes."""
        ranks = np.empty(len(self._clusters.values), dtype=np.int64)
        ranks[self._clusters.sorted_codes()] = np.arange(len(ranks))
        return ranks

    def _order(self, size: int) -> np.ndarray:
        """An order that depends on the seed and the number alone, on every version of numpy."""
        stream = np.random.PCG64(derived_seed(self.settings.seed, "order of betting"))
        return np.argsort(stream.random_raw(size), kind="stable")

    def repeated(self) -> int | None:
        """How many rows have the id of another one, at least; None without ids."""
        return None if self._ids is None else self._ids.repeated()


#: Groups of one column are fewer than this.
_GROUPS = 1 << 31


class _Sums:
    """Sums of losses and of their squares by group, exact: the same however the rows are cut."""

    def __init__(self) -> None:
        self.steps = np.zeros((3, 0), dtype=np.int64)

    def add(self, codes: np.ndarray, losses: np.ndarray) -> None:
        size = max(self.steps.shape[1], int(codes.max(initial=-1)) + 1)
        steps = np.zeros((3, size), dtype=np.int64)
        steps[:, : self.steps.shape[1]] = self.steps
        for i, values in enumerate((losses * _GRID, losses**2 * _GRID, np.ones(len(losses)))):
            steps[i] += np.bincount(codes, weights=np.round(values), minlength=size).astype(int)
        self.steps = steps

    def sample(self, code: int) -> Sample:
        total, squares, count = self.steps[:, code].tolist()
        return Sample(total / _GRID, count, squares=squares / _GRID)


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


def counted(settings: Evaluation, batches: Iterable[Batch], *, clusters: bool) -> Tally:
    """The tally of all batches; an empty or incomplete stream is refused."""
    tally = Tally(settings, clusters=clusters)
    needed = roles_of(settings.metric)
    for batch in batches:
        missing = [role for role in needed if role not in batch]
        if missing:
            raise BadInput(f"metric {settings.metric!r} needs {' and '.join(missing)}.")
        batch.naming(tally.add)
    if tally.rows == 0:
        raise BadInput("there are no examples: the file or the stream is empty.")
    tally.settle()
    if tally.counted == 0:
        raise BadInput(f"none of the {tally.rows} examples was answered.")
    return tally


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros(size - len(array), dtype=array.dtype)])
