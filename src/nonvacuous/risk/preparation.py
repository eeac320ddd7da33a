"""Choose how to run trials of a network: the fastest way that provably follows its law.

Each candidate must reproduce the plain network on a few examples when the noise is zero. The
network itself must treat every example by itself; one that does not is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported, WrongMode
from nonvacuous.risk.estimate import is_out_of_memory
from nonvacuous.risk.forward import DrawnWeights, Forward, LocalNoise


@dataclass(frozen=True, eq=False)
class Probe:
    """A few examples, and what the network with the mean weights makes of them."""

    inputs: Tensor
    outputs: Tensor

    def agrees(self, forward: Forward) -> bool:
        """Whether a way to run the network reproduces the outputs when the noise is zero.

        Two batch sizes, so that no other dimension can pass for the examples, with uneven
        repetitions, so that mixing up rows shows.
        """
        for pattern in ([0, 0, 0, 1, 2, 2, 3, 4], [1, 2, 2]):
            rows = torch.tensor(pattern, device=self.inputs.device)
            try:
                outputs = forward(self.inputs[: max(pattern) + 1], rows, None)
            except Exception as error:
                # Whatever goes wrong inside a candidate only means: not this way.
                if is_out_of_memory(error):
                    raise
                return False
            if not _close(outputs, self.outputs.index_select(0, rows)):
                return False
        return True


def prepare(
    module: nn.Module, posterior: DiagonalGaussian, inputs: Tensor, *, local: bool
) -> tuple[Forward, Probe]:
    """The fastest exact way to run trials of this network, with the probe it was checked on."""
    # Its parameters are all NaN: only weights handed in from outside can be used.
    hollow = copied_network(module)
    _fill(hollow, None)
    means = posterior.mean_weights()
    few = torch.linspace(0, len(inputs) - 1, 5).round().long().to(inputs.device)
    probe_inputs = inputs.index_select(0, few).to(posterior.device)
    outputs = _run(hollow, means, probe_inputs)
    finite = bool(torch.isfinite(outputs).all())
    if not finite:
        _check_no_hidden_parameter(hollow, means, probe_inputs)
    _check_each_example_alone(hollow, means, probe_inputs, outputs)
    probe = Probe(probe_inputs, outputs)
    # Where outputs are NaN anyway, NaN cannot betray a parameter that a local rule missed.
    if local and finite:
        for late in (True, False):
            quick = LocalNoise(hollow, posterior, late=late)
            if probe.agrees(quick):
                return quick, probe
    for vectorized in (True, False):
        drawn = DrawnWeights(hollow, posterior, vectorized=vectorized)
        if probe.agrees(drawn):
            return drawn, probe
    raise Unsupported(
        "the network gives other outputs for an example alone with its own weights than in a "
        "plain pass; it keeps a state between calls or refuses single examples, so no risk over "
        "weight draws can be measured"
    )


def _fill(module: nn.Module, weights: Mapping[str, Tensor] | None) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if weights is None:
                parameter.fill_(math.nan)
            else:
                parameter.copy_(weights[name])


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


def _check_no_hidden_parameter(hollow: nn.Module, means: dict[str, Tensor], inputs: Tensor) -> None:
    """Tell a network whose outputs are not finite from one that hides where its weights are."""
    bad = ~torch.isfinite(_run(hollow, means, inputs))
    _fill(hollow, means)
    bad_by_itself = ~torch.isfinite(_run(hollow, means, inputs))
    _fill(hollow, None)
    if not torch.equal(bad, bad_by_itself):
        raise Unsupported(
            "the network reads some weights from somewhere else than its parameters (a cached or "
            "flattened copy), so draws of the weights would not reach its outputs; read each "
            "parameter from the module at every call"
        )


def _check_each_example_alone(
    hollow: nn.Module, means: dict[str, Tensor], inputs: Tensor, outputs: Tensor
) -> None:
    for index in range(len(inputs)):
        alone = _run(hollow, means, inputs[index : index + 1])
        if not _close(alone[0], outputs[index], slack=30.0):
            raise WrongMode(
                "the prediction for an example changes with the other examples in its batch, or "
                "from one call to the next (batch statistics, active dropout, a kept state); a "
                "certificate needs one fixed function of one example"
            )


def _close(outputs: Tensor, expected: Tensor, *, slack: float = 1.0) -> bool:
    if not isinstance(outputs, Tensor) or outputs.shape != expected.shape:
        return False
    finite = expected[torch.isfinite(expected)]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    tolerance = slack * math.sqrt(torch.finfo(expected.dtype).eps)
    return torch.allclose(outputs, expected, rtol=0.0, atol=tolerance * size, equal_nan=True)
