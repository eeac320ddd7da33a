"""Figure 1 of "Can Rescaling Invariances Help?": ten perceptrons on MNIST, before and after.

For each network: plain training, then the paper's numbers in the paper's setting, then all other
ways to account for the same noise, then a real certificate for the same weights.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nonvacuous.certify import certify
from nonvacuous.data import Examples, Split
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import at_initialization
from nonvacuous.errors import BadInput
from nonvacuous.methods import PostHoc
from nonvacuous.models import build, seeded
from nonvacuous.papers.rescaling.columns import Accounts, NetworkResult, OurSetting
from nonvacuous.papers.rescaling.images import ImageResult, ImageSettings, run_images
from nonvacuous.papers.rescaling.settings import RescalingSettings, network_name
from nonvacuous.report.measured import errors_on_test
from nonvacuous.report.study import StudyPage
from nonvacuous.rules.arithmetic import recompute_bound, total_nats
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import Run
from nonvacuous.study.folder import CELLS
from nonvacuous.study.settings import Frozen
from nonvacuous.study.study import Context, Finished, Study
from nonvacuous.training.erm import TrainSettings, train
from nonvacuous.training.loop import Records
from nonvacuous.training_settings import PlainTraining


def initialized(
    widths: Sequence[int], shape: Sequence[int], classes: int, *, initialization: str, seed: int
) -> nn.Module:
    """A perceptron with its initial weights; only the arguments decide them."""
    name = f"mlp:{','.join(map(str, widths))}"
    if initialization != "lecun":
        return build(name, shape, classes, seed=seed)

    def with_unit_gain() -> nn.Module:
        module = build(name, shape, classes)
        generator = torch.Generator().manual_seed(torch.initial_seed())
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                # Uniform with variance 1 / (number of inputs): a gain of one.
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear", generator=generator)
                nn.init.zeros_(layer.bias)
        return module

    return seeded(with_unit_gain, seed=seed)


class _Work:
    """The steps for one network."""

    def __init__(self, settings: RescalingSettings, at: Context) -> None:
        self.settings, self.at, self.device = settings, at, torch.device(at.device)
        (self.widths,) = settings.networks
        self.dataset = at.dataset(settings.data)
        examples = self.dataset.train
        shape, classes = examples.example_shape, examples.classes
        self.name = network_name(self.widths, inputs=math.prod(shape), classes=classes)
        self.seed = derived_seed(settings.seed, "rescaling figure", self.name)
        names = {"epochs", "batch_size", "learning_rate", "momentum"}
        self.descent = settings.model_dump(include=names)
        self.split = _split(examples, settings)
        self.bound_part = examples.subset(self.split.bound)
        self.initial = initialized(
            self.widths, shape, classes, initialization=settings.initialization, seed=self.seed
        ).eval()

    def compute(self) -> NetworkResult:
        settings = self.settings
        checkpoint = self.at.folder / "checkpoint"
        trained = train(
            self.initial,
            self.bound_part,
            TrainSettings(**self.descent),
            seed=derived_seed(self.seed, "training"),
            device=self.device,
            records=Records(checkpoint=checkpoint, progress=self._tell, phase="training"),
        )
        grid = ScaleGrid.geometric(*settings.prior_scales)
        accounts = Accounts(
            trained.module,
            self.initial.to(self.device),
            self.bound_part.to(self.device),
            settings.paper_prior_scale,
            grid,
            settings.trials,
            settings.confidence,
            lambda scale: derived_seed(self.seed, "columns", scale),
        )
        noise = settings.paper_posterior_scale
        levels = dict.fromkeys((noise, *settings.column_scales))
        risks, columns = accounts.at_every(levels, self._tell)
        self.initial.to("cpu")
        result = NetworkResult(
            name=self.name,
            widths=self.widths,
            weights=sum(p.numel() for p in trained.module.parameters()),
            examples=len(self.bound_part),
            train_errors=trained.train.errors,
            paper=accounts.paper(noise, settings.paper_prior_scale, risks[noise]),
            ours=self._certified(trained.module, grid),
            columns=columns,
            is_published_data=settings.data == "mnist",
        )
        # It was kept until here: a run that was stopped does not train again.
        checkpoint.unlink(missing_ok=True)
        return result

    def _tell(self, phase: str, done: int, total: int, message: str) -> None:
        self.at.tell(phase, done, total, f"{self.name}: {message}")

    def _certified(self, module: nn.Module, grid: ScaleGrid) -> OurSetting:
        settings = self.settings
        certificate = certify(
            copied_network(module).to(self.device),
            self.dataset.train,
            method=PostHoc(
                prior=at_initialization(self.initial, grid=grid, per_tensor=True),
                split=self.split,
                trials=settings.trials,
                posterior_scales=ScaleGrid.geometric(*settings.posterior_scales).scales,
                plain_training=PlainTraining(**self.descent, schedule="constant"),
            ),
            confidence=settings.confidence,
            seed=settings.seed,
            test=self.dataset.test,
            attempts=settings.attempts,
            folder=Run(
                folder=self.at.folder / "certificate",
                architecture=f"mlp:{','.join(map(str, self.widths))}",
                source=settings.data,
                ledger=self.at.ledger_file,
            ),
            resume=True,
            progress=self._tell,
        )
        complexity, posterior = certificate.complexity, certificate.posterior
        assert complexity is not None and posterior is not None
        assert certificate.empirical.errors is not None
        tensors = total_nats(complexity.terms)
        inputs = {**certificate.bound.inputs, "kl_nats": tensors}
        bound = certificate.bound.model_copy(update={"inputs": inputs})
        twin = certificate.held_out_twin
        tested = next(iter(errors_on_test(certificate)), None)
        return OurSetting(
            risk_upper=certificate.risk_upper,
            kl_nats=complexity.kl_nats,
            tensor_risk_upper=recompute_bound(bound),
            tensor_kl_nats=tensors,
            empirical_errors=certificate.empirical.errors,
            trials=certificate.empirical.trials,
            status=certificate.status,
            is_vacuous=certificate.is_vacuous,
            posterior=posterior.description,
            held_out_twin=None if twin is None else twin.risk_upper,
            test_error=None if tested is None else tested.rate,
            certificate=f"{CELLS}/{self.at.folder.name}/certificate",
        )


def _split(examples: Examples, settings: RescalingSettings) -> Split:
    """The first examples are trained on and counted; the others keep out."""
    count = len(examples) if settings.examples is None else settings.examples
    if not 0 < count <= len(examples):
        raise BadInput(
            f"examples: {examples.name} has {len(examples)} training examples, not {count}"
        )
    everything = np.arange(len(examples))
    return Split(
        everything[:0], everything[:count], everything[count:], content=examples.content_hash()
    )


#: How near a ratio must come to the published one, and how far below its bound ours should be.
RATIO_TOLERANCE, BOUND_GOAL = 0.15, 0.75


@dataclass(frozen=True)
class FigureResult:
    settings: RescalingSettings
    networks: tuple[NetworkResult, ...]
    images: tuple[ImageResult, ...] = ()

    @property
    def summary(self) -> dict[str, int]:
        """How many networks reach what; ratios and fractions are of the published ones only."""
        ratios = [e.ratio_error for e in self.networks if e.ratio_error is not None]
        fractions = [e.bound_fraction for e in self.networks if e.bound_fraction is not None]
        near = sum(abs(ratio) <= RATIO_TOLERANCE for ratio in ratios)
        low = sum(fraction <= BOUND_GOAL for fraction in fractions)
        return {
            "networks": len(self.networks),
            "published": len(ratios),
            "ratios_within_15_percent": near,
            "bounds_at_most_three_quarters_of_published": low,
            "better_than_guessing": sum(not entry.ours.is_vacuous for entry in self.networks),
            "valid": sum(entry.ours.status == "valid" for entry in self.networks),
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.record(),
            "summary": self.summary,
            "networks": [
                {
                    **entry.model_dump(),
                    "kl_ratio": entry.paper.kl_ratio,
                    "published": entry.published and entry.published._asdict(),
                    "ratio_error": entry.ratio_error,
                    "bound_fraction": entry.bound_fraction,
                }
                for entry in self.networks
            ],
            "images": [
                {**entry.model_dump(), "kl_ratios": [point.kl_ratio for point in entry.points]}
                for entry in self.images
            ],
        }


class RescalingCell(Frozen):
    """One perceptron with all that decides about it, or a network on images."""

    widths: tuple[int, ...] = ()
    settings: Mapping[str, Any] = {}
    images: ImageSettings | None = None

    @property
    def key(self) -> str:
        return self.images.key if self.images else "-".join(map(str, self.widths))


class Figure1(Study[RescalingSettings, FigureResult]):
    """Compute the figure again and put the published numbers beside ours.

    Needs MNIST and some ten minutes on one processor core.
    """

    name = "rescaling-figure-1"
    settings = RescalingSettings
    cell = RescalingCell
    gives = NetworkResult | ImageResult
    pages = "nonvacuous.papers.rescaling.page"

    def claimed(self, settings: RescalingSettings) -> Mapping[str, Any]:
        # Which networks are asked for may differ from one call to the next.
        return {name: value for name, value in settings.record().items() if name != "networks"}

    def cells(self, settings: RescalingSettings, finished: Finished) -> Sequence[RescalingCell]:
        cells = [
            RescalingCell(widths=widths, settings=self.claimed(settings))
            for widths in settings.networks
        ]
        images = [ImageSettings.named(name, seed=settings.seed) for name in settings.architectures]
        if settings.cifar:
            images += [ImageSettings.at_rate(rate, seed=settings.seed) for rate in settings.rates]
        quick = settings.data == "digits"
        cells += [RescalingCell(images=each.small() if quick else each) for each in images]
        return cells

    def compute(self, cell: RescalingCell, at: Context) -> Frozen:
        if cell.images is not None:
            return run_images(cell.images, at)
        settings = RescalingSettings.of({**cell.settings, "networks": [cell.widths]})
        return _Work(settings, at).compute()

    def result(self, settings: RescalingSettings, finished: Finished, at: Context) -> FigureResult:
        known = {entry.cell.model_dump_json(): entry.result for entry in finished}
        asked = [known[cell.model_dump_json()] for cell in self.cells(settings, finished)]
        networks = tuple(entry for entry in asked if isinstance(entry, NetworkResult))
        return FigureResult(settings, networks, tuple(asked[len(networks) :]))

    def title(self, settings: RescalingSettings) -> str:
        return f"{len(settings.networks)} networks on {settings.data}, seed {settings.seed}"

    def files(self, result: FigureResult, page: StudyPage) -> Mapping[str, str]:
        return {**super().files(result, page), "figure.svg": page.sections[0].figures[0].svg}

    def next_command(self, result: FigureResult, folder: Path | None) -> str:
        assert folder is not None
        certificate = str(folder / result.networks[0].ours.certificate)
        return shlex.join(["nonvacuous", "verify", certificate])


STUDY = Figure1()
