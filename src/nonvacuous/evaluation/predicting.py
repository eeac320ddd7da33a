"""Answers of a predictor: any callable, estimator with ``predict`` or torch module, in batches."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput, WrongMode
from nonvacuous.evaluation import audit, coding, tables
from nonvacuous.evaluation.likeness import Likeness
from nonvacuous.evaluation_records import Evaluation

#: Inputs given as one array are answered so many at a time.
AT_ONCE = 1024
#: So many answers are computed again, in batches of another make-up.
TRIED_AGAIN = 64
#: Rows of one task, and tasks under way for each processor.
SHARD, AHEAD = 4096, 4

Answers = Callable[[Any], Any]


def answers_of(predictor: Any) -> Answers:
    """A function from a batch of inputs to one answer for each."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(predictor, torch.nn.Module):
        if predictor.training:
            raise WrongMode(
                "the module is in training mode, in which its answers depend on chance or on the "
                "batch: call module.eval() first."
            )
        device = next((p.device for p in predictor.parameters()), torch.device("cpu"))

        def from_module(inputs: Any) -> Any:
            try:
                tensor = torch.as_tensor(inputs)
            except (TypeError, ValueError, RuntimeError) as error:
                raise BadInput(
                    f"a module is called with one tensor, and its inputs are no tensor ({error}): "
                    "give a function that calls it, as in lambda inputs: module(**inputs)."
                ) from error
            with torch.no_grad():
                return predictor(tensor.to(device))

        return from_module
    if hasattr(predictor, "predict"):
        return predictor.predict  # type: ignore[no-any-return]
    if callable(predictor):
        return predictor  # type: ignore[no-any-return]
    raise BadInput(
        f"a predictor is a function, a module or an estimator with .predict, not a "
        f"{type(predictor).__name__}."
    )


def with_scores(predictor: Any, settings: Evaluation) -> tuple[Any, Evaluation]:
    """An estimator as its probabilities, and the classes of these, where the metric reads them."""
    own = getattr(predictor, "classes_", None)
    if settings.metric not in ("brier", "top-k") or own is None:
        return predictor, settings
    if not hasattr(predictor, "predict_proba"):
        raise BadInput(
            f"metric {settings.metric!r} reads probabilities, and a {type(predictor).__name__} "
            "has no predict_proba: use one that has, or a metric of classes, such as 'error'."
        )
    names = tuple(coding.one_each(own, "classes_").tolist())
    if list(map(str, settings.classes or names)) != list(map(str, names)):
        raise BadInput(
            f"the declared classes are not those of the {type(predictor).__name__} in its order, "
            f"{', '.join(map(str, names[:10]))}: leave classes out."
        )
    return predictor.predict_proba, settings.model_copy(update={"classes": names})


def classes_of(scores: np.ndarray) -> np.ndarray:
    """The class of the largest score of each row; classes as they are."""
    if scores.ndim > 1 and scores.shape[-1] == 1:
        raise BadInput(
            "the predictor gave one score for each input, not a class nor one score for each "
            "class: turn it into answers yourself, with 0 for a logit and 0.5 for a "
            "probability, as in lambda inputs: (network(inputs)[:, 0] > 0).long()"
        )
    return scores if scores.ndim == 1 else np.asarray(scores.argmax(axis=1))


