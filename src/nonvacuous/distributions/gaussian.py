"""A Gaussian over the weights of a network, every weight independent of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks
from nonvacuous.distributions.storage import load_tensors, save_tensors, tensors_digest
from nonvacuous.errors import BadInput

_KIND = "DiagonalGaussian"
#: Of each weight its part of a sum, and a magnitude that the rounding error is proportional to.
Divergence = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """Independent Gaussians, one for every weight of every named parameter tensor.

    ``means`` and ``scales`` map the names of a module's parameters (as ``named_parameters()``
    gives them: a parameter shared by two layers appears once, under its first name) to tensors
    of the parameter's shape. A scale is a standard deviation, never a variance, and is strictly
    positive. The distribution keeps its own copies, so training the module further does not
    change it.

    >>> layer = torch.nn.Linear(3, 2)
    >>> posterior = DiagonalGaussian.around(layer, scale=0.1)
    >>> prior = DiagonalGaussian.around(layer, scale=0.1)
    >>> posterior.kl_to(prior)
    {'weight': 0.0, 'bias': 0.0}
    """

    means: Mapping[str, Tensor]
    scales: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        _check_same_names("means", self.means, "scales", self.scales)
        for name, mean in self.means.items():
            _check_tensor_pair(name, mean, self.scales[name])
        # A frozen dataclass is set once, here: private copies behind read-only views.
        for field, tensors in (("means", self.means), ("scales", self.scales)):
            copies = {name: tensors[name].detach().clone() for name in self.means}
            object.__setattr__(self, field, MappingProxyType(copies))

    @classmethod
    def around(
        cls, module: nn.Module, scale: float | Mapping[str, float | Tensor] = 0.03
    ) -> DiagonalGaussian:
        """Centered on the module's present weights.

        ``scale`` is one standard deviation for all weights, or one entry per parameter name,
        each a number or a tensor of the parameter's shape.
        """
        means = {name: parameter.detach() for name, parameter in module.named_parameters()}
        return cls.from_means(means, scale)

    @classmethod
    def centered(
        cls, module: nn.Module, scale: float | Mapping[str, float | Tensor] = 1.0
    ) -> DiagonalGaussian:
        """Centered on zero, for the module's parameter names and shapes."""
        means = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
        return cls.from_means(means, scale)

    @classmethod
    def from_means(
        cls, means: Mapping[str, Tensor], scale: float | Mapping[str, float | Tensor]
    ) -> DiagonalGaussian:
        """Centered on the given tensors, with scales spread over them as in :meth:`around`."""
        given = scale if isinstance(scale, Mapping) else dict.fromkeys(means, scale)
        _check_same_names("means", means, "scale", given)
        scales = {}
        for name, mean in means.items():
            own = given[name]
            if not isinstance(own, Tensor) or own.ndim == 0:
                # Rounding a tiny number to the tensor's dtype may give zero, which is refused.
                own = torch.full_like(mean, float(own))
            scales[name] = own
        return cls(means=means, scales=scales)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameter tensors, in the order of the module."""
        return tuple(self.means)

    @property
    def weights(self) -> int:
        """How many single weights the distribution covers."""
        return sum(mean.numel() for mean in self.means.values())

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return next(iter(self.means.values())).device

    def check_covers(self, module: nn.Module) -> None:
        """Refuse unless this covers exactly the module's parameters, names and shapes alike."""
        parameters = dict(module.named_parameters())
        check_same_tensors("the distribution", self.means, "the module", parameters)

    def mean_weights(self) -> dict[str, Tensor]:
        """Copies of the means, ready for ``torch.func.functional_call``."""
        return {name: mean.clone() for name, mean in self.means.items()}

    def sample(self, *, generator: torch.Generator) -> dict[str, Tensor]:
        """One draw of all weights; noise comes from the generator's device, then moves."""
        drawn = {}
        for name, mean in self.means.items():
            noise = torch.randn(
                mean.shape, generator=generator, dtype=mean.dtype, device=generator.device
            )
            drawn[name] = torch.addcmul(mean, noise.to(mean.device), self.scales[name])
        return drawn

    def to(self, device: torch.device | str) -> DiagonalGaussian:
        """The same distribution with its tensors on another device."""
        return DiagonalGaussian(
            means={name: tensor.to(device) for name, tensor in self.means.items()},
            scales={name: tensor.to(device) for name, tensor in self.scales.items()},
        )

    def kl_to(self, prior: DiagonalGaussian) -> dict[str, float]:
        """KL(self || prior) in nats for each tensor, summed in float64 and rounded up."""
        return self._compared(prior, _kl, least=0.0)

    def kl_nats(self, prior: DiagonalGaussian) -> float:
        """KL(self || prior) in nats over all tensors, rounded up."""
        total = math.fsum(self.kl_to(prior).values())
        return math.nextafter(total, math.inf) if total > 0 else 0.0

    def renyi_to(self, prior: DiagonalGaussian, order: float) -> dict[str, float]:
        """Rényi divergence of an order above 1, in nats for each tensor, rounded up.

        Infinite for a tensor in which some posterior scale s is so much wider than the prior's
        S that ``order * S**2 <= (order - 1) * s**2``: the divergence does not exist there, and a
        bound that uses it says nothing. Lower the order or widen the prior.
        """
        checks.within("order", order, 1.0, open=True)
        return self._compared(prior, partial(_renyi, order=order), least=0.0)

    def log_density_ratio(self, prior: DiagonalGaussian, weights: Mapping[str, Tensor]) -> float:
        """ln(dself / dprior) at one draw of all weights, in nats, rounded up; may be negative."""
        check_same_tensors("the distribution", self.means, "weights", weights)
        parts = self._compared(prior, _log_ratio, weights)
        return math.nextafter(math.fsum(parts.values()), math.inf)

    def digest(self) -> str:
        """SHA-256 (hex) over names, shapes, dtypes and bytes of all means and scales."""
        return tensors_digest(self._flat())

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; the file appears whole or not at all."""
        save_tensors(Path(path), self._flat(), kind=_KIND)

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> DiagonalGaussian:
        """Read what :meth:`save` wrote."""
        stored = load_tensors(Path(path), kind=_KIND, device=device)
        parts: dict[str, dict[str, Tensor]] = {"means": {}, "scales": {}}
        for key, tensor in stored.items():
            field, _, name = key.partition("/")
            if field not in parts or not name:
                raise BadInput(f"{path} holds a tensor {key!r} that {_KIND}.save never writes")
            parts[field][name] = tensor
        return cls(means=parts["means"], scales=parts["scales"])

    def _flat(self) -> dict[str, Tensor]:
        means = {f"means/{name}": tensor for name, tensor in self.means.items()}
        return means | {f"scales/{name}": tensor for name, tensor in self.scales.items()}

    def _compared(
        self,
        prior: DiagonalGaussian,
        divergence: Divergence,
        *more: Mapping[str, Tensor],
        least: float = -math.inf,
    ) -> dict[str, float]:
        check_same_tensors("the posterior", self.means, "the prior", prior.means)
        tensors = (self.means, self.scales, prior.means, prior.scales, *more)
        return {
            name: max(least, _sum_upward(divergence, *(each[name] for each in tensors)))
            for name in self.means
        }


def check_same_tensors(
    first_label: str,
    first: Mapping[str, Tensor],
    second_label: str,
    second: Mapping[str, Tensor] | Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse tensors (or shapes) of one network where others are needed: by names and shapes."""
    _check_same_names(first_label, first, second_label, second)
    for name, tensor in first.items():
        own, other = tuple(tensor.shape), tuple(getattr(second[name], "shape", second[name]))
        if own != other:
            raise BadInput(
                f"tensor {name!r} has shape {own} in {first_label} but {other} in {second_label}; "
                "take both from the same module, or from one of the same architecture"
            )


