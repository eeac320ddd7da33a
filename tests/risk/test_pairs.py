"""The estimator of independent pairs: counts, independence, memory, determinism."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.risk import layers as layers_module
from nonvacuous.risk import pairs as pairs_module
from nonvacuous.risk.losses import Loss, bounded_cross_entropy
from nonvacuous.risk.pairs import OutOfMemory, estimate_risk
from nonvacuous.seeds import DRAWS

from .networks import CASES, Case, build, seeded
from .plain import risks_of_draws


def exact_risk(network, posterior, examples, draws: int) -> tuple[float, float]:
    """Mean over plain weight draws, with its standard error (draws, not examples, count)."""
    risks = risks_of_draws(network, posterior, examples, draws=draws, generator=seeded(77))
    return float(risks.mean()), float(risks.std()) / math.sqrt(draws)


@pytest.mark.slow
def test_estimates_the_risk_over_draws_and_examples(problem) -> None:
    network, posterior, examples = problem
    result = estimate_risk(network, posterior, examples, trials=40_000, generator=seeded())
    assert result.errors is not None and result.total == result.errors
    assert (result.trials, result.scheme, result.identical) == (40_000, "pairs", True)
    assert (result.loss, result.examples, result.method) == ("zero-one", 40, "local noise")
    truth, error = exact_risk(network, posterior, examples, 4000)
    tolerance = 4 * math.hypot(error, math.sqrt(truth * (1 - truth) / 40_000))
    assert abs(result.risk - truth) < tolerance


@pytest.mark.slow_if("recurrent")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_counts_have_the_right_law_for_every_kind_of_network(case: Case) -> None:
    network, posterior, inputs = build(case)
    with torch.no_grad():
        labels = network(inputs).argmax(1)
    examples, trials = (inputs, labels), 600
    result = estimate_risk(network, posterior, examples, trials=trials, generator=seeded(4))
    assert result.method == case.method
    truth, error = exact_risk(network, posterior, examples, 400)
    tolerance = 4.5 * math.hypot(error, math.sqrt(truth * (1 - truth) / trials))
    assert abs(result.risk - truth) < tolerance


def test_a_seed_draws_the_trials_that_certificates_of_this_library_record() -> None:
    """Where these counts change on purpose, count ``nonvacuous.seeds.DRAWS`` up with them."""
    torch.manual_seed(0)
    inputs = torch.randn(50, 2, 8, 8)
    networks = (
        nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 3)),
        # Noise at few positions, and of the weights themselves.
        nn.Sequential(nn.Conv2d(2, 16, 7), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(192, 3)),
    )
    counts = []
    for network in networks:
        labels = network.eval()(inputs).argmax(1)
        for scales in (
            0.2,
            {n: 0.1 + 0.2 * torch.rand_like(p) for n, p in network.named_parameters()},
        ):
            noise = DiagonalGaussian.around(network, scale=scales)
            result = estimate_risk(network, noise, (inputs, labels), trials=500, generator=seeded())
            counts.append(result.errors)
    assert (DRAWS, counts) == ("3", [302, 300, 264, 272, 282, 286])


@pytest.mark.slow
def test_the_count_is_binomial_while_shared_draws_are_correlated(problem) -> None:
    network, posterior, examples = problem
    trials, repetitions = 40, 400
    generator = seeded(5)
    counts = torch.tensor(
        [
            estimate_risk(network, posterior, examples, trials=trials, generator=generator).errors
            for _ in range(repetitions)
        ],
        dtype=torch.float64,
    )
    p = float(counts.mean()) / trials
    statistic = float(counts.var()) / (trials * p * (1 - p)) * (repetitions - 1)
    assert 1e-5 < stats.chi2.cdf(statistic, repetitions - 1) < 1 - 1e-5
    shared = risks_of_draws(network, posterior, examples, draws=repetitions, generator=generator)
    # Forty examples with one draw are far from forty independent trials.
    assert float(shared.var() / (p * (1 - p) / trials)) > 2


def test_tiny_scales_reproduce_the_plain_network(problem) -> None:
    network, _, examples = problem
    inputs, labels = examples
    still = DiagonalGaussian.around(network, scale=1e-20)
    with torch.no_grad():
        wrong = network(inputs).argmax(1) != labels
    for index in range(0, 40, 5):
        one = (inputs[index : index + 1], labels[index : index + 1])
        result = estimate_risk(network, still, one, trials=25, generator=seeded())
        assert result.errors == 25 * int(wrong[index])
    whole = estimate_risk(network, still, examples, trials=20_000, generator=seeded())
    expected = float(wrong.double().mean())
    assert abs(whole.risk - expected) < 4 * math.sqrt(expected * (1 - expected) / 20_000)


def test_examples_are_drawn_uniformly_with_replacement(problem) -> None:
    network, _, _ = problem
    inputs = torch.randn(5, 4)
    labels = torch.zeros(5, dtype=torch.int64)
    still = DiagonalGaussian.around(network, scale=1e-20)
    for target in range(5):
        # A loss that only looks at which example it was given.
        with torch.no_grad():
            mark = network(inputs)[target]
        loss = Loss(
            name="which",
            lower=0.0,
            upper=1.0,
            binary=True,
            function=lambda outputs, _, mark=mark: ((outputs - mark).norm(dim=1) < 1e-4).float(),
        )
        result = estimate_risk(
            network, still, (inputs, labels), loss=loss, trials=5000, generator=seeded(target)
        )
        assert stats.binomtest(result.errors, 5000, 0.2).pvalue > 1e-5


def test_module_and_buffers_are_untouched() -> None:
    case = next(case for case in CASES if case.name == "batch norm")
    network, posterior, inputs = build(case)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    identities = [id(parameter) for parameter in network.parameters()]
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    for local in (True, False):
        estimate_risk(
            network, posterior, (inputs, labels), trials=50, generator=seeded(), local=local
        )
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert identities == [id(parameter) for parameter in network.parameters()]
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not network.training


def test_accepts_any_object_with_inputs_and_labels(problem) -> None:
    network, posterior, (inputs, labels) = problem
    bundle = SimpleNamespace(inputs=inputs, labels=labels.to(torch.int32))
    first = estimate_risk(network, posterior, bundle, trials=500, generator=seeded())
    second = estimate_risk(network, posterior, (inputs, labels), trials=500, generator=seeded())
    assert first == second


def test_the_result_is_a_function_of_the_generator(problem) -> None:
    network, posterior, examples = problem
    loss = bounded_cross_entropy(1e-4)
    runs = [
        estimate_risk(
            network, posterior, examples, loss=loss, trials=300, generator=seeded(seed)
        ).total
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_any_chunk_and_its_progress(problem, chunk: int) -> None:
    network, posterior, examples = problem
    calls: list[tuple[int, int]] = []
    result = estimate_risk(
        network,
        posterior,
        examples,
        trials=300,
        generator=seeded(),
        chunk=chunk,
        progress=lambda done, total: calls.append((done, total)),
    )
    truth, _ = exact_risk(network, posterior, examples, 500)
    assert abs(result.risk - truth) < 5 * math.sqrt(truth * (1 - truth) / 300)
    assert calls[-1] == (300, 300)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert len(calls) == math.ceil(300 / chunk)


def test_runs_out_of_memory_gracefully(problem, monkeypatch: pytest.MonkeyPatch) -> None:
    network, posterior, examples = problem
    real, sizes = pairs_module.prepare, []

    def limited_to(limit: int):
        def prepare(*arguments, **options):
            forward, probe = real(*arguments, **options)

            def limited(inputs, rows, generator):
                sizes.append(len(rows))
                outputs = forward(inputs, rows, generator)
                if len(rows) > limit:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                return outputs

            limited.method, limited.bytes_per_trial = forward.method, 1
            return limited, probe

        return prepare

    monkeypatch.setattr(pairs_module, "prepare", limited_to(100))
    calls: list[tuple[int, int]] = []
    halved = estimate_risk(
        network,
        posterior,
        examples,
        trials=1000,
        generator=seeded(),
        chunk=512,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert sizes[:4] == [512, 256, 128, 64]
    assert calls[-1] == (1000, 1000)
    # The noise of the failed attempts was given back: as if 64 had been asked for.
    monkeypatch.setattr(pairs_module, "prepare", real)
    small = estimate_risk(network, posterior, examples, trials=1000, generator=seeded(), chunk=64)
    assert halved.errors == small.errors
    monkeypatch.setattr(pairs_module, "prepare", limited_to(0))
    with pytest.raises(OutOfMemory, match="single trial"):
        estimate_risk(network, posterior, examples, trials=100, generator=seeded(), chunk=8)


@pytest.mark.parametrize(("name", "looks"), [("mlp", 1), ("tied", 3)])
def test_a_pilot_finds_what_estimates_find(
    name: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where local noise does, the network is looked at once; elsewhere once more than estimated."""
    network, _, inputs = build(next(case for case in CASES if case.name == name))
    examples = inputs, torch.arange(len(inputs)) % 3
    posteriors = [DiagonalGaussian.around(network, scale=scale) for scale in (0.2, 1.0)]
    options = {"loss": pairs_module.zero_one, "trials": 200}
    expected = [
        estimate_risk(network, posterior, examples, generator=seeded(), **options)
        for posterior in posteriors
    ]
    real, calls = pairs_module.prepare, []

    def counted(*arguments, **more):
        calls.append(arguments)
        return real(*arguments, **more)

    monkeypatch.setattr(pairs_module, "prepare", counted)
    pilot = pairs_module.RiskPilot(network, examples)
    for posterior, one in zip(posteriors, expected, strict=True):
        assert pilot(posterior, generator=seeded(), **options).errors == one.errors
    assert len(calls) == looks
    assert expected[0].errors != expected[1].errors


