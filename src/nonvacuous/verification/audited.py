"""The audit's rows: which had to be asked, what each may say, and the answers found again.

A certificate is held to the version of the audit that it names. What was added since is listed
and, where the evidence is stored, asked as well: no certificate fails for it, but none is called
verified that today's audit finds false.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from nonvacuous import __version__
from nonvacuous.audit import claim_checks, registry
from nonvacuous.audit.evidence import RECORDED, StoredEvidence
from nonvacuous.audit.registry import Check, Outcome, least_version, release_of
from nonvacuous.audit.sampling_checks import FREEZE, SAMPLING
from nonvacuous.certificate import Certificate
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.measurement import ON_TEST
from nonvacuous.records import Assumption
from nonvacuous.risk.losses import Loss
from nonvacuous.rules.derandomization import layers_from
from nonvacuous.rules.drawing import FIRST_OBSERVED, OBSERVED
from nonvacuous.verification.findings import Disagreement
from nonvacuous.verification.inquiry import Inquiry

_EFFECTS = ("none", "conditional", "refused")
_STRENGTH = ("violated", "not checkable", "asserted", "checked")


def check_version(certificate: Certificate) -> str:
    """Whether such a certificate can have passed that version of the audit."""
    version, made_by = version_of(certificate), certificate.software.get("nonvacuous", "unknown")
    if version > (known := registry.present_version()):
        raise Disagreement(
            f"it names version {version} of the audit, and this library knows {known}: "
            "verify it with a newer one."
        )
    if version < least_version(made_by):
        raise Disagreement(
            f"it says that it passed version {version} of the audit, but release {made_by} of the "
            f"library asks at least version {least_version(made_by)}."
        )
    later = "; ".join(c.name for c in added_since(certificate))
    return audited_note(certificate) + (f" They are: {later}." if later else "")


def audited_note(certificate: Certificate) -> str:
    """What every reader has to know about the questions that were not asked."""
    version, later = version_of(certificate), len(added_since(certificate))
    if not later:
        return f"audited under version {version}, the present one."
    return f"audited under version {version}; {later} checks added since were not required."


def skip_newer(inquiry: Inquiry) -> None:
    """A library that is not out yet, as far as this one knows."""
    made_by, here = inquiry.certificate.software.get("nonvacuous", "unknown"), __version__
    if release_of(made_by) > release_of(here):
        why = f"release {made_by} made it, and this is {here}: verify it with one as new."
        inquiry.skip("this library knows how it was made", "software.nonvacuous", why)


def check_rows(certificate: Certificate) -> str:
    """Every check of that version is listed once, no other is, and none says more than it can."""
    required = {c.name: c for c in _required(certificate)}
    names = [assumption.name for assumption in certificate.assumptions]
    missing = [name for name in required if name not in names]
    if missing:
        raise Disagreement(f"{len(missing)} checks are not listed, first {missing[0]!r}.")
    if len(set(names)) != len(names):
        raise Disagreement("an assumption is listed twice.")
    for position, assumption in enumerate(certificate.assumptions):
        where = f"assumptions.{position}"
        if assumption.name not in required:
            raise Disagreement(f"the audit asks no {assumption.name!r}.", f"{where}.name")
        says = required[assumption.name].says
        if assumption.status not in (*says, "violated"):
            raise Disagreement(
                f"{assumption.name!r} is called {assumption.status}; the audit can only say "
                f"{' or '.join(says)}.",
                f"{where}.status",
            )
    return f"all {len(required)} checks of the audit are listed."


def check_again(inquiry: Inquiry, gather: Callable[[], StoredEvidence]) -> None:
    """Ask every check again whose facts are stored; then those that are newer than it."""
    certificate = inquiry.certificate
    rows = {row.name: (position, row) for position, row in enumerate(certificate.assumptions)}
    gathered: list[StoredEvidence] = []

    def work() -> str:
        gathered.append(gather())
        same_words = certificate.software.get("nonvacuous") == __version__
        asked, left = 0, []
        for check in _required(certificate):
            outcome = check.on_part(gathered[0])
            if outcome is None or check.name not in rows:
                left.append(check.name)
                continue
            asked += 1
            position, recorded = rows[check.name]
            _compare(recorded, outcome, f"assumptions.{position}", same_words=same_words)
        rest = f"; no run keeps the facts of: {'; '.join(left)}" if left else ""
        return f"{asked} checks, run on the stored evidence{rest}."

    inquiry.expect("the audit finds again what it found", "assumptions", work)
    for check in added_since(certificate) if gathered else ():
        outcome, why, false = check.on_part(gathered[0]), "its facts are not stored.", False
        if outcome is not None:
            why, false = f"{outcome.status}: {outcome.detail}", outcome.effect != "none"
        inquiry.skip(f"added since, not required: {check.name}", "audit", why, needed=false)


def added_since(certificate: Certificate) -> tuple[Check, ...]:
    """The checks that a certificate of this kind would have to pass today, and did not then."""
    asked = registry.required(mode=certificate.mode, predictor=certificate.predictor)
    return tuple(c for c in asked if c.since > version_of(certificate))


def version_of(certificate: Certificate) -> int:
    return 1 if certificate.audit is None else certificate.audit


def _required(certificate: Certificate) -> tuple[Check, ...]:
    return registry.required(
        mode=certificate.mode, predictor=certificate.predictor, version=version_of(certificate)
    )


def _compare(recorded: Assumption, outcome: Outcome, where: str, *, same_words: bool) -> None:
    """A certificate may say less for itself than the evidence does, never more."""
    if _EFFECTS.index(outcome.effect) > _EFFECTS.index(recorded.effect):
        raise Disagreement(
            f"{recorded.name!r} is recorded as {recorded.status}, and the evidence contradicts it: "
            f"{outcome.detail}",
            f"{where}.status",
        )
    if recorded.effect != outcome.effect:
        return
    if _STRENGTH.index(recorded.status) > _STRENGTH.index(outcome.status):
        raise Disagreement(
            f"{recorded.name!r} is called {recorded.status}; on this evidence the audit says no "
            f"more than {outcome.status}: {outcome.detail}",
            f"{where}.status",
        )
    if same_words and _words(recorded.detail) != _words(outcome.detail):
        raise Disagreement(
            f"{recorded.name!r} is explained by {recorded.detail!r}; the audit says "
            f"{outcome.detail!r}",
            f"{where}.detail",
        )


def _words(detail: str) -> str:
    """The sentence without its numbers, which may differ in the last digit elsewhere."""
    return re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "#", detail)


def stored_evidence(inquiry: Inquiry, module: nn.Module, loss: Loss, **more: Any) -> StoredEvidence:
    """Everything that is recomputed here or stored, and what only this kind has. What only the run
    saw is left out: what was searched (the ledger is compared with the settings instead), and the
    start of training."""
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    prior, posterior, record = contents.prior, contents.posterior, certificate.sparsity
    facts: dict[str, Any] = {name: getattr(certificate, name) for name in RECORDED} | {
        "measured_predictor": certificate.predictor if record is None else claim_checks.NOISY,
        "module": module if posterior is None else with_weights(module, posterior.means),
        "graph": None,  # captured again
        # Contents were compared; what the verifier calls them does not matter.
        "examples": replace(known.examples, name=certificate.data.name),
        "split": known.split,
        "loss": loss,
        "risk": certificate.empirical,
        "observed": certificate.observed,
        "evaluation_transform": certificate.data.preprocessing,
        "risk_transform": certificate.data.preprocessing,
        "prior": prior,
        "posterior": posterior,
        "drawn": contents.drawn,
        "noise_digest": getattr(certificate.rescaling, "noise_digest", None),
        "draws": ((FREEZE, 0), (SAMPLING, certificate.empirical.seed)),
        # As the code has it: certify takes no groups, and reads test examples after the end.
        "groups_declared": None,
        "test_reads": (FREEZE,),
    }
    if posterior is not None:
        # Recomputed here from the stored tensors, both of them.
        facts["posterior_at_kl"] = facts["posterior_at_risk"] = posterior.digest()
    if known.examples.steps == certificate.data.preprocessing:
        # Fitted again here, or nothing was fitted on the way.
        facts["preprocessing_saw"] = known.split.prior if known.standardized else None
    if not any(observation.name.endswith(ON_TEST) for observation in certificate.observed):
        facts["test"] = None  # the run had none, whoever verifies may have one
    elif known.test is not None:
        facts["test"] = known.test
    tilted = (o for o in certificate.observed if o.name in (OBSERVED, FIRST_OBSERVED))
    facts["tilt"] = next(tilted, None)
    if not contents.fixed:
        facts["fixed_before"] = {}
    if certificate.prior is None:
        facts |= {"prior_saw": None, "searches": ()}  # as the code has it
    else:
        facts["prior_saw"] = known.split.prior if inquiry.learned else None
        facts["prior_saw_digest"] = certificate.prior.saw
        # A sparsity run is given its prior as a table, and names the one that it makes.
        own, kind = contents.method.get("prior"), certificate.kind
        if not kind.noisy or own is not None:
            facts["prior_given"] = kind.given or isinstance(own, dict)
    if record is not None and prior is not None and posterior is not None:
        facts["layers"] = layers_from(record, posterior.means)
        facts["prior_layers"] = layers_from(record, prior.means)
        if not record.passes:
            facts["draws"] = ((FREEZE, 0),)
    if contents.standing is not None:
        facts["standing"] = contents.standing
        facts["attempts_paid"] = contents.settings["attempts"]
    # What the user declared; without a word the check asks for more, which no run keeps.
    method = contents.method
    facts |= {name: method[name] for name in ("pretrained", "unseen") if method.get(name)} | more
    return StoredEvidence(**facts)
