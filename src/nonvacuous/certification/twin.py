"""The held-out twin: what a plain test on examples set aside would promise, on the same data.

The twin's network is kept in the run folder, so that whoever verifies can count its errors again;
that of a learned prior is the prior's own.
"""

from __future__ import annotations

import torch
from torch import nn

from nonvacuous.audit.digests import fixed_tensors
from nonvacuous.bounds import holdout
from nonvacuous.certification.counting import count_errors
from nonvacuous.certification.plain import train_plainly
from nonvacuous.certification.recipe import Recipe
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples, Split, make_split
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.records import TwinRecord
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Progress

#: The twin of a certificate that needs no prior data trains on this part and tests on the rest.
TRAINED_FRACTION = 0.8
#: Where the twin's network is kept.
FILE_NAME = "twin.safetensors"


def twin_seed(seed: int) -> int:
    return derived_seed(seed, "held-out twin")


def twin_split(examples: Examples, seed: int) -> Split:
    """What a twin of its own trains on (``prior``), and what it is tested on (``bound``)."""
    return make_split(
        len(examples),
        prior_fraction=TRAINED_FRACTION,
        seed=twin_seed(seed),
        content_hashes=examples.content_hashes(),
    )


def prior_twin(
    network: nn.Module, examples: Examples, split: Split, *, failure: float
) -> TwinRecord:
    """The plain test of a learned prior's own network on the bound examples."""
    text = (
        f"the network with the prior's mean weights, trained on {len(split.prior)} examples and "
        f"tested once on the {len(split.bound)} bound examples"
    )
    return _tested(network, examples.subset(split.bound), text, failure)


def separate_twin(
    network: nn.Module, examples: Examples, split: Split, *, failure: float
) -> TwinRecord:
    """The plain test of a network that was trained for it; see :func:`twin_split`."""
    text = (
        f"the same architecture trained plainly on {len(split.prior)} of the examples and "
        f"tested once on the other {len(split.bound)}"
    )
    return _tested(network, examples.subset(split.bound), text, failure)


def _tested(network: nn.Module, tested: Examples, text: str, failure: float) -> TwinRecord:
    errors = count_errors(network, tested)
    return TwinRecord(
        description=text,
        errors=errors,
        examples=len(tested),
        failure=failure,
        risk_upper=holdout(errors=errors, examples=len(tested), failure=failure),
    )


def save_twin(folder: RunFolder, network: nn.Module) -> None:
    path = folder.file(FILE_NAME)
    if path is not None:
        save_tensors(path, fixed_tensors(network), kind="network")


def trained_twin(
    start: nn.Module,
    examples: Examples,
    *,
    recipe: Recipe,
    failure: float,
    seed: int,
    device: torch.device,
    folder: RunFolder,
    progress: Progress | None,
) -> TwinRecord:
    """The same architecture, trained plainly on four fifths of the data and tested on the rest."""
    split = twin_split(examples, seed)
    trained = train_plainly(
        start,
        examples.subset(split.prior),
        recipe.plain,
        seed=twin_seed(seed),
        device=device,
        phase="held-out twin",
        checkpoint=folder.file("twin.checkpoint"),
        progress=progress,
    )
    save_twin(folder, trained)
    return separate_twin(trained, examples, split, failure=failure)
