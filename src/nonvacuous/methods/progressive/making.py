"""Train on a first part; test on the next batch, add it to the training data, and so on.

And the predictor that such a certificate is about, out of its run folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nonvacuous import records
from nonvacuous.audit import method_checks, probing
from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble, candidate, measurement
from nonvacuous.certification.job import Job
from nonvacuous.data import Examples
from nonvacuous.distributions.copying import CheckpointMixture, Checkpoints, copied_network
from nonvacuous.distributions.storage import load_tensors
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.files import inside
from nonvacuous.methods.progressive import Progressive
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.rules import drawing as rule
from nonvacuous.rules.arithmetic import bound_record, counted_once
from nonvacuous.rules.digests import example_set, fixed_tensors, tensors_digest
from nonvacuous.seeds import derived_seed
from nonvacuous.training import erm, user_training


def make(method: Progressive, job: Job, model: nn.Module) -> Certificate:
    tilted = method.threshold is None
    batches = rule.batches_of(job.examples, job.split, method.batches, job.seed)
    trained = rule.trained_on(job.split, batches, job.seed, tilted=tilted)
    budget = job.budget(sampled=False)
    networks: list[nn.Module] = []
    errors: list[int] = []
    for number, (saw, batch) in enumerate(zip(trained, batches, strict=True), 1):
        start = model
        if method.warm and networks:
            start = rule.with_tensors(model, fixed_tensors(networks[-1]))
        tests = job.examples.subset(batch)
        networks.append(_checkpoint(method, job, start, number, job.examples.subset(saw), tests))
        errors.append(round(measurement.summed_loss(networks[-1], tests, job.loss)))
        if job.progress is not None:
            message = f"{errors[-1]} errors in {len(batch)} tests, before training on them"
            job.progress("tests", number, len(batches), message)
    # The first checkpoint on examples of the first part that it was not trained on.
    part = job.examples.subset(rule.first_part(job.split, job.seed, tilted=tilted)[1])
    aside = measurement.observation(rule.FIRST_OBSERVED, networks[0], part) if len(part) else None
    trials = len(job.split.bound)
    risk = counted_once(errors=sum(errors), trials=trials, identical=False, seed=job.seed)
    counts = {"errors": sum(errors), "trials": trials}
    failure = budget.bound.share
    if method.threshold is None:
        tilt = rule.tilt_of(aside, examples=trials, failure=failure)
        bound = bound_record("progressive", **counts, tilt=tilt, failure=failure)
    else:
        # Of more than two batches the theorem takes no notice.
        few = {"batches": method.batches} if method.batches <= 2 else {}
        bound = bound_record("gate", **counts, threshold=method.threshold, failure=failure, **few)
    evidence = assemble.evidence_of(
        job,
        Checkpoints(networks).eval(),
        measurement.Measured(budget, risk, bound, "mixture"),
        start=candidate.frozen_copy(model, job.device),
        tilt=aside,
        trained_on=trained,
        taught_wrong=_taught_wrong(method, job, model),
        progressive=records.ProgressiveRecord(
            batches=tuple(
                records.BatchRecord(examples=example_set(job.examples, batch), errors=wrong)
                for batch, wrong in zip(batches, errors, strict=True)
            ),
            training=method.trained_by or method_checks.BUILT_IN,
        ),
    )
    twin = _twin(job, networks, batches, trained)
    return assemble.seal(job, evidence, twin=twin, observed=_on_test(job, networks, batches))


def _checkpoint(
    method: Progressive,
    job: Job,
    start: nn.Module,
    number: int,
    examples: Examples,
    tests: Examples,
) -> nn.Module:
    """Train, or read what a stopped run trained; frozen before its batch is looked at.

    Either way it is the network that its tensors give, which anybody can make again.
    """
    if stored := job.folder.existing(rule.file_name(number)):
        tensors = load_tensors(stored, kind="network", device=job.device)
        return candidate.frozen_copy(rule.with_tensors(start, tensors))
    phase = "first part" if number == 1 else f"checkpoint {number}"
    seed = derived_seed(job.seed, "checkpoint", str(number))
    if method.train is None:
        network = erm.train(
            start,
            examples,
            method.plain_training.changed(patience=None),
            seed=seed,
            device=job.device,
            records=job.records(f"{number}.checkpoint", phase),
        ).module
    else:
        given = copied_network(start).train()
        network = user_training.call(
            method.train,
            given,
            examples.inputs.to(job.device),
            examples.labels.to(job.device),
            seed=seed,
            name="train",
            watch=lambda _: None,
        )
        user_training.require_own(network, given, name="train")
    network = candidate.frozen_copy(network, job.device)
    given_kinds, kinds = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in fixed_tensors(one).items()}
        for one in (start, network)
    )
    if kinds != given_kinds:
        odd = min(
            n for n in kinds.keys() | given_kinds.keys() if kinds.get(n) != given_kinds.get(n)
        )
        raise BadInput(
            "training returned a network with other tensors than the one it was given, such as "
            f"{odd!r} (names, shapes or precision, as after model.half()): checkpoints are saved "
            "and verified as weights of one architecture. Return that network, trained, and let "
            "it keep nothing of what it trains on"
        )
    rebuilt = candidate.frozen_copy(rule.with_tensors(start, fixed_tensors(network)), job.device)
    candidate.require_stored_state(network, rebuilt, tests, whose=f"checkpoint {number}")
    job.folder.tensors(rule.file_name(number), fixed_tensors(rebuilt))
    return rebuilt


#: Examples with which the user's training is tried once more.
_FEW = 64


def _taught_wrong(method: Progressive, job: Job, start: nn.Module) -> records.Observation | None:
    """What the user's training makes of wrong labels, on examples that it is not given.

    A function that reads a loader, or keeps a list or a file, has seen the tests, whatever it was
    given before each. It costs one training on few examples, after all that counts; random states
    are left as they were. Of each class one in (classes + 1) keeps its label and the others are
    spread evenly: more wrong than right, so that what learns from them alone is no better than
    guessing, also where two clouds decide everything; yet not all wrong, which a network that knows
    two classes would turn around.
    """
    if method.train is None:
        return None
    rng = np.random.default_rng(derived_seed(job.seed, "wrong labels"))
    part = job.split.prior[np.sort(rng.permutation(len(job.split.prior))[:_FEW])]
    given, classes = job.examples.subset(part), job.examples.classes
    labels = given.labels.numpy(force=True).copy()
    for label in range(classes):
        own = rng.permutation(np.flatnonzero(given.labels.numpy(force=True) == label))
        others = rng.permutation(np.delete(np.arange(classes), label))
        wrong = own[: math.ceil(len(own) * classes / (classes + 1))]
        labels[wrong] = np.resize(others, len(wrong))
    network = copied_network(start).train()
    try:
        trained = user_training.call(
            method.train,
            network,
            given.inputs.to(job.device),
            torch.from_numpy(labels).to(job.device),
            seed=derived_seed(job.seed, "wrong labels"),
            name="train",
            watch=lambda _: None,
        )
        network = candidate.frozen_copy(trained, job.device)
        return measurement.observation("taught wrong labels", network, job.bound_part)
    except (BadInput, RuntimeError):
        return None  # too few for it; it was called often enough before


def _twin(
    job: Job,
    networks: Sequence[nn.Module],
    batches: Sequence[np.ndarray],
    trained: tuple[np.ndarray, ...],
) -> records.TwinRecord:
    """The plain test of one checkpoint, named beforehand, on all that it was not trained on."""
    number = rule.twin_number(trained, len(job.split))
    tested = job.examples.subset(np.sort(np.concatenate(batches[number - 1 :])))
    errors = round(measurement.summed_loss(networks[number - 1], tested, job.loss))
    words = twin_words(number, len(trained[number - 1]), len(tested))
    return measurement.twin_record(words, errors, len(tested), job.failure)


def twin_words(number: int, trained: int, tested: int) -> str:
    return (
        f"checkpoint {number}, trained on {trained} of the examples and tested once on the "
        f"{tested} after them"
    )


def _on_test(
    job: Job, networks: Sequence[nn.Module], batches: Sequence[np.ndarray]
) -> tuple[records.Observation, ...]:
    """Plain error rates beside the promise; the test examples are read here, once, at the end."""
    if job.test is None:
        return ()
    mixture = CheckpointMixture(networks, [len(batch) for batch in batches]).to(job.device)
    drawn = drawn_errors(mixture, job.test, job.seed)
    return (
        records.Observation(name=measurement.DRAWN_ON_TEST, errors=drawn, trials=len(job.test)),
        measurement.observation(measurement.LAST_ON_TEST, networks[-1], job.test),
    )


def drawn_errors(
    mixture: CheckpointMixture, examples: Examples, seed: int, loss: Loss = zero_one
) -> int:
    """The errors of checkpoints that the seed draws, one for each example."""
    with probing.undisturbed(mixture.ends.device):
        torch.manual_seed(derived_seed(seed, "test"))
        return round(measurement.summed_loss(mixture, examples, loss))


def load_mixture(folder: str | Path, model: nn.Module) -> CheckpointMixture:
    """The certified predictor of a finished run: ``model`` is the network that was given to it."""
    certificate = Certificate.load(Path(folder) / "certificate.json")
    if certificate.progressive is None:
        raise BadInput(f"{folder} holds a certificate of mode {certificate.mode}, not progressive")
    device = next(model.parameters(), torch.empty(0)).device
    batches, networks = certificate.progressive.batches, []
    for number in range(1, len(batches) + 1):
        path = inside(Path(folder), rule.file_name(number))
        tensors = load_tensors(path, kind="network", device=device)
        networks.append(rule.with_tensors(model, tensors))
    digest = tensors_digest(fixed_tensors(Checkpoints(networks)))
    if digest != certificate.model.fixed_digest:
        raise InvalidCertificate(f"the checkpoints in {folder} are not those that were certified")
    mixture = CheckpointMixture(networks, [batch.examples.examples for batch in batches])
    return mixture.to(device).requires_grad_(False)
