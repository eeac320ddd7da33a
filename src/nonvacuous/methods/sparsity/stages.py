"""The stages of mode sparsity, kept so that a stopped run goes on; never those of another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonvacuous.data import Examples
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from nonvacuous.methods.sparsity.training import Trainer, Weights


def kept(
    path: Path | None, work: Callable[[], Weights], depends_on: Callable[[], dict[str, Any]]
) -> Weights:
    """The weights that this stage of a run made before it was stopped, or made now and kept.

    The file carries what the weights depend on. One that depends on anything else is refused: a
    prior that was learned for another split has seen bound examples of this one.
    """
    if path is None:
        return _on_cpu(work())
    configuration = depends_on()
    if path.exists():
        found = load_checkpoint(path, configuration=configuration)
        return {name: found.tensors[name] for name in found.facts["order"]}
    made = _on_cpu(work())
    # The format keeps no order of its own, and layers have one.
    save_checkpoint(path, tensors=made, facts={"order": list(made)}, configuration=configuration)
    return made


def origin(trainer: Trainer, stage: str, examples: Examples, *, seed: int) -> dict[str, Any]:
    """What the weights of one stage depend on, as plain values and digests."""
    return {
        "kind": f"sparsity {stage}",
        "architecture": str(trainer.start),
        "initial_weights": tensors_digest(dict(trainer.start.state_dict())),
        "examples": examples.content_hash(),
        "seed": seed,
        "settings": trainer.settings.record(),
    }


def _on_cpu(weights: Weights) -> Weights:
    return {name: matrix.detach().cpu() for name, matrix in weights.items()}
