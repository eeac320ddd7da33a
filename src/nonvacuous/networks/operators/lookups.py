"""Tables of vectors: embeddings."""

from __future__ import annotations

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.registry import register_operator


def _table(passage: Passage) -> LogScale:
    """Which row is read depends on the input, so rows scale alike; columns are channels."""
    return passage.constant(passage.scale("weight"), [0]).select(0, 0)


@register_operator("aten.embedding")
def embedding(passage: Passage) -> LogScale:
    passage.pin(passage.scale("indices"), "an index does not scale")
    scale = _table(passage).broadcast_to(passage.shape)
    return LogScale(passage.shape, scale.terms)


@register_operator("aten.embedding_bag")
def embedding_bag(passage: Passage) -> list[LogScale]:
    """Sum, mean or maximum of rows."""
    passage.pin(passage.scale("indices"), "an index does not scale")
    if passage.has("per_sample_weights"):
        passage.pin(passage.scale("per_sample_weights"), "weights of a bag do not scale")
    scale = _table(passage).broadcast_to(passage.shape)
    rest = [LogScale(shape) for shape in passage.node.shapes[1:]]
    return [LogScale(passage.shape, scale.terms), *rest]
