"""verify: somebody else's certificate, recomputed. Nothing in a run folder is ever executed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.verifying import check_test
from nonvacuous.methods import METHODS, HeldOut
from nonvacuous.progress import Progress
from nonvacuous.rules.attempts import ledger_beside
from nonvacuous.verification.audited import added_since, audited_note, skip_newer
from nonvacuous.verification.checking import skip_symmetries
from nonvacuous.verification.examples import check_examples
from nonvacuous.verification.findings import Collector, Finding, Verification
from nonvacuous.verification.inquiry import TRIALS, Inquiry
from nonvacuous.verification.numbers import check_numbers, check_seal, read
from nonvacuous.verification.retraining import check_training
from nonvacuous.verification.run_folder import check_attempts, check_folder, check_settings
from nonvacuous.verification.starting import check_named_start

__all__ = ["Finding", "Verification", "verify"]


def verify(
    certificate: Certificate | str | os.PathLike[str],
    run_folder: str | os.PathLike[str] | None = None,
    *,
    model: Any = None,
    data: Any = None,
    trials: int | None = None,
    seed: int | None = None,
    ledger: str | os.PathLike[str] | None = None,
    retrain: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Recompute everything that can be recomputed from what is given.

    certificate   a certificate, its file, or the run folder that holds certificate.json
    run_folder    the folder of the run: its files are compared with their digests, the KL is
                  recomputed from the stored tensors, n from the stored split
    model         the network: a torch module, a function that builds one, or a name. Without it,
                  built-in architectures are rebuilt from the name in the certificate; other
                  names in a certificate are never imported
    data          the examples: anything that :func:`nonvacuous.data.load` or ``Examples.of`` takes
    trials        how many fresh independent trials of the randomized network (default 20,000);
                  these need run folder, network and data
    seed          of the fresh trials; by default one that the system draws, shown in the result
    ledger        the ledger of attempts, if it does not lie beside the run folder
    retrain       repeat the training too, from the settings in the run folder, and compare what it
                  ends in: the one way to see that a learned prior was trained on the examples that
                  it names. Takes as long as the run did; needs run folder and data, and a network
                  that is built in, or given as ``model`` with its weights before training

    A certificate of a test needs no network: run_folder or data is the folder, the file or the
    table of the columns that were counted; the ledger beside the folder is read if it is there.

    The result lists one finding for every question; ``raise_if_failed()`` turns the first failure
    into an :class:`~nonvacuous.errors.InvalidCertificate`. ``passed`` says that nothing which was
    checked is wrong; ``verified`` that everything was checked which ties the number to network,
    prior and data, and that takes the run folder and the data. A sound certificate fails the fresh
    trials with probability at most 0.000002; everything else is exact.
    """
    wanted = TRIALS if trials is None else checks.count("trials", trials, minimum=1)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise BadInput(f"seed must be a whole number from 0 up, got {seed!r}.")
    if not isinstance(certificate, Certificate) and Path(certificate).is_dir():
        run_folder = certificate if run_folder is None else run_folder
        certificate = Path(certificate) / "certificate.json"
    findings, named = Collector(), None if ledger is None else Path(ledger)
    source = "the certificate" if isinstance(certificate, Certificate) else str(certificate)
    reading = read(certificate, findings)
    if reading is None:
        return Verification(source, tuple(findings.findings))
    parsed = reading.certificate
    if seed is not None and seed == parsed.empirical.seed:
        raise BadInput(
            f"seed {seed} is the one the certificate was sampled with; fresh trials need another."
        )
    if parsed.evaluation is not None:
        columns = isinstance(run_folder, str | os.PathLike) and Path(run_folder)
        if named is None and columns and columns.is_dir():
            named = ledger_beside(columns)
        check_test(parsed, run_folder if data is None else data, findings, ledger=named)
        check_seal(reading, findings)
        return Verification(source, tuple(findings.findings), parsed.status)
    if run_folder is not None and not isinstance(run_folder, str | os.PathLike):
        kind = type(run_folder).__name__
        raise BadInput(f"run_folder is a path, not {kind}; examples are given as data=...")
    method = METHODS.get(parsed.mode, HeldOut)
    checking, folder = method.checking(), None if run_folder is None else Path(run_folder)
    inquiry = Inquiry(parsed, folder, model, wanted, seed, progress, findings=findings.findings)
    check_numbers(inquiry, checking)
    skip_newer(inquiry)
    check_seal(reading, findings)
    if folder is None:
        findings.skip("the files are untouched", "artifacts", "no run folder was given.")
    else:
        check_folder(inquiry, checking)
        check_settings(inquiry, checking)
        check_attempts(inquiry, named)
    if data is None:
        findings.skip("the examples are the recorded ones", "data", "no data were given.")
        skip_symmetries(inquiry, "without data the network is not at hand.")
    else:
        inquiry.examples = check_examples(inquiry, data)
        if inquiry.examples is not None:
            check_named_start(inquiry, checking.evidence(parsed))
            checking.measure(inquiry)
        else:
            skip_symmetries(inquiry, "the examples are not at hand.")
    if retrain:
        check_training(inquiry, method)
    note = audited_note(parsed) if added_since(parsed) else ""
    return Verification(source, tuple(findings.findings), parsed.status, note)
