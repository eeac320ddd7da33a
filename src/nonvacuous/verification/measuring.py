"""The certificate against the network itself: counted again, or sampled afresh."""

from __future__ import annotations

from typing import Any

from torch import nn

from nonvacuous.audit.probing import WATCHED, Network, foreign_tensor, recount
from nonvacuous.certificate import Certificate
from nonvacuous.certification.adapting import LOGITS, ONE_LOGIT, TOKENS, adapted
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.folding import folded, has_batch_norm
from nonvacuous.data import Examples, import_function
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.fixing import with_fixed
from nonvacuous.errors import BadInput
from nonvacuous.models import BUILDERS, build, rebuild
from nonvacuous.progress import Progress
from nonvacuous.risk import Loss, zero_one
from nonvacuous.risk.losses import loss_named
from nonvacuous.rules.convolutions import wrong_structure
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import misread, read_network
from nonvacuous.verification.audited import check_again
from nonvacuous.verification.beside import check_beside
from nonvacuous.verification.examples import Known
from nonvacuous.verification.findings import Collector, Disagreement, equal
from nonvacuous.verification.progressive import check_architecture, check_batches
from nonvacuous.verification.replaying import FRESH, check_samples
from nonvacuous.verification.run_folder import Contents, fixed_into
from nonvacuous.verification.sparsity import check_losses
from nonvacuous.verification.starting import check_start
from nonvacuous.verification.stored import stored_evidence
from nonvacuous.verification.symmetries import check_symmetries, skip_symmetries

#: Pairs of a draw and an example for the fresh estimate.
TRIALS = 20_000

_COUNT = "the errors are those recorded"
_MODEL = "the network is the one certified"
#: The audit's name for this and more.
FIXED = "what is not random was fixed before the bound examples"
_OWN = "predicting uses only what the network owns"


def check_risk(
    certificate: Certificate,
    contents: Contents,
    known: Known,
    findings: Collector,
    *,
    model: Any,
    trials: int,
    seed: int | None,
    progress: Progress | None,
) -> None:
    """Rebuild the network and measure it again. Only built-in architectures are built by name."""
    bound_part = known.bound_part
    check_start(
        certificate,
        contents.prior,
        bound_part,
        findings,
        network=lambda: _network(certificate, contents, bound_part, model),
        absent=_not_at_hand(certificate, model),
    )
    if certificate.sparsity is not None:
        check_losses(
            certificate,
            contents.prior,
            contents.posterior,
            bound_part,
            findings,
            seed=seed,
            progress=progress,
        )
        found_sparse = _check_sparse_network(
            certificate, contents, bound_part, findings, model=model
        )
        if found_sparse is not None:
            _check_more(certificate, contents, known, found_sparse, zero_one, findings, progress)
        return
    question = FRESH if certificate.predictor == "stochastic" else _COUNT
    loss = loss_named(certificate.loss.name)
    if loss is None:
        findings.skip(
            question, "empirical", f"the loss {certificate.loss.name!r} is not a built-in one."
        )
        skip_symmetries(certificate, findings, "the loss is not a built-in one.")
        return
    if certificate.posterior is not None and contents.posterior is None:
        findings.skip(question, "empirical", "the posterior is not at hand.")
        skip_symmetries(certificate, findings, "the posterior is not at hand.")
        return
    found: list[nn.Module] = []
    why = _not_at_hand(certificate, model)
    if why is None and certificate.progressive is not None and contents.checkpoints is None:
        why = "the checkpoints are not at hand."
    if why is not None:
        findings.skip(_MODEL, "model", why)
        findings.skip(question, "empirical", why)
        skip_symmetries(certificate, findings, "the network is not at hand.")
        return

    def rebuilt() -> str:
        found.append(_network(certificate, contents, bound_part, model))
        return f"{certificate.model.architecture}, {certificate.model.parameters} parameters."

    if contents.checkpoints is not None:
        if findings.expect(_MODEL, "model", rebuilt):
            check_batches(certificate, contents.checkpoints, known, found[0], loss, findings)
        return
    if not findings.expect(_MODEL, "model", rebuilt):
        findings.skip(question, "empirical", "the network could not be rebuilt.")
        skip_symmetries(certificate, findings, "the network could not be rebuilt.")
        return
    _check_own(certificate, contents, found[0], bound_part, findings)
    check_symmetries(certificate, contents, found[0], bound_part, findings)
    if certificate.predictor == "stochastic":
        assert contents.posterior is not None
        check_samples(
            certificate,
            found[0],
            contents.posterior,
            bound_part,
            loss,
            findings,
            trials=trials,
            seed=seed,
            progress=progress,
        )
    else:
        _check_count(certificate, contents, found[0], bound_part, loss, findings)
    _check_more(certificate, contents, known, found[0], loss, findings, progress)


