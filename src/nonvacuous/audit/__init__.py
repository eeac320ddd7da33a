"""The audit: what a certificate rests on, checked before it is sealed.

``run(evidence)`` gives one :class:`~nonvacuous.records.Assumption` for every check that applies;
the worst of them decides whether the certificate is valid, conditional or refused.
"""

from __future__ import annotations

# Importing a family of checks registers it; certificates list the checks in this order.
from nonvacuous.audit import (  # isort: skip
    data_checks as data_checks,
    complexity_checks as complexity_checks,
    network_checks as network_checks,
    sampling_checks as sampling_checks,
    ledger_checks as ledger_checks,
    claim_checks as claim_checks,
    method_checks as method_checks,
)
from nonvacuous.audit import registry as registry
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import ALL_PREDICTORS, required
from nonvacuous.errors import BadInput
from nonvacuous.kinds import ALL_MODES
from nonvacuous.records import Assumption


def run(evidence: Evidence) -> tuple[Assumption, ...]:
    """Every check that applies to this kind of certificate, in a fixed order."""
    if evidence.mode not in ALL_MODES or evidence.predictor not in ALL_PREDICTORS:
        raise BadInput(
            f"there is no certificate of mode {evidence.mode!r} about the predictor "
            f"{evidence.predictor!r}; modes are {', '.join(ALL_MODES)} and predictors are "
            f"{', '.join(ALL_PREDICTORS)}."
        )
    checks = required(mode=evidence.mode, predictor=evidence.predictor)
    return tuple(c(evidence) for c in checks)
