"""The panel and the attack as a user meets them, and the page that shows how to add a measure."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.measures import (
    MEASURES,
    Subject,
    Undefined,
    Value,
    attack,
    panel,
    unregister_measure,
)
from nonvacuous.measures.registry import chosen, log_sum, relative_difference
from tests.measures.worlds import ResidualNet, made, randomized

DOCS = Path(__file__).resolve().parents[2] / "docs" / "measures.md"


def test_inputs_alone_leave_what_needs_labels_undefined() -> None:
    module, _, (inputs, _) = made("mlp")
    found = panel(module, inputs)
    for name, result in found.results.items():
        needs = MEASURES[name].needs
        assert isinstance(result, Undefined) == bool(needs), name
    assert found["margin-10"] == Undefined("it needs labeled examples, and none were given")
    assert "it needs the initial weights" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_the_network_is_not_changed_and_the_seed_decides() -> None:
    module, initial, examples = made("cnn")
    before = {name: p.clone() for name, p in module.state_dict().items()}
    told: list[tuple[str, int, int, str]] = []
    only = ["flatness", "path-norm-1", "distance"]
    kwargs = {"initial": initial, "only": only}
    one = panel(module, examples, seed=1, progress=lambda *a: told.append(a), **kwargs)
    assert one.results == panel(module, examples, seed=1, **kwargs).results
    assert one.results != panel(module, examples, seed=2, **kwargs).results
    assert all(p.equal(before[name]) for name, p in module.state_dict().items())
    assert told[0] == ("measuring", 0, 6, "distance") and told[-1][1:3] == (6, 6)
    assert [entry.measure.name for entry in one.entries] == [
        name for name in MEASURES if name in only or MEASURES[name].family == "flatness"
    ]


def test_a_network_without_scales_or_paths_says_why() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()
    _, _, examples = made("mlp")
    found = panel(module, examples, only=["paths", "norms", "activations", "vc-dimension"])
    assert isinstance(found["frobenius-product"], Value)
    for name in ("path-norm-1", "vc-dimension"):
        result = found[name]
        assert isinstance(result, Undefined) and "tanh" in result.reason
    assert isinstance(found["active-share"], Undefined)
    with pytest.raises(Unsupported, match="nothing to attack"):
        attack(module, examples, only=["norms"])


def test_a_network_that_is_mostly_wrong_has_no_margin_to_divide_by() -> None:
    module, _, (inputs, labels) = made("mlp")
    found = panel(module, (inputs, (labels + 1) % 3), only=["bartlett-margin", "margin-10"])
    result = found["bartlett-margin"]
    assert isinstance(result, Undefined) and "10th percentile" in result.reason
    margin = found["margin-10"]
    assert isinstance(margin, Value) and margin.number < 0 and margin.log is None


def test_bad_input_is_refused_with_a_reason() -> None:
    module, _, (inputs, labels) = made("mlp")
    with pytest.raises(BadInput, match="did you mean 'path-norm-2'"):
        panel(module, inputs, only=["path-norm-3"])
    with pytest.raises(BadInput, match="list of names"):
        panel(module, inputs, only="norms")
    with pytest.raises(BadInput, match="initial lacks 6"):
        panel(module, inputs, initial={})
    with pytest.raises(BadInput, match="one row of class scores"):
        panel(nn.Sequential(nn.Linear(4, 2)), (inputs, labels))
    with pytest.raises(BadInput, match="at least two inputs"):
        panel(module, inputs[:1])
    with pytest.raises(BadInput, match="gauges >= 1"):
        attack(module, (inputs, labels), gauges=0)


@pytest.mark.slow
def test_a_capture_serves_every_network_of_its_architecture() -> None:
    first, _, examples = made("resnet")
    subject = Subject.of(first, examples)
    other = randomized(ResidualNet(), 9)
    only = ["cheap", "rescaled-kl", "sharpness-balanced"]
    again = panel(other, examples, initial=first, like=subject, only=only)
    assert again.results == panel(other, examples, initial=first, only=only).results
    assert again.results != panel(first, examples, initial=other, only=only).results
    module, _, flat = made("mlp")
    with pytest.raises(BadInput, match="differ in their layers"):
        panel(module, flat, like=subject)
    # The same weights, another activation: only the kind of the layer tells.
    rectified, bent = (
        nn.Sequential(nn.Linear(4, 5), kind, nn.Linear(5, 3)) for kind in (nn.ReLU(), nn.Tanh())
    )
    with pytest.raises(BadInput, match="differ in their layers"):
        panel(bent, flat, like=Subject.of(rectified, flat))
    dropping = [nn.Sequential(nn.Linear(4, 3), nn.Dropout(rate)) for rate in (0.1, 0.5)]
    assert panel(dropping[0], flat, like=Subject.of(dropping[1], flat), only=["norms"])


def test_cheap_measures_and_what_is_left_out() -> None:
    module, _, examples = made("mlp")
    names = [m.name for m in chosen(["cheap"], ["norms", "vc-dimension"])]
    assert "path-norm-1" in names and "spectral-sum" not in names and "vc-dimension" not in names
    assert not any(MEASURES[name].cost == "expensive" for name in names)
    assert {m.cost for m in chosen(["flatness", "PAC-Bayes"])} == {"expensive"}
    found = panel(module, examples, only=["norms"], without=["spectral-sum"])
    assert len(found.entries) == 11
    with pytest.raises(BadInput, match="leave no measure"):
        panel(module, examples, only=["norms"], without=["norms"])


@pytest.mark.slow
def test_scores_beyond_floats_are_said_to_be() -> None:
    """Fifty layers that multiply by 1e10: the function itself leaves the range of floats."""
    layers = [nn.Linear(3, 3, bias=False) for _ in range(50)]
    for layer in layers:
        nn.init.constant_(layer.weight, 1e10)
    found = panel(nn.Sequential(*layers), (torch.ones(4, 3), torch.tensor([0, 1, 2, 0])))
    assert found.training_errors is None
    for name, log in (("frobenius-product", 50 * math.log(3e10)), ("path-norm-1", None)):
        result = found[name]
        assert isinstance(result, Value) and result.number == math.inf and result.log is not None
        assert log is None or result.log == pytest.approx(log, rel=1e-12)
    for name in ("margin-10", "path-margin-1", "fisher-rao", "sharpness-trace"):
        result = found[name]
        assert isinstance(result, Undefined) and result.reason
    assert "float64" in found["margin-10"].reason
    json.dumps(found.to_dict(), allow_nan=False)


BOUNDS = ("occam-bound", "balanced-occam-bound", "kl-certificate", "rescaled-kl-certificate")
SHIFT = torch.arange(80.0).reshape(20, 4)  # more than a few constants


class Shifted(nn.Module):
    """Adds numbers that are no parameters; they may be the training data themselves."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.place = place
        if place == "buffer":
            self.register_buffer("shift", torch.ones(4))
        if place == "integers":
            self.register_buffer("shift", torch.ones(4, dtype=torch.int32))
        if place == "attribute":
            self.shift = torch.ones(4)
        if place == "array":
            self.shift = {"values": np.ones(4)}
        if place == "normalization":
            self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        if self.place == "normalization":
            scores: Tensor = self.last(self.norm(x))
            return scores
        shift = SHIFT[0] if self.place == "global" else self.shift
        if self.place == "array":
            shift = torch.from_numpy(shift["values"])
        return self.last(x + shift)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("buffer", "shift is a buffer"),
        ("integers", "shift is a buffer"),
        ("attribute", "shift is an attribute"),
        ("array", "shift['values'] is an attribute"),
        ("global", "shape (20, 4)"),
    ],
)
def test_no_bound_over_the_weights_covers_other_numbers(place: str, reason: str) -> None:
    _, _, examples = made("mlp")
    found = panel(Shifted(place), examples, only=[*BOUNDS, "frobenius-sum"])
    assert isinstance(found["frobenius-sum"], Value)
    for name in BOUNDS:
        result = found[name]
        assert isinstance(result, Undefined) and reason in result.reason


