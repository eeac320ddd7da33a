"""Which networks the reproduction of the sparsity paper trains and certifies, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch
from itertools import product
from typing import Any

from pydantic import Field, field_validator, model_validator

from nonvacuous.errors import BadInput
from nonvacuous.kinds import prior_kind
from nonvacuous.papers.sparsity.recipes import DEFAULT_PARTS, QUICK_PARTS, RECIPES, Recipe
from nonvacuous.sparsity.gauge import Gauge
from nonvacuous.sparsity.setting import THEOREMS, Variant
from nonvacuous.study.settings import Described, StudySettings

VARIANTS: tuple[Variant, ...] = ("dense", "sparse")


@dataclass(frozen=True)
class Case:
    """One network: its shape, its prior, how it is trained, and on how many examples.

    hidden     hidden layers; a network "of 2 layers" has one
    pull       weight of the distance to the prior (lambda)
    share      the part of the training set that is used, prior part included
    """

    hidden: int
    width: int
    prior: str
    pull: float
    recipe: str
    share: float = 1.0

    @property
    def key(self) -> str:
        """A name for files and for --only, such as ``h1-w100-learned:0.05-pull1-plain``."""
        part = "" if self.share == 1.0 else f"-share{self.share:g}"
        prior = self.prior.replace(":", "")
        return f"h{self.hidden}-w{self.width}-{prior}-pull{self.pull:g}-{self.recipe}{part}"

    @property
    def prior_key(self) -> str:
        """The same for networks that share a prior."""
        return replace(self, pull=0.0).key.replace("-pull0", "")

    def short(self) -> str:
        """For the narrow table of a terminal, such as ``2x100, 5 %, λ 1, robust``."""
        kind, fraction = prior_kind(self.prior)
        prior = f"{100 * fraction:g} %" if kind == "learned" else kind[:4]
        part = "" if self.share == 1.0 else f", {100 * self.share:g} % of data"
        return f"{self.hidden + 1}x{self.width}, {prior}, λ {self.pull:g}, {self.recipe}{part}"

    def __str__(self) -> str:
        words = f"{self.hidden + 1} layers, width {self.width}, {prior_title(self.prior)}"
        recipe = "" if self.recipe == "plain" else f", {self.recipe}"
        part = "" if self.share == 1.0 else f", {100 * self.share:g} % of the examples"
        return f"{words}, λ = {self.pull:g}{recipe}{part}"


def prior_title(prior: str) -> str:
    """In words, such as ``5 % prior`` or ``zero prior``."""
    kind, fraction = prior_kind(prior)
    return f"{100 * fraction:g} % prior" if kind == "learned" else f"{kind} prior"


class Shared(Described):
    """What networks that share a prior take over from the settings as it is."""

    data: str = Field(default="mnist", description="The data set.")
    centered: bool = False
    """Take the mean of an input's own entries away before it is scaled to norm 1."""
    gauge: Gauge = "given"
    """In which weights of the same function noise is put."""
    theorems: tuple[str, ...] = THEOREMS
    """Which theorems; each in its dense and its sparse variant."""
    failure: float = 0.05
    """Of everything, with sampling_failure for Monte Carlo on top: both are shared by the theorems,
    their variants and the attempts."""
    sampling_failure: float = Field(default=0.01, description="Of Monte Carlo.")
    # A recipe is a handful of numbers, each from a short list, and all combinations for all shapes
    # are fewer than this (recipes.PRIOR_GRID). Paying for every one of them, 18.4 nats or a
    # few per mille of a bound, covers the recipes that were tried out on the same examples, shown
    # here or not, as far as they are on that list.
    attempts: int = Field(default=100_000_000, ge=1)
    """How many priors on the same examples the confidence covers at once."""
    epsilons: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    """Perturbation levels of the activity ratio."""
    activity_examples: int = Field(default=2_000, ge=1)
    """Test examples that the activity ratio is averaged over."""


