"""A certificate for every condition: what the same bound says about true and about random labels.

A bound that looks at data and labels may promise much on true labels. On labels that nobody can
predict it must not: a promise below the error that no predictor can avoid would be false.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from nonvacuous.certify import certify
from nonvacuous.distributions.copying import copied_network
from nonvacuous.errors import NonvacuousError
from nonvacuous.methods import Posterior
from nonvacuous.progress import Progress
from nonvacuous.randomization.conditions import Condition
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.training_settings import PlainTraining, PosteriorTraining


@dataclass(frozen=True)
class ConditionCertificate:
    """What is promised for one condition.

    risk_upper   the promise: the randomized network errs at most so often on new data of the same
                 condition; None where there is none
    guessing     the error of a uniform guess
    floor        an error that no predictor can go below in this condition; 0 where nobody knows
    reason       why there is no certificate
    """

    condition: str
    risk_upper: float | None
    guessing: float
    floor: float
    confidence: float
    empirical_risk: float | None = None
    kl_nats: float | None = None
    status: str = "refused"
    reason: str = ""

    @property
    def verdict(self) -> str:
        """In a few words, for a table."""
        if self.risk_upper is None:
            return "no certificate"
        if self.risk_upper < self.floor:
            return "false: below what anybody can reach"
        if self.risk_upper >= self.guessing:
            return "promises nothing"
        return "promises something"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def certify_condition(
    module: nn.Module,
    condition: Condition,
    settings: StudySettings,
    *,
    seed: int,
    device: torch.device,
    progress: Progress | None,
) -> ConditionCertificate:
    """Train a randomized network of this architecture for a certificate on the condition's data."""
    method = Posterior(
        trials=settings.certificate_trials,
        training=PosteriorTraining(epochs=settings.certificate_epochs),
        plain_training=PlainTraining(epochs=settings.certificate_epochs),
        twin=False,
    )
    fields: dict[str, Any] = {
        "condition": condition.name,
        "guessing": 1.0 - 1.0 / condition.train.classes,
        "floor": unavoidable_error(condition),
        "confidence": settings.confidence,
    }
    try:
        made = certify(
            copied_network(module).to(device),
            condition.train,
            method=method,
            confidence=settings.confidence,
            seed=seed,
            progress=progress,
        )
    except (NonvacuousError, NotImplementedError) as error:
        # The second: an operator of the user's network for which PyTorch has no vectorized version.
        return ConditionCertificate(**fields, risk_upper=None, reason=str(error))
    if made.status == "refused":
        return ConditionCertificate(**fields, risk_upper=None, reason=made.lines()[3])
    return ConditionCertificate(
        **fields,
        risk_upper=made.risk_upper,
        empirical_risk=made.empirical.amount / made.empirical.trials,
        kl_nats=None if made.complexity is None else made.complexity.kl_nats,
        status=made.status,
    )


def unavoidable_error(condition: Condition) -> float:
    """The error that nobody can avoid on new data of this condition.

    A label drawn uniformly from K classes with probability p differs from any guess with
    probability p (1 - 1/K) at least. For other changes nobody knows: 0.
    """
    return (condition.noise or 0.0) * (1.0 - 1.0 / condition.train.classes)