@pytest.mark.slow
def test_the_batches_that_normalization_counted_shape_nothing() -> None:
    _, _, examples = made("mlp")
    module = Shifted("normalization").eval()
    found = panel(module, examples, only=list(BOUNDS))
    assert all(isinstance(found[name], Value) for name in BOUNDS)


@pytest.mark.slow
def test_an_attack_goes_on_from_its_file(tmp_path: Path) -> None:
    module, _, examples = made("mlp")
    path, kwargs = (
        tmp_path / "gauges.checkpoint",
        {"seed": 3, "only": ["norms", "margins", "paths"]},
    )
    whole = attack(module, examples, gauges=4, **kwargs)
    attack(module, examples, gauges=2, checkpoint=path, **kwargs)
    assert attack(module, examples, gauges=4, checkpoint=path, **kwargs) == whole
    with pytest.raises(BadInput, match="spread was"):
        attack(module, examples, gauges=4, spread=2.0, checkpoint=path, **kwargs)
    path.write_text("{")
    with pytest.raises(BadInput, match="cannot be used"):
        attack(module, examples, gauges=4, checkpoint=path, **kwargs)


def test_the_attack_tells_what_moves() -> None:
    module, initial, examples = made("cnn")
    found = attack(
        module, examples, initial=initial, gauges=4, seed=2, only=["norms", "paths", "margins"]
    )
    for entry in found.spreads:
        assert entry.verdict == ("gauge-free" if entry.measure.gauge_free else "moves")
        assert entry.low is not None and entry.high is not None
        assert relative_difference(entry.given, entry.low) <= 1 and entry.decades is not None
        assert (entry.decades > 0.01) == (entry.verdict == "moves")
    wider = attack(module, examples, gauges=4, spread=3.0, seed=2, only=["spectral-product"])
    assert wider["spectral-product"].decades > 2 * found["spectral-product"].decades
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_example_of_the_page_works_as_printed() -> None:
    (code,) = re.findall(r"```python\n(# my_measure\.py.*?)```", DOCS.read_text(), re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    try:
        exec(compile(code, "docs/measures.md", "exec"), {"__name__": "docs"})
        assert "largest-weight" in MEASURES
        assert len(lines) <= 22
    finally:
        unregister_measure("largest-weight")


def test_the_page_lists_every_measure_as_it_is() -> None:
    text = DOCS.read_text()
    for name, measure in MEASURES.items():
        formula, source = (
            part.replace("|", "&#124;") for part in (measure.formula, measure.source)
        )
        assert f"| `{name}` | {formula} | {source} |" in text


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=8))
def test_log_sum_is_the_logarithm_of_the_sum(logs: list[float]) -> None:
    largest = max(logs)
    shifted = sum(math.exp(log - largest) for log in logs)
    assert log_sum(logs) == pytest.approx(largest + math.log(shifted), rel=1e-12, abs=1e-12)
    assert log_sum(logs) >= largest


@given(st.floats(-1e6, 1e6, allow_subnormal=False), st.floats(-1e6, 1e6, allow_subnormal=False))
def test_relative_difference_is_symmetric_and_zero_only_for_equals(a: float, b: float) -> None:
    one, other = Value.of(a), Value.of(b)
    assert relative_difference(one, other) == relative_difference(other, one)
    assert (relative_difference(one, other) == 0) == (
        a == b or (a > 0 and b > 0 and math.log(a) == math.log(b))
    )
    assert relative_difference(one, Undefined("none")) == math.inf
    assert relative_difference(Undefined("a"), Undefined("b")) == 0.0


def test_a_weight_that_nothing_reads_changes_no_derivative() -> None:
    module, _, examples = made("mlp")
    larger = copy.deepcopy(module)
    larger.register_parameter("idle", nn.Parameter(torch.ones(3)))
    only = ["sharpness", "Fisher–Rao"]
    one, other = (panel(each, examples, only=only).results for each in (module, larger))
    for name, result in one.items():
        assert relative_difference(result, other[name]) < 1e-9, name
