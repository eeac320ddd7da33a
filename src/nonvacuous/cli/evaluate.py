"""``nonvacuous evaluate``: a test report that others can verify, from a file of predictions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.cli.exits import DONE, TOO_RISKY, UsageError
from nonvacuous.cli.flags import SWITCH, Json, Repeated, failure_of
from nonvacuous.cli.folders import instead_of
from nonvacuous.cli.output import answered, say, write_certificate, write_lines, write_next
from nonvacuous.evaluation_records import Evaluation


@Parameter(name="*", group=Group("Columns of the file", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of the file say what.

    Args:
        predictions: The column of predictions.
        labels: The column of labels.
        loss: A column of losses or events instead (with --metric loss or event).
        score: A column of scores instead, 1 is right: the logs of evaluation harnesses.
        group: A column of groups; may be repeated.
        cluster: A column that says which rows belong together: each cluster is one draw.
        id: A column that names the examples, to find repeated ones.
    """

    predictions: str = "prediction"
    labels: str = "label"
    loss: str | None = None
    score: str | None = None
    group: Repeated = ()
    cluster: str | None = None
    id: str | None = None


@Parameter(name="*", group=Group("A predictor that answers here", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Answers:
    """A predictor that answers here, instead of a column of its predictions.

    Args:
        predictor: package.module:function from a batch of inputs to answers, instead of a column of
            them.
        inputs: With --predictor: the column of inputs.
        engine: Where the predictor answers: here, or on a Ray cluster, with the same counts.
        address: Of the Ray cluster; without it Ray finds or starts one.
    """

    predictor: str | None = None
    inputs: str = "inputs"
    engine: Literal["local", "ray"] = "local"
    address: str | None = None


@Parameter(name="*", group=Group("Gates", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Gates:
    """When the command ends with code 3.

    Args:
        max_risk: Exit with code 3 unless the promise is at most this.
        max_group_risk: Exit with code 3 unless no group can be worse than this.
        allow_conditional: Let a conditional report pass the gates.
    """

    max_risk: float | None = None
    max_group_risk: float | None = None
    allow_conditional: Annotated[bool, SWITCH] = False


@Parameter(name="*", group=Group("A model that was never tested", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Inheritance:
    """A promise that a model which was never tested inherits.

    Args:
        certified: A report of another model, whose promise the model of --predictions inherits.
        unlabeled: With --certified: the file with the answers of both to inputs without labels.
        old: With --certified: the column of the certified model's answers.
    """

    certified: Path | None = None
    unlabeled: Path | None = None
    old: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """What becomes of the report.

    Args:
        out: Folder for certificate.json, the columns and report.html.
        force: Replace what is in --out.
    """

    out: Path | None = None
    force: Annotated[bool, SWITCH] = False
    json: Json = False


def evaluate(
    file: Path | None = None,
    /,
    *,
    settings: Annotated[
        Evaluation | None,
        Parameter(name="*", negative=(), group=Group("What is measured", sort_key=0)),
    ] = None,
    columns: Columns = Columns(),  # noqa: B008
    answers: Answers = Answers(),  # noqa: B008
    gates: Gates = Gates(),  # noqa: B008
    inheritance: Inheritance = Inheritance(),  # noqa: B008
    confidence: float = 0.95,
    unseen: Annotated[bool, SWITCH] = False,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Promise how wrong a predictor is, from examples that it never saw.

    Args:
        file: CSV, TSV, parquet, npz or JSON lines, one row per example; any size.
        confidence: Of the promise, and of every other claim alone.
        unseen: Your word that no row was used to train, tune or choose the predictor.
    """
    failure_of(confidence)
    chosen, out = settings or Evaluation(), output.out
    file = file or inheritance.unlabeled
    if file is None:
        raise UsageError("name the file of predictions and labels, as in: evaluate answers.csv")
    if inheritance.certified is not None:
        return _inherited(file, inheritance, columns.predictions, gates, as_json=output.json)
    if inheritance.unlabeled is not None or inheritance.old is not None:
        raise UsageError("--unlabeled and --old speak of --certified: name the certified report.")
    from nonvacuous.evaluation.evaluate import evaluate as test

    if out is not None and (out / "certificate.json").exists() and not output.force:
        raise UsageError(
            f"{out} holds a certificate already. Name another folder with --out, or add --force to "
            "overwrite it.",
            next_command=instead_of(out),
        )
    wanted: dict[str, Any] = {"predictions": columns.predictions, "labels": columns.labels}
    if columns.loss is not None or columns.score is not None:
        wanted = {"losses": columns.loss or columns.score}
        if chosen.metric == "error":
            metric = "success" if columns.score is not None else "loss"
            chosen = chosen.model_copy(update={"metric": metric})
    if chosen.dataset == "examples":
        chosen = chosen.model_copy(update={"dataset": file.name})
    beside: dict[str, Any] = {"groups": list(columns.group) or None}
    beside |= {"clusters": columns.cluster, "ids": columns.id}
    if answers.predictor is not None:
        wanted, beside = _answered(answers, file, columns.labels, beside)
    else:
        wanted["data"] = file
    report = test(
        **wanted, **beside, confidence=confidence, unseen=unseen, settings=chosen, folder=out
    )
    write_certificate(report, as_json=output.json)
    if out is not None:
        from nonvacuous.report import write_report

        page = write_report(report, out / "report.html", run_folder=out)
        say(f"The page of this report: {page}")
        write_next(f"nonvacuous verify {out} --data {file}")
    return _gates(report, gates)


def _answered(
    answers: Answers, file: Path, labels: str, beside: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The predictor with its inputs and labels, and the other columns as arrays."""
    from nonvacuous.data.load import import_function
    from nonvacuous.evaluation.tables import read_columns

    function: Any = import_function(str(answers.predictor))
    if answers.engine == "ray":
        from nonvacuous.evaluation.predicting import OnRay

        function = OnRay(function, address=answers.address)
    names = {role: name for role, name in beside.items() if isinstance(name, str)}
    groups = {f"group:{name}": name for name in beside["groups"] or ()}
    table = read_columns(file, {"inputs": answers.inputs, "labels": labels, **names, **groups})
    arrays: dict[str, Any] = {role: table[role] for role in names}
    if groups:
        arrays["groups"] = {name: table[role] for role, name in groups.items()}
    return {"predictor": function, "data": (table["inputs"], table["labels"])}, arrays


def _gates(report: Any, gates: Gates) -> int:
    max_risk, max_group = gates.max_risk, gates.max_group_risk
    if max_risk is None and max_group is None:
        return DONE
    allowed = ("valid", "conditional") if gates.allow_conditional else ("valid",)
    worst = report.evaluation.worst_group_upper
    if max_group is not None and worst is None:
        raise UsageError("--max-group-risk needs groups: name their column with --group.")
    failed = [] if report.status in allowed else [f"the report is {report.status}"]
    for what, risk, flag, limit in (
        ("the", report.risk_upper, "--max-risk", max_risk),
        ("a group's", worst, "--max-group-risk", max_group),
    ):
        if limit is not None and risk > limit:
            failed.append(f"{what} risk may be {shown_up(risk)}, above {flag} {limit}")
    say(*(f"Gate: {message}." for message in failed))
    return TOO_RISKY if failed else DONE


def _inherited(file: Path, given: Inheritance, new: str, gates: Gates, *, as_json: bool) -> int:
    from nonvacuous.certificate import Certificate
    from nonvacuous.evaluation.compare import disagreement
    from nonvacuous.evaluation.tables import read_columns

    certified = given.certified
    assert certified is not None
    if given.old is None:
        raise UsageError("--certified needs --old, the column of the certified model's answers.")
    path = certified / "certificate.json" if certified.is_dir() else certified
    columns = read_columns(file, {"new": new, "old": given.old})
    result = disagreement(Certificate.load(path), columns["new"], columns["old"])
    answered(asdict(result), lambda _: write_lines(str(result)), as_json=as_json)
    limit = gates.max_risk
    return TOO_RISKY if limit is not None and result.risk_upper > limit else DONE
