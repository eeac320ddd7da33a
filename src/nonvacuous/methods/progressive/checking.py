"""A progressive certificate against itself, its checkpoints and its data."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import nn

from nonvacuous.audit.method_checks import BUILT_IN
from nonvacuous.audit.probing import Network, Recount, recount
from nonvacuous.certificate import Certificate
from nonvacuous.certification.measurement import DRAWN_ON_TEST, LAST_ON_TEST
from nonvacuous.distributions import copying, storage
from nonvacuous.errors import BadInput
from nonvacuous.methods.progressive import making
from nonvacuous.records import Observation
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.rules import drawing as rule
from nonvacuous.rules.digests import example_set, tensors_digest
from nonvacuous.verification import audited, checking, replaying
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry, agree
from nonvacuous.verification.network import module_of, not_at_hand

_COUNT = "the errors of every batch are those recorded"
_FIELD = "progressive.batches"


def _check_counts(certificate: Certificate) -> str:
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
        expected = rule.tilt_of(
            _aside(certificate), examples=tests, failure=float(inputs["failure"])
        )
        equal(inputs["tilt"], expected, "bound.inputs.tilt")
        return f"{len(record.batches)} batches; the tilt follows from the first part."
    if "batches" in inputs:
        equal(inputs["batches"], len(record.batches), "bound.inputs.batches")
    return f"{len(record.batches)} batches; the threshold is the declared one."


def _aside(certificate: Certificate) -> Observation | None:
    return next((o for o in certificate.observed if o.name == rule.FIRST_OBSERVED), None)


def _check_batches(inquiry: Inquiry, module: nn.Module, loss: Loss) -> None:
    """Every checkpoint on its batch again, the twin, what was observed, and all of the audit."""
    certificate, checkpoints = inquiry.certificate, inquiry.contents.checkpoints
    record, examples, split = certificate.progressive, inquiry.known.examples, inquiry.known.split
    assert record is not None and checkpoints is not None
    tilted = "tilt" in certificate.bound.inputs

    def order() -> tuple[str, tuple[np.ndarray, ...]]:
        batches = rule.batches_of(examples, split, len(record.batches), certificate.seed)
        for position, (batch, indices) in enumerate(zip(record.batches, batches, strict=True)):
            where = f"{_FIELD}.{position}.examples"
            equal(batch.examples, example_set(examples, indices), where)
        return f"{len(batches)} batches in the order of the seed, compared by content.", batches

    batches = inquiry.learn("the batches are those of the seed", _FIELD, order)
    if batches is None:
        inquiry.skip(_COUNT, _FIELD, "the batches are others.")
        return

    networks = [rule.with_tensors(module, tensors).eval() for tensors in checkpoints]

    def on(number: int, indices: np.ndarray) -> Recount:
        return recount(Network.of(networks[number - 1]), examples.subset(indices), loss)

    def batch_by_batch() -> str:
        for number, (batch, indices) in enumerate(zip(record.batches, batches, strict=True), 1):
            agree(on(number, indices), batch.errors, field=f"{_FIELD}.{number - 1}.errors")
        return f"counted again: {certificate.empirical.errors} of {certificate.empirical.trials}."

    inquiry.expect(_COUNT, _FIELD, batch_by_batch)

    def aside() -> str:
        _, indices = rule.first_part(split, certificate.seed, tilted=tilted)
        stated = _aside(certificate)
        equal(0 if stated is None else stated.trials, len(indices), "observed")
        if stated is None:
            return "none was set aside."
        agree(on(1, indices), stated.errors, field="observed")
        return f"counted again: {stated.errors} of {stated.trials}."

    inquiry.expect("the tilt rests on examples of the first part", "observed", aside)

    def twin() -> str:
        stated = certificate.held_out_twin
        if stated is None:
            raise Disagreement("there is none.")
        trained = rule.trained_on(split, batches, certificate.seed, tilted=tilted)
        number = rule.twin_number(trained, len(split))
        later = np.concatenate(batches[number - 1 :])
        equal(stated.examples, len(later), "held_out_twin.examples")
        words = making.twin_words(number, len(trained[number - 1]), len(later))
        equal(stated.description, words, "held_out_twin.description")
        agree(on(number, later), stated.errors, field="held_out_twin.errors")
        return f"checkpoint {number}, counted again: {stated.errors} of {stated.examples}."

    inquiry.expect("the held-out twin is one of the checkpoints", "held_out_twin", twin)

    def observed(seen: Observation, field: str) -> str:
        test = inquiry.known.test
        if seen.name == rule.FIRST_OBSERVED:
            aside = rule.first_part(split, certificate.seed, tilted=tilted)[1]
            return replaying.counted(on(1, aside), seen, field)
        if seen.name not in (DRAWN_ON_TEST, LAST_ON_TEST):
            raise Disagreement(f"no run observes {seen.name!r}.", f"{field}.name")
        if test is None:
            raise NotAsked("the test examples were not given.", needed=False)
        if seen.name == LAST_ON_TEST:
            return replaying.counted(recount(Network.of(networks[-1]), test, zero_one), seen, field)
        equal(seen.trials, len(test), f"{field}.trials")
        watched, close = replaying.watching(zero_one)
        mixture = copying.CheckpointMixture(networks, [len(batch) for batch in batches])
        errors = making.drawn_errors(mixture, test, certificate.seed, watched)
        again = Recount(errors, float(errors), len(test), sum(close))
        return replaying.compare(certificate, again, errors=seen.errors, total=None)

    for position, seen in enumerate(certificate.observed):
        field = f"observed.{position}"
        work = partial(observed, seen, field)
        inquiry.expect(f"counted again: {seen.name}", f"{field}.errors", work)
    if record.training != BUILT_IN:
        question = "training on wrong labels ends in a network that is wrong"
        inquiry.skip(question, "progressive.training", "its network is not kept.", needed=False)
    audited.check_again(
        inquiry,
        lambda: audited.stored_evidence(
            inquiry,
            copying.Checkpoints(networks).eval().requires_grad_(False),
            loss,
            taught_wrong=None,  # its network is not kept
            trained_on=rule.trained_on(split, batches, certificate.seed, tilted=tilted),
        ),
    )


class MethodChecking(checking.Checking):
    """Checkpoints along one training, each tested before it learned from its test."""

    numbers = (("the batches add up, and the tilt follows", "progressive", _check_counts),)

    def evidence(self, certificate: Certificate) -> list[str]:
        record = certificate.progressive
        return (
            [] if record is None else [rule.file_name(n) for n in range(1, len(record.batches) + 1)]
        )

    def read(self, inquiry: Inquiry) -> None:
        question, field = "the checkpoints are the recorded ones", "model.fixed_digest"
        names, folder = self.evidence(inquiry.certificate), inquiry.folder

        def work() -> str:
            if not set(names) <= inquiry.contents.intact or folder is None:
                raise NotAsked("a checkpoint is missing or was changed.")
            stored = [storage.read_tensors(folder / name) for name in names]
            together = {
                f"networks.{position}.{name}": tensor
                for position, tensors in enumerate(stored)
                for name, tensor in tensors.items()
            }
            equal(inquiry.certificate.model.fixed_digest, tensors_digest(together), field)
            inquiry.contents.checkpoints = stored
            return f"{len(stored)} checkpoints, digest recomputed."

        inquiry.expect(question, field, work)

    def network(self, inquiry: Inquiry) -> nn.Module:
        """The network, if every checkpoint is one of its kind."""
        if inquiry.contents.checkpoints is None:
            raise NotAsked(not_at_hand(inquiry) or "the checkpoints are not at hand.")
        module, parameters = module_of(inquiry), 0
        for tensors in inquiry.contents.checkpoints:
            try:
                network = rule.with_tensors(module, tensors)
            except BadInput as error:
                raise Disagreement(f"{error}.", "model.architecture") from error
            parameters += sum(parameter.numel() for parameter in network.parameters())
        equal(inquiry.certificate.model.parameters, parameters, "model.parameters")
        return module

    def count(self, inquiry: Inquiry, module: nn.Module, loss: Loss) -> None:
        _check_batches(inquiry, module, loss)
