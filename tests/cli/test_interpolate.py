from __future__ import annotations

import json

import numpy as np
import pytest

from nonvacuous.cli import exits

WORDS = ["interpolate", "--data", "two.npz"]


@pytest.fixture
def place(place):
    """x.npz has no test set; two.npz has one."""
    stored = np.load(place / "x.npz")
    np.savez(
        place / "two.npz",
        x_train=stored["inputs"][:160],
        y_train=stored["labels"][:160],
        x_test=stored["inputs"][160:],
        y_test=stored["labels"][160:],
    )
    return place


def test_all_labelings_fit_and_only_true_ones_generalize(place, invoke):
    done = invoke(*WORDS, "--labels", "true,partial:0.5,random", "--gamma", "0.05", "--json")
    assert done.code == exits.DONE
    record = json.loads(done.out)
    true, half, random = record["labelings"]
    assert [entry["train_errors"] for entry in record["labelings"]] == [0, 0, 0]
    assert true["norm"] < half["norm"] < random["norm"]
    assert true["changed"] == 0 < half["changed"] < random["changed"]
    assert true["test_errors"] < half["test_errors"] < random["test_errors"]
    assert record["residual"] <= 1e-6
    assert record["parameters"] == {"gamma": 0.05}
    folder = place / record["folder"]
    assert json.loads((folder / "results.json").read_text())["labelings"][0] == true
    kept = np.load(folder / "coefficients.npz", allow_pickle=False)
    assert kept["labels 0"].shape == (160, 3)
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert "nonvacuous interpolate --data two.npz" in page
    assert "no ridge" in page


@pytest.mark.slow
def test_text_the_plan_and_what_comes_next(place, invoke):
    done = invoke(*WORDS)
    assert done.code == exits.DONE
    assert "160 points by Cholesky factorization in float64" in done.err
    assert "Seed 0" in done.err
    for expected in ("test error", "norm", "residual", "no ridge", "seed 0"):
        assert expected in done.out
    other = "runs/interpolate-two-raw-gaussian-seed0-2"
    assert done.next == f"nonvacuous interpolate --data two.npz --out {other} --labels true,random"
    assert invoke(*done.next.split()[1:]).code == exits.DONE


@pytest.mark.slow
def test_nothing_is_overwritten_and_a_finished_run_is_shown_again(place, invoke):
    first = invoke(*WORDS, "--out", "a", "--json")
    again = invoke(*WORDS, "--out", "a")
    assert again.code == exits.USAGE
    assert again.next.endswith("--resume")
    shown = invoke(*WORDS, "--out", "a", "--resume", "--json")
    assert json.loads(shown.out) == json.loads(first.out)
    how = invoke(*WORDS, "--out", "a", "--resume", "--json", "--method", "conjugate-gradient")
    assert json.loads(how.out)["method"] == "conjugate-gradient"
    shown = invoke(*WORDS, "--out", "a", "--resume", "--json")
    assert json.loads(shown.out) == json.loads(first.out)
    other = invoke(*WORDS, "--out", "a", "--resume", "--kernel", "laplace")
    assert other.code == exits.FAILED
    assert "other settings (kernel)" in other.error
    assert invoke(*other.next.split()[1:]).code == exits.DONE


def test_an_estimate_writes_nothing(place, invoke):
    done = invoke(*WORDS, "--out", "a", "--estimate")
    assert done.code == exits.DONE
    assert "160 points by Cholesky" in done.out
    assert done.next == "nonvacuous interpolate --data two.npz --out a"
    record = json.loads(invoke(*WORDS, "--out", "a", "--estimate", "--json").out)
    assert record["points"] == 160 and record["seconds"] >= 0
    assert not (place / "a").exists()


@pytest.mark.parametrize("kernel", ["laplace", "polynomial"])
@pytest.mark.parametrize("method", ["cholesky", "conjugate-gradient"])
def test_kernels_and_methods(place, invoke, kernel, method):
    done = invoke(*WORDS, "--kernel", kernel, "--method", method, "--degree", "4", "--json")
    record = json.loads(done.out)
    assert record["method"] == method
    assert record["residual"] <= 1e-6 or record["warnings"]


def test_equal_inputs_with_other_labels(place, invoke):
    inputs, labels = (np.load(place / "x.npz")[name] for name in ("inputs", "labels"))
    inputs[5] = inputs[3]
    labels[5] = (labels[3] + 1) % 3
    np.savez(place / "twins.npz", inputs=inputs, labels=labels)
    done = invoke("interpolate", "--data", "twins.npz")
    assert done.code == exits.FAILED
    assert "points 3 and 5" in done.error
    assert done.next.endswith("--drop-duplicates")
    mended = invoke(*done.next.split()[1:])
    assert mended.code == exits.DONE
    assert "1 training inputs repeat" in mended.err
    assert "239 points" in mended.out


