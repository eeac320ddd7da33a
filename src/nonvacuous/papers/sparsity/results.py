"""What the sparsity study found: one record for each network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.papers.sparsity.settings import VARIANTS, Case, SparsitySettings, prior_title
from nonvacuous.study.settings import CellRecord, Derived

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


_FIVE = "learned:0.05"
#: The prototype's best certificate by hidden layers, width, prior, pull and whether the network is
#: l1-sparse.
PROTOTYPE: Mapping[tuple[int, int, str, float | None, bool], float] = {
    (1, 100, "zero", None, False): 0.782,
    (1, 100, "initialization", None, False): 0.788,
    (1, 100, _FIVE, 1.0, False): 0.122,
    (1, 100, _FIVE, 0.1, False): 0.158,
    (1, 100, _FIVE, 0.01, False): 0.273,
    (1, 500, "zero", None, False): 0.881,
    (1, 500, "initialization", None, False): 0.88,
    (1, 500, _FIVE, 1.0, False): 0.132,
    (1, 500, _FIVE, 0.1, False): 0.176,
    (2, 100, "zero", None, False): 1.0,
    (2, 100, "initialization", None, False): 1.0,
    (2, 100, _FIVE, 1.0, False): 0.138,
    (2, 100, _FIVE, 0.1, False): 0.3,
    (2, 100, _FIVE, 0.01, False): 0.719,
    (2, 100, _FIVE, 0.1, True): 0.357,
    (1, 100, _FIVE, 1.0, True): 0.136,
    (3, 100, _FIVE, 1.0, False): 0.303,
    (5, 100, _FIVE, 1.0, False): 0.989,
    (10, 100, _FIVE, 1.0, False): 1.0,
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

    def __str__(self) -> str:
        pull = "" if self.pull is None else f", λ = {self.pull:g}"
        return f"{self.hidden} hidden, width {self.width}, {prior_title(self.prior)}{pull}"

    def fits(self, case: Case) -> bool:
        pull = case.pull if self.pull is None else self.pull
        return case == Case(self.hidden, self.width, self.prior, pull, self.recipe)


GOALS = (
    Goal(1, 100, "zero", None, 0.80, "blind"),
    Goal(1, 100, _FIVE, 1.0, 0.125, "robust"),
    Goal(1, 100, _FIVE, 0.1, 0.165, "robust"),
    Goal(1, 500, _FIVE, 1.0, 0.135, "robust"),
    Goal(2, 100, _FIVE, 1.0, 0.14, "robust"),
    Goal(2, 100, _FIVE, 0.1, 0.31, "robust"),
    Goal(5, 100, _FIVE, 1.0, 0.5, "spectral"),
    Goal(10, 100, _FIVE, 1.0, 0.9, "spectral"),
    Goal(10, 100, _FIVE, None, 0.2, "contracting"),
)
#: What the best network of a data set should not exceed.
BEST: Mapping[str, float] = {"fashion-mnist": 0.2, "cifar10": 0.6}


class CaseResult(Derived):
    """One trained network and its certificates.

    examples          the bound part: n of every certificate
    twin              the prior itself, tested on the bound part; None unless the prior is learned
    moved             squared distance from the prior, layer by layer
    spectral          spectral norms, layer by layer
    active            mean share of active units of each hidden layer on test examples
    activity          effective activity ratio by perturbation level
    certificates      "E sparse" and so on: risk_upper with every term
    norm_bounds       what bounds from norms alone give, not cut at 1
    training_seconds, certificate_seconds   on whatever machine this was
    """

    derived = ("best", "best_by", "key")

    case: Case
    examples: int
    train_errors: int
    test_errors: int
    test_examples: int
    prior_errors: int | None
    twin: float | None
    moved: tuple[float, ...]
    spectral: tuple[float, ...]
    active: tuple[float, ...]
    activity: Mapping[str, float]
    certificates: Mapping[str, Mapping[str, Any]]
    norm_bounds: Mapping[str, float] = {}
    training_seconds: float
    certificate_seconds: float

    @property
    def key(self) -> str:
        return self.case.key

    def risk(self, name: str) -> float | None:
        """The certificate of a theorem and variant, such as "E sparse"."""
        entry = self.certificates.get(name)
        return None if entry is None else float(entry["risk_upper"])

    @property
    def best_by(self) -> str:
        """The theorem and variant with the smallest promise; choosing it is paid for."""
        return min(self.certificates, key=lambda name: self.certificates[name]["risk_upper"])

    @property
    def best(self) -> float:
        return float(self.certificates[self.best_by]["risk_upper"])

    @property
    def test_error(self) -> float | None:
        return self.test_errors / self.test_examples if self.test_examples else None

    @property
    def prototype(self) -> float | None:
        """The prototype's best certificate for such a network, where it has any."""
        case = self.case
        if case.share != 1.0:
            return None
        pull = case.pull if case.prior.startswith("learned") else None
        return PROTOTYPE.get((case.hidden, case.width, case.prior, pull, case.recipe == "sparse"))

    def line(self) -> str:
        twin = "" if self.twin is None else f", held-out twin {shown_up(self.twin)}"
        best = shown_up(self.best)
        return f"{self.case}: certificate {best} by Theorem {self.best_by}{twin}"


