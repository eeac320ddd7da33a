"""What a network notes while it predicts and never reads again: a last activation, a log.

Such attributes change with every call. On the private copy that is certified they are emptied
after each prediction, so that its digest, its files and whoever verifies them see the same network.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from nonvacuous.audit.probing import WATCHED
from nonvacuous.audit.watching import watched
from nonvacuous.distributions import attributes, copying
from nonvacuous.errors import Unsupported


class Forgetting:
    """A forward hook that empties these attributes, named by part and name, in evaluation mode."""

    def __init__(self, empty: Mapping[tuple[str, str], Any]) -> None:
        self._empty = empty

    def __call__(self, network: nn.Module, _given: Any, _outputs: Any) -> None:
        if not network.training:  # whoever trains it may look at them
            self.clear(network)

    def clear(self, network: nn.Module) -> None:
        for (part, own), value in self._empty.items():
            vars(network.get_submodule(part))[own] = copy.copy(value)


def forget(network: nn.Module) -> None:
    """Empty what training may have left."""
    for hook in network._forward_hooks.values():
        if isinstance(hook, Forgetting):
            hook.clear(network)


def forgetting(network: nn.Module, inputs: Tensor) -> Forgetting | None:
    """What each prediction writes and none reads, if the network predicts the same without it.

    inputs   all that it will be asked about: one of them may lead elsewhere
    """
    probe = copying.copied_network(network).eval().requires_grad_(False)
    batches = inputs.to(next(probe.parameters(), inputs).device).split(WATCHED)
    with torch.no_grad():
        outputs = probe(batches[0].clone())
        before = _noted(probe)
        if not before:
            return None
        tensors = {**dict(probe.named_parameters()), **dict(probe.named_buffers())}
        read = set[str]().union(*(watched(probe, tensors, batch).read for batch in batches))
        after = _noted(probe)
        passing: dict[tuple[str, str], Any] = {}
        for (part, own), entries in after.items():
            earlier = before.get((part, own), [])
            if [(name, id(v)) for name, v in earlier] == [(name, id(v)) for name, v in entries]:
                continue  # the very same objects
            for name, _ in earlier:
                if name in read:
                    raise Unsupported(
                        f"predicting reads {name!r}, which the call before has written (of arrays "
                        "and bytes nothing tells): what the network was asked enters its later "
                        "answers, and no theorem here covers that. Compute it anew in each call."
                    )
            kind = type(vars(probe.get_submodule(part))[own])
            passing[part, own] = kind() if kind in (list, dict, set, deque) else None
        if not passing:
            return None
        hook = Forgetting(passing)
        hook.clear(probe)
        try:
            again = probe(batches[0].clone())
        except Exception:  # it looks at what it noted in some other way
            return None
        pairs = zip(tree_leaves(outputs), tree_leaves(again), strict=True)
        alike = all(not isinstance(one, Tensor) or torch.equal(one, two) for one, two in pairs)
    return hook if alike else None


def _noted(network: nn.Module) -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """The numbers in each attribute that holds any, by the part it belongs to and its name."""
    entries, noted = list(attributes.attribute_values(network)), {}
    for part, module in network.named_modules() if entries else ():
        for own in vars(module):
            label = f"{part}.{own}" if part else own
            below = tuple(f"{label}{sign}" for sign in ("[", "{", "."))
            inside = [e for e in entries if e[0] == label or e[0].startswith(below)]
            if inside:
                noted[part, own] = inside
    return noted