def test_a_run_without_test_data(place, invoke):
    record = json.loads(invoke("interpolate", "--data", "x.npz", "--json").out)
    assert record["labelings"][0]["test_errors"] is None


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--labels", "truth"], exits.USAGE, "no labeling 'truth'"),
        (["--labels", "partial:2"], exits.USAGE, "between 0 and 1"),
        (["--labels", "true,true"], exits.USAGE, "each once"),
        (["--memory", "much"], exits.USAGE, "8GB"),
        (["--kernel", "cubic"], exits.USAGE, "cubic"),
        (["--examples", "0"], exits.USAGE, "greater than or equal to 1"),
        (["--resume", "--force"], exits.USAGE, "give one of them"),
        (["--examples", "1000"], exits.FAILED, "has 160 training examples"),
        (["--gamma", "wide"], exits.USAGE, "median:FACTOR"),
        (["--gamma", "-1"], exits.USAGE, "positive"),
        (["--gamma", "median:x"], exits.USAGE, "median:FACTOR"),
        (["--kernel", "polynomial", "--degree", "0"], exits.USAGE, "--degree"),
        (["--kernel", "polynomial", "--degree", "9000"], exits.FAILED, "leaves the range"),
        (["--gamma", "1e-9"], exits.FAILED, "no ridge"),
        (["--kernel", "linear"], exits.FAILED, "at most 12 dimensions"),
        (["--features", "gabor"], exits.FAILED, "needs images"),
        (["--features", "sift"], exits.USAGE, "no features 'sift'"),
        (["--memory", "1kB"], exits.FAILED, "too many here"),
    ],
)
def test_what_cannot_be_done(place, invoke, words, code, message):
    done = invoke(*WORDS, *words)
    assert done.code == code
    assert message in done.error
    assert code != exits.USAGE or "points by" not in done.err
    assert done.next.startswith("nonvacuous interpolate")


def test_one_example(place, invoke):
    record = json.loads(invoke(*WORDS, "--examples", "1", "--gamma", "1", "--json").out)
    assert record["examples"] == 1
    assert any("one point" in warning for warning in record["warnings"])


@pytest.mark.slow
def test_the_kernel_reproduction_on_digits(place, invoke):
    done = invoke("reproduce", "zhang-kernels", "--quick", "--json", "--out", "k")
    record = json.loads(done.out)
    assert [case["name"] for case in record["cases"]] == [
        "digits-raw",
        "digits-gabor",
        "digits-patches",
    ]
    for case in record["cases"]:
        true, _, random = case["labelings"]
        assert true["train_errors"] == random["train_errors"] == 0
        assert true["test_errors"] < 15 < 250 < random["test_errors"]
        assert true["norm"] < random["norm"]
    good, forced, elsewhere = record["bad_interpolants"]
    assert good["test_errors"] < 20 < min(forced["test_errors"], elsewhere["test_errors"])
    assert "does not win" in (place / "k" / "report.html").read_text()
    again = invoke("reproduce", "zhang-kernels", "--quick", "--resume", "--json", "--out", "k")
    assert json.loads(again.out)["cases"] == record["cases"]
    refused = invoke("reproduce", "zhang-kernels", "--quick", "--out", "k")
    assert refused.code == exits.USAGE and refused.next.endswith("--resume")
    unknown = invoke("reproduce", "zhang-kernels", "--quick", "--only", "cifar100", "--out", "j")
    assert unknown.code == exits.USAGE and "there are digits-raw" in unknown.error


@pytest.mark.slow
def test_the_linear_reproduction(place, invoke):
    done = invoke("reproduce", "zhang-linear", "--quick", "--json", "--out", "l")
    record = json.loads(done.out)
    fits = {fit["name"]: fit for fit in record["fits"]}
    assert fits["SGD from zero"]["expected"] < 1e-12
    assert fits["Adam from zero"]["outside"] > 0.1
    differences = list(record["hessian_differences"].values())
    assert max(differences[:-1]) < 1e-12 < 1e-3 < differences[-1]
    page = (place / "l" / "report.html").read_text()
    assert page.count("<svg") == 7
    text = invoke("reproduce", "zhang-linear", "--quick", "--out", "l", "--force")
    assert "SGD from zero finds" in text.out
