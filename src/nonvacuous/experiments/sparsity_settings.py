"""Which networks the reproduction of the sparsity paper trains and certifies, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatch
from itertools import product
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.experiments.settings_files import SettingsFile, check_names
from nonvacuous.experiments.sparsity_recipes import DEFAULT_PARTS, QUICK_PARTS, RECIPES, Recipe
from nonvacuous.sparsity.priors import parse_prior
from nonvacuous.training.checks import whole_number

THEOREMS = ("A", "D", "E", "F")
VARIANTS = ("dense", "sparse")


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
        kind, fraction = parse_prior(self.prior)
        prior = f"{100 * fraction:g} %" if kind == "learned" else kind[:4]
        part = "" if self.share == 1.0 else f", {100 * self.share:g} % of data"
        return f"{self.hidden + 1}x{self.width}, {prior}, λ {self.pull:g}, {self.recipe}{part}"

    def told(self) -> str:
        """In words."""
        kind, fraction = parse_prior(self.prior)
        prior = f"{100 * fraction:g} % prior" if kind == "learned" else f"{kind} prior"
        words = f"{self.hidden + 1} layers, width {self.width}, {prior}, λ = {self.pull:g}"
        part = "" if self.share == 1.0 else f", {100 * self.share:g} % of the examples"
        return words + ("" if self.recipe == "plain" else f", {self.recipe}") + part


@dataclass(frozen=True)
class SparsitySettings(SettingsFile):
    """One reproduction.

    parts              which cases belong to which question: every combination of the lists
    recipes            how networks are trained
    theorems           which theorems; each in its dense and its sparse variant
    failure            of everything, with sampling_failure for Monte Carlo on top: both are
                       shared by the theorems, their variants and `attempts`
    attempts           how many priors on the same examples the confidence covers at once. A recipe
                       is a handful of numbers, each from a short list, and all combinations for
                       all shapes are fewer than a million (sparsity_recipes.PRIOR_GRID). Paying
                       for every one of them, 13.8 nats or a few per mille of a bound, covers the
                       recipes that were tried out on the same examples, shown here or not, as far
                       as they are on that list
    epsilons           perturbation levels of the activity ratio
    activity_examples  test examples it is averaged over
    """

    data: str = "mnist"
    parts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=lambda: DEFAULT_PARTS)
    recipes: Mapping[str, Recipe] = field(default_factory=lambda: RECIPES)
    theorems: tuple[str, ...] = THEOREMS
    failure: float = 0.05
    sampling_failure: float = 0.01
    attempts: int = 1_000_000
    epsilons: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    activity_examples: int = 2_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("theorems", "epsilons"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for theorem in self.theorems:
            if theorem not in THEOREMS:
                raise BadInput(f"theorems: there is no theorem {theorem!r}; there are A, D, E, F")
        if not self.theorems:
            raise BadInput("theorems: there are none; give at least one, such as E")
        whole_number("attempts", self.attempts, least=1)
        if self.attempts < len(self.cases()):
            raise BadInput(
                f"attempts: {self.attempts} are paid for, but there are {len(self.cases())} "
                "networks; raise attempts"
            )
        if not self.cases():
            raise BadInput("parts: they name no network")

    def cases(self, part: str | None = None) -> tuple[Case, ...]:
        """The networks of one part, or of all of them, each once."""
        found: dict[str, Case] = {}
        for name, grids in self.parts.items():
            if part in (None, name):
                for grid in grids:
                    found |= {case.key: case for case in _expanded(grid, name, self.recipes)}
        return tuple(found.values())

    def only(self, patterns: Sequence[str]) -> tuple[Case, ...]:
        """The cases of these parts, or whose names match these patterns; all without any."""
        if not patterns:
            return self.cases()
        chosen: dict[str, Case] = {}
        for pattern in patterns:
            hits = (
                self.cases(pattern)
                if pattern in self.parts
                else tuple(case for case in self.cases() if fnmatch(case.key, pattern))
            )
            if not hits:
                raise BadInput(
                    f"{pattern!r} is neither a part ({', '.join(self.parts)}) nor the name of a "
                    f"network, such as {self.cases()[0].key} or h1-w100-*"
                )
            chosen |= {case.key: case for case in hits}
        return tuple(chosen.values())

    @classmethod
    def quick(cls) -> SparsitySettings:
        """The same steps on the embedded digits, in seconds."""
        brief = {name: recipe.shortened(steps=150) for name, recipe in RECIPES.items()}
        return cls(data="digits", parts=QUICK_PARTS, recipes=brief, activity_examples=200)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, where: str = "settings") -> SparsitySettings:
        """Settings as they stand in a file. Recipes named there replace those of the same name."""
        check_names(record, cls, where)
        recipes = dict(RECIPES) | {
            name: Recipe.from_dict(entry, where=f"{where}, recipe {name}")
            for name, entry in record.get("recipes", {}).items()
        }
        return cls(**{**record, "recipes": recipes})

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, as they stand in a file."""
        record = {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}
        record["parts"] = {
            name: [{key: _plain(value) for key, value in grid.items()} for grid in grids]
            for name, grids in self.parts.items()
        }
        record["recipes"] = {name: recipe.to_dict() for name, recipe in self.recipes.items()}
        return record


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
        parse_prior(case.prior)
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


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
