"""Path norms: sums over all paths from an input or bias to a score, of products of weights.

Rescaling hidden channels changes no such product. Biases start paths of their own. In log-domain.
"""

from __future__ import annotations

import math

from nonvacuous.bounds.norms import grid_point, grid_share
from nonvacuous.bounds.rounding import up
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.measures.margins import margin_of
from nonvacuous.measures.registry import Value, register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.rescaling.paths import log_path_norm
from nonvacuous.rescaling.structure import structure_of

#: δ of the bound.
FAILURE = 0.05
_GONON = "Gonon, Brisebarre, Riccietti and Gribonval (2024)"


def _register(order: int, source: str) -> None:
    written = "Σ over paths of |Π of weights|" if order == 1 else "sqrt(Σ over paths of Π of w²)"

    @register_measure(
        f"path-norm-{order}",
        family="paths",
        formula=written,
        source=source,
        invariant=["rescaling", "permutation"],
    )
    def norm(subject: Subject) -> Value:
        return Value.of_log(log_path_norm(subject.graph, order=order))

    @register_measure(
        f"path-margin-{order}",
        family="paths",
        formula=f"{written}, divided by γ = margin-10",
        source=source,
        needs=["examples"],
        invariant=["rescaling", "permutation", "output scale"],
    )
    def over_margin(subject: Subject) -> Value:
        margin = math.log(margin_of(subject))
        return Value.of_log(log_path_norm(subject.graph, order=order) - margin)


_register(1, f"Neyshabur, Tomioka and Srebro (2015); for any network {_GONON}")
_register(2, f"Neyshabur, Salakhutdinov and Srebro (2015); for any network {_GONON}")


def gonon_constant(*, depth: int, pools: int, window: int, inputs: int, outputs: int) -> float:
    """C of Theorem 3.1: sqrt(D ln((3+2P)K) + ln((3+2P)/(1+P) · (inputs+1) · outputs)).

    depth    D, the depth of the network
    pools    P, how many different kinds of max-pooling there are
    window   K, the most values over which a maximum is taken; 1 where there is none

    >>> round(gonon_constant(depth=18, pools=1, window=9, inputs=150528, outputs=1000), 3)
    9.395
    """
    kinds = 3 + 2 * pools
    first = depth * math.log(kinds * window)
    return math.sqrt(first + math.log(kinds / (1 + pools) * (inputs + 1) * outputs))


def _scale(subject: Subject) -> float:
    """4 C σ sqrt(2) / n: what multiplies path norm over margin.

    C is :func:`gonon_constant`; σ² is the largest sum of squares of one input over the examples. A
    bias is an input that is always 1: hence at least n. The margin has slope sqrt(2) in the scores.
    """
    structure = structure_of(subject.graph)
    for node in subject.graph.nodes:
        slope = node.arguments.get("negative_slope", 0.01)
        if "leaky_relu" in node.op and not (isinstance(slope, int | float) and 0 <= slope <= 1):
            raise Unsupported(
                f"{node.layer or node.name} is a leaky ReLU of negative slope {slope!r}; the "
                "theorem covers slopes from 0 to 1"
            )
    inputs = subject.examples[0].flatten(1)
    constant = gonon_constant(
        depth=structure.depth,
        pools=len(structure.pools),
        window=max(structure.pools, default=1),
        inputs=inputs.shape[1],
        outputs=subject.scores.shape[1],
    )
    spread = math.sqrt(max(float(len(inputs)), float(inputs.square().sum(0).max())))
    return 4 * constant * spread * math.sqrt(2) / len(inputs)


@register_measure(
    "gonon-gap",
    family="paths",
    formula="(4 C σ / n) (sqrt(2) / γ) path-norm-1, σ² = max(n, max over inputs u of Σ x_u²); a "
    "measure: γ = margin-10 was not fixed before the data",
    source=f"{_GONON}, Theorem 3.1, for the margin loss",
    needs=["examples"],
    invariant=["rescaling", "permutation", "output scale"],
)
def gonon_gap(subject: Subject) -> Value:
    margin = margin_of(subject)
    return Value.of_log(math.log(_scale(subject) / margin) + log_path_norm(subject.graph))


@register_measure(
    "gonon-bound",
    family="paths",
    formula="a bound on the risk with δ = 0.05: share of margins below γ + (4 C σ / n) (sqrt(2) / "
    "γ) r + 3 sqrt(ln(2/δ') / 2n), γ and r = path-norm-1 rounded to a grid of 481 numbers each, "
    "δ' = δ / 481²; not cut at 1",
    source=f"{_GONON}, Theorem 3.1, given the inputs; Mohri, Rostamizadeh and Talwalkar (2018), "
    "Theorem 3.3",
    needs=["examples"],
    invariant=["rescaling", "permutation"],
)
def gonon_bound(subject: Subject) -> float:
    margin = margin_of(subject)
    log_norm, n = log_path_norm(subject.graph), len(subject.examples[1])
    try:
        gamma = grid_point(margin, downward=True)
        norm = grid_point(up(Value.of_log(log_norm).number, ulps=1 << 12))
    except BadInput as error:
        raise Unsupported(
            f"margin or path norm lie outside the grid that was fixed: {error}"
        ) from error
    below = int((subject.margins < gamma).sum())
    tail = 3 * math.sqrt(math.log(2 / grid_share(FAILURE, numbers=2)) / (2 * n))
    return up(below / n + _scale(subject) * norm / gamma + tail, ulps=1 << 10)
