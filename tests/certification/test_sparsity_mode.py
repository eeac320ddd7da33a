"""nv.certify(mode="sparsity"): training here, given networks, resuming, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import at_initialization, learned, zero_mean
from nonvacuous.errors import BadInput, NotYetSupported, Refused
from nonvacuous.kinds import prior_kind
from nonvacuous.methods.sparsity import Sparsity
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.verify import verify
from tests.audit import sparse_worlds
from tests.audit.sparse_worlds import QUICK, examples, near, network, run
from tests.starts import around


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["learned:0.2", "initialization", "zero"])
def test_a_network_that_is_trained_here(tmp_path: Path, prior: str) -> None:
    certificate = run(tmp_path / "run", method=QUICK.changed(prior=prior))
    kind, fraction = prior_kind(prior)
    record = certificate.sparsity
    assert record is not None and record.prior == kind
    assert certificate.status == "valid", str(certificate)
    assert certificate.predictor == "deterministic"
    assert certificate.data.bound.examples == (208 if fraction else 260)
    assert record.prior_fraction == pytest.approx(fraction)
    assert certificate.data.preprocessing.endswith("norm 1")
    assert record.longest_input <= 1.0
    twin = certificate.held_out_twin
    assert twin is not None and twin.examples == (208 if fraction else 52)
    assert 0.0 < certificate.risk_upper <= 1.0
    observed = certificate.observed[0]
    assert certificate.risk_upper >= observed.errors / observed.trials
    assert verify(tmp_path / "run", data=examples()).passed
    center = DiagonalGaussian.load(tmp_path / "run" / "prior.safetensors")
    zeros = all(not bool(mean.any()) for mean in center.means.values())
    assert zeros == (kind == "zero")


@pytest.mark.slow
def test_the_number_is_the_theorem_of_its_terms() -> None:
    certificate = run(None)
    record, complexity = certificate.sparsity, certificate.complexity
    assert record is not None and complexity is not None
    distance = sum(x.squared_distance / (2 * x.scale**2) for x in record.layers)
    assert complexity.kl_nats == pytest.approx(distance, rel=1e-9)
    assert record.grid_nats == pytest.approx(sum(charge.nats for charge in record.charges))
    expected = nv.bounds.kl_inverse_upper(
        record.loss_upper,
        (
            complexity.kl_nats
            + record.grid_nats
            + torch.log(torch.tensor(2 * 208**0.5 / 0.04, dtype=torch.float64)).item()
        )
        / 208,
    ) / (1 - record.escape)
    assert certificate.risk_upper == pytest.approx(min(1.0, float(expected)), rel=1e-9)
    assert [entry.name for entry in certificate.budget.entries] == ["sampling", "bound"]
    assert "Monte-Carlo" in certificate.statement and "the network" in certificate.statement


@pytest.mark.slow
def test_a_given_network_and_its_priors(tmp_path: Path) -> None:
    center, data = network(), examples()
    trained = near(center)
    found = {}
    for name, prior in (("zero", zero_mean()), ("initialization", at_initialization(center))):
        certificate = run_given(trained, prior, folder=tmp_path / name)
        assert certificate.sparsity is not None and certificate.sparsity.prior == name
        assert certificate.data.preprocessing == "as given"
        assert certificate.data.bound.examples == len(data)
        assert (certificate.held_out_twin is None) == (name == "zero")
        assert verify(tmp_path / name, data=data).passed
        assert certificate.complexity is not None
        found[name] = sum(layer.squared_distance for layer in certificate.sparsity.layers)
    assert found["initialization"] < found["zero"]
    parts = sparse_worlds.split(data)
    shared = learned(center, indices=parts.prior)
    certificate = run_given(trained, shared, split=parts)
    (seen,) = (a for a in certificate.assumptions if a.name == "the prior saw no bound example")
    assert seen.status == "asserted", "nobody here trained it"
    assert certificate.data.bound.examples == len(parts.bound)
    with pytest.raises(BadInput, match="split"):
        run_given(trained, shared)


def run_given(model: nn.Module, prior: Any, **changes: Any) -> Certificate:
    name = changes.pop("architecture", sparse_worlds.ARCHITECTURE)
    folder = nv.Run(folder=changes.pop("folder", None), architecture=name)
    method = QUICK.changed(prior=prior, **changes)
    return nv.certify(model, examples(), method=method, folder=folder)


@pytest.mark.slow
def test_layers_with_biases_and_functional_layers(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(0.5 * torch.randn(8, 4))
            self.last = nn.Linear(8, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(nn.functional.linear(inputs, self.first)))

    torch.manual_seed(0)
    module = Own()
    certificate = run_given(
        module, at_initialization(module), architecture="own", folder=tmp_path / "run"
    )
    assert certificate.sparsity is not None
    tensors = [layer.tensors for layer in certificate.sparsity.layers]
    assert tensors == [("first",), ("last.weight", "last.bias")]
    assert verify(tmp_path / "run", data=examples(), model=module).passed
    alone = verify(tmp_path / "run", data=examples())
    assert alone.passed and "model" in {finding.field for finding in alone.unchecked}


@pytest.mark.slow
def test_a_prior_that_knows_the_examples_is_refused_or_declared() -> None:
    data = digits_like()
    knowing = knowing_network(data)
    prior = at_initialization(knowing)
    method = QUICK.changed(prior=prior, twin=False)
    with pytest.raises(Refused, match="starting weights"):
        nv.certify(knowing, data, method=method)
    declared = nv.certify(knowing, data, method=method.changed(pretrained="trained elsewhere"))
    assert declared.status == "valid"


def digits_like() -> nv.data.Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 6, (200,), generator=generator)
    inputs = torch.eye(6)[labels] + 0.01 * torch.randn(200, 6, generator=generator)
    return nv.data.Examples(inputs, labels, tuple("abcdef"), "six corners")


def knowing_network(data: nv.data.Examples) -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 6, bias=False))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.eye(6))
    return module


@pytest.mark.slow
def test_vacuity_is_judged_against_a_constant_answer() -> None:
    certificate = run(None, method=QUICK.changed(theorem="A"))
    assert certificate.baseline is not None
    assert certificate.is_vacuous == (certificate.risk_upper >= certificate.baseline.risk_lower)


class Stop(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["prior", "network", "search", "fresh noise"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path: Path, phase: str) -> None:
    def stopping(name: str, done: int, total: int, message: str) -> None:
        if name == phase:
            raise Stop

    whole = tmp_path / "whole" / "run"
    run(whole)
    stopped = tmp_path / "stopped" / "run"
    with pytest.raises(Stop):
        run(stopped, progress=stopping)
    assert not (stopped / "certificate.json").exists()
    kept = {path.name for path in stopped.glob("*.checkpoint")}
    assert ("sparsity-prior.checkpoint" in kept) == (phase != "prior")
    run(stopped, resume=True)
    names = {path.name for path in whole.iterdir()}
    assert names == {path.name for path in stopped.iterdir()}
    assert "weights.safetensors" in names and not any("checkpoint" in name for name in names)
    for name in names - {"events.jsonl"}:
        assert (whole / name).read_bytes() == (stopped / name).read_bytes(), name


def stopped_before_the_network(folder: Path, **changes: Any) -> bytes:
    """A run that was stopped with its prior learned; returns the prior's checkpoint."""

    def stopping(name: str, done: int, total: int, message: str) -> None:
        if name == "network":
            raise Stop

    with pytest.raises(Stop):
        run(folder, progress=stopping, **changes)
    return (folder / "sparsity-prior.checkpoint").read_bytes()


