"""Running the network on a few examples to see what kind of function it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from nonvacuous.audit.evidence import Evidence, NotStored
from nonvacuous.audit.watching import Watched, watched
from nonvacuous.data import Examples
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.distributions.copying import Checkpoints, copied_network
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput, NonvacuousError
from nonvacuous.risk import forward, losses, pairs

#: How many examples are predicted at once where errors are counted.
BATCH = 2048
#: How many bound examples the network is probed with.
PROBES = 16
#: How many at a time where every operation is watched: more than the numbers that a network may
#: bring along, so that one number looked up for each example is too many.
WATCHED = 128


@contextlib.contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """No gradients, and torch's global random state is left as it was."""
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        yield


@dataclass(frozen=True, eq=False)
class Network:
    """An architecture with weights and buffers of its own; the module given is never changed."""

    module: nn.Module
    tensors: Mapping[str, Tensor]
    device: torch.device

    @classmethod
    def of(cls, module: nn.Module, weights: Mapping[str, Tensor] | None = None) -> Network:
        """``weights`` replace the parameters of the same names; without them its own are used."""
        own = copied_network(module)
        tensors = {name: tensor.detach() for name, tensor in own.named_parameters()}
        tensors |= {name: tensor.detach() for name, tensor in own.named_buffers()}
        device = next((t.device for t in (weights or tensors).values()), torch.device("cpu"))
        tensors |= dict(weights or {})
        return cls(own, {name: tensor.to(device) for name, tensor in tensors.items()}, device)

    def run(self, inputs: Tensor) -> tuple[Tensor, list[str]]:
        """Outputs, and the names of tensors that the network itself overwrote meanwhile."""
        used = {name: tensor.clone() for name, tensor in self.tensors.items()}
        outputs = functional_call(self.module, used, (inputs.to(self.device),))
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise BadInput(
                f"the network returned {shape} for {len(inputs)} examples; it must return one row "
                "of class scores for each example."
            )
        changed = [
            name
            for name, tensor in self.tensors.items()
            if not torch.equal(tensor.nan_to_num(), used[name].nan_to_num())
        ]
        return outputs, changed

    def watched(self, inputs: Tensor) -> Watched:
        """One prediction, operation by operation."""
        # Copies of parameters and buffers: whoever reads the originals by another way is found too,
        # since drawing weights would not reach there.
        used = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return watched(self.module, used, inputs.to(self.device))


def mean_network(evidence: Evidence) -> Network:
    """The network with the posterior's mean weights, or as it is where there is no posterior."""
    # With noise around one network the module is the certified network itself, to the last bit.
    try:
        posterior = None if evidence.kind.noisy else evidence.posterior
    except NotStored:  # nothing is trained yet
        posterior = None
    return Network.of(evidence.module, None if posterior is None else posterior.mean_weights())


