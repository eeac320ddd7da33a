"""``nonvacuous certify``: what a person gets, from the first line to the files."""

from __future__ import annotations

import json
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nonvacuous.certificate import Certificate
from nonvacuous.cli import exits
from nonvacuous.data import load
from nonvacuous.models import build
from nonvacuous.studies.networks import build_network
from nonvacuous.study.settings import default_folder
from nonvacuous.training.objectives import OBJECTIVES
from nonvacuous.training_settings import PosteriorTraining


def test_four_lines_on_stdout_and_the_rest_on_stderr(place, invoke, quick):
    done = invoke(*quick())
    assert done.code == exits.DONE, done.err
    certificate = Certificate.load(place / "runs/x-mlp-8-seed0/certificate.json")
    assert done.out == f"{certificate}\n"
    assert len(done.out.splitlines()) == 4
    assert certificate.status == "valid"
    assert not certificate.is_vacuous
    assert "seed 0" in done.err
    assert "run folder runs/x-mlp-8-seed0" in done.err
    assert done.next == "nonvacuous verify runs/x-mlp-8-seed0 --data x.npz"
    assert not (place / "runs/x-mlp-8-seed0/report.html").exists()
    assert "report.html" not in done.err


SHORTER = ("--epochs", "2", "--prior-epochs", "10", "--trials", "2000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "promise"), [(SHORTER, 0.15), pytest.param((), 0.08, marks=pytest.mark.nightly)]
)
def test_the_recommended_settings_certify_digits(place, invoke, words, promise):
    """The shortest call is the recommended one."""
    done = invoke("certify", "--data", "digits", *words)
    assert done.code == exits.DONE, done.err
    folder = place / "runs/digits-cnn-32-64-seed0"
    certificate = Certificate.load(folder / "certificate.json")
    assert certificate.status == "valid"
    assert certificate.risk_upper < promise
    assert certificate.held_out_twin is not None
    assert (folder / "report.html").exists()
    verified = invoke("verify", folder)
    assert verified.code == exits.DONE, verified.out
    assert "the risk holds in fresh trials" in verified.out


def test_phases_are_told_once_each_where_there_is_no_terminal(place, invoke, quick):
    lines = invoke(*quick()).err.splitlines()
    phases = [line for line in lines if line.endswith(" ...")]
    assert phases == ["training the prior ...", "training the posterior ...", "counting errors ..."]
    assert not any("\x1b" in line or "\r" in line for line in lines)


@pytest.mark.slow
def test_the_report_is_written_by_default(place, invoke, quick):
    done = invoke(*quick("--out", "r", no_report=None))
    assert done.code == exits.DONE
    page = (place / "r/report.html").read_text()
    assert "Report:     r/report.html" in done.err
    assert "nonvacuous verify r" in page


def test_json_is_the_certificate_file(place, invoke, quick):
    done = invoke(*quick(), "--out", "r", "--json")
    assert done.out == (place / "r/certificate.json").read_text()
    assert json.loads(done.out)["seed"] == 0


@pytest.mark.slow
def test_another_seed_is_another_run(place, invoke, quick):
    first = json.loads(invoke(*quick(), "--json").out)
    second = json.loads(invoke(*quick(), "--json", "--seed", "7").out)
    again = json.loads(invoke(*quick(), "--json", "--out", "again/r").out)
    assert first["posterior"]["digest"] != second["posterior"]["digest"]
    assert first == again
    assert (place / "runs/x-mlp-8-seed7").is_dir()


@pytest.mark.slow
def test_an_own_model_in_a_file_of_the_current_folder(place, invoke, quick):
    done = invoke(*quick("--json", model="my_model:build"))
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["model"]["architecture"] == "my_model:build"
    assert record["model"]["parameters"] == 12 * 16 + 16 + 16 * 3 + 3
    folder = "runs/x-my_model-build-seed0"
    assert (place / folder / "certificate.json").exists()
    assert done.next == f"nonvacuous verify {folder} --data x.npz --model my_model:build"
    # The command it names checks everything there is to check.
    checked = invoke(*done.next.split()[1:])
    assert checked.code == exits.DONE
    assert "ok  the risk holds in fresh trials" in checked.out


def test_own_data_from_a_function(place, invoke, quick):
    done = invoke(*quick("--out", "r", "--json", data="my_model:load"))
    assert done.code == exits.DONE, done.err
    assert json.loads(done.out)["data"]["name"] == "my_model:load"