def _check_more(
    certificate: Certificate,
    contents: Contents,
    known: Known,
    module: nn.Module,
    loss: Loss,
    findings: Collector,
    progress: Progress | None,
) -> None:
    """What only files, data and network together can show: all of the audit, and the counts."""
    check_beside(certificate, contents, module, known, findings, progress)
    check_again(
        certificate,
        lambda: stored_evidence(certificate, contents, known, module, loss),
        findings,
    )


def _not_at_hand(certificate: Certificate, model: Any) -> str | None:
    """Why the network cannot be built, if it cannot."""
    if model is not None or certificate.model.architecture.partition(":")[0] in BUILDERS:
        return None
    return (
        f"{certificate.model.architecture!r} is not a built-in architecture, and nothing named "
        "in a certificate is ever imported; name it with --model (model= in Python)"
    )


def _check_sparse_network(
    certificate: Certificate,
    contents: Contents,
    bound_part: Examples,
    findings: Collector,
    *,
    model: Any,
) -> nn.Module | None:
    """The network, if it computes what the recorded layers say: a plain chain, all of it."""
    found: list[nn.Module] = []
    why = _not_at_hand(certificate, model)
    if why is None and contents.posterior is None:
        why = "its weights are not at hand."
    if why is not None:
        findings.skip(_MODEL, "model", why)
        return None

    def work() -> str:
        assert contents.posterior is not None and certificate.sparsity is not None
        found.append(_network(certificate, contents, bound_part, model))
        module = with_weights(found[0], contents.posterior.means)
        read = read_network(module, bound_part.inputs[:2])
        recorded = certificate.sparsity
        equal(recorded.network_digest, read.digest(), "sparsity.network_digest")
        names = tuple(layer.name for layer in recorded.layers)
        equal(names, tuple(read.names), "sparsity.layers")
        if isinstance(read, ConvChain):
            odd = wrong_structure(recorded, read)
            if odd is not None:
                raise Disagreement(f"{odd}.", "sparsity.layers")
        wrong = misread(module, read, bound_part)
        if wrong is not None:
            raise Disagreement(f"{wrong}.", "sparsity.layers")
        return (
            f"{certificate.model.architecture}: {len(names)} layers and nothing else; it predicts "
            "the examples as they do."
        )

    return found[0] if findings.expect(_MODEL, "model", work) else None


