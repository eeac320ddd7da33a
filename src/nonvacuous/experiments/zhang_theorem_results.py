"""What the reproduction of the memorization theorem found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nonvacuous.experiments.zhang_theorem_settings import TheoremSettings

#: The deepest network must stay this close to its values in float64.
GOAL = 1e-7


@dataclass(frozen=True)
class DepthResult:
    """Random labels at one number of examples and one depth.

    exact_error     largest error of the float64 weights evaluated exactly
    forward_error   largest error when every unit is evaluated in float64
    float32_wrong   labels that float32 would get wrong (measured for two layers, all examples)
    """

    points: int
    dimensions: int
    distinct: int
    depth: int
    width: int
    parameters: int
    theorem_parameters: int
    mismatches: int
    unreachable: int
    seconds: float
    certificate_seconds: float
    exact_error: float
    forward_error: float
    forward_wrong: int | None
    forward_seconds: float
    float32_wrong: int | None

    def told(self) -> str:
        """One line."""
        return (
            f"n = {self.points:,}, depth {self.depth}: {self.parameters:,} weights, "
            f"{self.mismatches} mismatches, float64 error {self.forward_error:.1e}"
        )


@dataclass(frozen=True)
class SizeResult:
    """True labels memorized, and the lemma, at one number of examples."""

    points: int
    true_train_wrong: int
    test_examples: int
    true_test_right: int
    random_test_right: int
    smallest_eigenvalue: float
    lemma_points: int
    lemma_holds: bool

    def told(self) -> str:
        if not self.test_examples:
            return f"n = {self.points:,}: {self.true_train_wrong} true training labels wrong"
        share = self.true_test_right / self.test_examples
        return f"n = {self.points:,}, true labels: {share:.1%} of the test labels right"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was measured, and whether that agrees."""

    name: str
    statement: str
    found: str
    holds: bool


@dataclass(frozen=True)
class TheoremResult:
    """The whole reproduction."""

    settings: TheoremSettings
    depths: tuple[DepthResult, ...]
    sizes: tuple[SizeResult, ...]

    def claims(self) -> tuple[Claim, ...]:
        """The theorem, its lemma and its corollary."""
        shallow = [entry for entry in self.depths if entry.depth == 2]
        deep = [entry for entry in self.depths if entry.depth > 2]
        found = []
        if shallow:
            mismatches = sum(entry.mismatches for entry in shallow)
            within = all(entry.parameters <= entry.theorem_parameters for entry in shallow)
            most = max(entry.points for entry in shallow)
            found.append(
                Claim(
                    "C15, Theorem 1",
                    "two layers with 2n + d weights represent any values of n points in d "
                    "dimensions",
                    f"{mismatches} mismatches in exact arithmetic for n up to {most:,}, "
                    + ("2n + d weights each" if within else "but more than 2n + d weights"),
                    mismatches == 0 and within,
                )
            )
        smallest = min(entry.smallest_eigenvalue for entry in self.sizes)
        lemma = all(entry.lemma_holds for entry in self.sizes) and smallest > 0
        found.append(
            Claim(
                "C16, Lemma 1",
                "the matrix max(z_i - b_j, 0) is triangular with smallest eigenvalue "
                "min(z_i - b_i)",
                f"exact rank and triangle on {self.sizes[0].lemma_points} points each; smallest "
                f"eigenvalue {smallest:.1e} of the range at full size",
                lemma,
            )
        )
        if deep:
            worst = max(entry.parameters - entry.theorem_parameters for entry in deep)
            last = max(deep, key=lambda entry: (entry.points, entry.depth))
            mismatches = sum(entry.mismatches for entry in deep)
            found.append(
                Claim(
                    "C17, Corollary 1",
                    "depth k, width O(n/k) and O(n + d) weights do as well",
                    f"{mismatches} mismatches at {len(deep)} pairs of n and depth, at most "
                    f"2n + d + {max(worst, 0)} weights; depth {last.depth}: width {last.width:,}, "
                    f"float64 error {last.forward_error:.1e}",
                    mismatches == 0 and worst <= 1 and last.forward_error <= GOAL,
                )
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.to_dict(),
            "claims": [asdict(claim) for claim in self.claims()],
            "depths": [asdict(entry) for entry in self.depths],
            "sizes": [asdict(entry) for entry in self.sizes],
        }
