"""Forward passes in which every trial has its own independent weights.

The network is never rewritten. A private copy of it has all its parameters set to NaN, so that a
parameter which reaches the outputs by a way that is not accounted for shows itself; the weights
that count are handed in from outside:

* :class:`LocalNoise` watches the torch functions that the network calls and replaces those that
  use a parameter by the rules of :mod:`nonvacuous.risk.layers`;
* :class:`DrawnWeights` draws all weights for each trial and calls the network with them, in one
  vectorized pass where torch can, one trial after another where it cannot.

:mod:`nonvacuous.risk.preparation` picks one of them.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import Unsupported
from nonvacuous.risk.layers import NoRule, Weights
from nonvacuous.risk.watched import Memory, WatchedPass


class Forward(Protocol):
    """Outputs for trials; trial i looks at ``inputs[rows[i]]`` with weights of its own."""

    method: str
    bytes_per_trial: int

    def __call__(
        self, inputs: Tensor, rows: Tensor, generator: torch.Generator | None
    ) -> Tensor: ...


class LocalNoise:
    """Noise is added layer by layer, by rules that are exact in law."""

    method = "local noise"

    def __init__(self, hollow: nn.Module, posterior: DiagonalGaussian, *, late: bool) -> None:
        self.hollow = hollow
        # late: repeat the examples at the first random layer instead of at the inputs.
        self.late = late
        #: For passes over the same examples, see :class:`~nonvacuous.risk.watched.Memory`.
        self.memory: Memory | None = None
        self.bytes_per_trial = 1
        self.parameters = {
            id(parameter): Weights.of(name, posterior.means[name], posterior.scales[name])
            for name, parameter in hollow.named_parameters()
        }

    def around(self, posterior: DiagonalGaussian) -> LocalNoise:
        """The same network run in the same way, with other weights."""
        other = LocalNoise(self.hollow, posterior, late=self.late)
        other.bytes_per_trial, other.memory = self.bytes_per_trial, self.memory
        return other

    def __call__(self, inputs: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        pending = rows if self.late else None
        inputs = inputs if self.late else inputs.index_select(0, rows)
        watched = WatchedPass(
            self.parameters,
            distinct=len(inputs),
            rows=pending,
            generator=generator,
            memory=self.memory,
        )
        try:
            with watched:
                outputs: Tensor = self.hollow(inputs)
            if len(watched.taken) != len(self.parameters):
                missing = {weights.name for weights in self.parameters.values()} - watched.taken
                raise NoRule(f"{min(missing)} is never used")
        except NoRule as reason:
            if generator is None:
                raise
            raise Unsupported(
                f"the network uses its parameters differently from one batch to the next "
                f"({reason}); call estimate_risk with local=False, which draws all weights"
            ) from reason
        self.bytes_per_trial = max(1, watched.bytes // len(rows))
        return outputs


class _PlainPass(TorchFunctionMode):
    """Changes nothing, but fused attention kernels, which vmap cannot batch, stand aside for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DrawnWeights:
    """All weights are drawn for each trial: slow, and right for every network."""

    def __init__(self, hollow: nn.Module, posterior: DiagonalGaussian, *, vectorized: bool) -> None:
        self.hollow = hollow
        self.posterior = posterior
        self.vectorized = vectorized
        self.method = "drawn weights, " + ("vectorized" if vectorized else "one trial at a time")
        width = max(mean.element_size() for mean in posterior.means.values())
        self.bytes_per_trial = 4 * posterior.weights * width

    def __call__(self, inputs: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        weights = {name: self._draw(name, len(rows), generator) for name in self.posterior.names}
        inputs = inputs.index_select(0, rows)
        with _PlainPass(), warnings.catch_warnings():
            # Operations that torch vectorizes by a loop are slower, not wrong.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            if self.vectorized:
                return vmap(self._one)(weights, inputs)
            alone = [
                self._one({name: drawn[i] for name, drawn in weights.items()}, inputs[i])
                for i in range(len(rows))
            ]
        return torch.stack(alone)

    def _one(self, weights: dict[str, Tensor], example: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self.hollow, weights, (example.unsqueeze(0),))
        return outputs.squeeze(0)

    def _draw(self, name: str, trials: int, generator: torch.Generator | None) -> Tensor:
        mean, scale = self.posterior.means[name], self.posterior.scales[name]
        if generator is None:
            return mean.expand(trials, *mean.shape)
        shape, dtype, device = (trials, *mean.shape), mean.dtype, mean.device
        noise = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        return noise.mul_(scale).add_(mean)
