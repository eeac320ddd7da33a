"""Normalizations: nothing passes into them; their gain is a scale of its own."""

from __future__ import annotations

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.registry import Passage, aten, register_operator

INPUT_REMEDY = (
    "The scales that write its input stay at 1; those of its gain and of the layers that read it "
    "are free"
)
FOLD_REMEDY = (
    "Fold it into the preceding layer first: nonvacuous.networks.fold_batch_norm(module, example)"
)


def _gain(passage: Passage, *, per_channel: bool) -> LogScale:
    """gain · (something that does not scale) + shift, each of length c for images [n, c, ...]."""
    # Without a gain the shift is added to what does not scale, and must not scale either.
    names = ("weight", "bias") if passage.has("bias") else ("weight",)
    scales = [passage.scale(name) for name in names]
    for _ in range(len(passage.shape) - 2 if per_channel else 0):
        scales = [scale.unsqueeze(scale.dimensions) for scale in scales]
    return passage.tie(*scales)


@register_operator(*aten("layer_norm rms_norm group_norm instance_norm"))
def normalization(passage: Passage) -> LogScale:
    name = passage.node.kind
    passage.pin(passage.scale("input"), f"{name} adds a constant to the variance", INPUT_REMEDY)
    return _gain(passage, per_channel=name in ("group_norm", "instance_norm"))


@register_operator("aten.batch_norm", "aten._native_batch_norm_legit_no_training")
def batch_norm(passage: Passage) -> LogScale:
    """In evaluation mode: subtracts a constant mean, then gain and shift."""
    reason = "batch normalization subtracts a mean that does not scale"
    passage.pin(passage.scale("input"), reason, FOLD_REMEDY)
    return _gain(passage, per_channel=True)


@register_operator("aten._weight_norm")
def weight_norm(passage: Passage) -> LogScale:
    """g · v / |v|: the direction keeps its scale, the length has its own."""
    remedy = (
        "Remove the parametrization (torch.nn.utils.parametrize.remove_parametrizations) to "
        "rescale the weight itself"
    )
    passage.pin(passage.scale("v"), "the direction of a normalized weight is kept", remedy)
    return passage.spread(passage.scale("g"))


@register_operator("aten.scaled_dot_product_attention")
def scaled_dot_product_attention(passage: Passage) -> LogScale:
    """Queries and keys cancel per head and channel, values pass to the output."""
    query, key, value = (passage.scale(name) for name in ("query", "key", "value"))
    if passage.attribute("enable_gqa"):
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_along(-3, groups), value.repeat_along(-3, groups)
    front = [f"n{k}" for k in range(query.dimensions - 2)]
    scores = passage.product(
        [(query, [*front, "t", "d"]), (key, [*front, "s", "d"])], [*front, "t", "s"]
    )
    passage.pin(scores, "attention scores go through a softmax")
    passage.pin(passage.scale("attn_mask"), "added to attention scores")
    weights = LogScale(scores.shape)
    return passage.product(
        [(weights, [*front, "t", "s"]), (value, [*front, "s", "d"])], [*front, "t", "d"]
    )


@register_operator("aten.embedding", "aten.embedding_bag")
def embedding(passage: Passage) -> LogScale:
    """A row, or the sum, mean or maximum of some.

    Which row is read depends on the input, so rows scale alike; columns are channels.
    """
    passage.pin(passage.scale("indices"), "an index does not scale")
    passage.pin(passage.scale("per_sample_weights"), "weights of a bag do not scale")
    return passage.constant(passage.scale("weight"), [0]).select(0, 0)
