"""``nonvacuous verify``: what was checked, what was not and why, and exit codes 4 and 5."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.models import build
from tests.cli.conftest import blobs


@pytest.fixture
def run(place, once, quick):
    """A finished run of mlp:8 on x.npz, in the folder r."""
    assert once(*quick("--out", "r")).code == exits.DONE
    return place / "r"


def test_a_folder_and_its_data(run, invoke):
    done = invoke("verify", "r", "--data", "x.npz", "--trials", "2000")
    assert done.code == exits.DONE, done.out
    assert "FAILED" not in done.out
    assert "the risk holds in fresh trials" in done.out
    assert done.out.splitlines()[-2].startswith("VERIFIED: ")
    assert done.out.splitlines()[-1].startswith("VALID: ")


def test_without_data_it_says_what_was_not_checked_and_how_to(run, invoke):
    done = invoke("verify", "r")
    assert done.code == exits.NOT_VERIFIED
    unchecked = [line for line in done.out.splitlines() if line.startswith("not checked")]
    assert any("no data were given" in line for line in unchecked)
    assert done.next == "nonvacuous verify r --data SOURCE"
    verdict, says = done.out.splitlines()[-2:]
    assert verdict.startswith("CONSISTENT, not verified: ") and verdict.endswith("give the data.")
    assert says.startswith("The certificate says: VALID")


def test_a_certificate_beside_its_run_is_checked_with_it(run, place, invoke):
    inside = invoke("verify", "r/certificate.json")
    assert "split.npz is untouched" in inside.out
    shutil.copy(run / "certificate.json", place / "mine.json")
    alone = invoke("verify", "mine.json")
    assert alone.code == exits.NOT_VERIFIED
    assert "no run folder was given" in alone.out
    assert alone.out.splitlines()[-2].startswith("CONSISTENT, not verified: ")
    assert alone.out.splitlines()[-2].endswith("give the run folder and the data.")
    assert alone.next == "nonvacuous verify mine.json RUN_FOLDER --data SOURCE"
    both = invoke("verify", "mine.json", "r")
    assert "split.npz is untouched" in both.out


@pytest.mark.parametrize(
    ("find", "replace", "field"),
    [
        ('"confidence": 0.95', '"confidence": 0.99', "confidence"),
        ('"seed": 0,', '"seed": 1,', "empirical.seed"),
        ('"name": "x"', '"name": "y"', "statement"),
        ('"classes": 3', '"classes": 4', "digest"),
    ],
)
def test_a_forged_certificate_fails_with_the_field(run, invoke, find, replace, field):
    path = run / "certificate.json"
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, replace, 1))
    done = invoke("verify", "r")
    assert done.code == exits.VERIFICATION_FAILED
    assert f"[{field}" in done.out
    assert "NOT VERIFIED" in done.out
    assert done.error
    assert done.next == "nonvacuous verify r --json"


def test_changed_evidence_is_named(run, invoke):
    content = bytearray((run / "posterior.safetensors").read_bytes())
    content[-1] ^= 1
    (run / "posterior.safetensors").write_bytes(bytes(content))
    done = invoke("verify", "r", "--json")
    assert done.code == exits.VERIFICATION_FAILED
    record = json.loads(done.out)
    assert record["passed"] is False
    assert record["failed"] == ["artifacts.posterior.safetensors"]
    assert "artifacts.posterior.safetensors" in done.error


def test_removed_evidence_fails(run, invoke):
    (run / "prior.safetensors").unlink()
    done = invoke("verify", "r", "--data", "x.npz")
    assert done.code == exits.VERIFICATION_FAILED
    assert "prior.safetensors" in done.error


def test_a_changed_certificate_fails_whatever_the_data_are(run, invoke):
    text = (run / "certificate.json").read_text()
    changed = text.replace('"confidence": 0.95', '"confidence": 0.99')
    assert changed != text
    (run / "certificate.json").write_text(changed)
    done = invoke("verify", "r", "--data", "absent.npz")
    assert done.code == exits.VERIFICATION_FAILED
    assert "not compared" in done.err and "absent.npz" in done.err


def test_json_says_whether_the_evidence_was_seen(run, invoke):
    alone = json.loads(invoke("verify", "r", "--json").out)
    assert alone["passed"] is True and alone["verified"] is False
    assert any(finding["needed"] for finding in alone["findings"])
    full = json.loads(invoke("verify", "r", "--data", "x.npz", "--trials", "500", "--json").out)
    assert full["passed"] is True and full["verified"] is True


def test_other_data_fail(run, invoke):
    inputs, labels = blobs(seed=1)
    np.savez("other.npz", inputs=inputs, labels=labels)
    done = invoke("verify", "r", "--data", "other.npz")
    assert done.code == exits.VERIFICATION_FAILED
    assert "data.bound.content_digest" in done.error


def test_an_own_model_is_only_imported_when_named(place, invoke, quick):
    assert invoke(*quick("--out", "r", model="my_model:build")).code == exits.DONE
    (place / "my_model.py").write_text("raise SystemExit('imported')")
    sys.modules.pop("my_model", None)
    unnamed = invoke("verify", "r", "--data", "x.npz")
    assert unnamed.code == exits.NOT_VERIFIED
    assert "ever imported" in unnamed.out
    assert "CONSISTENT, not verified" in unnamed.out and "give the network." in unnamed.out
    assert unnamed.next == "nonvacuous verify r --data x.npz --model MODULE:FUNCTION"


def test_an_own_model_is_measured_when_named(place, invoke, quick):
    assert invoke(*quick("--out", "r", model="my_model:build")).code == exits.DONE
    done = invoke("verify", "r", "--data", "x.npz", "--model", "my_model:build", "--json")
    assert done.code == exits.DONE, done.out
    names = {f["name"]: f["passed"] for f in json.loads(done.out)["findings"]}
    assert names["the risk holds in fresh trials"] is True
    wrong = invoke("verify", "r", "--data", "x.npz", "--model", "my_model:narrow")
    assert wrong.code == exits.FAILED
    assert "(12,)" in wrong.error


def test_digits_are_found_by_their_name(place, invoke):
    save_file(build("mlp:8", (1, 8, 8), 10, seed=0).state_dict(), "w.safetensors")
    words = ("certify", "--data", "digits", "--model", "mlp:8", "--weights", "w.safetensors")
    assert invoke(*words, "--mode", "holdout", "--no-report", "--out", "r").code == exits.DONE
    done = invoke("verify", "r")
    assert done.code == exits.DONE, done.out
    assert "the built-in digits" in done.err
    assert "the errors are those recorded: counted again" in done.out


def test_a_file_called_like_a_built_in_set_is_not_taken_for_it(place, invoke, quick):
    (place / "x.npz").rename(place / "digits.npz")
    assert invoke(*quick("--out", "r", data="digits.npz")).code == exits.DONE
    done = invoke("verify", "r")
    assert done.code == exits.NOT_VERIFIED, done.out
    assert "built-in" not in done.err


def test_data_that_are_not_here_are_told(place, invoke, quick):
    (place / "x.npz").rename(place / "mnist.npz")
    assert invoke(*quick("--out", "r", data="mnist.npz")).code == exits.DONE
    shutil.move("r/certificate.json", "c.json")
    done = invoke("verify", "c.json")
    assert done.code == exits.NOT_VERIFIED
    assert "not compared: the files of mnist were not found" in done.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent"], exits.USAGE, "no file absent"),
        (["."], exits.USAGE, "no file certificate.json"),
        (["unfinished"], exits.FAILED, "not finished. Start the same certify command again with"),
        (["r", "absent"], exits.USAGE, "no folder absent"),
        (["r", "--trials", "0"], exits.USAGE, "--trials"),
        (["r", "--seed", "-1"], exits.USAGE, "--seed"),
        (["r", "--model", "mlp:8"], exits.USAGE, "--data"),
        (["r", "--data", "absent.npz"], exits.USAGE, "absent.npz"),
        ([], exits.USAGE, "CERTIFICATE"),
    ],
)
def test_mistakes(run, place, invoke, words, code, message):
    (place / "unfinished").mkdir()
    record = "mode = 1\npredictor = 1\nsplit = 1\nexamples = 1\nweights = 1\n"
    (place / "unfinished/config.toml").write_text(record)
    done = invoke("verify", *words)
    assert done.code == code
    assert message in done.error
    assert done.next.startswith("nonvacuous ")


@pytest.mark.parametrize("content", ["", "{}", "[1", "\x00\x01", '{"a": 1, "a": 2}', "<script>"])
def test_what_is_no_certificate_fails_verification(place, invoke, content):
    (place / "c.json").write_text(content)
    done = invoke("verify", "c.json")
    assert done.code == exits.VERIFICATION_FAILED
    assert "FAILED  it can be read" in done.out


def test_a_page_leads_to_its_folder(place, invoke):
    (place / "report.html").write_text("<html></html>")
    assert "name the folder" in invoke("verify", "report.html").out
