"""Elementwise operators: activations, sums, products, powers, comparisons."""

from __future__ import annotations

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.registry import Passage, aten, register_operator

BOUNDED_REMEDY = (
    "The scales of its input stay at 1; an activation with f(λx) = λ f(x), such as ReLU or "
    "LeakyReLU, would let them pass"
)


@register_operator(
    *aten("relu leaky_relu rrelu abs neg positive clone contiguous detach alias lift_fresh_copy"),
    *aten("dropout feature_dropout alpha_dropout feature_alpha_dropout"),
)
def degree_one(passage: Passage) -> LogScale:
    """f(λx) = λ f(x): the scale of the (first) argument passes unchanged.

    Dropout and randomized ReLU are here because capture refuses them in training mode.
    """
    return passage.scale(next(iter(passage.node.arguments)))


@register_operator("aten.prelu")
def prelu(passage: Passage) -> LogScale:
    """The slopes multiply, so they must keep their values; the input passes."""
    passage.pin(passage.scale("weight"), "a slope keeps its value")
    return passage.scale("self")


@register_operator(
    *aten("gelu silu sigmoid tanh relu6 hardtanh hardswish hardsigmoid elu celu selu softplus"),
    *aten("log_sigmoid mish softmax _softmax _safe_softmax log_softmax _log_softmax logsumexp"),
    *aten("exp log log1p sin cos erf hardshrink softshrink round floor ceil"),
)
def not_homogeneous(passage: Passage) -> LogScale:
    """f(λx) is not λ f(x): nothing passes."""
    name = passage.node.kind
    passage.pin_all(f"{name} of a scaled number is not a scaled {name}", BOUNDED_REMEDY)
    return LogScale(passage.shape)


@register_operator(*aten("clamp clamp_min clamp_max threshold"))
def clamp(passage: Passage) -> LogScale:
    """A bound at 0 (or none) scales with anything; another one does not."""
    bounds = [passage.attribute(name) for name in ("min", "max", "threshold", "value")]
    if any(bound not in (None, 0) for bound in bounds):
        return not_homogeneous(passage)
    return passage.scale("self")


@register_operator(*aten("add sub rsub maximum minimum fmax fmin"))
def add(passage: Passage) -> LogScale:
    """Only what scales alike can be added or compared."""
    if passage.attribute("other") == 0 and passage.node.op.startswith(aten("add sub")):
        return passage.scale("self")
    return passage.tie(passage.scale("self"), passage.scale("other"))


# Scales multiply: a gate that does not scale lets the value's scale pass.
register_operator("aten.mul")(lambda p: p.scale("self").times(p.scale("other")))
# A sign does not notice a positive factor.
register_operator("aten.sign", "aten.sgn")(lambda p: LogScale(p.shape))


@register_operator("aten.div")
def divide(passage: Passage) -> LogScale:
    if passage.attribute("rounding_mode") is not None:
        return not_homogeneous(passage)
    return passage.scale("self").over(passage.scale("other"))


_EXPONENTS = {"aten.square": 2, "aten.sqrt": 0.5, "aten.rsqrt": -0.5, "aten.reciprocal": -1}


@register_operator("aten.pow.Tensor_Scalar", *_EXPONENTS)
def power(passage: Passage) -> LogScale:
    name = passage.node.op.rpartition(".")[0]
    exponent = _EXPONENTS.get(name) or passage.attribute("exponent")
    if not isinstance(exponent, int | float):
        return not_homogeneous(passage)
    return passage.scale("self").power(exponent)


@register_operator("aten.gt", "aten.ge", "aten.lt", "aten.le", "aten.eq", "aten.ne")
def compare(passage: Passage) -> LogScale:
    """A comparison with 0, or between tensors that scale alike, does not notice the scale."""
    if passage.has("other"):
        passage.tie(passage.scale("self"), passage.scale("other"))
    elif passage.attribute("other") != 0:
        return not_homogeneous(passage)
    return LogScale(passage.shape)


_SCALE_FREE = (0, float("inf"), -float("inf"))
"""Numbers that are the same after multiplication by any positive factor."""


@register_operator("aten.where")
def where(passage: Passage) -> LogScale:
    """One of two tensors at each position; 0 and the infinities go with anything."""
    passage.pin(passage.scale("condition"), "a condition does not scale")
    scales = [
        passage.scale(name)
        for name in ("self", "other")
        if passage.has(name) or passage.attribute(name) not in _SCALE_FREE
    ]
    return passage.tie(*scales) if scales else LogScale(())


@register_operator("aten.masked_fill")
def masked_fill(passage: Passage) -> LogScale:
    """0 and the infinities are the same after scaling; another filling is not."""
    passage.pin(passage.scale("mask"), "a mask does not scale")
    if passage.has("value") or passage.attribute("value") not in _SCALE_FREE:
        return not_homogeneous(passage)
    return passage.scale("self")


@register_operator("aten.to", "aten._to_copy", "aten.type_as")
def convert(passage: Passage) -> LogScale:
    """Another number format keeps the scale, unless it keeps whole numbers only."""
    if not passage.node.floating[0]:
        return not_homogeneous(passage)
    return passage.scale("self")


@register_operator(
    *aten("_assert_tensor_metadata ones_like zeros_like full_like new_ones new_zeros new_full")
)
def shape_only(passage: Passage) -> LogScale:
    """The result depends on the shape of the argument, not on its values."""
    passage.pin(passage.scale("fill_value"), "a filling does not scale")
    return LogScale(passage.shape)
