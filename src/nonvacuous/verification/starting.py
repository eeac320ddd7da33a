"""A prior that is said to have seen nothing: does it know the examples all the same?"""

from __future__ import annotations

import torch

from nonvacuous.audit.data_checks import DECLARED, START, named_start
from nonvacuous.audit.knowing import MANY_CLASSES, knowledge, surprises
from nonvacuous.certification.candidate import with_weights
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.models import BUILDERS, rebuild
from nonvacuous.verification.audited import version_of
from nonvacuous.verification.findings import Disagreement, NotAsked
from nonvacuous.verification.inquiry import Inquiry
from nonvacuous.verification.network import network_of


def check_start(inquiry: Inquiry) -> None:
    """Repeat the audit's test of the starting weights on the means of the prior.

    A learned prior names the examples it saw, and may well do right on others; what it started
    from is not stored.
    """
    if inquiry.certificate.prior is not None and inquiry.certificate.prior.saw is None:
        question = "nothing shows that the prior knows the bound examples"
        inquiry.expect(question, "prior", lambda: _knows_nothing(inquiry))


def _knows_nothing(inquiry: Inquiry) -> str:
    certificate, prior = inquiry.certificate, inquiry.contents.prior
    bound_part = inquiry.known.bound_part
    if prior is None:
        raise NotAsked("the prior is not at hand.")
    if not any(bool(mean.any()) for mean in prior.means.values()):
        return "it is centered on zero."
    stated = next((a for a in certificate.assumptions if a.name == START), None)
    if stated is not None and stated.effect != "none":
        raise NotAsked("the certificate itself says that it may.", needed=False)
    if stated is not None and stated.detail.startswith(DECLARED):
        raise NotAsked(_declared(inquiry, prior), needed=False)
    named = None if stated is None else named_start(stated.detail)
    seed = certificate.seed if named is None else named[1]
    # The builder that the certificate names; a function of its maker's is not at hand.
    builder = certificate.model.architecture if named is None else named[0]
    as_built = _as_built(builder, prior, bound_part, seed)
    built = f" They are what the architecture starts from at seed {seed}." if as_built else ""
    if as_built and bound_part.classes < MANY_CLASSES:
        # An untrained network may be lucky with few classes, and this one is untrained.
        return f"its means are initial weights.{built}"
    meant = with_weights(network_of(inquiry), prior.means)
    knows = knowledge(meant, bound_part)
    if knows.certain or knows.likely:
        raise Disagreement(
            f"its means err on only {knows.error:.1%} of the bound examples (guessing: "
            f"{knows.guessing:.1%}), and the certificate says that they saw none of them: they "
            "were fitted to these data, or to data like them."
        )
    better = () if as_built else surprises(meant, bound_part)
    if better:
        raise Disagreement(
            "its means know the bound examples better than in random order "
            f"({'; '.join(better)}), and the certificate says that they saw none."
        )
    if named is not None and as_built is False:
        raise Disagreement(
            f"its means are not what {builder} starts from at seed {seed}, and the certificate "
            "says that they are."
        )
    if named is None and version_of(certificate) > 1:
        raise Disagreement("the certificate says neither which seed nor what made its means.")
    unknown = "" if as_built else f" What {builder} makes of seed {seed} was not repeated."
    return (
        f"its means err on {knows.error:.1%} of the bound examples, and know no more of them "
        f"than in random order as far as answers and last hidden layer go.{built or unknown}"
    )


def _declared(inquiry: Inquiry, prior: DiagonalGaussian) -> str:
    """What to say of weights that are declared to come from other data: all that can be seen.

    Weights from other data may well do right on these, so no error rate decides anything here.
    """
    declares = (
        "the certificate declares weights that were trained on other, independent data, which "
        "nobody can check."
    )
    try:
        knows = knowledge(with_weights(network_of(inquiry), prior.means), inquiry.known.bound_part)
    except Exception:  # a network that cannot be rebuilt is a finding of its own
        return f"its means could not be tried; {declares}"
    return (
        f"its means err on {knows.error:.1%} of the bound examples (guessing: "
        f"{knows.guessing:.1%}); {declares}"
    )


def _as_built(name: str, prior: DiagonalGaussian, examples: Examples, seed: int) -> bool | None:
    """Whether a built-in architecture starts from these weights at the seed; None for others."""
    if name.partition(":")[0] not in BUILDERS:
        return None
    try:
        shapes = {tensor: tuple(mean.shape) for tensor, mean in prior.means.items()}
        fresh = rebuild(name, examples.example_shape, examples.classes, seed=seed, shapes=shapes)
    except Exception:  # a name out of a file can break a builder in many ways
        return None
    own = dict(fresh.named_parameters())
    if own.keys() != prior.means.keys():
        return None
    return all(
        torch.equal(own[tensor].detach().double(), mean.double())
        for tensor, mean in prior.means.items()
    )
