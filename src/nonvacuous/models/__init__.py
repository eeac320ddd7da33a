"""Reference architectures by name: build("mlp:600,600,600", (1, 28, 28), 10).

To add one, write a builder that takes the text after the colon, the shape of one example and the
number of classes, and put it into BUILDERS.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.models.cnn import Cnn, Mlp
from nonvacuous.models.resnet import ResNet9, SmallResNet
from nonvacuous.models.scattering import ScatteringNet
from nonvacuous.models.vit import SmallViT
from nonvacuous.models.zhang import SmallAlexNet, SmallInception
from nonvacuous.recipes import Recipe, recipe_of, seeded

__all__ = [
    "BUILDERS",
    "Cnn",
    "Mlp",
    "ResNet9",
    "ScatteringNet",
    "SmallAlexNet",
    "SmallInception",
    "SmallResNet",
    "SmallViT",
    "build",
    "rebuild",
    "seeded",
    "specification_of",
]

Builder = Callable[[str, tuple[int, ...], int], nn.Module]
_NO_BIAS = "/no-bias"
#: The deepest residual network of the paper has 1202 layers.
_DEEPEST = 2_000
#: Characters and digits of a size that the name of a built-in network has at most.
_LONGEST_NAME, _LONGEST_SIZE = 500, 7


def _build_mlp(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    widths = (arguments or "600,600").removesuffix(_NO_BIAS)
    bias = not arguments.endswith(_NO_BIAS)
    return Mlp(shape, classes, widths=_sizes(widths, name="mlp"), bias=bias)


def _build_cnn(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, slash, hidden = (arguments or "32,64").removesuffix(_NO_BIAS).partition("/")
    if slash and not hidden:
        raise Unrecognized(f"model cnn:{arguments}: no width follows the /; write cnn:32,64/128")
    return Cnn(
        shape,
        classes,
        channels=_sizes(channels, name="cnn"),
        hidden=_sizes(hidden, name="cnn") if hidden else (),
        bias=not arguments.endswith(_NO_BIAS),
    )


def _build_inception(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    if arguments not in ("", "no-bn"):
        raise Unrecognized(
            f"model inception:{arguments}: write inception, or inception:no-bn to leave out batch "
            "normalization"
        )
    return SmallInception(shape, classes, batch_norm=not arguments)


def _build_alexnet(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    if arguments:
        raise Unrecognized(f"model alexnet:{arguments}: it has no variants; write alexnet")
    return SmallAlexNet(shape, classes)


def _build_resnet(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    depth, _, variant = (arguments or "20").partition("/")
    if not (depth.isascii() and depth.isdigit()) or int(depth) < 8 or int(depth) % 6 != 2:
        raise BadInput(
            f"model resnet:{arguments}: it has 8, 14, 20, 26, ... layers (six more with each block "
            "of its stages); write resnet:20"
        )
    if int(depth) > _DEEPEST:
        raise BadInput(f"model resnet:{arguments}: it has at most {_DEEPEST:,} layers")
    if variant not in ("", "no-bn"):
        raise BadInput(
            f"model resnet:{arguments}: write resnet:{depth}, or resnet:{depth}/no-bn to leave out "
            "batch normalization"
        )
    return SmallResNet(shape, classes, depth=int(depth), batch_norm=not variant)


def _build_vit(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    sizes = _sizes(arguments or "128,4", name="vit")
    if len(sizes) != 2:
        raise Unrecognized(
            f"model vit:{arguments}: it has a width and a number of blocks; write vit:128,4"
        )
    return SmallViT(shape, classes, width=sizes[0], depth=sizes[1])


def _width_and_mirror(name: str, usual: str, network: Callable[..., nn.Module]) -> Builder:
    def built(arguments: str, shape: tuple[int, ...], classes: int) -> nn.Module:
        width, _, variant = (arguments or usual).partition("/")
        sizes = _sizes(width, name=name)
        if len(sizes) != 1 or variant not in ("", "mirror"):
            raise Unrecognized(
                f"model {name}:{arguments}: it has one width; write {name}:16, or {name}:16/mirror "
                "to give an image and its mirror image the same scores"
            )
        return network(shape, classes, width=sizes[0], mirror=bool(variant))

    return built


BUILDERS: dict[str, Builder] = {
    "mlp": _build_mlp,
    "cnn": _build_cnn,
    "inception": _build_inception,
    "alexnet": _build_alexnet,
    "resnet": _build_resnet,
    "resnet9": _width_and_mirror("resnet9", "64", ResNet9),
    "scatter": _width_and_mirror("scatter", "16", ScatteringNet),
    "vit": _build_vit,
}
"""Every architecture by name. mlp:600,600 has two hidden layers; cnn:32,64/128 has two
convolutional blocks and one hidden linear layer (mlp:600,600/no-bias and cnn:32,64/128/no-bias have
no biases); inception (or inception:no-bn, without batch normalization) and alexnet are the small
ones of Zhang et al. (2017); resnet:20 (or resnet:20/no-bn) is the one of He et al. (2016);
resnet9:64 (or resnet9:64/mirror) learns small images fast; scatter:16 (or scatter:16/mirror) learns
little on fixed wavelet features, which makes for small certificates without a learned prior;
vit:128,4 is a vision transformer of four blocks.
"""


def build(
    name: str, example_shape: Sequence[int], classes: int, *, seed: int | None = None
) -> nn.Module:
    """A freshly initialized network for inputs of this shape.

    name            as in :data:`BUILDERS`, such as cnn:32,64
    example_shape   the shape of one input, such as (1, 28, 28) or (20,)
    seed            makes the initial weights reproducible and leaves torch's global random state
                    alone; without it one is drawn from that state. The network remembers it, so
                    that whoever certifies it can show that its weights follow from a seed.
    """
    kind, colon, arguments = name.partition(":")
    if kind in BUILDERS and colon and not arguments:
        raise Unrecognized(f"model {name!r}: nothing follows the colon; write {kind}")
    if kind not in BUILDERS:
        raise Unrecognized(
            f"there is no model {name!r}; known are {', '.join(BUILDERS)}, for instance "
            "mlp:600,600 or cnn:32,64 (for your own use package.module:function)"
        )
    shape = tuple(example_shape)
    if not shape or not all(_is_positive_integer(size) for size in shape):
        raise BadInput(
            f"model {name}: {shape} is not the shape of an input; give (d,) or (c, h, w)"
        )
    if not _is_positive_integer(classes) or classes < 2:
        raise BadInput(f"model {name}: {classes!r} classes; give a whole number from 2 up")
    if seed is None:
        seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    make = functools.partial(BUILDERS[kind], arguments, shape, classes)
    return Recipe(name, make, seed, built_in=True).made()


def specification_of(network: nn.Module, inputs: torch.Tensor, classes: int) -> str | None:
    """The name that builds this very architecture, if :func:`build` made it and it still is.

    A network that was changed since, however little, has no name any more.
    """
    recipe = recipe_of(network)
    if recipe is None or not recipe.built_in:
        return None
    probe = inputs[:16].cpu()
    try:
        again = build(recipe.name, tuple(probe.shape[1:]), classes, seed=0).eval()
        again.load_state_dict({key: t.cpu() for key, t in network.state_dict().items()})
        own = copy.deepcopy(network).cpu().eval()
        with torch.no_grad():
            same = type(own) is type(again) and torch.equal(own(probe), again(probe))
    except Exception:  # whatever was done to it, it is not the one that was built
        return None
    return recipe.name if same and str(own) == str(again) else None


def rebuild(
    name: str,
    example_shape: Sequence[int],
    classes: int,
    *,
    seed: int,
    shapes: Mapping[str, Sequence[int]],
) -> nn.Module:
    """A network that a stranger's record names: only if it has the tensors that are stored.

    A few letters can name a network that no memory holds; a file of its weights cannot.
    shapes   of the tensors that are stored
    """
    name = name.removesuffix(":")  # older versions took mlp: for mlp
    sizes = re.findall(r"\d+", name)
    if len(name) > _LONGEST_NAME or any(len(size) > _LONGEST_SIZE for size in sizes):
        raise BadInput(f"the model {name[:40]}... is too large to be built from a record")
    with torch.device("meta"):
        network = build(name, example_shape, classes)
        planned = dict(network.state_dict())
    if any(isinstance(part, nn.BatchNorm2d) for part in network.modules()):
        # Folded into the layers before it, batch normalization leaves each of them a bias.
        for key, weight in list(planned.items()):
            if key.endswith(".weight"):
                bias = key.removesuffix("weight") + "bias"
                planned.setdefault(bias, weight.new_empty(len(weight)))
    for tensor, shape in shapes.items():
        if tensor not in planned or tuple(planned[tensor].shape) != tuple(shape):
            raise BadInput(f"the model {name} has no tensor {tensor!r} of shape {tuple(shape)}")
    stored = sum(math.prod(shape) for shape in shapes.values())
    if sum(tensor.numel() for tensor in planned.values()) > 2 * stored + 10_000:
        raise BadInput(f"the model {name} has many more weights than are stored")
    return build(name, example_shape, classes, seed=seed)


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _sizes(text: str, *, name: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        if "bias" in text.lower():
            raise Unrecognized(
                f"model {name}: {text!r}: a network without biases is written with {_NO_BIAS} at "
                f"the end, such as {name}:64,32{_NO_BIAS}"
            )
        raise Unrecognized(
            f"model {name}: {text!r} is not a list of sizes; write whole numbers separated by "
            f"commas, such as {name}:64,32"
        )
    return tuple(int(part) for part in parts)
