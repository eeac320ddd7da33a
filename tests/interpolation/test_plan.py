from __future__ import annotations

import torch

from nonvacuous.interpolation.plan import make_plan

CPU = torch.device("cpu")


def test_all_of_mnist_fits_into_nine_gigabytes():
    plan = make_plan(60_000, 784, 30, device=CPU, memory=12 * 10**9)
    assert (plan.method, plan.place, plan.precision) == ("cholesky", "memory", "float32")
    assert plan.factor_bytes == 7_440_000_000
    assert plan.peak_bytes < 9e9
    assert plan.seconds > 60


def test_small_problems_are_solved_in_float64():
    assert make_plan(5000, 784, 10, device=CPU, memory=10**9).precision == "float64"
    # Where that does not fit, float32 with refinement does.
    assert make_plan(5000, 784, 10, device=CPU, memory=3 * 10**8).precision == "float32"


def test_out_of_memory_the_disk_serves(tmp_path):
    plan = make_plan(20_000, 50, 10, device=CPU, memory=5 * 10**8, folder=tmp_path / "new")
    assert plan.place == "disk"
    assert plan.folder == tmp_path / "new"
    assert plan.peak_bytes <= 5 * 10**8
    assert "880 MB in files of" in str(plan)
    assert not (tmp_path / "new").exists()


def test_conjugate_gradients_keep_no_matrix():
    plan = make_plan(200_000, 50, 10, device=CPU, memory=2 * 10**9, method="conjugate-gradient")
    assert plan.place == "nowhere" and plan.factor_bytes == 0
    assert "shows only on the way" in str(plan)
