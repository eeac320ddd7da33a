"""Normalizations: nothing passes into them; their gain is a scale of its own."""

from __future__ import annotations

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.registry import register_operator

INPUT_REMEDY = (
    "The scales that write its input stay at 1; those of its gain and of the layers that read it "
    "are free"
)
FOLD_REMEDY = (
    "Fold it into the preceding layer first: nonvacuous.networks.fold_batch_norm(module, example)"
)


def _gain(passage: Passage, weight: LogScale, bias: LogScale) -> LogScale:
    """gain · (something that does not scale) + shift."""
    scale = weight
    if passage.has("bias"):
        scale = passage.tie(weight, bias)
    return LogScale(passage.shape, scale.broadcast_to(passage.shape).terms)


@register_operator("aten.layer_norm", "aten.rms_norm")
def layer_norm(passage: Passage) -> LogScale:
    name = passage.node.op.split(".")[1]
    passage.pin(passage.scale("input"), f"{name} adds a constant to the variance", INPUT_REMEDY)
    return _gain(passage, passage.scale("weight"), passage.scale("bias"))


def _per_channel(passage: Passage, name: str) -> LogScale:
    """A scale of length c, as that of an image [n, c, ...]."""
    scale = passage.scale(name)
    for _ in range(len(passage.shape) - 2 if passage.has(name) else 0):
        scale = scale.unsqueeze(scale.dimensions)
    return scale


@register_operator("aten.group_norm", "aten.instance_norm")
def group_norm(passage: Passage) -> LogScale:
    name = passage.node.op.split(".")[1]
    passage.pin(passage.scale("input"), f"{name} adds a constant to the variance", INPUT_REMEDY)
    return _gain(passage, _per_channel(passage, "weight"), _per_channel(passage, "bias"))


@register_operator("aten.batch_norm", "aten._native_batch_norm_legit_no_training")
def batch_norm(passage: Passage) -> list[LogScale]:
    """In evaluation mode: subtracts a constant mean, then gain and shift."""
    reason = "batch normalization subtracts a mean that does not scale"
    passage.pin(passage.scale("input"), reason, FOLD_REMEDY)
    scale = _gain(passage, _per_channel(passage, "weight"), _per_channel(passage, "bias"))
    return [scale, *(LogScale(shape) for shape in passage.node.shapes[1:])]


@register_operator("aten._weight_norm")
def weight_norm(passage: Passage) -> LogScale:
    """g · v / |v|: the direction keeps its scale, the length has its own."""
    remedy = (
        "Remove the parametrization (torch.nn.utils.parametrize.remove_parametrizations) to "
        "rescale the weight itself"
    )
    passage.pin(passage.scale("v"), "the direction of a normalized weight is kept", remedy)
    scale = passage.scale("g").broadcast_to(passage.shape)
    return LogScale(passage.shape, scale.terms)
