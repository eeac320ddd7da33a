"""The certificate against the files of its run. Nothing in a run folder is ever executed.

A file is opened only after its digest was found right (or where the certificate lists none), by
readers that know numbers and text only: npz without objects, safetensors, no pickle, no import.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.certificate import Certificate
from nonvacuous.certification.twin import FILE_NAME as TWIN
from nonvacuous.data import Split
from nonvacuous.data.files import read_npz_arrays
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.storage import read_tensors
from nonvacuous.errors import InvalidCertificate
from nonvacuous.files import inside
from nonvacuous.foreign import read_bytes, run_settings
from nonvacuous.records import DistributionRecord, ExampleSet
from nonvacuous.rules.arithmetic import RELATIVE, disagreement, tolerance
from nonvacuous.rules.attempts import Standing
from nonvacuous.rules.digests import (
    array_digest,
    file_digest,
    fixed_tensors,
    index_digest,
    tensors_digest,
)
from nonvacuous.rules.drawing import draw_network
from nonvacuous.verification.findings import Collector, Disagreement, equal
from nonvacuous.verification.progressive import checkpoint_files, read_checkpoints
from nonvacuous.verification.sparsity import check_constants

SPLIT = "split.npz"
PRIOR = "prior.safetensors"
POSTERIOR = "posterior.safetensors"
DRAWN = "drawn.safetensors"
NETWORK = "network.safetensors"
WEIGHTS = "weights.safetensors"
LOG_SCALES = "log_scales.npz"
CONFIG = "config.toml"


@dataclass
class Contents:
    """What was read from a run folder and found right."""

    split: Split | None = None
    prior: DiagonalGaussian | None = None
    posterior: DiagonalGaussian | None = None
    drawn: dict[str, Tensor] | None = None
    #: The network's tensors that are not random; empty where it has none.
    fixed: dict[str, Tensor] | None = None
    #: All tensors of the held-out twin, where it has a network of its own.
    twin: dict[str, Tensor] | None = None
    #: How the weights were moved from the gauge in which they were given.
    log_scales: np.ndarray | None = None
    #: The settings of the run, as its config.toml has them.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Of a progressive certificate: the tensors of its checkpoints, in order.
    checkpoints: list[dict[str, Tensor]] | None = None
    intact: set[str] = field(default_factory=set)
    #: What the ledger of attempts says about this one, if it is there and knows it.
    standing: Standing | None = None


def check_before_sealing(certificate: Certificate, folder: Path, configuration: str) -> None:
    """A run reads its own files back: what it is about to promise must be what lies there."""
    if run_settings(folder) != tomllib.loads(configuration):
        raise InvalidCertificate(
            f"config.toml in {folder} is no longer this run's: somebody changed it while the run "
            "computed. Nothing is sealed; start again in another folder"
        )
    findings = Collector()
    check_folder(certificate, folder, findings)
    for finding in findings.findings:
        if finding.passed is False:
            raise InvalidCertificate(
                f"the files in {folder} are no longer what this run wrote ({finding.field}: "
                f"{finding.detail}). Nothing is sealed; start again in another folder"
            )


def check_folder(certificate: Certificate, folder: Path, findings: Collector) -> Contents:
    """All questions that the files of a run can answer."""
    contents = Contents()
    if not folder.is_dir():
        findings.expect("the run folder is there", "artifacts", lambda: _no_folder(folder))
        return contents
    _check_same_certificate(certificate, folder, findings)
    _check_artifacts(certificate, folder, findings, contents)
    ask = _Asker(certificate, folder, findings, contents)
    contents.settings = _settings(folder, contents)
    ask(SPLIT, "the split has the recorded examples", "data.bound", _split)
    if TWIN in contents.intact:
        contents.twin = read_tensors(folder / TWIN)
    if certificate.progressive is not None:
        names = checkpoint_files(certificate)
        question, where = "the checkpoints are the recorded ones", "model.fixed_digest"
        if set(names) <= contents.intact:
            findings.expect(
                question, where, lambda: read_checkpoints(certificate, folder, contents)
            )
        else:
            findings.skip(question, where, "a checkpoint is missing or was changed.")
        return contents
    if certificate.posterior is None:
        ask(NETWORK, "the network is the recorded one", "model.fixed_digest", _network)
        return contents
    ask(PRIOR, "the prior is the recorded one", "prior.digest", _prior)
    ask(POSTERIOR, "the posterior is the recorded one", "posterior.digest", _posterior)
    if contents.prior is not None and contents.posterior is not None:
        findings.expect(
            "the KL follows from the stored tensors",
            "complexity.terms",
            lambda: _complexity(certificate, contents),
        )
    else:
        findings.skip(
            "the KL follows from the stored tensors",
            "complexity.terms",
            "prior and posterior are not both at hand.",
        )
    if certificate.rescaling is not None:
        ask(
            LOG_SCALES,
            "the rescaling is the recorded one",
            "rescaling.log_scales_digest",
            _log_scales,
        )
    if certificate.sparsity is not None:
        ask(WEIGHTS, "the network is the center of its noise", "posterior.digest", _weights)
        check_constants(certificate, contents.prior, contents.posterior, findings)
    if certificate.predictor == "drawn":
        ask(DRAWN, "the drawn network is the recorded one", "complexity.log_density_ratio", _drawn)
    if certificate.model.fixed_digest == tensors_digest({}):
        contents.fixed = {}
    else:
        ask(NETWORK, "what is not random is the recorded one", "model.fixed_digest", _network)
    return contents


@dataclass
class _Asker:
    certificate: Certificate
    folder: Path
    findings: Collector
    contents: Contents

    def __call__(
        self,
        name: str,
        question: str,
        field: str,
        work: Callable[[Certificate, Path, Contents], str],
    ) -> None:
        if name in self.certificate.artifacts and name not in self.contents.intact:
            self.findings.skip(question, field, f"{name} is missing or was changed.")
        elif not (self.folder / name).is_file():
            self.findings.skip(question, field, f"there is no {name} in the folder.")
        else:
            self.findings.expect(
                question,
                field,
                lambda: work(self.certificate, inside(self.folder, name), self.contents),
            )


def _no_folder(folder: Path) -> str:
    raise Disagreement(f"there is no folder {folder}; check the path.")


def _check_same_certificate(certificate: Certificate, folder: Path, findings: Collector) -> None:
    name, path = "the folder is this certificate's", folder / "certificate.json"
    if not path.is_file():
        why = "the folder has no certificate.json."
        findings.skip(name, "certificate", why, needed=False)
        return

    def work() -> str:
        expected = (certificate.model_dump_json(indent=2) + "\n").encode()
        if read_bytes(inside(folder, path.name)) != expected:
            raise Disagreement("its certificate.json is not the certificate that was given.")
        return "its certificate.json is the certificate that was given."

    findings.expect(name, "certificate", work)


def _check_artifacts(
    certificate: Certificate, folder: Path, findings: Collector, contents: Contents
) -> None:
    def complete() -> str:
        # Files that are neither listed nor there would leave nothing to compare with.
        missing = [name for name in _needed(certificate) if name not in certificate.artifacts]
        if missing:
            raise Disagreement(f"the certificate does not list {', '.join(missing)}.")
        return f"{len(certificate.artifacts)} files are listed."

    findings.expect("the listed files are complete", "artifacts", complete)
    for name, digest in certificate.artifacts.items():
        field = f"artifacts.{name}"
        if findings.expect(
            f"{name} is untouched",
            field,
            lambda n=name, d=digest: _untouched(folder, n, d),  # type: ignore[misc]
        ):
            contents.intact.add(name)


def _needed(certificate: Certificate) -> list[str]:
    """The files that every run of this kind writes: without them nothing ties the number down."""
    needed = [CONFIG, SPLIT]
    if certificate.progressive is not None:
        return [*needed, *checkpoint_files(certificate)]
    if certificate.posterior is not None:
        needed += [PRIOR, POSTERIOR]
    if certificate.predictor == "drawn":
        needed.append(DRAWN)
    if certificate.kind.noisy:
        needed.append(WEIGHTS)
    if certificate.rescaling is not None:
        needed.append(LOG_SCALES)
    if certificate.model.fixed_digest != tensors_digest({}):
        needed.append(NETWORK)
    return needed


def _untouched(folder: Path, name: str, digest: str) -> str:
    # A name with a path in it would let a certificate point at files outside its folder.
    if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name:
        raise Disagreement(f"{name!r} is not the name of a file in the run folder.")
    path = inside(folder, name)
    if not path.is_file():
        raise Disagreement(f"there is no file {name} in {folder}.")
    found = file_digest(path)
    if found != digest:
        raise Disagreement(f"{name} was changed: SHA-256 {found[:12]}..., not {digest[:12]}...")
    return f"SHA-256 {digest[:12]}..."


def _split(certificate: Certificate, path: Path, contents: Contents) -> str:
    split = Split.load(path)
    data = certificate.data
    for role, indices, record in (
        ("bound", split.bound, data.bound),
        ("prior", split.prior, data.prior),
        ("held_out", split.heldout, data.held_out),
    ):
        _same_examples(f"data.{role}", indices, record)
    if certificate.prior is not None:
        saw = index_digest(split.prior) if len(split.prior) else None
        equal(certificate.prior.saw, saw, "prior.saw")
    contents.split = split
    return f"n = {len(split.bound)}, and every index is the recorded one."


def _same_examples(where: str, indices: np.ndarray, record: ExampleSet | None) -> None:
    if record is None:
        if len(indices):
            raise Disagreement(f"the split has {len(indices)} such examples, none recorded.", where)
        return
    equal(record.examples, len(indices), f"{where}.examples")
    equal(record.index_digest, index_digest(indices), f"{where}.index_digest")


def _prior(certificate: Certificate, path: Path, contents: Contents) -> str:
    contents.prior = _distribution(path, certificate.prior, "prior")
    return "digest recomputed from its tensors."


def _posterior(certificate: Certificate, path: Path, contents: Contents) -> str:
    contents.posterior = _distribution(path, certificate.posterior, "posterior")
    return "digest recomputed from its tensors."


def _distribution(path: Path, record: DistributionRecord | None, who: str) -> DiagonalGaussian:
    loaded = DiagonalGaussian.load(path)
    equal(None if record is None else record.digest, loaded.digest(), f"{who}.digest")
    return loaded


def _complexity(certificate: Certificate, contents: Contents) -> str:
    complexity, posterior, prior = certificate.complexity, contents.posterior, contents.prior
    assert complexity is not None and posterior is not None and prior is not None
    sizes = {name: mean.numel() for name, mean in posterior.means.items()}
    recorded = {term.tensor: term.size for term in complexity.terms}
    if sizes != recorded:
        odd = sorted(set(sizes.items()) ^ set(recorded.items()))[0][0]
        raise Disagreement(f"tensor {odd!r} is not the same in terms and posterior.")
    wrong = disagreement(complexity.terms, posterior.kl_to(prior))
    if wrong is not None:
        term, value = wrong
        raise Disagreement(
            f"the KL of {term.tensor!r} is recorded as {term.nats!r}; the tensors give {value!r}."
        )
    if "renyi_nats" in certificate.bound.inputs:
        order = float(certificate.bound.inputs["order"])
        claimed = float(certificate.bound.inputs["renyi_nats"])
        renyi = sum(posterior.renyi_to(prior, order).values())
        if not abs(claimed - renyi) <= tolerance(renyi, 10 * posterior.weights):
            raise Disagreement(
                f"it says {claimed!r}, the tensors give {renyi!r}.", "bound.inputs.renyi_nats"
            )
    return f"{len(sizes)} tensors, term by term."


def _drawn(certificate: Certificate, path: Path, contents: Contents) -> str:
    posterior, prior, complexity = contents.posterior, contents.prior, certificate.complexity
    if posterior is None or prior is None or complexity is None:
        raise Disagreement("prior and posterior are not both at hand.")
    weights = read_tensors(path)
    if set(weights) != set(posterior.names):
        raise Disagreement("its tensors are not those of the posterior.", DRAWN)
    again = draw_network(posterior, certificate.empirical.seed)
    for name, tensor in weights.items():
        if not torch.allclose(tensor, again[name], rtol=1e-4, atol=1e-7):
            raise Disagreement(
                f"the weights {name!r} are not those that the recorded seed draws.", DRAWN
            )
    ratio = posterior.log_density_ratio(prior, weights)
    claimed = complexity.log_density_ratio
    slack = tolerance(ratio, 10 * posterior.weights) + RELATIVE * complexity.kl_nats
    if claimed is None or not abs(claimed - ratio) <= slack:
        raise Disagreement(f"it says {claimed!r}, the drawn weights give {ratio!r}.")
    contents.drawn = weights
    return "drawn again from the recorded seed, and priced again."


def _network(certificate: Certificate, path: Path, contents: Contents) -> str:
    fixed = read_tensors(path)
    equal(certificate.model.fixed_digest, tensors_digest(fixed), "model.fixed_digest")
    contents.fixed = fixed
    return f"{len(fixed)} tensors, digest recomputed."


def _weights(certificate: Certificate, path: Path, contents: Contents) -> str:
    stored, posterior = read_tensors(path), contents.posterior
    if posterior is None:
        raise Disagreement("the posterior is not at hand.")
    for name, mean in posterior.means.items():
        if name not in stored or not torch.equal(stored[name].double(), mean):
            raise Disagreement(f"the weights {name!r} are not what the noise was put around.")
    return f"{len(posterior.means)} tensors, bit by bit."


def _log_scales(certificate: Certificate, path: Path, contents: Contents) -> str:
    assert certificate.rescaling is not None
    found = np.asarray(read_npz_arrays(path)["log_scales"], dtype=np.float64)
    digest = array_digest(found)
    equal(certificate.rescaling.log_scales_digest, digest, "rescaling.log_scales_digest")
    contents.log_scales = found
    return f"{found.size} log-scales, digest recomputed."


def _settings(folder: Path, contents: Contents) -> dict[str, Any]:
    """The settings of the run, if their file is untouched and can be read."""
    return run_settings(folder) if CONFIG in contents.intact else {}


def fixed_into(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The same network with these tensors in place of its own; it must have every one of them."""
    own = fixed_tensors(module)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name not in own or own[name].shape != tensor.shape:
                raise Disagreement(f"it has no tensor {name!r} of shape {tuple(tensor.shape)}.")
            own[name].copy_(tensor)
    return module
