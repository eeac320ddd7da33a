"""The predictor that a progressive certificate is about, out of its run folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nonvacuous.certificate import Certificate
from nonvacuous.distributions.copying import CheckpointMixture, Checkpoints
from nonvacuous.distributions.storage import load_tensors
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.files import inside
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.rules.progressive import file_name, with_tensors


def load_mixture(folder: str | Path, model: nn.Module) -> CheckpointMixture:
    """The certified predictor of a finished run: ``model`` is the network that was given to it."""
    certificate = Certificate.load(Path(folder) / "certificate.json")
    if certificate.progressive is None:
        raise BadInput(f"{folder} holds a certificate of mode {certificate.mode}, not progressive")
    parameter = next(model.parameters(), torch.empty(0))
    batches = certificate.progressive.batches
    networks = [
        with_tensors(
            model,
            load_tensors(
                inside(Path(folder), file_name(number)), kind="network", device=parameter.device
            ),
        )
        for number in range(1, len(batches) + 1)
    ]
    digest = tensors_digest(fixed_tensors(Checkpoints(networks)))
    if digest != certificate.model.fixed_digest:
        raise InvalidCertificate(f"the checkpoints in {folder} are not those that were certified")
    mixture = CheckpointMixture(networks, [batch.examples.examples for batch in batches])
    return mixture.to(parameter.device).requires_grad_(False)
