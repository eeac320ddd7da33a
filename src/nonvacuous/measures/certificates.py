"""PAC-Bayes numbers: KL and bound of Gaussian noise, in the given gauge and in the best one.

Zero-mean prior, its scale from a grid fixed in advance; the best of a few noise scales. Everything
chosen by looking is paid for, so each certificate is a valid bound on the error of the network
whose weights are drawn afresh, at 95 %, if the examples are independent. It is a number to compare
with others; `nonvacuous certify` takes more care and gets smaller ones.
"""

from __future__ import annotations

import functools
import math

import torch

from nonvacuous.bounds import sampling, seeger
from nonvacuous.bounds.rounding import up
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.measures.flatness import isotropic_scale
from nonvacuous.measures.gauges import balanced
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.rescaling.prior_scales import rescale_with_prior_scales
from nonvacuous.risk.pairs import estimate_risk
from nonvacuous.seeds import derived_seed

NOISES = tuple(2.0**-k for k in range(2, 8))
PRIOR_SCALES = ScaleGrid.geometric(1e-3, 1e3, 49)
TRIALS = 1000
#: Shares of a failure probability of 0.05.
_SAMPLING, _BOUND = 0.01, 0.04


def complexity(subject: Subject, noise: float, *, rescaled: bool) -> float:
    """KL in nats of equal noise around the weights, the choice of the prior's scale included."""
    charge = PRIOR_SCALES.charge_nats()
    if not rescaled:
        square = math.fsum(float(weight.square().sum()) for weight in subject.weights.values())
        smallest = min(
            (subject.count * ((noise / tau) ** 2 - 1 - 2 * math.log(noise / tau)) + square / tau**2)
            / 2
            for tau in PRIOR_SCALES.scales
        )
        return up(charge + smallest, ulps=1 << 10)
    return rescale_with_prior_scales(
        DiagonalGaussian.from_means(balanced(subject), noise),
        None,
        subject.groups,
        grid=PRIOR_SCALES,
        tolerance=1e-12,
    ).complexity_nats


def certificate(subject: Subject, noise: float, kl_nats: float, *, rescaled: bool) -> float:
    """The bound at one noise scale and its complexity; the sampling of the risk is paid for."""
    inputs, labels = subject.examples
    # The rescaled posterior draws the same functions with the same probabilities as the one before
    # rescaling: one risk for both.
    weights = balanced(subject) if rescaled else dict(subject.weights)
    source = torch.Generator().manual_seed(derived_seed(subject.seed, "certificates"))
    risk = estimate_risk(
        subject.module,
        DiagonalGaussian.from_means(subject.at_examples(weights), noise),
        (inputs, labels),
        trials=TRIALS,
        generator=source,
    )
    assert risk.errors is not None
    return _bound(risk.errors, kl_nats, len(labels))


def _bound(errors: int, kl_nats: float, examples: int) -> float:
    return seeger(
        empirical_risk=sampling(errors=errors, trials=TRIALS, failure=_SAMPLING / len(NOISES)),
        kl_nats=kl_nats,
        examples=examples,
        failure=_BOUND,
    )


def _register(name: str, *, rescaled: bool) -> None:
    where = "smallest along the orbit" if rescaled else "in the given gauge"
    noise = "flatness-balanced" if rescaled else "flatness-isotropic"
    source = "Rouchouse, Gonon, Gribonval and Guedj (2025)" if rescaled else "McAllester (1999)"
    register = functools.partial(
        register_measure,
        family="PAC-Bayes",
        needs=["examples"],
        cost="expensive",
        invariant=["rescaling"] if rescaled else [],
    )

    @register(
        name,
        formula=f"KL(Q‖P) + ln {len(PRIOR_SCALES)} in nats, {where}, with the noise of {noise}",
        source=source,
    )
    def nats(subject: Subject) -> float:
        scale = isotropic_scale(subject, in_balance=rescaled)
        return complexity(subject, scale, rescaled=rescaled)

    @register(
        f"{name}-certificate",
        formula="a bound on the risk of the network with noise on its weights, δ = 0.05 in all: "
        f"kl⁻¹(sampled risk, (KL + ln {len(PRIOR_SCALES)} + ln(2 sqrt(n)/0.04)) / n), KL {where}, "
        f"the best of {len(NOISES)} noise scales",
        source=source + ", with the bound of Maurer (2004)",
    )
    def bound(subject: Subject) -> float:
        subject.check_covered()
        examples, best = len(subject.examples[1]), 1.0
        kls = {noise: complexity(subject, noise, rescaled=rescaled) for noise in NOISES}
        for noise, kl_nats in sorted(kls.items(), key=lambda entry: entry[1]):
            # Sampling takes time: not where the bound would be no better without any error.
            if _bound(0, kl_nats, examples) < best:
                best = min(best, certificate(subject, noise, kl_nats, rescaled=rescaled))
        return best


_register("kl", rescaled=False)
_register("rescaled-kl", rescaled=True)
