"""The choices of a sparsity certificate: plain numbers, with defaults that work. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from nonvacuous.certification import method
from nonvacuous.errors import BadInput
from nonvacuous.kinds import LEARNED, Mode, prior_kind
from nonvacuous.settings import Flag, NonNegative, PositiveCount, Switch
from nonvacuous.training_settings import PlainTraining

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nonvacuous.certification.job import Job
    from nonvacuous.data import Examples
    from nonvacuous.distributions.priors import Prior
    from nonvacuous.records import TwinRecord
    from nonvacuous.risk.losses import Loss

_GROUP = "With --mode sparsity"
_STEPS = Flag("Of training the prior, and of training the network toward it.", _GROUP, "steps")


class Sparsity(method.Method):
    """Certify one fixed network of linear layers or convolutions with ReLU, not a randomized one.

    By the theorems of docs/theory/sparsity.md. With a prior that is named (zero, initialization or
    learned:FRACTION) the network is trained here, from weights that saw no example; with one of
    ``nv.priors``, of which the center alone is used, it is taken as it is (a learned prior with the
    ``split`` it was learned on). Settings are compared on ``search_examples``.
    """

    mode: ClassVar[Mode] = "sparsity"
    folder: ClassVar[str] = __name__
    usual_network: ClassVar[str | None] = "mlp:100/no-bias"
    kept_by: ClassVar[str] = "stage"

    prior: Annotated[
        method.AnyPrior,
        Flag(
            "For --mode sparsity: learned:FRACTION of the examples, which the promise then leaves "
            "out (learned:0.2 by default), initialization or zero; with --weights, zero, or "
            "initialization with --initial."
        ),
    ] = LEARNED
    pretrained: Annotated[method.Pretrained, method.PRETRAINED] = None
    theorem: Annotated[
        Literal["E", "F", "D", "A"],
        Flag(
            "Which proof of docs/theory/sparsity.md; choose before looking, each is its own claim. "
            "Convolutional networks have E.",
            _GROUP,
        ),
    ] = "E"
    variant: Annotated[
        Literal["sparse", "dense"],
        Flag("sparse makes use of units that stay inactive, dense does not.", _GROUP),
    ] = "sparse"
    passes: Annotated[PositiveCount, Flag("Noisy networks drawn for each example.", _GROUP)] = 4
    steps: Annotated[PositiveCount, _STEPS] = 2_000
    prior_steps: Annotated[PositiveCount, _STEPS] = 2_000
    pull: Annotated[
        NonNegative | None,
        Flag(
            "How strongly training is drawn to the prior: 1 by default (10 with convolutions), "
            "0.003 to a prior without data.",
            _GROUP,
        ),
    ] = None
    noise: Annotated[
        NonNegative | None,
        Flag(
            "Noise on the weights in training; by default 0.08 for a learned prior and none after "
            "it, 0.2 toward a prior without data; 0.03 with convolutions.",
            _GROUP,
        ),
    ] = None
    activity: Annotated[
        NonNegative,
        Flag(
            "Weight of the l1 norm of the activations in training; 0.01 gives a sparse network.",
            _GROUP,
        ),
    ] = 0.0
    unit_norm: Annotated[
        Switch | None,
        Flag(
            "Scale every input to norm 1. On for a network trained here, off for given --weights.",
            _GROUP,
        ),
    ] = None
    twin: Annotated[Switch, method.TWIN] = True
    search_examples: PositiveCount = 3_000
    plain_training: PlainTraining = PlainTraining()
    split: Any = Field(default=None, exclude=True)

    @field_validator("prior", mode="before")
    @classmethod
    def _known_prior(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return method.prior_given(value)
        kind, fraction = prior_kind(value)
        return value if fraction else kind

    @property
    def given(self) -> Prior | None:
        """The prior of a network that was trained elsewhere."""
        return None if isinstance(self.prior, str) else self.prior

    def check(self, model: nn.Module, loss: Loss) -> None:
        from nonvacuous.sparsity.conv_reading import is_convolutional
        from nonvacuous.sparsity.setting import CONV_THEOREM

        if loss.name != "zero-one":
            raise BadInput(
                f"a sparsity certificate bounds how often the network errs, not the loss "
                f"{loss.name!r}; leave loss out"
            )
        if is_convolutional(model) and self.theorem != CONV_THEOREM:
            raise BadInput(
                f"theorem {self.theorem} covers linear layers only; a convolutional network is "
                f"certified by theorem {CONV_THEOREM}. Leave the theorem out"
            )

    def prepare(self, examples: Examples) -> Examples:
        """Inputs of norm 1 where that was asked for, or where the network is trained here."""
        from nonvacuous.sparsity.training import scaled

        wanted = self.given is None if self.unit_norm is None else self.unit_norm
        return scaled(examples) if wanted else examples

    @property
    def shaping(self) -> float | None:
        if self.given is None:
            return prior_kind(self.prior)[1] or None
        method.without_split(self.given)
        return None

    def starting_network(self, model: nn.Module, device: torch.device) -> nn.Module | None:
        from nonvacuous.certification.candidate import frozen_copy, start_at

        module = frozen_copy(model)
        if self.given is not None:
            return start_at(module, self.given)
        return None if self.prior == "zero" else module

    def repeat(self, job: Job, start: nn.Module) -> TwinRecord | None:
        """Everything, or the twin of a network that was trained elsewhere."""
        from nonvacuous.certification.measurement import trained_twin

        if self.given is None:
            return super().repeat(job, start)
        return trained_twin(job, start, self.plain_training)
