"""The parts of a certificate from a test: what was measured, of whom, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from nonvacuous import records
from nonvacuous.errors import BadInput, nearest


@dataclass(frozen=True)
class MetricEntry:
    """What everything that lists metrics has to know about one of them.

    words       the metric as a risk; {name}, {of} and {mean} stand for what is declared
    counts      events: right or wrong, example by example; classes: made of the counts of classes;
                losses: values between 0 and 1, or scaled to it from a declared range
    one_column  whether it reads one column of numbers; all others read predictions and labels
    answers     whether predictions are classes, like the labels; else scores or numbers
    needs       settings that it cannot do without, what is said where one is missing, and a value
                with which the command is shown then
    """

    words: str
    counts: Literal["events", "classes", "losses"]
    one_column: bool = False
    answers: bool = False
    needs: tuple[tuple[str, str, str | tuple[str, ...]], ...] = ()


_ONE_CLASS = (("positive", "metric {metric!r} is about one class: name it as positive", "CLASS"),)
_ANSWER = (
    ("abstain", "metric 'selective error' needs the prediction that means no answer", "VALUE"),
)
_RANGE = (("range", "metric {metric!r} needs the declared range of the error", ("0", "20")),)
#: Every metric; what it computes stands in ``evaluation/outcomes.py``.
METRICS: dict[str, MetricEntry] = {
    "error": MetricEntry("error", "events", answers=True),
    "top-k": MetricEntry("top-{top} error", "events"),
    "selective error": MetricEntry(
        "error among the examples that were answered", "events", answers=True, needs=_ANSWER
    ),
    "event": MetricEntry("chance of the event", "events", one_column=True),
    "success": MetricEntry("chance of a failure", "events", one_column=True),
    "balanced error": MetricEntry("balanced error", "classes", answers=True),
    "recall": MetricEntry("1 - recall{of}", "classes", answers=True, needs=_ONE_CLASS),
    "precision": MetricEntry("1 - precision{of}", "classes", answers=True, needs=_ONE_CLASS),
    "f1": MetricEntry("1 - {mean}F1{of}", "classes", answers=True),
    "jaccard": MetricEntry("1 - {mean}Jaccard index{of}", "classes", answers=True),
    "loss": MetricEntry("mean loss", "losses", one_column=True),
    "score": MetricEntry("1 - mean score", "losses", one_column=True),
    "absolute error": MetricEntry("absolute error", "losses", needs=_RANGE),
    "squared error": MetricEntry("squared error", "losses", needs=_RANGE),
    "brier": MetricEntry("half the Brier score", "losses"),
}
if TYPE_CHECKING:
    Metric = str
else:  # the table is the one list
    Metric = Literal[tuple(METRICS)]


class Evaluation(records.Record):
    """What a test measures, fixed before anybody looks at an error."""

    model_config = ConfigDict(strict=False, use_attribute_docstrings=True)
    unwritten = ("where",)

    metric: Metric = "error"
    """What is measured. Of one column: event (1 is bad), success (1 is good), loss and score
    (between 0 and 1, or in a declared range)."""
    positive: str | int | None = None
    """The class of recall, precision, f1 and jaccard; without it f1 and jaccard are means over the
    classes."""
    top: int = Field(default=1, ge=1)
    """How many answers count for top-k."""
    abstain: str | int | None = None
    """Selective error: the prediction that is no answer."""
    range: tuple[float, float] | None = None
    """Least and largest value of a loss or of the error of a regression; values beyond are clipped,
    and the statement says so."""
    classes: tuple[str | int, ...] | None = None
    """All classes in their order, as cat,dog; predictions may then be positions in it."""
    where: tuple[str, ...] = ()
    """Only rows of the file with this value, written column=value; may be repeated. Fixed before
    anybody looked at errors."""
    balance: Literal["tilt", "shares"] = "tilt"
    """Balanced error: tilt for many similar classes, shares where one rare class decides."""
    attempts: int = Field(default=1, ge=1)
    """How many predictors, all fixed before any result was shown, share the confidence."""
    seed: int = Field(default=0, ge=0)
    """Of the order in which losses are bet on."""
    name: records.Text = "predictor"
    """What the predictor is called."""
    dataset: records.Text = "examples"
    """What the examples are called."""

    @field_validator("metric", mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        """Metrics under the names that people write: accuracy, balanced-error, F1."""
        known = tuple(METRICS)
        if not isinstance(given, str) or given in known:
            return given
        name = given.lower().replace("-", " ").replace("_", " ")
        name = {"top k": "top-k"}.get(name, name.replace("accuracy", "error"))
        if name in known:
            return name
        hint = nearest(name, known, " Did you mean {!r}?")
        raise ValueError(f"there is no metric {given!r}.{hint} There are {', '.join(known)}")

    @field_validator("classes")
    @classmethod
    def _in_one_word(cls, given: tuple[str | int, ...] | None) -> tuple[str | int, ...] | None:
        """All classes in one word, as the command line lets them be written: cat,dog."""
        if given is not None and len(given) == 1 and isinstance(given[0], str):
            names = tuple(name.strip() for name in given[0].split(","))
            if "" in names:
                raise ValueError(f"the classes {given[0]!r} have one without a name")
            return names
        return given

    @model_validator(mode="after")
    def _complete(self) -> Evaluation:
        for name, complaint, value in self.entry.needs:
            if getattr(self, name) is None:
                shown = {f"--{name}": value}
                raise BadInput(complaint.format(metric=self.metric), instead=shown)
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"the range {self.range} must run from a smaller to a larger number")
        if self.classes is not None and len(set(self.classes)) != len(self.classes):
            raise ValueError("the classes must differ")
        return self

    @property
    def entry(self) -> MetricEntry:
        """What is known about the metric."""
        return METRICS[self.metric]

    @property
    def measured(self) -> frozenset[str]:
        """Roles of the columns that hold numbers, which name nothing."""
        roles = {"losses", "inputs"}
        if self.entry.counts == "losses" and not self.entry.one_column:
            roles |= {"predictions"} if self.metric == "brier" else {"predictions", "labels"}
        return frozenset(roles)

    @property
    def counts_events(self) -> bool:
        return self.entry.counts == "events"

    @property
    def beside_constants(self) -> str:
        """How a predictor that errs less often than a constant answer does beside it, in words.

        By another metric the constant may do better, and a constant list of answers is none.
        """
        if self.metric == "top-k" and self.top > 1:
            return ""
        return "better than" if self.metric == "error" else "errs less often than"

    @property
    def over_all_classes(self) -> bool:
        """Whether it is a mean over the classes, which a sample cannot be asked for."""
        return self.entry.counts == "classes" and self.positive is None

    @property
    def selection(self) -> str:
        """Which examples it is about, as the end of "examples"; empty where it is all of them.

        >>> Evaluation(where=("filter=strict", "site=A")).selection
        ' with filter=strict and site=A'
        """
        return f" with {' and '.join(self.where)}" if self.where else ""

    @property
    def words(self) -> str:
        """The metric as a risk, in words.

        >>> Evaluation(metric="recall", positive="cat").words
        '1 - recall of cat'
        """
        if self.range is not None and (self.entry.one_column or self.entry.needs == _RANGE):
            low, high = self.range
            risk = self.entry.words if self.metric == "score" else self.metric
            return f"{risk}, clipped to [{low:g}, {high:g}] and scaled to [0, 1]"
        of, mean = (" of " + str(self.positive), "") if self.positive is not None else ("", "mean ")
        return self.entry.words.format(of=of, mean=mean, top=self.top)


class Slice(records.Record):
    """Some of the examples, with bounds that hold each alone, and all of one column at once."""

    #: The number of errors, or the sum of losses, among the ``examples`` (or clusters).
    errors: Annotated[float, Field(ge=0.0)]
    #: Without any, as of a group in which a recall's class did not occur, all is possible.
    examples: records.Count
    risk_upper: records.Probability
    risk_lower: records.Probability
    #: The upper end that holds for all slices of the column at once.
    risk_upper_together: records.Probability
    #: False where so few examples show nothing worth knowing.
    sufficient: bool


class ClassScore(records.Record):
    """F1 and Jaccard of one class: lower ends, each alone."""

    hits: records.Count
    relevant: records.Count
    f1_lower: records.Probability
    jaccard_lower: records.Probability


class TestedBaseline(records.BaselineRecord):
    """The best constant answer, compared on the same examples: risk of it minus risk of ours."""

    margin_lower: Annotated[float, Field(ge=-1.0, le=1.0)]

    @property
    def shown_better(self) -> bool:
        return self.margin_lower > 0.0


class EvaluationRecord(records.Record):
    """Everything a test says beside its promise, each claim at the certificate's confidence."""

    later = ("beside",)

    settings: Evaluation
    #: What one draw is: an example, or a cluster of them.
    unit: Literal["examples", "clusters"]
    rows: records.PositiveCount
    risk_lower: records.Probability
    #: Both ends at once, each at half the failure probability.
    interval: Annotated[tuple[records.Probability, ...], Field(min_length=2, max_length=2)]
    #: Losses: what other theorems promise, each alone; the smallest of all is not free.
    beside: dict[str, records.Probability] = {}
    #: Selective error: the share of answers is at least this, at half the failure probability.
    coverage_lower: records.Probability | None = None
    groups: dict[str, dict[str, Slice]] = {}
    #: The worst group of all declared columns, if it occurs in the test, is no worse than this.
    worst_group_upper: records.Probability | None = None
    scores: dict[str, ClassScore] = {}
    #: Labels of every example: the column it came from, and SHA-256 of its content.
    columns: dict[str, str] = {}
    digests: dict[str, records.Digest] = {}

    @property
    def declared(self) -> dict[str, dict[str, Slice]]:
        """The groups that the user named, without the true and the predicted classes."""
        own = ("true class", "predicted class")
        return {column: group for column, group in self.groups.items() if column not in own}
