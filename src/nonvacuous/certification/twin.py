"""The held-out twin: what a plain test on examples set aside would promise, on the same data."""

from __future__ import annotations

import torch
from torch import nn

from nonvacuous.bounds import holdout
from nonvacuous.certification.counting import count_errors
from nonvacuous.certification.plain import train_plainly
from nonvacuous.certification.recipe import Recipe
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples, make_split
from nonvacuous.records import TwinRecord
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Progress

#: The twin of a certificate that needs no prior data trains on this part and tests on the rest.
TRAINED_FRACTION = 0.8


def tested_twin(
    module: nn.Module, tested: Examples, *, description: str, failure: float
) -> TwinRecord:
    """A network's errors on examples that it has not seen, with the exact binomial tail."""
    errors = count_errors(module, tested)
    return TwinRecord(
        description=description,
        errors=errors,
        examples=len(tested),
        failure=failure,
        risk_upper=holdout(errors=errors, examples=len(tested), failure=failure),
    )


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
    twin_seed = derived_seed(seed, "held-out twin")
    split = make_split(
        len(examples),
        prior_fraction=TRAINED_FRACTION,
        seed=twin_seed,
        content_hashes=examples.content_hashes(),
    )
    trained = train_plainly(
        start,
        examples.subset(split.prior),
        recipe.plain,
        seed=twin_seed,
        device=device,
        phase="held-out twin",
        checkpoint=folder.file("twin.checkpoint"),
        progress=progress,
    )
    return tested_twin(
        trained,
        examples.subset(split.bound),
        description=(
            f"the same architecture trained plainly on {len(split.prior)} of the examples and "
            f"tested once on the other {len(split.bound)}"
        ),
        failure=failure,
    )
