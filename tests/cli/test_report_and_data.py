"""``nonvacuous report`` and ``nonvacuous data``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nonvacuous.cli import exits
from tests.cli.conftest import blobs


@pytest.mark.slow
def test_the_page_is_written_again(place, invoke, quick):
    assert invoke(*quick("--out", "r")).code == exits.DONE
    assert not (place / "r/report.html").exists()
    done = invoke("report", "r")
    assert done.code == exits.DONE
    assert done.out == "r/report.html\n"
    first = (place / "r/report.html").read_text()
    assert "nonvacuous verify r" in first
    as_json = invoke("report", "r", "--json")
    assert json.loads(as_json.out) == {"report": "r/report.html"}
    assert (place / "r/report.html").read_text() == first


@pytest.mark.slow
def test_the_page_survives_without_history(place, invoke, quick):
    assert invoke(*quick("--out", "r")).code == exits.DONE
    (place / "r/events.jsonl").unlink()
    assert invoke("report", "r").code == exits.DONE


@pytest.mark.parametrize(
    ("folder", "message"),
    [("absent", "no certificate.json"), ("unfinished", "--resume"), ("edited", "digest")],
)
def test_folders_without_a_good_certificate(place, invoke, quick, folder, message):
    assert invoke(*quick("--out", "edited")).code == exits.DONE
    path = place / "edited/certificate.json"
    path.write_text(path.read_text().replace('"classes": 3', '"classes": 4'))
    (place / "unfinished").mkdir()
    record = "mode = 1\nsplit = 1\nexamples = 1\nweights = 1\n"
    (place / "unfinished/config.toml").write_text(record)
    done = invoke("report", folder)
    assert done.code == (exits.USAGE if folder == "absent" else exits.FAILED)
    assert message in done.error
    assert done.next.startswith("nonvacuous ")
    assert not (place / folder / "report.html").exists()


def test_a_data_set_is_described(place, invoke):
    done = invoke("data", "x.npz")
    assert done.code == exits.DONE
    assert "x: 3 classes, inputs of 12" in done.out
    assert "240" in done.out
    assert done.next == "nonvacuous certify --data x.npz"
    elsewhere = ["--data-dir", "my sets"]
    assert invoke("data", "x.npz", *elsewhere).next.endswith("x.npz --data-dir 'my sets'")
    looked = invoke("inspect", "--model", "mlp:4", "--data", "x.npz", *elsewhere, "--svg", "n.svg")
    assert looked.next.endswith("--model mlp:4 --data-dir 'my sets'")
    record = json.loads(invoke("data", "x.npz", "--json").out)
    assert record["train"]["examples"] == 240


def test_leaks_between_the_parts_are_told(place, invoke):
    inputs, labels = blobs()
    np.savez(
        "leak.npz",
        x_train=inputs,
        y_train=labels,
        x_test=inputs[:7],
        y_test=labels[:7],
        class_names=np.array(["<b>", "\x1b[31mred", "c"]),
    )
    done = invoke("data", "leak.npz")
    assert "7 test inputs also occur in training" in done.out
    assert "\x1b" not in done.out
    assert "<b>" in done.out


def test_digits_need_no_files(place, invoke):
    done = invoke("data", "digits")
    assert done.code == exits.DONE
    assert "1,437" in done.out
