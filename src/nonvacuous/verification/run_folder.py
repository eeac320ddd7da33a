"""The certificate against its run: its files, its settings (config.toml), the ledger of attempts.

Nothing in a run folder is ever executed. A file is opened only after its digest was found right (or
where the certificate lists none), by readers that know numbers and text only: npz without objects,
safetensors, no pickle, no import.
"""

from __future__ import annotations

import math
import os
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from nonvacuous.audit.data_checks import DECLARED, START, declared
from nonvacuous.audit.ledger_checks import SEARCHED, accounted_for
from nonvacuous.audit.method_checks import BUILT_IN
from nonvacuous.bounds.checks import failure_of
from nonvacuous.certificate import Certificate
from nonvacuous.certification.adapting import FOLDED
from nonvacuous.certification.run_folder import settings_digest
from nonvacuous.data import Split, files
from nonvacuous.distributions import DiagonalGaussian, priors
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import InvalidCertificate
from nonvacuous.files import inside
from nonvacuous.foreign import read_bytes, run_settings
from nonvacuous.rules import attempts, digests
from nonvacuous.rules.arithmetic import ONCE, ledger
from nonvacuous.verification.audited import version_of
from nonvacuous.verification.checking import Checking
from nonvacuous.verification.findings import Disagreement, Finding, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry, roles
from nonvacuous.verification.replaying import differences

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
    folder, contents, certificate = inquiry.folder, inquiry.contents, inquiry.certificate
    assert folder is not None
    if not folder.is_dir():
        why = f"there is no folder {folder}; check the path."
        inquiry.findings.append(Finding("the run folder is there", False, why, "artifacts"))
        return

    def same() -> str:
        if not (folder / "certificate.json").is_file():
            raise NotAsked("the folder has no certificate.json.", needed=False)
        if read_bytes(inside(folder, "certificate.json")) != certificate.written:
            raise Disagreement("its certificate.json is not the certificate that was given.")
        return "its certificate.json is the certificate that was given."

    def complete() -> str:
        # Files that are neither listed nor there would leave nothing to compare with.
        needed = (CONFIG, SPLIT, *checking.evidence(certificate))
        missing = [name for name in needed if name not in certificate.artifacts]
        if missing:
            raise Disagreement(f"the certificate does not list {', '.join(missing)}.")
        return f"{len(certificate.artifacts)} files are listed."

    inquiry.expect("the folder is this certificate's", "certificate", same)
    inquiry.expect("the listed files are complete", "artifacts", complete)
    for name, digest in certificate.artifacts.items():
        work = partial(_untouched, folder, name, digest)
        if inquiry.expect(f"{name} is untouched", f"artifacts.{name}", work):
            contents.intact.add(name)
    if CONFIG in contents.intact:
        contents.settings = run_settings(folder)
    question = "the split has the recorded examples"
    inquiry.ask(SPLIT, question, "data.bound", lambda path: _split(inquiry, path))
    checking.read(inquiry)


def _untouched(folder: Path, name: str, digest: str) -> str:
    # A name with a path in it would let a certificate point at files outside its folder.
    if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name:
        raise Disagreement(f"{name!r} is not the name of a file in the run folder.")
    path = inside(folder, name)
    if not path.is_file():
        raise Disagreement(f"there is no file {name} in {folder}.")
    own = files.sha256_of_file(path)
    if own != digest:
        raise Disagreement(f"{name} was changed: SHA-256 {own[:12]}..., not {digest[:12]}...")
    return f"SHA-256 {digest[:12]}..."


def _split(inquiry: Inquiry, path: Path) -> str:
    split, certificate = Split.load(path), inquiry.certificate
    for where, indices, record in roles(split, certificate.data):
        if record is None and len(indices):
            raise Disagreement(f"the split has {len(indices)} such examples, none recorded.", where)
        if record is not None:
            equal(record.examples, len(indices), f"{where}.examples")
            equal(record.index_digest, digests.index_digest(indices), f"{where}.index_digest")
    if certificate.prior is not None:
        saw = digests.index_digest(split.prior) if len(split.prior) else None
        equal(certificate.prior.saw, saw, "prior.saw")
    inquiry.contents.split = split
    return f"n = {len(split.bound)}, and every index is the recorded one."


#: The settings of a run that its certificate shows.
_SHOWN = (
    "mode", "confidence", "seed", "attempts", "loss", "architecture", "data_name", "preprocessing",
    "split", "method",
)  # fmt: skip