def _check_own(
    certificate: Certificate,
    contents: Contents,
    module: nn.Module,
    bound_part: Examples,
    findings: Collector,
) -> None:
    """Watch a prediction for tensors that are nobody's weights: no KL pays for them.

    Such a network has to be given by the caller, and its weights and buffers can be those recorded.
    """
    if contents.posterior is None:
        return
    stated = (a for a in certificate.assumptions if a.name == FIXED)
    if any(assumption.effect != "none" for assumption in stated):
        findings.skip(_OWN, "model", "the certificate itself says that it may not.", needed=False)
        return
    weights = contents.posterior.mean_weights()

    def work() -> str:
        step = max(1, len(bound_part) // WATCHED)
        foreign = foreign_tensor(Network.of(module, weights), bound_part.inputs[::step][:WATCHED])
        if foreign is not None:
            raise Disagreement(
                f"it uses {foreign}, and it belongs to no parameter, buffer or attribute of the "
                "network: it may come from the bound examples, and nothing pays for it."
            )
        return "one prediction was watched, operation by operation."

    findings.expect(_OWN, "model", work)


def _network(
    certificate: Certificate, contents: Contents, examples: Examples, model: Any
) -> nn.Module:
    module = _module(certificate, contents, examples, model)
    if contents.checkpoints is not None:
        return check_architecture(certificate, contents.checkpoints, module)
    module = fixed_into(module, contents.fixed or {})
    if contents.posterior is not None and _fixes_weights(certificate, contents):
        module = with_fixed(module, contents.posterior.names)
    count = sum(parameter.numel() for parameter in module.parameters())
    equal(certificate.model.parameters, count, "model.parameters")
    random = () if contents.posterior is None else contents.posterior.names
    if contents.posterior is not None:
        contents.posterior.check_covers(module)
    digest = tensors_digest(fixed_tensors(module, random))
    equal(certificate.model.fixed_digest, digest, "model.fixed_digest")
    return module


def _fixes_weights(certificate: Certificate, contents: Contents) -> bool:
    """Whether weights may be fixed: where the prior was learned, or somebody declares where its
    weights come from, and the settings ask for it.

    Anywhere else a weight that the posterior leaves out is one that nobody paid for.
    """
    method = contents.settings.get("method", {})
    learned = certificate.prior is not None and certificate.prior.saw is not None
    asked = method.get("random") == "last" or isinstance(method.get("prior"), dict)
    return asked and (learned or bool(method.get("pretrained")))


def _module(
    certificate: Certificate, contents: Contents, examples: Examples, model: Any
) -> nn.Module:
    shape, classes = examples.example_shape, examples.classes
    if model is None:
        means = {} if contents.posterior is None else contents.posterior.means
        first = (contents.checkpoints or [{}])[0]
        stored = {**means, **(contents.fixed or {}), **first}
        shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        name = certificate.model.architecture
        return rebuild(name, shape, classes, seed=0, shapes=shapes).eval()
    if isinstance(model, str) and model.partition(":")[0] in BUILDERS:
        return build(model, shape, classes, seed=0).eval()
    if isinstance(model, str):
        model = import_function(model)  # the caller's own words, not the certificate's
    if not isinstance(model, nn.Module) and callable(model):
        model = model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch module, not a {type(model).__name__}.")
    network, conversions = adapted(copied_network(model).cpu().eval(), examples)
    recorded = certificate.model.conversions
    # Whoever verifies may hold the weights in float32 already.
    for kind in (TOKENS, LOGITS, ONE_LOGIT):
        equal(kind in recorded, kind in conversions, "model.conversions")
    posterior = contents.posterior
    if posterior is not None and has_batch_norm(network):
        names = {name for name, _ in network.named_parameters()}
        if names != set(posterior.names):  # certified with its batch normalization folded
            return folded(network, examples.inputs[:2]).eval().requires_grad_(False)
    return network


def _check_count(
    certificate: Certificate,
    contents: Contents,
    module: nn.Module,
    bound_part: Examples,
    loss: Loss,
    findings: Collector,
) -> None:
    if certificate.predictor == "drawn" and contents.drawn is None:
        findings.skip(_COUNT, "empirical.errors", "the drawn network is not at hand.")
        return

    def work() -> str:
        again = recount(Network.of(module, contents.drawn), bound_part, loss)
        claimed = certificate.empirical
        equal(claimed.trials, again.trials, "empirical.trials")
        if not again.agrees_with(errors=claimed.errors, total=claimed.total):
            raise Disagreement(
                f"it says {claimed.amount:g}; counted again it is {again.total:g} of "
                f"{again.trials} ({again.close} hang on rounding)."
            )
        return f"counted again: {again.total:g} of {again.trials}."

    findings.expect(_COUNT, "empirical.errors", work)
