"""What a run folder keeps of the networks and distributions that a certificate is about."""

from __future__ import annotations

from torch import nn

from nonvacuous.certification.candidate import Candidate
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data.files import write_npz
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.rules.digests import fixed_tensors


def save_network(run: RunFolder, module: nn.Module) -> None:
    """A network that nothing is random in."""
    path = run.file("network.safetensors")
    if path is not None:
        save_tensors(path, fixed_tensors(module), kind="network")


def save_candidate(run: RunFolder, candidate: Candidate) -> None:
    """Prior, posterior, the scales between gauges, and all that is not random in the network."""
    for name, distribution in (("prior", candidate.prior), ("posterior", candidate.posterior)):
        path = run.file(f"{name}.safetensors")
        if path is not None:
            distribution.save(path)
    path = run.file("log_scales.npz")
    if path is not None and candidate.rescaling is not None:
        write_npz(path, {"log_scales": candidate.rescaling.log_scales})
    path = run.file("network.safetensors")
    fixed = fixed_tensors(candidate.module, candidate.posterior.names)
    if path is not None and fixed:
        save_tensors(path, fixed, kind="network")
