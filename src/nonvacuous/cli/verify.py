"""``nonvacuous verify``: somebody else's certificate, recomputed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from nonvacuous.cli import exits, flags, output
from nonvacuous.cli.exits import UsageError, again, not_finished
from nonvacuous.cli.narration import Narration
from nonvacuous.errors import BadInput, InvalidCertificate, NonvacuousError, Unrecognized
from nonvacuous.foreign import holds_run, read_bytes, run_settings
from nonvacuous.progress import stopped_by_term
from nonvacuous.report.wording import printable

if TYPE_CHECKING:
    from torch import nn

    from nonvacuous.certificate import Certificate
    from nonvacuous.data import Dataset
    from nonvacuous.verify import Verification


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Material:
    """The data and the network that a certificate is about.

    Args:
        data: The data, as for certify. A data set that the certificate calls by a built-in name is
            found by itself.
        classes: The names of the classes in order, as they were given to certify.
        model: The network, as for certify. Built-in ones are rebuilt by themselves; nothing that a
            certificate names is ever imported unless you name it here.
    """

    data: str | None = None
    data_dir: flags.DataDir = None
    classes: str | None = None
    model: str | None = None


def verify(
    certificate: Path,
    run_folder: Path | None = None,
    /,
    *,
    material: Material = Material(),  # noqa: B008
    trials: flags.OptionalWholeNumber = None,
    seed: flags.OptionalWholeNumber = None,
    ledger: Path | None = None,
    retrain: Annotated[bool, flags.SWITCH] = False,
    threads: flags.OptionalWholeNumber = None,
    json: flags.Json = False,
) -> int:
    """Recompute a certificate from its files, and the risk afresh where network and data are there.

    Args:
        certificate: certificate.json, or the run folder that contains it.
        run_folder: The folder of the run, if the certificate lies elsewhere.
        trials: Fresh independent trials of the randomized network; 20,000 by default.
        seed: Of the fresh trials; by default the system draws one that nobody knew, and it is
            shown.
        ledger: The ledger of attempts, if it does not lie beside the run folder.
        retrain: Repeat the training too, from the settings in the run folder, and compare what it
            ends in. Only this shows on which examples a learned prior was trained; it takes as long
            as the run did, on the processor, with as many threads as the run had. Where versions or
            processor are others and the numbers differ, they are not compared, and the exit code is
            5.
        threads: Processor threads for torch; its own choice by default.
    """
    path, folder = _paths(certificate, run_folder)
    flags.check_counts({"--trials": (trials, 1), "--seed": (seed, 0), "--threads": (threads, 1)})
    if ledger is not None and not ledger.is_file():
        raise UsageError(f"there is no ledger {ledger}; check the path.")

    import torch

    from nonvacuous.verify import verify as verify_certificate

    if threads is not None:
        torch.set_num_threads(threads)
    record, trouble = _record(path), None
    examples: Dataset | str | None = None
    network: nn.Module | None = None
    if record is not None:
        try:
            examples = _examples(record, folder, material)
            network = _network(record, examples, material)
        except UsageError:
            raise
        except NonvacuousError as error:
            # It matters less than what is wrong with the certificate itself, which is seen at once.
            trouble, examples, retrain = error, None, False
    with stopped_by_term(exits.Stopped), Narration() as narration:
        verification = verify_certificate(
            path,
            folder,
            model=network,
            data=examples,
            trials=trials,
            seed=seed,
            ledger=ledger,
            retrain=retrain,
            progress=narration,
        )
    if trouble is not None:
        if verification.passed:
            raise trouble
        output.say(f"Data and network are not compared: {trouble}")
    if json:
        output.write_json(
            {
                "source": verification.source,
                "passed": verification.passed,
                "verified": verification.verified,
                "audited": verification.audited or None,
                "status": verification.status,
                "checked": len(verification.findings) - len(verification.unchecked),
                "failed": [finding.field for finding in verification.failures],
                "findings": [asdict(finding) for finding in verification.findings],
            }
        )
    else:
        _write_text(verification, record)
    if verification.passed:
        if record is not None:
            _advise(verification, record)
        return exits.DONE if verification.verified else exits.NOT_VERIFIED
    first = verification.failures[0]
    output.write_error(f"{first.field}: {first.detail}", next_command=again({"--json": None}))
    return exits.VERIFICATION_FAILED


def _paths(certificate: Path, run_folder: Path | None) -> tuple[Path, Path | None]:
    """The certificate's file and the run folder, out of a file, a folder or both."""
    if certificate.is_dir():
        path = certificate / "certificate.json"
        folder: Path | None = certificate if run_folder is None else run_folder
    else:
        path, folder = certificate, run_folder
        if folder is None and certificate.name == "certificate.json":
            # Written by a run or a test beside its evidence; alone it would be checked half.
            from nonvacuous.evaluation.evaluate import EVIDENCE

            beside = certificate.parent
            folder = beside if holds_run(beside) or (beside / EVIDENCE).is_file() else None
    if not path.is_file():
        if holds_run(path.parent):
            raise not_finished(path.parent)
        raise UsageError(
            f"there is no file {path}; check the path.", instead="nonvacuous verify --help"
        )
    if run_folder is not None and not run_folder.is_dir():
        raise UsageError(f"there is no folder {run_folder}; check the path.")
    return path, folder


