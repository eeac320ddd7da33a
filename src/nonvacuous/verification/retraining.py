"""A training of ours once more, from the settings of its run: does it end where the run says?

Nothing else shows on which examples a learned prior was trained. Whatever ends at the very same
numbers is settled, wherever it was made; numbers that differ are a contradiction only where
everything that takes part in rounding is as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from nonvacuous.audit.data_checks import START, named_start
from nonvacuous.bounds.checks import failure_of
from nonvacuous.certificate import Certificate
from nonvacuous.certification import adapting, candidate, job, run_folder
from nonvacuous.certification.method import Method
from nonvacuous.distributions import grids, priors, storage
from nonvacuous.risk.losses import loss_named
from nonvacuous.verification.findings import Disagreement, NotAsked
from nonvacuous.verification.inquiry import Inquiry
from nonvacuous.verification.network import built
from nonvacuous.verification.replaying import differences

#: What decides what is summed, and how it is rounded.
_ROUNDING = ("nonvacuous", "draws", "torch", "numpy", "device", "processor", "threads")


def check_training(inquiry: Inquiry, kind: type[Method]) -> None:
    """Train again on the processor and compare every file that the training ends in."""
    certificate = inquiry.certificate
    with tempfile.TemporaryDirectory() as folder, _threads(certificate) as threads:
        kept = run_folder.RunFolder(Path(folder).resolve())

        def repeated() -> tuple[str, str]:
            if inquiry.examples is None:
                raise NotAsked("it takes the data, and the run folder.")
            method, start = _asked(inquiry, kind)
            twin = method.repeat(_job(inquiry, method, kept), start)
            if not kept.artifacts():
                raise NotAsked("no network was trained by this library.", needed=False)
            recorded, beside = certificate.held_out_twin, ""
            if recorded is not None and twin is not None:
                beside = (
                    f" Tested plainly, the network that was trained again errs on {twin.errors} of "
                    f"{twin.examples} examples, the recorded one on {recorded.errors} of "
                    f"{recorded.examples}."
                )
            return f"trained again with {threads} of torch's threads.", beside

        beside = inquiry.learn("the training can be repeated", "training", repeated)
        if beside is None:
            return
        elsewhere, ends = differences(certificate, _ROUNDING), kept.artifacts()

    def compared(name: str, digest: str) -> str:
        if certificate.artifacts.get(name) == digest:
            return f"the same numbers, SHA-256 {digest[:12]}..."
        if elsewhere:
            others = f"{'; '.join(elsewhere)}, and other rounding ends elsewhere.{beside}"
            raise NotAsked(f"not compared: {others}")
        raise Disagreement(
            "the recorded settings, seed and examples, on the same kind of machine, end at "
            f"other numbers: this file is not what they make.{beside}"
        )

    for name, digest in ends.items():
        work = partial(compared, name, digest)
        inquiry.expect(f"the training repeated gives {name}", f"artifacts.{name}", work)


def _asked(inquiry: Inquiry, kind: type[Method]) -> tuple[Method, nn.Module]:
    """The method of the run and the network where its training started."""
    contents, settings = inquiry.contents, inquiry.contents.settings
    if not settings or "format" not in settings:
        raise NotAsked("config.toml is not at hand, or of the first format.")
    record = dict(settings["method"])
    if not kind.trains:
        raise NotAsked("no network was trained by this library.", needed=False)
    if record.get("train"):
        raise NotAsked("it was trained by a function of its maker's, which is not at hand.")
    prior = record.get("prior")
    if not isinstance(prior, dict):  # the network itself was trained here
        return kind(**record), _start(inquiry, settings["weights"])
    if prior["kind"] == "pretrained" and contents.prior is not None:
        record["prior"] = priors.Prior(
            kind="pretrained",
            grid=grids.ScaleGrid(tuple(prior["scales"])),
            means=contents.prior.means,
            per_tensor=prior["per_tensor"],
            fixed=contents.fixed or {},
            source=record.pop("pretrained"),
        )
        record.pop("prior_scale", None)
        return kind(**record), _start(inquiry, settings["weights"])
    if prior["kind"] == "learned":
        raise NotAsked("its prior was learned outside this library: nothing says how.")
    if prior["kind"] == "zero-mean" or contents.prior is None or not record["twin"]:
        raise NotAsked("no network was trained by this library.", needed=False)
    # A given network: the twin alone was trained here, from the weights that the prior names.
    means = contents.prior.means
    if storage.tensors_digest(dict(means)) != prior["means"]:
        raise NotAsked("its training started before batch normalization was folded.")
    start = candidate.with_weights(built(inquiry, inquiry.certificate.seed), means)
    record["prior"] = priors.at_initialization(start, grid=grids.ScaleGrid(tuple(prior["scales"])))
    record.pop("prior_scale", None)
    return kind(**record), candidate.frozen_copy(start).requires_grad_(True)


def _start(inquiry: Inquiry, digest: str) -> nn.Module:
    """The weights before any training: by the seed that the certificate names, or as given."""
    certificate, stated = inquiry.certificate, inquiry.stated(START)
    named = None if stated is None else named_start(stated.detail)
    for seed in dict.fromkeys(
        (certificate.seed if named is None else named.seed, certificate.seed)
    ):
        network, _ = adapting.adapted(built(inquiry, seed), inquiry.known.examples)
        if storage.tensors_digest(dict(network.state_dict())) == digest:
            return network
    raise NotAsked(
        "the weights that it started from are not at hand: no seed that the certificate names "
        "makes them. Give the network as it was before training, as model."
    )


def _job(inquiry: Inquiry, method: Method, folder: run_folder.RunFolder) -> job.Job:
    certificate, settings, known = inquiry.certificate, inquiry.contents.settings, inquiry.known
    loss = loss_named(certificate.loss.name)
    if loss is None:
        raise Disagreement(f"the loss {certificate.loss.name!r} is not a built-in one.", "loss")
    return job.Job(
        method=method,
        architecture=certificate.model.architecture,
        examples=known.examples,
        test=None,
        split=known.split,
        loss=loss,
        failure=failure_of(settings["confidence"]),
        attempts=settings["attempts"],
        seed=certificate.seed,
        device=torch.device("cpu"),
        folder=folder,
        progress=inquiry.progress,
        conversions=certificate.model.conversions,
    )


@contextmanager
def _threads(certificate: Certificate) -> Iterator[int]:
    """As many threads as the run had: sums are split among them."""
    before = torch.get_num_threads()
    recorded = certificate.software.get("threads", "")
    if recorded.isascii() and recorded.isdigit() and 0 < int(recorded) <= 1024:
        torch.set_num_threads(int(recorded))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
