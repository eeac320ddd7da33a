"""The optimizers are torch's own, to the last bit, without the import of its compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from nonvacuous.training.optimizers import (
    build_optimizer,
    make_recordable,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)

FIRST_USE = """
import sys
import numpy as np
from torch import nn
import nonvacuous as nv

inputs = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
quick = {"training": nv.PosteriorTraining(epochs=1), "plain_training": nv.PlainTraining(epochs=1)}
nv.certify(
    nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)),
    (inputs, (inputs[:, 0] > 0).astype(int)),
    method=nv.Posterior(trials=50, **quick),
    seed=0,
)
absent = ("sklearn", "torch._dynamo", "matplotlib", "scipy.stats", "pandas", "sympy")
print([name for name in absent if name in sys.modules])
"""


@pytest.mark.slow
def test_a_first_certificate_imports_only_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_its_steps_are_torchs(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 3, generator=generator)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    options = {"momentum": 0.9, "weight_decay": 0.01}
    optimizer = build_optimizer(name, [([ours], 0.1)], **options)
    reference: torch.optim.Optimizer
    if name == "sgd":
        reference = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=0.01)
    else:
        reference = torch.optim.AdamW([theirs], lr=0.1, betas=(0.9, 0.999), weight_decay=0.01)
    for step in range(6):
        if step == 3:  # its memory, kept and given back
            kept = optimizer_tensors(optimizer)
            optimizer = build_optimizer(name, [([ours], 0.1)], **options)
            restore_optimizer(optimizer, kept)
        for tensor, rule in ((ours, optimizer), (theirs, reference)):
            rule.zero_grad()
            (tensor.sin() ** 2).sum().backward()
            rule.step()
        assert torch.equal(ours, theirs)
        assert ours.requires_grad and ours.is_leaf


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_recordable_steps_are_the_same_and_read_tensors_alone(name: str) -> None:
    results = []
    for recordable in (False, True):
        weights = torch.ones(4, requires_grad=True)
        optimizer = build_optimizer(name, [([weights], 0.1)], momentum=0.9, fused=True)
        if recordable:
            make_recordable(optimizer)
            assert optimizer_tensors(optimizer)  # before any step: a recording puts them back
        for step in range(6):
            if step == 3:
                kept = optimizer_tensors(optimizer)
                optimizer = build_optimizer(name, [([weights], 0.1)], momentum=0.9, fused=True)
                if recordable:
                    make_recordable(optimizer)
                restore_optimizer(optimizer, kept)
            set_rate(optimizer, "cosine", step / 6)
            assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor) == recordable
            weights.grad = torch.arange(4.0) * (step + 1)
            optimizer.step()
        results.append(weights.detach())
    assert torch.allclose(*results, rtol=1e-6)
