"""Nothing in a run folder is ever executed, whatever it contains and whatever it names."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from nonvacuous.certificate import Certificate
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.verify import verify
from tests.audit import worlds

from .runs import evidence_of, make_run, resealed, write_run


class Bomb:
    """Pickled, it writes a file when it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.write_text, (self.target, "executed"))


def bombs(target: Path) -> dict[str, bytes]:
    stream = io.BytesIO()
    np.savez(stream, bound=np.array([Bomb(target)], dtype=object), prior=np.arange(2))
    return {
        "pickle": pickle.dumps(Bomb(target)),
        "npz with objects": stream.getvalue(),
    }


def test_the_bombs_are_real(tmp_path: Path) -> None:
    for name, content in bombs(tmp_path / "mark").items():
        (tmp_path / "mark").unlink(missing_ok=True)
        if name == "pickle":
            pickle.loads(content)
        else:
            np.load(io.BytesIO(content), allow_pickle=True)["bound"]
        assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", ["pickle", "npz with objects"])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("file", ["split.npz", "posterior.safetensors", "prior.safetensors"])
def test_a_bomb_in_place_of_evidence(tmp_path: Path, kind: str, listed: bool, file: str) -> None:
    genuine = make_run(tmp_path / "run")
    mark = tmp_path / "mark"
    (tmp_path / "run" / file).write_bytes(bombs(mark)[kind])
    digest = file_digest(tmp_path / "run" / file)
    # The forger seals the bomb's own digest, or lists nothing at all.
    artifacts = {**genuine.artifacts, file: digest} if listed else {}
    resealed(genuine, artifacts=artifacts).save(tmp_path / "run" / "certificate.json")
    result = verify(tmp_path / "run", data=worlds.examples(), trials=200)
    assert not mark.exists()
    assert not result.passed


MALICIOUS = "from pathlib import Path\nPath({mark!r}).write_text('executed')\n"


@pytest.mark.parametrize(
    "architecture", ["evil:build", "evil", "mlp:8 evil:build", "evil.sub:build", "os:getcwd", ":"]
)
def test_an_architecture_named_in_a_certificate_is_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    run, mark = tmp_path / "run", tmp_path / "mark"
    write_run(run, evidence_of("stochastic"), architecture=architecture)
    for name in ("evil.py", "conftest.py", "sitecustomize.py", "__init__.py", "mlp.py"):
        (run / name).write_text(MALICIOUS.format(mark=str(mark)), encoding="utf-8")
    monkeypatch.chdir(run)
    monkeypatch.syspath_prepend(str(run))
    before = set(sys.modules)
    result = verify(run, data=worlds.examples(), trials=200)
    assert not mark.exists()
    assert not {name for name in set(sys.modules) - before if name.startswith("evil")}
    if architecture.startswith("mlp"):
        assert not result.passed
    else:
        assert any("is ever imported" in finding.detail for finding in result.unchecked)


def test_data_named_in_a_certificate_are_never_loaded(tmp_path: Path) -> None:
    genuine = make_run(tmp_path)
    data = genuine.data.model_copy(update={"name": "evil:load"})
    from nonvacuous.rules.arithmetic import statement_of

    draft = resealed(genuine, data=data)
    named = resealed(draft, statement=statement_of(draft))
    assert isinstance(named, Certificate)
    result = verify(named)
    assert result.passed
    assert any(finding.field == "data" and finding.passed is None for finding in result.findings)
