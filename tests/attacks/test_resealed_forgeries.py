"""A forger who renews every seal: whatever the evidence contradicts fails, and names the field."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nonvacuous.audit.data_checks import START, NamedStart
from nonvacuous.audit.method_checks import BUILT_IN
from nonvacuous.certificate import Certificate
from nonvacuous.rules.arithmetic import bound_record
from nonvacuous.verify import verify

from . import forging
from .forging import forged, part, rewritten, with_choices, without_line

OTHERS = "other certificates"
PAID = "earlier certificates on these examples are paid for"
FIRST = "each checkpoint met its batch before training on it"
TESTED = (
    "2 batches, disjoint, in the order of the seed; none trained the checkpoint that it tested."
)
#: name: (kind of run, settings rewritten, fields rewritten, the field that must be named)
Forgery = tuple[str, dict[str, str], Callable[[Certificate], dict[str, Any]], str]

FORGERIES: dict[str, Forgery] = {
    "four fifths of the counted errors": (
        "posterior", {}, lambda c: part(c, "empirical", errors=int(0.8 * c.empirical.errors)),
        "empirical.errors",
    ),
    "one counted error in a hundred less": (
        "posterior", {}, lambda c: part(c, "empirical", errors=int(0.99 * c.empirical.errors)),
        "empirical.errors",
    ),
    "fewer errors, counted on a device that nobody has": (
        "posterior", {},
        lambda c: part(c, "empirical", errors=int(0.75 * c.empirical.errors))
        | {"software": {**c.software, "device": "cuda (NVIDIA H100)"}},
        "empirical",
    ),
    "no share for other certificates": (
        "posterior", {}, lambda c: without_line(c, OTHERS), "budget",
    ),
    "no share for other certificates, settings rewritten": (
        "posterior", {"attempts": "1"}, lambda c: without_line(c, OTHERS), "attempts",
    ),
    "a grid that was not paid for": ("posterior", {}, lambda c: with_choices(c, 1), "budget"),
    "a grid of one, settings rewritten": (
        "posterior", {"prior_scale": "[0.05]"}, lambda c: with_choices(c, 1), "attempts",
    ),
    "less confidence, and so a smaller number": (
        "posterior",
        {},
        lambda c: part(
            c, "budget", failure=0.07, entries=(
                *c.budget.entries[:-1],
                c.budget.entries[-1].model_copy(
                    update={"failure": c.budget.entries[-1].failure + 0.01}
                ),
            ),
        ) | {"confidence": 0.94},
        "confidence",
    ),
    "another seed": ("posterior", {}, lambda c: {"seed": 11}, "seed"),
    "another seed, settings rewritten": (
        "posterior", {"seed": "11"}, lambda c: {"seed": 11}, "empirical.errors",
    ),
    "a worse twin": (
        "posterior", {}, lambda c: part(c, "held_out_twin", errors=c.held_out_twin.errors + 40),
        "held_out_twin.errors",
    ),
    "a twin of another kind": (
        "posterior", {},
        lambda c: part(c, "held_out_twin", description="the best test that money can buy"),
        "held_out_twin.description",
    ),
    "a worse trained twin": (
        "post-hoc", {}, lambda c: part(c, "held_out_twin", errors=c.held_out_twin.errors + 15),
        "held_out_twin.errors",
    ),
    "a twin left out": (
        "posterior", {}, lambda c: {"held_out_twin": None}, "held_out_twin",
    ),
    "a trained twin left out": (
        "post-hoc", {}, lambda c: {"held_out_twin": None}, "held_out_twin",
    ),
    "the test of a checkpoint described as something else": (
        "tilted", {},
        lambda c: part(c, "held_out_twin", description="the best test that money can buy"),
        "held_out_twin.description",
    ),
    "the errors on the bound examples kept silent": (
        "post-hoc", {}, lambda c: {"observed": c.observed[1:]}, "observed",
    ),
    "one of two tests on the test examples kept silent": (
        "posterior", {}, lambda c: {"observed": (*c.observed[:2], *c.observed[3:])}, "observed",
    ),
    "one of two tests of checkpoints kept silent": (
        "gate", {}, lambda c: {"observed": c.observed[1:]}, "observed",
    ),
    "a seed that sampled nothing": (
        "holdout", {}, lambda c: part(c, "empirical", seed=1), "empirical.seed",
    ),
    "tests of several checkpoints called trials of one law": (
        "tilted", {}, lambda c: part(c, "empirical", identical=True), "empirical.identical",
    ),
    "other words for the start of given weights": (
        "post-hoc", {},
        lambda c: rewritten(c, lambda a: a.name == START, detail="a notary looked on."),
        "assumptions",
    ),
    "more words for the start of given weights": (
        "post-hoc", {},
        lambda c: rewritten(
            c, lambda a: a.name == START,
            detail=NamedStart("mlp:8", 0, True).words + " A notary looked on."),
        "assumptions",
    ),
    "another name for a step of the rescaling": (
        "post-hoc", {},
        lambda c: part(c, "rescaling", columns=tuple(
            column.model_copy(update={"name": "around a public beacon"})
            if column.way == "shift of the scores" else column
            for column in c.rescaling.columns)),
        "rescaling.columns",
    ),
    "fewer errors observed on the bound examples": (
        "posterior", {}, lambda c: {"observed": (
            c.observed[0].model_copy(update={"errors": 0}), *c.observed[1:])},
        "observed.0.errors",
    ),
    "fewer errors observed on the test examples": (
        "posterior", {}, lambda c: {"observed": (
            c.observed[0], c.observed[1].model_copy(update={"errors": 0}), *c.observed[2:])},
        "observed.1.errors",
    ),
    "fewer errors of the randomized network on the test examples": (
        "posterior", {}, lambda c: {"observed": (
            *c.observed[:2],
            c.observed[2].model_copy(update={"errors": int(0.9 * c.observed[2].errors)}))},
        "observed.2.errors",
    ),
    "an observation of something else": (
        "posterior", {}, lambda c: {"observed": (
            c.observed[0].model_copy(update={"name": "the deployed system in the field"}),
            *c.observed[1:])},
        "observed.0.name",
    ),
    "what nobody checked called checked": (
        "posterior", {},
        lambda c: rewritten(c, lambda a: a.status != "checked", status="checked"),
        "assumptions",
    ),
    "a choice of settings called checked": (
        "posterior", {},
        lambda c: rewritten(c, lambda a: a.name.startswith("architecture"), status="checked"),
        "assumptions",
    ),
    "a given prior called checked": (
        "post-hoc", {},
        lambda c: rewritten(
            c, lambda a: a.name == "the prior saw no bound example", status="checked"),
        "assumptions",
    ),
    "other words for what was asserted": (
        "posterior", {},
        lambda c: rewritten(
            c, lambda a: a.name.startswith("architecture"),
            detail="three independent laboratories confirmed it."),
        "assumptions",
    ),
    "a prior described as something else": (
        "posterior", {},
        lambda c: part(c, "prior", description="Gaussian at zero, fixed by a public beacon"),
        "prior.description",
    ),
    "a prior that hides what it saw": (
        "posterior", {}, lambda c: part(c, "prior", saw=None), "prior.saw",
    ),
    "a posterior described as something else": (
        "post-hoc", {},
        lambda c: part(c, "posterior", description="a point mass: no noise at all"),
        "posterior.description",
    ),
    "data of another name": (
        "posterior", {}, lambda c: part(c, "data", name="ImageNet"), "data.name",
    ),
    "preprocessing of another name": (
        "posterior", {}, lambda c: part(c, "data", preprocessing="adversarially cleaned"),
        "data.preprocessing",
    ),
    "a network of another name": (
        "posterior", {"architecture": '"cnn:512"'},
        lambda c: part(c, "model", architecture="cnn:512"), "model",
    ),
    "another name than in the settings": (
        "posterior", {}, lambda c: part(c, "model", architecture="own.module:best"),
        "model.architecture",
    ),
    "another mode": ("posterior", {}, lambda c: {"mode": "post-hoc"}, "mode"),
    "other reasons in the ledger": (
        "posterior", {},
        lambda c: part(c, "budget", entries=tuple(
            e.model_copy(update={"reason": "audited by a notary"}) for e in c.budget.entries)),
        "budget",
    ),
    "pretrained weights kept silent": (
        "posterior", {"pretrained": '"trained on ImageNet"'}, lambda c: {}, "assumptions",
    ),
    "fewer errors of a tested network": (
        "holdout", {}, lambda c: part(c, "empirical", errors=c.empirical.errors // 2),
        "empirical.errors",
    ),
    "a plain test of fewer certificates": (
        "holdout", {"attempts": "5"}, lambda c: {}, "budget",
    ),
    "a rescaling that saved more": (
        "post-hoc", {},
        lambda c: part(c, "rescaling", kl_before=10.0 * c.rescaling.kl_before), "rescaling",
    ),
    "a constant answer of another name": (
        "posterior", {}, lambda c: part(c, "baseline", name="zzz"), "baseline.name",
    ),
    "a threshold read off the tests": (
        "gate", {}, lambda c: part(c, "bound", inputs={**c.bound.inputs, "threshold": 0.55}),
        "bound.inputs.threshold",
    ),
    "a threshold read off the tests, settings rewritten": (
        "gate", {"threshold": "0.55"},
        lambda c: part(c, "bound", inputs={**c.bound.inputs, "threshold": 0.55}), "attempts",
    ),
    "a gate for a tilt": (
        "tilted", {},
        lambda c: {
            "bound": bound_record(
                "gate", errors=c.empirical.errors, trials=c.empirical.trials, threshold=0.55,
                failure=c.budget.bound.share, batches=2),
            "observed": c.observed[:2],
        },
        "bound.inputs.threshold",
    ),
    "training of ones own called that of the library": (
        "own training", {},
        lambda c: part(c, "progressive", training=BUILT_IN)
        | rewritten(c, lambda a: a.name == FIRST, status="checked", detail=TESTED),
        "progressive.training",
    ),
    "earlier thresholds kept silent": (
        "gate", {},
        lambda c: rewritten(c, lambda a: a.name == PAID, status="asserted", effect="none",
                            detail="no other certificate on these examples is on record."),
        "assumptions",
    ),
    "checkpoints that err on no test example": (
        "gate", {},
        lambda c: {"observed": tuple(o.model_copy(update={"errors": 0}) for o in c.observed)},
        "observed.0.errors",
    ),
    "a last checkpoint that errs on no test example": (
        "gate", {},
        lambda c: {"observed": (
            c.observed[0], c.observed[1].model_copy(update={"errors": 0}))},
        "observed.1.errors",
    ),
    "other words for what the checkpoints show": (
        "tilted", {},
        lambda c: rewritten(c, lambda a: a.name == FIRST, detail="a notary looked on."),
        "assumptions",
    ),
    "groups that somebody looked for": (
        "gate", {},
        lambda c: rewritten(c, lambda a: "groups" in a.name, detail="three experts saw none."),
        "assumptions",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of run in a folder of its own, with the ledger beside it."""
    base = tmp_path_factory.mktemp("honest")
    makers = {
        "posterior": forging.posterior_run,
        "post-hoc": forging.post_hoc_run,
        "holdout": forging.holdout_run,
        "tilted": forging.progressive_run,
        "own training": partial(forging.progressive_run, train=forging.own_training),
        "gate": partial(forging.progressive_run, threshold=0.7),
    }
    # Another one was made on the same examples.
    forging.progressive_run(base / "gate" / "first", threshold=0.7, seed=1)
    for kind, make in makers.items():
        make(base / kind / "run")
    return {kind: base / kind for kind in makers}


