"""The schedule of trials: every trial once, with the example it drew."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nonvacuous.risk.forward import is_out_of_memory
from nonvacuous.risk.pairs import Schedule, default_chunk
from nonvacuous.risk.watched import WatchedPass
from tests.examples import some


@settings(max_examples=some(200))
@given(st.integers(1, 30), st.integers(1, 200), st.integers(1, 250), st.integers(0, 100))
def test_pieces_make_up_the_drawn_examples(
    examples: int, trials: int, chunk: int, seed: int
) -> None:
    schedule = Schedule(
        examples=examples, trials=trials, generator=torch.Generator().manual_seed(seed)
    )
    drawn = (
        torch.randint(examples, (trials,), generator=torch.Generator().manual_seed(seed))
        .sort()
        .values
    )
    seen = []
    for start in range(0, trials, chunk):
        stop = min(start + chunk, trials)
        distinct, rows = schedule.piece(start, stop, torch.device("cpu"))
        assert len(rows) == stop - start
        assert torch.equal(rows.unique(), torch.arange(len(distinct)))
        seen.append(distinct[rows])
    assert torch.equal(torch.cat(seen), drawn)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_running_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_default_chunks_shrink_with_the_network() -> None:
    cpu = torch.device("cpu")
    assert default_chunk(1 << 40, cpu) == 1
    assert default_chunk(1, cpu) >= default_chunk(10_000, cpu) > default_chunk(1_000_000, cpu)


@pytest.mark.parametrize("size", [(6, 8), (5, 7), (1, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_maxima_of_neighbors_are_those_of_torch(size: tuple[int, int], layout) -> None:
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    images = images.to(memory_format=layout)
    images[0, 1, 0, 0] = float("nan")
    pool = torch.nn.MaxPool2d(2)
    if min(size) < 2:
        with pytest.raises(RuntimeError), WatchedPass({}, distinct=2, rows=None, generator=None):
            pool(images)
        return
    with WatchedPass({}, distinct=2, rows=None, generator=None):
        halved = pool(images)
    assert torch.equal(halved.nan_to_num(nan=9.0), pool(images).nan_to_num(nan=9.0))
