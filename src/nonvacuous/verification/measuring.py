"""The certificate against the network itself: counted again, or sampled afresh."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nonvacuous.audit.foreign import foreign_tensor
from nonvacuous.audit.probing import WATCHED, Network, recount
from nonvacuous.bounds import holdout_lower, kl_inverse_lower, kl_inverse_upper
from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.folding import folded, has_batch_norm
from nonvacuous.data import Examples, import_function
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.fixing import with_fixed
from nonvacuous.errors import BadInput
from nonvacuous.models import BUILDERS, build, rebuild
from nonvacuous.progress import Progress
from nonvacuous.risk import Loss, bounded_cross_entropy, estimate_risk, margin_loss, zero_one
from nonvacuous.risk.estimate import RiskEstimate
from nonvacuous.rules.convolutions import wrong_structure
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.faithful import misread
from nonvacuous.verification.counts import FALSE_ALARM, same_rate
from nonvacuous.verification.findings import Collector, Disagreement, equal
from nonvacuous.verification.run_folder import Contents
from nonvacuous.verification.sparsity import check_losses
from nonvacuous.verification.starting import check_start
from nonvacuous.verification.symmetries import check_symmetries, skip_symmetries

#: Pairs of a draw and an example for the fresh estimate.
TRIALS = 20_000

_RISK = "the risk holds in fresh trials"
_COUNT = "the errors are those recorded"
_MODEL = "the network is the one certified"
#: The audit's name for this and more.
FIXED = "what is not random was fixed before the bound examples"
_OWN = "predicting uses only what the network owns"


def check_risk(
    certificate: Certificate,
    contents: Contents,
    bound_part: Examples,
    findings: Collector,
    *,
    model: Any,
    trials: int,
    seed: int | None,
    progress: Progress | None,
) -> None:
    """Rebuild the network and measure it again. Only built-in architectures are built by name."""
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
        _check_sparse_network(certificate, contents, bound_part, findings, model=model)
        return
    question = _RISK if certificate.predictor == "stochastic" else _COUNT
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
    if why is not None:
        findings.skip(_MODEL, "model", why)
        findings.skip(question, "empirical", why)
        skip_symmetries(certificate, findings, "the network is not at hand.")
        return

    def rebuilt() -> str:
        found.append(_network(certificate, contents, bound_part, model))
        return f"{certificate.model.architecture}, {certificate.model.parameters} parameters."

    if not findings.expect(_MODEL, "model", rebuilt):
        findings.skip(question, "empirical", "the network could not be rebuilt.")
        skip_symmetries(certificate, findings, "the network could not be rebuilt.")
        return
    _check_own(certificate, contents, found[0], bound_part, findings)
    check_symmetries(certificate, contents, found[0], bound_part, findings)
    if certificate.predictor == "stochastic":
        _check_fresh(
            certificate, contents, found[0], bound_part, loss, findings, trials, seed, progress
        )
    else:
        _check_count(certificate, contents, found[0], bound_part, loss, findings)


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
) -> None:
    """Whether the network computes what the recorded layers say: a plain chain, all of it."""
    why = _not_at_hand(certificate, model)
    if why is None and contents.posterior is None:
        why = "its weights are not at hand."
    if why is not None:
        findings.skip(_MODEL, "model", why)
        return

    def work() -> str:
        assert contents.posterior is not None and certificate.sparsity is not None
        module = with_weights(
            _network(certificate, contents, bound_part, model), contents.posterior.means
        )
        read = read_network(module, bound_part.inputs[:2])
        recorded = certificate.sparsity
        equal(recorded.network_digest, read.digest(), "sparsity.network_digest")
        names = tuple(layer.name for layer in recorded.layers)
        equal(names, tuple(read.names), "sparsity.layers")
        if isinstance(read, ConvChain):
            odd = wrong_structure(recorded, read)
            if odd is not None:
                raise Disagreement(f"{odd}.", "sparsity.layers")
        found = misread(module, read, bound_part)
        if found is not None:
            raise Disagreement(f"{found}.", "sparsity.layers")
        return (
            f"{certificate.model.architecture}: {len(names)} layers and nothing else; it predicts "
            "the examples as they do."
        )

    findings.expect(_MODEL, "model", work)


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


def loss_named(name: str) -> Loss | None:
    """The built-in loss of that name, or None."""
    if name == zero_one.name:
        return zero_one
    makers: tuple[tuple[str, Callable[[float], Loss]], ...] = (
        (r"margin (\S+)", margin_loss),
        (r"cross-entropy with probabilities of at least (\S+)", bounded_cross_entropy),
    )
    for pattern, make in makers:
        match = re.fullmatch(pattern, name)
        if match is None:
            continue
        try:
            loss = make(float(match[1]))
        except ValueError:
            return None
        return loss if loss.name == name else None
    return None


def _network(
    certificate: Certificate, contents: Contents, examples: Examples, model: Any
) -> nn.Module:
    module = _module(certificate, contents, examples, model)
    fixed = contents.fixed or {}
    own = fixed_tensors(module)
    with torch.no_grad():
        for name, tensor in fixed.items():
            if name not in own or own[name].shape != tensor.shape:
                raise Disagreement(f"it has no tensor {name!r} of shape {tuple(tensor.shape)}.")
            own[name].copy_(tensor)
    if contents.posterior is not None:  # what it does not name was fixed by the one who made it
        module = with_fixed(module, contents.posterior.names)
    count = sum(parameter.numel() for parameter in module.parameters())
    equal(certificate.model.parameters, count, "model.parameters")
    random = () if contents.posterior is None else contents.posterior.names
    if contents.posterior is not None:
        contents.posterior.check_covers(module)
    digest = tensors_digest(fixed_tensors(module, random))
    equal(certificate.model.fixed_digest, digest, "model.fixed_digest")
    return module


def _module(
    certificate: Certificate, contents: Contents, examples: Examples, model: Any
) -> nn.Module:
    shape, classes = examples.example_shape, examples.classes
    if model is None:
        means = {} if contents.posterior is None else contents.posterior.means
        stored = {**means, **(contents.fixed or {})}
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
    network = copied_network(model).cpu().eval()
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


def _check_fresh(
    certificate: Certificate,
    contents: Contents,
    module: nn.Module,
    bound_part: Examples,
    loss: Loss,
    findings: Collector,
    trials: int,
    seed: int | None,
    progress: Progress | None,
) -> None:
    posterior = contents.posterior
    assert posterior is not None
    fresh_seed = (
        derived_seed(certificate.seed, "verification", posterior.digest()) if seed is None else seed
    )

    def work() -> str:
        estimate = estimate_risk(
            module,
            posterior,
            bound_part,
            loss=loss,
            trials=trials,
            generator=torch.Generator().manual_seed(fresh_seed),
            progress=None
            if progress is None
            else lambda done, total: progress("fresh trials", done, total, "independent trials"),
        )
        _compare(certificate, estimate)
        return f"{estimate.total:g} in {estimate.trials} fresh trials (seed {fresh_seed}) agree."

    findings.expect(_RISK, "empirical.risk_upper", work)


def _compare(certificate: Certificate, fresh: RiskEstimate) -> None:
    """Fail only where an honest certificate would agree with probability 1 - FALSE_ALARM."""
    claimed = certificate.empirical
    if fresh.errors is not None:
        lower = holdout_lower(errors=fresh.errors, examples=fresh.trials, failure=FALSE_ALARM)
    else:
        lower = _end(fresh.total, fresh.trials, FALSE_ALARM, upper=False)
    if lower > claimed.risk_upper:
        raise Disagreement(
            f"{fresh.total:g} in {fresh.trials} fresh trials put the risk above {lower:.6g}; the "
            f"certificate says at most {shown_up(claimed.risk_upper, 6)}."
        )
    if fresh.errors is not None and claimed.errors is not None:
        chance = same_rate(claimed.errors, claimed.trials, fresh.errors, fresh.trials)
        apart = chance < FALSE_ALARM
    else:
        half = FALSE_ALARM / 4
        apart = _end(fresh.total, fresh.trials, half, upper=False) > _end(
            claimed.amount, claimed.trials, half, upper=True
        ) or _end(fresh.total, fresh.trials, half, upper=True) < _end(
            claimed.amount, claimed.trials, half, upper=False
        )
    if apart:
        raise Disagreement(
            f"{claimed.amount:g} in {claimed.trials} recorded and {fresh.total:g} in "
            f"{fresh.trials} fresh trials do not come from the same network and examples.",
            "empirical.errors" if claimed.total is None else "empirical.total",
        )


def _end(total: float, trials: int, failure: float, *, upper: bool) -> float:
    """One end of a confidence interval for the mean of independent trials in [0, 1]."""
    mean, exponent = min(1.0, total / trials), -math.log(failure) / trials
    inverse = kl_inverse_upper if upper else kl_inverse_lower
    return float(inverse(mean, exponent))
