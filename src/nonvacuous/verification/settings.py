"""The certificate against the settings of its run (config.toml) and the ledger of attempts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nonvacuous.audit.data_checks import DECLARED, START, declared
from nonvacuous.bounds.checks import failure_of
from nonvacuous.certificate import Certificate
from nonvacuous.certification.adapting import FOLDED
from nonvacuous.certification.run_folder import settings_digest
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import described
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.rules.arithmetic import BOUND_LINE, SAMPLING_LINE, ledger, line
from nonvacuous.rules.attempts import Attempt, ledger_beside, read_attempts, standing
from nonvacuous.verification.audited import version_of
from nonvacuous.verification.checking import Checking
from nonvacuous.verification.findings import Disagreement, equal
from nonvacuous.verification.inquiry import Contents, Inquiry

FILE = "config.toml"


#: The settings of a run, as far as its certificate shows them; those of the method by name.
Asked = dict[str, Any]
_SHOWN = (
    "mode", "confidence", "seed", "attempts", "loss", "architecture", "data_name", "preprocessing",
    "split", "method",
)  # fmt: skip


def check_settings(inquiry: Inquiry, checking: Checking) -> None:
    """Settings, ledger and descriptions; without config.toml nothing says what was asked for."""
    certificate, contents = inquiry.certificate, inquiry.contents
    names = (
        ("the settings are those of the certificate", FILE),
        ("the ledger is what the settings pay for", "budget"),
        ("prior and posterior are what the settings describe", "prior"),
    )
    first = "format" not in contents.settings and version_of(certificate) == 1
    if not contents.settings or first:
        why = "is of the first format" if contents.settings else "is not at hand"
        for name, field in names:
            inquiry.skip(name, field, f"{FILE} {why}.", needed=not first)
        return
    asked = contents.settings
    missing = [name for name in _SHOWN if name not in asked]

    def same() -> str:
        if missing:
            raise Disagreement(f"it does not say {missing[0]}.", f"{FILE}.{missing[0]}")
        _compare(certificate, contents, asked)
        return "mode, confidence, seed, trials, loss, names and split agree."

    inquiry.expect(*names[0], same)
    if missing:
        return
    inquiry.expect(*names[1], lambda: _pays(certificate, asked, checking))
    if certificate.kind.random:
        inquiry.expect(*names[2], lambda: _describes(inquiry, asked, checking))


def _prior(certificate: Certificate, asked: Asked, checking: Checking) -> dict[str, Any]:
    """Kind, scales, whose they are, and the digest of the means if they were given."""
    return checking.prior_asked(asked["method"], learned=certificate.data.prior is not None)


def _choices(certificate: Certificate, asked: Asked, checking: Checking) -> int:
    """Members of the prior family that the settings let choose among."""
    if not certificate.kind.random or certificate.complexity is None:
        return 1
    prior = _prior(certificate, asked, checking)
    tensors = len(certificate.complexity.terms) if prior["per_tensor"] else 1
    return int(len(prior["scales"]) ** tensors)


def _measured(certificate: Certificate, asked: Asked, checking: Checking) -> int:
    """Posteriors that were sampled, as the ledger says: several only where they were rescaled."""
    if certificate.rescaling is None or not certificate.kind.random:
        return 1
    stochastic = certificate.predictor == "stochastic"
    claimed = line(certificate.budget, SAMPLING_LINE if stochastic else BOUND_LINE).choices
    single = 1 if stochastic else _choices(certificate, asked, checking)
    return next((count for count in (2, 3) if claimed == count * single), 1)


def _compare(certificate: Certificate, contents: Contents, asked: Asked) -> None:
    method = asked["method"]
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
    if contents.split is not None:
        shown.append((f"{FILE}.split", asked["split"], contents.split.digest()))
    for field, claimed, said in shown:
        if claimed != said:
            raise Disagreement(f"the certificate says {claimed!r}, {FILE} {said!r}.", field)
    stated = next((a for a in certificate.assumptions if a.name == START), None)
    sentence = method.get("pretrained")
    if stated is not None and (
        stated.detail != declared(sentence) if sentence else stated.detail.startswith(DECLARED)
    ):
        raise Disagreement(
            f"{FILE} says pretrained = {sentence!r}; the certificate explains "
            f"{START!r} by {stated.detail!r}",
            f"assumptions.{certificate.assumptions.index(stated)}.detail",
        )


def _pays(certificate: Certificate, asked: Asked, checking: Checking) -> str:
    claimed = certificate.budget
    expected = ledger(
        mode=certificate.mode,
        failure=failure_of(asked["confidence"]),
        attempts=asked["attempts"],
        sampled=certificate.empirical.scheme != "every example once",
        choices=_choices(certificate, asked, checking),
        measured=_measured(certificate, asked, checking),
    )
    names = [entry.name for entry in expected.entries]
    equal([entry.name for entry in claimed.entries], names, "budget.entries")
    for position, (entry, again) in enumerate(zip(claimed.entries, expected.entries, strict=True)):
        for key in ("failure", "choices", "reason"):
            equal(getattr(entry, key), getattr(again, key), f"budget.entries.{position}.{key}")
    return f"{asked['attempts']} certificates, {expected.entries[-1].choices} choices paid for."


def _describes(inquiry: Inquiry, asked: Asked, checking: Checking) -> str:
    certificate, stored = inquiry.certificate, inquiry.contents.prior
    record, posterior = certificate.prior, certificate.posterior
    assert record is not None and posterior is not None
    prior = _prior(certificate, asked, checking)
    if prior["kind"] == "learned" and record.saw is None:
        raise Disagreement(f"{FILE} says that the prior was learned.", "prior.saw")
    text = described(prior["kind"], prior["scales"], per_tensor=prior["per_tensor"])
    equal(record.description, text, "prior.description")
    if stored is not None:
        if posterior.description.endswith(FOLDED):
            # The settings have those before batch normalization was folded.
            prior.pop("means", None)
        _check_prior(stored, prior)
    if prior["kind"] == "pretrained":
        where = f"{FILE}.method.prior.fixed"
        equal(certificate.model.fixed_digest, prior.get("fixed"), where)
    if posterior.description not in checking.posteriors(certificate, asked["method"]):
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
        raise Disagreement(f"{FILE} centers the prior on zero; it is not there.", "prior")
    if asked.get("means") is not None:
        equal(tensors_digest(dict(prior.means)), asked["means"], f"{FILE}.method.prior.means")


_NAME = "the ledger of attempts knows this certificate"


def check_attempts(inquiry: Inquiry, ledger: Path | None) -> None:
    """Its settings have a line there, with the share of the confidence that it took."""
    certificate, contents = inquiry.certificate, inquiry.contents
    path = ledger_beside(inquiry.folder or "") if ledger is None else ledger
    entries = read_attempts(path)
    rivals = [a for a in entries if a.bound == certificate.data.bound.content_digest]
    if "format" not in contents.settings or not rivals:
        why = (
            "the settings are not at hand."
            if not contents.settings
            else f"{FILE} is of the first format."
            if "format" not in contents.settings
            else f"{path} knows nothing of these examples."
            if entries
            else "there is none beside the run; name it with --ledger (ledger= in Python)."
        )
        inquiry.skip(_NAME, "attempts", why, needed=False)
        return

    def work() -> str:
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
        ended: list[Attempt] = [attempt for attempt in mine if attempt.outcome]
        if len({attempt.outcome for attempt in ended}) == 1:
            contents.standing = standing(entries, ended[0])
        return f"{len(rivals)} lines about these examples, {len(own)} of them its own."

    inquiry.expect(_NAME, "attempts", work)
