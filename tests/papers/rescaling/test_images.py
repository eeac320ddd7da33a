"""Networks on images: what is inferred about the paper's, and what the tables say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from nonvacuous.models import build
from nonvacuous.papers.rescaling.figure import STUDY
from nonvacuous.papers.rescaling.images import (
    ARCHITECTURES,
    ImageResult,
    ImageSettings,
    inferred_weights,
    run_images,
)
from nonvacuous.papers.rescaling.page import image_tables, nearest
from nonvacuous.papers.rescaling.settings import CNNS, RescalingSettings
from nonvacuous.study.study import Context

#: Networks are trained for them, once for all.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> ImageResult:
    settings = (
        ImageSettings.at_rate(0.1, seed=1)
        .small()
        .model_copy(update={"examples": 300, "trials": 50})
    )
    return run_images(settings, Context(tmp_path_factory.mktemp("panel")))


def test_the_size_inferred_explains_every_row_of_the_figure() -> None:
    weights, squares = inferred_weights()
    assert weights == pytest.approx(2.6e6, rel=0.02)
    for shown in CNNS:
        x = (shown.posterior_scale / shown.prior_scale) ** 2
        nats = weights * (x - 1 - math.log(x)) / 2 + squares / (2 * shown.prior_scale**2)
        # The risk that is left over for the row must be a risk, up to what reading off allows.
        risk = shown.bound - math.sqrt(nats / 100_000)
        assert 0.3 < risk < 0.95
    network = build(ImageSettings().architecture, (3, 32, 32), 10, seed=0)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(weights, rel=0.02)


def test_the_panel_is_the_papers_formula(panel: ImageResult) -> None:
    assert len(panel.points) == 6 and not panel.columns
    for point in panel.points:
        assert point.kl_after <= point.kl_before
        excess = point.bound - point.empirical_risk
        assert excess**2 * 2 * panel.examples == pytest.approx(point.kl_before)
    shown = image_tables((panel,))
    assert "not described" in shown[0].caption
    assert shown[1].rows[-1][0] == "published"


def test_the_network_nearest_to_the_papers_squares_is_shown(panel: ImageResult) -> None:
    _, squares = inferred_weights()
    others = [panel.model_copy(update={"weights_squared": c * squares}) for c in (0.5, 0.9, 1.2)]
    assert nearest(tuple(others)) is others[1]


@pytest.mark.parametrize("name", ["resnet20", "vit"])
def test_other_architectures_have_every_column(name: str, tmp_path: Path) -> None:
    settings = ImageSettings.named(name, seed=3).small()
    settings = settings.model_copy(
        update={
            "examples": 200,
            "trials": 20,
            "training": settings.training.changed(epochs=1),
            "prior_scales": (0.01, 1.0, 5),
        }
    )
    found = run_images(settings, Context(tmp_path))
    assert not found.points
    nats = {c.name: c.kl_nats for c in found.columns["0.03"]}
    # Batch normalization is folded: there is a bias for each of its channels, and no gain.
    model = build(settings.architecture, (1, 8, 8), 10)
    norms = sum(m.num_features for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    assert found.weights == sum(p.numel() for p in model.parameters()) - norms
    for around in (
        "zero, prior scale 1",
        "zero, best prior scale",
        "zero, best prior scale per tensor",
    ):
        assert nats[f"around {around}, rescaled"] <= nats[f"around {around}"] * (1 + 1e-9)
    (shown,) = image_tables((found,))
    assert shown.headings[1:] == ("noise 0.03",)


def test_what_is_asked_for_decides_the_cells() -> None:
    settings = RescalingSettings().changed(
        only=("784-32-10",), cifar=True, rates=(0.02, 0.1), architectures=tuple(ARCHITECTURES)
    )
    keys = [cell.key for cell in STUDY.cells(settings, ())]
    cnn = "cnn-64-128-256-512-512"
    assert keys == ["32", cnn, "resnet-20", "vit-128-4", f"{cnn}-rate-0.02", f"{cnn}-rate-0.1"]
    small = RescalingSettings.quick().changed(cifar=True, rates=(0.05,))
    cell = STUDY.cells(small, ())[-1]
    assert cell.images is not None and cell.images.data == "digits"