class SparsitySettings(Shared, StudySettings):
    """One reproduction.

    parts      which cases belong to which question: every combination of the lists
    recipes    how networks are trained
    """

    parts: Mapping[str, Sequence[Mapping[str, Any]]] = Field(default_factory=lambda: DEFAULT_PARTS)
    recipes: Mapping[str, Recipe] = Field(default_factory=lambda: RECIPES)
    only: tuple[str, ...] = Field(default=(), exclude=True)
    """Some of the parts (goals, best, sparsity, priors, size, depth, width, grid, sensitivity) or
    names of networks, such as h1-w100-*; those finished earlier are shown as well."""

    @field_validator("recipes", mode="before")
    @classmethod
    def _recipes(cls, recipes: Any) -> Any:
        """Recipes named in a file replace those of the same name."""
        return {**RECIPES, **recipes} if isinstance(recipes, Mapping) else recipes

    @model_validator(mode="after")
    def _sensible(self) -> SparsitySettings:
        for theorem in self.theorems:
            if theorem not in THEOREMS:
                raise BadInput(f"theorems: there is no theorem {theorem!r}; there are A, D, E, F")
        if not self.theorems:
            raise BadInput("theorems: there are none; give at least one, such as E")
        if not self.cases():
            raise BadInput("parts: they name no network")
        if self.attempts < len(self.cases()):
            raise BadInput(
                f"attempts: {self.attempts} are paid for, but there are {len(self.cases())} "
                "networks; raise attempts"
            )
        return self

    def cases(self, part: str | None = None) -> tuple[Case, ...]:
        """The networks of one part, or of all of them, each once."""
        cases = (
            case
            for name, grids in self.parts.items()
            if part in (None, name)
            for grid in grids
            for case in _expanded(grid, name, self.recipes)
        )
        return tuple(dict.fromkeys(cases))

    def asked(self) -> tuple[Case, ...]:
        """The cases of the parts in ``only``, or whose names match; all without any."""
        if not self.only:
            return self.cases()
        chosen: list[Case] = []
        for pattern in self.only:
            part = pattern if pattern in self.parts else None
            hits = [c for c in self.cases(part) if part or fnmatch(c.key, pattern)]
            if not hits:
                raise BadInput(
                    f"only: {pattern!r} is neither a part ({', '.join(self.parts)}) nor the name "
                    f"of a network, such as {self.cases()[0].key} or h1-w100-*"
                )
            chosen += hits
        return tuple(dict.fromkeys(chosen))

    @classmethod
    def quick(cls) -> SparsitySettings:
        brief = {name: recipe.shortened(steps=150) for name, recipe in RECIPES.items()}
        return cls(data="digits", parts=QUICK_PARTS, recipes=brief, activity_examples=200)


def _expanded(
    grid: Mapping[str, Any], part: str, recipes: Mapping[str, Recipe]
) -> tuple[Case, ...]:
    lists = {"share": (1.0,)} | {
        name: tuple(value) if isinstance(value, (list, tuple)) else (value,)
        for name, value in grid.items()
    }
    names = [entry.name for entry in fields(Case)]
    if sorted(lists) != sorted(names):
        raise BadInput(
            f"parts, {part}: a grid of networks names {', '.join(names)}, not {', '.join(lists)}"
        )
    cases = tuple(Case(*values) for values in product(*(lists[name] for name in names)))
    for case in cases:
        prior_kind(case.prior)
        for name in ("hidden", "width"):
            value = getattr(case, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"parts, {part}: {name} = {value!r} is not a whole number from 1 up")
        if not 0.0 < case.share <= 1.0:
            raise BadInput(f"parts, {part}: share = {case.share!r} must be in (0, 1]")
        if case.recipe not in recipes:
            raise BadInput(
                f"parts, {part}: there is no recipe {case.recipe!r}; there are {', '.join(recipes)}"
            )
    return cases


class SparsityCell(Shared):
    """Networks that share a prior, and all that decides about them."""

    cases: tuple[Case, ...]
    recipe: Recipe
    seed: int

    @classmethod
    def of(cls, cases: Sequence[Case], settings: SparsitySettings) -> SparsityCell:
        same = settings.model_dump(include={*Shared.model_fields, "seed"})
        return cls(cases=tuple(cases), recipe=settings.recipes[cases[0].recipe], **same)

    def alike(self, other: SparsityCell) -> bool:
        """Whether networks of both are trained and certified in the same way."""
        return self.model_copy(update={"cases": ()}) == other.model_copy(update={"cases": ()})

    @property
    def key(self) -> str:
        return self.cases[0].prior_key
