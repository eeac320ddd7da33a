"""Regularizers switched on and off, on true and on random labels.

The paper's claim has two halves. Not necessary: without any regularizer the network still does
well on test data. Not sufficient: with all of them it still fits random labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming, network_title
from nonvacuous.papers.zhang.pages import (
    MISSING,
    footer,
    percent,
    points,
    time_table,
    training_section,
)
from nonvacuous.papers.zhang.published import (
    IMAGENET,
    PAPER,
    RANDOM_WITH_REGULARIZERS,
    TABLE_1,
    random_fit,
)
from nonvacuous.papers.zhang.settings import ReusingSettings, ZhangSettings
from nonvacuous.papers.zhang.table import chosen_rows
from nonvacuous.papers.zhang.training import NetworksStudy
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.study.study import Context, Finished
from nonvacuous.training.many_jobs import AUGMENTATIONS

_RANDOM = "random-labels"


@dataclass(frozen=True)
class Switch:
    """One combination of regularizers on one kind of network, on true and on random labels.

    true, random                           None where it was not trained
    published_test, published_train        the paper's test accuracy on true labels and training
                                           accuracy on random ones, where it gives them
    fails                                  the paper says that random labels were not fitted
    """

    network: str
    augmentation: str
    decay: bool
    true: CellResult | None
    random: CellResult | None
    published_test: float | None = None
    published_train: float | None = None
    fails: bool = False

    @property
    def early_stopping(self) -> float | None:
        """Points of test accuracy that the best epoch has over the last, on true labels."""
        if self.true is None:
            return None
        last, best = self.true.history[-1], self.true.best
        return 100.0 * (last.test_errors - best.test_errors) / self.true.test_examples

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return {
            "network": self.network,
            "augmentation": self.augmentation,
            "weight_decay": self.decay,
            "true_test": None if self.true is None else self.true.test_accuracy,
            "true_train": None if self.true is None else self.true.train_accuracy,
            "published_true_test": self.published_test,
            "random_train": None if self.random is None else self.random.train_accuracy,
            "random_test": None if self.random is None else self.random.test_accuracy,
            "published_random_train": self.published_train,
            "published_random_fails": self.fails,
            "early_stopping_points": self.early_stopping,
            "best_epoch": None if self.true is None else self.true.best.epoch,
        }


@dataclass(frozen=True)
class RegularizationResult:
    """The matrix of switches."""

    settings: ZhangSettings
    switches: tuple[Switch, ...]
    timings: tuple[GroupTiming, ...]

    def of(self, network: str) -> tuple[Switch, ...]:
        """The switches of one kind of network."""
        return tuple(switch for switch in self.switches if switch.network == network)

    def gain(self, network: str) -> float | None:
        """Points of test accuracy that the best regularizers add to none of them."""
        found = {
            (switch.augmentation, switch.decay): switch.true.test_accuracy
            for switch in self.of(network)
            if switch.true is not None
        }
        plain = found.pop(("none", False), None)
        return None if plain is None or not found else max(found.values()) - plain

    @property
    def batch_norm_gain(self) -> float | None:
        """Points of test accuracy that batch normalization adds, without other regularizers."""
        found = {
            switch.network: switch.true.test_accuracy
            for switch in self.switches
            if switch.true is not None and (switch.augmentation, switch.decay) == ("none", False)
        }
        if not {"inception", "inception-no-bn"} <= found.keys():
            return None
        return found["inception"] - found["inception-no-bn"]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return {
            "settings": self.settings.record(),
            "switches": [switch.to_dict() for switch in self.switches],
            "gains": {network: self.gain(network) for network in self.settings.networks},
            "batch_norm_gain": self.batch_norm_gain,
            "networks": [
                result.to_dict()
                for switch in self.switches
                for result in (switch.true, switch.random)
                if result is not None
            ],
            "timings": [timing.to_dict() for timing in self.timings],
        }


def matrix_cells(settings: ZhangSettings) -> tuple[Cell, ...]:
    """True labels with the regularizers of Table 1, random ones with those of the appendix.

    Networks that are not the paper's: each regularizer alone, on both kinds of labels.
    """
    cells = []
    for network in settings.networks:
        shown = [
            Cell(row.network, row.labels, "crop" if row.crop else "none", row.decay)
            for row in TABLE_1
            if row.network == network
        ]
        shown += [
            Cell(
                network,
                _RANDOM,
                "none" if entry.regularizer == "decay" else entry.regularizer,
                entry.regularizer == "decay",
            )
            for entry in RANDOM_WITH_REGULARIZERS
            if entry.network == network
        ]
        if not shown:
            shown = [
                Cell(network, labels, augmentation, decay)
                for labels in ("true", _RANDOM)
                for augmentation, decay in (("none", False), ("none", True), ("crop", False))
            ]
        cells += shown
    return tuple(cells)


def _switches(settings: ZhangSettings, found: Mapping[Cell, CellResult]) -> tuple[Switch, ...]:
    comparable = settings.data == "cifar10" and settings.examples is None
    switches = []
    for network in settings.networks:
        kinds = dict.fromkeys(
            (cell.augmentation, cell.decay)
            for cell in matrix_cells(settings)
            if cell.network == network
        )
        for augmentation, decay in sorted(kinds, key=_from_none_to_all):
            true = found.get(Cell(network, "true", augmentation, decay))
            random = found.get(Cell(network, _RANDOM, augmentation, decay))
            if true is None and random is None:
                continue
            published = _published(network, augmentation, decay) if comparable else {}
            switches.append(Switch(network, augmentation, decay, true, random, **published))
    return tuple(switches)


def _from_none_to_all(kind: tuple[str, bool]) -> tuple[int, bool]:
    return AUGMENTATIONS.index(kind[0]), kind[1]


def _published(network: str, augmentation: str, decay: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in TABLE_1:
        used = "crop" if row.crop else "none"
        if (row.network, used, row.decay) == (network, augmentation, decay):
            if row.labels == "true":
                found["published_test"] = row.test
            else:
                found["published_train"] = row.train
    if decay and augmentation != "none":
        return found
    entry = random_fit(network, "decay" if decay else augmentation)
    if entry is not None:
        found |= {"published_train": entry.train, "fails": entry.train is None}
    return found


def table(result: RegularizationResult) -> Table:
    """The matrix: test accuracy on true labels, training accuracy on random ones."""
    headings = (
        "network", "regularizers", "true: test", "paper", "random: train", "paper",
        "random: test",
    )  # fmt: skip
    return Table(
        headings,
        tuple(_row(switch) for switch in result.switches),
        caption="Accuracies in percent, of networks trained on true and on random labels; fails: "
        "the paper says that training did not converge.",
        numeric=(False, False, True, True, True, True, True),
    )


def _row(switch: Switch) -> tuple[str, ...]:
    return (
        network_title(switch.network),
        _regularizers(switch),
        MISSING if switch.true is None else percent(switch.true.test_accuracy),
        percent(switch.published_test),
        MISSING if switch.random is None else percent(switch.random.train_accuracy),
        "fails" if switch.fails else percent(switch.published_train),
        MISSING if switch.random is None else percent(switch.random.test_accuracy),
    )


def _regularizers(switch: Switch) -> str:
    cell = Cell(switch.network, augmentation=switch.augmentation, decay=switch.decay)
    return cell.regularizers


def early_stopping_table(result: RegularizationResult) -> Table:
    """True labels: the test accuracy at the end, and at the best epoch."""
    rows = tuple(
        (
            network_title(switch.network),
            _regularizers(switch),
            percent(switch.true.test_accuracy),
            percent(100 * (1 - switch.true.best.test_errors / switch.true.test_examples)),
            str(switch.true.best.epoch),
            points(switch.early_stopping),
        )
        for switch in result.switches
        if switch.true is not None
    )
    headings = (
        "network", "regularizers", "test at the end", "test at the best epoch", "best epoch",
        "gain",
    )  # fmt: skip
    return Table(
        headings,
        rows,
        caption="The best epoch is chosen by the test set itself: no early stopping gains more.",
    )


def page(result: RegularizationResult) -> StudyPage:
    """The page of the matrix."""
    return StudyPage(
        title="Regularizers on and off",
        question="Is it regularization that makes networks generalize?",
        lead=_lead(result),
        badges=(
            f"{sum((s.true is not None) + (s.random is not None) for s in result.switches)} "
            "networks",
            PAPER,
        ),
        sections=(
            Section(
                "The matrix",
                (
                    "If regularizers were necessary, networks without them would do badly on test "
                    "data. If they were sufficient, networks with them could not fit random "
                    "labels. The paper found neither.",
                ),
                figures=_figures(result),
                tables=(table(result),),
            ),
            Section("Would stopping early have helped?", tables=(early_stopping_table(result),)),
            *_batch_norm(result),
            Section(
                "And on ImageNet?",
                ("The paper's numbers for Inception v3, top-1 accuracy; not computed here.",),
                tables=(_imagenet(),),
            ),
            Section("How long did it take?", tables=(time_table(result.timings),)),
            training_section(result.settings),
        ),
        footer=footer(result.settings, "zhang-regularization"),
    )


def _figures(result: RegularizationResult) -> tuple[Figure, ...]:
    from nonvacuous.report.plots import bars

    shown = [s for s in result.switches if s.true is not None]
    if not shown:
        return ()
    labels = [f"{network_title(s.network)}: {_regularizers(s)}" for s in shown]
    groups = {"ours": [s.true.test_accuracy for s in shown if s.true is not None]}
    if all(s.published_test is not None for s in shown):
        groups["published"] = [s.published_test or 0.0 for s in shown]
    title = "Test accuracy on true labels"
    return (Figure(bars(labels, groups, title=title, x_label="test accuracy, %")),)


def _batch_norm(result: RegularizationResult) -> tuple[Section, ...]:
    gain = result.batch_norm_gain
    if gain is None:
        return ()
    said = (
        f"Without other regularizers batch normalization adds {gain:+.2f} points of test accuracy "
        "to Inception (published: +3.75)."
    )
    return (Section("And batch normalization?", (said,)),)


def _imagenet() -> Table:
    rows = tuple(
        (
            "random" if entry.labels == "random-labels" else entry.labels,
            entry.regularizers,
            percent(entry.train),
            percent(entry.test),
        )
        for entry in IMAGENET
    )
    return Table(("labels", "regularizers", "train", "test"), rows)


def _lead(result: RegularizationResult) -> str:
    gains = {network: result.gain(network) for network in result.settings.networks}
    known = {network: gain for network, gain in gains.items() if gain is not None}
    fits = [
        switch.random.train_accuracy
        for switch in result.switches
        if switch.random is not None and (switch.augmentation, switch.decay) != ("none", False)
    ]
    parts = []
    if known:
        most = max(known, key=lambda network: known[network])
        parts.append(
            f"Regularizers add at most {known[most]:.1f} points of test accuracy "
            f"({network_title(most)})"
        )
    if fits:
        held = sum(value >= 99.0 for value in fits)
        parts.append(
            f"with them, {held} of {len(fits)} networks still fit 99 % or more of random labels"
        )
    text = "; ".join(parts) or "Nothing was trained"
    return f"{text[:1].upper()}{text[1:]}."


class Regularization(NetworksStudy[ReusingSettings, RegularizationResult]):
    """Switch weight decay, augmentation and batch normalization on and off, on both labelings.

    Needs CIFAR-10 and a GPU; the perceptrons (--only mlp) take about an hour on two processor
    cores, --quick takes seconds.
    """

    name = "zhang-regularization"
    settings = ReusingSettings

    def networks(self, settings: ReusingSettings) -> Sequence[Cell]:
        rows = chosen_rows(settings, only=settings.only)
        kinds = {row.cell.network for row in rows}
        return [cell for cell in matrix_cells(settings) if cell.network in kinds]

    def result(
        self, settings: ReusingSettings, finished: Sequence[Finished], at: Context
    ) -> RegularizationResult:
        switches = _switches(settings, self.trained(settings, finished))
        return RegularizationResult(settings, switches, self.timings(finished))

    def page(self, result: RegularizationResult, command: str) -> StudyPage:
        return page(result)

    def tables(self, result: RegularizationResult) -> Sequence[Table]:
        return table(result), early_stopping_table(result)

    def next_command(self, result: RegularizationResult, folder: Path | None) -> str:
        return "nonvacuous reproduce zhang-figure-1 --quick"


STUDY = Regularization()
