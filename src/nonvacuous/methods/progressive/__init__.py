"""What can be chosen about a training that is tested along the way. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from nonvacuous.bounds import checks
from nonvacuous.certification.method import PRETRAINED, STANDARDIZE, Method, Pretrained
from nonvacuous.errors import BadInput
from nonvacuous.kinds import Mode, Predictor
from nonvacuous.settings import Flag, Inside, Switch, checked
from nonvacuous.training_settings import PlainTraining

if TYPE_CHECKING:
    from torch import nn

    from nonvacuous.data import Examples, Split
    from nonvacuous.risk.losses import Loss


class Progressive(Method):
    """Train in steps; every batch tests the network before the network learns from it.

    All examples but the first part test and train. The promise is about the randomized predictor
    that draws one of the checkpoints for each input (``nv.load_mixture`` gives it), not about the
    last one. ``train`` is a function of your own, ``train(model, inputs, labels, *, seed) ->
    model``, in place of ``plain_training``; it is given all examples before the batch,
    and must keep nothing from one call to the next. It is called once more at the end, with up to
    64 examples and mostly wrong labels: where that network is right all the same, it knows the
    tests from elsewhere, and the certificate is conditional.
    """

    mode: ClassVar[Mode] = "progressive"
    folder: ClassVar[str] = __name__
    predictor: ClassVar[Predictor] = "mixture"

    start: Annotated[
        Inside,
        Flag("For --mode progressive: the part of the examples that trains before the first test."),
    ] = 0.5
    batches: Annotated[
        int,
        checked(checks.count, minimum=2),
        Flag("For --mode progressive: how many batches test, and then train; one training each."),
    ] = 5
    threshold: Annotated[
        Inside | None,
        Flag(
            "For --mode progressive: a gate, declared before training. The certificate then says "
            "that the risk is below it, or nothing; --max-risk declares the same."
        ),
    ] = None
    warm: Annotated[
        Switch,
        Flag(
            "For --mode progressive: go on from the last checkpoint instead of training afresh.",
        ),
    ] = False
    standardize: Annotated[Switch, STANDARDIZE] = False
    pretrained: Annotated[Pretrained, PRETRAINED] = None
    plain_training: PlainTraining = PlainTraining()
    train: Any = Field(default=None, exclude=True)

    def record(self) -> dict[str, Any]:
        record = super().record()
        if self.train is not None:
            from nonvacuous.training.user_training import source_digest

            record["train"] = {"name": self.trained_by, "code": source_digest(self.train)}
        return record

    @property
    def trained_by(self) -> str | None:
        """The user's own training function, by name."""
        if self.train is None:
            return None
        return str(getattr(self.train, "__qualname__", type(self.train).__qualname__))

    def check(self, model: nn.Module, loss: Loss) -> None:
        if not loss.binary:
            raise BadInput(
                f"the loss {loss.name!r} is not only 0 or 1, and a progressive certificate counts "
                "errors; certify nv.zero_one"
            )
        if self.train is not None:
            from nonvacuous.training.user_training import check_signature

            check_signature(self.train, name="train")

    @property
    def shaping(self) -> float | None:
        return self.start

    def split_of(self, examples: Examples, seed: int) -> Split:
        from nonvacuous.rules.drawing import batches_of

        split = super().split_of(examples, seed)
        batches_of(examples, split, self.batches, seed)  # raises before any work
        return split
