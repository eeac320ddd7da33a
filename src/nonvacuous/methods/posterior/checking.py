"""What verify asks of a posterior that was trained for its certificate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from nonvacuous.certificate import Certificate
from nonvacuous.methods.posterior import Posterior
from nonvacuous.methods.posterior.making import trained_description
from nonvacuous.verification.checking import PriorChecking


class MethodChecking(PriorChecking):
    """A prior at the start, learned on a part of the examples, or given; and Q, trained on all."""

    def prior_asked(self, method: dict[str, Any], *, learned: bool) -> dict[str, Any]:
        if method.get("prior") is not None:
            return super().prior_asked(method, learned=learned)
        asked = cast("Posterior", self.method(**method))
        kind = "learned" if learned else "initialization"
        return {"kind": kind, "scales": asked.scales, "per_tensor": False}

    def posteriors(self, certificate: Certificate, method: dict[str, Any]) -> Collection[str]:
        return (trained_description(method["training"]["objective"]),)
