"""Nothing falls on another device than the one that was asked for.

No accelerator is needed: tensors without numbers follow the rules of devices all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nonvacuous.data import Examples
from nonvacuous.sparsity.constants import constants
from nonvacuous.sparsity.noise import Inputs, clean_pass, noisy_pass, pair_margins
from nonvacuous.sparsity.priors import make_prior
from nonvacuous.sparsity.setting import SIZES, Setting
from nonvacuous.sparsity.thresholds import positive_gram, threshold_d, threshold_e, threshold_f
from nonvacuous.sparsity.training import ChainTraining, limit_spectral_norms, train_chain
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse
from tests.sparsity.weight_noise import random_layers


@pytest.fixture
def nowhere() -> Iterator[None]:
    """Whatever does not name its device falls where there are no numbers, and is found out."""
    torch.set_default_device("meta")
    yield
    # Not back to "cpu": every later call of torch would go through Python to hear of it.
    torch.set_default_device(None)


def _examples() -> Examples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(400, 16, generator=generator, device="cpu")
    labels = torch.randint(3, (400,), generator=generator, device="cpu")
    return Examples(inputs / inputs.norm(dim=1, keepdim=True), labels, ("a", "b", "c"), "points")


@pytest.mark.parametrize("theorem", ["A", "D", "E", "F"])
def test_every_tensor_names_its_device(nowhere: None, theorem: str) -> None:
    settings = ChainTraining(steps=20, noise=0.05, spectral_limit=1.1, activity=0.01, stability=0.1)
    prior = make_prior(
        "learned:0.3", _examples(), (8, 8), settings=settings, start="identity", seed=0,
        device="cpu",
    )  # fmt: skip
    trained = train_chain(
        prior.start, prior.bound, settings=ChainTraining(steps=10, pull=1.0), toward=prior.center,
        seed=0, device="cpu",
    )  # fmt: skip
    for variant in ("dense", "sparse"):
        found = certify_sparse(
            Layers.of(trained), Layers.of(prior.center), prior.bound,
            theorem=theorem, variant=variant, subset=100, passes=1, device="cpu",
        )  # fmt: skip
        assert found.examples == len(prior.bound)


@pytest.mark.parametrize("anchored", [False, True])
def test_thresholds_stay_on_an_accelerator(anchored: bool) -> None:
    layers = random_layers((5, 8, 7, 6, 3), torch.Generator().manual_seed(1), bias=True)
    named = constants(layers, layers, norms="each", sums="each", drift=anchored)
    longest = named.longest
    output = layers.weights[-1]
    setting = Setting(-20, (0,) * 3, 5, "cap", 8, anchored)
    sizes = Setting(-20, (0,) * 3, 5, SIZES, 2, anchored)
    weights = [torch.empty(w.shape, dtype=torch.float64, device="meta") for w in layers.weights]
    biases = [torch.empty(len(w), dtype=torch.float64, device="meta") for w in weights]
    placed = object.__new__(Layers)
    for name, value in (("weights", tuple(weights)), ("biases", tuple(biases))):
        object.__setattr__(placed, name, value)
    inputs = Inputs(
        torch.empty(9, 8, dtype=torch.float64, device="meta"),
        torch.empty(9, dtype=torch.float64, device="meta"),
        torch.empty(9, 4, dtype=torch.float64, device="meta"),
        torch.empty(9, dtype=torch.int64, device="meta"),
    )
    noise = [torch.empty(9, len(w), dtype=torch.float64, device="meta") for w in weights]
    noisy = noisy_pass(placed, inputs, setting.sigmas, noise)
    used = named.to("meta")
    used.__dict__["longest"] = longest
    units = constants(layers, layers, norms="all", sums="each", drift=anchored, units=True)
    each = units.to("meta")
    grams = tuple(positive_gram(w).to("meta") for w in layers.weights[1:-1])
    anchor = (output[:, None] - output[None]).clamp(min=0).to("meta")
    results = [
        threshold_d(noisy, inputs.labels, used, 0.1, sparse=True),
        threshold_d(noisy, inputs.labels, used, 0.1, sparse=False),
        *(
            threshold_e(noisy, inputs, used, setting, sparse=sparse, anchor=anchor)
            for sparse in (True, False)
        ),
        *(
            threshold_f(noisy, inputs, each, sizes, sparse=sparse, anchor=anchor, grams=grams)
            for sparse in (True, False)
        ),
        pair_margins(noisy.scores, inputs.labels),
        clean_pass(placed, inputs).scores,
    ]  # fmt: skip
    for result in results:
        assert result.device.type == "meta" and result.dtype == torch.float64
        assert result.shape[0] == 9


def test_layers_are_limited_together_as_one_by_one() -> None:
    generator = torch.Generator().manual_seed(2)
    shapes = [(6, 4), (6, 6), (6, 6), (3, 6), (6, 3), (2, 6)]
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    weights[2] = 0.1 * weights[2]
    alone = [matrix.clone() for matrix in weights]
    limit_spectral_norms(weights, 1.5)
    for matrix, before, middle in zip(weights, alone, [False, *[True] * 4, False], strict=True):
        if not middle or float(torch.linalg.matrix_norm(before, 2)) <= 1.5:
            assert torch.equal(matrix, before)
            continue
        left, values, right = torch.linalg.svd(before.double(), full_matrices=False)
        slow = (left * values.clamp(max=1.5)) @ right
        assert torch.allclose(matrix.double(), slow, atol=1e-5)
