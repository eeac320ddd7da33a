"""The symmetries of the network: what they save, and the columns that compare with and without."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from nonvacuous.errors import Unsupported
from nonvacuous.networks import LayerGraph
from nonvacuous.rules.symmetries import captured, wrong_savings
from nonvacuous.verification.findings import Disagreement
from nonvacuous.verification.inquiry import Inquiry

_SAVINGS = "symmetries save what is recorded"
COLUMNS = "the rescaling columns follow from the stored tensors"


def skip_symmetries(inquiry: Inquiry, why: str) -> None:
    """Note that these questions were not asked, where there was something to ask."""
    certificate = inquiry.certificate
    if certificate.complexity is not None and certificate.complexity.symmetries:
        inquiry.skip(_SAVINGS, "complexity.symmetries", why)
    if certificate.rescaling is not None and certificate.rescaling.columns:
        # Comparisons: the promise does not use them.
        inquiry.skip(COLUMNS, "rescaling.columns", why, needed=False)


def check_symmetries(
    inquiry: Inquiry, module: nn.Module, columns: Callable[[Inquiry, LayerGraph], None]
) -> None:
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
        graph = captured(module, inquiry.known.bound_part.inputs)
    except Unsupported as error:
        # Another version of torch may see the network otherwise than the one that made it.
        skip_symmetries(inquiry, f"the network cannot be captured here: {error}")
        return

    def savings() -> str:
        wrong = wrong_savings(graph, posterior, prior, complexity, loss=certificate.loss.name)
        if wrong is not None:
            raise Disagreement(f"{wrong}.")
        return f"{complexity.symmetry_nats:.6g} nats, recomputed from the stored tensors."

    if complexity.symmetries:
        inquiry.expect(_SAVINGS, "complexity.symmetries", savings)
    if rescaling is not None and rescaling.columns:
        columns(inquiry, graph)
