"""Convolutional networks in sparsity certificates: shapes worked out twice, mistakes planted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import status_of
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.rules.convolutions import (
    chain_from,
    convolution_records,
    readings_of,
    tensor_scales,
    wrong_convolution,
    wrong_structure,
)
from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, Pool
from nonvacuous.sparsity.setting import frozen_setting, total_nats
from nonvacuous.sparsity_records import NoiseLayer, SparsityRecord
from tests.examples import some

from . import sparse_conv_worlds as worlds
from .planting import assert_refused
from .test_rows_25_to_28 import AGAIN, ESCAPE, LAST, NOISE, NORMS, PAID, WHOLE, recorded
from .worlds import changed


@pytest.fixture(scope="module")
def honest() -> Evidence:
    return worlds.evidence()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["sparse", "dense"])
def test_honest_evidence_is_valid(variant: str, honest: Evidence) -> None:
    if variant == "dense":
        honest = worlds.evidence(worlds.QUICK.changed(variant="dense"))
    assumptions = audit.run(honest)
    assert [a for a in assumptions if a.effect != "none"] == []
    assert status_of(assumptions) == "valid"


def test_a_bias_counts_as_often_as_its_layer_has_positions(honest: Evidence) -> None:
    record, complexity = honest.sparsity, honest.complexity
    assert record is not None and complexity is not None and honest.prior is not None
    assert honest.posterior is not None
    nats = {term.tensor: term.nats for term in complexity.terms}
    for layer, positions in zip(record.layers, (36, 9, 1), strict=True):
        assert layer.convolution is not None and layer.convolution.positions == positions
        total = 0.0
        for name, times in zip(layer.tensors, (1, positions), strict=True):
            moved = honest.posterior.means[name] - honest.prior.means[name]
            squares = times * float(moved.double().square().sum())
            assert nats[name] == pytest.approx(squares / (2 * layer.scale**2), rel=1e-9)
            total += squares
        assert layer.squared_distance == pytest.approx(total, rel=1e-9)


# ------------------------------------------------------------------------- planted mistakes


def layer_with(evidence: Evidence, place: int, **changes: Any) -> Evidence:
    assert evidence.sparsity is not None
    layers = list(evidence.sparsity.layers)
    layers[place] = layers[place].model_copy(update=changes)
    return recorded(evidence, layers=tuple(layers))


def shape_with(evidence: Evidence, place: int, **changes: Any) -> Evidence:
    assert evidence.sparsity is not None
    shape = evidence.sparsity.layers[place].convolution
    assert shape is not None
    return layer_with(evidence, place, convolution=shape.model_copy(update=changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"stride": (2, 2)},
        {"padding": (0, 0)},
        {"dilation": (2, 2)},
        {"pooling": None},
        {"positions": 1},
        {"positions": 35},
        {"bias_scale": None},
        {"bias_scale": 1.0},
        {"kernel": (3, 1, 4, 1)},
        {"kernel": (3, 2, 2, 1)},
    ],
)
def test_another_way_to_read_the_input(honest: Evidence, changes: dict[str, Any]) -> None:
    assert_refused(shape_with(honest, 0, **changes), WHOLE)


@pytest.mark.slow
def test_other_pooling(honest: Evidence) -> None:
    assert honest.sparsity is not None
    shape = honest.sparsity.layers[1].convolution
    assert shape is not None and shape.pooling is not None
    for changes in ({"kind": "max"}, {"stride": (2, 2)}, {"counts_padding": False}):
        other = shape.pooling.model_copy(update=changes)
        assert_refused(shape_with(honest, 1, pooling=other), WHOLE)


@pytest.mark.slow
def test_images_of_another_shape(honest: Evidence) -> None:
    assert_refused(recorded(honest, images=(1, 5, 4)), WHOLE)
    assert_refused(recorded(honest, images=(1, 1, 25)), WHOLE)


@pytest.mark.slow
def test_a_bias_with_the_noise_of_a_weight(honest: Evidence) -> None:
    assert honest.prior is not None and honest.posterior is not None
    for field, which in (("prior", honest.prior), ("posterior", honest.posterior)):
        scales = {**which.scales, "0.bias": torch.full((3,), float(which.scales["0.weight"].max()))}
        scales["0.bias"] = scales["0.bias"].double()
        forged = changed(honest, **{field: DiagonalGaussian(means=which.means, scales=scales)})
        assert_refused(forged, NOISE, "'0.bias'")


@pytest.mark.slow
def test_a_bias_that_counts_once(honest: Evidence) -> None:
    record, complexity = honest.sparsity, honest.complexity
    assert record is not None and complexity is not None
    terms = tuple(
        t.model_copy(update={"nats": t.nats / 36}) if t.tensor == "0.bias" else t
        for t in complexity.terms
    )
    forged = changed(honest, complexity=complexity.model_copy(update={"terms": terms}))
    assert_refused(forged, NOISE, "costs")
    sizes = tuple(t.model_copy(update={"size": t.size + 1}) for t in complexity.terms)
    forged = changed(honest, complexity=complexity.model_copy(update={"terms": sizes}))
    assert_refused(forged, NOISE, "in its layer")


@pytest.mark.slow
def test_other_networks_and_priors(honest: Evidence) -> None:
    assert_refused(changed(honest, module=worlds.network(seed=5)), WHOLE)
    assert_refused(changed(honest, prior_layers=honest.layers), WHOLE, "prior")
    assert_refused(layer_with(honest, 1, squared_distance=0.0), NOISE, "squared distance")
    assert_refused(layer_with(honest, 1, scale=9.0), NOISE)


@pytest.mark.slow
def test_charges_settings_seeds_norms_and_counts(honest: Evidence) -> None:
    record = honest.sparsity
    assert record is not None
    for left_out in range(0, len(record.charges), 3):
        rest = tuple(c for i, c in enumerate(record.charges) if i != left_out)
        forged = recorded(honest, charges=rest, grid_nats=total_nats(rest))
        assert_refused(forged, PAID, "nobody paid")
    steps = [i for i, c in enumerate(record.charges) if c.choice.startswith("reference")]
    assert len(steps) == 4, "operator, kernel and distance of the second layer, and the drift"
    for place in steps:
        lines = list(record.charges)
        lines[place] = lines[place].model_copy(update={"choice": "reference x 2^(-640/64)"})
        assert_refused(recorded(honest, charges=tuple(lines)), PAID, "not below the truth")
    for name, value in (("escape", 11), ("blend", 0), ("factor", 7), ("tail", "cap")):
        other = {**record.setting, name: value}
        assert other != record.setting
        assert_refused(recorded(honest, setting=other), LAST, "chosen again")
    for odd in ({"blend": 8}, {"blend": -1}, {"escape": 12}, {"tail": "sizes"}, {"steps": 1}):
        assert_refused(recorded(honest, setting={**record.setting, **odd}), LAST)
    assert_refused(recorded(honest, theorem="D"), LAST)
    assert_refused(recorded(honest, escape=0.0005), ESCAPE, "division")
    assert_refused(recorded(honest, longest_input=2.0), NORMS)
    more = honest.risk.model_copy(update={"errors": (honest.risk.errors or 0) + 1})
    assert_refused(changed(honest, risk=more), AGAIN, "counted again")
    other_seed = honest.risk.model_copy(update={"seed": 1})
    assert_refused(changed(honest, risk=other_seed), LAST)


# --------------------------------------------------------------------------- shapes, twice


@st.composite
def chains(draw: st.DrawFn) -> ConvChain:
    """A layer, perhaps pooled, and an output layer that covers what is left."""

    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    shape = (draw(st.integers(1, 2)), *pair(3, 9))
    parts: list[tuple[ConvLayer, Pool]] = []
    before: tuple[int, int, int] = shape
    for index in range(draw(st.integers(1, 2))):
        kernel, outputs = pair(1, 3), draw(st.integers(1, 3))
        weight = torch.ones(outputs, before[0], *kernel, dtype=torch.float64)
        bias = torch.ones(outputs, dtype=torch.float64) if draw(st.booleans()) else None
        layer = ConvLayer(str(index), weight, bias, pair(1, 3), pair(0, 2), pair(1, 2))
        sides = layer.positions(before[1:])
        assume(min(sides) >= 1)
        pool = Pool()
        window = pair(1, 3)
        kind = draw(st.sampled_from(("none", "max", "average")))
        if kind != "none" and window[0] <= sides[0] and window[1] <= sides[1]:
            padding = (0, 0)
            if kind == "average":
                padding = (draw(st.integers(0, window[0] // 2)), 0)
            pool = Pool(kind, window, pair(1, 3), padding, draw(st.booleans()))
        parts.append((layer, pool))
        probe = pool(torch.zeros(1, 1, *sides, dtype=torch.float64))
        before = (outputs, int(probe.shape[2]), int(probe.shape[3]))
    last = torch.arange(2.0 * math.prod(before), dtype=torch.float64).reshape(2, *before)
    return ConvChain.of(shape, [*parts, (ConvLayer("output", last, None), Pool())])


def record_of(chain: ConvChain, honest: SparsityRecord) -> SparsityRecord:
    """A record of this chain, with linear layers where the output layer is one."""
    scales = tuple(2.0**-place for place in range(len(chain.stages)))
    layers = tuple(
        NoiseLayer(
            name=stage.layer.name,
            tensors=tuple(
                f"{stage.layer.name}.{part}"
                for part in (("weight",) if stage.layer.bias is None else ("weight", "bias"))
            ),
            scale=scale,
            squared_distance=0.0,
            convolution=shape,
        )
        for stage, scale, shape in zip(
            chain.stages, scales, convolution_records(chain, scales), strict=True
        )
    )
    return honest.model_copy(update={"layers": layers, "images": chain.input_shape})


@settings(max_examples=some(120), deadline=None)
@given(chain=chains())
def test_a_chain_is_written_and_read_back(honest: Evidence, chain: ConvChain) -> None:
    assert honest.sparsity is not None
    record = record_of(chain, honest.sparsity)
    assert wrong_convolution(record) is None and wrong_structure(record, chain) is None
    for reading, stage in zip(readings_of(record), chain.stages, strict=True):
        assert reading[1:] == (stage.before, stage.positions)
    tensors = {}
    for stage in chain.stages:
        flat = stage is chain.stages[-1]
        weight = stage.layer.weight
        tensors[f"{stage.layer.name}.weight"] = weight.flatten(1) if flat else weight
        if stage.layer.bias is not None:
            tensors[f"{stage.layer.name}.bias"] = stage.layer.bias
    again = chain_from(record, tensors)
    assert again.digest() == chain.digest() and again.input_shape == chain.input_shape
    scales = tensor_scales(record)
    for stage, layer in zip(chain.stages, record.layers, strict=True):
        assert scales[layer.tensors[0]] == layer.scale
        if len(layer.tensors) == 2:
            share = layer.scale / math.sqrt(stage.positions)
            assert scales[layer.tensors[1]] == pytest.approx(share, rel=1e-15)


def test_images_turned_on_their_side_have_the_same_digest_and_are_found(honest: Evidence) -> None:
    """Pooling drops the ninth row or column: the digest of the numbers cannot tell."""
    weight = torch.ones(2, 1, 3, 3, dtype=torch.float64)
    first = ConvLayer("0", weight, None, padding=(1, 1)), Pool("max", (2, 2), (2, 2))
    output = torch.arange(64.0, dtype=torch.float64).reshape(2, 2, 4, 4)
    parts = [first, (ConvLayer("output", output, None), Pool())]
    tall, wide = ConvChain.of((1, 9, 8), parts), ConvChain.of((1, 8, 9), parts)
    assert tall.digest() == wide.digest()
    assert honest.sparsity is not None
    record = record_of(tall, honest.sparsity)
    assert wrong_structure(record, tall) is None
    turned = record.model_copy(update={"images": (1, 8, 9)})
    assert wrong_convolution(turned) is None
    assert "images" in (wrong_structure(turned, tall) or "")


def test_without_sparsity_there_is_no_share_of_norms_to_choose() -> None:
    """It would be free, and every value would draw other noise."""
    plain = {"first": 0, "steps": (0,), "escape": 1, "tail": "cap", "factor": 1, "blend": 4}
    assert frozen_setting("E", "dense", plain, convolutional=True).blend == 4
    assert frozen_setting("E", "sparse", {**plain, "blend": 5}, convolutional=True).blend == 5
    with pytest.raises(BadInput, match="share of norms"):
        frozen_setting("E", "dense", {**plain, "blend": 5}, convolutional=True)


def test_tensors_of_other_shapes_are_refused(honest: Evidence) -> None:
    record = honest.sparsity
    assert record is not None and honest.posterior is not None
    means = dict(honest.posterior.means)
    assert chain_from(record, means).digest() == record.network_digest
    for name, wrong in (
        ("0.weight", torch.zeros(3, 1, 3, 3)),
        ("0.weight", torch.zeros(3, 4)),
        ("0.weight", torch.zeros(3, 1, 4)),
        ("0.bias", torch.zeros(4)),
        ("7.weight", torch.zeros(3, 15)),
    ):
        with pytest.raises((BadInput, NotYetSupported)):
            chain_from(record, {**means, name: wrong.double()})
    with pytest.raises(BadInput, match="no tensor"):
        chain_from(record, {name: mean for name, mean in means.items() if name != "3.bias"})


def test_a_record_that_would_fill_the_memory_is_refused(honest: Evidence) -> None:
    assert honest.sparsity is not None
    with pytest.raises(BadInput, match="too large"):
        readings_of(honest.sparsity.model_copy(update={"images": (1, 10**6, 10**6)}))
