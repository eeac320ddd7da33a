"""Copies of networks that users made, which are never touched: side by side, or partly fixed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput


def copied_network(module: nn.Module) -> nn.Module:
    """A deep copy that shares nothing; what was computed with gradients is copied without them.

    Such tensors are a last activation kept in an attribute, or the weights that PyTorch's older
    weight norm and its pruning compute. Without gradients they are plain numbers.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise BadInput(
            "the network is compiled TorchScript, whose parts cannot be replaced one by one; give "
            "the nn.Module that it was made from, with the same weights."
        )
    check_shapes(module)
    try:
        with _WithoutGraphs():
            return copy.deepcopy(module)
    except Exception as error:  # attributes may be anything
        raise BadInput(
            f"the network cannot be copied ({type(error).__name__}: {error}), and the original is "
            "never touched; keep only parameters, buffers and plain values as attributes."
        ) from error


def check_shapes(module: nn.Module) -> None:
    """Refuse a network whose weights have no shapes yet."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise BadInput(
                f"{name!r} has no shape yet: lazy layers get theirs in the first call. Call the "
                "network once on a few inputs, then give it again."
            )


class _WithoutGraphs(TorchFunctionMode):
    """Lets deepcopy take tensors that torch refuses to copy with the graph they come from."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            return memo.setdefault(id(tensor), tensor.detach().clone())
        return func(*args, **(kwargs or {}))


class Checkpoints(nn.Module):
    """The scores of all checkpoints side by side: what is drawn from, without chance."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([network(inputs) for network in self.networks], dim=1)


class CheckpointMixture(Checkpoints):
    """The predictor of a progressive certificate: for each input one checkpoint, drawn afresh.

    A checkpoint is drawn with the share of the examples that it was tested on, from torch's global
    generator; ``tests`` are their numbers. One plain module: ``torch.export`` takes it.
    """

    ends: Tensor

    def __init__(self, networks: Sequence[nn.Module], tests: Sequence[int]) -> None:
        super().__init__(networks)
        self.register_buffer("ends", torch.tensor(tests).cumsum(0))
        self.tests = sum(tests)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        # Whole numbers, so that the shares are exact.
        lots = torch.randint(self.tests, (inputs.shape[0],), device=inputs.device)
        drawn = torch.searchsorted(self.ends, lots, right=True)
        scores = torch.stack([network(inputs) for network in self.networks], dim=1)
        return scores[torch.arange(inputs.shape[0], device=inputs.device), drawn]


# Networks of which a part is random: all other weights are fixed, and have no price.
#
# A fixed weight is a buffer. So everything that guards buffers guards it: it must have been what it
# is before the bound examples were seen, or nothing is promised.

#: What a convolution shares with its low-rank update.
_SHAPE = ("kernel_size", "stride", "padding", "dilation", "padding_mode")


def with_fixed(module: nn.Module, random: Iterable[str]) -> nn.Module:
    """A copy in which only the named parameters are left; the others have become buffers."""
    kept = set(random)
    copied = copied_network(module)
    unknown = sorted(kept - {name for name, _ in copied.named_parameters()})
    if unknown:
        raise BadInput(f"the network has no parameter {unknown[0]!r} that could be random")
    # By identity: a weight that two layers share is random in both, whatever it is called.
    shared = {id(p) for name, p in copied.named_parameters() if name in kept}
    for part in copied.modules():
        for own, parameter in list(part.named_parameters(recurse=False)):
            if id(parameter) not in shared:
                delattr(part, own)
                part.register_buffer(own, parameter.detach())
                # Recurrent layers read their weights from a list that follows assignments alone.
                setattr(part, own, part.get_buffer(own))
    return copied


class LowRank(nn.Module):
    """A layer and a low-rank update of it: layer(x) + up(down(x)), where up starts at zero."""

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.layer = layer
        if isinstance(layer, nn.Linear):
            self.down: nn.Module = nn.Linear(layer.in_features, rank, bias=False)
            self.up: nn.Module = nn.Linear(rank, layer.out_features, bias=False)
        else:
            shape: dict[str, Any] = {name: getattr(layer, name) for name in _SHAPE}
            self.down = nn.Conv2d(layer.in_channels, rank, bias=False, **shape)
            self.up = nn.Conv2d(rank, layer.out_channels, 1, bias=False)
        nn.init.zeros_(self.up.get_parameter("weight"))
        self.to(layer.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's output, moved along `rank` directions."""
        moved: Tensor = self.layer(inputs) + self.up(self.down(inputs))
        return moved


