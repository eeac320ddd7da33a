"""The network of a certificate, built again.

Only built-in architectures are built by name.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nonvacuous.audit.probing import WATCHED, Network, foreign_tensor
from nonvacuous.certification.adapting import CONVERSIONS, adapted, folded, has_batch_norm
from nonvacuous.data import import_function
from nonvacuous.distributions.copying import copied_network, with_fixed
from nonvacuous.models import BUILDERS, build, rebuild, seeded
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry

MODEL = "the network is the one certified"
#: The audit's name for this and more.
FIXED = "what is not random was fixed before the bound examples"


def not_at_hand(inquiry: Inquiry) -> str | None:
    """Why the network cannot be built, if it cannot."""
    name = inquiry.certificate.model.architecture
    if inquiry.model is not None or name.partition(":")[0] in BUILDERS:
        return None
    return (
        f"{name!r} is not a built-in architecture, and nothing named in a certificate is ever "
        "imported; name it with --model (model= in Python)"
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

    inquiry.expect("predicting uses only what the network owns", "model", work)


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
    if absent := not_at_hand(inquiry):
        raise NotAsked(absent)
    model, examples = inquiry.model, inquiry.known.bound_part
    shape, classes = examples.example_shape, examples.classes
    if model is None:
        return named_network(inquiry, inquiry.certificate.model.architecture, seed)
    if isinstance(model, str) and model.partition(":")[0] in BUILDERS:
        return build(model, shape, classes, seed=seed)
    if isinstance(model, str):
        model = import_function(model)  # the caller's own words, not the certificate's
    return copied_network(model if isinstance(model, nn.Module) else seeded(model, seed=seed)).cpu()


def named_network(inquiry: Inquiry, name: str, seed: int) -> nn.Module:
    """A built-in network that the certificate names, if it has the tensors that are stored."""
    examples = inquiry.known.bound_part
    shapes = {name: tuple(tensor.shape) for name, tensor in inquiry.contents.stored.items()}
    return rebuild(name, examples.example_shape, examples.classes, seed=seed, shapes=shapes)


def fixed_into(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The same network with these tensors in place of its own; it must have every one of them."""
    own = fixed_tensors(module)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name not in own or own[name].shape != tensor.shape:
                raise Disagreement(f"it has no tensor {name!r} of shape {tuple(tensor.shape)}.")
            own[name].copy_(tensor)
    return module
