"""Answers computed on a Ray cluster, shard by shard: the same answers in the same order."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.evaluation.predicting import answers_of, as_answers

#: Rows of one task, and tasks under way for each processor.
SHARD, AHEAD = 4096, 4


class OnRay:
    """A predictor whose answers are computed by the workers of a cluster.

    A worker that dies loses its shard alone, which is computed again elsewhere; answers come in
    the order of the inputs, so that every count is that of a local run.
    """

    def __init__(self, predictor: Any, *, address: str | None = None, shard: int = SHARD) -> None:
        try:
            import ray
        except ImportError as error:
            raise BadInput(
                "shards are computed with Ray, which is not installed: pip install "
                "'nonvacuous[ray]'."
            ) from error
        answers_of(predictor)  # refuses what is no predictor before anything starts
        self._ray, self._shard = ray, shard
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        module = sys.modules.get(
            getattr(predictor, "__module__", None) or type(predictor).__module__
        )
        if module is not None and "site-packages" not in (getattr(module, "__file__", "") or ""):
            # The user's own module travels with the function: workers may not have it.
            ray.cloudpickle.register_pickle_by_value(module)
        self._predictor = ray.put(predictor)
        self._task = ray.remote(_answers).options(max_retries=-1)

    #: Rows that are handed over at once: enough to keep many workers busy.
    at_once = 1 << 20

    def __call__(self, inputs: Any) -> np.ndarray:
        """The answers to one batch."""
        return np.concatenate(list(self._stream(inputs)))

    def _stream(self, inputs: Any) -> Iterator[np.ndarray]:
        ahead = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        waiting: deque[Any] = deque()
        for start in range(0, len(inputs), self._shard):
            part = inputs[start : start + self._shard]
            waiting.append(self._task.remote(self._predictor, part))
            if len(waiting) >= ahead:
                yield self._ray.get(waiting.popleft())
        while waiting:
            yield self._ray.get(waiting.popleft())


def _answers(predictor: Any, inputs: Any) -> np.ndarray:
    return as_answers(answers_of(predictor)(inputs))
