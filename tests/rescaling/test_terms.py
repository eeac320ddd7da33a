"""The collapsed problem says the same as the full tensors, value and derivative alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Collector, Matrix, Terms
from tests.rescaling.hand_groups import ARCHITECTURES, Sketch, cnn, grouped, mlp, pinned
from tests.rescaling.problems import kl_by_definition, posterior, prior


@pytest.mark.parametrize("centered", [True, False], ids=["zero means", "other means"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_value_and_derivative_are_those_of_the_full_tensors(name: str, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=11), prior(groups, seed=11, centered=centered)
    log_scales = torch.from_numpy(np.random.default_rng(11).normal(size=groups.size))
    log_scales.requires_grad_()
    expected = kl_by_definition(Q, P, groups, log_scales)
    expected.backward()
    whole = collapse(Reading.of(Q, P), groups)
    assert whole.centered == centered
    descent = Descent(whole, log_scales)
    assert descent.nats(descent.totals()) == pytest.approx(expected.item(), rel=1e-12)
    slopes = torch.from_numpy(descent.derivatives()[0])
    torch.testing.assert_close(slopes, log_scales.grad, rtol=1e-9, atol=1e-8)


def test_sums_stay_right_through_moves() -> None:
    """Sums are updated along the way, not recomputed: they must not drift."""
    for name in ("residual", "stream to stream", "grouped convolution", "cubed activation"):
        groups = ARCHITECTURES[name]()
        Q, P = posterior(groups, seed=12), prior(groups, seed=12, centered=False)
        terms = collapse(Reading.of(Q, P), groups)
        descent = Descent(terms, torch.zeros(groups.size))
        for _ in range(3):
            descent.coarse_step(descent.totals())
            descent.sweep()
            fresh = descent.at(descent.log_scales).totals()
            np.testing.assert_allclose(descent.totals().squares, fresh.squares, rtol=1e-12)
            np.testing.assert_allclose(descent.totals().products, fresh.products, rtol=1e-9)


def test_a_layer_between_pinned_channels_and_a_group_is_a_line_not_a_matrix() -> None:
    terms = collapse_of(mlp(784, 20, 10))
    assert all(not isinstance(term, Matrix) and term.squares.shape == (20,) for term in terms.terms)


def test_kernels_and_pixels_are_summed_away() -> None:
    (matrix,) = (term for term in collapse_of(cnn()).terms if isinstance(term, Matrix))
    assert matrix.squares.shape == (5, 4)


def test_a_grouped_convolution_keeps_only_the_pairs_that_occur() -> None:
    pairs = [term for term in collapse_of(grouped()).terms if len(term.sides) == 2]
    assert [term.squares.shape for term in pairs] == [(12,)]


def test_counts_are_weights_in_minus_weights_out() -> None:
    terms = collapse_of(cnn())
    np.testing.assert_array_equal(terms.counts[:4], 3 * 9 + 1 - 5 * 9)
    np.testing.assert_array_equal(terms.counts[4:], 4 * 9 + 1 - 6 * 3)


def test_groups_whose_channels_share_weights_are_told_apart() -> None:
    assert collapse_of(ARCHITECTURES["stream to stream"]()).coupled == (True,)
    assert collapse_of(ARCHITECTURES["stream to stream"]()).reach == (2.0,)
    assert collapse_of(ARCHITECTURES["squared stream to stream"]()).reach == (3.0,)
    assert collapse_of(ARCHITECTURES["residual"]()).coupled == (False,) * 4
    assert collapse_of(ARCHITECTURES["depthwise convolution"]()).coupled == (False,) * 3


def test_groups_that_share_no_weight_move_together() -> None:
    chain = collapse_of(mlp(4, 3, 3, 3, 3, 2))
    assert [block.groups for block in chain.blocks] == [(0, 2), (1, 3)]
    stream = collapse_of(ARCHITECTURES["residual"]())
    assert [block.groups for block in stream.blocks] == [(0,), (1, 2, 3)]
    for build in ARCHITECTURES.values():
        terms = collapse_of(build())
        for block in terms.blocks:
            for term in terms.terms:
                met = [side.group for side in term.sides if side.group in block.groups]
                assert len(met) <= 1 or block.coupled
        channels = torch.cat([block.positions for block in terms.blocks])
        assert sorted(channels.tolist()) == list(range(terms.size))


def collapse_of(groups) -> Terms:
    return collapse(Reading.of(posterior(groups, seed=1), prior(groups, seed=1)), groups)


def test_a_channel_that_nothing_touches_stays_where_it_is() -> None:
    sketch = Sketch()
    used, _unused = sketch.group(2), sketch.group(3)
    sketch.linear(pinned(3), used)
    sketch.linear(used, pinned(2))
    descent = Descent(collapse_of(sketch.finish()), torch.zeros(5))
    descent.coarse_step(descent.totals())
    descent.sweep()
    assert descent.log_scales[2:].tolist() == [0.0, 0.0, 0.0]
    assert bool((descent.log_scales[:2] != 0).all())


def test_squares_that_vanish_are_refused_by_name() -> None:
    groups = mlp(2, 2, 1)
    means = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in groups.shapes.items()}
    Q = DiagonalGaussian.from_means(means, 1e-200)
    with pytest.raises(BadInput, match=r"'tensor0'.*at infinity"):
        collapse(Reading.of(Q, DiagonalGaussian.from_means(means, 1.0)), groups)


def test_a_log_scale_outside_all_groups_is_refused() -> None:
    groups = mlp(2, 2, 1)
    broken = dataclasses.replace(groups, size=3)
    with pytest.raises(BadInput, match="log-scale 2 belongs to no group"):
        collapse(Reading.of(posterior(groups, seed=1), prior(groups, seed=1)), broken)


def test_collecting_repeated_channels() -> None:
    channels = np.array([4, 2, 4, 4, 0, 2])
    collector = Collector.of(channels, torch.device("cpu"))
    assert collector.channels.tolist() == [0, 2, 4]
    assert collector.collect(torch.arange(6.0)).tolist() == [4.0, 6.0, 5.0]
    assert collector.collect(torch.arange(12.0).view(6, 2)).tolist() == [[8, 9], [12, 14], [10, 13]]
