"""What verify asks of one kind of promise. Every method fills this in: see ``methods/*/checking``.

From the file alone, from the files of its run, from its settings, and from network and examples.
What all kinds are asked stands in the other files of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nonvacuous.audit.probing import Network, recount
from nonvacuous.certificate import Certificate
from nonvacuous.distributions import DiagonalGaussian, storage
from nonvacuous.errors import Unsupported
from nonvacuous.networks import LayerGraph
from nonvacuous.risk.losses import Loss, loss_named
from nonvacuous.rules import arithmetic, drawing, symmetries
from nonvacuous.rules.digests import tensors_digest
from nonvacuous.verification import audited, replaying, starting
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry, agree
from nonvacuous.verification.network import MODEL, check_own, network_of

PRIOR = "prior.safetensors"
POSTERIOR = "posterior.safetensors"
DRAWN = "drawn.safetensors"
NETWORK = "network.safetensors"
LOG_SCALES = "log_scales.npz"
COUNT = "the errors are those recorded"
_SAVINGS = "symmetries save what is recorded"
COLUMNS = "the rescaling columns follow from the stored tensors"

#: A question from the file alone: its name, its field, and what answers it.
Question = tuple[str, str, Callable[[Certificate], str]]


class Checking:
    """The questions of a plain test of one network; every other kind has more."""

    #: Questions from the file alone, beyond those that all certificates are asked.
    numbers: tuple[Question, ...] = ()

    def seed(self, certificate: Certificate) -> str:
        """The seed of what was sampled, derived again."""
        raise Disagreement("nothing of this kind is sampled.")

    def rescaling(self, certificate: Certificate) -> str:
        """The columns that compare with and without rescaling, from their KL."""
        raise Disagreement("nothing of this kind is rescaled.")

    def evidence(self, certificate: Certificate) -> list[str]:
        """The files that every run writes: without them nothing ties the number down."""
        return [NETWORK]

    def read(self, inquiry: Inquiry) -> None:
        """The questions that these files answer."""
        _ask_network(inquiry, "the network is the recorded one")

    def prior_asked(self, inquiry: Inquiry) -> dict[str, Any]:
        """The prior family that the settings name: its kind, its scales, whose they are, and the
        digest of the means if they were given."""
        return dict(inquiry.contents.method["prior"])

    def posteriors(self, certificate: Certificate, method: dict[str, Any]) -> Collection[str]:
        """Every posterior that these settings allow, in words."""
        return ()

    def measure(self, inquiry: Inquiry) -> None:
        """Rebuild the network and measure it again."""
        certificate = inquiry.certificate
        loss, module = loss_named(certificate.loss.name), None
        if loss is None:
            why = f"the loss {certificate.loss.name!r} is not a built-in one."
        elif certificate.posterior is not None and inquiry.contents.posterior is None:
            why = "the posterior is not at hand."
        else:
            recorded = certificate.model
            words = f"{recorded.architecture}, {recorded.parameters} parameters."
            module = inquiry.learn(MODEL, "model", lambda: (words, self.network(inquiry)))
            asked = inquiry.findings[-1]
            why = asked.detail if asked.passed is None else "the network could not be rebuilt."
        if loss is None or module is None:
            question = replaying.FRESH if certificate.predictor == "stochastic" else COUNT
            inquiry.skip(question, "empirical", why)
            skip_symmetries(inquiry, why)
        else:
            self.count(inquiry, module, loss)

    def network(self, inquiry: Inquiry) -> torch.nn.Module:
        """The certified network, or what of it is at hand."""
        return network_of(inquiry)

    def count(self, inquiry: Inquiry, module: torch.nn.Module, loss: Loss) -> None:
        """All that the network can be asked."""
        check_own(inquiry, module)
        self._check_symmetries(inquiry, module)
        if inquiry.certificate.predictor == "stochastic":
            replaying.check_samples(inquiry, module, loss)
        else:
            inquiry.expect(COUNT, "empirical.errors", lambda: _count(inquiry, module, loss))
        self.compare(inquiry, module, loss)

    def _check_symmetries(self, inquiry: Inquiry, module: torch.nn.Module) -> None:
        """Recompute from prior, posterior and network. Nothing is asked where none was used."""
        certificate, contents = inquiry.certificate, inquiry.contents
        complexity, rescaling = certificate.complexity, certificate.rescaling
        posterior, prior = contents.posterior, contents.prior
        if complexity is None or posterior is None or prior is None:
            skip_symmetries(inquiry, "prior and posterior are not both at hand.")
            return
        if not complexity.symmetries and (rescaling is None or not rescaling.columns):
            return
        try:
            graph = symmetries.captured(module, inquiry.known.bound_part.inputs)
        except Unsupported as error:
            # Another version of torch may see the network otherwise than the one that made it.
            skip_symmetries(inquiry, f"the network cannot be captured here: {error}")
            return

        def savings() -> str:
            if wrong := symmetries.wrong_savings(
                graph, posterior, prior, complexity, loss=certificate.loss.name
            ):
                raise Disagreement(f"{wrong}.")
            return f"{complexity.symmetry_nats:.6g} nats, recomputed from the stored tensors."

        if complexity.symmetries:
            inquiry.expect(_SAVINGS, "complexity.symmetries", savings)
        if rescaling is not None and rescaling.columns:
            self.columns(inquiry, graph)

    def columns(self, inquiry: Inquiry, graph: LayerGraph) -> None:
        """The comparisons with and without rescaling, from the stored tensors."""

    def compare(self, inquiry: Inquiry, module: torch.nn.Module, loss: Loss) -> None:
        """What only files, data and network together can show: all of the audit, and the counts."""
        replaying.check_beside(inquiry, module)
        audited.check_again(inquiry, lambda: audited.stored_evidence(inquiry, module, loss))


class PriorChecking(Checking):
    """The questions of certificates that price a posterior by its distance from a prior."""

    def seed(self, certificate: Certificate) -> str:
        assert certificate.posterior is not None
        noise = getattr(certificate.rescaling, "noise_digest", None)
        expected = drawing.sampling_seed(certificate.seed, certificate.posterior.digest, noise)
        equal(certificate.empirical.seed, expected, "empirical.seed")
        return "derived from the seed and the digest of the frozen posterior."

    def evidence(self, certificate: Certificate) -> list[str]:
        further = {
            DRAWN: certificate.predictor == "drawn",
            LOG_SCALES: certificate.rescaling is not None,
            NETWORK: certificate.model.fixed_digest != tensors_digest({}),
        }
        return [PRIOR, POSTERIOR, *(name for name, written in further.items() if written)]

    def read(self, inquiry: Inquiry) -> None:
        certificate, contents = inquiry.certificate, inquiry.contents

        def distribution(who: str, path: Path) -> str:
            loaded, record = DiagonalGaussian.load(path), getattr(certificate, who)
            equal(None if record is None else record.digest, loaded.digest(), f"{who}.digest")
            setattr(contents, who, loaded)
            return "digest recomputed from its tensors."

        for who, name in (("prior", PRIOR), ("posterior", POSTERIOR)):
            question = f"the {who} is the recorded one"
            inquiry.ask(name, question, f"{who}.digest", partial(distribution, who))
        question = "the KL follows from the stored tensors"
        inquiry.expect(question, "complexity.terms", lambda: _complexity(inquiry))
        self.read_more(inquiry)
        if certificate.predictor == "drawn":
            question, field = "the drawn network is the recorded one", "log_density_ratio"
            inquiry.ask(DRAWN, question, f"complexity.{field}", partial(_drawn, inquiry))
        if certificate.model.fixed_digest == tensors_digest({}):
            contents.fixed = {}
        else:
            _ask_network(inquiry, "what is not random is the recorded one")

    def read_more(self, inquiry: Inquiry) -> None:
        """Files that not every posterior has."""

    def measure(self, inquiry: Inquiry) -> None:
        starting.check_start(inquiry)
        super().measure(inquiry)


def _ask_network(inquiry: Inquiry, question: str) -> None:
    def work(path: Path) -> str:
        fixed = storage.read_tensors(path)
        equal(inquiry.certificate.model.fixed_digest, tensors_digest(fixed), "model.fixed_digest")
        inquiry.contents.fixed = fixed
        return f"{len(fixed)} tensors, digest recomputed."

    inquiry.ask(NETWORK, question, "model.fixed_digest", work)


def _complexity(inquiry: Inquiry) -> str:
    certificate, contents = inquiry.certificate, inquiry.contents
    complexity, posterior, prior = certificate.complexity, contents.posterior, contents.prior
    if posterior is None or prior is None:
        raise NotAsked("prior and posterior are not both at hand.")
    assert complexity is not None
    sizes = {name: mean.numel() for name, mean in posterior.means.items()}
    recorded = {term.tensor: term.size for term in complexity.terms}
    if sizes != recorded:
        odd = sorted(set(sizes.items()) ^ set(recorded.items()))[0][0]
        raise Disagreement(f"tensor {odd!r} is not the same in terms and posterior.")
    if wrong := arithmetic.disagreement(complexity.terms, posterior.kl_to(prior)):
        term, value = wrong
        raise Disagreement(
            f"the KL of {term.tensor!r} is recorded as {term.nats!r}; the tensors give {value!r}."
        )
    if "renyi_nats" in certificate.bound.inputs:
        order = float(certificate.bound.inputs["order"])
        claimed = float(certificate.bound.inputs["renyi_nats"])
        renyi = sum(posterior.renyi_to(prior, order).values())
        if not abs(claimed - renyi) <= arithmetic.tolerance(renyi, 10 * posterior.weights):
            raise Disagreement(
                f"it says {claimed!r}, the tensors give {renyi!r}.", "bound.inputs.renyi_nats"
            )
    return f"{len(sizes)} tensors, term by term."


def _drawn(inquiry: Inquiry, path: Path) -> str:
    certificate, contents = inquiry.certificate, inquiry.contents
    posterior, prior, complexity = contents.posterior, contents.prior, certificate.complexity
    if posterior is None or prior is None or complexity is None:
        raise Disagreement("prior and posterior are not both at hand.")
    weights = storage.read_tensors(path)
    if set(weights) != set(posterior.names):
        raise Disagreement("its tensors are not those of the posterior.", DRAWN)
    again = drawing.draw_network(posterior, certificate.empirical.seed)
    for name, tensor in weights.items():
        if not torch.allclose(tensor, again[name], rtol=1e-4, atol=1e-7):
            raise Disagreement(
                f"the weights {name!r} are not those that the recorded seed draws.", DRAWN
            )
    ratio, agrees = drawing.priced(posterior, prior, weights, complexity)
    if not agrees:
        claimed = complexity.log_density_ratio
        raise Disagreement(f"it says {claimed!r}, the drawn weights give {ratio!r}.")
    contents.drawn = weights
    return "drawn again from the recorded seed, and priced again."


def _count(inquiry: Inquiry, module: torch.nn.Module, loss: Loss) -> str:
    drawn, claimed = inquiry.contents.drawn, inquiry.certificate.empirical
    if inquiry.certificate.predictor == "drawn" and drawn is None:
        raise NotAsked("the drawn network is not at hand.")
    again = recount(Network.of(module, drawn), inquiry.known.bound_part, loss)
    equal(claimed.trials, again.trials, "empirical.trials")
    agree(again, errors=claimed.errors, total=claimed.total)
    return f"counted again: {again.total:g} of {again.trials}."


def skip_symmetries(inquiry: Inquiry, why: str) -> None:
    """Note that these questions were not asked, where there was something to ask."""
    certificate = inquiry.certificate
    if certificate.complexity is not None and certificate.complexity.symmetries:
        inquiry.skip(_SAVINGS, "complexity.symmetries", why)
    if certificate.rescaling is not None and certificate.rescaling.columns:
        # Comparisons: the promise does not use them.
        inquiry.skip(COLUMNS, "rescaling.columns", why, needed=False)
