"""The network of a certificate, built again, and what its prior knows of the examples.

Only built-in architectures are built by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nonvacuous.audit.data_checks import DECLARED, START, named_start
from nonvacuous.audit.knowing import MANY_CLASSES, knowledge, surprises
from nonvacuous.audit.probing import WATCHED, Network, foreign_tensor
from nonvacuous.certification.adapting import CONVERSIONS, adapted, folded, has_batch_norm
from nonvacuous.certification.candidate import with_weights
from nonvacuous.data import Examples, import_function
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.copying import copied_network, with_fixed
from nonvacuous.models import BUILDERS, build, rebuild, seeded
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.verification.audited import version_of
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry

MODEL = "the network is the one certified"
#: The audit's name for this and more.
FIXED = "what is not random was fixed before the bound examples"
_OWN = "predicting uses only what the network owns"


def not_at_hand(inquiry: Inquiry) -> str | None:
    """Why the network cannot be built, if it cannot."""
    name = inquiry.certificate.model.architecture
    if inquiry.model is not None or name.partition(":")[0] in BUILDERS:
        return None
    return (
        f"{name!r} is not a built-in architecture, and nothing named in a certificate is ever "
        "imported; name it with --model (model= in Python)"
    )


def rebuilt(inquiry: Inquiry, make: Callable[[Inquiry], nn.Module]) -> tuple[nn.Module | None, str]:
    """The network, if it is the certified one; and why there is none."""

    def work() -> tuple[str, nn.Module]:
        network, recorded = make(inquiry), inquiry.certificate.model
        return f"{recorded.architecture}, {recorded.parameters} parameters.", network

    network, finding = inquiry.learn(MODEL, "model", work), inquiry.findings[-1]
    return (
        network,
        finding.detail if finding.passed is None else "the network could not be rebuilt.",
    )


def check_own(inquiry: Inquiry, module: nn.Module) -> None:
    """Watch a prediction for tensors that are nobody's weights: no KL pays for them.

    Such a network has to be given by the caller, and its weights and buffers can be those recorded.
    """
    posterior, bound_part = inquiry.contents.posterior, inquiry.known.bound_part
    if posterior is None:
        return
    weights = posterior.mean_weights()

    def work() -> str:
        if inquiry.admitted(FIXED):
            raise NotAsked("the certificate itself says that it may not.", needed=False)
        step = max(1, len(bound_part) // WATCHED)
        foreign = foreign_tensor(Network.of(module, weights), bound_part.inputs[::step][:WATCHED])
        if foreign is not None:
            raise Disagreement(
                f"it uses {foreign}, and it belongs to no parameter, buffer or attribute of the "
                "network: it may come from the bound examples, and nothing pays for it."
            )
        return "one prediction was watched, operation by operation."

    inquiry.expect(_OWN, "model", work)


def network_of(inquiry: Inquiry) -> nn.Module:
    """The network with all that is fixed in it; what else it holds is the posterior's."""
    recorded, posterior = inquiry.certificate.model, inquiry.contents.posterior
    module, method = module_of(inquiry), inquiry.contents.method
    module = fixed_into(module, inquiry.contents.fixed or {})
    # Weights may be fixed where the prior was learned, or somebody declares where its weights come
    # from, and the settings ask for it. Anywhere else a weight that the posterior leaves out is one
    # that nobody paid for.
    asked = method.get("random") == "last" or isinstance(method.get("prior"), dict)
    if posterior is not None and asked and (inquiry.learned or method.get("pretrained")):
        module = with_fixed(module, posterior.names)
    count = sum(parameter.numel() for parameter in module.parameters())
    equal(recorded.parameters, count, "model.parameters")
    if posterior is not None:
        posterior.check_covers(module)
    random = () if posterior is None else posterior.names
    digest = tensors_digest(fixed_tensors(module, random))
    equal(recorded.fixed_digest, digest, "model.fixed_digest")
    return module


def module_of(inquiry: Inquiry) -> nn.Module:
    """A network of the certified architecture, with whatever weights.

    Its batch normalization is folded where what is stored is that of the folded network.
    """
    network = unfolded_module_of(inquiry)
    posterior, examples = inquiry.contents.posterior, inquiry.known.bound_part
    if posterior is None or not has_batch_norm(network):
        return network
    own = {name for name, _ in (*network.named_parameters(), *network.named_buffers())}
    if own <= {*posterior.names, *(inquiry.contents.fixed or ())}:
        return network
    return folded(network, examples.inputs[:2]).eval().requires_grad_(False)


def unfolded_module_of(inquiry: Inquiry) -> nn.Module:
    """The same as it was given: twins are trained with their batch normalization."""
    network, conversions = built(inquiry, 0).eval(), tuple[str, ...]()
    if inquiry.model is not None:
        network, conversions = adapted(network, inquiry.known.bound_part)
    # All but the weights' precision: whoever verifies may hold them in float32 already.
    for kind in CONVERSIONS:
        recorded = kind in inquiry.certificate.model.conversions
        equal(recorded, kind in conversions, "model.conversions")
    return network


def built(inquiry: Inquiry, seed: int) -> nn.Module:
    """The network as the caller gives it, or at a seed; only what the caller names is ever run."""
    absent = not_at_hand(inquiry)
    if absent is not None:
        raise NotAsked(absent)
    model, examples = inquiry.model, inquiry.known.bound_part
    shape, classes = examples.example_shape, examples.classes
    if model is None:
        shapes = {name: tuple(tensor.shape) for name, tensor in inquiry.contents.stored.items()}
        name = inquiry.certificate.model.architecture
        return rebuild(name, shape, classes, seed=seed, shapes=shapes)
    if isinstance(model, str) and model.partition(":")[0] in BUILDERS:
        return build(model, shape, classes, seed=seed)
    if isinstance(model, str):
        model = import_function(model)  # the caller's own words, not the certificate's
    return copied_network(model if isinstance(model, nn.Module) else seeded(model, seed=seed)).cpu()


def fixed_into(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The same network with these tensors in place of its own; it must have every one of them."""
    own = fixed_tensors(module)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name not in own or own[name].shape != tensor.shape:
                raise Disagreement(f"it has no tensor {name!r} of shape {tuple(tensor.shape)}.")
            own[name].copy_(tensor)
    return module


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