def test_a_pilot_multiplies_the_first_weights_once_for_each_point(monkeypatch) -> None:
    network = seeded_network()
    inputs, labels = torch.randn(40, 4, generator=seeded(1)), torch.arange(40) % 3
    other = DiagonalGaussian.around(network, scale=0.3)
    moved = DiagonalGaussian(
        means={name: 1.5 * mean for name, mean in other.means.items()}, scales=other.scales
    )
    given = [DiagonalGaussian.around(network, scale=scale) for scale in (0.1, 0.3, 1.0)]
    real, made = layers_module._moments, []

    def counted(vectors, *more):
        made.append(vectors.shape)
        return real(vectors, *more)

    monkeypatch.setattr(layers_module, "_moments", counted)
    pilot = pairs_module.RiskPilot(network, (inputs, labels))
    options = {"loss": pairs_module.zero_one, "trials": 300}

    def same(posterior: DiagonalGaussian) -> int:
        """First layers that the pilot multiplied, once it agrees with an estimate from scratch."""
        before = len(made)
        errors = pilot(posterior, generator=seeded(), **options).errors
        first = sum(shape == (40, 4) for shape in made[before:])
        scratch = estimate_risk(network, posterior, (inputs, labels), generator=seeded(), **options)
        assert errors == scratch.errors
        return first

    assert [same(posterior) for posterior in (*given, moved, given[0])] == [1, 0, 0, 1, 0]
    inputs.mul_(-1.0)  # what was known of the examples before is worthless
    assert same(given[0]) == 1


