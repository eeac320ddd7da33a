"""The work behind ``nonvacuous rescale``: everything that needs torch."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import sampling, seeger
from nonvacuous.certification.candidate import with_weights
from nonvacuous.cli import exits, flags
from nonvacuous.cli.subject import Subject
from nonvacuous.distributions import DiagonalGaussian, storage
from nonvacuous.networks import rescaled
from nonvacuous.rescaling.solver import push, rescale
from nonvacuous.risk.pairs import estimate_risk
from nonvacuous.rules.outcomes import Shown, ledger_of
from nonvacuous.seeds import derived_seed

#: Inputs on which the two functions are compared.
_COMPARED = 1000
#: Noise so small that only the weights count, and a prior so narrow that only their norm does.
_POINT, _FLOOR, _NARROW = 1e-3, 1e-6, 1e-4
#: The shares of a failure probability of 0.05 that pay for sampling and for the bound.
_SAMPLING, _BOUND = 0.01, 0.04


def run(
    subject: Subject,
    noise: flags.Noise,
    *,
    out: Path,
    gauge: str | None,
    attack: float | None,
    ledger: Path | None,
) -> dict[str, Any]:
    """Rescale, write the new weights, and measure what has changed and what has not."""
    groups = subject.groups
    if groups.size == 0:
        reasons = "; ".join(f"{entry.what}: {entry.reason}" for entry in groups.pinned)
        raise exits.CommandError(
            f"{subject.spec} has no channel that can be rescaled ({reasons}).",
            instead=exits.command("inspect", **subject.flags.named(subject.stored)),
        )
    posterior = DiagonalGaussian.around(subject.module, scale=noise.sigma)
    prior = DiagonalGaussian.centered(subject.module, scale=noise.tau)
    if attack is not None:
        generator = np.random.default_rng(derived_seed(subject.seed, "attack"))
        log_scales = generator.normal(scale=attack, size=groups.size)
        done = f"every scale multiplied by exp({attack:g} x a random number)"
    elif gauge == "optimal":
        log_scales = rescale(posterior, prior, groups).log_scales
        done = "the scales that make the KL smallest"
    else:
        log_scales = _balanced(subject.module, groups)
        done = "the weights into each channel as large as those out of it"
    changed = rescaled(subject.module, groups, log_scales)
    if not all(bool(p.isfinite().all()) for p in changed.parameters()):
        raise exits.CommandError(
            "the rescaled weights leave the range of their number type; take a smaller --attack.",
            instead={"--attack": "1"},
        )
    carried = push(posterior, groups, log_scales, dtype=torch.float64)
    if subject.examples is not None:
        network = storage.tensors_digest(dict(subject.module.state_dict()))
        shown = Shown(ledger_of(ledger, None), subject.examples, command="rescale")
        shown.record({**asdict(noise), "seed": subject.seed, "network": network})
    storage.save_tensors(out, dict(changed.state_dict()), kind="weights")
    largest = int(np.abs(log_scales).argmax())
    where = next(g for g in groups.groups if g.start <= largest < g.start + g.size)
    return {
        "model": subject.spec,
        "weights": str(subject.stored),
        "out": str(out),
        "gauge": gauge,
        "attack": attack,
        "seed": subject.seed,
        "sigma": noise.sigma,
        "tau": noise.tau,
        "done": done,
        "free_scales": groups.size,
        "factors": {
            "smallest": math.exp(float(log_scales.min())),
            "largest": math.exp(float(log_scales.max())),
            "where": where.name,
        },
        "function": _function(subject, changed, log_scales),
        "before": _measured(subject, noise, prior, subject.module, posterior),
        "after": _measured(subject, noise, prior, changed, carried),
    }


def _balanced(module: nn.Module, groups: Any) -> np.ndarray:
    """The scales at which the norms into and out of every channel agree."""
    parameters = {name: p.detach().double() for name, p in module.named_parameters()}
    total = sum(float(p.square().sum()) for p in parameters.values())
    typical = math.sqrt(total / sum(p.numel() for p in parameters.values())) or 1.0
    # Dead channels have no norm to balance; the floor keeps their scales finite.
    noise = {n: p.abs() * _POINT + _FLOOR * typical for n, p in parameters.items()}
    marked = DiagonalGaussian(means=parameters, scales=noise)
    narrow = DiagonalGaussian.from_means(
        {name: torch.zeros_like(p) for name, p in parameters.items()}, _NARROW * typical
    )
    return rescale(marked, narrow, groups, tolerance=1e-13).log_scales


def _measured(
    subject: Subject,
    noise: flags.Noise,
    prior: DiagonalGaussian,
    module: nn.Module,
    carried: DiagonalGaussian,
) -> dict[str, float]:
    """One column: norms, the KL of equal noise, and that of the noise that moved along.

    Bounds are PAC-Bayes-kl at 95 %, the sampling of the risk paid for: an illustration.
    """
    weights = [p.detach().double() for p in module.parameters()]
    around = DiagonalGaussian.around(module, scale=noise.sigma)
    smallest = rescale(carried, prior, subject.groups)
    values: dict[str, float] = {
        "norm": math.sqrt(sum(float(w.square().sum()) for w in weights)),
        "largest_weight": max(float(w.abs().max()) for w in weights),
        "kl_naive": around.kl_nats(prior),
        "kl_carried": smallest.kl_before,
        "kl_smallest": smallest.kl_after,
    }
    if subject.examples is not None:
        stored = DiagonalGaussian(
            means={name: mean.float() for name, mean in carried.means.items()},
            scales={name: scale.float() for name, scale in carried.scales.items()},
        )
        for name, posterior in (("naive", around), ("smallest", stored)):
            risk = estimate_risk(
                with_weights(module, posterior.means),
                posterior,
                subject.examples,
                trials=noise.trials,
                generator=torch.Generator().manual_seed(derived_seed(subject.seed, "sampling")),
            )
            assert risk.errors is not None
            values[f"bound_{name}"] = seeger(
                empirical_risk=sampling(errors=risk.errors, trials=risk.trials, failure=_SAMPLING),
                kl_nats=values[f"kl_{name}"],
                examples=len(subject.examples),
                failure=_BOUND,
            )
    return values


def _function(subject: Subject, changed: nn.Module, log_scales: np.ndarray) -> dict[str, Any]:
    """How far the outputs move: in float64, and with the weights as stored."""
    inputs = subject.inputs(_COMPARED)
    precise = copy.deepcopy(subject.module).double()
    double = inputs.double() if inputs.is_floating_point() else inputs
    with torch.no_grad():
        exact, moved, one, other = (
            module(values).double().reshape(len(inputs), -1)
            for module, values in (
                (precise, double),
                (rescaled(precise, subject.groups, log_scales), double),
                (subject.module, inputs),
                (changed, inputs),
            )
        )
    return {
        "inputs": len(inputs),
        "float64_error": _relative(exact, moved),
        "float32_error": _relative(one, other),
        "predictions_changed": int((one.argmax(1) != other.argmax(1)).sum()),
    }


def _relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) / (float(one.abs().max()) or 1.0)