def predicted(
    predictor: Any,
    data: Any,
    *,
    scores: bool,
    beside: Mapping[str, Any],
    notes: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Batches of predictions and labels. ``scores`` keeps the scores of classes as they are.

    ``data`` is a pair (inputs, labels) or an iterable of such pairs (a DataLoader, a generator),
    which is read once and never kept; columns ``beside`` them name their rows alike. What was tried
    again, and which inputs resemble others, is written into ``notes``.
    """
    answer = answers_of(predictor)
    at_once = getattr(predictor, "at_once", AT_ONCE)
    likeness: Likeness | None = Likeness()
    for inputs, labels in _pairs(data, at_once, beside):
        given = answer(inputs)
        raw = coding.to_numpy(given)
        if raw.ndim == 0:
            raise BadInput(
                f"the predictor gave a single {type(given).__name__}; an answer for each input, or "
                "a row of scores, is needed."
            )
        if len(raw) != len(labels):
            raise BadInput(
                f"the predictor gave {len(raw)} answers for {len(labels)} labels; one for each "
                "input is needed."
            )
        predictions = raw if scores else classes_of(raw)
        if likeness is not None and len(raw):
            likeness = notes["likeness"] = likeness if likeness.add(inputs) else None
        if "invariant" not in notes and len(raw) > 1 and not _is_ambiguous(inputs, len(raw)):
            notes["invariant"] = _tried_again(answer, inputs, raw)
        yield {"predictions": predictions, "labels": labels}


def _pairs(data: Any, at_once: int, beside: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[1], "__len__"):
        inputs, labels = data
        if hasattr(inputs, "tocsr"):  # a sparse matrix, of which not all kinds can be cut
            inputs = inputs.tocsr()
        rows = inputs.shape[0] if getattr(inputs, "shape", ()) else len(inputs)
        if rows != len(labels):
            raise BadInput(f"there are {rows} inputs and {len(labels)} labels.")
        if isinstance(labels, tuple) and any(hasattr(part, "shape") for part in labels):
            raise BadInput(
                "data look like two batches in a tuple, which are read as (inputs, labels): give "
                "the batches in a list."
            )
        tables.check_rows({"inputs": inputs, "labels": labels, **beside})
        # Of a pandas column with fractions as its index, [] would choose by these.
        parts: list[Any] = [getattr(part, "iloc", part) for part in (inputs, labels)]
        for start in range(0, len(labels), at_once):
            yield parts[0][start : start + at_once], parts[1][start : start + at_once]
        return
    if not hasattr(data, "__iter__"):
        raise BadInput("data are a pair (inputs, labels), or an iterable of such pairs.")
    _check_sampler(data, beside)
    number = -1
    expected = length_hint(data)  # 0 where nobody knows, as of a DataLoader of a stream
    for number, pair in enumerate(data):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BadInput(f"batch {number} of the data is not a pair (inputs, labels).")
        yield pair[0], pair[1]
    if number + 1 < expected:
        raise BadInput(
            f"the stream ended after {number + 1} of {expected} batches; nothing is certified."
        )


def _check_sampler(loader: Any, beside: Mapping[str, Any]) -> None:
    """Refuse a loader that draws examples anew, or in an order that columns beside it have not."""
    loader = getattr(loader, "iterable", loader)  # in tqdm's
    sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader if sampler is None else sampler, "sampler", sampler)
    name = type(sampler).__name__
    if getattr(sampler, "replacement", False):
        raise BadInput(
            f"the DataLoader draws with replacement ({name}): what comes twice is no draw of its "
            "own. Read each example once, without a sampler."
        )
    # A stream without an end has the order of its data set, unless several workers share it.
    ordered = name == "SequentialSampler" or (
        name == "_InfiniteConstantSampler" and getattr(loader, "num_workers", 0) < 2
    )
    if beside and sampler is not None and not ordered:
        named = ", ".join(role.replace(":", " ", 1) for role in beside)
        raise BadInput(
            f"the DataLoader has an order of its own ({name}), so that its rows are not those of "
            f"{named}: read it with shuffle=False and no sampler."
        )


def _tried_again(answer: Answers, inputs: Any, raw: np.ndarray) -> str:
    """Answers must not change with the company: asked in reverse order and in smaller batches."""
    count = min(TRIED_AGAIN, len(raw))
    half = count // 2
    parts = (_backward(inputs, start, stop, len(raw)) for start, stop in ((half, count), (0, half)))
    again = np.concatenate([coding.to_numpy(answer(part)) for part in parts])[::-1]
    if raw.dtype.kind == "f":
        same = np.allclose(again, raw[:count], rtol=1e-3, atol=1e-4)
        if raw.ndim == 2:
            same = bool((again.argmax(axis=1) == raw[:count].argmax(axis=1)).all()) and same
    else:
        same = bool((again == raw[:count]).all())
    if not same:
        return (
            f"NOT the same answers to {count} inputs came in another order: the predictor depends "
            "on the batch, on chance or on what it answered before. Test one fixed function."
        )
    return audit.SAME_ANSWERS.format(count)


def _backward(inputs: Any, start: int, stop: int, rows: int) -> Any:
    """Some rows of a batch from the last to the first: of each array, where it has several."""
    if isinstance(inputs, Mapping):
        parts = {name: _backward(part, start, stop, rows) for name, part in inputs.items()}
        return type(inputs)(parts)  # type: ignore[call-arg]
    if isinstance(inputs, list | tuple) and len(inputs) != rows:
        made = getattr(inputs, "_make", type(inputs))
        return made([_backward(part, start, stop, rows) for part in inputs])
    if not hasattr(inputs, "__getitem__"):  # a flag beside the arrays
        return inputs
    some = getattr(inputs, "iloc", inputs)[start:stop]
    return some.flip(0) if hasattr(some, "flip") else some[::-1]


def _is_ambiguous(inputs: Any, rows: int) -> bool:
    """Whether a list may be one of rows or one of columns, being as long as each of its parts."""
    if not isinstance(inputs, list | tuple) or len(inputs) != rows:
        return False
    return all(hasattr(part, "shape") and len(part) == rows for part in inputs)


class OnRay:
    """A predictor whose answers are computed by the workers of a cluster.

    A worker that dies loses its shard alone, which is computed again elsewhere; answers come in
    the order of the inputs, so that every count is that of a local run.
    """

    #: Rows that are handed over at once: enough to keep many workers busy.
    at_once = 1 << 20

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

    def __call__(self, inputs: Any) -> np.ndarray:
        """The answers to one batch."""
        ahead = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        waiting: deque[Any] = deque()
        answers: list[np.ndarray] = []
        for start in range(0, len(inputs), self._shard):
            part = inputs[start : start + self._shard]
            waiting.append(self._task.remote(self._predictor, part))
            if len(waiting) >= ahead:
                answers.append(self._ray.get(waiting.popleft()))
        return np.concatenate([*answers, *self._ray.get(list(waiting))])


def _answers(predictor: Any, inputs: Any) -> np.ndarray:
    return coding.to_numpy(answers_of(predictor)(inputs))
