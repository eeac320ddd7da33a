"""The methods of training many networks, what they offer to the loop, and which one is chosen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.models.cnn import Blocks, Cnn, Mlp, convolution_block
from nonvacuous.training.many_jobs import Job
from nonvacuous.training.many_material import Material, dropped
from nonvacuous.training.many_stacked import Solo, Stack

# Plain networks as batched matrices: one product per layer serves all networks.
#
# Weights are kept as (networks, inputs, outputs), transposed against torch's linear layers, so that
# batched products read them as they lie. A convolution is the same product, of every window of its
# input: grouped convolutions are far slower for networks of few channels.


def plain_stack(module: nn.Module) -> list[tuple[str, nn.Linear | nn.Conv2d]] | None:
    """The layers with weights of a plain network by name; None for any other.

    Plain: flattening, then linear layers with biases and one ReLU between each two, in
    `nn.Sequential` or in the package's own `Mlp`; or the package's own `Cnn`. Nothing frozen, and
    nothing used twice.
    """
    allowed: set[type] = {nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, Mlp}
    named = list(module.named_modules())
    if any(layer._forward_hooks or layer._forward_pre_hooks for _, layer in named):
        return None
    if type(module) is Cnn and _is_as_built(module):
        named = [(name, part) for name, part in named if not isinstance(part, Cnn | nn.MaxPool2d)]
        allowed = {nn.Sequential, Blocks, nn.Linear, nn.ReLU, nn.Conv2d}
    elif type(module) not in (Mlp, nn.Sequential):
        return None
    if not all(type(layer) in allowed for _, layer in named):
        return None
    kinds = (nn.Linear, nn.Conv2d)
    parts = [part for _, part in named if isinstance(part, (*kinds, nn.ReLU, nn.Flatten))]
    # What is flattened later was a sequence when it met the weights.
    later = itertools.dropwhile(lambda part: isinstance(part, nn.Flatten), parts)
    weighty = [(name, layer) for name, layer in named if isinstance(layer, kinds)]
    relus = [isinstance(part, nn.ReLU) for part in later]
    alternates = relus == [False, True] * (len(weighty) - 1) + [False]
    # A weight and a bias for each layer, and nothing besides.
    own, stored = list(module.parameters()), len(module.state_dict())
    whole = stored == len(own) == 2 * len(weighty) and all(p.requires_grad for p in own)
    return weighty if alternates and whole else None


def _is_as_built(module: Cnn) -> bool:
    """Whether every block is a 3 x 3 convolution, ReLU and 2 x 2 max-pooling still."""
    blocks, fresh = list(module.blocks), list[nn.Module]()
    with torch.device("meta"):
        for layer in blocks[::3]:
            if isinstance(layer, nn.Conv2d):
                fresh += convolution_block(layer.in_channels, layer.out_channels)
    return [repr(part) for part in blocks] == [repr(part) for part in fresh]


class Matrices(Stack):
    """Plain networks, one batched product for each layer."""

    def __init__(
        self, modules: Sequence[nn.Module], jobs: Sequence[Job], material: Material
    ) -> None:
        recorded = material.device.type == "cuda"
        super().__init__(dict(enumerate(jobs)), material, recorded=recorded)
        #: Name of each layer, and the shape of its windows (height, width, channels) if it has any.
        self._layers = [(name, _window(layer)) for name, layer in plain_stack(modules[0]) or ()]
        states = [module.to(material.device).state_dict() for module in modules]
        self.take(
            {name: torch.stack([_matrix(state[name]) for state in states]) for name in states[0]}
        )

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        values, dropping = inputs, 0
        with self.precision():
            for number, (name, window) in enumerate(self._layers):
                if number > 0:
                    values = values.relu()
                if window:
                    values = _pooled(self._product(name, _windows(values)))
                    continue
                values = values.flatten(2)
                if number > 0 and training and self.drops:
                    dropping += 1
                    values = dropped(
                        values, self.chance, -dropping, self.chance.rate.view(-1, 1, 1)
                    )
                values = self._product(name, values)
        return values

    def _product(self, name: str, rows: Tensor) -> Tensor:
        """(networks, ..., inputs) times the weights, plus the biases."""
        weight, bias = self.trained[f"{name}.weight"], self.trained[f"{name}.bias"].unsqueeze(1)
        # The many windows of a network are several products: the gradient of its weights, a sum
        # over all of them, would otherwise keep one corner of a GPU busy.
        parts = rows.shape[2] if rows.ndim == 5 else 1
        if parts > 1:
            weight, bias = (
                tensor.unsqueeze(1).expand(-1, parts, -1, -1).flatten(0, 1)
                for tensor in (weight, bias)
            )
        sums = torch.baddbmm(bias, rows.reshape(len(weight), -1, rows.shape[-1]), weight)
        return sums.view(*rows.shape[:-1], -1)

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        own = {name: tensor.t() for name, tensor in tensors.items()}
        for weight, window in ((f"{name}.weight", window) for name, window in self._layers):
            if window:  # the inverse of `_matrix`, as a view
                own[weight] = tensors[weight].unflatten(0, window).permute(3, 2, 0, 1)
        return own


def _window(layer: nn.Linear | nn.Conv2d) -> tuple[int, ...]:
    return (*layer.kernel_size, layer.in_channels) if isinstance(layer, nn.Conv2d) else ()


def _matrix(weight: Tensor) -> Tensor:
    """(inputs, outputs); the inputs of a convolution are a window's rows, columns, channels.

    A bias stays as it is.
    """
    return weight.permute(2, 3, 1, 0).flatten(0, 2) if weight.ndim == 4 else weight.t()


def _windows(values: Tensor) -> Tensor:
    """Images (networks, batch, channels, height, width) as (..., height, width, 9 channels)."""
    padded = torch.nn.functional.pad(values.permute(0, 1, 3, 4, 2), (0, 0, 1, 1, 1, 1))
    windows = padded.unfold(2, 3, 1).unfold(3, 3, 1)
    return windows.permute(0, 1, 2, 3, 5, 6, 4).flatten(4)


def _pooled(values: Tensor) -> Tensor:
    """Channels to the front, and the largest of each 2 x 2 pixels."""
    images = values.flatten(0, 1).permute(0, 3, 1, 2)
    largest: Tensor = torch.nn.functional.max_pool2d(images, 2).unflatten(0, values.shape[:2])
    return largest


class Trainer:
    """Some networks in training, each with the number of its job: in stacks of one or more."""

    def __init__(self, stacks: Sequence[Stack], material: Material) -> None:
        self.stacks, self._material = list(stacks), material

    @property
    def leaving_is_dear(self) -> bool:
        """Whether `keep` costs more than some epochs of networks that nobody needs.

        Other tensors mean other recordings; networks that share nothing leave theirs alone.
        """
        return any(stack.recordings is not None and len(stack.jobs) > 1 for stack in self.stacks)

    def ready(self) -> None:
        """Record what will be replayed; raises `Unsupported` where that cannot be done."""
        for stack in self.stacks:
            stack.ready()

    def epoch(self, epoch: int, tick: Callable[[], None]) -> None:
        """Visit every example once in each network's order; `tick` after each network's step."""
        self.ready()
        for stack in self.stacks:
            stack.begin_epoch(epoch)
        self._run("step", tick)

    def measure(self) -> dict[int, dict[str, Any]]:
        """All networks in evaluation mode, on the training and the test set: what an
        `EpochRecord` says of each job's."""
        self.ready()
        for sums in (sums for stack in self.stacks for sums in stack.sums.values()):
            sums.zero_()
        material = self._material
        for name in ("train", "test") if material.test else ("train",):
            self._run(name)
        # In one transfer from the device.
        both = [torch.cat([stack.sums["train"], stack.sums["test"]], 1) for stack in self.stacks]
        counts = torch.cat(both).tolist()
        numbers = [number for stack in self.stacks for number in stack.jobs]
        return {
            number: {
                "train_loss": loss / material.examples if math.isfinite(loss) else None,
                "train_errors": round(wrong),
                "marked_errors": None if material.marked is None else round(among),
                "unmarked_errors": None if material.marked is None else round(wrong - among),
                "test_errors": round(tested) if material.test else None,
            }
            for number, (loss, wrong, among, _, tested, _) in zip(numbers, counts, strict=True)
        }

    def _run(self, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """All batches of a work: one stack after the other, or in turns where they are recorded."""
        for stack in self.stacks:
            stack.begin()
        batches = [[(stack, size) for size in stack.batches[name]] for stack in self.stacks]
        in_turns = self.stacks[0].recordings is not None
        for stack, size in itertools.chain(*(zip(*batches, strict=True) if in_turns else batches)):
            stack.run(name, size)
            for _ in stack.jobs:
                tick()
        for stack in self.stacks:
            stack.end()

    def keep(self, kept: Collection[int]) -> None:
        """Go on with the networks of these jobs only."""
        for stack in self.stacks:
            chosen = [position for position, number in enumerate(stack.jobs) if number in kept]
            if 0 < len(chosen) < len(stack.jobs):
                stack.keep(chosen)
        self.stacks = [stack for stack in self.stacks if not stack.jobs.keys().isdisjoint(kept)]

    def tensors(self, number: int) -> dict[str, Tensor]:
        """A job's network as state.NAME and its momentum as momentum.NAME.

        They share the network's memory: writing into them changes the network.
        """
        stack = next(stack for stack in self.stacks if number in stack.jobs)
        return stack.tensors(list(stack.jobs).index(number))


def resolved(method: str, module: nn.Module, device: torch.device) -> str:
    """The method that "auto" stands for, or `method` itself where the network allows it."""
    stack = plain_stack(module)
    if method == "matrices" and stack is None:
        raise BadInput(
            'method="matrices" trains plain stacks of linear layers with ReLU between them, such '
            'as models.build("mlp:512"), and models.build("cnn:16,16"), but the network is '
            f'{type(module).__name__}. Use method="auto".'
        )
    if method == "streams" and device.type != "cuda":
        raise BadInput(
            f'method="streams" needs a CUDA device, but the device is {device}. Use method="auto".'
        )
    if method != "auto":
        return method
    # Windows take nine times the memory of what they show: only who has few asks for them.
    if stack is not None and not isinstance(module, Cnn):
        return "matrices"
    return "streams" if device.type == "cuda" else "one at a time"


def build_trainer(
    method: str, modules: Sequence[nn.Module], jobs: Sequence[Job], material: Material
) -> Trainer:
    """A trainer of these networks by the method named."""
    if method == "matrices":
        return Trainer([Matrices(modules, jobs, material)], material)
    stacks = [
        Solo(module, number, job, material, recorded=method == "streams")
        for number, (module, job) in enumerate(zip(modules, jobs, strict=True))
    ]
    return Trainer(stacks, material)
