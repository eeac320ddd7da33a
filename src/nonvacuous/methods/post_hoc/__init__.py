"""What can be chosen about noise around given weights. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from nonvacuous.certification import method
from nonvacuous.errors import BadInput
from nonvacuous.kinds import PRIOR_NAMES, Mode
from nonvacuous.settings import Flag, PositiveCount, Scales, Switch
from nonvacuous.training_settings import PlainTraining

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nonvacuous.certification.job import Job
    from nonvacuous.distributions.priors import Prior
    from nonvacuous.records import TwinRecord


class PostHoc(method.Method):
    """Certify a trained network as it is: noise around its weights, and a prior.

    ``prior`` is ``nv.priors.zero_mean(...)``, ``nv.priors.at_initialization(initial)`` or
    ``nv.priors.learned(...)``, the latter with the ``split`` it was learned on; or "zero", with
    ``prior_scale`` if it is not to be chosen from the usual grid.
    ``pretrained`` declares that its center was trained on other, independent data: a sentence on
    where it comes from, which the certificate quotes.
    ``posterior_scales`` are the amounts of noise that are tried, free of charge.
    """

    mode: ClassVar[Mode] = "post-hoc"
    folder: ClassVar[str] = __name__

    prior: Annotated[
        Any,
        Flag(
            "For --mode post-hoc: zero, weights of zero, or initialization, the --initial weights "
            "(usually far better)."
        ),
    ]
    predictor: Annotated[Literal["stochastic", "drawn"], method.PREDICTOR] = "stochastic"
    prior_scale: Annotated[Scales | None, method.PRIOR_SCALE] = None
    trials: Annotated[PositiveCount, method.TRIALS] = 100_000
    rescaling: Annotated[
        Switch,
        Flag(
            "For --mode post-hoc: move the posterior along the network's rescaling symmetries to "
            "where it is cheapest. The certificate is never worse for it."
        ),
    ] = True
    translation: Annotated[
        Switch,
        Flag(
            "For --mode post-hoc: forget a common shift of all scores in the complexity. No "
            "prediction depends on it, and it is free."
        ),
    ] = True
    permutation: Annotated[
        Switch,
        Flag(
            "For --mode post-hoc: forget the order of a layer's units in the complexity, where the "
            "prior does not tell them apart (--prior zero). No prediction depends on it, and it is "
            "free."
        ),
    ] = True
    twin: Annotated[Switch, method.TWIN] = True
    pretrained: Annotated[method.Pretrained, method.PRETRAINED] = None
    posterior_scales: Scales | None = None
    plain_training: PlainTraining = PlainTraining()
    split: Any = Field(default=None, exclude=True)

    @field_validator("prior", mode="before")
    @classmethod
    def _known_prior(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return method.prior_given(value)
        kind = PRIOR_NAMES.get(value, value)
        if kind not in ("zero", "initialization"):
            raise BadInput(f"there is no prior {value!r} here; there are zero, initialization")
        return kind

    @model_validator(mode="before")
    @classmethod
    def _has_prior(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("prior") is None:
            raise BadInput(
                "PostHoc needs a prior: nv.priors.zero_mean(...), or "
                "nv.priors.at_initialization(initial) with the network as it was before training"
            )
        return given

    @model_validator(mode="after")
    def _together(self) -> PostHoc:
        if self.predictor == "drawn" and not (self.translation and self.permutation):
            raise BadInput(
                "translation and permutation would change nothing with the predictor drawn: one "
                "network pays for its own weights, not for a KL. Leave them out"
            )
        if self.prior_scale is not None and not isinstance(self.prior, str):
            raise BadInput(
                "prior_scale would be ignored: the prior that is given has scales of its own. "
                "Leave it out, or make the prior with them, as in "
                "nv.priors.at_initialization(initial, grid=...)"
            )
        return self

    @field_serializer("prior")
    def _prior_record(self, prior: Any) -> Any:
        return method.prior_record(self.family if prior == "zero" else prior)

    @property
    def family(self) -> Prior:
        """The prior itself."""
        from nonvacuous.distributions.grids import DEFAULT_GRID, ScaleGrid
        from nonvacuous.distributions.priors import zero_mean

        if self.prior == "zero":
            return zero_mean(grid=ScaleGrid(self.prior_scale) if self.prior_scale else DEFAULT_GRID)
        if isinstance(self.prior, str):
            raise BadInput(
                "the weights before training must be given: prior=nv.priors.at_initialization(...)"
            )
        prior: Prior = self.prior
        return prior

    @property
    def shaping(self) -> float | None:
        method.without_split(self.family)
        return None

    def starting_network(self, model: nn.Module, device: torch.device) -> nn.Module | None:
        from nonvacuous.certification.adapting import has_batch_norm
        from nonvacuous.certification.candidate import frozen_copy, start_at

        # One with batch normalization is folded first.
        return None if has_batch_norm(model) else start_at(frozen_copy(model, device), self.family)

    def repeat(self, job: Job, start: nn.Module) -> TwinRecord:
        """The twin: the network itself was trained elsewhere."""
        from nonvacuous.certification.measurement import trained_twin

        return trained_twin(job, start, self.plain_training)
