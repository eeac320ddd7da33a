"""Figure 1 of "Can Rescaling Invariances Help?": ten perceptrons on MNIST, before and after.

For each network: plain training, then the paper's numbers in the paper's setting, then all other
ways to account for the same noise, then a real certificate for the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nonvacuous.audit.arithmetic import recompute_bound, total_nats
from nonvacuous.bounds import sampling
from nonvacuous.certificate import Certificate, rounded_up
from nonvacuous.certification.recipe import PlainRecipe, Recipe
from nonvacuous.certify import certify
from nonvacuous.claims import claim_folder
from nonvacuous.data import Dataset, Examples, Split, load
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import at_initialization
from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput
from nonvacuous.experiments.rescaling_columns import all_columns
from nonvacuous.experiments.rescaling_results import (
    FigureResult,
    NetworkResult,
    OurSetting,
    PaperSetting,
)
from nonvacuous.experiments.rescaling_settings import RescalingSettings, network_name
from nonvacuous.models import build
from nonvacuous.networks import ScaleGroups, capture, scale_groups
from nonvacuous.report.measured import errors_on_test
from nonvacuous.rescaling import rescale
from nonvacuous.rescaling.columns import Accounting
from nonvacuous.risk import RiskEstimate, estimate_risk
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Progress, Trained, train

#: The part of the failure probability that pays for sampling a risk.
_SAMPLING_SHARE = 0.2


def run(
    settings: RescalingSettings,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> FigureResult:
    """Compute the figure, network by network; each one's numbers are kept as soon as they exist.

    folder     networks/NAME.json for each network, certificates/NAME/ a run folder for each
               certificate; a run that was stopped goes on with ``resume``
    progress   called with a phase, its steps done, all its steps and a message; the phase
               "networks" tells what a network gave
    """
    place = Path(folder)
    dataset = load(settings.data, data_dir=data_dir)
    split = _split(dataset.train, settings)
    claim_folder(
        place,
        # Which networks are asked for may differ from one call to the next: each has its own files.
        {name: value for name, value in settings.to_dict().items() if name != "networks"},
        results=("networks/*.json", "networks/*.safetensors", "networks/*.checkpoint"),
        resume=resume,
        force=force,
    )
    results = []
    for number, widths in enumerate(settings.networks):
        work = _Work(settings, dataset, split, widths, place, torch.device(device), progress)
        result = work.finished()
        if result is None:
            result = work.compute(force=force)
        results.append(result)
        if progress is not None:
            progress("networks", number + 1, len(settings.networks), told(result))
    return FigureResult(settings, tuple(results))


def told(result: NetworkResult) -> str:
    """One line about a network."""
    shown = result.published
    ratio = f"KL ratio {result.paper.kl_ratio:.2f}"
    ours = f"certificate {rounded_up(result.ours.risk_upper)}"
    if shown is not None:
        ratio += f" (published {shown.kl_ratio:.2f})"
        ours += f" (published {shown.bound:.2f}, rescaled {shown.rescaled:.2f})"
    return f"{result.name}: {ratio}, {ours}"


def initialized(
    widths: Sequence[int], shape: Sequence[int], classes: int, *, initialization: str, seed: int
) -> nn.Module:
    """A perceptron with its initial weights; only the arguments decide them."""
    module = build(f"mlp:{','.join(map(str, widths))}", shape, classes, seed=seed)
    if initialization == "lecun":
        generator = torch.Generator().manual_seed(seed)
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                # Uniform with variance 1 / (number of inputs): a gain of one.
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear", generator=generator)
                nn.init.zeros_(layer.bias)
    return module


class _Work:
    """The steps for one network."""

    def __init__(
        self,
        settings: RescalingSettings,
        dataset: Dataset,
        split: Split,
        widths: tuple[int, ...],
        folder: Path,
        device: torch.device,
        progress: Progress | None,
    ) -> None:
        shape, classes = dataset.train.example_shape, dataset.train.classes
        self.settings, self.dataset, self.split = settings, dataset, split
        self.widths, self.folder, self.device, self.progress = widths, folder, device, progress
        self.name = network_name(widths, inputs=math.prod(shape), classes=classes)
        self.seed = derived_seed(settings.seed, "rescaling figure", self.name)
        self.bound_part = dataset.train.subset(split.bound)
        self.initial = initialized(
            widths, shape, classes, initialization=settings.initialization, seed=self.seed
        ).eval()
        self.result_file = folder / "networks" / f"{self.name}.json"
        self.weights_file = folder / "networks" / f"{self.name}.safetensors"

    def finished(self) -> NetworkResult | None:
        return NetworkResult.load(self.result_file) if self.result_file.is_file() else None

    def compute(self, *, force: bool) -> NetworkResult:
        trained, errors = self._trained()
        trained = trained.to(self.device)
        graph = capture(trained, self.bound_part.inputs[:2].to(self.device))
        groups = scale_groups(graph)
        grid = ScaleGrid.geometric(*self.settings.prior_scales)
        columns = {}
        risks: dict[float, RiskEstimate] = {}
        levels = dict.fromkeys((self.settings.paper_posterior_scale, *self.settings.column_scales))
        for done, scale in enumerate(levels):
            risks[scale] = self._risk(trained, scale)
            columns[f"{scale:g}"] = all_columns(
                trained,
                self.initial.to(self.device),
                scale=scale,
                prior_scale=self.settings.paper_prior_scale,
                grid=grid,
                graph=graph,
                groups=groups,
                accounting=self._accounting(risks[scale]),
            )
            self._tell("columns", done + 1, len(levels), f"noise {scale:g}")
        self.initial.to("cpu")
        result = NetworkResult(
            name=self.name,
            widths=self.widths,
            weights=sum(p.numel() for p in trained.parameters()),
            examples=len(self.bound_part),
            train_errors=errors,
            paper=self._paper(trained, groups, risks[self.settings.paper_posterior_scale]),
            ours=self._certified(trained, grid, force=force),
            columns=columns,
            is_published_data=self.settings.data == "mnist",
        )
        result.save(self.result_file)
        return result

    def _tell(self, phase: str, done: int, total: int, message: str) -> None:
        if self.progress is not None:
            self.progress(phase, done, total, f"{self.name}: {message}")

    def _trained(self) -> tuple[nn.Module, int]:
        """The trained network and its training errors, from the file where there is one."""
        if self.weights_file.is_file():
            stored = load_tensors(self.weights_file, kind="trained perceptron", device="cpu")
            errors = int(stored.pop("train_errors"))
            module = initialized(
                self.widths,
                self.dataset.train.example_shape,
                self.dataset.train.classes,
                initialization="pytorch",
                seed=0,
            ).eval()
            module.load_state_dict(stored)
            return module, errors
        settings = self.settings
        checkpoint = self.folder / "networks" / f"{self.name}.checkpoint"
        found: Trained = train(
            self.initial,
            self.bound_part,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            seed=derived_seed(self.seed, "training"),
            device=self.device,
            phase="training",
            checkpoint=checkpoint,
            progress=self._training_progress(),
        )
        module = found.module.to("cpu")
        tensors = {**module.state_dict(), "train_errors": torch.tensor(found.train.errors)}
        save_tensors(self.weights_file, tensors, kind="trained perceptron")
        checkpoint.unlink(missing_ok=True)
        return module, found.train.errors

    def _training_progress(self) -> Progress | None:
        return None if self.progress is None else self._tell

    def _risk(self, module: nn.Module, scale: float) -> RiskEstimate:
        generator = torch.Generator(device=self.device)
        generator.manual_seed(derived_seed(self.seed, "columns", scale))
        return estimate_risk(
            module,
            DiagonalGaussian.around(module, scale=scale),
            self.bound_part.to(self.device),
            trials=self.settings.trials,
            generator=generator,
        )

    def _accounting(self, risk: RiskEstimate) -> Accounting:
        failure = 1.0 - self.settings.confidence
        assert risk.errors is not None
        upper = sampling(errors=risk.errors, trials=risk.trials, failure=failure * _SAMPLING_SHARE)
        return Accounting(upper, len(self.bound_part), failure * (1.0 - _SAMPLING_SHARE))

    def _paper(self, module: nn.Module, groups: ScaleGroups, risk: RiskEstimate) -> PaperSetting:
        settings = self.settings
        posterior = DiagonalGaussian.around(module, scale=settings.paper_posterior_scale)
        prior = DiagonalGaussian.centered(module, scale=settings.paper_prior_scale)
        found = rescale(posterior, prior, groups)
        observed = risk.total / risk.trials
        twice = 2 * len(self.bound_part)
        return PaperSetting(
            kl_before=found.kl_before,
            kl_after=found.kl_after,
            empirical_risk=observed,
            bound=observed + math.sqrt(found.kl_before / twice),
            rescaled=observed + math.sqrt(found.kl_after / twice),
        )

    def _certified(self, module: nn.Module, grid: ScaleGrid, *, force: bool) -> OurSetting:
        settings = self.settings
        folder = self.folder / "certificates" / self.name
        certificate = certify(
            module,
            self.dataset.train,
            mode="post-hoc",
            prior=at_initialization(self.initial, grid=grid, per_tensor=True),
            confidence=settings.confidence,
            seed=settings.seed,
            test=self.dataset.test,
            trials=settings.trials,
            posterior_scales=ScaleGrid.geometric(*settings.posterior_scales),
            recipe=Recipe(
                plain=PlainRecipe(
                    epochs=settings.epochs,
                    batch_size=settings.batch_size,
                    learning_rate=settings.learning_rate,
                    momentum=settings.momentum,
                    schedule="constant",
                )
            ),
            split=self.split,
            attempts=settings.attempts,
            architecture=f"mlp:{','.join(map(str, self.widths))}",
            source=settings.data,
            device=self.device,
            folder=folder,
            resume=not force,
            force=force,
            progress=self._training_progress(),
        )
        return self._ours(certificate, folder)

    def _ours(self, certificate: Certificate, folder: Path) -> OurSetting:
        complexity, posterior = certificate.complexity, certificate.posterior
        assert complexity is not None and posterior is not None
        assert certificate.empirical.errors is not None
        tensors = total_nats(complexity.terms)
        twin = certificate.held_out_twin
        tested = next(iter(errors_on_test(certificate)), None)
        return OurSetting(
            risk_upper=certificate.risk_upper,
            kl_nats=complexity.kl_nats,
            tensor_risk_upper=recompute_bound(
                certificate.bound.model_copy(
                    update={"inputs": {**certificate.bound.inputs, "kl_nats": tensors}}
                )
            ),
            tensor_kl_nats=tensors,
            empirical_errors=certificate.empirical.errors,
            trials=certificate.empirical.trials,
            status=certificate.status,
            is_vacuous=certificate.is_vacuous,
            posterior=posterior.description,
            held_out_twin=None if twin is None else twin.risk_upper,
            test_error=tested.rate if tested is not None else None,
            certificate=folder.relative_to(self.folder).as_posix(),
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