def _record(path: Path) -> Certificate | None:
    """The certificate for its names alone, although it may have been changed; None if unreadable.

    The verdict is verify's.
    """
    from nonvacuous.verification.numbers import Unsealed

    with suppress(InvalidCertificate, BadInput, UnicodeDecodeError):
        return Unsealed.from_json(read_bytes(path).decode())
    return None


def _network(
    certificate: Certificate, examples: Dataset | str | None, given: Material
) -> nn.Module | None:
    """The network named by --model."""
    if given.model is None:
        return None
    from nonvacuous.studies.networks import build_network, check_readable

    if certificate.evaluation is not None:
        raise UsageError("--model: a test is counted again from its columns alone. Leave it out.")
    if examples is None or isinstance(examples, str):
        raise UsageError("--model is measured on the data: give --data too.")
    network = build_network(given.model, examples.train, seed=certificate.seed)
    check_readable(network, examples.train, spec=given.model)
    return network


def _examples(
    certificate: Certificate, folder: Path | None, given: Material
) -> Dataset | str | None:
    """The data named by --data, or a built-in set that the certificate names and that is here."""
    from nonvacuous.data import NAMES, Dataset
    from nonvacuous.study.study import named_data

    if certificate.evaluation is not None:  # of a file of columns, which the certificate names
        if given.data is not None and not Path(given.data).exists():
            raise Unrecognized(f"there is no file {given.data}; check the path of --data.")
        return given.data
    name = certificate.data.name
    if given.data is not None:
        dataset = named_data(given.data, given.data_dir, given.classes)
    else:
        known = name.removesuffix(" (test)")
        settings = run_settings(folder) if folder else {}
        # A file of one's own may be called digits.npz: the run says where its data came from.
        if known not in NAMES or settings.get("source", known) not in (known, name):
            return None
        try:
            dataset = named_data(known, given.data_dir)
        except BadInput as error:
            output.say(f"The data are not compared: {error}.")
            return None
        output.say(f"Data: the built-in {known}, which the certificate names.")
    if dataset.test is not None and dataset.test.name == name:
        return Dataset(dataset.test)
    return dataset


def _advise(verification: Verification, certificate: Certificate) -> None:
    """Which flags would let more checks be made."""
    fields = {finding.field for finding in verification.unchecked}
    missing: dict[str, str | None] = {"RUN_FOLDER": None} if "artifacts" in fields else {}
    if "data" in fields:
        missing["--data"] = "SOURCE"
    own = certificate.evaluation is None and not certificate.model.built_in
    if "model" in fields or ("data" in fields and own):
        missing["--model"] = "MODULE:FUNCTION"
    if missing:
        output.write_next(again(missing))


_MARKS = {True: ("ok", "green"), False: ("FAILED", "bold red"), None: ("not checked", "yellow")}


def _write_text(verification: Verification, certificate: Certificate | None) -> None:
    console = output.result_console()
    for finding in verification.findings:
        word, style = _MARKS[finding.passed]
        where = f" [{finding.field}]" if finding.passed is False else ""
        detail = printable(f"{finding.name}: {finding.detail}{where}")
        console.print(Text.assemble((f"{word:>11}", style), f"  {detail}"), soft_wrap=True)
    output.write_lines(f"{verification.verdict}.")
    if verification.audited:
        output.write_lines(f"Note: {verification.audited}")
    if verification.passed and certificate is not None:
        says = "" if verification.verified else "The certificate says: "
        output.write_lines(f"{says}{certificate.lines()[0]}")
