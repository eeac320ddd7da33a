"""Counting: all that a test needs to know of its rows, batch by batch, in memory that stays small.

Events need counts alone. Losses and clusters keep a few bytes for each row: bets are made in an
order drawn from the seed, and a cluster is one draw however far apart its rows lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from nonvacuous.bounds import betting, holdout, holdout_lower
from nonvacuous.bounds.betting import betting_lower
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import Coder, ColumnDigest
from nonvacuous.evaluation.outcomes import outcomes, prepared, roles_of
from nonvacuous.evaluation_records import OF_CLASSES, Evaluation
from nonvacuous.seeds import derived_seed

#: With more classes than this the table of confusions is not kept, only its margins.
MOST_CONFUSED = 256


class Sample(NamedTuple):
    """Independent draws: errors among examples, or (``values``) losses in the order of betting."""

    errors: float
    examples: int
    values: np.ndarray | None = None

    def upper(self, failure: float) -> float:
        if self.values is not None:
            return betting(self.values, failure=failure)
        return holdout(errors=int(self.errors), examples=self.examples, failure=failure)

    def lower(self, failure: float) -> float:
        if self.values is not None:
            return betting_lower(self.values, failure=failure)
        return holdout_lower(errors=int(self.errors), examples=self.examples, failure=failure)


class Tally:
    """Counts of everything, filled by :meth:`add`."""

    def __init__(self, settings: Evaluation, *, clusters: bool = False) -> None:
        if clusters and settings.metric in OF_CLASSES:
            raise BadInput(
                f"no exact bound is known for metric {settings.metric!r} on clusters; use 'error' "
                "or a loss, or take one example from each cluster."
            )
        self.settings = settings
        self.clustered = clusters
        self.rows = self.counted = 0
        self.errors = 0.0
        self.classes = Coder(settings.classes or ())
        self.truths = self.answers = self.hits = np.zeros(0, dtype=np.int64)
        self.confusion: np.ndarray | None = np.zeros((0, 0), dtype=np.int64)
        self.groups: dict[str, tuple[Coder, np.ndarray, np.ndarray]] = {}
        self.digests: dict[str, ColumnDigest] = {}
        self._clusters = Coder()
        self._kept: dict[str, list[np.ndarray]] = {}
        self._ids: list[np.ndarray] = []
        self._id_coder = Coder()

    @property
    def keeps_rows(self) -> bool:
        return self.clustered or not (
            self.settings.counts_events or self.settings.metric in OF_CLASSES
        )

    def add(self, batch: dict[str, Any]) -> None:
        columns = prepared(batch)
        for role, column in columns.items():
            self.digests.setdefault(role, ColumnDigest()).update(column)
        found = outcomes(columns, self.settings, self.classes)
        self.rows += len(found.losses)
        keep = slice(None) if found.counted is None else found.counted
        losses = found.losses[keep]
        self.counted += len(losses)
        self.errors += float(losses.sum())
        if found.labels is not None:
            self._add_classes(found.labels[keep], found.predictions, keep, losses)
        for role in (role for role in columns if role.startswith("group:")):
            self._add_group(role.removeprefix("group:"), columns[role], keep, losses)
        if "ids" in columns:
            self._ids.append(self._id_coder(columns["ids"]))
        if self.keeps_rows:
            self._kept.setdefault("losses", []).append(losses)
            if self.clustered:
                codes = self._clusters(columns["clusters"])[keep]
                self._kept.setdefault("clusters", []).append(codes.astype(np.int32))

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

    def _add_group(self, name: str, column: Any, keep: Any, losses: np.ndarray) -> None:
        empty = np.zeros(0)
        coder, examples, errors = self.groups.get(name, (Coder(), empty, empty))
        codes = coder(column)[keep]
        size = len(coder.values)
        examples = _grown(examples, size) + np.bincount(codes, minlength=size)
        errors = _grown(errors, size) + np.bincount(codes, weights=losses, minlength=size)
        self.groups[name] = (coder, examples, errors)
        if self.keeps_rows:
            self._kept.setdefault(f"group:{name}", []).append(codes.astype(np.int32))

    def settle(self) -> None:
        """Classes in the order of their names, whatever the order in which they came."""
        if self.settings.classes is not None or not len(self.truths):
            return
        order = self.classes.sorted_codes()
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
        if not self.keeps_rows:
            return Sample(self.errors, self.counted)
        return self._units(None)

    def slices(self, name: str) -> dict[str, Sample]:
        """The groups of one column; those without an example that counts are left out."""
        coder, examples, errors = self.groups[name]
        present = [code for code in coder.sorted_codes() if examples[code]]
        if not self.keeps_rows:
            pairs = {code: Sample(float(errors[code]), int(examples[code])) for code in present}
        else:
            codes = self.kept(f"group:{name}")
            pairs = {code: self._units(codes == code) for code in present}
        return {str(coder.values[code]): pairs[code] for code in present}

    def _units(self, mask: np.ndarray | None) -> Sample:
        losses = self.kept("losses")
        clusters = self.kept("clusters") if self.clustered else None
        if mask is not None:
            losses = losses[mask]
            clusters = clusters[mask] if clusters is not None else None
        if clusters is not None:
            _, where, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
            losses = np.bincount(where, weights=losses) / sizes
            # Clusters of one example each are examples; this looks at the sizes alone.
            if self.settings.counts_events and (sizes == 1).all():
                return Sample(float(losses.sum()), len(losses))
        return Sample(float(losses.sum()), len(losses), losses[self._order(len(losses))])

    def _order(self, size: int) -> np.ndarray:
        """An order that depends on the seed and the number alone, on every version of numpy."""
        stream = np.random.PCG64(derived_seed(self.settings.seed, "order of betting"))
        return np.argsort(stream.random_raw(size), kind="stable")

    def kept(self, name: str) -> np.ndarray:
        codes = np.concatenate(self._kept[name])
        if name != "clusters":
            return codes
        ranks = np.empty(len(self._clusters.values), dtype=np.int64)
        ranks[self._clusters.sorted_codes()] = np.arange(len(ranks))
        return ranks[codes]

    def repeated(self) -> int | None:
        """How many rows have the id of an earlier one; None without ids."""
        if not self._ids:
            return None
        return self.rows - len(self._id_coder.values)


def counted(settings: Evaluation, batches: Iterable[dict[str, Any]], *, clusters: bool) -> Tally:
    """The tally of all batches; an empty or incomplete stream is refused."""
    tally = Tally(settings, clusters=clusters)
    needed = roles_of(settings.metric)
    for batch in batches:
        missing = [role for role in needed if role not in batch]
        if missing:
            raise BadInput(f"metric {settings.metric!r} needs {' and '.join(missing)}.")
        tally.add(batch)
    if tally.rows == 0:
        raise BadInput("there are no examples: the file or the stream is empty.")
    tally.settle()
    if tally.counted == 0:
        raise BadInput(f"none of the {tally.rows} examples was answered.")
    return tally


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros(size - len(array), dtype=array.dtype)])
