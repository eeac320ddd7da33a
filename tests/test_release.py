"""What a release promises: versions agree, old certificates are read, types are checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mypy import api

import nonvacuous as nv
from tests.test_house import script

ROOT = Path(__file__).parents[1]
FIRST_FORMAT = ROOT / "tests/golden/first-format"
KEPT = sorted((ROOT / "tests/golden/certificates").glob("*.json"))
USER = """
import nonvacuous as nv

report = nv.evaluate(predictions=[0, 1], labels=[0, 1], unseen=True)
reveal_type(report)
reveal_type(report.risk_upper)
reveal_type(nv.plan(target=0.05, risk=0.03).examples)
reveal_type(nv.bounds.holdout(errors=1, examples=10, failure=0.05))
reveal_type(nv.verify("certificate.json").passed)
nv.certify(lambda: None, "x.csv", method=nv.HeldOut(unseen=True), confidence="high")
nv.bounds.holdout(errors="three", examples=10, failure=0.05)
nv.evalute
"""
#: The inside of torch takes as long to read as all the rest, and no type of ours is in it.
INSIDE = (
    *("_decomp", "_dynamo", "_export", "_functorch", "_higher_order_ops", "_inductor", "_prims"),
    *("_refs", "_subclasses", "ao", "cuda", "distributed", "export", "fx", "jit", "masked"),
    *("onnx", "package", "quantization", "sparse", "testing", "xpu"),
)
OTHERS = (
    *("duckdb", "joblib", "lightning", "mpmath", "networkx"),
    *("pyarrow", "ray", "scipy", "sklearn", "transformers"),
)
SETTINGS = f"""
[mypy]
follow_imports = silent
[mypy-{",".join(f"torch.{name}.*" for name in INSIDE)}]
follow_imports = skip
[mypy-{",".join(f"{name}.*" for name in OTHERS)}]
ignore_missing_imports = True
"""


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_certificates_of_earlier_versions_are_read_and_verified(file: Path, tmp_path: Path) -> None:
    certificate = nv.Certificate.load(file)
    assert nv.verify(file).passed
    certificate.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


def test_certificates_are_kept() -> None:
    assert {file.stem for file in KEPT} >= {"evaluate", "posterior"}


def test_a_run_of_the_first_format_is_verified() -> None:
    """Made, and finished, before settings had a format; nothing about it is found false."""
    result = nv.verify(FIRST_FORMAT / "finished", data="digits", trials=200)
    assert result.passed, str(result)
    assert {finding.name for finding in result.findings if finding.passed} >= {
        "nothing was changed after sealing",
        "the file is untouched",
        "the KL follows from the stored tensors",
        "the recorded trials give the recorded errors",
        "the audit finds again what it found",
    }


def test_a_run_that_was_killed_in_the_first_format_is_not_mixed_with_this_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIRST_FORMAT / "killed", folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    method = nv.Posterior(
        trials=500,
        plain_training=nv.PlainTraining(epochs=2),
        training=nv.PosteriorTraining(epochs=200),
    )
    network = nv.models.build("mlp:4", (1, 8, 8), 10, seed=1)
    with pytest.raises(nv.errors.BadInput, match="another version of nonvacuous began"):
        nv.certify(network, "digits", method=method, seed=1, folder=folder, resume=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_version_changelog_and_citation_agree(tmp_path: Path) -> None:
    release = script("check-release")
    assert release.disagreements() == []
    for name in ("CHANGELOG.md", "CITATION.cff", "src/nonvacuous/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CITATION.cff").write_text("version: 9.9.9\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.1\n")
    assert len(release.disagreements(tmp_path)) == 3


@pytest.mark.slow
def test_a_type_checker_sees_what_a_user_does(tmp_path: Path, monkeypatch) -> None:
    user, settings = tmp_path / "user.py", tmp_path / "mypy.ini"
    user.write_text(USER)
    settings.write_text(SETTINGS)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    # A cache of its own: that of `make lint` is made with other settings, and would not be used.
    cache = ROOT / ".mypy_cache/users"
    said, _, code = api.run([f"--config-file={settings}", f"--cache-dir={cache}", str(user)])
    assert code == 1
    for line in (
        'Revealed type is "nonvacuous.certificate.Certificate"',
        'Revealed type is "float"',
        'Revealed type is "int"',
        'Revealed type is "bool"',
        "expected Module | Callable[[], Module]",
        'Argument "confidence" to "certify" has incompatible type "str"; expected "float"',
        'Argument "errors" to "holdout" has incompatible type "str"; expected "int"',
        'Module has no attribute "evalute"',
    ):
        assert line in said, said
    assert said.count("error:") == 5, said  # two of them about the function that builds nothing
