"""What every measure must satisfy: its claims are true in random gauges, to nine digits.

A measure that goes into the registry inherits all of this. What it does not claim must be seen to
move, so that no true claim is forgotten; and a false claim is caught.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.measures import (
    INVARIANCES,
    MEASURES,
    Value,
    claim_findings,
    moved,
    register_measure,
    unregister_measure,
)
from nonvacuous.measures.gauges import TOLERANCE, largest_change
from nonvacuous.measures.registry import relative_difference
from tests.measures.worlds import NETWORKS, world

#: All claims are tried in so many gauges of the perceptron, those of cheap measures also on the
#: residual network.
GAUGES = 8
NAMES = tuple(MEASURES)
#: Measures that cost a hundred forward passes: all gauges on one network, a few on the others.
DEAR = frozenset(name for name, measure in MEASURES.items() if measure.cost == "expensive")
#: Enough gauges to see that something moves.
FEW = 4


@cache
def given(network: str) -> dict[str, Value]:
    """Every measure of the network as it is."""
    return {name: measure(world(network)) for name, measure in MEASURES.items()}


@cache  # no default: the same call with and without it would be two
def changes(network: str, kind: str, gauges: int) -> dict[str, float]:
    """By how much every measure changes, at most, over the gauges of one kind."""
    subject = world(network)
    worst = dict.fromkeys(MEASURES, 0.0)
    for draw in range(FEW if network == "cnn" else gauges):
        place = moved(subject, kind, draw=draw)
        assert not isinstance(place, str), place
        for name, measure in MEASURES.items():
            few = kind not in measure.invariant or (name in DEAR and network != "mlp")
            if few and draw >= FEW:
                continue
            worst[name] = max(
                worst[name], relative_difference(given(network)[name], measure(place))
            )
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("kind", INVARIANCES)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("gauges", [GAUGES, pytest.param(100, marks=pytest.mark.nightly)])
def test_every_claim_is_true(network: str, kind: str, gauges: int) -> None:
    false = {
        name: change
        for name, change in changes(network, kind, gauges).items()
        if kind in MEASURES[name].invariant and not change <= TOLERANCE
    }
    assert not false


@pytest.mark.slow
@pytest.mark.parametrize("kind", INVARIANCES)
def test_what_is_not_claimed_moves(kind: str) -> None:
    still = [
        name
        for name, measure in MEASURES.items()
        if kind not in measure.invariant
        and max(changes(network, kind, GAUGES)[name] for network in NETWORKS) < 1e-6
    ]
    # What has a floor, or takes its value from a grid, moves only under larger factors.
    still = [
        name
        for name in still
        if largest_change(MEASURES[name], world("mlp"), kind, gauges=FEW, spread=4.0) < 1e-6
    ]
    assert not still, "these could claim it"


@pytest.mark.parametrize("network", NETWORKS)
def test_the_gauges_keep_the_function(network: str) -> None:
    """The suite itself: what it calls the same function is one."""
    subject = world(network)
    for kind in INVARIANCES:
        place = moved(subject, kind, draw=0)
        assert not isinstance(place, str)
        factor = 1.0
        if kind == "output scale":
            factor = float(place.scores[0, 0] / subject.scores[0, 0])
            assert abs(factor - 1) > 0.01
        difference = (place.scores - factor * subject.scores).abs().max()
        assert float(difference) < 1e-12 * float(subject.scores.abs().max()) * max(1, factor)
        assert any(not w.equal(subject.weights[name]) for name, w in place.weights.items())


@pytest.mark.slow_if("rescaled-kl-certificate-resnet", "kl-certificate-resnet")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_and_gives_a_number(name: str, network: str) -> None:
    measure = MEASURES[name]
    assert measure.formula and measure.source and measure.family
    result = measure(world(network))
    assert isinstance(result, Value), result
    assert result == measure(world(network))
    assert result.log is None or not math.isnan(result.log)


@pytest.mark.parametrize(
    ("claim", "function"),
    [
        ("rescaling", lambda subject: subject.weights["layers.0.weight"].abs().max()),
        ("permutation", lambda subject: subject.weights["layers.0.weight"][0].sum()),
        ("output scale", lambda subject: subject.margins.median()),
    ],
)
def test_a_false_claim_is_caught(claim: str, function: object) -> None:
    register_measure(
        "planted", family="planted", formula="?", source="this test", needs=["examples"],
        invariant=[claim],
    )(function)  # fmt: skip
    try:
        (finding,) = claim_findings("planted", [world("mlp")], gauges=5)
        assert claim in finding
    finally:
        unregister_measure("planted")


def test_a_true_claim_is_not() -> None:
    assert claim_findings("path-norm-1", [world("mlp"), world("cnn")], gauges=5) == ()


def test_bad_registrations_are_refused() -> None:
    described = {"family": "x", "formula": "x", "source": "x"}
    for name, more, words in (
        ("Path Norm", {}, "cannot be a name"),
        ("path-norm-1", {}, "already"),
        ("mine", {"needs": ["labels"]}, "may have 'examples'"),
        ("mine", {"invariant": ["scaling"]}, "'output scale'"),
    ):
        with pytest.raises(BadInput, match=words):
            register_measure(name, **described, **more)
    with pytest.raises(BadInput, match="no measure"):
        claim_findings("mine", [])
