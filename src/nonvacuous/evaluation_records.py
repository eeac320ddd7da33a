"""The parts of a certificate from a test: what was measured, of whom, and what follows."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from nonvacuous.records import (
    BaselineRecord,
    Count,
    Digest,
    PositiveCount,
    Probability,
    Record,
    Text,
)

#: Metrics that count events: right or wrong, example by example.
EVENTS = ("error", "top-k", "selective error", "event", "success")
#: Metrics made of the counts of classes.
OF_CLASSES = ("balanced error", "recall", "precision", "f1", "jaccard")
#: Losses with values between 0 and 1, or scaled to it from a declared range.
LOSSES = ("loss", "score", "absolute error", "squared error", "brier")
Metric = Literal[
    "error",
    "top-k",
    "selective error",
    "event",
    "success",
    "balanced error",
    "recall",
    "precision",
    "f1",
    "jaccard",
    "loss",
    "score",
    "absolute error",
    "squared error",
    "brier",
]


class Evaluation(Record):
    """What a test measures, fixed before anybody looks at an error."""

    model_config = ConfigDict(strict=False)

    metric: Annotated[
        Metric,
        Field(
            description="What is measured. Of one column: event (1 is bad), success (1 is good), "
            "loss and score (between 0 and 1, or in a declared range)."
        ),
    ] = "error"
    positive: Annotated[
        str | int | None,
        Field(
            description="The class of recall, precision, f1 and jaccard; without it f1 and jaccard "
            "are means over the classes."
        ),
    ] = None
    top: Annotated[int, Field(ge=1, description="How many answers count for top-k.")] = 1
    abstain: Annotated[
        str | int | None, Field(description="Selective error: the prediction that is no answer.")
    ] = None
    range: Annotated[
        tuple[float, float] | None,
        Field(
            description="Least and largest value of a loss or of the error of a regression; values "
            "beyond are clipped, and the statement says so."
        ),
    ] = None
    classes: Annotated[
        tuple[str | int, ...] | None,
        Field(description="All classes in their order; predictions may then be positions in it."),
    ] = None
    where: Annotated[
        tuple[str, ...],
        Field(
            description="Only rows of the file with this value, written column=value; may be "
            "repeated. Fixed before anybody looked at errors."
        ),
    ] = ()
    balance: Annotated[
        Literal["tilt", "shares"],
        Field(
            description="Balanced error: tilt for many similar classes, shares where one rare "
            "class decides."
        ),
    ] = "tilt"
    attempts: Annotated[
        int,
        Field(
            ge=1,
            description="How many predictors, all fixed before any result was shown, share "
            "the confidence.",
        ),
    ] = 1
    seed: Annotated[int, Field(ge=0, description="Of the order in which losses are read.")] = 0
    name: Annotated[Text, Field(description="What the predictor is called.")] = "predictor"
    dataset: Annotated[Text, Field(description="What the examples are called.")] = "examples"

    @field_validator("metric", mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        """Metrics under the names that people write: accuracy, balanced-error, F1."""
        known: tuple[str, ...] = (*EVENTS, *OF_CLASSES, *LOSSES)
        if not isinstance(given, str) or given in known:
            return given
        name = given.lower().replace("-", " ").replace("_", " ")
        name = {"top k": "top-k"}.get(name, name.replace("accuracy", "error"))
        if name in known:
            return name
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no metric {given!r}.{hint} There are {', '.join(known)}")

    @model_validator(mode="after")
    def _complete(self) -> Evaluation:
        if self.metric in ("recall", "precision") and self.positive is None:
            raise ValueError(f"metric {self.metric!r} is about one class: name it as positive")
        if self.metric == "selective error" and self.abstain is None:
            raise ValueError("metric 'selective error' needs the prediction that means no answer")
        if self.metric in ("absolute error", "squared error") and self.range is None:
            raise ValueError(f"metric {self.metric!r} needs the declared range of the error")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"the range {self.range} must run from a smaller to a larger number")
        if self.classes is not None and len(set(self.classes)) != len(self.classes):
            raise ValueError("the classes must differ")
        return self

    @property
    def counts_events(self) -> bool:
        return self.metric in EVENTS

    @property
    def has_classes(self) -> bool:
        """Whether predictions are classes, like the labels."""
        return self.metric in ("error", "selective error", *OF_CLASSES)


class Slice(Record):
    """Some of the examples, with bounds that hold each alone, and all of one column at once."""

    #: The number of errors, or the sum of losses, among the ``examples`` (or clusters).
    errors: Annotated[float, Field(ge=0.0)]
    examples: PositiveCount
    risk_upper: Probability
    risk_lower: Probability
    #: The upper end that holds for all slices of the column at once.
    risk_upper_together: Probability
    #: False where so few examples show nothing worth knowing.
    sufficient: bool


class ClassScore(Record):
    """F1 and Jaccard of one class: lower ends, each alone."""

    hits: Count
    relevant: Count
    f1_lower: Probability
    jaccard_lower: Probability


class TestedBaseline(BaselineRecord):
    """The best constant answer, compared on the same examples: risk of it minus risk of ours."""

    margin_lower: Annotated[float, Field(ge=-1.0, le=1.0)]

    @property
    def shown_better(self) -> bool:
        return self.margin_lower > 0.0


class EvaluationRecord(Record):
    """Everything a test says beside its promise, each claim at the certificate's confidence."""

    later = ("beside",)

    settings: Evaluation
    #: What one draw is: an example, or a cluster of them.
    unit: Literal["examples", "clusters"]
    rows: PositiveCount
    risk_lower: Probability
    #: Both ends at once, each at half the failure probability.
    interval: Annotated[tuple[Probability, ...], Field(min_length=2, max_length=2)]
    #: Losses: what other theorems promise, each alone; the smallest of all is not free.
    beside: dict[str, Probability] = {}
    #: Selective error: the share of answers is at least this, at half the failure probability.
    coverage_lower: Probability | None = None
    groups: dict[str, dict[str, Slice]] = {}
    #: No group of any declared column is worse than this.
    worst_group_upper: Probability | None = None
    scores: dict[str, ClassScore] = {}
    #: Labels of every example: the column it came from, and SHA-256 of its content.
    columns: dict[str, str] = {}
    digests: dict[str, Digest] = {}
