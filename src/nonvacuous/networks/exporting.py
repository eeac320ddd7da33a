"""torch.export, with its failures turned into sentences that name the place and the remedy."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.errors import BadInput, NotYetSupported, WrongMode

_TORCH_FOLDER = str(Path(torch.__file__).parent)


def exported_program(module: nn.Module, arguments: tuple[Any, ...]) -> Any:
    """The module as an ATen program without in-place operations."""
    try:
        with _quietly():
            program = torch.export.export(module, arguments, strict=False)
    except Exception as error:
        _check_callable(module, arguments)
        program = _second_attempt(module, arguments, error)
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            _check_deterministic(node)
    if any(_needs_rewriting(node) for node in program.graph.nodes):
        # An empty table rewrites in-place operations and inlined blocks, and decomposes nothing.
        with _quietly():
            program = program.run_decompositions({})
    signature = program.graph_signature
    mutated = {
        *signature.buffers_to_mutate.values(),
        *getattr(signature, "parameters_to_mutate", {}).values(),
    }
    if mutated:
        raise WrongMode(
            f"{type(module).__name__} changes {', '.join(sorted(mutated))} when it is called: its "
            "second prediction differs from its first; update such tensors in training mode only"
        )
    return program


def _check_callable(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Tell an example that does not fit from a network that cannot be exported."""
    try:
        # A copy, because a call may change buffers.
        with _quietly(), torch.no_grad():
            copy.deepcopy(module)(*arguments)
    except Exception as error:
        raise BadInput(
            f"{type(module).__name__} cannot be called on the example of {_described(arguments)}: "
            f"{_first_line(error)}; give an example input of the right shape, type and device"
        ) from error


def named_arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Every argument of an operator by its name in the signature, in that order."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((a.name for a in schema), node.args, strict=False)) | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in schema}


def layer_name(node: torch.fx.Node) -> str:
    """The dotted name of the innermost layer that called the node; "" for the network itself."""
    names = [name for name, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return str(names[-1]) if names else ""


def _check_deterministic(node: torch.fx.Node) -> None:
    """Refuse operations whose result is not a function of weights and inputs alone."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return
    op, arguments = str(node.target), named_arguments(node)
    where = f"{layer_name(node) or 'the network'} ({op})"
    if op.startswith("aten.batch_norm") and arguments["training"]:
        raise WrongMode(
            f"{where} normalizes with the statistics of the batch even in evaluation mode, so a "
            "prediction depends on the other examples of its batch; build the layer with "
            "track_running_stats=True and train it before certifying"
        )
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    if "dropout_p" in arguments:
        random = arguments["dropout_p"] > 0
    elif "train" in arguments or "training" in arguments:
        random = random and bool(arguments.get("train") or arguments.get("training"))
    if random:
        raise WrongMode(
            f"{where} draws random numbers in evaluation mode: the network is not one function; "
            "make that step depend on self.training, or pass the noise as an input"
        )


def _second_attempt(module: nn.Module, arguments: tuple[Any, ...], error: Exception) -> Any:
    """Some Python that the tracer cannot follow, the bytecode analysis can."""
    try:
        with _quietly():
            return torch.export.export(module, arguments, strict=True)
    except Exception as second:
        line = _where(error) or _where(second)
        where = f" at {line}" if line else ""
        if _is_data_dependent(error) or _is_data_dependent(second):
            raise NotYetSupported(
                f"{type(module).__name__} takes a decision that depends on the values of "
                f"tensors{where}: which operations run would change with the input, and no single "
                "graph describes it; write the choice with torch.where, or certify the branches "
                "as separate networks"
            ) from error
        raise NotYetSupported(
            f"{type(module).__name__} cannot be exported by torch.export{where}: "
            f"{_first_line(error)}; write the forward method with tensor operations only (no "
            "NumPy, no .item(), no printing of values), or register what it calls as a custom "
            "operator with torch.library.custom_op"
        ) from error


def _needs_rewriting(node: torch.fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_data_dependent(error: BaseException) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return "data-dependent" in text or "datadependent" in text


def _where(error: BaseException) -> str:
    """The last line of the user's own code in a traceback: file, line and what stands there."""
    here = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        foreign = frame.filename.startswith((_TORCH_FOLDER, here, "<"))
        if not foreign and frame.name not in ("<module>", "capture"):
            return f"{frame.filename}:{frame.lineno} ({frame.line})"
    return ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _described(arguments: tuple[Any, ...]) -> str:
    shapes = [
        f"shape {tuple(a.shape)}" if isinstance(a, torch.Tensor) else type(a).__name__
        for a in arguments
    ]
    return ", ".join(shapes) or "no arguments"


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What torch.export prints and warns about is said again, more clearly, in our own errors."""
    loggers = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if name.startswith("torch.") and isinstance(logger, logging.Logger)
    ]
    before = [logger.disabled for logger in loggers]
    top = logging.getLogger("torch")  # whose level those that are made meanwhile inherit
    level = top.level
    config: Any = torch.fx.config
    traces = getattr(config, "do_not_emit_stack_traces", False)
    try:
        top.setLevel(logging.CRITICAL)
        # Nobody reads the stack of each node, and writing them down is a quarter of the work.
        config.do_not_emit_stack_traces = True
        for logger in loggers:
            # Not by its level: setting one empties the caches of all loggers, and there are 250.
            logger.disabled = True
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        top.setLevel(level)
        config.do_not_emit_stack_traces = traces
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
