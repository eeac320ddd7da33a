"""Numbers to compare the sparsity study with.

The paper (Muthukumar and Sulam, COLT 2023) prints its bounds in figures only and has no public
code. So the comparison is with a first prototype of the theorems in docs/theory/sparsity.md, which
was run once on MNIST (inputs of norm 1, no biases, failure .05 + .01), and with goals set before
this code was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PAPER = (
    "Muthukumar, Sulam: Sparsity-aware generalization theory for deep neural networks "
    "(COLT 2023, arXiv 2307.00426)"
)


PROTOTYPE_NOTE = (
    "Part of the distance to the prototype is a better prior, learned under noise from images that "
    "are also moved by a pixel (recipes robust and spectral): compare the held-out twins with the "
    "prototype's .0947 (2 layers, width 100), .0951 (width 500) and .0724 (3 layers). The recipe "
    "plain, without any of this, comes out near the prototype or worse."
)


@dataclass(frozen=True)
class Prototype:
    """The prototype's certificates of one network, and its held-out twin where it has one."""

    certificates: Mapping[str, float]
    twin: float | None = None


def _row(*numbers: float, twin: float | None = None) -> Prototype:
    names = ("A dense", "A sparse", "D dense", "D sparse", "E dense", "E sparse")
    return Prototype(dict(zip(names, numbers, strict=True)), twin)


#: By hidden layers, width, prior, pull and whether the network is l1-sparse.
PROTOTYPE: Mapping[tuple[int, int, str, float | None, bool], Prototype] = {
    (1, 100, "zero", None, False): _row(1.0, 1.0, 0.782, 0.811, 0.786, 0.801),
    (1, 100, "initialization", None, False): _row(1.0, 1.0, 0.788, 0.817, 0.793, 0.807),
    (1, 100, "learned:0.05", 1.0, False): _row(
        0.318, 0.320, 0.122, 0.124, 0.123, 0.122, twin=0.0947
    ),
    (1, 100, "learned:0.05", 0.1, False): _row(
        0.832, 0.835, 0.158, 0.161, 0.159, 0.159, twin=0.0947
    ),
    (1, 100, "learned:0.05", 0.01, False): _row(1.0, 1.0, 0.273, 0.282, 0.273, 0.276, twin=0.0947),
    (1, 500, "zero", None, False): _row(1.0, 1.0, 0.881, 0.896, 0.883, 0.890),
    (1, 500, "initialization", None, False): _row(1.0, 1.0, 0.880, 0.895, 0.881, 0.889),
    (1, 500, "learned:0.05", 1.0, False): _row(
        0.451, 0.461, 0.133, 0.134, 0.133, 0.132, twin=0.0951
    ),
    (1, 500, "learned:0.05", 0.1, False): _row(
        0.951, 0.953, 0.177, 0.179, 0.176, 0.176, twin=0.0951
    ),
    (2, 100, "zero", None, False): _row(1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    (2, 100, "initialization", None, False): _row(1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    (2, 100, "learned:0.05", 1.0, False): _row(
        0.886, 0.899, 0.177, 0.168, 0.153, 0.138, twin=0.0724
    ),
    (2, 100, "learned:0.05", 0.1, False): _row(1.0, 1.0, 0.438, 0.392, 0.338, 0.300, twin=0.0724),
    (2, 100, "learned:0.05", 0.01, False): _row(1.0, 1.0, 0.933, 0.880, 0.789, 0.719, twin=0.0724),
    (2, 100, "learned:0.05", 0.1, True): _row(1.0, 1.0, 0.570, 0.435, 0.439, 0.357),
    (1, 100, "learned:0.05", 1.0, True): _row(0.378, 0.370, 0.136, 0.138, 0.137, 0.137),
    (3, 100, "learned:0.05", 1.0, False): Prototype({"E dense": 0.384, "E sparse": 0.303}),
    (5, 100, "learned:0.05", 1.0, False): Prototype({"E dense": 1.0, "E sparse": 0.989}),
    (10, 100, "learned:0.05", 1.0, False): Prototype({"E dense": 1.0, "E sparse": 1.0}),
}


@dataclass(frozen=True)
class Goal:
    """A number that the best certificate of the network of one recipe should not exceed."""

    hidden: int
    width: int
    prior: str
    pull: float | None
    goal: float
    recipe: str

    def told(self) -> str:
        """In words."""
        kind, _, fraction = self.prior.partition(":")
        prior = f"{100 * float(fraction):g} % prior" if fraction else f"{kind} prior"
        pull = "" if self.pull is None else f", λ = {self.pull:g}"
        return f"{self.hidden} hidden, width {self.width}, {prior}{pull}"


GOALS = (
    Goal(1, 100, "zero", None, 0.80, "blind"),
    Goal(1, 100, "learned:0.05", 1.0, 0.125, "robust"),
    Goal(1, 100, "learned:0.05", 0.1, 0.165, "robust"),
    Goal(1, 500, "learned:0.05", 1.0, 0.135, "robust"),
    Goal(2, 100, "learned:0.05", 1.0, 0.14, "robust"),
    Goal(2, 100, "learned:0.05", 0.1, 0.31, "robust"),
    Goal(5, 100, "learned:0.05", 1.0, 0.5, "spectral"),
    Goal(10, 100, "learned:0.05", 1.0, 0.9, "spectral"),
)
