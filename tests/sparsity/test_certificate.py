"""Certificates of whole networks: ledgers, planted mistakes, worlds of known risk, bad input."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from nonvacuous.bounds.holdout import sampling
from nonvacuous.bounds.sparsity import derandomized, integer_nats
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, InvalidCertificate, NotYetSupported
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import constants as rounding
from nonvacuous.sparsity.certify import SparsityCertificate, final_estimate
from nonvacuous.sparsity.constants import constants, measured
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.noise import read_inputs
from nonvacuous.sparsity.setting import Setting, total_nats
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse, judge
from tests.sparsity.weight_noise import random_layers

ALL = [(t, v) for t in ("A", "D", "E", "F") for v in ("dense", "sparse")]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _examples(inputs: Tensor, labels: Tensor, classes: int = 3) -> Examples:
    names = tuple(str(c) for c in range(classes))
    return Examples(inputs.float(), labels, names, "made for a test")


def _problem(seed: int = 0, *, sizes: tuple[int, ...] = (6, 12, 10, 3), n: int = 2000, bias=False):  # type: ignore[no-untyped-def]
    """A network near its prior, and examples that it mostly gets right."""
    generator = _generator(seed)
    prior = random_layers(sizes, generator, bias=bias)
    network = Layers.of(
        [w + 0.002 * torch.randn(w.shape, generator=generator).double() for w in prior.weights],
        prior.biases,
    )
    inputs = torch.randn(n, sizes[0], generator=generator)
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    values = inputs.double()
    for k, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ w.T + (0.0 if b is None else b)
        values = values.clamp(min=0) if k < network.hidden else values
    labels = values.argmax(1)
    flipped = torch.rand(n, generator=generator) < 0.05
    labels = torch.where(flipped, (labels + 1) % sizes[-1], labels)
    return network, prior, _examples(inputs, labels, sizes[-1])


@pytest.mark.slow_if("F-sparse", "E-sparse")
@pytest.mark.parametrize(("theorem", "variant"), ALL)
def test_a_certificate_adds_up_and_is_written_and_read(theorem: str, variant: str) -> None:
    network, prior, examples = _problem()
    call = dict(theorem=theorem, variant=variant, passes=2, subset=400, seed=5)
    certificate = certify_sparse(network, prior, examples, **call)  # type: ignore[arg-type]
    again = certify_sparse(network, prior, examples, **call)  # type: ignore[arg-type]
    assert certificate == again
    assert certificate.risk_upper >= certificate.network_errors / len(examples)
    assert certificate.grid_nats >= math.fsum(line.nats for line in certificate.charges)
    kl = sum(
        d / (2 * s * s)
        for d, s in zip(certificate.squared_distances, certificate.scales, strict=True)
    )
    assert certificate.kl_nats == pytest.approx(kl, rel=1e-9)
    if theorem == "A":
        share = certificate.errors / certificate.trials
        expected = certificate.escape + (1 - certificate.escape) * share
        assert certificate.loss_upper == pytest.approx(min(1.0, expected))
        assert certificate.confidence == pytest.approx(0.95)
    else:
        assert certificate.trials == 2 * len(examples)
        assert certificate.loss_upper == sampling(
            errors=certificate.errors, trials=certificate.trials, failure=0.01, identical=False
        )
        assert certificate.confidence == pytest.approx(0.94)
    assert certificate.risk_upper == derandomized(
        loss_upper=certificate.loss_upper,
        escape=certificate.escape,
        kl_nats=certificate.kl_nats,
        grid_nats=certificate.grid_nats,
        examples=len(examples),
        failure=certificate.failure,
    )
    text = json.dumps(certificate.to_dict())
    assert TypeAdapter(SparsityCertificate).validate_python(json.loads(text)) == certificate


@pytest.mark.slow
def test_theorem_e_says_something_about_a_network_near_its_prior() -> None:
    for bias in (False, True):
        network, prior, examples = _problem(3, n=4000, bias=bias)
        certificate = certify_sparse(network, prior, examples, subset=1000)
        assert certificate.network_errors / len(examples) < certificate.risk_upper < 0.3


def test_every_constant_covers_the_network_and_is_charged() -> None:
    generator = _generator(1)
    for seed in range(4):
        network = random_layers((5, 9, 7, 4), _generator(seed))
        for prior in (network, network.zero(), random_layers((5, 9, 7, 4), generator)):
            truth = measured(network)
            for entries in ("each", "all"):
                for named in (False, True):
                    found = constants(
                        network, prior, norms=entries, sums=entries, drift=True, named=named
                    )  # type: ignore[arg-type]
                    rounding.check_covering(found, truth)
                    names = [line.name for line in found.charges]
                    assert len(names) == len(set(names))
                    for word in ("norms of output", "sums of output", "row norms", "spectral"):
                        assert any(word in name for name in names)
                    assert found.drift is not None
                    moved = network.weights[-1] - prior.weights[-1]
                    for y in range(4):
                        drift = (moved[y] - moved).clamp(min=0).norm(dim=1).max()
                        assert found.drift >= float(drift)


def test_the_drift_covers_networks_that_share_a_large_part_with_their_prior() -> None:
    """Every class has the same huge weights in the prior: moving from them is rounded coarsely."""
    network = random_layers((3, 5, 3), _generator(4))
    for size in (1e6, 1e12, 1e18, 1e30):
        common = torch.full((3, 5), size, dtype=torch.float64)
        # The prior's pairs do not differ at all, so the network's own pairs are the drift.
        prior = Layers.of([network.weights[0], common])
        found = constants(network, prior, norms="all", sums=None, drift=True)
        assert found.drift is not None
        output = network.weights[-1]
        true = max(float((row - output).clamp(min=0).norm(dim=1).max()) for row in output)
        assert found.drift >= true


def test_top_tables_against_brute_force() -> None:
    from itertools import combinations

    network = random_layers((3, 5, 3), _generator(2))
    truth = measured(network)
    output = network.weights[-1].numpy()
    for y, c in ((0, 1), (2, 0)):
        v = output[y] - output[c]
        for n in range(6):
            sets = [list(s) for s in combinations(range(5), n)]
            norm = max(np.linalg.norm(v[s]) for s in sets)
            total = max(np.maximum(v[s], 0).sum() for s in sets)
            assert norm <= float(truth.pair_norms[y, c, n]) <= norm * (1 + 1e-12)
            assert total <= float(truth.pair_sums[y, c, n]) <= total * (1 + 1e-12)


@pytest.mark.slow_if("E")
@pytest.mark.parametrize("theorem", ["A", "E"])
def test_one_of_several_certificates_pays_for_the_choice(theorem: str) -> None:
    network, prior, examples = _problem()
    call = dict(theorem=theorem, subset=300, passes=1)
    alone = certify_sparse(network, prior, examples, **call)  # type: ignore[arg-type]
    among = certify_sparse(network, prior, examples, choices=6, **call)  # type: ignore[arg-type]
    lines = {line.name: line.nats for line in among.charges}
    assert lines["which certificate is reported"] == pytest.approx(math.log(6))
    assert "which certificate is reported" not in {line.name for line in alone.charges}
    if theorem == "E":
        assert among.sampling_failure == pytest.approx(0.01 / 6)
    with pytest.raises(BadInput, match="choices"):
        certify_sparse(network, prior, examples, choices=0, **call)  # type: ignore[arg-type]


@pytest.mark.slow
def test_one_table_serves_all_pairs_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, prior, examples = _problem()
    apart = measured(network)
    honest = certify_sparse(network, prior, examples, subset=300, passes=1)
    monkeypatch.setattr(rounding, "LARGEST_TABLE", 10)
    together = measured(network)
    assert together.pair_norms.shape == (1, 1, 11)
    assert torch.equal(together.pair_norms[0, 0], apart.pair_norms.amax((0, 1)))
    assert torch.equal(together.pair_sums[0, 0], apart.pair_sums.amax((0, 1)))
    for theorem in ("D", "E"):
        for variant in ("dense", "sparse"):
            certificate = certify_sparse(
                network, prior, examples, theorem=theorem, variant=variant, subset=300, passes=1
            )  # type: ignore[arg-type]
            assert certificate.risk_upper > honest.network_errors / len(examples)


def test_a_constant_that_changes_changes_the_ledger() -> None:
    network, prior, _ = _problem()
    base = constants(network, prior, norms="all", sums="all")
    for layer in (1, 2):
        weights = list(network.weights)
        weights[layer] = weights[layer] * 3.0
        other = constants(Layers.of(weights), prior, norms="all", sums="all")
        assert total_nats(other.charges) > total_nats(base.charges)
        assert {line.choice for line in other.charges} != {line.choice for line in base.charges}


def test_a_constant_rounded_down_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    network, prior, examples = _problem()
    honest = rounding._covering

    def planted(*arguments):  # type: ignore[no-untyped-def]
        table, index = honest(*arguments)
        return table * 2.0 ** (-1 / 64), index - 1

    monkeypatch.setattr(rounding, "_covering", planted)
    with pytest.raises(InvalidCertificate, match="output weights"):
        certify_sparse(network, prior, examples, subset=200, passes=1)


def test_the_weights_of_all_settings_sum_to_at_most_one() -> None:
    """Kraft: shares of every setting of a one-hidden-layer certificate, enumerated far out."""
    base = Setting(0, (0,), 0, "cap", 0, False)
    dense = [line.nats for line in base.charges(sparse=False)]
    fixed = {line.name: line.nats for line in base.charges(sparse=False)}
    ladder = math.fsum(math.exp(-integer_nats(j)) for j in range(-5000, 5001))
    total = 121 * math.exp(-fixed["noise scale of layer 1"]) * ladder
    total *= 12 * math.exp(-fixed["escape probability"])
    total *= 2 * math.exp(-fixed["tail: form"]) * ladder
    assert len(dense) == 5
    assert total <= 1.0 + 1e-9
    pairs = math.fsum(1 / ((i + 1) * (i + 2)) for i in range(10_000))
    assert pairs <= 1.0
    shapes = math.exp(-math.log(2)) + (len(rounding.EXPONENTS) - 1) * math.exp(-math.log(16))
    assert shapes <= 1.0


def test_the_final_noise_is_not_the_noise_of_the_search() -> None:
    """Freezing comes first: the final seed depends on the setting, and on the network."""
    network, prior, examples = _problem()
    inputs = read_inputs(network, prior, examples)
    evaluator = judge(network, prior, theorem="E", sparse=True, passes=1)
    setting = Setting(-20, (0, 0), 7, "exponential", 0, False)
    other = dataclasses.replace(setting, escape=8)
    seeds = {derived_seed(0, "final", network.digest(), s) for s in (setting, other)}
    seeds |= {derived_seed(0, "search"), derived_seed(0, "final", prior.digest(), setting)}
    assert len(seeds) == 4
    first = final_estimate(evaluator, setting, inputs, examples, seed=0)
    assert first == final_estimate(evaluator, setting, inputs, examples, seed=0)
    # What the certificate counted is what a pass with the final seed gives, and no other.
    counts = []
    for seed in (derived_seed(0, "final", network.digest(), setting), derived_seed(0, "search")):
        passes = evaluator.fresh_passes(setting, inputs, passes=1, seed=seed)
        counts.append(sum(int(evaluator.judged(setting, p, z)[0].sum()) for p, z in passes))
    assert first.errors == counts[0] != counts[1]


def test_picking_the_luckiest_noise_would_break_the_sampling_bound() -> None:
    """Why a reused seed must not be counted: the best of many estimates is too small."""
    generator = np.random.default_rng(0)
    truth, trials, failure = 0.3, 400, 0.05
    reused = fresh = 0
    for _ in range(200):
        best = int(generator.binomial(trials, truth, size=100).min())
        reused += sampling(errors=best, trials=trials, failure=failure, identical=False) < truth
        again = int(generator.binomial(trials, truth))
        fresh += sampling(errors=again, trials=trials, failure=failure, identical=False) < truth
    # Allowed are 10 of 200 in expectation.
    assert reused > 50
    assert fresh <= 20


def _fitted(prior: Layers, examples: Examples) -> Layers:
    weights = [w.clone().requires_grad_() for w in prior.weights]
    x, y = examples.inputs.double(), examples.labels
    optimizer = torch.optim.Adam(weights, lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        scores = (x @ weights[0].T).clamp(min=0) @ weights[1].T
        nn.functional.cross_entropy(scores, y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Layers.of([w.detach() for w in weights])


@pytest.mark.slow
def test_claims_about_networks_fitted_to_coin_flips_are_never_false() -> None:
    """Labels are coin flips, so every network has risk 1/2; each is certified on its own sample."""
    generator = _generator(4)
    prior = random_layers((10, 30, 2), generator)
    false = planted = fitted = 0
    rounds = 10
    for round_ in range(rounds):
        inputs = torch.randn(100, 10, generator=generator)
        inputs = inputs / inputs.norm(dim=1, keepdim=True)
        examples = _examples(inputs, torch.randint(2, (100,), generator=generator), 2)
        network = _fitted(prior, examples)
        certificate = certify_sparse(
            network,
            prior,
            examples,
            theorem="E" if round_ % 2 else "D",
            subset=100,
            passes=1,
            seed=round_,
        )
        false += certificate.risk_upper < 0.5
        # A planted mistake: a certificate that forgets how far the network moved is false here.
        evaluator = judge(network, prior, theorem="E", sparse=False, passes=1)
        estimate = final_estimate(
            evaluator,
            Setting(-40, (0,), 5, "exponential", 0, False),
            read_inputs(network, prior, examples),
            examples,
            seed=round_,
        )
        forgotten = derandomized(
            loss_upper=estimate.loss_upper,
            escape=estimate.escape,
            kl_nats=0.0,
            grid_nats=estimate.grid_nats,
            examples=100,
            failure=0.05,
        )
        planted += forgotten < 0.5
        fitted += estimate.network_errors < 20
    assert false == 0
    assert planted >= rounds // 2
    assert fitted == rounds


@pytest.mark.slow
def test_at_zero_distance_claims_still_hold_in_repeated_samples() -> None:
    """The tight case: the network is the prior, and its true risk is known exactly."""
    generator = _generator(6)
    angles = torch.arange(40, dtype=torch.float64) * (2 * math.pi / 40)
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    network = random_layers((2, 20, 2), generator)
    scores = (points @ network.weights[0].T).clamp(min=0) @ network.weights[1].T
    truth = (scores[:, 1] > scores[:, 0]).long()
    failure, failures, planted, repeats = 0.4, 0, 0, 40
    for repeat in range(repeats):
        which = torch.randint(40, (150,), generator=generator)
        wrong = torch.rand(150, generator=generator) < 0.2
        labels = torch.where(wrong, 1 - truth[which], truth[which])
        certificate = certify_sparse(
            network,
            network,
            _examples(points[which], labels, 2),
            confidence=1 - failure,
            sampling_failure=0.1,
            subset=60,
            passes=1,
            seed=repeat,
        )
        failures += certificate.risk_upper < 0.2
        # A planted mistake: claiming the measured error itself.
        planted += certificate.network_errors / 150 < 0.2
    assert failures <= 0.5 * repeats
    assert planted >= 0.3 * repeats


def test_a_plain_network_is_read_from_a_module() -> None:
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(5, 3)
    ).eval()
    layers = read_network(module, torch.zeros(2, 1, 2, 2))
    assert layers.widths == (5,) and layers.classes == 3 and layers.names == ("1", "4")
    assert torch.equal(layers.weights[0], module[1].weight.detach().double())
    assert layers.biases[1] is not None
    assert torch.equal(layers.biases[1], module[4].bias.detach().double())


@pytest.mark.parametrize(
    ("module", "word"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "only linear layers"),
        (nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)), "no ReLU between"),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU()), "must end in"),
        (nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)), "1"),
    ],
)
def test_other_networks_are_refused_by_name(module: nn.Module, word: str) -> None:
    with pytest.raises(NotYetSupported, match=word):
        read_network(module.eval(), torch.zeros(2, 4))


def test_bad_input_is_refused_with_the_remedy() -> None:
    network, prior, examples = _problem(n=300)

    def fails(
        word: str, *, layers: Layers = network, before: Layers = prior, data=examples, **more
    ):  # type: ignore[no-untyped-def]
        with pytest.raises(BadInput, match=word):
            certify_sparse(layers, before, data, subset=100, **more)

    zero_row = [w.clone() for w in network.weights]
    zero_row[1][3] = 0.0
    fails("unit 3.*never active", layers=Layers.of(zero_row))
    dead = [w.clone() for w in network.weights]
    dead[0][:] = 0.0
    fails("every weight of layer 1 is zero", layers=Layers.of(dead))
    silent = [network.weights[0], -network.weights[1].abs(), network.weights[2]]
    fails("no unit of layer 2 is active", layers=Layers.of(silent))
    same = [network.weights[0], network.weights[1], torch.ones(3, 10)]
    fails("every example is a tie", layers=Layers.of(same))
    fails("too few", data=examples.subset(range(99)))
    four = Examples(
        examples.inputs, examples.labels + 1, ("a", "b", "c", "d"), "labels out of range"
    )
    fails("labels run from 1 to 3", data=four)
    fails("the prior has", before=random_layers((6, 11, 10, 3), _generator(0)))
    fails("takes 5", layers=random_layers((5, 12, 10, 3), _generator(0)),
          before=random_layers((5, 12, 10, 3), _generator(0)))  # fmt: skip
    fails("has a bias", before=random_layers((6, 12, 10, 3), _generator(0), bias=True))
    fails("theorem must be", theorem="Z")
    fails(r"confidence must lie strictly between 0 and 1, got confidence = 1\.5", confidence=1.5)
    with pytest.raises(BadInput, match="NaN"):
        Layers.of([torch.full((3, 2), math.nan), torch.ones(2, 3)])
    with pytest.raises(BadInput, match="no hidden layer"):
        Layers.of([torch.ones(2, 3)])
    with pytest.raises(BadInput, match="takes 4 inputs"):
        Layers.of([torch.ones(3, 2), torch.ones(2, 4)])
    with pytest.raises(BadInput, match="one output"):
        Layers.of([torch.ones(3, 2), torch.ones(1, 3)])
