"""The certificate against the files of its run. Nothing in a run folder is ever executed.

A file is opened only after its digest was found right (or where the certificate lists none), by
readers that know numbers and text only: npz without objects, safetensors, no pickle, no import.
"""

from __future__ import annotations

import os
import tomllib
from functools import partial
from pathlib import Path

from nonvacuous.certificate import Certificate
from nonvacuous.certification.twin import FILE_NAME as TWIN
from nonvacuous.data import Split
from nonvacuous.distributions.storage import read_tensors
from nonvacuous.errors import InvalidCertificate
from nonvacuous.files import inside
from nonvacuous.foreign import read_bytes, run_settings
from nonvacuous.rules.digests import file_digest, index_digest
from nonvacuous.verification.checking import Checking
from nonvacuous.verification.findings import Disagreement, Finding, equal
from nonvacuous.verification.inquiry import Inquiry

SPLIT = "split.npz"
CONFIG = "config.toml"


def check_before_sealing(
    checking: Checking, certificate: Certificate, folder: Path, configuration: str
) -> None:
    """A run reads its own files back: what it is about to promise must be what lies there."""
    if run_settings(folder) != tomllib.loads(configuration):
        raise InvalidCertificate(
            f"config.toml in {folder} is no longer this run's: somebody changed it while the run "
            "computed. Nothing is sealed; start again in another folder"
        )
    inquiry = Inquiry(certificate, folder=folder)
    check_folder(inquiry, checking)
    for finding in inquiry.findings:
        if finding.passed is False:
            raise InvalidCertificate(
                f"the files in {folder} are no longer what this run wrote ({finding.field}: "
                f"{finding.detail}). Nothing is sealed; start again in another folder"
            )


def check_folder(inquiry: Inquiry, checking: Checking) -> None:
    """All questions that the files of a run can answer."""
    folder, contents = inquiry.folder, inquiry.contents
    assert folder is not None
    if not folder.is_dir():
        why = f"there is no folder {folder}; check the path."
        inquiry.findings.append(Finding("the run folder is there", False, why, "artifacts"))
        return
    _check_same_certificate(inquiry, folder)
    _check_artifacts(inquiry, folder, checking)
    if CONFIG in contents.intact:
        contents.settings = run_settings(folder)
    question = "the split has the recorded examples"
    inquiry.ask(SPLIT, question, "data.bound", lambda path: _split(inquiry, path))
    if TWIN in contents.intact:
        contents.twin = read_tensors(folder / TWIN)
    checking.read(inquiry)


def _check_same_certificate(inquiry: Inquiry, folder: Path) -> None:
    name, path = "the folder is this certificate's", folder / "certificate.json"
    if not path.is_file():
        why = "the folder has no certificate.json."
        inquiry.skip(name, "certificate", why, needed=False)
        return

    def work() -> str:
        expected = (inquiry.certificate.model_dump_json(indent=2) + "\n").encode()
        if read_bytes(inside(folder, path.name)) != expected:
            raise Disagreement("its certificate.json is not the certificate that was given.")
        return "its certificate.json is the certificate that was given."

    inquiry.expect(name, "certificate", work)


def _check_artifacts(inquiry: Inquiry, folder: Path, checking: Checking) -> None:
    certificate = inquiry.certificate

    def complete() -> str:
        # Files that are neither listed nor there would leave nothing to compare with.
        needed = (CONFIG, SPLIT, *checking.evidence(certificate))
        missing = [name for name in needed if name not in certificate.artifacts]
        if missing:
            raise Disagreement(f"the certificate does not list {', '.join(missing)}.")
        return f"{len(certificate.artifacts)} files are listed."

    inquiry.expect("the listed files are complete", "artifacts", complete)
    for name, digest in certificate.artifacts.items():
        field = f"artifacts.{name}"
        work = partial(_untouched, folder, name, digest)
        if inquiry.expect(f"{name} is untouched", field, work):
            inquiry.contents.intact.add(name)


def _untouched(folder: Path, name: str, digest: str) -> str:
    # A name with a path in it would let a certificate point at files outside its folder.
    if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name:
        raise Disagreement(f"{name!r} is not the name of a file in the run folder.")
    path = inside(folder, name)
    if not path.is_file():
        raise Disagreement(f"there is no file {name} in {folder}.")
    own = file_digest(path)
    if own != digest:
        raise Disagreement(f"{name} was changed: SHA-256 {own[:12]}..., not {digest[:12]}...")
    return f"SHA-256 {digest[:12]}..."


def _split(inquiry: Inquiry, path: Path) -> str:
    split, certificate = Split.load(path), inquiry.certificate
    data = certificate.data
    for role, indices, record in (
        ("bound", split.bound, data.bound),
        ("prior", split.prior, data.prior),
        ("held_out", split.heldout, data.held_out),
    ):
        where = f"data.{role}"
        if record is None and len(indices):
            raise Disagreement(f"the split has {len(indices)} such examples, none recorded.", where)
        if record is not None:
            equal(record.examples, len(indices), f"{where}.examples")
            equal(record.index_digest, index_digest(indices), f"{where}.index_digest")
    if certificate.prior is not None:
        saw = index_digest(split.prior) if len(split.prior) else None
        equal(certificate.prior.saw, saw, "prior.saw")
    inquiry.contents.split = split
    return f"n = {len(split.bound)}, and every index is the recorded one."
