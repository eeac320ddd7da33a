"""What verify asks of a posterior that was trained for its certificate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nonvacuous.certificate import Certificate
from nonvacuous.methods.posterior import Posterior
from nonvacuous.methods.posterior.making import trained_description
from nonvacuous.verification.checking import PriorChecking
from nonvacuous.verification.inquiry import Inquiry


class MethodChecking(PriorChecking):
    """A prior at the start, learned on a part of the examples, or given; and Q, trained on all."""

    def prior_asked(self, inquiry: Inquiry) -> dict[str, Any]:
        method = inquiry.contents.method
        if method.get("prior") is not None:
            return super().prior_asked(inquiry)
        kind = "initialization" if inquiry.certificate.data.prior is None else "learned"
        return {"kind": kind, "scales": Posterior(**method).scales, "per_tensor": False}

    def posteriors(self, certificate: Certificate, method: dict[str, Any]) -> Collection[str]:
        return (trained_description(method["training"]["objective"]),)