class CasesResult(CellRecord):
    """Networks that share a prior."""

    cases: tuple[CaseResult, ...]

    def lines(self) -> list[str]:
        return [entry.line() for entry in self.cases]


@dataclass(frozen=True)
class GoalMet:
    """A goal, what was found, and which network found it."""

    what: str
    goal: float
    prototype: float | None
    found: float
    by: str
    case: str
    twin: float | None

    @property
    def met(self) -> bool:
        return self.found <= self.goal


def _met(entry: CaseResult, what: str, goal: float, prototype: float | None) -> GoalMet:
    return GoalMet(what, goal, prototype, entry.best, entry.best_by, entry.case.key, entry.twin)


@dataclass(frozen=True)
class SparsityGain:
    """The dense and the sparse variant of one theorem on one network."""

    case: Case
    theorem: str
    dense: float
    sparse: float

    @property
    def change(self) -> float:
        """Relative: negative where sparsity helps."""
        return self.sparse / self.dense - 1.0


@dataclass(frozen=True)
class SparsityResult:
    """The whole study, or the part of it that was asked for."""

    settings: SparsitySettings
    cases: tuple[CaseResult, ...]
    classes: int = 10

    @property
    def guessing(self) -> float:
        """The error of who guesses."""
        return 1 - 1 / self.classes

    def part(self, name: str) -> tuple[CaseResult, ...]:
        wanted = {case.key for case in self.settings.cases(name)}
        return tuple(entry for entry in self.cases if entry.case.key in wanted)

    def goals(self) -> tuple[GoalMet, ...]:
        """Every goal for which a network of that shape, prior and pull was certified."""
        data = self.settings.data
        if data in BEST and self.cases:
            entry = min(self.cases, key=lambda entry: entry.best)
            return (_met(entry, f"{data}: {entry.case}", BEST[data], None),)
        if data != "mnist":
            return ()
        met = []
        for goal in GOALS:
            fitting = [entry for entry in self.cases if goal.fits(entry.case)]
            if fitting:
                best = min(fitting, key=lambda entry: entry.best)
                known = PROTOTYPE.get((goal.hidden, goal.width, goal.prior, goal.pull, False))
                met.append(_met(best, str(goal), goal.goal, known))
        return tuple(met)

    def gains(self) -> tuple[SparsityGain, ...]:
        """Dense beside sparse for every theorem, on the networks that ask whether it helps."""
        gains = []
        for entry in self.part("sparsity"):
            for theorem in self.settings.theorems:
                dense, sparse = (entry.risk(f"{theorem} {variant}") for variant in VARIANTS)
                if dense is not None and sparse is not None:
                    gains.append(SparsityGain(entry.case, theorem, dense, sparse))
        return tuple(gains)

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.record(),
            "goals": [asdict(goal) | {"met": goal.met} for goal in self.goals()],
            "gains": [
                {**vars(gain), "case": gain.case.key, "change": gain.change}
                for gain in self.gains()
            ],
            "cases": [entry.to_dict() for entry in self.cases],
        }


def promise(value: float | None) -> str:
    """A bound, rounded up: what is printed must be true as printed."""
    return "-" if value is None else shown_up(value)


def verdict(gain: SparsityGain) -> str:
    """Whether sparsity helps, in a word."""
    if gain.dense >= 1.0 and gain.sparse >= 1.0:
        return "vacuous both ways"
    if abs(gain.change) < 0.005:
        return "no difference"
    return "helps" if gain.change < 0 else "hurts"


#: What a network of a recipe is called when sparsity is judged.
_KINDS = {"plain": "ordinary", "sparse": "l1-sparse", "stable": "trained for stability"}


def does_sparsity_help(result: SparsityResult) -> str:
    """The plain answer, from the numbers."""
    gains = [gain for gain in result.gains() if gain.dense < 1.0 or gain.sparse < 1.0]
    if not gains:
        return "Sparsity: no network of this question has a certificate below 1."
    parts = []
    for layers in sorted({gain.case.hidden for gain in gains}):
        for recipe, kind in _KINDS.items():
            some = [g for g in gains if (g.case.hidden, g.case.recipe) == (layers, recipe)]
            if some:
                best = min(some, key=lambda gain: min(gain.dense, gain.sparse))
                word = verdict(best) if verdict(best) != "no difference" else "changes nothing"
                parts.append(
                    f"{layers + 1} layers, {kind}: {word} ({best.change:+.1%} in Theorem "
                    f"{best.theorem}, {promise(best.dense)} to {promise(best.sparse)})"
                )
    return "Does sparsity help? " + "; ".join(parts) + "."
