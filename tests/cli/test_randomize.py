"""``nonvacuous randomize``: the command, as somebody with a model of their own would use it."""

from __future__ import annotations

import json

import pytest

from nonvacuous.cli import exits
from nonvacuous.cli.app import main
from nonvacuous.randomization import workshop

OWN = """
import torch
from torch.nn.functional import cross_entropy


def train(model, inputs, labels, *, seed):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for epoch in range(15):
        for batch in torch.randperm(len(labels)).split(32):
            loss = cross_entropy(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield model


def ignores(model, inputs, labels, *, seed):
    import my_model

    _, true = my_model.load()
    return train(model, inputs, torch.from_numpy(true)[: len(labels)], seed=seed)


def wrong(model, data):
    return model


def nothing(model, inputs, labels, *, seed):
    pass
"""
WORDS = ["randomize", "--data", "x.npz", "--out", "r"]
QUICK = [*WORDS, "--model", "mlp:24", "--conditions", "partial:0.5", "--seeds", "2", "--epochs",
         "15", "--permutations", "3", "--sign-vectors", "1", "--no-certificates"]  # fmt: skip


@pytest.fixture
def own(place):
    (place / "own.py").write_text(OWN)
    return place


def test_one_command_gives_the_answer_the_page_and_the_pictures(place, once):
    done = once(*QUICK)
    assert done.code == exits.DONE, done.err
    # Three permutations are too few for the headline to say more than the test does.
    assert done.out.startswith("Whether it learns is not shown")
    for expected in ("random-labels", "nothing but the data changed", "no leak"):
        assert expected in done.out
    page = (place / "r" / "report.html").read_text()
    for expected in ("Does this network learn", "Has the test set leaked?", "VC dimension", "<svg"):
        assert expected in page
    assert "<script" not in page
    for name in ("figure-1a", "figure-1c", "clean-and-corrupted", "permutations"):
        assert (place / "r" / "figures" / f"{name}.svg").read_text().startswith("<svg")
    record = json.loads((place / "r" / "results.json").read_text())
    assert [entry["name"] for entry in record["conditions"]] == [
        "true",
        "partial:0.5",
        "random-labels",
    ]
    assert "seed 0" in done.err and "about" in done.err
    assert done.next == "nonvacuous certify --data x.npz --model mlp:24"


def test_json_is_what_is_on_disk(place, once, invoke):
    once(*QUICK)
    done = invoke(*QUICK, "--json", "--resume")
    assert json.loads(done.out) == json.loads((place / "r" / "results.json").read_text())


@pytest.mark.slow
def test_nothing_is_overwritten_and_a_study_can_be_seen_again(place, once, invoke):
    first = once(*QUICK)
    refused = invoke(*QUICK)
    assert refused.code == exits.USAGE
    assert "holds a study already" in refused.error
    assert refused.next.endswith("--resume")
    again = invoke(*refused.next.split()[1:])
    assert again.code == exits.DONE
    assert again.out == first.out
    other = invoke(*QUICK, "--momentum", "0.5", "--resume")
    assert other.code == exits.FAILED
    assert "other settings (momentum)" in other.error
    less = ["--conditions", "true", "--seeds", "1", "--epochs", "2", "--permutations", "0"]
    less += ["--model", "mlp:24", "--sign-vectors", "0", "--no-certificates"]
    assert invoke(*WORDS, *less, "--seed", "3", "--force").code == exits.DONE
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("years of work")
    words = [word if word != "r" else "mine" for word in QUICK]
    assert "holds no study" in invoke(*words, "--force").error