def low_rank(
    module: nn.Module, *, rank: int, layers: Sequence[str] | None = None, seed: int = 0
) -> nn.Module:
    """A copy that computes the same, with low-rank updates (LoRA) that can learn in its layers.

    layers   names of linear or ungrouped convolutional layers; by default all but the last
             registered one
    """
    copied = copied_network(module)
    kinds = (nn.Linear, nn.Conv2d)
    eligible = {
        name: part
        for name, part in copied.named_modules()
        if type(part) in kinds and getattr(part, "groups", 1) == 1 and name
    }
    chosen = tuple(layers) if layers is not None else tuple(eligible)[:-1]
    unknown = [name for name in chosen if name not in eligible]
    if unknown or not chosen:
        raise BadInput(
            f"no low-rank update fits {unknown[0] if unknown else 'this network'!r}; it needs "
            "linear or ungrouped convolutional layers, and there are "
            f"{', '.join(eligible) or 'none'}"
        )
    checks.count("rank", rank, minimum=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name in chosen:
            copied.set_submodule(name, LowRank(eligible[name], rank))
    return copied


def update_names(module: nn.Module) -> tuple[str, ...]:
    """The parameters of all low-rank updates."""
    layers = [name for name, part in module.named_modules() if isinstance(part, LowRank)]
    return tuple(f"{name}.{own}.weight" for name in layers for own in ("down", "up"))


def parameters_named(module: nn.Module, random: str | Sequence[str] | None) -> tuple[str, ...]:
    """The parameters of these names, or of layers of these names; by default of the last
    registered layer and of all low-rank updates."""
    own = [name for name, _ in module.named_parameters()]
    if not own:
        raise BadInput("the network has no parameters; there is nothing to put a prior on")
    if random is None:
        updates = update_names(module)
        plain = [name for name in own if name not in updates]
        last = (plain or own)[-1].rpartition(".")[0]
        return tuple(n for n in own if n in updates or n.rpartition(".")[0] == last)
    asked = (random,) if isinstance(random, str) else tuple(random)
    for name in asked:
        if not any(n == name or n.startswith(f"{name}.") for n in own):
            raise BadInput(
                f"the network has no layer or parameter {name!r} that could be random; its last "
                f"parameters are {', '.join(own[-4:])}"
            )
    return tuple(n for n in own if any(n == a or n.startswith(f"{a}.") for a in asked))


@torch.no_grad()
def last_layer(module: nn.Module, inputs: Tensor) -> tuple[str, ...]:
    """Names of the parameters of the layer that a prediction uses last.

    inputs   a few examples, to watch one prediction of the module in evaluation mode
    """
    order: list[str] = []
    hooks = [
        part.register_forward_hook(lambda *_, name=name: order.append(name))
        for name, part in module.named_modules()
        if next(part.parameters(recurse=False), None) is not None
    ]
    try:
        module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not order or order.count(order[-1]) > 1:
        raise BadInput(
            "the network has no layer of its own at its end that could be random while all others "
            "are fixed; leave random='last' out"
        )
    prefix = f"{order[-1]}." if order[-1] else ""
    own = module.get_submodule(order[-1]).named_parameters(recurse=False)
    return tuple(f"{prefix}{name}" for name, _ in own)
