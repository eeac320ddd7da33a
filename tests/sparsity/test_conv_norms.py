"""Operator norms of convolutions and pooling: never below the truth, and hardly above it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nonvacuous.sparsity.conv_chain import ConvLayer, Field, Pool
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.noise import patch_norm
from tests.examples import some


def _looped(layer: ConvLayer, shape: tuple[int, int, int]) -> np.ndarray:
    """The matrix of the convolution, entry by entry."""
    outputs, _, high, wide = layer.weight.shape
    rows, columns = layer.positions(shape[1:])
    matrix = np.zeros((outputs, rows, columns, *shape))
    weight = layer.weight.numpy()
    for y in range(rows):
        for x in range(columns):
            for a in range(high):
                for b in range(wide):
                    i = y * layer.stride[0] + a * layer.dilation[0] - layer.padding[0]
                    j = x * layer.stride[1] + b * layer.dilation[1] - layer.padding[1]
                    if 0 <= i < shape[1] and 0 <= j < shape[2]:
                        matrix[:, y, x, :, i, j] += weight[:, :, a, b]
    return matrix.reshape(outputs * rows * columns, -1)


@settings(max_examples=some(80), deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 3)] * 4),
    image=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    seed=st.integers(0, 2**31),
)
def test_no_bound_is_below_the_unrolled_operator(
    sizes: tuple[int, ...],
    image: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(sizes, generator=generator, dtype=torch.float64)
    layer = ConvLayer("layer", weight, None, stride, padding, dilation)
    shape = (sizes[1], *image)
    if min(layer.positions(image)) < 1:
        return
    truth = float(np.linalg.norm(_looped(layer, shape), 2))
    found = conv_norm(layer, shape)
    for way, bound in found.bounds.items():
        assert bound >= truth * (1 - 1e-13), way
    assert found.value <= truth * (1 + 1e-9)
    longest = max(float(np.linalg.norm(row)) for row in _looped(layer, shape))
    assert unit_norm(layer) >= longest


def test_frequencies_are_close_on_larger_images() -> None:
    """The circular bound exceeds the truth only by what the border changes."""
    generator = torch.Generator().manual_seed(1)
    for stride, kernel in ((1, 3), (2, 3), (2, 4)):
        weight = torch.randn(4, 2, kernel, kernel, generator=generator, dtype=torch.float64)
        layer = ConvLayer("layer", weight, None, (stride, stride))
        shape = (2, 16, 16)
        truth = float(np.linalg.norm(_looped(layer, shape), 2))
        bounds = dict(conv_norm(layer, shape).bounds)
        del bounds["matrix"]
        assert min(bounds, key=bounds.__getitem__) == "frequencies"
        assert truth <= bounds["frequencies"] <= 1.1 * truth


def test_kernel_that_covers_the_image_is_a_linear_layer() -> None:
    weight = torch.randn(5, 2, 3, 3, generator=torch.Generator().manual_seed(2)).double()
    found = conv_norm(ConvLayer("layer", weight, None), (2, 3, 3))
    assert found.value == pytest.approx(float(np.linalg.norm(weight.flatten(1).numpy(), 2)))


@settings(max_examples=some(120), deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
    counted=st.booleans(),
    image=st.tuples(st.integers(3, 6), st.integers(3, 6)),
)
def test_pooling_norms_are_upper_bounds(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padded: bool,
    counted: bool,
    image: tuple[int, int],
) -> None:
    padding = (kernel[0] // 2, kernel[1] // 2) if padded else (0, 0)
    shape = (1, *image)
    average = Pool("average", kernel, stride, padding, counted)
    units = torch.eye(math.prod(image), dtype=torch.float64).reshape(-1, 1, *image)
    truth = float(np.linalg.norm(average(units).flatten(1).numpy(), 2))
    bound = pool_norm(average, shape)
    assert bound >= truth * (1 - 1e-13)
    if kernel == stride and not padded:
        assert bound == pytest.approx(1 / math.sqrt(math.prod(kernel)))
    largest = Pool("max", kernel, stride)
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(200, 1, *image, generator=generator, dtype=torch.float64)
    step = torch.randn(200, 1, *image, generator=generator, dtype=torch.float64)
    # A single moved unit that is the largest everywhere is the worst case.
    spike = torch.zeros(1, 1, *image, dtype=torch.float64)
    spike[0, 0, image[0] // 2, image[1] // 2] = 1.0
    for base, change in ((one, step), (torch.zeros_like(spike), spike)):
        rise = (largest(base + change) - largest(base)).flatten(1).norm(dim=1)
        assert bool(
            (rise <= pool_norm(largest, shape) * change.flatten(1).norm(dim=1) + 1e-12).all()
        )


def test_norm_of_patches_is_an_upper_bound() -> None:
    generator = torch.Generator().manual_seed(3)
    for entries, positions in ((9, 20), (20, 9), (1, 5), (6, 1)):
        patches = torch.randn(50, entries, positions, generator=generator, dtype=torch.float64)
        patches[10:20] = patches[10:20].abs()
        patches[20] = 0.0
        patches[21:30] *= torch.logspace(-150, 100, 9, dtype=torch.float64)[:, None, None]
        truth = torch.linalg.matrix_norm(patches, 2)
        found = patch_norm(patches)
        assert bool((found >= truth).all())
        assert bool((found <= 1.12 * truth + 1e-300).all())
        assert bool((found[10:20] <= (1 + 1e-4) * truth[10:20]).all())


@settings(max_examples=some(80), deadline=None)
@given(
    first=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 1)),
    second=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 1)),
    side=st.integers(6, 9),
)
def test_receptive_fields_hold_all_that_a_unit_reads(
    first: tuple[int, int, int], second: tuple[int, int, int], side: int
) -> None:
    field = Field((1, 1), (1, 1), (0, 0))
    units = torch.eye(side * side, dtype=torch.float64).reshape(-1, 1, side, side)
    for size, stride, padding in (first, second):
        assume(units.shape[-1] + 2 * padding >= size)
        field = field.then((size, size), (stride, stride), (padding, padding))
        ones = torch.ones(1, 1, size, size, dtype=torch.float64)
        units = torch.nn.functional.conv2d(units, ones, None, stride, padding)
    reads = (units.flatten(1) > 0).double()
    values = torch.rand(2, side, side, generator=torch.Generator().manual_seed(4)).double()
    sums = field.sums(values)
    assert sums.shape == (2, reads.shape[1])
    assert bool((sums >= values.flatten(1) @ reads - 1e-9).all())
