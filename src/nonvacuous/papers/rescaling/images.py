"""Networks on images beside the figure's perceptrons: its right panel, and other architectures.

The paper says of the network of its right panel what it reaches (86 % test accuracy on CIFAR-10),
not what it is. Its size and the squares of its weights can be inferred: see
:func:`inferred_weights`. Ours has that size, and is trained at several learning rates without
decay: the larger the rate, the further its weights grow, so that one of them ends near those
squares. A residual network and a transformer are accounted for in the same columns as the
perceptrons.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import torch

from nonvacuous.certification.adapting import folded, has_batch_norm
from nonvacuous.data import Examples
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.models import build
from nonvacuous.papers.rescaling.columns import Accounts, Column, PaperSetting
from nonvacuous.papers.rescaling.settings import CNNS
from nonvacuous.seeds import derived_seed
from nonvacuous.study.settings import CellRecord, Frozen, at_most
from nonvacuous.study.study import Context
from nonvacuous.training.erm import TrainSettings, evaluate, train
from nonvacuous.training.loop import Records

_EXAMPLES = 50_000  # of CIFAR-10, all of them in the paper's bound
_CNN = "cnn:64,128,256,512/512"
_TRAINING = TrainSettings(
    epochs=30,
    batch_size=128,
    learning_rate=0.05,
    schedule="one-cycle",
    augmentation=("crop",),
    half_precision=True,
)
_LARGE_BATCHES: dict[str, Any] = {
    "epochs": 20, "batch_size": 256, "augmentation": ("crop", "flip"),
}  # fmt: skip
#: Architectures beside the perceptrons: the model, and what differs in its training.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "cnn": (_CNN, {}),
    "resnet20": ("resnet:20", {**_LARGE_BATCHES, "learning_rate": 0.2, "weight_decay": 5e-4}),
    "vit": ("vit:128,4", {**_LARGE_BATCHES, "learning_rate": 1e-3, "optimizer": "adam"}),
}


class ImageSettings(Frozen):
    """A network on images and its training.

    panel          whether to account for the paper's six pairs of scales
    noise          levels of noise for which every column is computed
    prior_scale, prior_scales
                   of the fixed prior, and the grid (lowest, highest, number) to choose from
    examples       how many training examples to use; None: all of them
    trials         draws of (weights, example) from which each empirical risk is estimated
    """

    data: str = "cifar10"
    architecture: str = _CNN
    training: TrainSettings = _TRAINING
    panel: bool = True
    noise: tuple[float, ...] = ()
    prior_scale: float = 1.0
    prior_scales: tuple[float, float, int] = (0.0001, 0.5, 241)
    examples: int | None = None
    trials: int = 5_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def key(self) -> str:
        rate = f"-rate-{self.training.learning_rate:g}" if self.panel else ""
        return re.sub(r"[^a-z0-9]+", "-", self.architecture) + rate

    @classmethod
    def at_rate(cls, rate: float, *, seed: int) -> ImageSettings:
        """The network of the right panel, trained at this learning rate."""
        return cls(training=_TRAINING.changed(learning_rate=rate), seed=seed)

    @classmethod
    def named(cls, name: str, *, seed: int) -> ImageSettings:
        """One of the architectures that stand beside the perceptrons."""
        architecture, training = ARCHITECTURES[name]
        return cls(
            architecture=architecture,
            training=_TRAINING.changed(**training),
            panel=False,
            noise=(0.003, 0.01, 0.03),
            trials=20_000,
            seed=seed,
        )

    def small(self) -> ImageSettings:
        sizes = {_CNN: "cnn:8,16", "resnet:20": "resnet:8", "vit:128,4": "vit:16,1"}
        return self.model_copy(
            update={
                "data": "digits",
                "architecture": sizes[self.architecture],
                "training": self.training.changed(epochs=2, batch_size=64),
                "noise": self.noise[-1:],
                "prior_scales": (0.001, 1.0, 9),
                "trials": 100,
            }
        )


class CnnPoint(PaperSetting):
    """One pair of scales, in the paper's formula risk + sqrt(KL / 2n)."""

    prior_scale: float
    posterior_scale: float
    published_bound: float
    published_rescaled: float
    published_kl_ratio: float