@pytest.mark.slow
def test_a_new_run_does_not_go_on_from_what_another_left(tmp_path: Path) -> None:
    clean = run(tmp_path / "clean" / "run", seed=4)
    used = tmp_path / "used" / "run"
    stopped_before_the_network(used, seed=3)
    with pytest.raises(BadInput, match="other settings"):
        run(used, seed=4, resume=True)
    (used / "config.toml").unlink()
    with pytest.raises(BadInput, match="not the settings"):
        run(used, seed=4)
    again = run(used, seed=4, force=True)
    # The stopped run showed how training goes on the bound examples, so it counts as an attempt.
    assert (clean.status, again.status) == ("valid", "conditional")
    assert again.empirical == clean.empirical and again.bound == clean.bound
    for name in ("prior.safetensors", "weights.safetensors"):
        assert (used / name).read_bytes() == (tmp_path / "clean" / "run" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 4}, "seed was"),
        ({"method": QUICK.changed(prior_steps=61)}, "settings was"),
        ({"method": QUICK.changed(prior="learned:0.4")}, "examples was"),
    ],
)
def test_a_prior_of_another_run_is_refused(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    # It saw other examples, some of them bound examples of this run.
    other = stopped_before_the_network(tmp_path / "other" / "run", **changes)
    here = tmp_path / "here" / "run"
    own = stopped_before_the_network(here)
    assert own != other
    (here / "sparsity-prior.checkpoint").write_bytes(other)
    with pytest.raises(BadInput, match="belongs to another run") as error:
        run(here, resume=True)
    assert what in str(error.value)
    assert not (here / "certificate.json").exists()


def test_a_damaged_prior_is_refused(tmp_path: Path) -> None:
    content = bytearray(stopped_before_the_network(tmp_path / "run"))
    content[-1] ^= 1
    (tmp_path / "run" / "sparsity-prior.checkpoint").write_bytes(content)
    with pytest.raises(BadInput, match="checksum"):
        run(tmp_path / "run", resume=True)


@pytest.mark.slow
def test_a_second_certificate_on_the_same_examples_is_conditional(tmp_path: Path) -> None:
    assert run(tmp_path / "one").status == "valid"
    other = QUICK.changed(variant="dense")
    assert run(tmp_path / "two", method=other).status == "conditional"
    planned = tmp_path / "planned"
    assert run(planned / "one", attempts=2).status == "valid"
    shared = run(planned / "two", method=QUICK.changed(theorem="D"), attempts=2)
    assert shared.status == "valid"
    assert shared.budget.entries[0].name == "other certificates"
    assert verify(planned / "two", data=examples()).passed


@pytest.mark.slow
def test_inputs_keep_their_shape_when_they_are_scaled() -> None:
    data = examples()
    square = nv.data.Examples(
        data.inputs.reshape(-1, 1, 2, 2), data.labels, data.class_names, "square"
    )
    module = around(lambda inner: nn.Sequential(nn.Flatten(), *inner.layers), network())
    certificate = nv.certify(module, square, method=QUICK)
    assert certificate.status == "valid"


@pytest.mark.parametrize(
    ("make", "changes", "error", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), {}, BadInput, "bias"),
        (
            lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
            {},
            NotYetSupported,
            "only linear layers",
        ),
        (network, {"loss": bounded_cross_entropy()}, BadInput, "how often"),
    ],
)
def test_what_is_refused(make: Any, changes: Any, error: type, words: str) -> None:
    arguments: dict[str, Any] = {"method": QUICK}
    with pytest.raises(error, match=words):
        nv.certify(make(), examples(), **{**arguments, **changes})


@pytest.mark.parametrize(
    "settings",
    [
        {"theorem": "B"},
        {"variant": "thick"},
        {"prior": "learned"},
        {"prior": "learned:1"},
        {"prior": "zero:0.1"},
        {"prior": "magic"},
        {"passes": 0},
        {"pull": -1.0},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Sparsity(**settings)


def test_a_parameter_that_no_layer_uses_is_refused() -> None:
    module = network()
    module.register_parameter("spare", nn.Parameter(torch.ones(2)))
    with pytest.raises(BadInput, match="spare"):
        run_given(module, at_initialization(module))


@pytest.mark.slow
def test_the_certified_weights_are_those_of_the_file(tmp_path: Path) -> None:
    certificate = run(tmp_path / "run")
    from safetensors.torch import load_file

    module = network()
    module.load_state_dict(load_file(tmp_path / "run" / "weights.safetensors"))
    assert certificate.sparsity is not None
    read = read_network(module.eval(), examples().inputs[:2])
    assert read.digest() == certificate.sparsity.network_digest
