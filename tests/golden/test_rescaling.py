"""Figure 1 of arXiv 2509.26149 (Rouchouse, Gonon, Gribonval, Guedj), read off the figure.

Bounds are read to about 0.02 and ratios to 0.05. The table below is typed again on purpose: the
data in the library must not drift.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from nonvacuous.papers.rescaling.figure import BOUND_GOAL, RATIO_TOLERANCE
from nonvacuous.papers.rescaling.settings import (
    CNNS,
    MLPS,
    RescalingSettings,
    network_name,
)

# hidden widths -> bound, bound after rescaling, KL before / after
MNIST = {
    (256, 256, 256, 256): (3.41, 2.29, 2.31),
    (512, 64, 512): (3.68, 1.89, 3.97),
    (1024, 512, 256): (6.45, 3.15, 4.40),
    (512,): (3.37, 1.44, 5.58),
    (64, 32, 16, 8, 4): (1.26, 0.65, 4.05),
    (32, 64, 128): (1.07, 0.69, 2.47),
    (256, 128, 64): (2.64, 1.27, 4.59),
    (128, 128, 128): (1.97, 1.11, 3.28),
    (64, 32): (1.24, 0.61, 4.50),
    (32,): (0.87, 0.46, 3.92),
}
# (prior scale, posterior scale) -> bound, after rescaling, KL ratio
CIFAR = {
    (0.0623, 0.0469): (2.95, 2.77, 1.21),
    (0.0497, 0.0481): (2.87, 2.86, 1.08),
    (0.107, 0.0357): (4.93, 3.11, 3.10),
    (0.145, 0.0474): (5.09, 2.78, 4.79),
    (0.0843, 0.0459): (3.70, 2.79, 2.14),
    (0.0725, 0.0262): (4.53, 3.38, 1.92),
}
EXAMPLES, PRIOR_SCALE, POSTERIOR_SCALE = 55_000, 1.0, 0.03


def test_the_published_perceptrons() -> None:
    found = {entry.widths: (entry.bound, entry.rescaled, entry.kl_ratio) for entry in MLPS}
    assert found == MNIST


def test_the_published_convolutional_network() -> None:
    found = {
        (entry.prior_scale, entry.posterior_scale): (entry.bound, entry.rescaled, entry.kl_ratio)
        for entry in CNNS
    }
    assert found == CIFAR


@pytest.mark.parametrize("widths", MNIST)
def test_the_setting_explains_the_published_bounds(widths: tuple[int, ...]) -> None:
    """Noise 0.03, prior scale 1 and 55,000 examples leave a few per cent for the training error.

    The KL is at least what the noise alone costs; the weights add little to it.
    """
    sizes = (784, *widths, 10)
    weights = sum((a + 1) * b for a, b in pairwise(sizes))
    ratio = (POSTERIOR_SCALE / PRIOR_SCALE) ** 2
    noise = weights * (ratio - 1 - math.log(ratio)) / 2
    shown = next(entry for entry in MLPS if entry.widths == widths)
    left = shown.bound - math.sqrt(noise / (2 * EXAMPLES))
    # The training error, what the weights add, and two per cent for reading a point off the figure.
    assert -0.02 <= left <= 0.07 + 0.02 * shown.bound


@pytest.mark.parametrize("widths", MNIST)
def test_the_published_ratios_agree_with_the_published_bounds(widths: tuple[int, ...]) -> None:
    bound, rescaled, ratio = MNIST[widths]
    low, high = (
        ((bound - risk + a) / (rescaled - risk + b)) ** 2
        for risk, a, b in ((0.0, -0.02, 0.02), (0.06, 0.02, -0.02))
    )
    assert low <= ratio * 1.03 and ratio * 0.97 <= high


def test_the_experiment_file_holds_the_defaults() -> None:
    path = Path(__file__).parents[2] / "experiments" / "rescaling-figure-1.toml"
    assert RescalingSettings.from_toml(path) == RescalingSettings()
    assert {network_name(widths) for widths in MNIST} == {
        network_name(widths) for widths in RescalingSettings().networks
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("widths", "goal"),
    [((32,), 0.30), pytest.param((64, 32), 0.75 * 0.61, marks=pytest.mark.nightly)],
)
def test_small_networks_on_mnist(
    widths: tuple[int, ...], goal: float, data_dir: Path, tmp_path: Path
) -> None:
    from nonvacuous.papers.rescaling.figure import STUDY
    from nonvacuous.study.running import Surroundings, run_study

    settings = RescalingSettings(only=(network_name(widths),))
    around = Surroundings(data_dir=data_dir)
    (entry,) = run_study(STUDY, settings, tmp_path, surroundings=around).networks
    assert entry.examples == EXAMPLES
    assert abs(entry.ratio_error or 1.0) <= RATIO_TOLERANCE
    bound, rescaled, _ = MNIST[widths]
    assert entry.paper.bound == pytest.approx(bound, abs=0.06)
    assert entry.paper.rescaled == pytest.approx(rescaled, abs=0.06)
    assert entry.ours.status == "valid"
    assert entry.ours.risk_upper <= goal
    assert (entry.bound_fraction or 1.0) <= BOUND_GOAL
    assert entry.ours.risk_upper <= entry.ours.tensor_risk_upper