def networks_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The networks along a training that a progressive certificate is about."""
    if not isinstance(module, Checkpoints):
        raise BadInput(f"a {type(module).__name__} is given for the checkpoints of a training.")
    return tuple(module.networks)


def probes(evidence: Evidence, count: int = PROBES) -> Examples:
    """Some bound examples, spread over all of them."""
    bound = evidence.split.bound
    positions = np.unique(np.linspace(0, len(bound) - 1, min(count, len(bound))).round())
    return evidence.examples.subset(bound[positions.astype(np.int64)])


def precisely(
    network: Network,
    inputs: Tensor,
    compare: Callable[[Network, Tensor, float], str | None],
    *,
    fine: float,
) -> str | None:
    """What a comparison finds in doubles, where rounding is far below any real effect, up to
    ``fine``; or as the network is, up to 1e-3."""
    wide = {n: t.double() if t.is_floating_point() else t for n, t in network.tensors.items()}
    with undisturbed(network.device):
        try:
            return compare(replace(network, tensors=wide), inputs.double(), fine)
        except NonvacuousError:
            raise
        except Exception:  # a network with a fixed dtype inside, or a device without doubles
            return compare(network, inputs, 1e-3)


def batch_dependence(network: Network, inputs: Tensor) -> str | None:
    """How the prediction for an example depends on its company, or None if it does not."""
    return precisely(network, inputs, _compare, fine=1e-5)


def size_dependence(network: Network, inputs: Tensor) -> str | None:
    """Whether the first predictions of a batch as large as is measured are those of a small one."""
    with undisturbed(network.device), pairs.plain_precision(network.device):
        large, small = network.run(inputs)[0][:PROBES], network.run(inputs[:PROBES])[0]
    alike = forward.close_scores(large, small, 1e-3).all()
    return None if alike else f"outputs change in a batch of {len(inputs)} examples"


def overwritten(network: Network, inputs: Tensor) -> list[str]:
    """Buffers and parameters that predicting changes, and tensors in plain attributes that it
    changes and that a later prediction reads."""
    kept = {name: tensor.clone() for name, tensor in attribute_tensors(network.module).items()}
    with undisturbed(network.device):
        changed = network.run(inputs)[1]
    # What predicting adds is a cache; what it changes is a memory, if anything looks there.
    after = attribute_tensors(network.module)
    remembered = [
        name
        for name, tensor in kept.items()
        if name in after and tensors_digest({"": tensor}) != tensors_digest({"": after[name]})
    ]
    if remembered:
        read = attributes_read(network, inputs)
        changed += [name for name in remembered if name in read]
    return changed


def reseeds(network: Network, inputs: Tensor) -> bool:
    """Whether chance goes on in the same way after a prediction, however it was before."""
    states = []
    with undisturbed(network.device):
        for seed in (1, 2):
            torch.manual_seed(seed)
            network.run(inputs)
            states.append(torch.get_rng_state())
    return torch.equal(*states)


def attributes_read(network: Network, inputs: Tensor) -> frozenset[str]:
    """Plain attributes that predictions read before they write them, named as in
    :func:`~nonvacuous.distributions.attributes.attribute_tensors`."""
    read: set[str] = set()
    with undisturbed(network.device):
        for start in range(0, len(inputs), WATCHED):
            read |= network.watched(inputs[start : start + WATCHED]).read
    return frozenset(read)


def _compare(network: Network, inputs: Tensor, tolerance: float) -> str | None:
    # First one by one: a largest number that is kept in Python has its final value afterwards.
    alone = torch.cat([network.run(one)[0] for one in inputs.split(1)])
    together = network.run(inputs)[0]

    def differs(outputs: Tensor, expected: Tensor) -> bool:
        return not bool(forward.close_scores(outputs, expected, tolerance).all())

    if differs(network.run(inputs)[0], together):
        return "the same examples give other outputs when they are asked for again"
    backward = torch.arange(len(inputs) - 1, -1, -1, device=inputs.device)
    turned = network.run(inputs[backward])[0]
    if differs(turned, together[backward.to(together.device)]):
        return "outputs change when the order of the examples in the batch changes"
    if differs(alone, together):
        return "an example alone gives other outputs than in the company of others"
    return None


@dataclass(frozen=True)
class Recount:
    """The loss of one fixed network, counted again. ``close`` examples hang on rounding."""

    errors: int | None
    total: float
    trials: int
    close: int

    def agrees_with(self, *, errors: int | None, total: float | None) -> bool:
        """The same count, but for examples that another processor may round to the other side."""
        if errors is not None:
            return self.errors is not None and abs(self.errors - errors) <= self.close
        return total is not None and abs(self.total - total) <= self.close + 1e-4 * self.trials


def recount(network: Network, examples: Examples, loss: losses.Loss) -> Recount:
    """Pass every example once and sum the losses."""
    total, close = 0.0, 0
    with undisturbed(network.device):
        for start in range(0, len(examples), BATCH):
            stop = min(start + BATCH, len(examples))
            outputs, _ = network.run(examples.inputs[start:stop])
            labels = examples.labels[start:stop].to(outputs.device)
            values = loss(outputs, labels)
            total += float(values.double().sum())
            if loss.binary:
                close += close_calls(outputs, labels, loss, values)
    return Recount(round(total) if loss.binary else None, total, len(examples), close)


def close_calls(outputs: Tensor, labels: Tensor, loss: losses.Loss, values: Tensor) -> int:
    """Examples whose loss changes when their own score moves by what rounding may move it."""
    own = labels.unsqueeze(1)
    step = 1e-5 * forward.score_sizes(outputs).gather(1, own).clamp_min(1e-6)
    moved = torch.zeros_like(values, dtype=torch.bool)
    for sign in (-1.0, 1.0):
        shifted = outputs.scatter_add(1, own, sign * step)
        moved |= loss(shifted, labels) != values
    return int(moved.sum())


def foreign_tensor(network: Network, inputs: Tensor) -> str | None:
    """The first tensor of a prediction that comes from nowhere, in words; None if all are known.

    A tensor in a global variable, in a closure or in some other object enters the computation
    without being a parameter, a buffer or an attribute. Nobody can tell what it was before the
    bound examples were seen, but that it enters can be seen.
    A few numbers (:data:`~nonvacuous.audit.watching.ALLOWED_NUMBERS` in the whole prediction) may.
    """
    with undisturbed(network.device):
        return network.watched(inputs).foreign
