"""The networks that ``nonvacuous measures`` measures: trained here, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nonvacuous.data import Dataset, Examples
from nonvacuous.distributions.storage import save_tensors, tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.measures.panel import Attack, Panel, attack, panel
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.rules.outcomes import Shown
from nonvacuous.seeds import derived_seed
from nonvacuous.studies.measures_page import FIT_LOSS
from nonvacuous.studies.networks import build_network, load_weights
from nonvacuous.study.settings import at_most, under
from nonvacuous.study.study import Context
from nonvacuous.training.checks import check_fits
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, ManyExamples, ManySettings

if TYPE_CHECKING:
    from nonvacuous.studies.measures import MeasuresSettings


@dataclass(frozen=True, eq=False)
class Network:
    """A network to measure, with the examples that trained it and what is known of its training."""

    module: nn.Module
    initial: nn.Module | None
    examples: Examples
    trained: dict[str, Any] | None


def measured(settings: MeasuresSettings, at: Context, files: Sequence[str]) -> dict[str, Any]:
    """Train or load, measure, write the weights; the record."""
    assert settings.data is not None
    given = at.dataset(settings.data).train
    train = at_most(given, settings.examples)
    parts = [train]
    if settings.against is not None:
        seed = derived_seed(settings.seed, "against")
        with under("against", "random-labels"):
            parts.append(corrupt(Dataset(train), settings.against, seed=seed).train)
    networks = _networks(settings, parts, at)

    def shown(function: Callable[..., Panel | Attack], one: Network, **more: Any) -> dict[str, Any]:
        return function(
            one.module, one.examples, initial=one.initial, seed=settings.seed,
            only=settings.words("only"), without=settings.words("without"), progress=at.progress,
            **more,
        ).to_dict()  # fmt: skip

    network, panels = networks[0], [shown(panel, one) for one in networks]
    if any(measure.is_bound for measure in settings.chosen):
        weights = tensors_digest(dict(network.module.state_dict()))
        outcomes = Shown(at.ledger_file, given, command="measures")
        outcomes.record({"asked": settings.asked(), "network": weights})
    attacked = against = None
    if settings.attack:
        gauges = {"gauges": settings.gauges, "spread": settings.spread}
        kept = at.folder / "gauges.checkpoint"
        attacked = shown(attack, network, **gauges, checkpoint=kept)
    for rival, compared in zip(networks[1:], panels[1:], strict=True):
        against = {"spec": settings.against, "trained": rival.trained, "panel": compared}
    for name, one in zip(files, networks, strict=False):
        if one.trained is not None:
            save_tensors(at.folder / name, dict(one.module.state_dict()), kind="weights")
    return {
        "asked": settings.asked(),
        "model": settings.model,
        "data": train.name,
        "data_source": settings.data,
        "weights": None if settings.weights is None else str(settings.weights),
        "examples": len(train),
        "seed": settings.seed,
        "trained": network.trained,
        "panel": panels[0],
        "attack": attacked,
        "against": against,
    }


def _networks(settings: MeasuresSettings, parts: Sequence[Examples], at: Context) -> list[Network]:
    """For each part of data the network whose weights are given, or one that is trained on it."""
    weights = (("--weights", settings.weights), ("--against-weights", settings.against_weights))
    wanted = zip(parts, weights, strict=False)
    given = [_loaded(settings, part, path, flag) for part, (flag, path) in wanted]
    missing = [part for part, one in zip(parts, given, strict=True) if one is None]
    trained = iter(_trained(settings, missing, at) if missing else ())
    return [one or next(trained) for one in given]


def _loaded(
    settings: MeasuresSettings, part: Examples, weights: Path | None, flag: str
) -> Network | None:
    if weights is None:
        return None
    module = build_network(settings.model, part, seed=settings.seed)
    check_fits(module, part, spec=settings.model)
    load_weights(module, weights, flag=flag, spec=settings.model)
    start = None
    if settings.initial is not None:
        start = build_network(settings.model, part, seed=settings.seed)
        load_weights(start, settings.initial, flag="--initial", spec=settings.model)
    return Network(module, start, part, None)


def _trained(settings: MeasuresSettings, parts: Sequence[Examples], at: Context) -> list[Network]:
    """One network for each part of data, all from the same initial weights."""

    def build(seed: int) -> nn.Module:
        return build_network(settings.model, parts[0], seed=seed)

    check_fits(build(settings.seed), parts[0], spec=settings.model)
    done = train_many(
        build,
        ManyExamples([part.inputs for part in parts], torch.stack([part.labels for part in parts])),
        [
            Job(labels=k, inputs=k, seed=settings.seed, learning_rate=settings.learning_rate)
            for k in range(len(parts))
        ],
        settings=ManySettings(
            epochs=settings.epochs, batch_size=64, decay=1.0, stop_when_fit=True, fit_loss=FIT_LOSS
        ),
        device="cpu",
        progress=at.progress,
        checkpoint=at.folder / "training.safetensors",
    )
    networks = []
    for part, job in zip(parts, done.jobs, strict=True):
        if job.stopped == "diverged":
            rate = f"{settings.learning_rate / 4:g}"
            raise BadInput(
                f"training diverged with --learning-rate {settings.learning_rate:g}.",
                instead={"--learning-rate": rate},
            )
        module = build(settings.seed)
        module.load_state_dict(job.state)
        last = job.history[-1]
        trained: dict[str, Any] = {"epochs": last.epoch, "loss": last.train_loss}
        trained |= {"errors": last.train_errors, "stopped": job.stopped}
        networks.append(Network(module.eval(), build(settings.seed).eval(), part, trained))
    return networks
