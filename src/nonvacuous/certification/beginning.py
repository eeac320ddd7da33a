"""What a network was like when a run began: a run is gone on with for the same network only.

Weights, examples and settings are compared by their digests, but the code of a network and the
numbers of Python's that it keeps stand in none of them. They show in what it answers.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.audit.probing import undisturbed
from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.data import Examples
from nonvacuous.risk.forward import score_sizes

#: So many examples are answered.
_ASKED = 16


def beginning(model: nn.Module, examples: Examples) -> dict[str, Any]:
    """Its layers as a digest, and a number for each of a few answers; nothing where it has none."""
    # Functions that layers keep are printed with where they lie in memory.
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", str(model))
    network = frozen_copy(model)
    device = next(network.parameters(), torch.empty(0)).device
    inputs = examples.inputs[:_ASKED].to(device)
    try:
        with undisturbed(device):
            scores = _scores(network, inputs)
    except Exception:  # the user's code may raise anything, and the audit says what is wrong
        return {}
    # A class that is ruled out by a score of -1e9 would drown the others.
    scores = scores.masked_fill(scores < -1e6 * score_sizes(scores).amin(1, keepdim=True), 0.0)
    # One number for each example stands for all of its scores, of which there may be thousands.
    weights = torch.cos(torch.arange(1.0, scores.shape[1] + 1.0, dtype=torch.float64))
    answers = torch.nan_to_num(scores.double().cpu()) @ weights
    return {
        "layers": hashlib.sha256(printed.encode()).hexdigest(),
        "answers": [float(f"{answer:.8g}") for answer in answers.tolist()],
    }


def _scores(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(0)
    before = network(inputs)
    try:  # in doubles devices agree to many digits
        torch.manual_seed(0)
        after = network.double()(inputs.double())
    except Exception:  # a fixed type inside, or a device without doubles
        return torch.as_tensor(before).flatten(1)
    return torch.as_tensor(after).flatten(1)
