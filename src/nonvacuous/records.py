"""The parts of a certificate: small frozen records that refuse unknown keys, NaN and infinities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from nonvacuous.errors import BadInput
from nonvacuous.kinds import ARCHITECTURES, Center, Way

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Failure = Annotated[float, Field(gt=0.0, lt=1.0)]
Nats = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
#: SHA-256, in hexadecimal.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """What every part shares: frozen, strict, nothing unknown, nothing infinite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="strings"
    )
    #: Fields that are not written where they are empty: older certificates keep their digests.
    unwritten: ClassVar[tuple[str, ...]] = ()
    #: Fields that are not written where nobody gave them, for the same reason; None is written.
    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        record: dict[str, Any] = handler(self)
        for name in self.unwritten:
            if not record.get(name, True):
                del record[name]
        for name in self.later:
            if name not in self.model_fields_set:
                record.pop(name, None)
        return record


class LossRecord(Record):
    """The loss that the promise is about, and the range it was checked to stay in."""

    name: Text
    lower: float = 0.0
    upper: float = 1.0


class ExampleSet(Record):
    """Some of the data set's examples: how many, which (by index) and what they held."""

    examples: PositiveCount
    index_digest: Digest
    content_digest: Digest


class DataRecord(Record):
    """Which examples played which role. The promise's n is ``bound.examples`` and nothing else."""

    name: Text
    classes: Annotated[int, Field(ge=2)]
    preprocessing: Text
    bound: ExampleSet
    prior: ExampleSet | None = None
    held_out: ExampleSet | None = None


class ModelRecord(Record):
    """The network: its make, its size, and everything in it that is not random."""

    unwritten = ("conversions",)

    architecture: Text
    parameters: Count
    fixed_digest: Digest
    #: What was converted so that it gives one float32 score for each class, in words.
    conversions: tuple[Text, ...] = ()

    @property
    def built_in(self) -> bool:
        """Whether its name alone brings it back."""
        return self.architecture.partition(":")[0] in ARCHITECTURES


class DistributionRecord(Record):
    """A distribution over weights; ``saw`` is the index digest of the examples it was fitted on."""

    description: Text
    digest: Digest
    saw: Digest | None = None


class KlTerm(Record):
    """The share of one tensor in KL(posterior || prior)."""

    tensor: Text
    size: PositiveCount
    nats: Nats


class SymmetrySaving(Record):
    """What forgetting one symmetry of the network takes off the KL.

    ``translation``: a common shift of all scores, in one tensor of the last layer (``place``);
    ``units`` is the number of scores. ``permutation``: the order of the ``units`` of one layer.
    """

    symmetry: Literal["translation", "permutation"]
    place: Text
    units: PositiveCount
    nats: Nats


class ComplexityRecord(Record):
    """What the posterior's distance from the prior costs, tensor by tensor.

    ``kl_nats`` is the sum of the terms less what the symmetries save, rounded up.
    """

    terms: Annotated[tuple[KlTerm, ...], Field(min_length=1)]
    symmetries: tuple[SymmetrySaving, ...] = ()
    kl_nats: Nats
    #: ln dQ/dP at the drawn weights, for a bound on one drawn network. May be negative.
    log_density_ratio: float | None = None

    @property
    def symmetry_nats(self) -> float:
        """What all symmetries save together."""
        return math.fsum(saving.nats for saving in self.symmetries)


class RescalingColumn(Record):
    """One way to account for the complexity of the same randomized network.

    Columns differ in the prior or in the symmetries used. One of them is ``certified``; the others
    are comparisons: the least of columns with different priors is not a bound.
    """

    name: Text
    #: What the column's prior is centered on.
    center: Center
    way: Way
    kl_nats: Nats
    #: What choosing the prior's scale costs, on top of the KL; both bounds contain it.
    charge_nats: Nats
    mcallester: Probability
    kl_inverse: Probability
    certified: bool = False


class PaperAccounting(Record):
    """The certified randomized network in the accounting of arXiv 2509.26149: no promise.

    The posterior is kept as it was given and rescaled; the prior is N(0, ``prior_scale`` squared)
    for every weight. ``bound`` and ``rescaled`` are mean loss + sqrt(KL / 2n): no confidence and
    no price of sampling is in them, and they may exceed 1.
    """

    prior_scale: Annotated[float, Field(gt=0.0)]
    kl_before: Nats
    kl_after: Nats
    bound: Nats
    rescaled: Nats

    @classmethod
    def of(
        cls, nats: tuple[float, float], *, prior_scale: float, mean: float, examples: int
    ) -> PaperAccounting:
        """The formula for the KL before and after rescaling."""
        before, after = (mean + math.sqrt(kl / (2 * examples)) for kl in nats)
        return cls(
            prior_scale=prior_scale,
            kl_before=nats[0],
            kl_after=nats[1],
            bound=before,
            rescaled=after,
        )


