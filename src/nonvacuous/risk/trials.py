"""Which example each trial looks at, arranged so that equal examples stand together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.risk.memory import OutOfMemory, is_out_of_memory, release

_BLOCK = 1 << 24


@dataclass(frozen=True, eq=False)
class Piece:
    """Some trials: the distinct examples they look at, and how many look at each."""

    examples: Tensor
    repeats: Tensor
    trials: int

    def rows(self, device: torch.device) -> Tensor:
        """For each trial, the position of its example in ``examples``."""
        repeats = self.repeats.to(device)
        return torch.repeat_interleave(repeats, output_size=self.trials)


class Schedule:
    """Trials whose examples were drawn uniformly with replacement, sorted by example.

    A sum over all trials does not depend on their order, so sorting changes nothing but speed:
    what precedes the noise in a network is computed once for each distinct example.
    """

    def __init__(self, *, examples: int, trials: int, generator: torch.Generator) -> None:
        counts = torch.zeros(examples, dtype=torch.int64, device=generator.device)
        for start in range(0, trials, _BLOCK):
            size = (min(_BLOCK, trials - start),)
            drawn = torch.randint(examples, size, generator=generator, device=generator.device)
            counts += torch.bincount(drawn, minlength=examples)
        self.trials = trials
        self.ends = counts.cumsum(0).cpu().numpy()

    def piece(self, start: int, stop: int) -> Piece:
        """The trials from ``start`` up to and without ``stop``."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, stop, side="left"))
        ends = np.clip(self.ends[first : last + 1], start, stop)
        repeats = np.diff(ends, prepend=start)
        present = np.flatnonzero(repeats)
        return Piece(
            examples=torch.from_numpy(first + present),
            repeats=torch.from_numpy(repeats[present]),
            trials=stop - start,
        )

    def run(
        self,
        work: Callable[[Piece], None],
        *,
        chunk: int,
        generator: torch.Generator,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Do the work piece by piece; when memory runs out, go on with pieces half as large."""
        done = 0
        while done < self.trials:
            stop = min(done + chunk, self.trials)
            state = generator.get_state()
            try:
                work(self.piece(done, stop))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if stop - done == 1:
                    raise OutOfMemory(
                        "memory runs out even for a single trial of this network; free memory on "
                        f"{generator.device}, or use a smaller network or another device"
                    ) from error
                chunk = (stop - done) // 2
                # The same noise again, so that the result is a function of the seed alone.
                generator.set_state(state)
                release(generator.device)
                continue
            done = stop
            if progress is not None:
                progress(done, self.trials)
