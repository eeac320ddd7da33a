"""A progressive certificate against itself, its checkpoints and its data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from nonvacuous.audit.probing import Network, Recount, recount
from nonvacuous.certificate import Certificate
from nonvacuous.distributions.storage import read_tensors
from nonvacuous.errors import BadInput
from nonvacuous.records import Observation
from nonvacuous.risk import Loss
from nonvacuous.rules.digests import example_set, tensors_digest
from nonvacuous.rules.progressive import (
    OBSERVED,
    batches_of,
    file_name,
    first_part,
    tilt_of,
    trained_on,
    twin_number,
    with_tensors,
)
from nonvacuous.verification.examples import Known
from nonvacuous.verification.findings import Collector, Disagreement, equal

if TYPE_CHECKING:
    from nonvacuous.verification.run_folder import Contents

_COUNT = "the errors of every batch are those recorded"
_FIELD = "progressive.batches"


def checkpoint_files(certificate: Certificate) -> list[str]:
    record = certificate.progressive
    return [] if record is None else [file_name(n) for n in range(1, len(record.batches) + 1)]


def check_counts(certificate: Certificate) -> str:
    """The batches add up, and the tilt follows from what was set aside before them."""
    record = certificate.progressive
    assert record is not None
    for position, batch in enumerate(record.batches):
        if batch.errors > batch.examples.examples:
            raise Disagreement("there are more errors than examples.", f"{_FIELD}.{position}")
    tests = sum(batch.examples.examples for batch in record.batches)
    equal(certificate.data.bound.examples, tests, _FIELD)
    equal(certificate.empirical.errors, sum(b.errors for b in record.batches), _FIELD)
    inputs = certificate.bound.inputs
    if "tilt" in inputs:
        expected = tilt_of(_aside(certificate), examples=tests, failure=float(inputs["failure"]))
        equal(inputs["tilt"], expected, "bound.inputs.tilt")
        return f"{len(record.batches)} batches; the tilt follows from the first part."
    return f"{len(record.batches)} batches; the threshold is the declared one."


def _aside(certificate: Certificate) -> Observation | None:
    return next((o for o in certificate.observed if o.name == OBSERVED), None)


def read_checkpoints(certificate: Certificate, folder: Path, contents: Contents) -> str:
    """All checkpoints, if they are the certified ones."""
    stored = [read_tensors(folder / name) for name in checkpoint_files(certificate)]
    together = {
        f"networks.{position}.{name}": tensor
        for position, tensors in enumerate(stored)
        for name, tensor in tensors.items()
    }
    equal(certificate.model.fixed_digest, tensors_digest(together), "model.fixed_digest")
    contents.checkpoints = stored
    return f"{len(stored)} checkpoints, digest recomputed."


def check_architecture(
    certificate: Certificate, checkpoints: list[dict[str, Tensor]], module: nn.Module
) -> nn.Module:
    """The network, if every checkpoint is one of its kind."""
    parameters = 0
    for tensors in checkpoints:
        try:
            network = with_tensors(module, tensors)
        except BadInput as error:
            raise Disagreement(f"{error}.", "model.architecture") from error
        parameters += sum(parameter.numel() for parameter in network.parameters())
    equal(certificate.model.parameters, parameters, "model.parameters")
    return module


def check_batches(
    certificate: Certificate,
    checkpoints: list[dict[str, Tensor]],
    known: Known,
    module: nn.Module,
    loss: Loss,
    findings: Collector,
) -> None:
    """Every checkpoint on its batch again, the twin, and the examples that chose the tilt."""
    record, examples, split = certificate.progressive, known.examples, known.split
    assert record is not None
    tilted = "tilt" in certificate.bound.inputs
    batches: list[np.ndarray] = []

    def order() -> str:
        batches.extend(batches_of(examples, split, len(record.batches), certificate.seed))
        for position, (batch, indices) in enumerate(zip(record.batches, batches, strict=True)):
            where = f"{_FIELD}.{position}.examples"
            equal(batch.examples, example_set(examples, indices), where)
        return f"{len(batches)} batches in the order of the seed, compared by content."

    if not findings.expect("the batches are those of the seed", _FIELD, order):
        findings.skip(_COUNT, _FIELD, "the batches are others.")
        return

    def on(number: int, indices: np.ndarray) -> Recount:
        network = with_tensors(module, checkpoints[number - 1])
        return recount(Network.of(network), examples.subset(indices), loss)

    def agree(again: Recount, errors: int, where: str) -> None:
        if not again.agrees_with(errors=errors, total=None):
            raise Disagreement(f"it says {errors}; counted again it is {again.total:g}.", where)

    def counted() -> str:
        for number, (batch, indices) in enumerate(zip(record.batches, batches, strict=True), 1):
            agree(on(number, indices), batch.errors, f"{_FIELD}.{number - 1}.errors")
        return f"counted again: {certificate.empirical.errors} of {certificate.empirical.trials}."

    findings.expect(_COUNT, _FIELD, counted)

    def aside() -> str:
        _, indices = first_part(split, certificate.seed, tilted=tilted)
        stated = _aside(certificate)
        equal(0 if stated is None else stated.trials, len(indices), "observed")
        if stated is None:
            return "none was set aside."
        agree(on(1, indices), stated.errors, "observed")
        return f"counted again: {stated.errors} of {stated.trials}."

    findings.expect("the tilt rests on examples of the first part", "observed", aside)

    def twin() -> str:
        stated = certificate.held_out_twin
        if stated is None:
            raise Disagreement("there is none.")
        trained = trained_on(split, tuple(batches), certificate.seed, tilted=tilted)
        number = twin_number(trained, len(split))
        later = np.concatenate(batches[number - 1 :])
        equal(stated.examples, len(later), "held_out_twin.examples")
        agree(on(number, later), stated.errors, "held_out_twin.errors")
        return f"checkpoint {number}, counted again: {stated.errors} of {stated.examples}."

    findings.expect("the held-out twin is one of the checkpoints", "held_out_twin", twin)
