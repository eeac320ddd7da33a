"""Sparsity certificates, recomputed: from the file alone, from its tensors, and on the examples."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from nonvacuous.audit.evidence import StoredEvidence
from nonvacuous.audit.method_checks import choices_paid, same_noise
from nonvacuous.audit.probing import Recount
from nonvacuous.certificate import Certificate
from nonvacuous.certification.candidate import with_weights
from nonvacuous.distributions import DiagonalGaussian, storage
from nonvacuous.errors import BadInput
from nonvacuous.kinds import PRIOR_NAMES
from nonvacuous.methods.sparsity.charges import check_charges
from nonvacuous.risk.losses import zero_one
from nonvacuous.rules import derandomization as rules
from nonvacuous.rules.convolutions import wrong_convolution, wrong_sizes, wrong_structure
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import conv_chain, conv_reading, weights
from nonvacuous.sparsity.certify import final_seed, recount
from nonvacuous.sparsity.setting import ConvSetting, Setting
from nonvacuous.sparsity_records import SparsityRecord
from nonvacuous.verification import checking, replaying, starting
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry
from nonvacuous.verification.network import MODEL, network_of, not_at_hand

_WEIGHTS = "weights.safetensors"
_CONSTANTS = "every constant in the loss covers the network"
_NORMS = "every threshold uses the example's own norm"
_LOSSES = "the noisy losses are those recorded"
#: Trials where the recorded noise cannot be drawn again, and passes over the examples at most.
_FRESH_TRIALS, _MOST_PASSES = 200_000, 64


def _check_terms(certificate: Certificate) -> str:
    """Everything that follows from other numbers of the record."""
    record, complexity = _record(certificate), certificate.complexity
    if complexity is None or complexity.symmetries:
        raise Disagreement("the theorem's KL is needed, in full.", "complexity")
    if "kl_nats" not in certificate.bound.inputs or certificate.bound.name != "derandomized":
        raise Disagreement("the bound is not the theorem of this mode.", "bound.name")
    setting = rules.setting_of(record)
    equal(record.escape, setting.escape_probability, "sparsity.escape")
    expected = rules.loss_upper_of(record.theorem, record.escape, certificate.empirical)
    equal(record.loss_upper, expected, "sparsity.loss_upper")
    check_charges(record, setting, complexity, classes=certificate.data.classes)
    if isinstance(setting, Setting | ConvSetting):
        scales = tuple(layer.scale for layer in record.layers)
        equal(scales, setting.sigmas, "sparsity.layers")
    wrong = (
        wrong_convolution(record)
        or rules.wrong_layer_distance(record, complexity)
        or wrong_sizes(record, complexity)
    )
    if wrong is not None:
        raise Disagreement(f"{wrong}.", "sparsity.layers")
    _check_trials(certificate, record)
    _check_prior(certificate, record)
    if record.shortest_input > record.longest_input:
        raise Disagreement("the shortest input is longer than the longest.", "sparsity")
    if certificate.loss.name != "zero-one":
        raise Disagreement("the theorem bounds how often the network errs.", "loss")
    return (
        f"Theorem {record.theorem}, {record.variant}: {len(record.charges)} charges sum to "
        f"{record.grid_nats:.6g} nats; the noise misses an error with chance {record.escape:g}."
    )


def _check_trials(certificate: Certificate, record: SparsityRecord) -> None:
    bound, empirical = certificate.data.bound.examples, certificate.empirical
    if record.theorem == "A":
        equal(record.passes, 0, "sparsity.passes")
        return
    certificate.budget.line("sampling")
    equal(empirical.trials, record.passes * bound, "empirical.trials")
    equal(empirical.identical, False, "empirical.identical")


def _check_prior(certificate: Certificate, record: SparsityRecord) -> None:
    data, prior, posterior = certificate.data, certificate.prior, certificate.posterior
    assert prior is not None and posterior is not None
    shaped = 0 if data.prior is None else data.prior.examples
    held = 0 if data.held_out is None else data.held_out.examples
    fraction = shaped / (shaped + held + data.bound.examples)
    equal(record.prior_fraction, fraction, "sparsity.prior_fraction")
    learned = prior.saw is not None
    if (record.prior == "learned") != learned:
        word = "names" if learned else "does not name"
        why = f"the prior is called {record.prior!r}, but it {word} examples that it saw."
        raise Disagreement(why, "sparsity.prior")
    of_prior, of_posterior = rules.descriptions(record, shaped)
    equal(prior.description, of_prior, "prior.description")
    equal(posterior.description, of_posterior, "posterior.description")


def _check_constants(inquiry: Inquiry) -> None:
    """Measure the network again: noise, distances, and each constant with its price."""

    def work() -> str:
        record = _record(inquiry.certificate)
        (layers, posterior), (center, prior) = _both(inquiry)
        evidence = StoredEvidence(
            sparsity=record,
            layers=layers,
            prior_layers=center,
            prior=prior,
            posterior=posterior,
            complexity=inquiry.certificate.complexity,
        )
        for ask, field in ((same_noise, "sparsity.layers"), (choices_paid, "sparsity.charges")):
            outcome = ask(evidence)
            if outcome.effect != "none":
                raise Disagreement(outcome.detail, field)
        if record.prior == "zero" and any(bool((m != 0).any()) for m in prior.means.values()):
            raise Disagreement("the prior is said to be zero, and is not.", "sparsity.prior")
        asked = inquiry.contents.method.get("prior", record.prior)
        kind = asked["kind"] if isinstance(asked, dict) else asked.partition(":")[0]
        equal(record.prior, PRIOR_NAMES.get(kind, kind), "sparsity.prior")
        return f"{len(record.charges)} choices, measured and priced again."

    inquiry.expect(_CONSTANTS, "sparsity.charges", work)


def _check_losses(inquiry: Inquiry) -> None:
    """Count the noisy losses again, from the recorded seed where its noise can be drawn here."""
    certificate, bound_part, seed = inquiry.certificate, inquiry.known.bound_part, inquiry.seed
    record = _record(certificate)

    def norms() -> str:
        # In a convolutional network the constant stands in every patch, not in the input.
        constant = record.images is None and len(record.layers[0].tensors) > 1
        odd = rules.odd_norm(record, bound_part, constant=constant)
        if odd is not None:
            word, claimed, own = odd
            why = f"it says {claimed!r}, the examples give {own!r}."
            raise Disagreement(why, f"sparsity.{word}_input")
        return f"norms run from {record.shortest_input:.6g} to {record.longest_input:.6g}."

    def losses() -> str:
        (layers, _), (center, _) = _both(inquiry)
        # The recorded kind of device, and so its random numbers, may not be here.
        drawable = record.device == "cuda" and torch.cuda.is_available()
        device = "cuda" if drawable else "cpu"
        same = device == record.device and seed is None
        fresh = derived_seed(certificate.seed, "verification", record.network_digest)
        used = certificate.empirical.seed if same else fresh if seed is None else seed
        exact = same or record.passes == 0
        # To see whether the recorded losses were the luck of one draw.
        enough = min(_MOST_PASSES, -(-_FRESH_TRIALS // len(bound_part)))
        passes = record.passes if exact else max(record.passes, enough)
        judge, setting = (
            rules.evaluator_for(record, layers, center, device),
            rules.setting_of(record),
        )
        again = recount(
            judge, setting, bound_part, passes=passes, seed=used, progress=inquiry.progress
        )
        claimed = certificate.empirical
        if claimed.errors is None:
            raise Disagreement("noisy losses are counted in errors.", "empirical.errors")
        counts = f"{again.errors} in {again.trials}"
        if exact:
            if not again.agrees_with(errors=claimed.errors, trials=claimed.trials):
                raise Disagreement(
                    f"it says {claimed.errors} in {claimed.trials}; counted again from the "
                    f"recorded seed it is {counts} ({again.close} hang on rounding)."
                )
            for name in ("threshold", "margin"):
                stated, median = getattr(record, name), rules.finite(getattr(again, name))
                known = math.nan if stated is None else stated
                if median is None or not math.isclose(known, median, rel_tol=1e-6, abs_tol=1e-12):
                    equal(stated, median, f"sparsity.{name}")
            return f"counted again from the recorded seed: {counts}."
        # The promise starts from this: other noise, drawn more often, must not contradict it.
        fresh_count = Recount(again.errors, float(again.errors), again.trials, again.close)
        replaying.compare_fresh(claimed, fresh_count, record.loss_upper, "sparsity.loss_upper")
        return f"{counts} with fresh noise (seed {used}) agree."

    inquiry.expect(_NORMS, "sparsity", norms)
    inquiry.expect(_LOSSES, "empirical.errors", losses)


def _record(certificate: Certificate) -> SparsityRecord:
    if certificate.sparsity is None:
        raise BadInput("this is not a sparsity certificate.")
    return certificate.sparsity


def _both(inquiry: Inquiry) -> tuple[tuple[weights.Network, DiagonalGaussian], ...]:
    """The network and its prior, each beside the noise around it."""
    record = _record(inquiry.certificate)
    prior, posterior = inquiry.contents.prior, inquiry.contents.posterior
    if prior is None or posterior is None:
        raise NotAsked("prior and network are not both at hand.")
    layers = rules.layers_from(record, posterior.means)
    equal(record.network_digest, layers.digest(), "sparsity.network_digest")
    named = {name for layer in record.layers for name in layer.tensors}
    odd = sorted(named ^ set(posterior.names))
    if odd:
        raise Disagreement(f"{odd[0]!r} is not in both layers and tensors.", "sparsity.layers")
    return (layers, posterior), (rules.layers_from(record, prior.means), prior)


class MethodChecking(checking.PriorChecking):
    """One fixed network, by the losses of noise around it."""

    numbers = (("the terms of the theorem follow from one another", "sparsity", _check_terms),)

    def seed(self, certificate: Certificate) -> str:
        record = _record(certificate)
        expected = final_seed(certificate.seed, record.network_digest, rules.setting_of(record))
        equal(certificate.empirical.seed, expected, "empirical.seed")
        return "derived from the seed, the network and the frozen setting."

    def evidence(self, certificate: Certificate) -> list[str]:
        prior, posterior, *more = super().evidence(certificate)
        return [prior, posterior, _WEIGHTS, *more]

    def read_more(self, inquiry: Inquiry) -> None:
        question = "the network is the center of its noise"
        inquiry.ask(_WEIGHTS, question, "posterior.digest", lambda path: _weights(inquiry, path))
        _check_constants(inquiry)

    def measure(self, inquiry: Inquiry) -> None:
        starting.check_start(inquiry)
        _check_losses(inquiry)
        network = inquiry.learn(MODEL, "model", lambda: _network(inquiry))
        if network is not None:
            self.compare(inquiry, network, zero_one)


def _weights(inquiry: Inquiry, path: Path) -> str:
    stored, posterior = storage.read_tensors(path), inquiry.contents.posterior
    if posterior is None:
        raise Disagreement("the posterior is not at hand.")
    for name, mean in posterior.means.items():
        if name not in stored or not torch.equal(stored[name].double(), mean):
            raise Disagreement(f"the weights {name!r} are not what the noise was put around.")
    return f"{len(posterior.means)} tensors, bit by bit."


def _network(inquiry: Inquiry) -> tuple[str, nn.Module]:
    """Whether the network computes what the recorded layers say: a plain chain, all of it."""
    posterior, bound_part = inquiry.contents.posterior, inquiry.known.bound_part
    recorded = _record(inquiry.certificate)
    if posterior is None:
        raise NotAsked(not_at_hand(inquiry) or "its weights are not at hand.")
    network = network_of(inquiry)
    module = with_weights(network, posterior.means)
    read = conv_reading.read_network(module, bound_part.inputs[:2])
    equal(recorded.network_digest, read.digest(), "sparsity.network_digest")
    names = tuple(layer.name for layer in recorded.layers)
    equal(names, tuple(read.names), "sparsity.layers")
    odd = wrong_structure(recorded, read) if isinstance(read, conv_chain.ConvChain) else None
    wrong = odd or conv_reading.misread(module, read, bound_part)
    if wrong is not None:
        raise Disagreement(f"{wrong}.", "sparsity.layers")
    what = f"{inquiry.certificate.model.architecture}: {len(names)} layers and nothing else"
    return f"{what}; it predicts the examples as they do.", network
