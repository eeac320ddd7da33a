"""The facts that the audit looked at, as far as files, data and network give them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nonvacuous.audit.claim_checks import NOISY
from nonvacuous.audit.evidence import StoredEvidence
from nonvacuous.audit.sampling_checks import FREEZE, SAMPLING
from nonvacuous.certification.assemble import software
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.measurement import ON_TEST
from nonvacuous.kinds import kind_of
from nonvacuous.risk import Loss
from nonvacuous.rules.derandomization import layers_from
from nonvacuous.rules.drawing import OBSERVED as TILTED
from nonvacuous.verification.inquiry import Inquiry


def stored_evidence(inquiry: Inquiry, module: nn.Module, loss: Loss) -> StoredEvidence:
    """Everything that is recomputed here or stored. What only the run saw is left out: what was
    searched (the ledger is compared with the settings instead), groups, the start of training."""
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    prior, posterior, record = contents.prior, contents.posterior, certificate.sparsity
    transform = "; ".join(known.examples.preprocessing) or "as given"
    facts: dict[str, Any] = {
        "mode": certificate.mode,
        "predictor": certificate.predictor,
        "measured_predictor": certificate.predictor if record is None else NOISY,
        "module": module if posterior is None else with_weights(module, posterior.means),
        # Contents were compared; what the verifier calls them does not matter.
        "examples": replace(known.examples, name=certificate.data.name),
        "data": certificate.data,
        "split": known.split,
        "loss": loss,
        "bound": certificate.bound,
        "budget": certificate.budget,
        "risk": certificate.empirical,
        "seed": certificate.seed,
        "evaluation_transform": certificate.data.preprocessing,
        "risk_transform": certificate.data.preprocessing,
        "prior": prior,
        "posterior": posterior,
        "complexity": certificate.complexity,
        "sparsity": record,
        "weight_draws": None,
        "drawn": contents.drawn,
        "noise_digest": None
        if certificate.rescaling is None
        else certificate.rescaling.noise_digest,
        "draws": ((FREEZE, 0), (SAMPLING, certificate.empirical.seed)),
        "risk_upper": certificate.risk_upper,
        "confidence": certificate.confidence,
    }
    if posterior is not None:
        # Recomputed here from the stored tensors, both of them.
        facts["posterior_at_kl"] = facts["posterior_at_risk"] = posterior.digest()
    if transform == certificate.data.preprocessing:
        # Fitted again here, or nothing was fitted on the way.
        facts["preprocessing_saw"] = known.split.prior if known.standardized else None
    if not any(observation.name.endswith(ON_TEST) for observation in certificate.observed):
        facts["test"] = None  # the run had none, whoever verifies may have one
    elif known.test is not None:
        facts["test"] = known.test
    facts["tilt"] = next((o for o in certificate.observed if o.name == TILTED), None)
    if not contents.fixed:
        facts["fixed_before"] = {}
    if certificate.prior is not None:
        learned = certificate.prior.saw is not None
        facts["prior_saw"] = known.split.prior if learned else None
        facts["prior_saw_digest"] = certificate.prior.saw
        # A sparsity run is given its prior as a table, and names the one that it makes.
        own = contents.settings.get("method", {}).get("prior")
        kind = kind_of(certificate.mode)
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
    declared = contents.settings.get("method", {})
    # What the user declared; without a word the check asks for more, which no run keeps.
    facts |= {name: declared[name] for name in ("pretrained", "unseen") if declared.get(name)}
    return StoredEvidence(software(torch.device("cpu"))["nonvacuous"], **facts)
