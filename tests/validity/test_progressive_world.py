"""Progressive certificates against a learner that stops when it is lucky, in a world it knows.

Two classes far apart, N(+m, I) and N(-m, I) in the plane: a linear network can have any risk that
it wants, by turning its direction. The learner plays checkpoints of one risk and counts its errors
on the batches that it is given; as soon as the exact binomial tail would claim too little, it
answers perfectly ever after. (Who plays against a gate is in tests/bounds/test_progressive.py.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import nonvacuous as nv
from nonvacuous.data import Examples

LENGTH, BATCHES, EXAMPLES = 4.0, 8, 400
FAILURE = 0.2


def draw_world(seed: int) -> Examples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, EXAMPLES)
    inputs = generator.standard_normal((EXAMPLES, 2))
    inputs[:, 0] += np.where(labels == 1, LENGTH, -LENGTH)
    return Examples(
        torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels), ("minus", "plus"), "world"
    )


def turn(network: nn.Linear, risk: float) -> None:
    """Make the network err with this probability: a unit direction whose first part is -z."""
    along = float(np.clip(-stats.norm.ppf(risk) / LENGTH, -1.0, 1.0))
    direction = torch.tensor([along, math.sqrt(1.0 - along * along)])
    with torch.no_grad():
        network.weight.copy_(torch.stack([-direction, direction]))
        network.bias.zero_()


def risk_of(network: nn.Linear) -> float:
    direction = (network.weight[1] - network.weight[0]).detach().double()
    return float(stats.norm.cdf(-LENGTH * float(direction[0] / direction.norm())))


class Lucky:
    """Plays ``risk`` until ``stop(errors, mass)`` says so, and never errs from then on."""

    def __init__(self, risk: float, stop: Callable[[int, float], bool]) -> None:
        self.risk, self.stop = risk, stop
        self.first: tuple[int, int] | None = None
        self.stopped = False

    def __call__(self, network: nn.Linear, inputs, labels, *, seed: int) -> nn.Linear:
        turn(network, self.risk)
        with torch.no_grad():
            wrong = int((network(inputs).argmax(1) != labels).sum())
        if self.first is None:
            self.first = len(labels), wrong
        # All checkpoints so far were this very one: its errors on what came after the first part.
        tests, errors = len(labels) - self.first[0], wrong - self.first[1]
        self.stopped = self.stopped or (tests > 0 and self.stop(errors, self.risk * tests))
        if self.stopped:
            turn(network, 0.0)
        return network


def certified(world: int, learner: Lucky, **options: float) -> tuple[nv.Certificate, float]:
    """The certificate, and the risk of the predictor that it is about."""
    risks: list[float] = []

    def train(network: nn.Linear, inputs, labels, *, seed: int) -> nn.Linear:
        trained = learner(network, inputs, labels, seed=seed)
        risks.append(risk_of(trained))
        return trained

    certificate = nv.certify(
        nn.Linear(2, 2),
        draw_world(world),
        method=nv.Progressive(
            start=0.1,
            batches=BATCHES,
            train=train,
            pretrained="every weight is set by hand",
            **options,
        ),
        confidence=1.0 - FAILURE,
        seed=world,
    )
    # Conditional: the learner knows what no label told it. The promise holds all the same.
    assert certificate.status != "refused", str(certificate)
    sizes = [batch.examples.examples for batch in certificate.progressive.batches]
    # The last call of all was that of the audit, with wrong labels.
    return certificate, float(np.dot(sizes, risks[:-1]) / sum(sizes))


def stops_when_the_tail_is_wrong(tests: int) -> Lucky:
    def ahead(errors: int, mass: float) -> bool:
        return mass > tests * nv.bounds.holdout(errors=errors, examples=tests, failure=FAILURE)

    return Lucky(0.15, ahead)


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [120, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_learner_that_stops_when_lucky_breaks_the_tail_and_not_the_promise(worlds: int) -> None:
    false = planted = 0
    for world in range(worlds):
        certificate, truth = certified(world, stops_when_the_tail_is_wrong(360))
        counted = certificate.empirical
        false += certificate.risk_upper < truth
        tail = nv.bounds.holdout(errors=counted.errors, examples=counted.trials, failure=FAILURE)
        planted += tail < truth
    assert stats.binom.sf(false - 1, worlds, FAILURE) > 1e-4, false
    assert stats.binom.sf(planted - 1, worlds, FAILURE) < 1e-4, planted


def test_the_learner_has_the_risk_that_it_wants() -> None:
    network = nn.Linear(2, 2)
    for risk in (0.01, 0.15, 0.5, 0.99):
        turn(network, risk)
        assert risk_of(network) == pytest.approx(risk, rel=1e-4)
    certificate, truth = certified(0, stops_when_the_tail_is_wrong(360))
    assert 0.0 < truth <= 0.15 + 1e-6 and certificate.risk_upper < 0.4
