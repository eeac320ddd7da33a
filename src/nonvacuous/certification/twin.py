"""The held-out twin: what a plain test on examples set aside would promise, on the same data.

The twin's network is kept in the run folder, so that whoever verifies can count its errors again;
that of a learned prior is the prior's own.
"""

from __future__ import annotations

from torch import nn

from nonvacuous.bounds import holdout
from nonvacuous.certification.candidate import Candidate, frozen_copy, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import count_errors
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples, Split, make_split
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.records import TwinRecord
from nonvacuous.rules.digests import fixed_tensors
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Records, train
from nonvacuous.training_settings import PlainTraining

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


def trained_twin(job: Job, start: nn.Module, training: PlainTraining) -> TwinRecord:
    """The same architecture, trained plainly on four fifths of the data and tested on the rest."""
    split = twin_split(job.examples, job.seed)
    trained = train(
        start,
        job.examples.subset(split.prior),
        training.changed(patience=None),
        seed=twin_seed(job.seed),
        device=job.device,
        records=Records(
            checkpoint=job.folder.file("twin.checkpoint"),
            progress=job.progress,
            phase="held-out twin",
        ),
    ).module
    save_twin(job.folder, trained)
    return separate_twin(trained, job.examples, split, failure=job.failure)


def candidate_twin(
    job: Job, candidate: Candidate, start: nn.Module, training: PlainTraining
) -> TwinRecord:
    """The prior's own network on the bound examples, or one that is trained from ``start``."""
    if candidate.saw is None:
        return trained_twin(job, frozen_copy(start).requires_grad_(True), training)
    own = with_weights(candidate.module, candidate.prior.means)
    return prior_twin(own, job.examples, candidate.split, failure=job.failure)
