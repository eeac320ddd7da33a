"""What the pages of the randomization paper share: words, how networks were trained, the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nonvacuous.papers.zhang.networks import PAPER, REGULARIZED, GroupTiming, network_title
from nonvacuous.papers.zhang.settings import ZhangSettings
from nonvacuous.report.study import Section, StudyPage, Table, or_dash


def percent(value: float | None) -> str:
    return or_dash(value, ".2f")


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def training_section(settings: ZhangSettings) -> Section:
    """How the networks were trained, and what the paper does not say about it."""
    recipes = {network_title(name): recipe for name, recipe in settings.networks.items()}
    for name, recipe in settings.networks.items():
        for entry in recipe.longer:
            title = f"{network_title(name)}, random labels with {REGULARIZED[entry.regularizer]}"
            recipes[title] = recipe.under([entry.regularizer])
    rows = []
    for title, recipe in recipes.items():
        numbers = (recipe.epochs, recipe.learning_rate, recipe.rate_decay, recipe.weight_decay)
        rows.append((title, recipe.model, *(f"{n:g}" for n in numbers), recipe.precision))
    crop = f", cut to the central {settings.crop} pixels" if settings.crop is not None else ""
    part = "all" if settings.examples is None else f"the first {settings.examples:,}"
    said = (
        f"{settings.data}, {part} training examples{crop}, each image shifted and scaled to mean 0 "
        f"and variance 1. Stochastic gradient descent with momentum {settings.momentum:g}, batches "
        f"of {settings.batch_size}, the learning rate multiplied by a factor after every epoch. "
        "Labels were redrawn once, before training, and kept; test labels are clean. "
        "All conditions share the initial weights and the order of the examples."
    )
    inferred = (
        "The paper gives the learning rates 0.1 (Inception) and 0.01 (the others), the factor 0.95 "
        "and the preprocessing. It does not give the strength of the weight decay, the number of "
        "epochs or the initial weights: those in the table are ours, and so is every learning rate "
        "and factor that differs from the paper's."
    )
    headings = (
        "network", "model", "epochs", "learning rate", "factor", "weight decay where on",
        "precision",
    )  # fmt: skip
    return Section.of("How were they trained?", said, inferred, Table(headings, tuple(rows)))


def time_table(timings: Sequence[GroupTiming]) -> Table:
    """The time per network against training one after another in the same run."""
    rows = (
        {
            "network": network_title(timing.network),
            "at once": str(timing.networks),
            "method": timing.method,
            "device": timing.device,
            "seconds": f"{timing.seconds:.1f}",
            "each epoch": f"{timing.seconds_per_epoch:.3f}",
            "alone": or_dash(timing.solo_seconds, ".3f"),
            "faster": or_dash(timing.speedup, ".1f"),
        }
        for timing in timings
    )
    total = sum(timing.seconds for timing in timings)
    caption = (
        f"All training: {total:.0f} seconds. Each epoch: seconds per network and epoch; alone: the "
        "same for one network trained by itself; faster: how many times."
    )
    return Table.of(rows, caption)


def completed(
    page: StudyPage,
    settings: ZhangSettings,
    timings: Sequence[GroupTiming],
    command: str,
    about_time: str = "",
) -> StudyPage:
    """The page with what all of them say: how long it took, and how networks were trained."""
    seconds = f"{sum(timing.seconds for timing in timings):.0f} seconds"
    times = Section.of("How long did it take?", about_time, time_table(timings))
    return replace(
        page,
        badges=(*page.badges, seconds, PAPER),
        sections=(*page.sections, times, training_section(settings)),
        footer=(command, f"seed {settings.seed}"),
    )
