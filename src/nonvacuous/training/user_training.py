"""A training function of the user's own: called as documented, watched, and checked.

    def train(model, inputs, labels, *, seed):
        ...
        return model              # or: yield model after every epoch

A function that yields the model after every epoch also gets learning curves and its time to fit.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.training.checks import evaluation_mode
from nonvacuous.training.loop import borrowed_global_generator

TrainingFunction = Callable[..., Any]
SIGNATURE = "train(model, inputs, labels, *, seed) -> model"


def check_signature(train: TrainingFunction, *, name: str) -> None:
    """Raise unless ``train(model, inputs, labels, seed=...)`` is a call that it takes."""
    if not callable(train):
        raise BadInput(f"{name} is a {type(train).__name__}, not a function; write {SIGNATURE}")
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return  # written in C: it is found out when it is called
    try:
        signature.bind(None, None, None, seed=0)
    except TypeError as error:
        raise BadInput(
            f"{name}{signature} cannot be called as {SIGNATURE} ({error}); give it exactly these "
            "arguments: the fresh network, the inputs, the labels to learn, and the keyword seed"
        ) from error
    if inspect.iscoroutinefunction(train) or inspect.isasyncgenfunction(train):
        raise BadInput(f"{name} is asynchronous; write an ordinary function {SIGNATURE}")


def source_digest(train: TrainingFunction) -> str:
    """A digest of the code of the file that the function stands in, as far as it can be read."""
    module = sys.modules.get(getattr(train, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    code = getattr(train, "__code__", None)
    content = code.co_code + repr(code.co_consts).encode() if code is not None else b""
    return hashlib.sha256(content).hexdigest()


def call(
    train: TrainingFunction,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    seed: int,
    name: str,
    watch: Callable[[nn.Module], None],
) -> nn.Module:
    """Call the function on copies of the data and give back the network it trained.

    ``watch`` is called with every network that a generator function yields.
    """
    own_inputs, own_labels = inputs.clone(), labels.clone()
    with _seeded(inputs.device, seed):
        try:
            result = train(model, own_inputs, own_labels, seed=seed)
            if inspect.isgenerator(result):
                result = _last(result, name=name, watch=watch)
        except BadInput:
            raise
        except Exception as error:  # the user's code may raise anything
            first = (str(error).strip() or "no message").splitlines()[0]
            raise BadInput(
                f"{name} raised {type(error).__name__}: {first}{_line_of(error, train)}. It is "
                f"called as {SIGNATURE} with {len(labels):,} inputs of shape "
                f"{tuple(inputs.shape[1:])} and whole-number labels (torch.int64)"
            ) from error
    for what, before, after in (("inputs", inputs, own_inputs), ("labels", labels, own_labels)):
        if not (before.shape == after.shape and torch.equal(before, after)):
            raise BadInput(
                f"{name} changed the {what} it was given, in place: the network would be judged on "
                f"other {what} than it was trained on. Work on a copy ({what} = {what}.clone()), "
                "and put fixed preprocessing into the model"
            )
    return _network(result, name=name)


def require_own(network: nn.Module, given: nn.Module, *, name: str) -> None:
    """Raise where a function goes on from a network that it kept from an earlier call.

    In a notebook it may have been trained on everything, by a run that was stopped.
    """
    if network is not given and network in _RETURNED:
        raise BadInput(
            f"{name} returned a network of an earlier call, not the one it was given: it goes on "
            "from whatever that call was trained on, which may be the examples of the next test. "
            "Train the model that is given, or a copy of it, and keep nothing from call to call; "
            "to go on from the last checkpoint, set warm=True"
        )
    _RETURNED.add(network)


#: The networks that functions returned, as long as somebody keeps them.
_RETURNED: WeakSet[nn.Module] = WeakSet()


def _last(
    yielded: Iterator[Any], *, name: str, watch: Callable[[nn.Module], None]
) -> nn.Module | None:
    network = None
    for result in yielded:
        network = _network(result, name=name)
        with evaluation_mode(network):
            watch(network)
    return network


def _network(result: Any, *, name: str) -> nn.Module:
    if isinstance(result, nn.Module):
        return result
    what, hint = f"a {type(result).__name__}", ""
    if result is None:
        what = "nothing"
        hint = "; end it with `return model`, or `yield model` after every epoch"
    elif isinstance(result, tuple) and result and isinstance(result[0], nn.Module):
        hint = "; return the network alone"
    raise BadInput(f"{name} returned {what}, not the trained torch.nn.Module{hint} ({SIGNATURE})")


def _line_of(error: BaseException, train: TrainingFunction) -> str:
    """Where in the user's own file it happened."""
    file = getattr(getattr(train, "__code__", None), "co_filename", "")
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Functions that use the global generators get the same numbers in every condition."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with borrowed_global_generator(device) as reseed:
        try:
            reseed(seed)
            np.random.seed(seed % 2**32)  # numpy takes no larger one
            random.seed(seed)
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