def check_settings(inquiry: Inquiry, checking: Checking) -> None:
    """Settings, ledger and descriptions; without config.toml nothing says what was asked for."""
    certificate, contents = inquiry.certificate, inquiry.contents
    names = (
        ("the settings are those of the certificate", CONFIG),
        ("the ledger is what the settings pay for", "budget"),
        ("prior and posterior are what the settings describe", "prior"),
    )
    first = "format" not in contents.settings and version_of(certificate) == 1
    if not contents.settings or first:
        why = "is of the first format" if contents.settings else "is not at hand"
        for name, field in names:
            inquiry.skip(name, field, f"{CONFIG} {why}.", needed=not first)
        return
    missing = [name for name in _SHOWN if name not in contents.settings]

    def same() -> str:
        if missing:
            raise Disagreement(f"it does not say {missing[0]}.", f"{CONFIG}.{missing[0]}")
        _compare(inquiry)
        return "mode, confidence, seed, trials, loss, names and split agree."

    inquiry.expect(*names[0], same)
    if missing:
        return
    inquiry.expect(*names[1], lambda: _pays(inquiry, checking))
    if certificate.kind.random:
        inquiry.expect(*names[2], lambda: _describes(inquiry, checking))


def _compare(inquiry: Inquiry) -> None:
    certificate, contents = inquiry.certificate, inquiry.contents
    asked, method = contents.settings, contents.method
    shown: list[tuple[str, object, object]] = [
        ("mode", certificate.mode, asked["mode"]),
        ("confidence", certificate.budget.failure, failure_of(asked["confidence"])),
        ("seed", certificate.seed, asked["seed"]),
        ("loss.name", certificate.loss.name, asked["loss"]),
        ("model.architecture", certificate.model.architecture, asked["architecture"]),
        ("data.name", certificate.data.name, asked["data_name"]),
        ("data.preprocessing", certificate.data.preprocessing, asked["preprocessing"]),
    ]
    if certificate.kind.random:
        shown.append(("predictor", certificate.predictor, method.get("predictor")))
    if certificate.empirical.scheme == "pairs":
        shown.append(("empirical.trials", certificate.empirical.trials, method.get("trials")))
    if certificate.progressive is not None:
        record, own = certificate.progressive, method.get("train", {}).get("name", BUILT_IN)
        threshold = certificate.bound.inputs.get("threshold")
        shown += [
            ("bound.inputs.threshold", threshold, method.get("threshold")),
            ("progressive.batches", len(record.batches), method.get("batches")),
            ("progressive.training", record.training, own),
        ]
    if contents.split is not None:
        shown.append((f"{CONFIG}.split", asked["split"], contents.split.digest()))
    for field, claimed, said in shown:
        if claimed != said:
            raise Disagreement(f"the certificate says {claimed!r}, {CONFIG} {said!r}.", field)
    # A given prior of zeros says nothing about where the training of a twin starts.
    given = method.get("prior")
    blind = isinstance(given, dict) and given["kind"] == "zero-mean"
    if method.get("twin") and certificate.held_out_twin is None and not blind:
        raise Disagreement(f"{CONFIG} asks for one, and there is none.", "held_out_twin")
    stated, sentence = inquiry.stated(START), method.get("pretrained")
    if stated is not None and (
        stated.detail != declared(sentence) if sentence else stated.detail.startswith(DECLARED)
    ):
        raise Disagreement(
            f"{CONFIG} says pretrained = {sentence!r}; the certificate explains "
            f"{START!r} by {stated.detail!r}",
            f"assumptions.{certificate.assumptions.index(stated)}.detail",
        )


def _pays(inquiry: Inquiry, checking: Checking) -> str:
    certificate, asked = inquiry.certificate, inquiry.contents.settings
    claimed, choices, measured = certificate.budget, 1, 1
    if certificate.kind.random and certificate.complexity is not None:
        # Members of the prior family that the settings let choose among.
        prior = checking.prior_asked(inquiry)
        tensors = len(certificate.complexity.terms) if prior["per_tensor"] else 1
        choices = int(len(prior["scales"]) ** tensors)
    if certificate.kind.random and certificate.rescaling is not None:
        # Posteriors that were sampled, as the ledger says: several only where they were rescaled.
        stochastic = certificate.predictor == "stochastic"
        named = (claimed.sampling if stochastic else claimed.bound).choices
        single = 1 if stochastic else choices
        measured = next((count for count in (2, 3) if named == count * single), 1)
    expected = ledger(
        mode=certificate.mode,
        failure=failure_of(asked["confidence"]),
        attempts=asked["attempts"],
        sampled=certificate.empirical.scheme != ONCE,
        choices=choices,
        measured=measured,
    )
    names = [entry.name for entry in expected.entries]
    equal([entry.name for entry in claimed.entries], names, "budget.entries")
    for position, (entry, again) in enumerate(zip(claimed.entries, expected.entries, strict=True)):
        for key in ("failure", "choices", "reason"):
            equal(getattr(entry, key), getattr(again, key), f"budget.entries.{position}.{key}")
    if certificate.kind.prior:
        _check_searched(inquiry, choices, measured)
    return f"{asked['attempts']} certificates, {expected.entries[-1].choices} choices paid for."