@pytest.mark.parametrize(
    "kind", ["posterior", "post-hoc", "holdout", "tilted", "own training", "gate"]
)
def test_the_honest_run_is_verified(runs: dict[str, Path], kind: str) -> None:
    # A plain test is of examples that no test part stands beside.
    data = forging.examples() if kind == "holdout" else forging.data()
    result = verify(runs[kind] / "run", data=data, trials=2_000)
    assert result.verified, str(result)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_resealed_forgery_fails_at_its_field(
    runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    kind, config, change, field = FORGERIES[name]
    shutil.copytree(runs[kind], tmp_path / "runs")
    folder = tmp_path / "runs" / "run"
    forged(folder, config, **change(Certificate.load(folder / "certificate.json")))
    result = verify(folder, data=forging.data(), trials=2_000)
    assert not result.passed
    assert any(f.field.startswith(field) for f in result.failures), str(result)


def test_another_class_is_not_the_constant_answer_where_classes_are_numbers(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(runs["posterior"], tmp_path / "runs")
    folder, world = tmp_path / "runs" / "run", forging.examples()
    unnamed = world.inputs, world.labels
    assert verify(folder, data=unnamed, trials=500).passed  # made with names, read without
    certificate = Certificate.load(folder / "certificate.json")
    other = str((certificate.baseline.answer + 1) % 3)
    forged(folder, **part(certificate, "baseline", name=other))
    result = verify(folder, data=unnamed, trials=500)
    assert [f.field for f in result.failures] == ["baseline.name"], str(result)


def test_a_library_from_the_future_is_not_verified_here(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(runs["posterior"], tmp_path / "runs")
    folder = tmp_path / "runs" / "run"
    made = Certificate.load(folder / "certificate.json").software
    forged(folder, software={**made, "nonvacuous": "99.0.0"})
    result = verify(folder, data=forging.data(), trials=2_000)
    assert not result.verified
    assert any(f.field == "software.nonvacuous" and f.needed for f in result.findings)


def test_the_seed_of_fresh_trials_is_drawn_then_and_shown(runs: dict[str, Path]) -> None:
    def seed() -> str:
        result = verify(runs["posterior"] / "run", data=forging.data(), trials=500)
        fresh = next(f for f in result.findings if "fresh trials" in f.name)
        return fresh.detail.partition("(seed ")[2].partition(")")[0]

    first, second = seed(), seed()
    assert first.isdigit() and second.isdigit() and first != second


def test_a_run_without_its_ledger_is_verified_all_the_same(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(runs["posterior"] / "run", tmp_path / "sent" / "run")
    folder = tmp_path / "sent" / "run"
    assert verify(folder, data=forging.data(), trials=2_000).verified
    ledger = runs["posterior"] / "attempts.jsonl"
    assert verify(folder, data=forging.data(), trials=2_000, ledger=ledger).verified
    forged(
        folder,
        {"attempts": "1"},
        **without_line(Certificate.load(folder / "certificate.json"), OTHERS),
    )
    result = verify(folder, data=forging.data(), trials=2_000, ledger=ledger)
    assert "attempts" in [f.field for f in result.failures]
