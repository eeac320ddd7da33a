"""Theorem 1 of Zhang et al. (2017): 2n + d weights memorize any labels, at every depth.

For each number of examples: random labels at every depth, with an exact certificate, the float64
network evaluated unit by unit, and the test error after memorizing the true labels.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from nonvacuous.data import Dataset, Examples
from nonvacuous.errors import BadInput
from nonvacuous.memorization import Memorizer, check_lemma, memorize, random_labels
from nonvacuous.study.settings import CellRecord, Frozen, StudySettings, at_most
from nonvacuous.study.study import Context, Finished, Study

#: Points on which the lemma's matrix is written out.
_LEMMA_POINTS = 40
#: The deepest network must stay this close to its values in float64.
GOAL = 1e-7


class TheoremSettings(StudySettings):
    """One reproduction."""

    data: str = Field(default="mnist", description="The data set.")
    sizes: tuple[int, ...] = (6_000, 20_000, 60_000)
    """Numbers of examples, the first ones each; none in a file takes all of them."""
    depths: tuple[int, ...] = Field(default=(2, 3, 11, 101, 601), description="Layers of weights.")

    @model_validator(mode="after")
    def _sensible(self) -> TheoremSettings:
        for name, least in (("sizes", 1), ("depths", 2)):
            for value in getattr(self, name):
                if value < least:
                    raise BadInput(f"{name}: {value!r} is not a whole number from {least} up")
        if not self.depths:
            raise BadInput("depths: there are none; give at least one, such as 2")
        return self

    @classmethod
    def quick(cls) -> TheoremSettings:
        return cls(data="digits", sizes=(140, 470, 1_437), depths=(2, 3, 11))


class TheoremCell(Frozen):
    """Random labels at one depth, or true labels and the lemma (depth 0).

    size      the first so many examples; None: all of them
    float32   also count what float32 would get wrong
    """

    data: str
    size: int | None
    depth: int = 0
    float32: bool = False
    seed: int = 0

    @property
    def key(self) -> str:
        size = "all" if self.size is None else self.size
        return f"n{size}-depth{self.depth}" if self.depth else f"n{size}-labels"


class DepthResult(CellRecord):
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

    def lines(self) -> tuple[str]:
        return (
            f"n = {self.points:,}, depth {self.depth}: {self.parameters:,} weights, "
            f"{self.mismatches} mismatches, float64 error {self.forward_error:.1e}",
        )


class SizeResult(CellRecord):
    """True labels memorized, and the lemma, at one number of examples."""

    points: int
    true_train_wrong: int
    test_examples: int
    true_test_right: int
    random_test_right: int
    smallest_eigenvalue: float
    lemma_points: int
    lemma_holds: bool

    def test_share(self, labels: Literal["true", "random"]) -> float | None:
        """Test labels right after these labels were memorized."""
        right = self.true_test_right if labels == "true" else self.random_test_right
        return right / self.test_examples if self.test_examples else None

    def lines(self) -> tuple[str]:
        share = self.test_share("true")
        if share is None:
            return (f"n = {self.points:,}: {self.true_train_wrong} true training labels wrong",)
        return (f"n = {self.points:,}, true labels: {share:.1%} of the test labels right",)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was measured, and whether that agrees."""

    name: str
    statement: str
    found: str
    holds: bool


@dataclass(frozen=True)
class TheoremResult:
    settings: TheoremSettings
    depths: tuple[DepthResult, ...]
    sizes: tuple[SizeResult, ...]

    def claims(self) -> tuple[Claim, ...]:
        """The theorem, its lemma and its corollary."""
        shallow = [entry for entry in self.depths if entry.depth == 2]
        deep = [entry for entry in self.depths if entry.depth > 2]
        claims = []
        if shallow:
            mismatches = sum(entry.mismatches for entry in shallow)
            within = all(entry.parameters <= entry.theorem_parameters for entry in shallow)
            weights = "2n + d weights each" if within else "but more than 2n + d weights"
            most = max(entry.points for entry in shallow)
            measured = f"{mismatches} mismatches in exact arithmetic for n up to {most:,}"
            claim = (
                "two layers with 2n + d weights represent any values of n points in d dimensions"
            )
            holds = mismatches == 0 and within
            claims.append(Claim("C15, Theorem 1", claim, f"{measured}, {weights}", holds))
        smallest = min(entry.smallest_eigenvalue for entry in self.sizes)
        lemma = Claim(
            "C16, Lemma 1",
            "the matrix max(z_i - b_j, 0) is triangular with smallest eigenvalue min(z_i - b_i)",
            f"exact rank and triangle on {self.sizes[0].lemma_points} points each; smallest "
            f"eigenvalue {smallest:.1e} of the range at full size",
            all(entry.lemma_holds for entry in self.sizes) and smallest > 0,
        )
        claims.append(lemma)
        if deep:
            worst = max(entry.parameters - entry.theorem_parameters for entry in deep)
            last = max(deep, key=lambda entry: (entry.points, entry.depth))
            mismatches = sum(entry.mismatches for entry in deep)
            measured = (
                f"{mismatches} mismatches at {len(deep)} pairs of n and depth, at most "
                f"2n + d + {max(worst, 0)} weights; depth {last.depth}: width {last.width:,}, "
                f"float64 error {last.forward_error:.1e}"
            )
            holds = mismatches == 0 and worst <= 1 and last.forward_error <= GOAL
            claim = "depth k, width O(n/k) and O(n + d) weights do as well"
            claims.append(Claim("C17, Corollary 1", claim, measured, holds))
        return tuple(claims)

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.record(),
            "claims": [asdict(claim) for claim in self.claims()],
            "depths": [entry.model_dump() for entry in self.depths],
            "sizes": [entry.model_dump() for entry in self.sizes],
        }