def _check_searched(inquiry: Inquiry, choices: int, measured: int) -> None:
    """Compare the words for all that was searched: no run keeps the searches themselves."""
    certificate, method = inquiry.certificate, inquiry.contents.method
    stated, kind = inquiry.stated(SEARCHED), certificate.kind
    if stated is None or stated.effect != "none" or differences(certificate, ("nonvacuous",)):
        return
    moved, scales = certificate.rescaling is not None, method.get("posterior_scales") or (0, 1)
    quotients = method.get("translation") or method.get("permutation")
    searched = {
        "posterior scale": kind.given and len(scales) > 1,
        "posterior gauge": moved,
        "rescaling": moved,
        "prior scale": choices > 1,
        "posterior measured": measured > 1,
        "setting of the loss": kind.noisy,
        "training of the network": kind.noisy,
        "posterior symmetries": quotients and certificate.predictor == "stochastic",
    }
    words = accounted_for(name for name, done in searched.items() if done)
    equal(stated.detail, words, f"assumptions.{certificate.assumptions.index(stated)}.detail")


def _describes(inquiry: Inquiry, checking: Checking) -> str:
    certificate, stored = inquiry.certificate, inquiry.contents.prior
    record, posterior = certificate.prior, certificate.posterior
    assert record is not None and posterior is not None
    prior = checking.prior_asked(inquiry)
    if prior["kind"] == "learned" and record.saw is None:
        raise Disagreement(f"{CONFIG} says that the prior was learned.", "prior.saw")
    text = priors.described(prior["kind"], prior["scales"], per_tensor=prior["per_tensor"])
    equal(record.description, text, "prior.description")
    if stored is not None:
        if posterior.description.endswith(FOLDED):
            # The settings have those before batch normalization was folded.
            prior.pop("means", None)
        _check_prior(stored, prior)
    if prior["kind"] == "pretrained":
        where = f"{CONFIG}.method.prior.fixed"
        equal(certificate.model.fixed_digest, prior.get("fixed"), where)
    if posterior.description not in checking.posteriors(certificate, inquiry.contents.method):
        raise Disagreement(
            f"no run with these settings describes its posterior by {posterior.description!r}.",
            "posterior.description",
        )
    return record.description


def _check_prior(prior: DiagonalGaussian, asked: dict[str, Any]) -> None:
    """Its scales are of the grid that was paid for, its means where the settings put them."""
    used: set[float] = set()
    for name, scales in prior.scales.items():
        first = float(scales.flatten()[0])
        near = [s for s in asked["scales"] if math.isclose(first, s, rel_tol=1e-6)]
        if not near or not bool((scales == scales.flatten()[0]).all()):
            raise Disagreement(
                f"the scale {first:.6g} of {name!r} is not one of the {len(asked['scales'])} that "
                "were fixed before the data.",
                "prior",
            )
        used.add(near[0])
    if len(used) > 1 and not asked["per_tensor"]:
        raise Disagreement("tensors have different scales; one for all was paid for.", "prior")
    if asked["kind"] == "zero-mean" and any(bool(m.any()) for m in prior.means.values()):
        raise Disagreement(f"{CONFIG} centers the prior on zero; it is not there.", "prior")
    if asked.get("means") is not None:
        equal(tensors_digest(dict(prior.means)), asked["means"], f"{CONFIG}.method.prior.means")


def check_attempts(inquiry: Inquiry, ledger: Path | None) -> None:
    """Its settings have a line there, with the share of the confidence that it took."""
    certificate, contents = inquiry.certificate, inquiry.contents
    path = attempts.ledger_beside(inquiry.folder or "") if ledger is None else ledger

    def work() -> str:
        entries = attempts.read_attempts(path)
        rivals = [a for a in entries if a.bound == certificate.data.bound.content_digest]
        for there, absent in (
            (contents.settings, "the settings are not at hand."),
            ("format" in contents.settings, f"{CONFIG} is of the first format."),
            (entries, "there is none beside the run; name it with --ledger (ledger= in Python)."),
            (rivals, f"{path} knows nothing of these examples."),
        ):
            if not there:
                raise NotAsked(absent, needed=False)
        digest = settings_digest(contents.settings)
        own = [attempt for attempt in rivals if attempt.config == digest]
        if not own:
            raise Disagreement(
                f"it has {len(rivals)} lines about these examples and none with the settings of "
                "config.toml: they were changed, or the run was moved beside a ledger that is not "
                "its own."
            )
        paid = contents.settings.get("attempts")
        mine = [attempt for attempt in own if attempt.paid == paid]
        if not mine:
            shares = " and ".join(sorted({str(attempt.paid) for attempt in own}))
            raise Disagreement(
                f"config.toml says that {paid} certificates share the confidence; the ledger has "
                f"this one with {shares}."
            )
        ended = [attempt for attempt in mine if attempt.outcome]
        if len({attempt.outcome for attempt in ended}) == 1:
            contents.standing = attempts.standing(entries, ended[0])
        return f"{len(rivals)} lines about these examples, {len(own)} of them its own."

    inquiry.expect("the ledger of attempts knows this certificate", "attempts", work)