class ImageResult(CellRecord):
    """All about one network; ``weights_squared`` adds up the squares of its weights.

    Batch normalization is folded into the weights before anything is counted.
    """

    settings: ImageSettings
    weights: int
    weights_squared: float
    examples: int
    train_error: float
    test_error: float | None
    points: tuple[CnnPoint, ...]
    columns: dict[str, tuple[Column, ...]]
    risks: dict[str, float]

    def lines(self) -> tuple[str]:
        squares = f"{self.settings.key}: squares add up to {self.weights_squared:,.0f}"
        ratios = ", ".join(f"{point.kl_ratio:.2f}" for point in self.points)
        return (f"{squares}, KL ratios {ratios}" if ratios else squares,)


def inferred_weights() -> tuple[float, float]:
    """How many weights the paper's network seems to have, and the sum of their squares.

    An inference, not a published number. The bound and the KL ratio of a row give its empirical
    risk and thereby its KL, which for N weights with squares adding to M is

        N * (x - 1 - ln x) / 2 + M / (2 * prior_scale^2),   x = (posterior_scale / prior_scale)^2.

    The four rows whose ratio says enough are solved for N and M in the sense of least squares;
    they agree to about one percent, with n = 50,000 examples.
    """
    rows = []
    for shown in CNNS:
        if shown.kl_ratio < 1.5:
            continue  # before and after are too close to tell the risk
        root = math.sqrt(shown.kl_ratio)
        risk = (root * shown.rescaled - shown.bound) / (root - 1)
        nats = 2 * _EXAMPLES * (shown.bound - risk) ** 2
        x = (shown.posterior_scale / shown.prior_scale) ** 2
        rows.append(((x - 1 - math.log(x)) / 2 / nats, 1 / (2 * shown.prior_scale**2) / nats))
    weights, squares = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
    return float(weights), float(squares)


def run_images(settings: ImageSettings, at: Context) -> ImageResult:
    """Train one network and account for it in every way that its settings ask for."""
    device, dataset = torch.device(at.device), at.dataset(settings.data)
    examples = _centered(at_most(dataset.train, settings.examples))
    initial = build(
        settings.architecture, examples.example_shape, examples.classes, seed=settings.seed
    )
    checkpoint = at.folder / "checkpoint"
    trained = train(
        initial,
        examples,
        settings.training,
        seed=derived_seed(settings.seed, "training"),
        device=device,
        records=Records(checkpoint=checkpoint, progress=at.progress, phase="training"),
    )
    module, examples, tested = trained.module, examples.to(device), None
    if dataset.test is not None:
        test = _centered(dataset.test).to(device)
        score = evaluate(module, test.inputs, test.labels)
        tested = score.errors / score.examples
    initial = initial.to(device).eval()
    if has_batch_norm(module):
        probe = examples.inputs[:2]
        module, initial = folded(module, probe), folded(initial, probe)
    accounts = Accounts(
        module,
        initial,
        examples,
        settings.prior_scale,
        ScaleGrid.geometric(*settings.prior_scales),
        settings.trials,
        settings.confidence,
        lambda scale: derived_seed(settings.seed, "risk", scale),
    )
    points = _points(accounts, at) if settings.panel else ()
    risks, columns = accounts.at_every(settings.noise, at.tell)
    parameters = [p.detach().double() for p in module.parameters()]
    result = ImageResult(
        settings=settings,
        weights=sum(p.numel() for p in parameters),
        examples=len(examples),
        weights_squared=math.fsum(float(p.square().sum()) for p in parameters),
        train_error=trained.train.errors / trained.train.examples,
        test_error=tested,
        points=points,
        columns=columns,
        risks={f"{scale:g}": risk.total / risk.trials for scale, risk in risks.items()},
    )
    checkpoint.unlink(missing_ok=True)
    return result


def _points(accounts: Accounts, at: Context) -> tuple[CnnPoint, ...]:
    points = []
    for number, (prior, noise, bound, rescaled, ratio) in enumerate(CNNS, start=1):
        point = CnnPoint(
            prior_scale=prior,
            posterior_scale=noise,
            **accounts.paper(noise, prior, accounts.risk(noise)).model_dump(),
            published_bound=bound,
            published_rescaled=rescaled,
            published_kl_ratio=ratio,
        )
        points.append(point)
        at.tell("scales", number, len(CNNS), f"ratio {point.kl_ratio:.2f}")
    return tuple(points)


def _centered(examples: Examples) -> Examples:
    """Pixels between 0 and 1 become numbers around zero, the same way for every image."""
    return examples.prepared((examples.inputs - 0.5) / 0.25, "(x - 0.5) / 0.25")