class RescalingRecord(Record):
    """What a function-preserving rescaling did to the complexity.

    ``kl_before`` is the KL of the certified randomized network with the weights scaled as they
    were given and a prior of the same family that suits them best; ``kl_after`` is the KL of the
    certified posterior, before symmetries are forgotten. ``noise_digest`` is that of the posterior
    before it was moved, from which the draws that measure its risk are derived: with and without
    rescaling they are the same draws. ``paper`` is a comparison.
    """

    unwritten = ("paper",)

    kl_before: Nats
    kl_after: Nats
    log_scales_digest: Digest
    noise_digest: Digest | None = None
    columns: tuple[RescalingColumn, ...] = ()
    paper: PaperAccounting | None = None

    @model_validator(mode="after")
    def _one_certified(self) -> RescalingRecord:
        certified = sum(column.certified for column in self.columns)
        if self.columns and certified != 1:
            raise ValueError(f"{certified} columns are marked as certified; exactly one is")
        return self


class RiskRecord(Record):
    """The posterior's error on the bound examples, as counts of independent trials."""

    #: The number of errors where losses are 0 or 1, else None and ``total`` is their sum.
    errors: Count | None
    total: Nats | None = None
    trials: PositiveCount
    #: ``fresh noise``: every example equally often, each time with noise of its own.
    scheme: Literal["pairs", "every example once", "fresh noise"]
    identical: bool
    seed: int
    #: Upper end of the mean loss, sampling paid for; the plain mean where nothing was sampled.
    risk_upper: Probability

    @model_validator(mode="after")
    def _consistent(self) -> RiskRecord:
        if (self.errors is None) == (self.total is None):
            raise ValueError("a risk is counted in errors or summed in total: exactly one of them")
        if self.amount > self.trials:
            raise ValueError(f"more loss ({self.amount}) than trials ({self.trials})")
        return self

    @property
    def amount(self) -> float:
        """The sum of the losses over the trials."""
        return float(self.errors if self.errors is not None else self.total or 0.0)

    @property
    def mean(self) -> float:
        """The mean loss over the trials: an estimate, without a confidence."""
        return self.amount / self.trials


class BoundRecord(Record):
    """Which theorem gave the number, with every number that went into it."""

    name: Text
    theorem: Text
    inputs: dict[str, float | int]


class SpendRecord(Record):
    name: Text
    failure: Failure
    reason: Text
    choices: PositiveCount = 1

    @property
    def share(self) -> float:
        """What one of the line's equally likely choices may spend."""
        value = float(Fraction(self.failure) / self.choices)
        if value <= 0.0:
            raise BadInput(
                f"budget line {self.name!r} is divided by {self.choices} choices; nothing is left."
            )
        return value


#: The ledger line that the bound's failure probability comes from, the one of the sampling, and the
#: one of the confidence that is left to other certificates on the same examples.
BOUND_LINE, SAMPLING_LINE, OTHERS_LINE = "bound", "sampling", "other certificates"


class BudgetRecord(Record):
    """The ledger of the failure probability, as :class:`nonvacuous.ConfidenceBudget` writes it."""

    failure: Failure
    entries: Annotated[tuple[SpendRecord, ...], Field(min_length=1)]

    def line(self, name: str) -> SpendRecord:
        """The line of that name; :class:`BadInput` if there is none."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        names = ", ".join(entry.name for entry in self.entries)
        raise BadInput(f"budget has no line {name!r} (its lines: {names}); nothing paid for it.")

    @property
    def bound(self) -> SpendRecord:
        return self.line(BOUND_LINE)

    @property
    def sampling(self) -> SpendRecord:
        return self.line(SAMPLING_LINE)


class TwinRecord(Record):
    """What a plain held-out test promises on the same data, at the same confidence."""

    description: Text
    errors: Count
    examples: PositiveCount
    failure: Failure
    risk_upper: Probability


class BaselineRecord(Record):
    """Always answering the class that is most frequent among the bound examples.

    ``risk_lower`` is what every constant answer errs on at least, see
    :func:`nonvacuous.bounds.constant_lower`; its ``failure`` comes on top of the promise's.
    """

    answer: Count
    name: Text
    errors: Count
    examples: PositiveCount
    failure: Failure
    risk_lower: Probability

    @property
    def rate(self) -> float:
        """How often it errs on the bound examples."""
        return self.errors / self.examples


class BatchRecord(Record):
    """Examples that tested a checkpoint before they joined the training data."""

    examples: ExampleSet
    errors: Count


class ProgressiveRecord(Record):
    """The tests of a progressive certificate, one batch for each checkpoint, in order."""

    batches: Annotated[tuple[BatchRecord, ...], Field(min_length=2)]
    #: What trained the checkpoints.
    training: Text


class Observation(Record):
    """A measured error rate that is not part of the promise."""

    name: Text
    errors: Count
    trials: PositiveCount


class Assumption(Record):
    """Something the promise rests on, and what is known about it.

    ``checked``: verified on the artefacts; ``asserted``: stated by the user or the code;
    ``not checkable``: a fact about the world; ``violated``: found to be false.
    ``effect``: what it means for the certificate's status.
    """

    name: Text
    status: Literal["checked", "asserted", "not checkable", "violated"]
    detail: Text
    effect: Literal["none", "conditional", "refused"] = "none"

    @model_validator(mode="after")
    def _violations_count(self) -> Assumption:
        if self.status == "violated" and self.effect == "none":
            raise ValueError(f"the violated assumption {self.name!r} must have an effect")
        return self
