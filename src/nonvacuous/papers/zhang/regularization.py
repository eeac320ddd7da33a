"""Regularizers switched on and off, on true and on random labels.

The paper's claim has two halves. Not necessary: without any regularizer the network still does
well on test data. Not sufficient: with all of them it still fits random labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang import networks
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming, network_title
from nonvacuous.papers.zhang.settings import RegularizationSettings, ZhangSettings
from nonvacuous.papers.zhang.table import chosen_rows
from nonvacuous.papers.zhang.training import NetworksStudy, percent
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash
from nonvacuous.study.study import Context, Finished
from nonvacuous.training.many_jobs import AUGMENTATIONS

_RANDOM = "random-labels"


@dataclass(frozen=True)
class Switch:
    """One combination of regularizers on one kind of network, on true and on random labels.

    kind                                   the network as it is trained on true labels
    true, random                           None where it was not trained
    published_test, published_train        the paper's test accuracy on true labels and training
                                           accuracy on random ones, where it gives them
    fails                                  the paper says that random labels were not fitted
    """

    kind: Cell
    true: CellResult | None
    random: CellResult | None
    published_test: float | None = None
    published_train: float | None = None
    fails: bool = False

    @property
    def network(self) -> str:
        return self.kind.network

    @property
    def plain(self) -> bool:
        return not self.kind.switched_on

    @property
    def early_stopping(self) -> float | None:
        """Points of test accuracy that the best epoch has over the last, on true labels."""
        if self.true is None:
            return None
        last, best = self.true.history[-1], self.true.best
        return 100.0 * (last.test_errors - best.test_errors) / self.true.test_examples

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "augmentation": self.kind.augmentation,
            "weight_decay": self.kind.decay,
            "weight_decay_times": self.kind.decay_times,
            "dropout": self.kind.dropout,
            "true_test": self.true and self.true.test_accuracy,
            "true_train": self.true and self.true.train_accuracy,
            "published_true_test": self.published_test,
            "random_train": self.random and self.random.train_accuracy,
            "random_test": self.random and self.random.test_accuracy,
            "published_random_train": self.published_train,
            "published_random_fails": self.fails,
            "early_stopping_points": self.early_stopping,
            "best_epoch": self.true and self.true.best.epoch,
        }


@dataclass(frozen=True)
class RegularizationResult:
    settings: ZhangSettings
    switches: tuple[Switch, ...]
    timings: tuple[GroupTiming, ...]

    @property
    def trained(self) -> int:
        return sum((s.true is not None) + (s.random is not None) for s in self.switches)

    def gain(self, network: str) -> float | None:
        """Points of test accuracy that the best regularizers add to none of them."""
        tests = {
            s.kind: s.true.test_accuracy for s in self.switches if s.network == network and s.true
        }
        plain = tests.pop(Cell(network), None)
        return None if plain is None or not tests else max(tests.values()) - plain

    @property
    def batch_norm_gain(self) -> float | None:
        """Points of test accuracy that batch normalization adds, without other regularizers."""
        plain = {s.network: s.true.test_accuracy for s in self.switches if s.true and s.plain}
        with_it, without = plain.get("inception"), plain.get("inception-no-bn")
        return None if with_it is None or without is None else with_it - without

    def to_dict(self) -> dict[str, Any]:
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


def matrix_cells(settings: RegularizationSettings) -> tuple[Cell, ...]:
    """True labels with the regularizers of Table 1, random ones with those of the appendix.

    Networks that are not the paper's: each regularizer alone, on both kinds of labels. Every
    network also with dropout and with the other strengths of weight decay asked for.
    """
    cells = []
    published = (*(row.cell for row in networks.TABLE_1), *networks.RANDOM_WITH_REGULARIZERS)
    for network in settings.networks:
        shown = [cell for cell in published if cell.network == network]
        if not shown:
            shown = [
                Cell(network, labels, augmentation, decay)
                for labels in ("true", _RANDOM)
                for augmentation, decay in (("none", False), ("none", True), ("crop", False))
            ]
        stronger = [times for times in settings.decay_times if times != 1]
        for labels in ("true", _RANDOM):
            shown += [Cell(network, labels, decay=True, decay_times=times) for times in stronger]
            shown.append(Cell(network, labels, dropout=True))
        cells += shown
    return tuple(
        cell
        for cell in cells
        if set(cell.switched_on or ("none",)) <= set(settings.regularizers)
        and cell.corruption.removesuffix("-labels") in settings.labels
        and (not cell.decay or cell.decay_times in settings.decay_times)
    )


def _switches(settings: ZhangSettings, trained: Mapping[Cell, CellResult]) -> tuple[Switch, ...]:
    """What was trained, the paper's numbers beside where network and data are the paper's."""

    def from_none_to_all(kind: Cell) -> tuple[int, bool, bool, float]:
        return AUGMENTATIONS.index(kind.augmentation), kind.dropout, kind.decay, kind.decay_times

    tests: dict[Cell, float | None] = {}
    trains: dict[Cell, float | None] = {}
    if settings.data == "cifar10" and settings.examples is None:
        tests = {row.cell: row.test for row in networks.TABLE_1}
        trains = {row.cell: row.train for row in networks.TABLE_1}
        trains |= networks.RANDOM_WITH_REGULARIZERS
    switches = []
    for network in settings.networks:
        kinds = {
            replace(cell, corruption="true")
            for cell in trained
            if cell.network == network and cell.corruption in ("true", _RANDOM)
        }
        for kind in sorted(kinds, key=from_none_to_all):
            random = replace(kind, corruption=_RANDOM)
            fails = random in trains and trains[random] is None
            published = (tests.get(kind), trains.get(random), fails)
            switches.append(Switch(kind, trained.get(kind), trained.get(random), *published))
    return tuple(switches)


def table(result: RegularizationResult) -> Table:
    """The matrix: test accuracy on true labels, training accuracy on random ones."""
    headings = (
        "network", "regularizers", "true: test", "paper", "random: train", "paper",
        "random: test",
    )  # fmt: skip
    rows = tuple(
        (
            network_title(switch.network),
            switch.kind.regularizers,
            percent(shown["true_test"]),
            percent(switch.published_test),
            percent(shown["random_train"]),
            "fails" if switch.fails else percent(switch.published_train),
            percent(shown["random_test"]),
        )
        for switch, shown in ((each, each.to_dict()) for each in result.switches)
    )
    caption = (
        "Accuracies in percent, of networks trained on true and on random labels; fails: the paper "
        "says that training did not converge."
    )
    return Table(headings, rows, caption, numeric=(False, False, *(True,) * 5))


def early_stopping_table(result: RegularizationResult) -> Table:
    """True labels: the test accuracy at the end, and at the best epoch."""
    rows = tuple(
        (
            network_title(switch.network),
            switch.kind.regularizers,
            percent(switch.true.test_accuracy),
            percent(100 * (1 - switch.true.best.test_errors / switch.true.test_examples)),
            str(switch.true.best.epoch),
            or_dash(switch.early_stopping, "+.2f"),
        )
        for switch in result.switches
        if switch.true is not None
    )
    headings = (
        "network", "regularizers", "test at the end", "test at the best epoch", "best epoch",
        "gain",
    )  # fmt: skip
    caption = "The best epoch is chosen by the test set itself: no early stopping gains more."
    return Table(headings, rows, caption=caption)


def tables(result: RegularizationResult) -> tuple[Table, Table]:
    return table(result), early_stopping_table(result)


def page(result: RegularizationResult, command: str) -> StudyPage:
    imagenet = tuple(
        (*words, percent(train), percent(test)) for *words, train, test in networks.IMAGENET
    )
    sections = [
        Section.of(
            "The matrix",
            "If regularizers were necessary, networks without them would do badly on test data. "
            "If they were sufficient, networks with them could not fit random labels. The paper "
            "found neither.",
            *_figures(result),
            table(result),
        ),
        Section.of("Would stopping early have helped?", early_stopping_table(result)),
        Section.of(
            "And on ImageNet?",
            "The paper's numbers for Inception v3, top-1 accuracy; not computed here.",
            Table(("labels", "regularizers", "train", "test"), imagenet),
        ),
    ]
    if (gain := result.batch_norm_gain) is not None:
        said = f"Alone it adds {gain:+.2f} points of test accuracy to Inception (published: +3.75)."
        sections.insert(2, Section.of("And batch normalization?", said))
    return StudyPage(
        title="Regularizers on and off",
        question="Is it regularization that makes networks generalize?",
        lead=_lead(result),
        badges=(f"{result.trained} networks",),
        sections=tuple(sections),
        footer=(command, f"seed {result.settings.seed}"),
    )


def _figures(result: RegularizationResult) -> tuple[Figure, ...]:
    from nonvacuous.report.plots import bars

    shown = [s for s in result.switches if s.true is not None]
    if not shown:
        return ()
    labels = [f"{network_title(s.network)}: {s.kind.regularizers}" for s in shown]
    groups = {"ours": [s.true.test_accuracy for s in shown if s.true is not None]}
    if all(s.published_test is not None for s in shown):
        groups["published"] = [s.published_test or 0.0 for s in shown]
    title = "Test accuracy on true labels"
    return (Figure(bars(labels, groups, title=title, x_label="test accuracy, %")),)


def _lead(result: RegularizationResult) -> str:
    gains = {name: result.gain(name) for name in result.settings.networks}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    fits = [s.random.train_accuracy for s in result.switches if s.random and not s.plain]
    parts = []
    if known:
        most = max(known, key=lambda network: known[network])
        most_points = f"Regularizers add at most {known[most]:.1f} points of test accuracy"
        parts.append(f"{most_points} ({network_title(most)})")
    if fits:
        held = f"{sum(value >= 99.0 for value in fits)} of {len(fits)} networks"
        parts.append(f"with them, {held} still fit 99 % or more of random labels")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:] or 'Nothing was trained'}."


class Regularization(NetworksStudy[RegularizationSettings, RegularizationResult]):
    """Switch weight decay, augmentation, dropout and batch normalization, on both labelings.

    Needs CIFAR-10 and a GPU; the perceptrons (--only mlp) take about an hour on two processor
    cores, --quick takes seconds.
    """

    name = "zhang-regularization"
    settings = RegularizationSettings
    pages = __name__
    then = "nonvacuous reproduce zhang-figure-1 --quick"

    def networks(self, settings: RegularizationSettings) -> Sequence[Cell]:
        rows = chosen_rows(settings, only=settings.only)
        kinds = {row.cell.network for row in rows}
        chosen = [cell for cell in matrix_cells(settings) if cell.network in kinds]
        if not chosen:
            listed = " ".join(settings.regularizers)
            raise BadInput(f"regularizers: {listed} leave no network to train; name others too")
        return chosen

    def result(
        self, settings: RegularizationSettings, finished: Finished, at: Context
    ) -> RegularizationResult:
        switches = _switches(settings, self.trained(settings, finished))
        return RegularizationResult(settings, switches, self.timings(finished))


STUDY = Regularization()
