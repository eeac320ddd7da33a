"""A prior that is said to have seen nothing: does it know the examples all the same?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from nonvacuous.audit.data_checks import KNOWING, MANY_CLASSES
from nonvacuous.certificate import Certificate
from nonvacuous.certification.candidate import with_weights
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.models import BUILDERS, build
from nonvacuous.records import Assumption
from nonvacuous.verification.findings import Collector, Disagreement

#: What the audit says about the same thing, and how it says that the user declared another start.
AUDITED = "the starting weights saw no bound example"
_DECLARED = "as declared by the user"
_QUESTION = "the prior does not know the bound examples"
#: As many examples as the audit looks at.
_EXAMPLES = 2048


def check_start(
    certificate: Certificate,
    prior: DiagonalGaussian | None,
    bound_part: Examples,
    findings: Collector,
    *,
    network: Callable[[], nn.Module],
    absent: str | None,
) -> None:
    """Repeat the audit's test of the starting weights on the means of the prior.

    A learned prior names the examples it saw, and may well do right on others; what it started
    from is not stored. ``absent`` says why the network cannot be built, if it cannot.
    """
    if certificate.prior is None or certificate.prior.saw is not None:
        return
    if prior is None:
        findings.skip(_QUESTION, "prior", "the prior is not at hand.")
        return
    if not any(bool(mean.any()) for mean in prior.means.values()):
        findings.expect(_QUESTION, "prior", lambda: "it is centered on zero.")
        return
    stated = next((a for a in certificate.assumptions if a.name == AUDITED), None)
    excused = _excused(stated)
    if excused is not None:
        findings.skip(_QUESTION, "prior", excused, needed=False)
        return
    seed = _seed_of(certificate, prior, bound_part)
    built = "" if seed is None else f" They are what the architecture starts from at seed {seed}."
    if bound_part.classes < MANY_CLASSES:
        luck = f"an untrained network may be lucky with {bound_part.classes} classes."
        if seed is None:
            findings.skip(_QUESTION, "prior", luck, needed=False)
        else:
            findings.expect(_QUESTION, "prior", lambda: f"its means are initial weights.{built}")
        return
    if absent is not None:
        findings.skip(_QUESTION, "prior", absent)
        return

    def work() -> str:
        error = _error_rate(with_weights(network(), prior.means), bound_part)
        guessing = 1.0 - 1.0 / bound_part.classes
        if error < KNOWING * guessing:
            raise Disagreement(
                f"its means err on only {error:.1%} of the bound examples (guessing: "
                f"{guessing:.1%}), and the certificate says that they saw none of them: they were "
                "fitted to these data, or to data like them."
            )
        return f"its means err on {error:.1%} of the bound examples.{built}"

    findings.expect(_QUESTION, "prior", work)


def _excused(stated: Assumption | None) -> str | None:
    """Why the test is not made, if the certificate itself tells the reader what it would find."""
    if stated is None:
        return None
    if stated.effect != "none":
        return "the certificate itself says that it may."
    if stated.detail.rstrip(".").endswith(_DECLARED):
        return (
            "the certificate says that it starts from weights trained on other, independent data, "
            f"{_DECLARED}; nobody can check that."
        )
    return None


def _seed_of(certificate: Certificate, prior: DiagonalGaussian, examples: Examples) -> int | None:
    """The certificate's seed, if a built-in architecture starts from these weights at it."""
    name = certificate.model.architecture
    if name.partition(":")[0] not in BUILDERS:
        return None
    try:
        fresh = build(name, examples.example_shape, examples.classes, seed=certificate.seed)
    except Exception:  # a name out of a file can break a builder in many ways
        return None
    own = dict(fresh.named_parameters())
    same = own.keys() == prior.means.keys() and all(
        torch.equal(own[tensor].detach().double(), mean.double())
        for tensor, mean in prior.means.items()
    )
    return certificate.seed if same else None


def _error_rate(module: nn.Module, examples: Examples) -> float:
    inputs, labels = examples.inputs[:_EXAMPLES].cpu(), examples.labels[:_EXAMPLES].cpu()
    with torch.no_grad():
        right = module(inputs).argmax(dim=1) == labels
    return 1.0 - float(right.double().mean())
