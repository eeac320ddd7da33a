"""Margins: by how much the right class leads, on the training examples."""

from __future__ import annotations

import torch

from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Undefined

#: The share of examples that may have a smaller margin than the one that norms are divided by.
PERCENTILE = 0.1


def margin_of(subject: Subject) -> float | Undefined:
    """The 10th percentile of the margins, or why it cannot divide anything."""
    found = float(torch.quantile(subject.margins, PERCENTILE))
    if found > 0:
        return found
    wrong = float((subject.margins <= 0).double().mean())
    return Undefined(
        f"the 10th percentile of the margins is {found:.3g}: {wrong:.0%} of the examples are "
        "wrong, and only a positive margin can divide a norm; train the network longer"
    )


def _register(name: str, share: float, words: str) -> None:
    @register_measure(
        name,
        family="margins",
        formula=f"{words} over examples of f_y(x) − max over k ≠ y of f_k(x)",
        source="Bartlett (1998); Jiang et al. (2019)",
        needs=["examples"],
        invariant=["rescaling", "permutation"],
        higher="better",
    )
    def percentile(subject: Subject) -> float:
        return float(torch.quantile(subject.margins, share))


_register("margin-10", PERCENTILE, "10th percentile")
_register("margin-median", 0.5, "median")


@register_measure(
    "margin-normalized",
    family="margins",
    formula="10th percentile of margin(x) / ‖f(x) − mean of its scores‖₂",
    source="after Jiang et al. (2019): divided by the spread of the same scores",
    needs=["examples"],
    invariant=["rescaling", "permutation", "output scale"],
    higher="better",
)
def normalized_margin(subject: Subject) -> float | Undefined:
    centered = subject.scores - subject.scores.mean(1, keepdim=True)
    spread = centered.square().sum(1).sqrt()
    if not bool((spread > 0).all()):
        return Undefined("all classes have the same score on some example")
    return float(torch.quantile(subject.margins / spread, PERCENTILE))
