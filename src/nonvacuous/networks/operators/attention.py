"""Attention: queries and keys cancel per head and channel, values pass to the output."""

from __future__ import annotations

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.registry import register_operator


@register_operator("aten.scaled_dot_product_attention")
def scaled_dot_product_attention(passage: Passage) -> LogScale:
    query, key, value = (passage.scale(name) for name in ("query", "key", "value"))
    if passage.attribute("enable_gqa"):
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_along(-3, groups), value.repeat_along(-3, groups)
    front = [f"n{k}" for k in range(query.dimensions - 2)]
    scores = passage.product(
        [(query, [*front, "t", "d"]), (key, [*front, "s", "d"])], [*front, "t", "s"]
    )
    passage.pin(scores, "attention scores go through a softmax")
    if passage.has("attn_mask"):
        passage.pin(passage.scale("attn_mask"), "added to attention scores")
    weights = LogScale(scores.shape)
    return passage.product(
        [(weights, [*front, "t", "s"]), (value, [*front, "s", "d"])], [*front, "t", "d"]
    )
