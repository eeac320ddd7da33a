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
from nonvacuous.data import Examples, Split, make_split
from nonvacuous.records import TwinRecord
from nonvacuous.rules.digests import fixed_tensors
from nonvacuous.seeds import derived_seed
from nonvacuous.training.erm import train
from nonvacuous.training.loop import Records
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


def plain_test(
    network: nn.Module, examples: Examples, split: Split, *, failure: float, separate: bool
) -> TwinRecord:
    """Of a network that was trained for it (:func:`twin_split`), or of a learned prior's own."""
    tested = examples.subset(split.bound)
    errors = count_errors(network, tested)
    trained, count = len(split.prior), len(tested)
    words = (
        f"the same architecture trained plainly on {trained} of the examples and tested once "
        f"on the other {count}"
        if separate
        else f"the network with the prior's mean weights, trained on {trained} examples and "
        f"tested once on the {count} bound examples"
    )
    return twin_record(words, errors, count, failure)


def twin_record(description: str, errors: int, examples: int, failure: float) -> TwinRecord:
    counts = {"errors": errors, "examples": examples}
    upper = holdout(**counts, failure=failure)
    return TwinRecord(description=description, **counts, failure=failure, risk_upper=upper)


def separate_twin(job: Job, network: nn.Module, split: Split) -> TwinRecord:
    """Keep the network of a twin, and test it."""
    job.folder.tensors(FILE_NAME, fixed_tensors(network))
    return plain_test(network, job.examples, split, failure=job.failure, separate=True)


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
    return separate_twin(job, trained, split)


def candidate_twin(
    job: Job, candidate: Candidate, start: nn.Module, training: PlainTraining
) -> TwinRecord:
    """The prior's own network on the bound examples, or one that is trained from ``start``."""
    if candidate.prior_saw is None:
        return trained_twin(job, frozen_copy(start).requires_grad_(True), training)
    own = with_weights(candidate.module, candidate.prior.means)
    return plain_test(own, job.examples, job.split, failure=job.failure, separate=False)
