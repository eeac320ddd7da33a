"""The rescaling figure as a program: resumable, honest about its columns, readable at the end."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.papers.rescaling import figure as rescaling_figure
from nonvacuous.papers.rescaling.figure import STUDY, FigureResult, initialized
from nonvacuous.papers.rescaling.settings import RescalingSettings, network_name
from nonvacuous.study.running import Surroundings, finished_cells, run_study, write_pages
from nonvacuous.study.study import Context

#: Networks are trained for them, once for all.
pytestmark = pytest.mark.slow

SMALL = RescalingSettings.quick().changed(
    networks=((12,), (10, 8)),
    epochs=3,
    trials=400,
    posterior_scales=(0.05, 0.2, 2),
    prior_scales=(0.001, 1.0, 9),
)


def run(settings: RescalingSettings, folder: Path, progress=None, **around) -> FigureResult:
    return run_study(
        STUDY, settings, folder, surroundings=Surroundings(**around), progress=progress
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("figure")


@pytest.fixture(scope="module")
def result(folder: Path) -> FigureResult:
    return run(SMALL, folder)


def test_every_network_has_its_numbers_and_its_certificate(
    result: FigureResult, folder: Path
) -> None:
    assert [entry.name for entry in result.networks] == ["64-12-10", "64-10-8-10"]
    for entry in result.networks:
        assert entry.examples == 1437
        assert 0 < entry.train_errors < 1437
        assert entry.published is None and entry.ratio_error is None
        certificate = Certificate.load(folder / entry.ours.certificate / "certificate.json")
        assert certificate.risk_upper == entry.ours.risk_upper
        assert certificate.status == entry.ours.status == "valid"
        assert certificate.held_out_twin is not None
        # All certificates of the figure hold together.
        assert any(spent.name == "other certificates" for spent in certificate.budget.entries)


def test_the_paper_setting_is_the_papers_formula(result: FigureResult) -> None:
    for entry in result.networks:
        paper = entry.paper
        assert paper.kl_after < paper.kl_before
        excess = paper.bound - paper.empirical_risk
        assert excess**2 * 2 * entry.examples == pytest.approx(paper.kl_before)
        assert paper.kl_ratio == paper.kl_before / paper.kl_after


def test_the_columns_tell_who_earns_what(result: FigureResult) -> None:
    for entry in result.networks:
        assert list(entry.columns) == ["0.03", "0.06"]
        for columns in entry.columns.values():
            nats = {column.name: column.kl_nats for column in columns}
            assert len(nats) == len(columns) == 15
            fixed = "around zero, prior scale 1"
            assert nats[f"{fixed}, rescaled"] <= nats[fixed]
            for center in ("zero", "initial weights"):
                name = f"around {center}, best prior scale"
                assert nats[f"{name}, rescaled"] <= nats[name]
                each = nats[f"{name} per tensor, rescaled"]
                assert each <= nats[f"{name}, rescaled"] * (1 + 1e-6)
                assert each <= nats[f"{name} per tensor"] * (1 + 1e-6)
                scaled = nats[f"around {center}, + scale of the scores"]
                shifted = nats[f"around {center}, + shift of the scores"]
                assert shifted < scaled <= each
                # Forgetting the order of units needs a prior that treats them alike.
                ordered = nats.get(f"around {center}, + order of the units")
                assert (ordered is not None) == (center == "zero")
                assert ordered is None or ordered <= shifted
            for column in columns:
                assert 0 < column.kl_inverse <= column.mcallester + 1e-12 <= 1 + 1e-12
                assert (column.charge_nats > 0) == ("prior scale 1" not in column.name)


def test_forgetting_the_shift_of_the_scores_only_helps(result: FigureResult) -> None:
    for entry in result.networks:
        assert 0 < entry.ours.kl_nats < entry.ours.tensor_kl_nats
        assert entry.ours.risk_upper < entry.ours.tensor_risk_upper


def test_results_survive_the_file(result: FigureResult, folder: Path) -> None:
    stored = STUDY.result(SMALL, finished_cells(STUDY, folder), Context(folder))
    assert stored == result


def test_finished_networks_are_not_computed_again(
    result: FigureResult, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescaling_figure, "train", None)
    monkeypatch.setattr(rescaling_figure, "certify", None)
    assert run(SMALL, folder, resume=True) == result


def test_a_killed_run_goes_on_and_ends_the_same(result: FigureResult, tmp_path: Path) -> None:
    seen: list[str] = []

    def stop_at(phase: str, name: str):
        def progress(now: str, done: int, total: int, message: str) -> None:
            seen.append(now)
            if now == phase and message.startswith(name):
                raise KeyboardInterrupt

        return progress

    for phase, name in (("training", "64-10-8-10"), ("columns", "64-10-8-10"), ("noise", "64-10")):
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, tmp_path, resume=True, progress=stop_at(phase, name))
    # The weights were kept: training is not begun again.
    assert seen.count("cells") == 1
    assert run(SMALL, tmp_path, resume=True) == result


def test_a_folder_is_not_overwritten_by_accident(folder: Path, result: FigureResult) -> None:
    with pytest.raises(BadInput, match="holds a reproduction already"):
        run(SMALL, folder)
    with pytest.raises(BadInput, match="other settings \\(epochs\\)"):
        run(SMALL.changed(epochs=4), folder, resume=True)


def test_pages(result: FigureResult, tmp_path: Path) -> None:
    paths = write_pages(STUDY, result, tmp_path, command="")
    assert json.loads(paths["results.json"].read_text())["summary"]["networks"] == 2
    text = paths["table.md"].read_text(encoding="utf-8")
    for entry in result.networks:
        assert f"| {entry.name} |" in text
        assert shown_up(entry.ours.risk_upper) in text
    assert "weight decay" in text and "not known" in text
    drawing = paths["figure.svg"].read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert drawing in paths["report.html"].read_text(encoding="utf-8")
    assert "64-12-10" in drawing


def test_published_networks_are_compared(result: FigureResult) -> None:
    entry = result.networks[0].model_copy(
        update={"widths": (32,), "name": "784-32-10", "is_published_data": True}
    )
    compared = FigureResult(result.settings, (entry,))
    assert entry.published is not None
    assert entry.bound_fraction == entry.ours.risk_upper / 0.46
    assert compared.summary["published"] == 1
    page = STUDY.page(compared, "")
    files = STUDY.files(compared, page)
    assert "0.87 → 0.46" in files["table.md"]
    assert "published, rescaled" in files["figure.svg"]


def test_initial_weights_depend_on_the_seed_alone() -> None:
    state = torch.random.get_rng_state()
    one, two, other = (
        initialized((300,), (1, 28, 28), 10, initialization="lecun", seed=seed)
        for seed in (3, 3, 4)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, two.state_dict()[name])
    first, last = (one.state_dict()[f"layers.{k}.weight"] for k in (0, 2))
    assert not torch.equal(first, other.state_dict()["layers.0.weight"])
    assert float(first.var()) == pytest.approx(1 / 784, rel=0.02)
    assert float(last.var()) == pytest.approx(1 / 300, rel=0.1)
    assert not one.state_dict()["layers.0.bias"].any()


def test_networks_are_chosen_by_name() -> None:
    settings = RescalingSettings()
    chosen = settings.changed(only=("784-32-10", "64,32", "512"))
    assert chosen.networks == ((32,), (64, 32), (512,))
    with pytest.raises(BadInput, match="784-33-10"):
        settings.changed(only=("784-33-10",))
    assert network_name((64, 32)) == "784-64-32-10"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "no setting 'epoch'"),
        ("networks = []", "at least one network"),
        ("networks = [[0]]", "hidden widths"),
        ("initialization = 'zeros'", "'lecun' or 'pytorch'"),
        ("epochs = ", "not TOML"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        RescalingSettings.from_toml(path)


def test_too_many_examples(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1437 training examples, not 5000"):
        run(SMALL.changed(examples=5000), tmp_path / "figure")
    assert not (tmp_path / "figure").exists()
