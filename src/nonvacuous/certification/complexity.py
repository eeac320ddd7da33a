"""What a posterior costs: the KL by tensor, less what symmetries of the network save."""

from __future__ import annotations

from nonvacuous.certification.job import Job
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks import LayerGraph
from nonvacuous.records import ComplexityRecord, KlTerm, SymmetrySaving
from nonvacuous.rules.arithmetic import complexity_nats
from nonvacuous.rules.symmetries import symmetry_savings


def complexity_of(
    job: Job, posterior: DiagonalGaussian, prior: DiagonalGaussian, graph: LayerGraph | None
) -> ComplexityRecord:
    """The complexity that enters the bound; without a graph no symmetry is known."""
    terms = tuple(
        KlTerm(tensor=name, size=posterior.means[name].numel(), nats=nats)
        for name, nats in posterior.kl_to(prior).items()
    )
    savings: tuple[SymmetrySaving, ...] = ()
    if job.quotients and graph is not None:
        savings = symmetry_savings(graph, posterior, prior, loss=job.loss.name, which=job.quotients)
    return ComplexityRecord(
        terms=terms, symmetries=savings, kl_nats=complexity_nats(terms, savings)
    )
