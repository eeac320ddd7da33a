"""Forward passes in which every trial has its own independent weights.

The network is never rewritten. A private copy of it has all its parameters set to NaN, so that a
parameter which reaches the outputs by a way that is not accounted for shows itself; the weights
that count are handed in from outside:

* :class:`LocalNoise` watches the torch functions that the network calls and replaces those that
  use a parameter by the rules of :mod:`nonvacuous.risk.layers`;
* :class:`DrawnWeights` draws all weights for each trial and calls the network with them, in one
  vectorized pass where torch can, one trial after another where it cannot.

The fastest that provably follows the network's law is chosen: each candidate must reproduce the
plain network on a few examples when the noise is zero. The network itself must treat every example
by itself; one that does not is refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import BaseTorchFunctionMode
from torch.utils._pytree import tree_leaves

from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported, WrongMode
from nonvacuous.risk.layers import NoRule
from nonvacuous.risk.positions import Weights
from nonvacuous.risk.watched import Memory, WatchedPass


class LocalNoise:
    """Noise is added layer by layer, by rules that are exact in law.

    Trial i looks at ``inputs[rows[i]]`` with weights of its own.
    """

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
            watched.check_copies()
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
        # Fused attention kernels, which vmap cannot batch, stand aside for any mode.
        with BaseTorchFunctionMode(), warnings.catch_warnings():
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


Forward = LocalNoise | DrawnWeights


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on whichever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "not enough memory" in text or "can't allocate memory" in text
    )


def _agrees(forward: Forward, inputs: Tensor, expected: Tensor) -> bool:
    """Whether a way to run the network reproduces its outputs when the noise is zero.

    Two batch sizes, so that no other dimension can pass for the examples, with uneven repetitions,
    so that mixing up rows shows.
    """
    for pattern in ([0, 0, 0, 1, 2, 2, 3, 4], [1, 2, 2]):
        rows = torch.tensor(pattern, device=inputs.device)
        try:
            outputs = forward(inputs[: max(pattern) + 1], rows, None)
        except Exception as error:
            # Whatever goes wrong inside a candidate only means: not this way.
            if is_out_of_memory(error):
                raise
            return False
        if not _close(outputs, expected.index_select(0, rows)):
            return False
    return True


def prepare(
    module: nn.Module, posterior: DiagonalGaussian, inputs: Tensor, *, local: bool
) -> tuple[Forward, Tensor]:
    """The fastest exact way to run trials of this network, and what it makes of a few examples."""
    # Its parameters are all NaN: only weights handed in from outside can be used.
    hollow = copied_network(module)
    _fill(hollow, None)
    means = posterior.mean_weights()
    few = torch.linspace(0, len(inputs) - 1, 5).round().long().to(inputs.device)
    probe = inputs.index_select(0, few).to(posterior.device)
    outputs = _run(hollow, means, probe)
    finite = bool(torch.isfinite(outputs).all())
    if not finite:
        _check_no_hidden_parameter(hollow, means, probe, outputs)
    _check_each_example_alone(hollow, means, probe, outputs)
    check_reads_its_weights(module, probe)
    # Where outputs are NaN anyway, NaN cannot betray a parameter that a local rule missed.
    if local and finite:
        for late in (True, False):
            quick = LocalNoise(hollow, posterior, late=late)
            if _agrees(quick, probe, outputs):
                return quick, outputs
    for vectorized in (True, False):
        drawn = DrawnWeights(hollow, posterior, vectorized=vectorized)
        if _agrees(drawn, probe, outputs):
            return drawn, outputs
    raise Unsupported(
        "the network gives other outputs for an example alone with its own weights than in a "
        "plain pass; it keeps a state between calls or refuses single examples, so no risk over "
        "weight draws can be measured"
    )


@torch.no_grad()
def _fill(module: nn.Module, weights: Mapping[str, Tensor] | None) -> None:
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.tensor(math.nan) if weights is None else weights[name])


def _run(hollow: nn.Module, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    try:
        outputs = functional_call(hollow, weights, (inputs,))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise BadInput(
            f"the network fails on inputs of shape {tuple(inputs.shape)} {inputs.dtype} on "
            f"{inputs.device}: {error}; check shape, dtype and device of the examples"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim < 1 or len(outputs) != len(inputs):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise BadInput(
            f"the network returned {shape} for {len(inputs)} examples; it must return one tensor "
            "with one row for each example: wrap it in a module that does"
        )
    return outputs


def _check_no_hidden_parameter(
    hollow: nn.Module, means: dict[str, Tensor], inputs: Tensor, outputs: Tensor
) -> None:
    """Tell a network whose outputs are not finite from one that hides where its weights are."""
    _fill(hollow, means)
    by_itself = _run(hollow, means, inputs)
    _fill(hollow, None)
    if not torch.equal(torch.isfinite(outputs), torch.isfinite(by_itself)):
        raise Unsupported(
            "the network reads some weights from somewhere else than its parameters (a cached or "
            "flattened copy), so draws of the weights would not reach its outputs; read each "
            "parameter from the module at every call"
        )


@torch.no_grad()
def check_reads_its_weights(module: nn.Module, inputs: Tensor) -> None:
    """Refuse a network that keeps what it once computed from its weights: no draw would reach it.

    The same weights are put into a copy that was called before and into one that was not.
    """
    # Without gradients: of weights that have some autocast keeps what it casts, call after call.
    called, fresh = (copied_network(module).eval().requires_grad_(False) for _ in range(2))
    try:
        called(inputs.clone())
        generator = torch.Generator().manual_seed(0)
        for one, other in zip(called.parameters(), fresh.parameters(), strict=True):
            if one.is_floating_point():
                spread = 2.0 * float(one.abs().mean()) + 0.1
                one.add_(spread * (torch.rand(one.shape, generator=generator).to(one) - 0.5))
                other.copy_(one)
        first, second, third = (
            [leaf for leaf in tree_leaves(network(inputs.clone())) if isinstance(leaf, Tensor)]
            for network in (called, fresh, fresh)
        )
    except Exception as error:  # such weights may be too much for it
        if is_out_of_memory(error):
            raise
        return
    same = partial(torch.allclose, equal_nan=True)
    # What differs from call to call by chance is told of elsewhere, and better.
    if all(map(same, second, third)) and not all(map(same, first, second)):
        raise Unsupported(
            "what the network computed in an earlier call enters its answers (a cached, fused or "
            "normalized copy of its weights, or a state that is kept), so draws of the weights "
            "would not reach them; compute it anew in each call"
        )


def _check_each_example_alone(
    hollow: nn.Module, means: dict[str, Tensor], inputs: Tensor, outputs: Tensor
) -> None:
    alone = torch.cat([_run(hollow, means, one) for one in inputs.split(1)])
    if not _close(alone, outputs, slack=30.0):
        raise WrongMode(
            "the prediction for an example changes with the other examples in its batch, or "
            "from one call to the next (batch statistics, active dropout, a kept state); a "
            "certificate needs one fixed function of one example"
        )


def _close(outputs: Tensor, expected: Tensor, *, slack: float = 1.0) -> bool:
    if not isinstance(outputs, Tensor) or outputs.shape != expected.shape:
        return False
    tolerance = slack * math.sqrt(torch.finfo(expected.dtype).eps)
    return bool(close_scores(outputs, expected, tolerance).all())


def score_sizes(scores: Tensor) -> Tensor:
    """What rounding of each score is measured by: its own size, or that of the two highest scores
    of its example, or of most examples.

    Not the largest of all: a class that is ruled out by a score of -1e9 would hide the others.
    """
    finite = torch.where(torch.isfinite(scores), scores, 0.0)
    rows = finite.reshape(len(finite), -1)
    highest = rows.topk(min(2, rows.shape[1]), dim=1).values.abs().amax(1, keepdim=True)
    return torch.maximum(rows.abs(), highest.clamp_min(highest.median())).view_as(scores)


def close_scores(outputs: Tensor, expected: Tensor, tolerance: float) -> Tensor:
    """Which scores are the expected ones, up to this part of their :func:`score_sizes`."""
    near = (outputs - expected).abs() <= tolerance * score_sizes(expected)
    return near | (outputs == expected) | (outputs.isnan() & expected.isnan())
