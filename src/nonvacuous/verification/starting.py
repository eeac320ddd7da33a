"""The start of a training: the weights that the certificate names, and what its prior knows."""

from __future__ import annotations

from collections.abc import Collection

import torch

from nonvacuous.audit.data_checks import CHOSEN, DECLARED, START, named_start
from nonvacuous.audit.knowing import MANY_CLASSES, knowledge, surprises
from nonvacuous.certification.adapting import has_batch_norm
from nonvacuous.certification.candidate import with_weights
from nonvacuous.distributions import DiagonalGaussian, storage
from nonvacuous.errors import BadInput
from nonvacuous.models import BUILDERS
from nonvacuous.verification.audited import version_of
from nonvacuous.verification.findings import Disagreement, NotAsked
from nonvacuous.verification.inquiry import Inquiry
from nonvacuous.verification.network import named_network, network_of
from nonvacuous.verification.replaying import differences


def check_named_start(inquiry: Inquiry, needed: Collection[str]) -> None:
    """Make the weights again that training is said to have started from, where it was done here.

    Of the network that was given config.toml has the digest. Those of a prior around a network that
    was trained elsewhere are its means: see :func:`check_start`.

    needed   the files that the network is stored in
    """
    certificate, contents = inquiry.certificate, inquiry.contents
    stated, kind = inquiry.stated(START), certificate.kind
    if stated is None or stated.effect != "none":
        return
    given = kind.given or kind.noisy
    if stated.detail.startswith(DECLARED) or (given and stated.detail == CHOSEN):
        return  # config.toml was asked for the sentence
    field = f"assumptions.{certificate.assumptions.index(stated)}.detail"
    named = named_start(stated.detail)
    other = version_of(certificate) == 1 or differences(certificate, ("nonvacuous",))
    painted = not other and (named is None or stated.detail != named.words)
    elsewhere = kind.given or (kind.noisy and isinstance(contents.method.get("prior"), dict))
    if elsewhere and not painted:
        return

    def work() -> str:
        if painted:
            raise Disagreement(f"no audit explains it by {stated.detail!r}")
        if named is None or not contents.settings or not set(needed) <= contents.intact:
            raise NotAsked("settings or weights are not at hand.", needed=False)
        if not named.built_in or named.builder.partition(":")[0] not in BUILDERS:
            raise NotAsked(f"{named.builder} is a function of its maker's.", needed=False)
        try:
            network = named_network(inquiry, named.builder, named.seed)
        except BadInput as error:
            raise Disagreement(f"it names other weights than those stored: {error}") from error
        whence = f"{named.builder} at seed {named.seed}"
        if storage.tensors_digest(dict(network.state_dict())) == contents.settings.get("weights"):
            return f"{whence} gives the weights of config.toml, bit by bit."
        if apart := differences(certificate, ("torch", "processor")):
            raise NotAsked(f"{whence} gives others here, which may be due to {apart[0]}.")
        raise Disagreement(
            f"it says {whence}, which does not give the weights that config.toml has the digest of."
        )

    inquiry.expect("the weights before training are those that are named", field, work)


def check_start(inquiry: Inquiry) -> None:
    """Repeat the audit's test of the starting weights on the means of the prior.

    A learned prior names the examples it saw, and may well do right on others; what it started
    from is not stored.
    """
    if inquiry.certificate.prior is not None and not inquiry.learned:
        question = "nothing shows that the prior knows the bound examples"
        inquiry.expect(question, "prior", lambda: _knows_nothing(inquiry))


def _knows_nothing(inquiry: Inquiry) -> str:
    certificate, prior = inquiry.certificate, inquiry.contents.prior
    bound_part = inquiry.known.bound_part
    if prior is None:
        raise NotAsked("the prior is not at hand.")
    if not any(bool(mean.any()) for mean in prior.means.values()):
        return "it is centered on zero."
    stated = inquiry.stated(START)
    if inquiry.admitted(START):
        raise NotAsked("the certificate itself says that it may.", needed=False)
    if stated is not None and stated.detail.startswith(DECLARED):
        raise NotAsked(_declared(inquiry, prior), needed=False)
    named = None if stated is None else named_start(stated.detail)
    seed = certificate.seed if named is None else named.seed
    # The builder that the certificate names; a function of its maker's is not at hand.
    builder = certificate.model.architecture if named is None else named.builder
    own = named is not None and not named.built_in
    as_built = None if own else _as_built(inquiry, builder, prior, seed)
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
    if not as_built and (better := surprises(meant, bound_part)):
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


def _as_built(inquiry: Inquiry, name: str, prior: DiagonalGaussian, seed: int) -> bool | None:
    """Whether a built-in architecture starts from these weights at the seed; None for others."""
    if name.partition(":")[0] not in BUILDERS or inquiry.contents.fixed is None:
        return None
    try:
        fresh = named_network(inquiry, name, seed)
    except BadInput:
        return False  # it has other tensors than those stored
    except Exception:  # a name out of a file can break a builder in many ways
        return None
    own = dict(fresh.named_parameters())
    if own.keys() != prior.means.keys():
        # Folded, its layers have other biases; and where some weights are fixed, fewer are random.
        return None if has_batch_norm(fresh) or own.keys() > prior.means.keys() else False
    return all(
        torch.equal(own[tensor].detach().double(), mean.double())
        for tensor, mean in prior.means.items()
    )