def seeded_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def test_outputs_that_are_not_finite_count_as_errors(problem) -> None:
    _, _, examples = problem

    class Broken(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return torch.log(-super().forward(inputs).abs() - 1)

    broken = Broken(4, 3).eval()
    posterior = DiagonalGaussian.around(broken)
    result = estimate_risk(broken, posterior, examples, trials=200, generator=seeded())
    assert result.errors == 200
    loss = bounded_cross_entropy(1e-3)
    result = estimate_risk(broken, posterior, examples, loss=loss, trials=200, generator=seeded())
    assert result.total == 200.0
    # Only some draws overflow: those count, and the others are judged as usual.
    network = nn.Linear(4, 3).eval()
    wild = DiagonalGaussian.around(network, scale=1e38)
    result = estimate_risk(network, wild, examples, trials=2000, generator=seeded())
    truth, error = exact_risk(network, wild, examples, 1000)
    assert abs(result.risk - truth) < 4 * math.hypot(error, math.sqrt(0.25 / 2000))


def test_losses_outside_their_range_raise(problem) -> None:
    network, posterior, examples = problem
    wrong = Loss(name="too large", lower=0.0, upper=0.5, function=lambda o, y: o.norm(dim=1))
    with pytest.raises(BadInput, match="outside its declared range"):
        estimate_risk(network, posterior, examples, loss=wrong, trials=50, generator=seeded())


def test_bounded_losses_are_summed(problem) -> None:
    network, posterior, examples = problem
    loss = bounded_cross_entropy(1e-4)
    result = estimate_risk(
        network, posterior, examples, loss=loss, trials=20_000, generator=seeded()
    )
    assert result.errors is None and 0 < result.total < 20_000
    shared = risks_of_draws(network, posterior, examples, loss=loss, draws=1000, generator=seeded())
    assert result.risk == pytest.approx(float(shared.mean()), abs=0.01)


def test_ranges_other_than_the_unit_interval(problem) -> None:
    network, posterior, examples = problem
    unit = bounded_cross_entropy(1e-4)
    wide = Loss(name="wide", lower=-1.0, upper=3.0, function=lambda o, y: 4 * unit(o, y) - 1)
    first = estimate_risk(network, posterior, examples, loss=unit, trials=500, generator=seeded())
    second = estimate_risk(network, posterior, examples, loss=wide, trials=500, generator=seeded())
    assert second.total == pytest.approx(first.total, rel=1e-5)
    assert second.risk == pytest.approx(4 * first.risk - 1, rel=1e-5)


def test_double_precision_is_followed(problem) -> None:
    network, _, (inputs, labels) = problem
    network = network.double()
    posterior = DiagonalGaussian.around(network, scale=0.3)
    result = estimate_risk(
        network, posterior, (inputs.double(), labels), trials=200, generator=seeded()
    )
    assert result.trials == 200
    with pytest.raises(BadInput, match="dtype"):
        estimate_risk(network, posterior, (inputs, labels), trials=200, generator=seeded())


def test_surrounding_mixed_precision_is_ignored(problem) -> None:
    network, posterior, examples = problem
    plain = estimate_risk(network, posterior, examples, trials=2000, generator=seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = estimate_risk(network, posterior, examples, trials=2000, generator=seeded())
    assert plain == inside


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_a_gpu(case: Case) -> None:
    network, posterior, inputs = build(case)
    with torch.no_grad():
        labels = network(inputs).argmax(1)
    truth, error = exact_risk(network, posterior, (inputs, labels), 800)
    network.to("cuda")
    moved = posterior.to("cuda")
    trials = 400
    for place in ("cpu", "cuda"):
        result = estimate_risk(
            network,
            moved,
            (inputs.to(place), labels.to(place)),
            trials=trials,
            generator=torch.Generator(place).manual_seed(4),
        )
        assert result.method == case.method
        tolerance = 4.5 * math.hypot(error, math.sqrt(truth * (1 - truth) / trials))
        assert abs(result.risk - truth) < tolerance
    with pytest.raises(BadInput, match="one device"):
        estimate_risk(network, posterior, (inputs, labels), trials=5, generator=seeded())
