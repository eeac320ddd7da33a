"""certify as a user calls it: what it promises, what it refuses, what it leaves behind."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.certification import assemble, measurement
from nonvacuous.data import Dataset, Examples, split_examples
from nonvacuous.errors import BadInput, Refused
from nonvacuous.networks import capture, rescaled, scale_groups
from nonvacuous.risk.losses import bounded_cross_entropy
from tests.starts import around
from tests.training.calls import train

QUICK = {
    "plain_training": nv.PlainTraining(epochs=8, batch_size=32),
    "training": nv.PosteriorTraining(epochs=3, batch_size=64),
}
#: Where it matters how often something is certified, and not how well.
BRIEF = {
    "plain_training": nv.PlainTraining(epochs=1, batch_size=64),
    "training": nv.PosteriorTraining(epochs=1, batch_size=128),
}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return nv.data.digits()


def small(digits: Dataset, spec: str = "mlp:32") -> nn.Module:
    return nv.models.build(spec, digits.train.example_shape, 10, seed=0)


@pytest.fixture(scope="module")
def initial(digits: Dataset) -> nn.Module:
    return small(digits)


@pytest.fixture(scope="module")
def trained(digits: Dataset, initial: nn.Module) -> nn.Module:
    return train(initial, digits.train, epochs=12, batch_size=32, seed=0).module


def reasons(certificate: nv.Certificate) -> str:
    return " ".join(a.name for a in certificate.assumptions if a.effect != "none")


def test_a_posterior_certificate_verifies(digits: Dataset, tmp_path: Path) -> None:
    certificate = nv.certify(
        small(digits),
        digits.train,
        method=nv.Posterior(trials=20_000, **QUICK),
        test=digits.test,
        folder=nv.Run(folder=tmp_path / "run", architecture="mlp:32"),
    )
    assert certificate.status == "valid"
    assert not certificate.is_vacuous
    assert certificate.held_out_twin is not None
    assert certificate.data.bound.examples == 719
    verification = nv.verify(tmp_path / "run", data=digits.train)
    verification.raise_if_failed()
    assert any("fresh trials" in f.name and f.passed for f in verification.findings)


def test_processors_that_round_otherwise_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name and instructions alone they may be the same, and training on them is not."""
    named = set()
    for rough in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda answer=rough: answer)
        named.add(assemble._processor.__wrapped__())
    assert len(named) == 2


def test_the_network_given_is_not_changed(digits: Dataset, initial: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in initial.state_dict().items()}
    nv.certify(initial, digits.train, method=nv.Posterior(trials=500, twin=False, **QUICK))
    assert all(torch.equal(before[name], t) for name, t in initial.state_dict().items())


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run(digits: Dataset, tmp_path: Path) -> None:
    method = nv.Posterior(trials=500, twin=False, **QUICK)
    arguments = {"method": method, "seed": 3}
    first = nv.certify(small(digits), digits.train, folder=tmp_path / "a", **arguments)
    with pytest.raises(BadInput, match="holds a run already"):
        nv.certify(small(digits), digits.train, folder=tmp_path / "a", **arguments)
    again = nv.certify(small(digits), digits.train, folder=tmp_path / "a", resume=True, **arguments)
    assert again == first
    with pytest.raises(BadInput, match="trials"):
        nv.certify(
            small(digits),
            digits.train,
            folder=tmp_path / "a",
            resume=True,
            **{**arguments, "method": method.changed(trials=501)},
        )
    (tmp_path / "b").mkdir()
    other = nv.certify(small(digits), digits.train, folder=tmp_path / "b" / "run", **arguments)
    assert other.model_dump_json() == first.model_dump_json()


