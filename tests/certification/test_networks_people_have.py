"""Networks as people have them: what they take and return is converted, and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.certification import adapting
from nonvacuous.certification.adapting import (
    LOGITS,
    ONE_LOGIT,
    ONE_PROBABILITY,
    PROBABILITIES,
    TOKENS,
)
from nonvacuous.errors import BadInput
from nonvacuous.risk.losses import bounded_cross_entropy

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 6, generator=GENERATOR)
LABELS = (INPUTS[:, 0] > 0).long()
WORDS = torch.randint(0, 5, (300, 12), generator=GENERATOR)
UNSEEN = nv.HeldOut(unseen=True)


class Network(nn.Module):
    def __init__(self, returning: Callable[[Tensor], Any], outputs: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))
        self.returning = returning

    def forward(self, inputs: Tensor) -> Any:
        return self.returning(self.layers(inputs))


class Reader(nn.Module):
    def __init__(self, words: int = 5) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(words, 4), nn.Linear(4, 2)

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.embedding(words).mean(1))
        return scores


def as_is(scores: Tensor) -> Tensor:
    return scores


FOREIGN: dict[str, tuple[Callable[[], nn.Module], Tensor, str]] = {
    "tuple": (lambda: Network(lambda s: (s, 0 * s)), INPUTS, LOGITS),
    "dict": (lambda: Network(lambda s: {"loss": s.sum(), "logits": s}), INPUTS, LOGITS),
    "logits": (lambda: Network(lambda s: SimpleNamespace(logits=s)), INPUTS, LOGITS),
    "one logit": (lambda: Network(as_is, 1), INPUTS, ONE_LOGIT),
    "flat logit": (lambda: Network(lambda s: s[:, 0], 1), INPUTS, ONE_LOGIT),
    "probability": (lambda: Network(torch.sigmoid, 1), INPUTS, ONE_PROBABILITY),
    "softmax": (lambda: Network(lambda s: s.softmax(1)), INPUTS, PROBABILITIES),
    "float16": (lambda: Network(as_is).half(), INPUTS, "weights converted from float16 to float32"),
    "float64": (lambda: Network(as_is).double(), INPUTS, "weights converted from float64 to"),
    "tokens": (Reader, WORDS, TOKENS),
}


@pytest.mark.nightly_if(
    "post-hoc-dict",
    "post-hoc-tuple",
    "post-hoc-logits",
    "post-hoc-flat",
    "post-hoc-probability",
)
@pytest.mark.slow_if("post-hoc")
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("mode", ["holdout", "post-hoc"])
def test_certified_verified_and_said(kind: str, mode: str, tmp_path: Path) -> None:
    build, inputs, said = FOREIGN[kind]
    torch.manual_seed(1)
    network = build()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    prior = nv.priors.at_initialization(network)
    quick = {"twin": False, "trials": 2_000, "posterior_scales": 0.01}
    method = UNSEEN if mode == "holdout" else nv.PostHoc(prior=prior, **quick)
    data = (inputs, LABELS)
    certificate = nv.certify(network, data, method=method, folder=tmp_path / "run")
    assert certificate.status != "refused"
    assert said in str(certificate)
    checked = nv.verify(tmp_path / "run", data=data, model=network, trials=2_000)
    assert checked.verified, [finding.detail for finding in checked.failures]
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert after[next(iter(before))].dtype == before[next(iter(before))].dtype


def test_one_logit_answers_the_second_class_above_zero() -> None:
    network = Network(as_is, 1)
    with torch.no_grad():
        errors = int(((network(INPUTS)[:, 0] > 0).long() != LABELS).sum())
    certificate = nv.certify(network, (INPUTS, LABELS), method=UNSEEN)
    assert certificate.empirical.errors == errors


@pytest.mark.parametrize("end", ["module", "function", "flat", "softmax"])
def test_one_probability_answers_the_second_class_above_one_half(end: str) -> None:
    """Read as a logit, every probability would answer the second class."""
    ends: dict[str, Callable[[Tensor], Tensor]] = {
        "module": as_is,
        "function": torch.sigmoid,
        "flat": lambda s: torch.sigmoid(s).squeeze(1),
        "softmax": lambda s: torch.softmax(nn.functional.pad(s, (1, 0)), 1)[:, 1],
    }
    network = Network(ends[end], 1)
    if end == "module":
        network.layers.append(nn.Sigmoid())
    with torch.no_grad():
        answers = (network(INPUTS).reshape(-1) > 0.5).long()
    certificate = nv.certify(network, (INPUTS, answers), method=UNSEEN)
    assert certificate.empirical.errors == 0 < int(answers.sum()) < len(answers)
    assert ONE_PROBABILITY in str(certificate)


def test_scores_between_zero_and_one_are_probabilities_only_where_something_makes_them() -> None:
    """An untrained network may start with logits that all lie there; a clamp says neither."""
    network = Network(as_is, 1)
    with torch.no_grad():
        network.layers[2].weight.mul_(0.01)
        network.layers[2].bias.fill_(0.3)
    assert ONE_LOGIT in str(nv.certify(network, (INPUTS, LABELS), method=UNSEEN))
    clamped = Network(lambda s: s.clamp(0.0, 1.0), 1)
    with pytest.raises(BadInput, match=r"a probability .* or a logit"):
        nv.certify(clamped, (INPUTS, LABELS), method=UNSEEN)


def test_softmax_inside_the_network_is_said_and_other_losses_refused() -> None:
    network = Network(lambda s: s.softmax(1))
    with torch.no_grad():
        errors = int((network(INPUTS).argmax(1) != LABELS).sum())
    certificate = nv.certify(network, (INPUTS, LABELS), method=UNSEEN)
    assert certificate.empirical.errors == errors
    assert PROBABILITIES in str(certificate)
    assert PROBABILITIES not in str(nv.certify(Network(as_is), (INPUTS, LABELS), method=UNSEEN))
    method = nv.PostHoc(prior=nv.priors.zero_mean(), twin=False)
    with pytest.raises(BadInput, match="softmax of its own"):
        nv.certify(network, (INPUTS, LABELS), method=method, loss=bounded_cross_entropy(0.01))


def test_evaluate_takes_no_single_score_for_an_answer() -> None:
    """The largest of one score is always the first."""
    with pytest.raises(BadInput, match="one score for each input"):
        nv.evaluate(Network(as_is, 1).eval(), (INPUTS, LABELS), unseen=True)


def test_one_logit_has_no_shift_of_its_scores_to_forget() -> None:
    """A common shift of [0, z] is none of z: forgetting the last bias would be wrong."""
    network = Network(as_is, 1)
    method = nv.PostHoc(
        prior=nv.priors.zero_mean(), twin=False, trials=1_000, posterior_scales=0.01
    )
    certificate = nv.certify(network, (INPUTS, LABELS), method=method)
    assert certificate.complexity is not None
    assert "translation" not in {saving.symmetry for saving in certificate.complexity.symmetries}


def test_a_word_beyond_the_embedding() -> None:
    with pytest.raises(BadInput, match=r"whole numbers from 0 to 4 .* embedding large enough"):
        words = WORDS.clone()
        words[:2] = 0
        nv.certify(Reader(words=4), (words, LABELS), method=UNSEEN)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (LogisticRegression(), "an estimator.*nv.evaluate"),
        (lambda inputs: inputs[:, :2], "a torch.nn.Module, and this is a function"),
        (Network, "Network is a class; give a network of it"),
        (nn.Linear(6, 2, device="meta"), "'weight' is on the device meta.*load_state_dict"),
        (nn.Linear(6, 1), "regression"),
        (nn.Linear(6, 4), r"returned \(2, 4\) for 2 examples of 3 classes"),
        (Network(lambda s: {"loss": None}), "returned a dict without scores"),
        ("resnet", "and this is a str"),
    ],
)
def test_what_cannot_be_certified_says_why_and_what_to_do(given: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        nv.certify(given, (INPUTS, LABELS + (INPUTS[:, 1] > 1).long()), method=UNSEEN)


def test_settings_and_confidence_in_words() -> None:
    network = Network(as_is)
    data = (INPUTS, LABELS)
    for wrong in ("posterior", nv.Posterior, {"mode": "posterior"}):
        with pytest.raises(BadInput, match=r"method must be nv.Posterior\(\)"):
            nv.certify(network, data, method=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"loss must be .*nv.zero_one"):
        nv.certify(network, data, loss="zero_one")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"confidence = 95; did you mean 0\.95\?") as caught:
        nv.certify(network, data, confidence=95)
    assert "probability that the claim is false" not in str(caught.value)


def test_a_path_and_its_test_part(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "mine.npz"
    np.savez(path, X_train=INPUTS, y_train=LABELS, X_test=INPUTS[:9], y_test=LABELS[:9])
    prior = nv.priors.zero_mean()
    method = nv.PostHoc(
        prior=prior, twin=False, trials=1_000, rescaling=False, posterior_scales=0.01
    )
    certificate = nv.certify(Network(as_is), str(path), method=method)
    assert "on the test examples" in " ".join(o.name for o in certificate.observed)
    again = nv.certify(
        Network(as_is), (INPUTS, LABELS), test=(INPUTS[:5], torch.zeros(5).long()), method=method
    )
    assert any(o.trials == 5 for o in again.observed)


def test_batch_normalization_is_folded_where_the_network_lies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Examples lie in memory, the network on a GPU: it was called on the former, and refused."""
    seen: list[str] = []

    def fold(module: nn.Module, inputs: Tensor) -> nn.Module:
        seen.append(inputs.device.type)
        return module

    monkeypatch.setattr(adapting, "fold_batch_norm", fold)
    adapting.folded(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).to("meta"), INPUTS[:2])
    assert seen == ["meta"]


