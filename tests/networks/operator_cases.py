"""One call of every operator that has a rule; a new rule needs one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """One call of an operator.

    function   takes the written tensor and the extra weights
    shape      of the written tensor; axis 1 has the channels
    weights    shapes of extra weights
    passes     whether scales of the writer survive
    tensors    how many written tensors the function takes
    positive   feed positive numbers only (roots, logarithms)
    """

    function: Callable[..., Tensor]
    shape: tuple[int, ...] = (2, 4, 6, 6)
    weights: tuple[tuple[int, ...], ...] = ()
    passes: bool = True
    tensors: int = 1
    positive: bool = False


LINE, VOLUME, VECTOR = (2, 4, 6), (2, 4, 4, 4, 4), (2, 4)
MASK = torch.arange(36).reshape(6, 6) % 3 == 0
INDEX = torch.tensor([0, 2, 1])
PHASE = torch.polar(torch.ones(1), torch.ones(1)).to(torch.complex128)
PINNED = {"passes": False}


def pad_channels(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 1, 1, 0, 2))


def overwritten(x: Tensor) -> Tensor:
    return aten.slice_scatter(x, 2 * x[:, 1:3], 1, 0, 2)


CASES: dict[str, Case] = {
    # activations and arithmetic
    "aten.relu": Case(torch.relu),
    "aten.leaky_relu": Case(lambda x: F.leaky_relu(x, -0.5)),
    "aten.rrelu": Case(lambda x: F.rrelu(x, training=False)),
    "aten.prelu": Case(lambda x, w: F.prelu(x, w), weights=((4,),)),
    "aten.abs": Case(torch.abs),
    "aten.neg": Case(torch.neg),
    "aten.clone": Case(torch.clone),
    "aten.contiguous": Case(lambda x: x.transpose(2, 3).contiguous()),
    "aten.detach": Case(torch.detach),
    "aten.alias": Case(lambda x: aten.alias(x)),
    "aten.dropout": Case(lambda x: F.dropout(x, 0.5, training=False)),
    "aten.feature_dropout": Case(lambda x: F.dropout2d(x, 0.5, training=False)),
    "aten.alpha_dropout": Case(lambda x: F.alpha_dropout(x, 0.5, training=False)),
    "aten.feature_alpha_dropout": Case(lambda x: F.feature_alpha_dropout(x, 0.5, training=False)),
    "aten.lift_fresh_copy": Case(lambda x: aten.lift_fresh_copy(x)),
    "aten.positive": Case(torch.positive),
    "aten.clamp": Case(lambda x: torch.clamp(x, min=0)),
    "aten.clamp_min": Case(lambda x: torch.clamp_min(x, 0)),
    "aten.clamp_max": Case(lambda x: torch.clamp_max(x, 0)),
    "aten.threshold": Case(lambda x: F.threshold(x, 0, 0)),
    "aten.add": Case(lambda x, y: x + 2 * y, tensors=2),
    "aten.sub": Case(lambda x, y: x - y, tensors=2),
    "aten.rsub": Case(lambda x, y: torch.rsub(x, y), tensors=2),
    "aten.maximum": Case(torch.maximum, tensors=2),
    "aten.minimum": Case(torch.minimum, tensors=2),
    "aten.fmax": Case(torch.fmax, tensors=2),
    "aten.fmin": Case(torch.fmin, tensors=2),
    "aten.mul": Case(lambda x, y: x * y, tensors=2),
    "aten.div": Case(lambda x, y: x / y, tensors=2, positive=True),
    "aten.pow.Tensor_Scalar": Case(lambda x: x**3),
    "aten.square": Case(torch.square),
    "aten.sqrt": Case(torch.sqrt, positive=True),
    "aten.rsqrt": Case(torch.rsqrt, positive=True),
    "aten.reciprocal": Case(torch.reciprocal, positive=True),
    "aten.sign": Case(lambda x: torch.sign(x) * x),
    "aten.sgn": Case(lambda x: torch.sgn(x) * x),
    "aten.gt": Case(lambda x: (x > 0) * x),
    "aten.ge": Case(lambda x: (x >= 0) * x),
    "aten.lt": Case(lambda x, y: (x < y) * x, tensors=2),
    "aten.le": Case(lambda x: (x <= 0) * x),
    "aten.eq": Case(lambda x, y: (x == y) * x + y, tensors=2),
    "aten.ne": Case(lambda x: (x != 0) * x),
    "aten.where": Case(lambda x, y: torch.where(x > 0, x, y), tensors=2),
    "aten.masked_fill": Case(lambda x: x.masked_fill(MASK, 0.0)),
    "aten.to": Case(lambda x: x.to(torch.float32).to(torch.float64) * 0 + x),
    "aten._to_copy": Case(lambda x: aten._to_copy(x, dtype=torch.float64)),
    "aten.type_as": Case(lambda x, y: x.type_as(y) * y, tensors=2),
    "aten._assert_tensor_metadata": Case(lambda x: x.to(torch.float64)),
    "aten.ones_like": Case(lambda x: x * torch.ones_like(x)),
    "aten.zeros_like": Case(lambda x: x * (torch.zeros_like(x) + 1)),
    "aten.full_like": Case(lambda x: x * torch.full_like(x, 2.0)),
    "aten.new_ones": Case(lambda x: x * x.new_ones(6)),
    "aten.new_zeros": Case(lambda x: torch.cat([x, x.new_zeros(2, 1, 6, 6)], 1)),
    "aten.new_full": Case(lambda x: x * x.new_full((6,), 2.0)),
    # what does not scale
    "aten.gelu": Case(F.gelu, **PINNED),
    "aten.silu": Case(F.silu, **PINNED),
    "aten.sigmoid": Case(torch.sigmoid, **PINNED),
    "aten.tanh": Case(torch.tanh, **PINNED),
    "aten.relu6": Case(F.relu6, **PINNED),
    "aten.hardtanh": Case(F.hardtanh, **PINNED),
    "aten.hardswish": Case(F.hardswish, **PINNED),
    "aten.hardsigmoid": Case(F.hardsigmoid, **PINNED),
    "aten.elu": Case(F.elu, **PINNED),
    "aten.celu": Case(F.celu, **PINNED),
    "aten.selu": Case(F.selu, **PINNED),
    "aten.softplus": Case(F.softplus, **PINNED),
    "aten.log_sigmoid": Case(F.logsigmoid, **PINNED),
    "aten.mish": Case(F.mish, **PINNED),
    "aten.softmax": Case(lambda x: F.softmax(x, -1), **PINNED),
    "aten._softmax": Case(lambda x: aten._softmax(x, -1, False), **PINNED),
    "aten._safe_softmax": Case(lambda x: aten._safe_softmax(x, -1), **PINNED),
    "aten.log_softmax": Case(lambda x: F.log_softmax(x, -1), **PINNED),
    "aten._log_softmax": Case(lambda x: aten._log_softmax(x, -1, False), **PINNED),
    "aten.exp": Case(torch.exp, **PINNED),
    "aten.log": Case(torch.log, positive=True, **PINNED),
    "aten.log1p": Case(torch.log1p, positive=True, **PINNED),
    "aten.sin": Case(torch.sin, **PINNED),
    "aten.cos": Case(torch.cos, **PINNED),
    "aten.erf": Case(torch.erf, **PINNED),
    "aten.hardshrink": Case(F.hardshrink, **PINNED),
    "aten.softshrink": Case(F.softshrink, **PINNED),
    "aten.logsumexp": Case(lambda x: torch.logsumexp(x, -1), **PINNED),
    "aten.round": Case(torch.round, **PINNED),
    "aten.floor": Case(torch.floor, **PINNED),
    "aten.ceil": Case(torch.ceil, **PINNED),
    # sums of products
    "aten.linear": Case(lambda x, w, b: F.linear(x, w, b), VECTOR, ((3, 4), (3,))),
    "aten.matmul": Case(lambda x, w: w @ x, LINE, ((3, 4),)),
    "aten.mm": Case(torch.mm, VECTOR, ((4, 3),)),
    "aten.bmm": Case(lambda x, y: torch.bmm(x, y.transpose(1, 2)), LINE, tensors=2),
    "aten.mv": Case(lambda x, w: torch.mv(x, w)[:, None], VECTOR, ((4,),)),
    "aten.dot": Case(lambda x, w: torch.dot(x[0], w).expand(2, 1), VECTOR, ((4,),)),
    "aten.vdot": Case(lambda x, w: torch.vdot(w, x[1]).expand(2, 1), VECTOR, ((4,),)),
    "aten.addmm": Case(torch.addmm, (2, 2), ((2, 3), (3, 2))),
    "aten.baddbmm": Case(lambda x, y: torch.baddbmm(x, x, y), (2, 4, 4), tensors=2, passes=True),
    "aten.bilinear": Case(
        lambda x, y, w, b: F.bilinear(x, y, w, b), VECTOR, ((3, 4, 4), (3,)), tensors=2
    ),
    "aten.einsum": Case(
        lambda x, w: torch.einsum("nc...,oc->no...", x, w), weights=((3, 4),)
    ),
    "aten.conv1d": Case(lambda x, w, b: F.conv1d(x, w, b), LINE, ((3, 4, 2), (3,))),
    "aten.conv2d": Case(
        lambda x, w, b: F.conv2d(x, w, b, padding="same", groups=2),
        weights=((6, 2, 3, 3), (6,)),
    ),
    "aten.conv3d": Case(lambda x, w: F.conv3d(x, w), VOLUME, ((3, 4, 2, 2, 2),)),
    "aten.conv_transpose1d": Case(
        lambda x, w, b: F.conv_transpose1d(x, w, b, 2), LINE, ((4, 3, 2), (3,))
    ),
    "aten.conv_transpose2d": Case(
        lambda x, w, b: F.conv_transpose2d(x, w, b, groups=2), weights=((4, 3, 2, 2), (6,))
    ),
    "aten.conv_transpose3d": Case(
        lambda x, w: F.conv_transpose3d(x, w, groups=4), VOLUME, ((4, 1, 2, 2, 2),)
    ),
    "aten.scaled_dot_product_attention": Case(
        lambda x, y, z: F.scaled_dot_product_attention(x.mT, y.mT, z.mT),
        LINE,
        tensors=3,
    ),
    # normalization: the writer is pinned, the gain is not (see the test of gains)
    "aten.layer_norm": Case(
        lambda x, w, b: F.layer_norm(x, (6,), w, b), LINE, ((6,), (6,)), **PINNED
    ),
    "aten.rms_norm": Case(lambda x, w: F.rms_norm(x, (6,), w), LINE, ((6,),), **PINNED),
    "aten.group_norm": Case(
        lambda x, w, b: F.group_norm(x, 2, w, b), weights=((4,), (4,)), **PINNED
    ),
    "aten.instance_norm": Case(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b), weights=((4,), (4,)), **PINNED
    ),
    "aten.batch_norm": Case(
        lambda x, w, b: F.batch_norm(x, torch.ones(4).double(), torch.ones(4).double(), w, b),
        weights=((4,), (4,)),
        **PINNED,
    ),
    "aten._native_batch_norm_legit_no_training": Case(
        lambda x, w, b: aten._native_batch_norm_legit_no_training(
            x, w, b, torch.ones(4).double(), torch.ones(4).double(), 0.1, 1e-5
        )[0],
        weights=((4,), (4,)),
        **PINNED,
    ),
    "aten._weight_norm": Case(
        lambda x, v, g: F.linear(x, torch._weight_norm(v, g, 0)), VECTOR, ((3, 4), (3, 1))
    ),
    # tables
    "aten.embedding": Case(
        lambda x, w: F.embedding(torch.tensor([[0, 3, 1]] * 2), w).sum(1) * x, VECTOR, ((5, 4),)
    ),
    "aten.embedding_bag": Case(
        lambda x, w: F.embedding_bag(torch.tensor([[0, 3, 1]] * 2), w, mode="max") * x,
        VECTOR,
        ((5, 4),),
    ),
    # reductions
    "aten.sum": Case(lambda x: x.sum(-1)),
    "aten.mean": Case(lambda x: x.mean((2, 3), keepdim=True)),
    "aten.amax": Case(lambda x: x.amax((2, 3))),
    "aten.amin": Case(lambda x: x.amin(-1)),
    "aten.max.default": Case(lambda x: x.max() * x),
    "aten.min.default": Case(lambda x: x.min() * x),
    "aten.max.dim": Case(lambda x: x.max(1)[0]),
    "aten.min.dim": Case(lambda x: x.min(2)[0]),
    "aten.argmax": Case(lambda x: x.argmax(-1)),
    "aten.argmin": Case(lambda x: x.argmin(1)),
    "aten.std": Case(lambda x: x.std((2, 3))),
    "aten.var": Case(lambda x: x.var(-1)),
    "aten.linalg_vector_norm": Case(lambda x: torch.linalg.vector_norm(x, dim=1)),
    "aten.norm": Case(lambda x: aten.norm(x, 2, [2])),
    "aten.cumsum": Case(lambda x: x.cumsum(-1)),
    # moving elements
    "aten.view": Case(lambda x: x.view(2, 24, 6)),
    "aten.reshape": Case(lambda x: x.permute(0, 2, 1, 3).reshape(2, 6, 24)),
    "aten._unsafe_view": Case(lambda x: aten._unsafe_view(x, [2, 2, 2, 36])),
    "aten.flatten": Case(lambda x: x.flatten(1)),
    "aten.unflatten": Case(lambda x: x.unflatten(1, (2, 2))),
    "aten.view_as": Case(lambda x: x.view_as(torch.zeros(2, 24, 6))),
    "aten.reshape_as": Case(lambda x: x.reshape_as(torch.zeros(2, 24, 6))),
    "aten.permute": Case(lambda x: x.permute(0, 2, 3, 1)),
    "aten.transpose": Case(lambda x: x.transpose(1, -1)),
    "aten.swapaxes": Case(lambda x: aten.swapaxes(x, 1, 2)),
    "aten.t": Case(lambda x: x.t(), VECTOR),
    "aten.numpy_T": Case(lambda x: aten.numpy_T(x), VECTOR),
    "aten.mT": Case(lambda x: x.mT),
    "aten.movedim": Case(lambda x: x.movedim(1, -1)),
    "aten.squeeze": Case(lambda x: x[:, :, :1].squeeze(2)),
    "aten.unsqueeze": Case(lambda x: x.unsqueeze(1)),
    "aten.expand": Case(lambda x: x[:, :, :1].expand(-1, -1, 3, -1)),
    "aten.expand_as": Case(lambda x: x[:, :, :1].expand_as(x)),
    "aten.broadcast_to": Case(lambda x: aten.broadcast_to(x[:, :, :1], [2, 4, 6, 6])),
    "aten.select.int": Case(lambda x: x.select(1, -2)),
    "aten.slice": Case(lambda x: x[:, 1:4:2]),
    "aten.narrow": Case(lambda x: aten.narrow(x, 1, 1, 2)),
    "aten.chunk": Case(lambda x: x.chunk(2, 1)[1]),
    "aten.unsafe_chunk": Case(lambda x: aten.unsafe_chunk(x, 2, 1)[0]),
    "aten.split": Case(lambda x: x.split(3, 1)[1]),
    "aten.split_with_sizes": Case(lambda x: aten.split_with_sizes(x, [1, 3], 1)[1]),
    "aten.tensor_split": Case(lambda x: aten.tensor_split(x, 3, 1)[0]),
    "aten.unbind": Case(lambda x: x.unbind(1)[2]),
    "getitem": Case(lambda x: x.chunk(2, 1)[1]),
    "aten.cat": Case(lambda x, y: torch.cat([x, y[:, 1:], torch.ones_like(x)], 1), tensors=2),
    "aten.stack": Case(lambda x, y: torch.stack([x, y], 1), tensors=2),
    "aten.repeat": Case(lambda x: x.repeat(1, 2, 1, 1)),
    "aten.repeat_interleave.self_int": Case(lambda x: x.repeat_interleave(3, 1)),
    "aten.pad": Case(pad_channels),
    "aten.constant_pad_nd": Case(lambda x: aten.constant_pad_nd(x, [1, 1, -1, 2])),
    "aten.flip": Case(lambda x: x.flip(1, 2)),
    "aten.roll": Case(lambda x: x.roll((1, 2), (1, 3))),
    "aten.index.Tensor": Case(lambda x: x[:, :, INDEX, INDEX]),
    "aten.view_as_complex": Case(
        lambda x: torch.view_as_real(
            torch.view_as_complex(x.unflatten(1, (2, 2)).movedim(2, -1).contiguous()) * PHASE
        )
    ),
    "aten.view_as_real": Case(
        lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(3, (3, 2))) * PHASE)
    ),
    "aten.index_select": Case(lambda x: x.index_select(1, INDEX)),
    "aten.copy": Case(lambda x, y: aten.copy(x, y), tensors=2),
    "aten.fill": Case(lambda x, y: aten.fill(x, 0.5) * y, tensors=2),
    "aten.slice_scatter": Case(overwritten),
    "aten.select_scatter": Case(lambda x: aten.select_scatter(x, x[:, 0], 1, 2)),
    # resampling
    "aten.pixel_shuffle": Case(lambda x: F.pixel_shuffle(x, 2)),
    "aten.pixel_unshuffle": Case(lambda x: F.pixel_unshuffle(x, 2)),
    "aten.channel_shuffle": Case(lambda x: F.channel_shuffle(x, 2)),
    "aten.native_channel_shuffle": Case(lambda x: aten.native_channel_shuffle(x, 2)),
    "aten.im2col": Case(lambda x: F.unfold(x, 3)),
    "aten.col2im": Case(lambda x: F.fold(x, (3, 4), 2), (2, 8, 6)),
    "aten.glu": Case(lambda x: F.glu(x, 1)),
}  # fmt: skip


def _spatial_cases(kind: int, shape: tuple[int, ...]) -> dict[str, Case]:
    """Pooling, padding and resampling of lines, images and volumes."""

    def case(function: Callable[..., Tensor], *arguments: object, **options: object) -> Case:
        def call(x: Tensor) -> Tensor:
            result = function(x, *arguments, **options)
            return result[0] if isinstance(result, tuple) else result

        return Case(call, shape)

    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[kind]
    names = {
        f"upsample_nearest{kind}d": "nearest",
        f"_upsample_nearest_exact{kind}d": "nearest-exact",
        f"upsample_{linear}{kind}d": linear,
    }
    if kind == 2:
        names["upsample_bicubic2d"] = "bicubic"
    cases = {
        f"max_pool{kind}d": case(getattr(F, f"max_pool{kind}d"), 2, padding=1),
        f"avg_pool{kind}d": case(getattr(F, f"avg_pool{kind}d"), 2, padding=1),
        f"max_pool{kind}d_with_indices": case(
            getattr(aten, f"max_pool{kind}d_with_indices"), [2] * kind
        ),
        f"adaptive_avg_pool{kind}d": case(getattr(F, f"adaptive_avg_pool{kind}d"), 3),
        f"adaptive_max_pool{kind}d": case(getattr(F, f"adaptive_max_pool{kind}d"), 3),
        f"reflection_pad{kind}d": case(getattr(aten, f"reflection_pad{kind}d"), [1, 1] * kind),
        f"replication_pad{kind}d": case(getattr(aten, f"replication_pad{kind}d"), [1, 1] * kind),
    } | {name: case(F.interpolate, scale_factor=2, mode=mode) for name, mode in names.items()}
    return {f"aten.{name}": each for name, each in cases.items()}


for dimensions, size in ((1, LINE), (2, (2, 4, 6, 6)), (3, VOLUME)):
    CASES |= _spatial_cases(dimensions, size)
