"""What every mode hands over: a prior and a posterior, frozen and kept, and how they came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.audit.evidence import Search
from nonvacuous.certification import forgetting, run_folder
from nonvacuous.data import Examples, files
from nonvacuous.distributions import DiagonalGaussian, copying, priors
from nonvacuous.errors import BadInput
from nonvacuous.networks import LayerGraph
from nonvacuous.recipes import remembering
from nonvacuous.records import ComplexityRecord, Observation, RescalingRecord
from nonvacuous.risk.forward import close_scores
from nonvacuous.rules import digests, outcomes


@dataclass(frozen=True, eq=False)
class Candidate:
    """A posterior that nothing will change any more, ready to be measured.

    module         the network in evaluation mode, with the posterior's means as weights
    prior_choices  members of the prior family among which this prior was chosen: to be paid
    draws          (purpose, seed) of every random stream used so far
    complexity     what the posterior costs, if it was needed on the way
    rescaling      what moving the posterior by ``log_scales`` did
    measured       posteriors among which this one is chosen by their sampled risks: to be paid

    The others are facts for the audit, see :class:`~nonvacuous.audit.evidence.Evidence`.
    """

    module: nn.Module
    prior: DiagonalGaussian
    posterior: DiagonalGaussian
    prior_description: str
    posterior_description: str
    prior_choices: int
    prior_saw: np.ndarray | None
    fixed_before: Mapping[str, Tensor] | None
    searches: tuple[Search, ...]
    draws: tuple[tuple[str, int], ...]
    start: nn.Module | None = None
    prior_saw_digest: str | None = None
    prior_given: bool = False
    rescaling: RescalingRecord | None = None
    log_scales: np.ndarray | None = None
    noise_digest: str | None = None
    graph: LayerGraph | None = None
    tilt: Observation | None = None
    complexity: ComplexityRecord | None = None
    measured: int = 1


#: What a candidate tells the audit under the names that the audit has for it.
FACTS = (
    "prior", "posterior", "fixed_before", "prior_saw", "prior_saw_digest", "prior_given", "draws",
    "start", "graph", "tilt", "noise_digest",
)  # fmt: skip


def frozen_copy(module: nn.Module, device: torch.device | None = None) -> nn.Module:
    """A copy in evaluation mode that no optimizer will touch."""
    copied = copying.copied_network(module).eval().requires_grad_(False)
    forgetting.forget(copied)
    return copied if device is None else copied.to(device)


def require_stored_state(
    trained: nn.Module, rebuilt: nn.Module, examples: Examples, *, whose: str
) -> None:
    """Raise unless a network made again from what is stored, its tensors, predicts the same.

    Whoever loads or verifies it has the network as it was before training, and the tensors. A
    string or a number of Python's, or a hook, that changed meanwhile is not among them: the promise
    would be about a network that nobody can make again.
    """
    own = [frozen_copy(network) for network in (trained, rebuilt)]
    device = next(own[0].parameters(), torch.empty(0)).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        sides = []
        for network in own:
            torch.manual_seed(0)  # where predictions are random, the audit says so
            sides.append([scores for scores, _ in outcomes.predictions(network, examples)])
    different = 0
    for one, other in zip(*sides, strict=True):
        if not isinstance(one, Tensor) or one.ndim != 2 or one.shape != other.shape:
            return  # no scores of classes, which is said in full where they are counted
        different += int((~close_scores(other, one, _ROUNDING).all(dim=1)).sum())
    if different:
        raise BadInput(
            f"{whose} predicts otherwise for {different} of {len(examples)} examples than the "
            "network before training with the same tensors: something that is no tensor (a number, "
            "a string, a function or a hook that the network keeps) changed while it was trained, "
            "and what is saved and verified are tensors. Keep it as a buffer (register_buffer), or "
            "set it before training and leave it alone"
        )


#: What rounding may move scores by, as a part of their size.
_ROUNDING = 1e-5


def start_at(module: nn.Module, prior: priors.Prior) -> nn.Module | None:
    """The network with the initial weights that a prior is centered on, if it is."""
    if prior.kind != "initialization" or prior.means is None:
        return None
    own = {name: tensor.shape for name, tensor in module.named_parameters()}
    if own != {name: mean.shape for name, mean in prior.means.items()}:
        return None  # of another network, which whoever uses it says
    return remembering(with_weights(module, prior.means), prior.recipe)


def with_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A frozen copy of the network that carries these weights."""
    copied = frozen_copy(module)
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            parameter.copy_(weights[name])
    return copied


def with_stored_state(start: nn.Module, trained: nn.Module) -> nn.Module:
    """The network before training, with the tensors of the trained one."""
    rebuilt = frozen_copy(start)
    own, kept = digests.fixed_tensors(rebuilt), digests.fixed_tensors(trained)
    with torch.no_grad():
        for name in own.keys() & kept.keys():
            if own[name].shape == kept[name].shape:
                own[name].copy_(kept[name])
    return rebuilt


def prior_choices(prior: priors.Prior, module: nn.Module) -> int:
    """Members of the family among which a prior is chosen by looking at the posterior."""
    tensors = sum(1 for _ in module.parameters()) if prior.per_tensor else 1
    return int(len(prior.grid) ** tensors)


def scale_search(prior: priors.Prior, module: nn.Module) -> tuple[Search, ...]:
    """The choice of the prior's scale, where there is one."""
    reason = "a union over the grid of scales that was fixed before the data"
    choices = prior_choices(prior, module)
    searched = Search("prior scale", choices, charge="bound", reason=reason)
    return (searched,) if choices > 1 else ()


def save_candidate(run: run_folder.RunFolder, candidate: Candidate) -> None:
    """Prior, posterior, the scales between gauges, and all that is not random in the network."""
    run.write("prior.safetensors", candidate.prior.save)
    run.write("posterior.safetensors", candidate.posterior.save)
    if candidate.log_scales is not None:
        arrays = {"log_scales": candidate.log_scales}
        run.write("log_scales.npz", lambda path: files.write_npz(path, arrays))
    fixed = digests.fixed_tensors(candidate.module, candidate.posterior.names)
    if fixed:
        run.tensors("network.safetensors", fixed)
