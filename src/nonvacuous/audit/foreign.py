"""Tensors that enter a prediction though the network does not own them.

A tensor in a global variable, in a closure or in some other object enters the computation without
being a parameter, a buffer or an attribute. Nobody can tell what it was before the bound examples
were seen, but that it enters can be seen.
"""

from __future__ import annotations

from torch import Tensor

from nonvacuous.audit.probing import Network, undisturbed
from nonvacuous.audit.watching import watched


def foreign_tensor(network: Network, inputs: Tensor) -> str | None:
    """The first tensor of a prediction that comes from nowhere, in words; None if all are known.

    A few numbers (:data:`~nonvacuous.audit.watching.ALLOWED_NUMBERS` in the whole prediction) may.
    """
    # Copies of parameters and buffers: whoever reads the originals by another way is found too,
    # since drawing weights would not reach there.
    used = {name: tensor.clone() for name, tensor in network.tensors.items()}
    with undisturbed(network.device):
        return watched(network.module, used, inputs.to(network.device)).foreign
