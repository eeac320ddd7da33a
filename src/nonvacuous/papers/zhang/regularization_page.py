"""The page of the regularizers: switched on and off, on true and on random labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nonvacuous.papers.zhang.networks import Cell, network_title
from nonvacuous.papers.zhang.pages import (
    MISSING,
    footer,
    percent,
    points,
    time_table,
    training_section,
)
from nonvacuous.papers.zhang.published import IMAGENET, PAPER
from nonvacuous.report.study import Figure, Section, StudyPage, Table

if TYPE_CHECKING:
    from nonvacuous.papers.zhang.regularization import RegularizationResult, Switch


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
