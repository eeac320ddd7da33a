"""``nonvacuous evaluate``: a test report that others can verify, from a file of predictions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from nonvacuous.bounds import checks, rounding
from nonvacuous.certificate import Certificate
from nonvacuous.cli.exits import DONE, TOO_RISKY, UsageError, as_usage, command
from nonvacuous.cli.flags import SWITCH, Json, Repeated, dashed, failure_of, instead_of
from nonvacuous.cli.output import answered, say, write_certificate, write_lines, write_next
from nonvacuous.evaluation.tables import READERS, read_columns
from nonvacuous.evaluation_records import Evaluation
from nonvacuous.files import check_may_write


def _group(name: str, order: int) -> Parameter:
    return Parameter(group=Group(name, sort_key=order))


_KINDS = f"A file {', '.join(READERS)}"
_COLUMNS = _group("Columns of the file", 1)
_ANSWERS = _group("A predictor that answers here", 2)
_GATES = _group("Gates", 3)
_INHERITED = _group("A model that was never tested", 4)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Call:
    """What a call has beside the file and what is measured.

    Args:
        predictions: The column of predictions.
        labels: The column of labels.
        loss: A column of losses or events instead (with --metric loss or event).
        score: A column of scores instead, 1 is right: the logs of evaluation harnesses.
        group: A column of groups; may be repeated.
        cluster: A column that says which rows belong together: each cluster is one draw.
        id: A column that names the examples, to find repeated ones.
        predictor: package.module:function from a batch of inputs to answers, instead of a column of
            them.
        inputs: With --predictor: the column of inputs.
        engine: Where the predictor answers: here, or on a Ray cluster, with the same counts.
        address: Of the Ray cluster; without it Ray finds or starts one.
        max_risk: Exit with code 3 unless the promise is at most this.
        max_group_risk: Exit with code 3 unless no group can be worse than this.
        allow_conditional: Let a conditional report pass the gates.
        certified: A report of another model, whose promise the model of --predictions inherits.
        unlabeled: With --certified: the file with the answers of both to inputs without labels.
        old: With --certified: the column of the certified model's answers.
        confidence: Of the promise, and of every other claim alone.
        unseen: Your word that no row was used to train, tune or choose the predictor.
        out: Folder for certificate.json, the columns and report.html.
        force: Replace what is in --out.
    """

    predictions: Annotated[str, _COLUMNS] = "prediction"
    labels: Annotated[str, _COLUMNS] = "label"
    loss: Annotated[str | None, _COLUMNS] = None
    score: Annotated[str | None, _COLUMNS] = None
    group: Annotated[Repeated, _COLUMNS] = ()
    cluster: Annotated[str | None, _COLUMNS] = None
    id: Annotated[str | None, _COLUMNS] = None
    predictor: Annotated[str | None, _ANSWERS] = None
    inputs: Annotated[str, _ANSWERS] = "inputs"
    engine: Annotated[Literal["local", "ray"], _ANSWERS] = "local"
    address: Annotated[str | None, _ANSWERS] = None
    max_risk: Annotated[float | None, _GATES] = None
    max_group_risk: Annotated[float | None, _GATES] = None
    allow_conditional: Annotated[bool, _GATES, SWITCH] = False
    certified: Annotated[Path | None, _INHERITED] = None
    unlabeled: Annotated[Path | None, _INHERITED] = None
    old: Annotated[str | None, _INHERITED] = None
    confidence: float = 0.95
    unseen: Annotated[bool, SWITCH] = False
    out: Path | None = None
    force: Annotated[bool, SWITCH] = False
    json: Json = False


def evaluate(
    file: Annotated[
        Path | None, Parameter(help=f"{_KINDS}; one row per example, any size.")
    ] = None,
    /,
    *,
    settings: Annotated[
        Evaluation | None,
        Parameter(name="*", negative=(), group=Group("What is measured", sort_key=0)),
    ] = None,
    call: Call = Call(),  # noqa: B008
) -> int:
    """Promise how wrong a predictor is, from examples that it never saw."""
    failure_of(call.confidence)
    chosen, out = settings or Evaluation(), call.out
    _check_gates(call, chosen)
    file = file or call.unlabeled
    if file is None:
        raise UsageError("name the file of predictions and labels, as in: evaluate answers.csv")
    if call.certified is not None:
        return _inherited(file, call.certified, call, chosen)
    if call.unlabeled is not None or call.old is not None:
        raise UsageError("--unlabeled and --old speak of --certified: name the certified report.")
    from nonvacuous.evaluation.evaluate import evaluate as test

    if out is not None:
        if (out / "certificate.json").exists() and not call.force:
            raise UsageError(
                f"{out} holds a certificate already. Name another folder with --out, or add "
                "--force to overwrite it.",
                instead=instead_of(out),
            )
        check_may_write(out)
    wanted: dict[str, Any] = {"predictions": call.predictions, "labels": call.labels}
    if call.loss is not None or call.score is not None:
        _check_meaning(call, chosen.metric)
        wanted = {"losses": call.loss or call.score}
        if chosen.metric == "error":
            metric = "success" if call.score is not None else "loss"
            chosen = chosen.model_copy(update={"metric": metric})
    if chosen.dataset == "examples":
        chosen = chosen.model_copy(update={"dataset": file.name})
    beside: dict[str, Any] = {"groups": list(call.group) or None}
    beside |= {"clusters": call.cluster, "ids": call.id}
    if call.predictor is not None:
        wanted = _answered(call, file, beside, chosen)
    else:
        wanted |= beside | {"data": file}
    wanted |= {"confidence": call.confidence, "unseen": call.unseen}
    report: Any = test(**wanted, settings=chosen, folder=out)
    write_certificate(report, as_json=call.json)
    if out is not None:
        from nonvacuous.report import write_report

        page = write_report(report, out / "report.html", run_folder=out)
        say(f"The page of this report: {page}")
        write_next(command("verify", out, data=file))
    worst = report.evaluation.worst_group_upper
    return _gates(report, call, f"the report is {report.status}", worst)


def _check_gates(call: Call, settings: Evaluation) -> None:
    """Refuse gates that could not be tried, before the test is made."""
    low, high = settings.range or (0.0, 1.0)
    for flag, limit in ("--max-risk", call.max_risk), ("--max-group-risk", call.max_group_risk):
        if limit is None:
            continue
        if settings.range is not None and settings.metric != "score" and 1.0 < limit <= high:
            scaled = (limit - low) / (high - low)
            raise UsageError(
                f"{flag} is a risk scaled from [{low:g}, {high:g}] to [0, 1]: there {limit:g} is "
                f"{scaled:.4g}.",
                instead={flag: f"{scaled:.4g}"},
            )
        with as_usage():
            checks.unit_interval(flag, limit)
    if call.max_group_risk is not None and not call.group and call.certified is None:
        raise UsageError(
            "--max-group-risk needs groups: name their column with --group.",
            instead={"--group": "COLUMN"},
        )


def _check_meaning(call: Call, metric: str) -> None:
    """Refuse a column that two flags give opposite meanings."""
    if call.loss is not None and call.score is not None:
        raise UsageError("--loss and --score name one column each, and one is read: give one.")
    flag, one, means = ("--loss", "bad", ("loss", "event"))
    if call.score is not None:
        flag, one, means = ("--score", "right", ("score", "success"))
    if metric not in ("error", *means):
        raise UsageError(
            f"{flag} names a column in which 1 is {one}: its metric is {means[0]!r} or "
            f"{means[1]!r}, not {metric!r}. Leave --metric out, or name the column with the flag "
            "that it belongs to."
        )


def _answered(
    call: Call, file: Path, beside: dict[str, Any], settings: Evaluation
) -> dict[str, Any]:
    """The predictor with its inputs and labels, and the other columns as arrays."""
    from nonvacuous.data.load import import_function

    if call.inputs == call.labels:
        raise UsageError(
            f"--inputs and --labels are one column, {call.labels!r}: the predictor would be told "
            "the labels.",
            instead={"--inputs": "COLUMN"},
        )
    finished = {"--loss": call.loss, "--score": call.score, "--where": settings.where}
    if given := [flag for flag, value in finished.items() if value]:
        raise UsageError(
            f"{given[0]} is about answers that are in the file already, and --predictor gives its "
            "own to every row: leave one of them out."
        )
    function: Any = import_function(str(call.predictor))
    if call.engine == "ray":
        from nonvacuous.evaluation.predicting import OnRay

        function = OnRay(function, address=call.address)
    names = {role: name for role, name in beside.items() if isinstance(name, str)}
    groups = {f"group:{name}": name for name in beside["groups"] or ()}
    columns = {"inputs": call.inputs, "labels": call.labels, **names, **groups}
    table = read_columns(file, columns, measured=settings.measured)
    arrays: dict[str, Any] = {role: table[role] for role in names}
    arrays["groups"] = {name: table[role] for role, name in groups.items()} or None
    return {"predictor": function, "data": (table["inputs"], table["labels"]), **arrays}


def _gates(report: Any, call: Call, doubt: str, worst: Any = None) -> int:
    """The exit code, with the reasons where a gate is closed: ``doubt``, or what a risk may be."""
    limits = (
        ("the", report.risk_upper, "--max-risk", call.max_risk),
        ("a group's", worst, "--max-group-risk", call.max_group_risk),
    )
    asked = [one for one in limits if one[-1] is not None]
    allowed = report.status == "valid" or (
        report.status == "conditional" and call.allow_conditional
    )
    failed = [doubt] if asked and not allowed else []
    for what, risk, flag, limit in asked:
        if risk > limit:
            failed.append(f"{what} risk may be {rounding.shown_up(risk)}, above {flag} {limit}")
    say(*(f"Gate: {message}." for message in failed))
    return TOO_RISKY if failed else DONE


#: The flags that --certified reads; any other would be given in vain.
_WITH_CERTIFIED = "certified unlabeled old predictions max_risk allow_conditional json"


def _inherited(file: Path, certified: Path, call: Call, settings: Evaluation) -> int:
    from nonvacuous.evaluation.compare import disagreement

    if call.old is None:
        raise UsageError("--certified needs --old, the column of the certified model's answers.")
    read = _WITH_CERTIFIED.split()
    for field in fields(Call):
        if field.name not in read and getattr(call, field.name) != field.default:
            raise UsageError(
                f"{dashed(field.name)} is not read where a promise is inherited with --certified: "
                "leave it out."
            )
    path = certified / "certificate.json" if certified.is_dir() else certified
    names = {"new": call.predictions, "old": call.old}
    columns = read_columns(file, names, settings.where)
    report = Certificate.load(path)
    result = disagreement(report, columns["new"], columns["old"])
    lines = [str(result)]
    if report.evaluation is not None and (selection := report.evaluation.settings.selection):
        lines.append(f"About examples{selection} alone, as the certificate is.")
    answered(asdict(result), lambda _: write_lines(*lines), as_json=call.json)
    return _gates(result, call, f"the certificate is {result.status} (--allow-conditional)")
