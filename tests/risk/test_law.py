"""The law of the outputs: the same as when all weights are drawn and the network is called."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.func import functional_call

from nonvacuous.risk.forward import prepare
from nonvacuous.risk.layers import RULES

from .networks import CASES, LOCAL, ONE_BY_ONE, Case, build

# Below this a difference in law is claimed; about 400 comparisons are made, with fixed seeds.
SUSPICIOUS = 1e-6


def oracle(network, posterior, example: Tensor, draws: int) -> Tensor:
    """One weight draw, one call, again and again; by torch's own vmap where it knows the layers."""
    generator = torch.Generator().manual_seed(101)
    single = example.unsqueeze(0)
    samples = [posterior.sample(generator=generator) for _ in range(draws)]

    def call(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(network, weights, (single,))[0]

    with torch.no_grad():
        try:
            stacked = {name: torch.stack([s[name] for s in samples]) for name in samples[0]}
            return torch.func.vmap(call, randomness="error", chunk_size=500)(stacked).double()
        except RuntimeError:
            return torch.stack([call(weights) for weights in samples]).double()


def assert_same_law(first: Tensor, second: Tensor) -> None:
    """Each coordinate, random projections (dependence between coordinates), and the winner."""
    generator = torch.Generator().manual_seed(7)
    width = first.shape[1]
    directions = torch.cat(
        [
            torch.eye(width),
            torch.ones(1, width),
            torch.randn(4, width, generator=generator),
        ]
    ).double()
    for direction in directions:
        result = stats.ks_2samp((first @ direction).numpy(), (second @ direction).numpy())
        assert result.pvalue > SUSPICIOUS
    result = stats.ks_2samp(first.norm(dim=1).numpy(), second.norm(dim=1).numpy())
    assert result.pvalue > SUSPICIOUS
    spread = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
    assert float(((first.mean(0) - second.mean(0)) / spread).abs().max()) < 5.5
    winners = [torch.bincount(x.argmax(1), minlength=width) for x in (first, second)]
    table = torch.stack(winners)
    table = table[:, table.sum(0) > 0].numpy()
    if table.shape[1] > 1:
        assert stats.chi2_contingency(table).pvalue > SUSPICIOUS


# Shortcuts for equal scales exist in local rules only.
KINDS = [
    (case, scales)
    for case in CASES
    for scales in (("mixed", "rows", "multiples", "equal") if case.method == LOCAL else ("mixed",))
]


@pytest.mark.slow_if("wide sequence-equal")
@pytest.mark.parametrize(("case", "scales"), KINDS, ids=[f"{c.name}-{s}" for c, s in KINDS])
def test_law_equals_that_of_plain_weight_draws(case: Case, scales: str) -> None:
    network, posterior, inputs = build(case, scales=scales)
    draws = 400 if case.method == ONE_BY_ONE else 2000
    with torch.no_grad():
        forward, _ = prepare(network, posterior, inputs, local=True)
        assert forward.method == case.method
        rows = torch.full((draws,), 2)
        sampled = forward(inputs, rows, torch.Generator().manual_seed(55)).double()
    assert_same_law(sampled, oracle(network, posterior, inputs[2], draws))


@pytest.mark.parametrize("case", [c for c in CASES if c.method == LOCAL], ids=lambda c: c.name)
def test_drawing_all_weights_has_the_same_law_as_local_noise(case: Case) -> None:
    network, posterior, inputs = build(case)
    rows = torch.full((4000,), 1)
    with torch.no_grad():
        local, _ = prepare(network, posterior, inputs, local=True)
        drawn, _ = prepare(network, posterior, inputs, local=False)
        assert drawn.method != local.method
        first = local(inputs, rows, torch.Generator().manual_seed(1)).double()
        second = drawn(inputs, rows, torch.Generator().manual_seed(2)).double()
    assert_same_law(first, second)


@pytest.mark.slow_if("recurrent")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_trials_of_one_pass_are_independent(case: Case) -> None:
    network, posterior, inputs = build(case)
    pairs = 300 if case.method == ONE_BY_ONE else 3000
    with torch.no_grad():
        forward, _ = prepare(network, posterior, inputs, local=True)
        # The two trials of a pair look at the same example, then at two different ones.
        for pattern in ([2, 2], [1, 4]):
            rows = torch.tensor(pattern * pairs)
            outputs = forward(inputs, rows, torch.Generator().manual_seed(9)).double()
            first, second = outputs[::2], outputs[1::2]
            for column in range(outputs.shape[1]):
                joint = torch.stack([first[:, column], second[:, column]])
                correlation = float(torch.corrcoef(joint)[0, 1])
                assert abs(correlation) < 5 / math.sqrt(pairs)


def test_every_rule_is_covered_by_a_case() -> None:
    """A new rule must bring a case: each entry is seen by at least one network above."""
    from torch.overrides import TorchFunctionMode

    seen: set[object] = set()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.add(func)
            return func(*args, **(kwargs or {}))

    for case in CASES:
        network, _, inputs = build(case)
        with torch.no_grad(), Watch():
            network(inputs)
    assert set(RULES) <= seen


def test_examples_keep_their_rows() -> None:
    """Late repetition must not mix up examples: means differ strongly between rows."""
    network, posterior, inputs = build(CASES[0])
    with torch.no_grad():
        forward, outputs = prepare(network, posterior, inputs, local=True)
        plain = network(inputs)
        rows = torch.tensor([0, 0, 1, 3, 3, 3, 5])
        assert torch.allclose(forward(inputs, rows, None), plain[rows], atol=1e-5)
    assert getattr(forward, "late", False)
    assert len(outputs) == 5