def test_a_posterior_that_moves_while_it_is_measured_is_refused(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = measurement.estimate_risk

    def moving(module, posterior, *given, **options):
        estimate = honest(module, posterior, *given, **options)
        next(iter(posterior.means.values())).add_(0.01)
        return estimate

    monkeypatch.setattr(measurement, "estimate_risk", moving)
    method = nv.Posterior(trials=200, twin=False, **QUICK)
    certificate = nv.certify(small(digits), digits.train, method=method)
    refused = {a.name for a in certificate.assumptions if a.effect == "refused"}
    assert {
        "the KL belongs to the frozen posterior",
        "the risk belongs to the frozen posterior",
    } <= refused


@pytest.mark.slow
def test_the_gauge_of_the_weights_does_not_matter(
    digits: Dataset, initial: nn.Module, trained: nn.Module
) -> None:
    groups = scale_groups(capture(trained, digits.train.inputs[:2]))
    moved = rescaled(trained, groups, np.random.default_rng(0).normal(size=groups.size) * 2.0)
    prior = nv.priors.at_initialization(initial)
    plain, other = (
        nv.certify(network, digits.train, method=nv.PostHoc(prior=prior, trials=20_000, twin=False))
        for network in (trained, moved)
    )
    assert plain.rescaling is not None and other.rescaling is not None
    # The weights themselves are float32, so the moved ones are a rounding away.
    assert other.rescaling.kl_after == pytest.approx(plain.rescaling.kl_after, rel=1e-5)
    assert plain.rescaling.kl_after < plain.rescaling.kl_before
    assert other.risk_upper == pytest.approx(plain.risk_upper, abs=0.01)
    unmoved = nv.certify(
        moved, digits.train, method=nv.PostHoc(prior=prior, trials=500, twin=False, rescaling=False)
    )
    assert unmoved.risk_upper > other.risk_upper + 0.1


class InDoubles(nn.Module):
    """The network in float64, where a gauge can be applied without losing digits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(inputs.double())
        return scores


NOISE = nv.priors.ScaleGrid((0.1,))
GRID = nv.priors.ScaleGrid.geometric(0.01, 1.0, 9)


@pytest.mark.slow
@pytest.mark.parametrize("center", ["zero", "initialization"])
def test_any_gauge_gives_the_same_complexity(
    digits: Dataset, initial: nn.Module, trained: nn.Module, center: str
) -> None:
    network, start = InDoubles(trained).eval(), around(InDoubles, initial).eval()
    prior = (
        nv.priors.zero_mean(grid=GRID)
        if center == "zero"
        else nv.priors.at_initialization(start, grid=GRID)
    )
    groups = scale_groups(capture(network, digits.train.inputs[:2]))
    found = []
    for seed in range(3):
        moves = np.random.default_rng(seed).normal(size=groups.size) * 2.0 * (seed > 0)
        moved = rescaled(network, groups, moves)
        certificate = nv.certify(
            moved,
            digits.train,
            method=nv.PostHoc(prior=prior, posterior_scales=NOISE, trials=500, twin=False),
        )
        assert certificate.status == "valid", str(certificate)
        assert certificate.complexity is not None and certificate.complexity.symmetries
        found.append(certificate.complexity)
    for complexity in found[1:]:
        assert complexity.kl_nats == pytest.approx(found[0].kl_nats, rel=1e-9)
        assert complexity.symmetry_nats == pytest.approx(found[0].symmetry_nats, rel=1e-9)


@pytest.mark.slow
def test_every_column_is_there_and_one_is_certified(
    digits: Dataset, initial: nn.Module, trained: nn.Module
) -> None:
    certificate = nv.certify(
        trained,
        digits.train,
        method=nv.PostHoc(
            prior=nv.priors.at_initialization(initial, grid=GRID),
            posterior_scales=NOISE,
            trials=500,
            twin=False,
        ),
    )
    assert certificate.rescaling is not None and certificate.complexity is not None
    columns = certificate.rescaling.columns
    ways = ["fixed scale", "fixed scale, rescaled", "best scale"]
    assert [c.way for c in columns if c.center == "zero"] == [
        *ways,
        "best scale, rescaled",
        "best scale per tensor, rescaled",
    ]
    # What the certified prior starts from stands right before its further steps.
    assert [c.way for c in columns if c.center == "initialization"] == [
        *ways,
        "best scale per tensor, rescaled",
        "best scale, rescaled",
        "scale of the scores",
        "shift of the scores",
    ]
    assert [c.certified for c in columns] == [False] * (len(columns) - 1) + [True]
    assert columns[-1].kl_nats == certificate.complexity.kl_nats
    assert columns[-1].kl_inverse == certificate.risk_upper
    by_way = {c.way: c for c in columns if c.center == "initialization"}
    assert by_way["fixed scale, rescaled"].kl_nats <= by_way["fixed scale"].kl_nats
    assert by_way["best scale"].kl_nats == certificate.rescaling.kl_before
    assert by_way["scale of the scores"].kl_nats == certificate.rescaling.kl_after
    assert by_way["shift of the scores"].kl_nats < by_way["scale of the scores"].kl_nats
    for column in columns:
        assert column.kl_inverse <= column.mcallester
        assert (column.charge_nats > 0) == ("best" in column.way or "scores" in column.way)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, bounded_cross_entropy(0.01)])
def test_quotients_are_switched_one_by_one(
    digits: Dataset, trained: nn.Module, loss: object
) -> None:
    found = {}
    both = ("translation", "permutation")
    for which in (both, (), ("translation",), ("permutation",)):
        certificate = nv.certify(
            trained,
            digits.train,
            method=nv.PostHoc(
                prior=nv.priors.zero_mean(grid=GRID),
                posterior_scales=NOISE,
                trials=300,
                twin=False,
                **{name: name in which for name in both},
            ),
            **({} if loss is None else {"loss": loss}),
        )
        assert certificate.status == "valid"
        assert certificate.complexity is not None and certificate.rescaling is not None
        used = {s.symmetry for s in certificate.complexity.symmetries}
        assert used == set(which)
        assert certificate.rescaling.columns[-1].certified
        found[which] = certificate.complexity.kl_nats
    assert found[both] < min(found[("translation",)], found[("permutation",)])
    assert max(found[("translation",)], found[("permutation",)]) < found[()]


def test_a_network_that_cannot_be_captured_is_certified_without_symmetries(
    digits: Dataset, trained: nn.Module
) -> None:
    class Opaque(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = copy.deepcopy(trained)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if float(inputs.sum()) > 1e9:
                return inputs
            scores: torch.Tensor = self.network(inputs)
            return scores

    certificate = nv.certify(
        Opaque(),
        digits.train,
        method=nv.PostHoc(
            prior=nv.priors.zero_mean(grid=GRID), posterior_scales=NOISE, trials=300, twin=False
        ),
    )
    assert certificate.status == "valid", str(certificate)
    assert certificate.complexity is not None
    assert certificate.complexity.symmetries == () and certificate.rescaling is None


def test_one_drawn_network_uses_no_symmetry(digits: Dataset, trained: nn.Module) -> None:
    arguments = {
        "prior": nv.priors.zero_mean(grid=GRID),
        "posterior_scales": NOISE,
        "predictor": "drawn",
        "twin": False,
    }
    certificate = nv.certify(trained, digits.train, method=nv.PostHoc(**arguments))
    assert certificate.complexity is not None and certificate.rescaling is not None
    assert certificate.complexity.symmetries == () and certificate.rescaling.columns == ()
    with pytest.raises(BadInput, match="randomized network"):
        nv.Posterior(predictor="drawn", translation=True)
    with pytest.raises(BadInput, match="change nothing"):
        nv.PostHoc(**arguments, translation=False)


@pytest.mark.slow
def test_a_trained_posterior_may_use_them_if_asked(digits: Dataset) -> None:
    method = nv.Posterior(trials=300, twin=False, **QUICK)
    plain = nv.certify(small(digits), digits.train, method=method)
    asked = nv.certify(small(digits), digits.train, method=method.changed(translation=True))
    assert plain.complexity is not None and asked.complexity is not None
    assert plain.complexity.symmetries == ()
    assert 0 < asked.complexity.symmetry_nats < 0.5 * plain.complexity.kl_nats
    assert asked.status == "valid"


@pytest.mark.slow
def test_weights_that_know_the_examples_are_no_start(digits: Dataset, trained: nn.Module) -> None:
    with pytest.raises(Refused, match="starting weights"):
        nv.certify(trained, digits.train, method=nv.Posterior(trials=500, twin=False, **QUICK))
    declared = nv.certify(
        trained,
        digits.train,
        method=nv.Posterior(trials=500, twin=False, pretrained="trained elsewhere", **QUICK),
    )
    assert declared.status == "valid"


@pytest.mark.slow
def test_batch_statistics_learned_on_the_bound_examples_are_no_start(digits: Dataset) -> None:
    def normalized() -> nn.Module:
        layers = (nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
        return nn.Sequential(nn.Flatten(), *layers)

    start = nv.models.seeded(normalized, seed=0)
    fitted = train(start, digits.train, epochs=2, batch_size=64, seed=0).module
    for seen in (False, True):
        if seen:
            start.train()(digits.train.inputs)
        prior = nv.priors.at_initialization(start.eval())
        method = nv.PostHoc(prior=prior, trials=500, twin=False, rescaling=False)
        certificate = nv.certify(fitted, digits.train, method=method)
        assert ("starting weights" in reasons(certificate)) == seen


class Memorizing(nn.Module):
    """One weight, and a table of examples in plain attributes: the label of the nearest one."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.table = {"inputs": inputs.flatten(1), "labels": labels.numpy().copy()}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        apart = torch.cdist(inputs.flatten(1), self.table["inputs"])
        votes = nn.functional.one_hot(torch.from_numpy(self.table["labels"]), 10)
        return self.gain * (torch.relu(1.0 - apart) @ votes.to(apart.dtype))


@pytest.mark.parametrize(
    ("center", "predictor"), [("zero", "stochastic"), ("initialization", "drawn")]
)
def test_examples_kept_as_attributes_are_refused(
    digits: Dataset, center: str, predictor: Literal["stochastic", "drawn"]
) -> None:
    data = digits.train.subset(np.arange(300))
    start = Memorizing(torch.zeros_like(data.inputs), torch.zeros_like(data.labels)).eval()
    fitted = Memorizing(data.inputs, data.labels).eval()
    prior = nv.priors.zero_mean() if center == "zero" else nv.priors.at_initialization(start)
    method = nv.PostHoc(
        prior=prior,
        predictor=predictor,
        posterior_scales=NOISE,
        trials=500,
        twin=False,
        rescaling=False,
    )
    if center != "zero":  # with the prior's weights its tables still know every example
        with pytest.raises(Refused, match="starting weights"):
            nv.certify(fitted, data, method=method)
        return
    certificate = nv.certify(fitted, data, method=method)
    assert certificate.status == "refused"
    assert "not random" in reasons(certificate)


class Centering(nn.Module):
    """Subtracts a number that was fixed long ago and is kept as a plain attribute."""

    def __init__(self, network: nn.Module, center: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        self.centers = [torch.full((1, 8, 8), center)]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(inputs - self.centers[0])
        return scores


@pytest.mark.slow
def test_attributes_that_no_example_shaped_are_part_of_the_certificate(
    digits: Dataset, initial: nn.Module, trained: nn.Module, tmp_path: Path
) -> None:
    network = Centering(trained, 0.125).eval()
    start = around(lambda inner: Centering(inner, 0.125), initial).eval()
    initialized = nv.priors.at_initialization(initial)
    method = nv.PostHoc(prior=initialized, trials=500, twin=False, posterior_scales=NOISE)
    bare = nv.certify(trained, digits.train, method=method)
    method = method.changed(prior=nv.priors.at_initialization(start))
    made = nv.certify(network, digits.train, folder=tmp_path / "a" / "run", method=method)
    assert made.status == "valid", str(made)
    assert made.model.fixed_digest != bare.model.fixed_digest
    # The stored tensors say what the network was; another center is put right by them.
    for center in (0.125, 0.25):
        model = Centering(trained, center).eval()
        nv.verify(tmp_path / "a" / "run", data=digits.train, model=model).raise_if_failed()
    plain = nv.verify(tmp_path / "a" / "run", data=digits.train, model=trained)
    assert not plain.passed
    # Another center is another network, and no way to go on with this run.
    with pytest.raises(BadInput, match="attributes"):
        other = Centering(trained, 0.25).eval()
        nv.certify(other, digits.train, folder=tmp_path / "a" / "run", resume=True, method=method)


@pytest.mark.slow
def test_one_drawn_network(digits: Dataset, tmp_path: Path) -> None:
    certificate = nv.certify(
        small(digits),
        digits.train,
        method=nv.Posterior(predictor="drawn", twin=False, **QUICK),
        folder=nv.Run(folder=tmp_path / "run", architecture="mlp:32"),
    )
    assert certificate.bound.name == "disintegrated"
    assert certificate.empirical.scheme == "every example once"
    nv.verify(tmp_path / "run", data=digits.train).raise_if_failed()


def test_a_plain_test(digits: Dataset, trained: nn.Module, tmp_path: Path) -> None:
    assert digits.test is not None
    certificate = nv.certify(
        trained, digits.test, method=nv.HeldOut(unseen=True), folder=tmp_path / "run"
    )
    expected = nv.bounds.holdout(errors=certificate.empirical.errors, examples=360, failure=0.05)
    assert certificate.risk_upper == expected
    assert certificate.predictor == "deterministic"
    nv.verify(tmp_path / "run", data=digits.test, model=trained).raise_if_failed()


def test_a_bounded_loss_is_summed(digits: Dataset) -> None:
    certificate = nv.certify(
        small(digits),
        digits.train,
        method=nv.Posterior(trials=2_000, twin=False, **QUICK),
        loss=bounded_cross_entropy(0.01),
    )
    assert certificate.empirical.errors is None
    assert certificate.empirical.total is not None
    assert certificate.status == "valid"


@pytest.mark.slow
def test_several_certificates_on_the_same_examples(digits: Dataset, tmp_path: Path) -> None:
    def run(name: str, **settings: object) -> nv.Certificate:
        return nv.certify(
            small(digits),
            digits.train,
            method=nv.Posterior(
                split=split_examples(digits.train, prior_fraction=0.5, seed=1),
                trials=500,
                twin=False,
                **BRIEF,
            ),
            folder=tmp_path / name,
            **settings,
        )

    assert run("first").status == "valid"
    second = run("second", seed=1)
    assert second.status == "conditional"
    assert "earlier certificates" in reasons(second)
    # The first one kept all of the failure probability: there is nothing left to share.
    late = run("third", seed=2, attempts=3)
    assert late.status == "conditional" and "spent" not in late.lines()[3]
    assert late.budget.entries[0].name == "other certificates"
    # Computed again with its share, it has spent all the same what it spent at first.
    for name, seed in (("second", 1), ("third", 2)):
        assert run(name, seed=seed, attempts=3, force=True).status == "conditional"
    assert run("fourth", seed=3, attempts=100).status == "conditional"
    # Planned from the start, all three are paid for.
    for seed in range(3):
        assert run(f"planned/{seed}", seed=seed, attempts=3).status == "valid"


@pytest.mark.slow
def test_the_best_of_several_seeds_is_a_search(digits: Dataset, tmp_path: Path) -> None:
    method = nv.Posterior(trials=500, twin=False, **BRIEF)

    def run(name: str, data: Examples, **settings: object) -> nv.Certificate:
        arguments = {"method": method, **settings}
        return nv.certify(small(digits), data, folder=tmp_path / name, **arguments)

    data = digits.train
    first = run("first", data)
    assert first.status == "valid"
    # Another seed makes another split, and so do another fraction and another order.
    other = run("second", data, seed=1)
    assert other.data.bound.content_digest != first.data.bound.content_digest
    turned = data.subset(np.arange(len(data))[::-1])
    for certificate in (
        other,
        run("third", data, method=method.changed(prior_fraction=0.3)),
        run("fourth", turned),
        run("fifth", data, method=nv.HeldOut(unseen=True)),  # all examples, as a plain test
        # The same pixels in a row, for a network that reads them so.
        run("sixth", Examples(data.inputs.flatten(1), data.labels, data.class_names, "flat")),
    ):
        assert certificate.status == "conditional"
        assert "earlier certificates on these examples are paid for" in reasons(certificate)
    # A run that is resumed, or done again, is the same attempt; planned attempts are valid.
    assert run("first", data, resume=True) == first
    assert run("first", data, force=True).status == "valid"
    for seed in range(3):
        planned = run(f"planned/{seed}", data, seed=seed, attempts=3)
        assert planned.status == "valid"
    assert run("apart/run", data, seed=3).status == "valid", "another folder, another memory"
    assert run("seventh", data.subset(np.arange(1000)), seed=3).status == "valid", "other examples"


@pytest.mark.slow
def test_a_learned_prior_of_the_users_own(digits: Dataset, initial: nn.Module) -> None:
    split = split_examples(digits.train, prior_fraction=0.5, seed=4)
    center = train(initial, digits.train.subset(split.prior), epochs=12, batch_size=32).module
    prior = nv.priors.learned(center, indices=split.prior)
    network = train(center, digits.train, epochs=1, batch_size=64, learning_rate=0.001).module
    with pytest.raises(BadInput, match="split"):
        nv.certify(network, digits.train, method=nv.PostHoc(prior=prior))
    certificate = nv.certify(
        network,
        digits.train,
        method=nv.PostHoc(prior=prior, split=split, trials=5_000, rescaling=False),
    )
    assert certificate.status == "valid"
    (seen,) = (a for a in certificate.assumptions if a.name == "the prior saw no bound example")
    assert seen.status == "asserted", "nobody here trained it"
    assert certificate.data.bound.examples == len(split.bound)
    wrong = split_examples(digits.train, prior_fraction=0.5, seed=5)
    few = nv.PostHoc(prior=prior, split=wrong, trials=500, rescaling=False, twin=False)
    assert nv.certify(network, digits.train, method=few).status == "refused"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"attempts": 0}, "attempts"),
        ({"method": "post-hoc"}, "method must be"),
        ({"method": nv.PostHoc(prior="initialization")}, "before training"),
    ],
)
def test_bad_settings_are_named_before_any_work(
    digits: Dataset,
    initial: nn.Module,
    settings: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(BadInput, match=message):
        nv.certify(initial, digits.train, **settings)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (nv.Posterior, {"predictor": "ensemble"}, "predictor must be 'stochastic' or 'drawn'"),
        (nv.Posterior, {"trials": 0}, "trials must be at least 1"),
        (nv.Posterior, {"trials": 10.0}, "trials must be an integer"),
        (nv.Posterior, {"prior_scale": -1.0}, "prior_scale must be positive"),
        (nv.Posterior, {"prior_scale": (0.1, 0.1)}, "prior_scale must hold distinct"),
        (nv.Posterior, {"prior_fraction": 1.0}, "prior_fraction = 1"),
        (nv.Posterior, {"twin": 1}, "twin"),
        (nv.Posterior, {"rescaling": True}, "Posterior has no setting 'rescaling'; it has pred"),
        (nv.Posterior, {"training": {"epochs": 0}}, "epochs must be at least 1"),
        (nv.PosteriorTraining, {"objective": "luck"}, "objective must be 'quadratic', "),
        (nv.PostHoc, {}, "PostHoc needs a prior"),
        (nv.PostHoc, {"prior": "learned:0.2"}, "no prior 'learned:0.2'"),
        (nv.PostHoc, {"prior": 3}, "nv.priors"),
        (nv.PostHoc, {"prior": nv.priors.zero_mean(), "prior_scale": 0.1}, "scales of its own"),
        (nv.Sparsity, {"theorem": "Z"}, "theorem must be"),
        (nv.HeldOut, {"trials": 5}, "HeldOut has no setting 'trials'; it has unseen"),
    ],
)
def test_bad_settings_of_a_method_are_named_when_it_is_made(
    kind: type, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        kind(**settings)


def test_a_method_is_frozen_and_changed_by_copy() -> None:
    method = nv.Posterior(trials=5)
    with pytest.raises(ValueError, match="frozen"):
        method.trials = 6
    assert method.changed(trials=6) == nv.Posterior(trials=6)
    with pytest.raises(BadInput, match="trials"):
        method.changed(trials=0)
    # What TOML gives back is the same method.
    import tomllib

    from nonvacuous.certification.run_folder import to_toml

    grid = nv.Posterior(prior_scale=(0.2, 0.1), training={"epochs": 3})
    assert nv.Posterior(**tomllib.loads(to_toml(grid.record()))) == grid


@pytest.mark.parametrize("value", [[None], [{"a": 1}], math.inf, {1}])
def test_what_toml_cannot_hold_is_refused(value) -> None:
    from nonvacuous.certification.run_folder import to_toml

    with pytest.raises(BadInput, match="cannot be stored"):
        to_toml({"setting": value})


def test_too_few_examples(initial: nn.Module, digits: Dataset) -> None:
    few: Examples = digits.train.subset(range(30))
    with pytest.raises(BadInput, match="30"):
        nv.certify(initial, few)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
def test_weights_of_another_precision_are_converted_and_named(
    digits: Dataset, kind: torch.dtype
) -> None:
    network = small(digits).to(kind)
    method = nv.Posterior(trials=100, twin=False, **QUICK)
    certificate = nv.certify(network, digits.train, method=method)
    name = str(kind).removeprefix("torch.")
    assert certificate.model.conversions == (f"weights converted from {name} to float32",)
    alike = nv.certify(small(digits).to(kind).float(), digits.train, method=method)
    assert certificate.risk_upper == alike.risk_upper and alike.model.conversions == ()
    assert next(network.parameters()).dtype == kind


@pytest.mark.slow
def test_a_network_in_doubles_that_casts_its_inputs_is_certified_as_it_is(
    digits: Dataset, trained: nn.Module, tmp_path: Path
) -> None:
    network = InDoubles(trained).eval()
    prior = nv.priors.zero_mean(grid=GRID)
    method = nv.PostHoc(prior=prior, posterior_scales=NOISE, trials=500, twin=False)
    certificate = nv.certify(network, digits.train, method=method, folder=tmp_path / "run")
    assert certificate.status == "valid" and certificate.model.conversions == ()
    nv.verify(tmp_path / "run", data=digits.train, model=network).raise_if_failed()


@pytest.mark.slow
def test_a_run_of_another_version_is_not_gone_on_with(digits: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    method = nv.Posterior(trials=200, twin=False, **QUICK)

    def stop(phase: str, done: int, total: int, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nv.certify(small(digits), digits.train, method=method, folder=folder, progress=stop)
    config = folder / "config.toml"
    lines = config.read_text(encoding="utf-8").splitlines()
    # As the first version wrote it: no format.
    config.write_text("\n".join(line for line in lines if not line.startswith("format")))
    with pytest.raises(BadInput, match="another version of nonvacuous began"):
        nv.certify(small(digits), digits.train, method=method, folder=folder, resume=True)
    nv.certify(small(digits), digits.train, method=method, folder=folder, force=True)


@pytest.mark.parametrize("seed", range(3))
def test_units_that_save_more_than_there_is_are_compared(seed: int) -> None:
    """Near a prior of zero, a guess at what the order of units saves exceeds the KL."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
    inputs = torch.randn(200, 10)
    method = nv.PostHoc(prior="zero", trials=200, twin=False)
    certificate = nv.certify(network, (inputs, (inputs[:, 0] > 0).long()), method=method)
    assert certificate.status == "valid" and certificate.complexity.kl_nats > 0
