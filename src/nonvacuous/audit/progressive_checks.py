"""Checkpoints tested along a training: each before it could learn from its batch."""

from __future__ import annotations

import numpy as np

from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.probing import Network, networks_of, recount
from nonvacuous.audit.registry import Outcome, asserted, check, holds, refuse
from nonvacuous.errors import BadInput
from nonvacuous.kinds import STEPS_MODES
from nonvacuous.records import ProgressiveRecord
from nonvacuous.rules.digests import example_set
from nonvacuous.rules.drawing import batches_of

#: What trains checkpoints where the user gave no function.
BUILT_IN = "the training of this library"


def record_of(evidence: Evidence) -> ProgressiveRecord:
    if evidence.progressive is None:
        raise BadInput("a progressive certificate needs the record of its batches.")
    return evidence.progressive


def _batches(evidence: Evidence) -> tuple[np.ndarray, ...]:
    count = len(record_of(evidence).batches)
    return batches_of(evidence.examples, evidence.split, count, evidence.seed)


@check(
    rows=(1, 6),
    since=2,
    name="each checkpoint met its batch before training on it",
    says=("checked", "asserted"),
    modes=STEPS_MODES,
)
def tested_first(evidence: Evidence) -> Outcome:
    record, batches, trained = record_of(evidence), _batches(evidence), evidence.trained_on
    for number, (batch, indices) in enumerate(zip(record.batches, batches, strict=True), 1):
        if batch.examples != example_set(evidence.examples, indices):
            return refuse(
                f"batch {number} is not the one that the seed gives: an order that was chosen by "
                "looking would be a search. Make it with rules.drawing.batches_of."
            )
    if trained is None or len(trained) != len(batches):
        return refuse("what each checkpoint was trained on is not on record.")
    hashes = evidence.examples.input_hashes()
    for number, saw in enumerate(trained, 1):
        later = np.concatenate(batches[number - 1 :])
        early = later[np.isin(hashes[later], hashes[saw])]
        if early.size:
            return refuse(
                f"checkpoint {number} was trained on {early.size} examples (the first is "
                f"{int(early[0])}), or copies of them, that it or a later one is tested on."
            )
    words = (
        f"{len(batches)} batches, disjoint, in the order of the seed; none trained the checkpoint"
    )
    if record.training != BUILT_IN:
        return asserted(
            f"{words} that it tested, as far as the examples go that {record.training} was given; "
            "that it looks at no others is stated by the one who wrote it."
        )
    return holds(f"{words} that it tested.")


@check(
    rows=(15, 17, 18),
    since=2,
    name="the errors of every batch can be counted again",
    modes=STEPS_MODES,
)
def batches_recounted(evidence: Evidence) -> Outcome:
    record, counted = record_of(evidence), 0
    pairs = zip(record.batches, _batches(evidence), networks_of(evidence.module), strict=True)
    for number, (batch, indices, network) in enumerate(pairs, 1):
        again = recount(Network.of(network), evidence.examples.subset(indices), evidence.loss)
        if not again.agrees_with(errors=batch.errors, total=None):
            return refuse(
                f"checkpoint {number} is recorded with {batch.errors} errors among "
                f"{len(indices)}; counted again they are {again.total:g}."
            )
        counted += batch.errors
    if counted != evidence.risk.errors:
        return refuse(f"the batches have {counted} errors, not {evidence.risk.errors}.")
    given = evidence.bound.inputs.get("batches", len(record.batches))
    if given != len(record.batches):
        return refuse(f"the theorem is told of {given} batches; there are {len(record.batches)}.")
    return holds(f"{counted} errors, batch by batch.")