def _check_same_names(
    first_label: str, first: Mapping[str, object], second_label: str, second: Mapping[str, object]
) -> None:
    if not first and not second:
        raise BadInput("there is no parameter tensor at all; a distribution needs at least one")
    for label, absent, other in (
        (second_label, sorted(set(first) - set(second)), first_label),
        (first_label, sorted(set(second) - set(first)), second_label),
    ):
        if absent:
            raise BadInput(
                f"{label} lacks {len(absent)} of the tensors of {other}, first {absent[0]!r}; "
                "names must agree with module.named_parameters(), where a parameter shared by "
                "several layers appears once, under its first name"
            )


def _check_tensor_pair(name: str, mean: Tensor, scale: Tensor) -> None:
    for label, tensor in (("means", mean), ("scales", scale)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise BadInput(f"{label}[{name!r}] must be a real floating-point tensor, got {kind}")
    if mean.shape != scale.shape or mean.dtype != scale.dtype or mean.device != scale.device:
        raise BadInput(
            f"means[{name!r}] is {tuple(mean.shape)} {mean.dtype} on {mean.device} but "
            f"scales[{name!r}] is {tuple(scale.shape)} {scale.dtype} on {scale.device}; "
            "shape, dtype and device must agree"
        )
    if not mean.numel():
        return
    # The ends of the range in one reading; a NaN anywhere is both of them.
    (lowest, largest), (narrowest, widest) = (
        torch.stack(torch.aminmax(tensor)).tolist() for tensor in (mean.detach(), scale.detach())
    )
    if not (-math.inf < lowest and largest < math.inf):
        raise BadInput(f"means[{name!r}] holds NaN or infinity; a mean must be finite")
    if not (narrowest > 0 and widest < math.inf):
        raise BadInput(
            f"scales[{name!r}] holds a value that is not strictly positive and finite; a scale is "
            f"a standard deviation, and the smallest that {scale.dtype} holds is about "
            f"{torch.finfo(scale.dtype).tiny:.0e}"
        )


# Divergences between two diagonal Gaussians, tensor by tensor, never below the true value.
#
# Every sum runs in float64 whatever the dtype of the tensors, block by block so that a large layer
# does not need eight times its own memory. A bound on the rounding error is carried along with
# each sum and added at the end: the numbers returned here are upper bounds of the exact divergences
# of the stored tensors, and two equal tensors are at divergence exactly zero.
#
# Notation: the posterior has means ``m`` and scales ``s``, the prior has means ``M`` and scales
# ``S``; ``excess`` is (s / S)^2 - 1, which is zero where the two scales agree, so that ``log1p``
# keeps all its digits there.

_BLOCK = 1 << 22
# Each elementary float64 operation is off by at most half a unit in the last place, library
# logarithms by about one; a few dozen units cover every chain of operations below, including the
# pairwise summation of one block.
_ROUNDING = 64 * torch.finfo(torch.float64).eps


def _kl(m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor) -> tuple[Tensor, Tensor]:
    """KL(posterior || prior) in nats, weight by weight, and what its rounding is a multiple of."""
    excess, log_ratio, log_size = _compare_scales(s, prior_s)
    scale_part = (excess - log_ratio).clamp_min(0)
    mean_part = ((m - prior_m) / prior_s).square()
    # excess is accurate to a relative error, so only the logarithm's error can exceed the
    # (possibly much smaller) difference.
    size = scale_part + mean_part + log_size
    return (scale_part + mean_part) / 2, size


def _renyi(
    m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor, *, order: float
) -> tuple[Tensor, Tensor]:
    """The same for the Rényi divergence of an order above 1; infinite where it is undefined."""
    gap = order - 1.0
    excess, log_ratio, log_size = _compare_scales(s, prior_s)
    mixed = 1.0 - gap * excess
    scale_part = -log_ratio / 2 - torch.log1p(-gap * excess) / (2 * gap)
    mean_part = ((m - prior_m) / prior_s).square() * (order / 2) / mixed
    # ``mixed`` is a difference: its relative error grows as it approaches zero.
    cancellation = (1.0 + gap * excess.abs()) / mixed
    size = (
        log_size
        + torch.log1p(-gap * excess).abs() / gap
        + cancellation * (excess.abs() + mean_part)
        + mean_part
    )
    undefined = ~(mixed > 0)
    value = (scale_part.clamp_min(0) + mean_part).masked_fill(undefined, math.inf)
    return value, size.masked_fill(undefined, 0.0)


def _log_ratio(
    m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor, w: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for ln(dposterior / dprior) at the weights ``w``; it may be negative."""
    _, log_ratio, log_size = _compare_scales(s, prior_s)
    near = ((w - m) / s).square()
    far = ((w - prior_m) / prior_s).square()
    return (far - near - log_ratio) / 2, near + far + log_size


def _compare_scales(s: Tensor, prior_s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(s / S)^2 - 1 and ln of (s / S)^2, each accurate for close and for far apart scales; and a
    magnitude that the rounding error of the logarithm is proportional to."""
    logs, prior_logs = torch.log(s), torch.log(prior_s)
    excess = ((s - prior_s) / prior_s) * ((s + prior_s) / prior_s)
    near = excess.abs() < 0.5
    log_ratio = torch.log1p(excess.masked_fill(~near, 0)).where(near, 2 * (logs - prior_logs))
    size = log_ratio.abs()
    return excess, log_ratio, size + (logs.abs_() + prior_logs.abs_()).masked_fill(size <= 0.4, 0)


def _sum_upward(block: Divergence, *tensors: Tensor) -> float:
    """The sum over all weights of tensors, with all that rounding can have taken from it."""
    values: list[float] = []
    sizes: list[float] = []
    # Apple's GPUs have no float64; everywhere else the sums stay where the first tensor is.
    device = tensors[0].device if tensors[0].device.type != "mps" else torch.device("cpu")
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _BLOCK):
        parts = (part[start : start + _BLOCK].to(device).to(torch.float64) for part in flat)
        value, size = block(*parts)
        values.append(float(value.sum()))
        sizes.append(float(value.abs().sum() + size.sum()))
    if any(not math.isfinite(value) for value in values + sizes):
        return math.inf
    return math.fsum([*values, _ROUNDING * math.fsum(sizes)])