def test_the_initial_weights_follow_the_seed_and_leave_torch_alone(place):
    examples = load("x.npz").train
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two, other = (build_network("my_model:build", examples, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one[1].weight, two[1].weight)
    assert not torch.equal(one[1].weight, other[1].weight)
    built = build_network("mlp:8", examples, seed=4)
    expected = build("mlp:8", (12,), 3, seed=4)
    assert torch.equal(built.layers[0].weight, expected.layers[0].weight)


@pytest.fixture
def trained(place):
    """w.safetensors, trained on x.npz from start.safetensors = mlp:8 at seed 3."""
    stored = np.load("x.npz")
    inputs, labels = torch.from_numpy(stored["inputs"]), torch.from_numpy(stored["labels"])
    network = build("mlp:8", (12,), 3, seed=3)
    save_file(network.state_dict(), "start.safetensors")
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    save_file(network.state_dict(), "w.safetensors")
    return ("--weights", "w.safetensors", "--epochs", "20", "--twin")


@pytest.mark.slow
def test_trained_weights_are_certified_after_the_fact(trained, invoke, quick):
    words = quick(epochs=None)
    first = invoke(*words, "--weights", "w.safetensors", "--initial", "start.safetensors", "--json")
    assert first.code == exits.DONE, first.err
    record = json.loads(first.out)
    assert record["mode"] == "post-hoc"
    assert "initial weights" in record["prior"]["description"]
    assert record["risk_upper"] < 1.0
    assert record["held_out_twin"] is not None
    # The same start, named by its seed instead of its file.
    second = invoke(
        *words,
        *("--weights", "w.safetensors", "--prior", "initialization", "--init-seed", "3"),
        *("--out", "elsewhere/r", "--json"),
    )
    assert json.loads(second.out)["prior"]["digest"] == record["prior"]["digest"]


@pytest.mark.slow
def test_symmetries_are_switched_off_one_by_one(trained, invoke, quick):
    words = (*quick(epochs=None), "--weights", "w.safetensors", "--prior", "zero-mean")
    for number, (flags, used) in enumerate(
        (
            ((), {"translation", "permutation"}),
            (("--no-translation",), {"permutation"}),
            (("--no-permutation",), {"translation"}),
            (("--no-translation", "--no-permutation"), set()),
        )
    ):
        done = invoke(*words, *flags, "--out", f"{number}/r", "--json")
        assert done.code == exits.DONE, done.err
        record = json.loads(done.out)
        assert {saving["symmetry"] for saving in record["complexity"]["symmetries"]} == used
        assert sum(column["certified"] for column in record["rescaling"]["columns"]) == 1
        # One line says who earned what.
        told = [line for line in done.err.splitlines() if line.startswith("Complexity ")]
        assert len(told) == 1
        assert "Saved by the prior's scale" in told[0] and "rescaling" in told[0]


@pytest.mark.slow
def test_a_zero_mean_prior_and_one_drawn_network(trained, invoke, quick):
    words = quick(epochs=None)
    done = invoke(
        *(*words, "--weights", "w.safetensors", "--prior", "zero-mean", "--predictor", "drawn"),
        *("--prior-scale", "0.1", "0.3", "1", "--json"),
    )
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["predictor"] == "drawn"
    assert "3 from 0.1 to 1" in record["prior"]["description"]
    # Three prior scales, and three posteriors of each that were measured.
    assert record["budget"]["entries"][-1]["choices"] == 3 * 3


def test_the_plain_test_uses_the_test_part(trained, place, invoke, quick):
    stored = np.load("x.npz")
    np.savez(
        "both.npz",
        x_train=stored["inputs"][:160],
        y_train=stored["labels"][:160],
        x_test=stored["inputs"][160:],
        y_test=stored["labels"][160:],
    )
    words = ("certify", "--data", "both.npz", "--model", "mlp:8", "--weights", "w.safetensors")
    done = invoke(*words, "--mode", "holdout", "--no-report", "--json")
    record = json.loads(done.out)
    assert record["data"]["name"] == "both (test)"
    assert record["data"]["bound"]["examples"] == 80
    other = invoke(*words, "--mode", "holdout", "--part", "train", "--out", "r", "--json")
    assert json.loads(other.out)["data"]["bound"]["examples"] == 160


def test_pretrained_weights_may_be_the_start(trained, invoke, quick):
    done = invoke(
        *quick(),
        "--weights",
        "w.safetensors",
        "--mode",
        "posterior",
        "--pretrained",
        "elsewhere",
        "--json",
    )
    assert done.code == exits.DONE, done.err
    assert json.loads(done.out)["mode"] == "posterior"


def test_a_pretrained_backbone_may_be_fixed(trained, invoke, quick):
    given = ("--weights", "w.safetensors", "--mode", "posterior", "--pretrained", "elsewhere")
    done = invoke(*quick(), *given, "--prior-fraction", "0", "--random", "last", "--json")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["data"]["bound"]["examples"] == 240
    assert {term["tensor"] for term in record["complexity"]["terms"]} == {
        "layers.2.weight",
        "layers.2.bias",
    }


def test_a_prior_at_the_initial_weights_counts_all_examples(place, invoke, quick):
    record = json.loads(invoke(*quick(), "--prior-fraction", "0", "--no-twin", "--json").out)
    assert record["data"]["bound"]["examples"] == 240
    assert record["data"]["prior"] is None
    assert "scale 0.1 " in record["prior"]["description"]
    assert record["held_out_twin"] is None


@pytest.mark.parametrize(("limit", "code"), [("0.9", exits.DONE), ("0.001", exits.TOO_RISKY)])
def test_the_gate(place, invoke, quick, limit, code):
    done = invoke(*quick(), "--max-risk", limit)
    assert done.code == code
    assert len(done.out.splitlines()) == 4
    if code == exits.TOO_RISKY:
        assert "--max-risk asks for at most 0.001" in done.error
        assert done.next == "nonvacuous report runs/x-mlp-8-seed0"


def test_a_risk_that_is_met_but_not_shown_asks_for_a_plan(place, invoke, quick):
    done = invoke(*quick(no_report=None), "--max-risk", "0.001")
    assert done.next == "python -m webbrowser runs/x-mlp-8-seed0/report.html"
    done = invoke(*quick(), "--resume", "--max-risk", "0.1")
    measured = float(done.next.rsplit(" ", 1)[1])
    assert done.code == exits.TOO_RISKY
    assert done.next.startswith("nonvacuous plan --target 0.1 --risk ") and 0 < measured < 0.1


def test_the_gate_does_not_let_a_vacuous_promise_through(place, invoke, quick):
    done = invoke(
        *quick("--prior-fraction", "0", "--prior-scale", "0.0001", "--no-twin", epochs="10"),
        *("--kl-penalty", "1e-9", "--learning-rate", "0.5", "--max-risk", "1"),
    )
    assert "VACUOUS" in done.out.splitlines()[0]
    assert done.code == exits.TOO_RISKY


def test_a_refused_certificate_is_a_failure(place, invoke, quick):
    """An answer that depends on the examples beside it is refused before anything is trained."""
    words = quick(model="my_model:company")
    done = invoke(*words)
    assert done.out == "" and done.code == exits.FAILED
    assert "refused before anything was computed" in done.error
    assert invoke(*words, "--max-risk", "1").code == exits.TOO_RISKY


@pytest.mark.slow
def test_a_second_run_in_the_same_folder_needs_a_decision(place, invoke, quick):
    first = invoke(*quick())
    refused = invoke(*quick())
    assert refused.code == exits.USAGE
    assert "--force" in refused.error and "--resume" in refused.error and "--out" in refused.error
    assert refused.next.endswith("--resume")
    resumed = invoke(*quick(), "--resume")
    assert resumed.code == exits.DONE
    assert resumed.out == first.out
    assert "finished before" in resumed.err
    before = (place / "runs/x-mlp-8-seed0/events.jsonl").stat().st_mtime_ns
    forced = invoke(*quick(), "--force")
    assert forced.out == first.out
    assert (place / "runs/x-mlp-8-seed0/events.jsonl").stat().st_mtime_ns > before


def test_resuming_with_other_settings_names_them(place, invoke, quick):
    invoke(*quick(), "--out", "r")
    done = invoke(*quick("--out", "r", "--resume", "--confidence", "0.9", trials="501"))
    assert done.code == exits.FAILED
    assert "confidence" in done.error and "trials" in done.error
    assert done.out == ""


def test_a_folder_with_other_files_is_left_alone(place, invoke, quick):
    (place / "work").mkdir()
    (place / "work/split.npz").write_text("mine")
    (place / "work/config.toml").write_text("color = 'blue'")
    for extra in ([], ["--force"], ["--resume"]):
        done = invoke(*quick(), "--out", "work", *extra)
        assert done.code == exits.USAGE
        assert "not empty" in done.error
    assert (place / "work/split.npz").read_text() == "mine"
    assert (place / "work/config.toml").read_text() == "color = 'blue'"


@pytest.mark.slow
def test_names_cannot_leave_the_folder_or_write_markup(place, invoke, quick):
    (place / "x.npz").rename(place / "<script>alert(1)<script>.npz")
    done = invoke(*quick(data="<script>alert(1)<script>.npz", no_report=None))
    assert done.code == exits.DONE, done.err
    page = place / "runs/script-alert-1-script-mlp-8-seed0/report.html"
    assert "<script" not in page.read_text()
    assert default_folder("../../etc", "../..:x", 0).parts == ("runs", "etc-x-seed0")


def test_the_flags_know_every_objective():
    accepted = get_args(PosteriorTraining.model_fields["objective"].annotation)
    assert set(accepted) == set(OBJECTIVES)