class Theorem(Study[TheoremSettings, TheoremResult]):
    """Memorize random labels with 2n + d weights at every depth, certified in exact arithmetic.

    Needs MNIST and some five minutes on one processor core.
    """

    name = "zhang-theorem-1"
    settings = TheoremSettings
    cell = TheoremCell
    gives = DepthResult | SizeResult
    keeps = "entry"
    pages = "nonvacuous.papers.zhang.theorem_page"

    def cells(self, settings: TheoremSettings, finished: Finished) -> Sequence[TheoremCell]:
        sizes = settings.sizes or (None,)
        largest = max((size for size in sizes if size is not None), default=None)
        return tuple(
            TheoremCell(
                data=settings.data,
                size=size,
                depth=depth,
                float32=depth == 2 and size == largest,
                seed=settings.seed,
            )
            for size in sizes
            for depth in (*settings.depths, 0)
        )

    def compute(self, cell: TheoremCell, at: Context) -> Frozen:
        return _at_depth(cell, at) if cell.depth else _labels(cell, at)

    def result(self, settings: TheoremSettings, finished: Finished, at: Context) -> TheoremResult:
        known = {entry.cell: entry.result for entry in finished}
        cells = self.cells(settings, finished)
        depths = tuple(known[cell] for cell in cells if cell.depth)
        return TheoremResult(settings, depths, tuple(known[c] for c in cells if not c.depth))

    def title(self, settings: TheoremSettings) -> str:
        depths = ", ".join(map(str, settings.depths))
        return f"{settings.data}, depths {depths}, seed {settings.seed}"

    def next_command(self, result: TheoremResult, folder: Path | None) -> str:
        words = ["nonvacuous", "memorize", "--data", result.settings.data, "--labels", "true"]
        return shlex.join(words)


STUDY = Theorem()


def _examples(cell: TheoremCell, at: Context) -> Dataset:
    """The data set with the first training examples alone."""
    dataset = at.dataset(cell.data)
    if cell.size is not None and cell.size > len(dataset.train):
        raise BadInput(
            f"sizes: {cell.size:,} examples are asked for, but {cell.data} has "
            f"{len(dataset.train):,}; change sizes"
        )
    return Dataset(at_most(dataset.train, cell.size), dataset.test)


def _at_depth(cell: TheoremCell, at: Context) -> DepthResult:
    """Random labels at one depth: construction, certificate, and the network in float64."""
    train = _examples(cell, at).train
    network = memorize(
        train,
        random_labels(train, seed=cell.seed),
        depth=cell.depth,
        seed=cell.seed,
        conflicts="majority",
        progress=at.progress,
    )
    kept = network.predict(train).astype(np.int64)
    residual = network.residual(train, kept, device=at.device, progress=at.progress)
    same = ("points", "dimensions", "width", "parameters", "theorem_parameters", "seconds")
    return DepthResult(
        **{name: getattr(network, name) for name in same},
        distinct=network.duplicates.distinct,
        depth=cell.depth,
        mismatches=network.certificate.mismatches,
        unreachable=network.certificate.unreachable,
        certificate_seconds=network.certificate.seconds,
        exact_error=network.weights.largest_error,
        forward_error=residual.largest,
        forward_wrong=residual.wrong,
        forward_seconds=residual.seconds,
        float32_wrong=network.residual_in(torch.float32).wrong if cell.float32 else None,
    )


def _labels(cell: TheoremCell, at: Context) -> SizeResult:
    """What memorizing says about the test set, with true labels and with random ones."""
    dataset = _examples(cell, at)
    train = dataset.train
    truth = memorize(train, seed=cell.seed, conflicts="majority")
    drawn = random_labels(train, seed=cell.seed)
    chance = memorize(train, drawn, seed=cell.seed, conflicts="majority")
    rows = chance.construction
    some = slice(0, min(_LEMMA_POINTS, len(rows)))
    lemma = check_lemma(rows.positions[some], rows.knots[some])
    test = dataset.test
    right = (0, 0) if test is None else [len(test) - _wrong(one, test) for one in (truth, chance)]
    return SizeResult(
        points=len(train),
        true_train_wrong=_wrong(truth, train),
        test_examples=0 if test is None else len(test),
        true_test_right=right[0],
        random_test_right=right[1],
        smallest_eigenvalue=chance.smallest_eigenvalue,
        lemma_points=lemma.size,
        lemma_holds=lemma.holds,
    )


def _wrong(network: Memorizer, examples: Examples) -> int:
    return int((network.classify(examples) != examples.labels.numpy()).sum())
