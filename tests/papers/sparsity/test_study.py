"""The sparsity study on a small copy of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.papers.sparsity import page as pages
from nonvacuous.papers.sparsity import study as sparsity_mnist
from nonvacuous.papers.sparsity.page import depth_table, page, tables
from nonvacuous.papers.sparsity.recipes import _BLOCK, PRIOR_GRID, RECIPES, SHAPES, Recipe
from nonvacuous.papers.sparsity.results import (
    GOALS,
    PROTOTYPE,
    CaseResult,
    SparsityResult,
    does_sparsity_help,
    promise,
    verdict,
)
from nonvacuous.papers.sparsity.settings import Case, SparsityCell, SparsitySettings
from nonvacuous.papers.sparsity.study import STUDY
from nonvacuous.sparsity.training import ChainTraining, initial_chain
from nonvacuous.study.running import Surroundings, run_study, write_pages

DEFAULTS = "experiments/sparsity-mnist.toml"


def candidate_priors() -> int:
    """How many candidate priors PRIOR_GRID and SHAPES hold, those without examples included."""
    recipes, shapes = (math.prod(map(len, grid.values())) for grid in (PRIOR_GRID, SHAPES))
    return recipes * shapes + 2 * len(PRIOR_GRID["start"]) * shapes


def is_candidate(recipe: Recipe) -> bool:
    """Whether the prior of a recipe is in PRIOR_GRID."""
    prior = recipe.prior
    named = ("steps", "learning_rate", "noise", "decay")
    off = {"activity": 0.0, "stability": 0.0, "spectral_limit": None, "orthogonal": 0.0}
    habits = {name: value for name in off if (value := getattr(prior, name)) != off[name]}
    habit = next(iter(habits.items()), None)
    block = prior.activity_block if "activity" in habits else 1
    shared = {name: getattr(prior, name) for name in named} | habits
    return (
        prior == ChainTraining(**shared, activity_block=block)
        and all(getattr(prior, name) in PRIOR_GRID[name] for name in named)
        and len(habits) <= 1
        and (habit if block == 1 or habit is None else ("blocks", habit[1])) in PRIOR_GRID["habit"]
        and block in (1, _BLOCK)
        and all(
            getattr(recipe, name) in PRIOR_GRID[name] for name in ("start", "shifts", "mirrored")
        )
    )


def small() -> SparsitySettings:
    """Two networks that share a prior, one theorem."""
    grid = {
        "hidden": (1,),
        "width": (8,),
        "prior": ("learned:0.3",),
        "pull": (1.0, 0.1),
        "recipe": ("plain",),
    }
    brief = {name: recipe.shortened(steps=60) for name, recipe in RECIPES.items()}
    return SparsitySettings(
        data="digits",
        parts={"sparsity": [grid]},
        recipes=brief,
        theorems=("E",),
        activity_examples=50,
    )


def run(settings, folder, *, progress=None, **around):
    return run_study(
        STUDY, settings, folder, surroundings=Surroundings(**around), progress=progress
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, run(small(), folder)


@pytest.mark.slow
def test_every_network_has_its_certificates_and_its_twin(finished):
    _, result = finished
    assert len(result.cases) == 2
    for entry in result.cases:
        assert sorted(entry.certificates) == ["E dense", "E sparse"]
        for record in entry.certificates.values():
            assert 0.0 < record["risk_upper"] <= 1.0
            assert record["examples"] == entry.examples
            # Two variants and all attempts: ln(2e8) nats, and a share of Monte Carlo.
            assert record["failure"] == pytest.approx(0.05)
            assert record["grid_nats"] > math.log(2e8)
            assert record["sampling_failure"] == pytest.approx(0.01 / 2e8)
            # The network's own errors are below what is promised for it.
            assert entry.train_errors / entry.examples <= record["risk_upper"]
        assert entry.twin == holdout(
            errors=entry.prior_errors, examples=entry.examples, failure=0.06 / 1e8
        )
        assert list(entry.activity) == ["0.0001", "0.001", "0.01", "0.1"]
        ratios = list(entry.activity.values())
        assert ratios == sorted(ratios) and ratios[0] > 0.0 and ratios[-1] <= 1.0
        assert entry.best == min(entry.risk("E dense"), entry.risk("E sparse"))
    strong, weak = result.cases
    assert sum(strong.moved) < sum(weak.moved)
    assert strong.prior_errors == weak.prior_errors


def test_finished_networks_are_not_computed_again(finished, monkeypatch):
    folder, result = finished
    monkeypatch.setattr(sparsity_mnist.training, "train_chain", None)
    monkeypatch.setattr(sparsity_mnist, "certificates", None)
    told = []
    again = run(
        small().changed(only=("h1-*",)),
        folder,
        resume=True,
        progress=lambda *words: told.append(words),
    )
    assert again.to_dict() == result.to_dict() and not told
    with pytest.raises(BadInput, match="holds a reproduction already"):
        run(small(), folder)
    with pytest.raises(BadInput, match="other settings \\(seed\\)"):
        run(small().changed(seed=1), folder, resume=True)


def test_a_lost_certificate_is_computed_from_the_stored_network(finished, monkeypatch):
    folder, result = finished
    (whole,) = folder.glob("cells/*/result.json")
    path = whole.parent / f"{result.cases[0].case.key}.json"
    before = json.loads(path.read_text())
    path.unlink()
    whole.unlink()
    monkeypatch.setattr(sparsity_mnist.training, "train_chain", None)
    run(small(), folder, resume=True)
    after = json.loads(path.read_text())
    for record in (before, after):
        del record["training_seconds"], record["certificate_seconds"]
    assert after == before


@pytest.mark.slow
def test_pages(finished, tmp_path):
    _, result = finished
    paths = write_pages(STUDY, result, tmp_path, command="nonvacuous reproduce sparsity-mnist")
    assert sorted(paths) == ["report.html", "results.json", "table.md"]
    text = paths["report.html"].read_text()
    assert "held-out twin" in text and "Does sparsity help?" in text and "<script" not in text
    assert "nonvacuous reproduce sparsity-mnist" in text
    record = json.loads(paths["results.json"].read_text())
    assert record["cases"][0]["best"] == result.cases[0].best
    assert SparsitySettings.of(record["settings"]).cases() == small().cases()
    assert "E sparse" in paths["table.md"].read_text()
    assert len(tables(result)[0].rows) == 2
    assert result.classes == 10


def test_guessing_is_drawn_for_the_classes_of_the_data(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(180) % 3
    inputs = torch.rand((180, 6), generator=generator) + labels[:, None]
    np.savez(tmp_path / "three.npz", x_train=inputs.numpy(), y_train=labels.numpy())
    few = small().changed(data=str(tmp_path / "three.npz"))
    few = few.changed(parts={"width": few.parts["sparsity"]})
    result = run_study(STUDY, few, tmp_path / "run")
    drawn = []
    monkeypatch.setattr(pages, "lines", lambda *_, **how: drawn.append(how.get("level")) or "")
    page(result, "x")
    assert drawn[0] == ("guessing", pytest.approx(2 / 3))


def made_up(case: Case, **risks: float) -> CaseResult:
    entries = {
        name.replace("_", " "): {"risk_upper": value, "kl_nats": 1.0}
        for name, value in risks.items()
    }
    return CaseResult(
        case=case,
        examples=100,
        train_errors=1,
        test_errors=2,
        test_examples=50,
        prior_errors=3,
        twin=0.09,
        moved=(0.1,),
        spectral=(2.0, 3.0, 4.0),
        active=(0.5,),
        activity={"0.1": 0.4},
        certificates=entries,
        training_seconds=1.0,
        certificate_seconds=1.0,
    )


def test_goals_look_at_mnist_and_at_the_smallest_certificate():
    settings = SparsitySettings()
    goal = GOALS[1]
    case = Case(goal.hidden, goal.width, goal.prior, 1.0, goal.recipe)
    result = SparsityResult(settings, (made_up(case, E_dense=0.2, E_sparse=0.12),))
    (met,) = result.goals()
    assert met.met and met.found == 0.12 and met.by == "E sparse" and met.twin == 0.09
    assert met.prototype == 0.122
    other = replace(case, recipe="plain")
    assert not SparsityResult(settings, (made_up(other, E_dense=0.2),)).goals()
    assert not SparsityResult(settings.changed(data="digits"), result.cases).goals()


def test_sparsity_is_judged_plainly():
    parts = {
        "sparsity": [
            {"hidden": 1, "width": 5, "prior": "zero", "pull": 1.0, "recipe": ["plain", "sparse"]}
        ]
    }
    settings = SparsitySettings(parts=parts)
    plain, sparse = settings.cases()
    result = SparsityResult(
        settings,
        (
            made_up(plain, E_dense=0.5, E_sparse=0.6, A_dense=1.0, A_sparse=1.0),
            made_up(sparse, E_dense=0.5, E_sparse=0.4, D_dense=0.5, D_sparse=0.501),
        ),
    )
    words = {(gain.case.recipe, gain.theorem): verdict(gain) for gain in result.gains()}
    assert words == {
        ("plain", "A"): "vacuous both ways",
        ("plain", "E"): "hurts",
        ("sparse", "D"): "no difference",
        ("sparse", "E"): "helps",
    }
    text = does_sparsity_help(result)
    assert "ordinary: hurts (+20.0% in Theorem E" in text
    assert "l1-sparse: helps (-20.0% in Theorem E" in text
    assert page(result, "x").lead.startswith("Yes: 0.4001")
    # Who guesses among three classes errs on two thirds, among two on half.
    assert page(replace(result, classes=3), "x").lead.startswith("Yes")
    few = replace(result, cases=(made_up(plain, E_dense=0.6, E_sparse=0.6),), classes=2)
    assert page(few, "x").lead.startswith("Not here: 0.6")


def test_promises_are_rounded_up():
    assert promise(0.12341) == "0.1235" and promise(0.5) == "0.5000" and promise(None) == "-"
    # The float above a number of four decimals is above it, however little.
    assert promise(math.nextafter(0.5, 1.0)) == "0.5001"


def test_the_narration_rounds_up_too():
    case = made_up(Case(1, 5, "zero", 1.0, "plain"), E_dense=0.40001)
    told = case.model_copy(update={"twin": 0.08001}).line()
    assert "certificate 0.4001 by" in told and "held-out twin 0.0801" in told


@pytest.mark.slow
def test_the_caption_speaks_of_every_theorem():
    settings = SparsitySettings()
    text = str(page(SparsityResult(settings, (made_up(settings.cases()[0], E_dense=0.4),)), "x"))
    assert all(theorem in "ADEF" for theorem in settings.theorems)
    assert "D, E and F: see" in text


@pytest.mark.parametrize(("twin", "said"), [(0.1, True), (None, True), (0.9, False)])
def test_no_certificate_beats_its_twin_only_where_none_does(twin, said):
    settings = SparsitySettings.quick()
    entry = made_up(settings.cases()[0], E_dense=0.4).model_copy(update={"twin": twin})
    text = str(page(SparsityResult(settings, (entry,)), "x"))
    assert ("No certificate here beats its held-out twin" in text) is said


def test_default_settings_are_those_in_the_file():
    assert SparsitySettings.from_toml(DEFAULTS).record() == SparsitySettings().record()


def asked(*only):
    return SparsitySettings(only=only).asked()


def test_the_study_answers_what_it_must():
    settings = SparsitySettings()
    keys = {case.key for case in settings.cases()}
    assert len(keys) == len(settings.cases()) <= settings.attempts
    for goal in GOALS:
        assert any(
            (case.hidden, case.width, case.prior, case.recipe)
            == (goal.hidden, goal.width, goal.prior, goal.recipe)
            and goal.pull in (None, case.pull)
            for case in settings.cases("goals")
        ), goal
    shapes = {(case.hidden, case.width, case.prior) for case in settings.cases()}
    for hidden in (1, 2):
        for width in (100, 500, 1000):
            for prior in ("zero", "initialization", "learned:0.05"):
                assert (hidden, width, prior) in shapes
    assert {case.hidden for case in settings.cases("depth")} >= {5, 10}
    assert len(asked("depth", "h1-w100-zero-*")) > len(asked("depth"))
    assert all(0 < known <= 1 for known in PROTOTYPE.values())


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"nothing": 1}, "no setting 'nothing'"),
        ({"theorems": ["Z"]}, "no theorem 'Z'"),
        ({"theorems": []}, "give at least one"),
        ({"parts": {}}, "no network"),
        ({"parts": {"x": [{"hidden": 1}]}}, "names hidden, width"),
        ({"attempts": 1}, "raise attempts"),
        ({"recipes": {"plain": {"speed": 1}}}, "no setting 'recipes.plain.speed'"),
        ({"recipes": {"plain": {"prior": {"stepz": 1}}}}, "no setting 'recipes.plain.prior.stepz'"),
    ],
)
def test_bad_settings(record, words):
    with pytest.raises(BadInput, match=words):
        SparsitySettings.of(record)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden": 0}, "hidden"),
        ({"recipe": "magic"}, "no recipe 'magic'"),
        ({"prior": "twelve"}, "no prior"),
        ({"share": 0.0}, "share"),
    ],
)
def test_bad_networks(changes, words):
    grid = {"hidden": 1, "width": 5, "prior": "zero", "pull": 1.0, "recipe": "plain"}
    with pytest.raises(BadInput, match=words):
        SparsitySettings.of({"parts": {"x": [grid | changes]}})


def test_the_quick_study_asks_the_same_questions():
    brief, whole = SparsitySettings.quick(), SparsitySettings()
    assert brief.data == "digits" and set(brief.parts) == set(whole.parts)
    assert len(brief.cases()) <= 9
    for recipe in brief.recipes.values():
        assert recipe.prior.steps <= 150 and recipe.network.steps <= 150 and not recipe.shifts


def test_names_of_networks():
    case = Case(2, 100, "learned:0.05", 0.1, "plain", 0.4)
    assert case.key == "h2-w100-learned0.05-pull0.1-plain-share0.4"
    assert case.prior_key == "h2-w100-learned0.05-plain-share0.4"
    assert case.short() == "3x100, 5 %, λ 0.1, plain, 40 % of data"
    assert str(case) == "3 layers, width 100, 5 % prior, λ = 0.1, 40 % of the examples"


def test_unknown_names():
    with pytest.raises(BadInput, match="neither a part"):
        asked("h7-*")


def test_every_prior_recipe_is_on_the_list_that_is_paid_for():
    settings = SparsitySettings()
    assert candidate_priors() <= settings.attempts
    assert all(is_candidate(recipe) for recipe in settings.recipes.values())
    odd = RECIPES["plain"].changed(prior=replace(RECIPES["plain"].prior, learning_rate=0.123))
    both = replace(RECIPES["sparse"].prior, stability=0.5)
    assert not is_candidate(odd)
    assert not is_candidate(RECIPES["sparse"].changed(prior=both))
    assert not is_candidate(odd.changed(prior=replace(RECIPES["plain"].prior, momentum=0.5)))
    shapes = {(case.hidden, case.width, case.share) for case in settings.cases()}
    assert all(
        h in SHAPES["hidden"] and w in SHAPES["width"] and share in SHAPES["share"]
        for h, w, share in shapes
    )
    blocks = RECIPES["blocks"]
    assert not is_candidate(blocks.changed(prior=replace(blocks.prior, activity_block=7)))
    assert not is_candidate(blocks.changed(shifts=5))


def test_one_number_is_changed_at_a_time():
    base = RECIPES["robust"].model_dump()
    changed = [name for name in RECIPES if name.startswith("robust,")]
    assert len(changed) >= 25
    for name in changed:
        record = RECIPES[name].model_dump()
        apart = [key for key in record if record[key] != base[key]]
        assert len(apart) == 1, name
        if apart[0] in ("prior", "network"):
            inner, other = record[apart[0]], base[apart[0]]
            assert sum(inner[key] != other[key] for key in inner) == 1, name


def test_norm_bounds_stand_beside_ours_and_say_nothing(finished):
    _, result = finished
    for entry in result.cases:
        assert len(entry.norm_bounds) == 3
        assert all(value > 1.0 for value in entry.norm_bounds.values())


def test_the_best_network_of_other_data_has_a_goal():
    settings = SparsitySettings(data="cifar10")
    case = settings.cases("best")[0]
    entries = (made_up(case, E_dense=0.55), made_up(replace(case, pull=0.5), E_dense=0.7))
    (goal,) = SparsityResult(settings, entries).goals()
    assert goal.found == 0.55 and goal.met and goal.goal == 0.6


def test_deep_networks_are_certified_by_the_theorems_that_can(monkeypatch):
    asked = []

    def certify(layers, prior, examples, settings, **_others):
        asked.append(settings.theorem)
        record = dict.fromkeys(sparsity_mnist._KEPT, 0.5)
        record |= {"threshold": math.inf, "margin": math.nan}
        return type("C", (), {"to_dict": lambda self: record})()

    monkeypatch.setattr(sparsity_mnist, "certify_sparse", certify)
    points = Examples(torch.rand(5, 4), torch.zeros(5, dtype=torch.int64), ("a", "b"), "points")
    cell = SparsityCell.of(SparsitySettings().cases("depth")[:1], SparsitySettings())
    dead = tuple(-matrix.abs() for matrix in initial_chain((4, 3, 2), seed=0))
    silent = sparsity_mnist.certificates(dead, dead, points, settings=cell, seed=0)
    assert len(silent) == 8 and all(entry["risk_upper"] == 1.0 for entry in silent.values())
    assert not asked
    # What was not computed is not shown as a number.
    case = cell.cases[0]
    entry = made_up(case).model_copy(update={"certificates": silent})
    assert entry.best == 1.0 and depth_table([entry]).rows[0][3] == "-"
    for hidden, theorems in ((10, "ADEF"), (11, "AF")):
        asked.clear()
        chain = initial_chain((4, *[3] * hidden, 2), seed=0, start="identity")
        names = sparsity_mnist.certificates(chain, chain, points, settings=cell, seed=0)
        assert "".join(sorted(set(asked))) == theorems
        assert len(names) == 2 * len(theorems)
        # JSON has no infinity.
        assert all(entry["threshold"] is entry["margin"] is None for entry in names.values())
        assert all(entry["risk_upper"] == 0.5 for entry in names.values())
