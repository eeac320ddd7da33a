"""``nonvacuous evaluate``: a test report that others can verify, from a file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.cli.exits import DONE, TOO_RISKY, UsageError
from nonvacuous.cli.flags import SWITCH, Json
from nonvacuous.cli.output import narration_console, write_certificate, write_json, write_next
from nonvacuous.evaluation_records import Evaluation


def evaluate(
    file: Path,
    /,
    *,
    settings: Annotated[Evaluation | None, Parameter(name="*")] = None,
    predictions: str = "prediction",
    labels: str = "label",
    loss: str | None = None,
    score: str | None = None,
    predictor: str | None = None,
    inputs: str = "inputs",
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    group: tuple[str, ...] = (),
    cluster: str | None = None,
    id: str | None = None,
    confidence: float = 0.95,
    unseen: Annotated[bool, SWITCH] = False,
    max_risk: float | None = None,
    max_group_risk: float | None = None,
    allow_conditional: Annotated[bool, SWITCH] = False,
    certified: Path | None = None,
    old: str | None = None,
    out: Path | None = None,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Promise how wrong a predictor is, from examples that it never saw.

    Parameters
    ----------
    file
        CSV, TSV, parquet, npz or JSON lines, one row per example; any size.
    predictions
        The column of predictions.
    labels
        The column of labels.
    loss
        A column of losses or events instead (with --metric loss or event).
    score
        A column of scores instead, 1 is right: the logs of evaluation harnesses.
    predictor
        package.module:function from a batch of inputs to answers, instead of a column of them.
    inputs
        With --predictor: the column of inputs.
    engine
        Where the predictor answers: here, or on a Ray cluster, with the same counts.
    address
        Of the Ray cluster; without it Ray finds or starts one.
    group
        A column of groups; may be repeated.
    cluster
        A column that says which rows belong together: each cluster is one draw.
    id
        A column that names the examples, to find repeated ones.
    confidence
        Of the promise, and of every other claim alone.
    unseen
        Your word that no row was used to train, tune or choose the predictor.
    max_risk
        Exit with code 3 unless the promise is at most this.
    max_group_risk
        Exit with code 3 unless no group can be worse than this.
    allow_conditional
        Let a conditional report pass the gates.
    certified
        A report of another model: FILE then has unlabeled inputs, and --predictions inherits it.
    old
        With --certified: the column of the certified model's answers.
    out
        Folder for certificate.json, the columns and report.html.
    force
        Replace what is in --out.
    """
    chosen = settings or Evaluation()
    if certified is not None:
        return _inherited(file, certified, predictions, old, max_risk, as_json=json)
    from nonvacuous.evaluation.evaluate import evaluate as test

    if out is not None and (out / "certificate.json").exists() and not force:
        raise UsageError(f"{out} holds a certificate already: choose another --out, or --force.")
    columns: dict[str, Any] = {"predictions": predictions, "labels": labels}
    if loss is not None or score is not None:
        columns = {"losses": loss or score}
        if chosen.metric == "error":
            metric = "success" if score is not None else "loss"
            chosen = chosen.model_copy(update={"metric": metric})
    if chosen.dataset == "examples":
        chosen = chosen.model_copy(update={"dataset": file.name})
    beside: dict[str, Any] = {"groups": list(group) or None, "clusters": cluster, "ids": id}
    if predictor is not None:
        columns, beside = _answered(predictor, file, inputs, labels, beside, engine, address)
    else:
        columns["data"] = file
    report = test(
        **columns,
        **beside,
        confidence=confidence,
        unseen=unseen,
        settings=chosen,
        folder=out,
    )
    write_certificate(report, as_json=json)
    if out is not None:
        from nonvacuous.report import write_report

        page = write_report(report, out / "report.html", run_folder=out)
        narration_console().print(f"The page of this report: {page}", soft_wrap=True)
        write_next(f"nonvacuous verify {out} --data {file}")
    return _gates(report, max_risk, max_group_risk, allow_conditional)


def _answered(
    spec: str,
    file: Path,
    inputs: str,
    labels: str,
    beside: dict[str, Any],
    engine: str,
    address: str | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The predictor with its inputs and labels, and the other columns as arrays."""
    from nonvacuous.data.functions import import_function
    from nonvacuous.evaluation.tables import read_columns

    function: Any = import_function(spec)
    if engine == "ray":
        from nonvacuous.evaluation.sharding import OnRay

        function = OnRay(function, address=address)
    names = {role: name for role, name in beside.items() if isinstance(name, str)}
    groups = {f"group:{name}": name for name in beside["groups"] or ()}
    table = read_columns(file, {"inputs": inputs, "labels": labels, **names, **groups})
    arrays: dict[str, Any] = {role: table[role] for role in names}
    if groups:
        arrays["groups"] = {name: table[role] for role, name in groups.items()}
    return {"predictor": function, "data": (table["inputs"], table["labels"])}, arrays


def _gates(report: Any, max_risk: float | None, max_group: float | None, lenient: bool) -> int:
    if max_risk is None and max_group is None:
        return DONE
    say = narration_console()
    allowed = ("valid", "conditional") if lenient else ("valid",)
    worst = report.evaluation.worst_group_upper
    if max_group is not None and worst is None:
        raise UsageError("--max-group-risk needs groups: name their column with --group.")
    failed = [
        message
        for wrong, message in (
            (report.status not in allowed, f"the report is {report.status}"),
            (
                max_risk is not None and report.risk_upper > max_risk,
                f"the risk may be {shown_up(report.risk_upper)}, above --max-risk {max_risk}",
            ),
            (
                max_group is not None and worst is not None and worst > max_group,
                f"a group's risk may be {shown_up(worst or 1.0)}, above --max-group-risk "
                f"{max_group}",
            ),
        )
        if wrong
    ]
    for message in failed:
        say.print(f"Gate: {message}.", soft_wrap=True)
    return TOO_RISKY if failed else DONE


def _inherited(
    file: Path, certified: Path, new: str, old: str | None, max_risk: float | None, *, as_json: bool
) -> int:
    from dataclasses import asdict

    from nonvacuous.certificate import Certificate
    from nonvacuous.cli.output import result_console
    from nonvacuous.evaluation.disagreement import disagreement
    from nonvacuous.evaluation.tables import read_columns

    if old is None:
        raise UsageError("--certified needs --old, the column of the certified model's answers.")
    path = certified / "certificate.json" if certified.is_dir() else certified
    columns = read_columns(file, {"new": new, "old": old})
    result = disagreement(Certificate.load(path), columns["new"], columns["old"])
    if as_json:
        write_json(asdict(result))
    else:
        result_console().print(str(result), soft_wrap=True)
    return TOO_RISKY if max_risk is not None and result.risk_upper > max_risk else DONE