@pytest.mark.slow
def test_a_stopped_study_says_how_to_go_on(place, invoke, monkeypatch):
    kept = workshop.Workshop.part

    def stop(self, name, *arguments, **options):
        if name == "permutations":
            raise KeyboardInterrupt
        return kept(self, name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(workshop.Workshop, "part", stop)
        stopped = invoke(*QUICK)
    assert stopped.code == exits.INTERRUPTED
    assert "keeps every part" in stopped.error
    assert not (place / "r" / "results.json").exists()
    assert invoke(*stopped.next.split()[1:]).code == exits.DONE
    assert (place / "r" / "report.html").is_file()


@pytest.mark.slow
def test_a_model_and_a_training_function_of_ones_own(own, invoke):
    words = [*WORDS, "--model", "my_model:build", "--train", "own:train", "--conditions",
             "partial:0.5", "--seeds", "2", "--permutations", "2", "--sign-vectors", "1",
             "--no-certificates"]  # fmt: skip
    done = invoke(*words)
    assert done.code == exits.DONE, done.err
    assert "trained by own:train" in done.err
    record = json.loads((own / "r" / "results.json").read_text())
    assert record["trained_by"] == "own:train"
    assert record["conditions"][0]["outcomes"][0]["epochs"] == 15


@pytest.mark.slow
def test_a_function_that_ignores_its_labels_fails_the_study(own, invoke):
    words = [*WORDS, "--model", "my_model:build", "--train", "own:ignores", "--conditions", "true",
             "--seeds", "1", "--permutations", "0", "--sign-vectors", "0",
             "--no-certificates"]  # fmt: skip
    done = invoke(*words)
    assert done.code == exits.FAILED
    assert "PROBLEM the labels given are ignored" in done.out
    assert "the study found a problem" in done.err
    assert (own / "r" / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], exits.USAGE, "say what to test"),
        (["--data", "x.npz", "--resume", "--force"], exits.USAGE, "give one of them"),
        (["--data", "x.npz", "--conditions", "partial:2"], exits.USAGE, "partial"),
        (["--data", "x.npz", "--conditions", "gausian"], exits.USAGE, "did you mean gaussian"),
        (["--data", "x.npz", "--epochs", "0"], exits.USAGE, "epochs"),
        (["--data", "x.npz", "--confidence", "95"], exits.USAGE, "--confidence"),
        (["--data", "x.npz", "--train", "own:train", "--regularization"], exits.USAGE, "inside"),
        (["--data", "x.npz", "--model", "my_model:narrow"], exits.FAILED, "cannot take inputs"),
        (["--data", "x.npz", "--model", "my_model:build", "--train", "own:wrong"], exits.FAILED,
         "cannot be called as train(model, inputs, labels, *, seed)"),
        (["--data", "x.npz", "--model", "my_model:build", "--train", "own:nothing"], exits.FAILED,
         "returned nothing"),
        (["--data", "x.npz", "--train", "own:absent"], exits.USAGE, "has nothing called absent"),
        (["--data", "x.npz", "--train", "absent:train"], exits.USAGE, "cannot be imported"),
        (["--data", "nowhere.npz"], exits.USAGE, "no data set"),
        (["--run", "nowhere"], exits.USAGE, "holds no finished nonvacuous certify"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_the_next_command(own, invoke, words, code, message):
    done = invoke("randomize", *words)
    assert done.code == code
    assert message in done.error
    assert done.next.startswith("nonvacuous")
    assert "certify --help" not in done.next


def test_the_help_ends_with_an_example(capsys):
    assert main(["randomize", "--help"]) == exits.DONE
    assert capsys.readouterr().out.rstrip().endswith("nonvacuous randomize --data digits")


@pytest.mark.slow
def test_the_recipe_of_a_certificate_on_random_labels(place, invoke, quick):
    certified = invoke(*quick("--out", "c"))
    assert certified.code == exits.DONE, certified.err
    again = ("randomize", "--run", "c", "--data", "x.npz")
    assert invoke(*again[:3]).next == "nonvacuous randomize --run c --data x.npz"
    done = invoke(*again)
    assert done.code == exits.DONE, done.err
    assert "random labels: error <=" in done.out and "vacuous" in done.out
    record = json.loads((place / "c" / "random_labels.json").read_text())
    stored = json.loads((place / "c" / "certificate.json").read_text())
    assert record["certificate"] == stored["digest"]
    assert record["true_labels"]["risk_upper"] == stored["risk_upper"]
    assert record["random_labels"]["is_vacuous"]
    assert record["random_labels"]["risk_upper"] >= record["guessing"]
    assert done.next == "nonvacuous report c"
    assert "exists already" in invoke(*again).error
    assert invoke(*again, "--force", "--json").code == exits.DONE
