"""Certificates for residual networks and transformers on CIFAR-10, and who is charged in them.

    python benchmarks/rescaling_certificates.py --device cuda --only resnet20-learned vit-learned
    python benchmarks/rescaling_certificates.py --quick --folder OUT

Post hoc: a network trained on all examples, its prior around the initial weights, one scale for
each tensor. Learned: the prior is trained on nine tenths of the examples, and every weight is
random. Trained outside: a network that somebody trained on nine tenths, in whatever way, with the
prior around its very weights. All certificates share their confidence with 20 attempts on the same
examples. Each one is verified from its run folder, and its KL is divided between tensors that some
rescaling moves and tensors that none does.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, write_result

import nonvacuous as nv
from nonvacuous.certification.adapting import folded, has_batch_norm
from nonvacuous.data import split_examples
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.networks import ScaleGroups
from nonvacuous.training.erm import TrainSettings, train

ATTEMPTS = 20
_PLAIN: dict[str, Any] = {
    "epochs": 24,
    "batch_size": 256,
    "learning_rate": 0.1,
    "schedule": "one-cycle",
    "augmentation": ("crop", "flip"),
    "half_precision": True,
}
_RESNET = {**_PLAIN, "learning_rate": 0.2, "weight_decay": 5e-4}
_ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 0.05}
_LEARNED = {"averaging": 0.99, "label_smoothing": 0.1}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "resnet20-learned": ("resnet:20", "learned", {**_RESNET, **_LEARNED}),
    "resnet9-learned": ("resnet9:32", "learned", {**_RESNET, **_LEARNED}),
    "vit-learned": ("vit:128,4", "learned", {**_PLAIN, **_LEARNED, "learning_rate": 0.05}),
    "vit-outside": ("vit:128,4", "trained outside", {**_PLAIN, **_ADAM, **_LEARNED}),
    "resnet20-post-hoc": ("resnet:20", "post hoc", {**_RESNET, "epochs": 12}),
    "vit-post-hoc": (
        "vit:128,4",
        "post hoc",
        {**_PLAIN, **_ADAM, "epochs": 12, "weight_decay": 0.0},
    ),
}


def certified(
    case: str, data: Any, folder: Path, arguments: argparse.Namespace
) -> tuple[nv.Certificate, torch.nn.Module]:
    """The certificate, and the network that it is about as it was built."""
    architecture, kind, training = CASES[case]
    if arguments.quick:
        architecture = {"resnet:20": "resnet:8", "vit:128,4": "vit:16,1"}.get(
            architecture, "resnet9:4"
        )
        training = {**training, "epochs": 2, "batch_size": 64}
    trials = 500 if arguments.quick else 100_000
    model = nv.models.build(
        architecture, data.train.example_shape, data.train.classes, seed=arguments.seed
    ).to(arguments.device)
    network = model
    method: nv.Posterior | nv.PostHoc
    if kind == "learned":
        method = nv.Posterior(
            prior_fraction=0.9,
            prior_scale=(0.001,),
            training=nv.PosteriorTraining(epochs=1, batch_size=512, learning_rate=1e-4),
            plain_training=nv.PlainTraining(**training),
            trials=trials,
        )
    elif kind == "trained outside":
        split = split_examples(data.train, prior_fraction=0.9, seed=arguments.seed)
        seen = data.train.subset(split.prior)
        network = train(model, seen, TrainSettings(**training), seed=arguments.seed).module
        center = copy.deepcopy(network).cpu()
        prior = nv.priors.learned(center, indices=split.prior, grid=ScaleGrid((0.001,)))
        method = nv.PostHoc(
            prior=prior, split=split, posterior_scales=(0.0005, 0.001), trials=trials
        )
    else:
        network = train(model, data.train, TrainSettings(**training), seed=arguments.seed).module
        scales = ScaleGrid.geometric(0.001, 0.1, 3 if arguments.quick else 9).scales
        method = nv.PostHoc(
            prior=nv.priors.at_initialization(
                copy.deepcopy(model).cpu(),
                grid=ScaleGrid.geometric(0.0001, 0.5, 61),
                per_tensor=True,
            ),
            posterior_scales=scales,
            trials=trials,
            twin=False,
        )
    certificate = nv.certify(
        network,
        data.train,
        method=method,
        test=data.test,
        seed=arguments.seed,
        attempts=ATTEMPTS,
        folder=nv.Run(folder=folder, architecture=architecture, source=arguments.data),
        force=True,
    )
    return certificate, model


def pinned_names(groups: ScaleGroups) -> set[str]:
    """The tensors of which no rescaling moves any entry."""
    return {
        name
        for name, entries in groups.exponents.items()
        if all((entry.index < 0).all() for entry in entries)
    }


def charged(certificate: nv.Certificate, model: torch.nn.Module, example: Any) -> dict[str, Any]:
    """The KL of tensors that a rescaling moves, and of those that none does."""
    network = model.eval()
    if certificate.rescaling is not None and has_batch_norm(network):
        network = folded(network, example)
    groups = nv.scale_groups(nv.capture(network, example))
    pinned = pinned_names(groups)
    assert certificate.complexity is not None
    terms = certificate.complexity.terms
    still = [term for term in terms if term.tensor in pinned]
    total = sum(term.nats for term in terms)
    return {
        "free_scales": groups.size,
        "weights": sum(term.size for term in terms),
        "pinned_weights": sum(term.size for term in still),
        "nats": total,
        "pinned_nats": sum(term.nats for term in still),
        "pinned": [
            {"tensor": term.tensor, "weights": term.size, "nats": term.nats} for term in still
        ],
        "reasons": sorted({entry.reason.partition(", in ")[0] for entry in groups.pinned}),
    }


def run(case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    data = nv.data.load(arguments.data, data_dir=arguments.data_dir)
    folder = Path(arguments.runs or tempfile.mkdtemp()) / case
    started = time.perf_counter()
    certificate, model = certified(case, data, folder, arguments)
    seconds = time.perf_counter() - started
    twin, rescaling = certificate.held_out_twin, certificate.rescaling
    assert certificate.complexity is not None
    result: dict[str, Any] = {
        "case": case,
        "kind": CASES[case][1],
        "architecture": certificate.model.architecture,
        "risk_upper": certificate.risk_upper,
        "is_vacuous": certificate.is_vacuous,
        "status": certificate.status,
        "held_out_twin": None if twin is None else twin.risk_upper,
        "examples": certificate.data.bound.examples,
        "attempts_paid": ATTEMPTS,
        "bound": certificate.bound.name,
        "posterior": None if certificate.posterior is None else certificate.posterior.description,
        "empirical_upper": certificate.empirical.risk_upper,
        "kl_nats": certificate.complexity.kl_nats,
        "charged": charged(certificate, model, data.train.inputs[:2].to(arguments.device)),
        "rescaling": None if rescaling is None else rescaling.model_dump(mode="json"),
        "observed": {o.name: o.errors / o.trials for o in certificate.observed},
        "not_plain": [
            f"{a.name}: {a.detail}" for a in certificate.assumptions if a.effect != "none"
        ],
        "training": CASES[case][2],
        "seconds": seconds,
    }
    name = f"rescaling-certificate-{case}"
    write_result(name, result, seed=arguments.seed, folder=arguments.folder)
    print({key: result[key] for key in ("case", "risk_upper", "held_out_twin", "kl_nats")})
    started = time.perf_counter()
    torch.set_num_threads(arguments.threads)
    checked = nv.verify(folder, data=data.train, trials=200 if arguments.quick else 500)
    result["verification"] = {
        "passed": checked.passed,
        "verified": checked.verified,
        "seconds": time.perf_counter() - started,
        "summary": str(checked).partition("\n")[0].rpartition(": ")[2],
    }
    print(write_result(name, result, seed=arguments.seed, folder=arguments.folder))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--runs", default=None, help="keep run folders here")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="for the verification")
    parser.add_argument("--quick", action="store_true", help="digits and tiny networks")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.data = "digits"
    for case in arguments.only:
        run(case, arguments)


if __name__ == "__main__":
    main()
