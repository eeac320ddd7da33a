"""A post-hoc run with its columns and symmetries: recomputed in full, and every forgery found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonvacuous.certificate import Certificate
from nonvacuous.certification.columns import accounting_of, paper_accounting
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.data.files import write_npz
from nonvacuous.rules.arithmetic import complexity_nats, recompute_bound, statement_of
from nonvacuous.rules.digests import array_digest
from nonvacuous.verify import Verification, verify
from tests.attacks.forging import forged, part
from tests.audit import worlds

from .runs import failed_fields, post_hoc_run, resealed

SAVINGS = "symmetries save what is recorded"
COLUMNS = "the rescaling columns follow from the stored tensors"


@pytest.fixture(scope="module", params=["zero-mean", "initialization"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    certificate = post_hoc_run(folder, prior=request.param)
    assert certificate.status == "valid", str(certificate)
    return folder


@pytest.fixture
def run(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "run"))


def checked(folder: Path, **options: Any) -> Verification:
    return verify(folder, data=worlds.examples(), trials=200, **options)


def test_everything_is_recomputed(run: Path) -> None:
    result = checked(run)
    assert result.passed, str(result)
    passed = {finding.name for finding in result.findings if finding.passed}
    assert {SAVINGS, COLUMNS, "the rescaling is the recorded one"} <= passed


@pytest.mark.parametrize("given", ["nothing", "no folder", "foreign network"])
def test_what_cannot_be_recomputed_is_said(run: Path, given: str) -> None:
    certificate = Certificate.load(run / "certificate.json")
    if given == "nothing":
        result = verify(run)
    elif given == "no folder":
        result = verify(certificate, data=worlds.examples(), trials=200)
    else:
        forged(
            run,
            {"architecture": '"mine:net"'},
            **part(certificate, "model", architecture="mine:net"),
        )
        result = checked(run)
    assert result.passed, str(result)
    assert {SAVINGS, COLUMNS} <= {finding.name for finding in result.unchecked}


def test_a_larger_saving_is_found(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.complexity is not None
    first, *others = genuine.complexity.symmetries
    more = first.model_copy(update={"nats": first.nats * (1 + 1e-6)})
    forged = repriced(genuine, (more, *others))
    forged.save(run / "certificate.json")
    assert verify(run).passed, str(verify(run))
    assert failed_fields(checked(run))[0] == "complexity.symmetries"


def test_a_flattering_comparison_is_found(run: Path) -> None:
    """A baseline made worse, with bounds that follow from it: consistent, and not true."""
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.rescaling is not None
    columns = list(genuine.rescaling.columns)
    worse = columns[0].model_copy(update={"kl_nats": 1.01 * columns[0].kl_nats})
    accounting = accounting_of(genuine.bound, genuine.budget)
    follows = accounting.bounds(worse.kl_nats, worse.charge_nats)
    columns[0] = worse.model_copy(update=follows)
    forge(run, genuine, columns=tuple(columns))
    assert verify(run).passed
    assert failed_fields(checked(run)) == ["rescaling.columns.0.kl_nats"]


def test_the_papers_accounting_is_recomputed_and_is_no_promise(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.rescaling is not None and genuine.rescaling.paper is not None
    paper = genuine.rescaling.paper
    assert paper.prior_scale == 1.0 and paper.kl_after <= paper.kl_before
    excess = paper.rescaled - genuine.empirical.mean
    assert excess**2 * 2 * genuine.data.bound.examples == pytest.approx(paper.kl_after)
    # A better formula, and a KL that the formula follows from: only the stored tensors tell.
    forge(run, genuine, paper=paper.model_copy(update={"rescaled": 0.9 * paper.rescaled}))
    assert failed_fields(verify(run)) == ["rescaling.paper"]
    less = paper_accounting(
        (paper.kl_before, 0.5 * paper.kl_after), genuine.empirical, genuine.bound
    )
    forge(run, genuine, paper=less)
    assert verify(run).passed
    assert failed_fields(checked(run)) == ["rescaling.paper.kl_after"]
    # Without the columns nobody would recompute it.
    forge(run, genuine, paper=less, columns=())
    assert failed_fields(checked(run)) == ["rescaling.paper"]
    # Certificates that were written without it are as they were.
    forge(run, genuine, paper=None)
    assert '"paper"' not in (run / "certificate.json").read_text()
    assert checked(run).passed


@pytest.mark.slow_if("initialization")
def test_a_column_left_out_or_renamed_is_found(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.rescaling is not None
    columns = genuine.rescaling.columns
    forge(run, genuine, columns=columns[1:])
    assert failed_fields(checked(run)) == ["rescaling.columns"]
    renamed = columns[1].model_copy(update={"name": "the state of the art"})
    forge(run, genuine, columns=(columns[0], renamed, *columns[2:]))
    assert failed_fields(checked(run)) == ["rescaling.columns.1.name"]


def test_a_worse_start_is_found(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.rescaling is not None
    forge(run, genuine, kl_before=2 * genuine.rescaling.kl_before)
    assert failed_fields(checked(run)) == ["rescaling.kl_before"]


@pytest.mark.slow
def test_other_scales_are_found(run: Path) -> None:
    """Scales that say the network came in a worse gauge than it did."""
    genuine = Certificate.load(run / "certificate.json")
    with np.load(run / "log_scales.npz") as stored:
        scales = stored["log_scales"] + 0.5
    write_npz(run / "log_scales.npz", {"log_scales": scales})
    assert failed_fields(checked(run))[0] == "artifacts.log_scales.npz"
    listed = resealed(
        genuine,
        artifacts={**genuine.artifacts, "log_scales.npz": file_digest(run / "log_scales.npz")},
    )
    listed.save(run / "certificate.json")
    assert failed_fields(checked(run)) == ["rescaling.log_scales_digest"]
    assert listed.rescaling is not None
    digest = array_digest(scales)
    forge(run, listed, log_scales_digest=digest)
    assert failed_fields(checked(run))[0].startswith("rescaling.columns.")


def forge(run: Path, genuine: Certificate, **changes: Any) -> None:
    assert genuine.rescaling is not None
    record = genuine.rescaling.model_copy(update=changes)
    resealed(genuine, rescaling=record).save(run / "certificate.json")


def repriced(genuine: Certificate, savings: tuple[Any, ...]) -> Certificate:
    """The certificate that these savings would give, columns included."""
    assert genuine.complexity is not None and genuine.rescaling is not None
    terms = genuine.complexity.terms
    nats = complexity_nats(terms, savings)
    shifts = tuple(saving for saving in savings if saving.symmetry == "translation")
    bound = genuine.bound.model_copy(update={"inputs": {**genuine.bound.inputs, "kl_nats": nats}})
    accounting = accounting_of(bound, genuine.budget)
    columns = []
    for column in genuine.rescaling.columns:
        if column.way in ("shift of the scores", "order of the units"):
            kl_nats = nats if column.certified else complexity_nats(terms, shifts)
            column = column.model_copy(update={"kl_nats": kl_nats})
        update = accounting.bounds(column.kl_nats, column.charge_nats)
        if column.certified:
            update["kl_inverse"] = recompute_bound(bound)
        columns.append(column.model_copy(update=update))
    draft = resealed(
        genuine,
        complexity=genuine.complexity.model_copy(update={"symmetries": savings, "kl_nats": nats}),
        bound=bound,
        risk_upper=recompute_bound(bound),
        rescaling=genuine.rescaling.model_copy(update={"columns": tuple(columns)}),
    )
    return resealed(draft, statement=statement_of(draft))
