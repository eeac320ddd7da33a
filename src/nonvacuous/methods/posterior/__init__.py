"""What can be chosen about a posterior that is trained for its certificate. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from nonvacuous.bounds import checks
from nonvacuous.certification import method
from nonvacuous.errors import BadInput
from nonvacuous.kinds import Mode
from nonvacuous.methods.posterior.recipes import RECIPES, Recipe, filled
from nonvacuous.settings import Flag, PositiveCount, Scales, Switch, checked
from nonvacuous.training_settings import PlainTraining, PosteriorTraining

#: Standard deviation of a prior trained on data, and of one at the initial weights.
LEARNED_SCALE, INITIAL_SCALE = 0.01, 0.1


def _fraction(name: str, value: Any) -> float:
    if checks.unit_interval(name, value) == 1.0:
        raise BadInput(
            f"{name} = 1 leaves no example for the promise to count; 0.5 is a good start"
        )
    return float(value)


class Posterior(method.Method):
    """Train a randomized network for the best certificate, from weights that saw no example.

    A prior is trained on one part of the examples, then the posterior on all of them; the promise
    counts those that the prior did not see. With ``prior=nv.priors.pretrained(...)`` the prior saw
    other data, and the promise counts all examples. ``translation`` and ``permutation`` forget
    symmetries in the KL, from which a posterior that was trained on a bound has next to nothing to
    gain. ``split`` replaces the one that follows from the seed.
    """

    mode: ClassVar[Mode] = "posterior"
    folder: ClassVar[str] = __name__

    predictor: Annotated[Literal["stochastic", "drawn"], method.PREDICTOR] = "stochastic"
    pretrained: Annotated[method.Pretrained, method.PRETRAINED] = None
    prior: method.AnyPrior = None
    recipe: Annotated[
        Recipe | None,
        Flag(
            "Settings that suit images or tables, or those of the records on mnist, fashion-mnist "
            "and cifar10 (with --model resnet9). Other flags replace single ones."
        ),
    ] = None
    prior_fraction: Annotated[
        float,
        checked(_fraction),
        Flag(
            "For --mode posterior: the part of the examples that trains the prior; the promise "
            "counts the others. 0 puts the prior at the initial weights and counts all examples."
        ),
    ] = 0.5
    tilt: Annotated[
        Switch,
        Flag(
            "For a learned prior: set a twentieth of its examples aside to choose the temperature "
            "of the bound, which then pays ln(1/failure) instead of ln(2 sqrt(n)/failure)."
        ),
    ] = True
    random: Annotated[
        Literal["all", "last"],
        Flag(
            "Which layers are random: all, or the last one alone; the others stay as the prior's "
            "training left them, or as --pretrained weights are, and have no price."
        ),
    ] = "all"
    standardize: Annotated[Switch, method.STANDARDIZE] = False
    prior_scale: Annotated[Scales | None, method.PRIOR_SCALE] = None
    trials: Annotated[PositiveCount, method.TRIALS] = 100_000
    translation: Switch = False
    permutation: Switch = False
    twin: Annotated[Switch, method.TWIN] = True
    training: PosteriorTraining = PosteriorTraining()
    plain_training: PlainTraining = PlainTraining()
    split: Any = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _of_recipe(cls, given: Any) -> Any:
        recipe = given.get("recipe") if isinstance(given, dict) else None
        return filled(given, recipe) if recipe in RECIPES else given

    @model_validator(mode="before")
    @classmethod
    def _of_prior(cls, given: Any) -> Any:
        """What follows from a prior that is given: its source, and that it needs no examples."""
        prior = given.get("prior") if isinstance(given, dict) else None
        if prior is None or isinstance(prior, dict):  # a record of one has it all
            return given
        if getattr(prior, "kind", None) != "pretrained":
            raise BadInput(
                "Posterior makes its own prior, unless prior=nv.priors.pretrained(...) brings one; "
                f"got {prior!r}"
            )
        own = {"pretrained": prior.source, "prior_fraction": 0.0, "prior_scale": prior.grid.scales}
        for name, value in own.items():
            if given.get(name, value) != value:
                raise BadInput(f"{name} would be ignored: the prior that is given decides it")
        return {**given, **own}

    @model_validator(mode="after")
    def _together(self) -> Posterior:
        if self.standardize and self.split is None and not self.prior_fraction:
            raise BadInput(
                "standardize needs a prior part to compute means on: the bound examples must not "
                "shape the inputs. Leave prior_fraction at 0.5, or standardize with numbers that "
                "do not come from these data"
            )
        if self.predictor == "drawn" and (self.translation or self.permutation):
            raise BadInput(
                "translation and permutation lower the KL of a randomized network; a bound for one "
                "network does not use it. Leave them out, or certify the predictor stochastic"
            )
        if self.random == "last" and self.prior is not None:
            raise BadInput("random would be ignored: the prior that is given decides it")
        if self.random == "last" and self.prior_fraction == 0 and self.pretrained is None:
            raise BadInput(
                "random='last' fixes all other layers where the prior's training left them, and "
                "prior_fraction=0 trains no prior; give the prior a part of the examples, or say "
                "where pretrained weights come from"
            )
        return self

    @property
    def scales(self) -> tuple[float, ...]:
        """The prior's scales, by default one that suits where its center comes from."""
        return self.prior_scale or (LEARNED_SCALE if self.prior_fraction else INITIAL_SCALE,)

    @property
    def shaping(self) -> float | None:
        return self.prior_fraction

    def advice(self, example_shape: Sequence[int], *, tokens: bool = False) -> str | None:
        kind = {1: "tables", 3: "images"}.get(len(example_shape))
        if self.recipe is not None or not self.prior_fraction or tokens or kind is None:
            return None
        return (
            f"no recipe: --recipe {kind} usually promises less error; a second certificate on "
            "these examples is another attempt, so choose before the first"
        )