class Versioned(nn.Linear):
    """Keeps more than tensors in its state_dict."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        del state


@pytest.mark.parametrize("method", [UNSEEN, nv.Posterior(), nv.Progressive()])
def test_more_than_tensors_in_the_state_is_refused(method: Any) -> None:
    with pytest.raises(BadInput, match=r"'_extra_state'.*nv\.evaluate"):
        nv.certify(Versioned(6, 2), (INPUTS, LABELS), method=method)


@pytest.mark.parametrize("method", [UNSEEN, nv.Posterior(), nv.Progressive()])
def test_a_parameter_of_whole_numbers_is_refused_in_words(method: Any) -> None:
    network = nn.Linear(6, 2)
    network.codes = nn.Parameter(torch.arange(3), requires_grad=False)
    with pytest.raises(BadInput, match=r"'codes' holds torch\.int64.*register_buffer"):
        nv.certify(network, (INPUTS, LABELS), method=method)


def test_a_network_that_is_spread_over_devices_is_given_itself() -> None:
    with pytest.raises(BadInput, match=r"model\.module"):
        nv.certify(nn.DataParallel(nn.Linear(6, 2)), (INPUTS, LABELS), method=UNSEEN)


def test_tokens_are_not_standardized_and_given_no_recipe() -> None:
    def embedding() -> nn.Module:
        return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(48, 2))

    for method in (nv.Posterior(standardize=True), nv.Progressive(standardize=True)):
        with pytest.raises(BadInput, match="whole numbers that the network looks up"):
            nv.certify(embedding, (WORDS.float(), LABELS), method=method)
    plain = nv.Posterior()
    assert plain.advice((12,), tokens=True) is None and plain.advice((6, 4)) is None
    assert "tables" in str(plain.advice((12,))) and "images" in str(plain.advice((1, 8, 8)))


class Without(nn.Module):
    """Scores that lead back to no weight."""

    def __init__(self, guard: Callable[[], Any]) -> None:
        super().__init__()
        self.layer, self.guard = nn.Linear(6, 2), guard

    def forward(self, inputs: Tensor) -> Tensor:
        with self.guard():
            return self.layer(inputs)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("prior_fraction", [0.0, 0.5])
def test_networks_without_gradients_are_not_trained(guard: Any, prior_fraction: float) -> None:
    method = nv.Posterior(prior_fraction=prior_fraction, twin=False, trials=100)
    with pytest.raises(BadInput, match="no gradient reaches"):
        nv.certify(Without(guard), (INPUTS, LABELS), method=method)


def test_parameters_without_numbers_are_refused() -> None:
    network = nn.Sequential(nn.Linear(6, 2))
    network.register_parameter("none", nn.Parameter(torch.zeros(0)))
    with pytest.raises(BadInput, match="'none' holds no number"):
        nv.certify(network, (INPUTS, LABELS), method=UNSEEN)


class Mixed(nn.Module):
    """Under autocast in its own forward, as mixed precision is often written."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(inputs).float()


def test_networks_of_mixed_precision_are_verified(tmp_path: Path) -> None:
    method = nv.Posterior(twin=False, trials=200, plain_training=nv.PlainTraining(epochs=2))
    folder = tmp_path / "runs" / "mixed"
    nv.certify(Mixed, (INPUTS, LABELS), method=method, folder=folder)
    path, data = folder / "certificate.json", nv.data.Examples.of((INPUTS, LABELS))
    assert not nv.verify(path, folder, data=data, model=Mixed()).failures
