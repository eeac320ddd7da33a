"""Randomness derived from (seed, purpose, position), and batches of nearly equal size."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.training.loop import (
    batch_edges,
    borrowed_global_generator,
    shuffled,
)


@given(st.integers(1, 500), st.integers(1, 600))
def test_batches_cover_everything_once_and_evenly(examples: int, batch_size: int) -> None:
    edges = batch_edges(examples, batch_size)
    sizes = [after - before for before, after in itertools.pairwise(edges)]
    assert edges[0] == 0 and edges[-1] == examples
    assert len(sizes) == -(-examples // batch_size)
    assert max(sizes) <= batch_size and min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


def test_every_epoch_has_its_own_order() -> None:
    orders = [shuffled(50, seed=3, epoch=epoch) for epoch in range(3)]
    assert all(sorted(order.tolist()) == list(range(50)) for order in orders)
    assert not torch.equal(orders[0], orders[1]) and not torch.equal(orders[1], orders[2])
    assert torch.equal(orders[1], shuffled(50, seed=3, epoch=1))
    assert not torch.equal(orders[1], shuffled(50, seed=4, epoch=1))


def test_borrowed_generator_is_given_back_even_after_an_error() -> None:
    before = torch.get_rng_state()
    try:
        with borrowed_global_generator(torch.device("cpu")) as reseed:
            reseed(5)
            first = torch.rand(3)
            reseed(5)
            assert torch.equal(first, torch.rand(3))
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.equal(before, torch.get_rng_state())
