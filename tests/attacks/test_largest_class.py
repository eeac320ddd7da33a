"""A network that knows nothing but the largest class must not pass for a result."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.cli import exits
from nonvacuous.cli.app import main
from nonvacuous.report import view


def rare_positives(examples: int = 3000, share: float = 0.047) -> tuple[np.ndarray, np.ndarray]:
    """Labels that are independent of the inputs, one of the two classes rare."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(examples, 10)).astype(np.float32)
    return inputs, (generator.random(examples) < share).astype(np.int64)


class Always(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(inputs), 2)


@pytest.mark.slow
def test_the_gate_fails_where_nothing_was_learned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    inputs, labels = rare_positives()
    np.savez("rare.npz", inputs=inputs, labels=labels)
    flags = "--epochs 2 --prior-epochs 2 --trials 5000 --max-risk 0.1 --no-report --no-twin"
    code = main(["certify", "--data", "rare.npz", "--model", "mlp:8", *flags.split()])
    out, err = capsys.readouterr()
    assert code == exits.TOO_RISKY, out
    assert out.startswith("VACUOUS"), out
    assert "not shown to be better than always answering “0”" in out
    assert "not shown to be better than always answering “0”" in err


def test_a_constant_network_is_not_sold_as_non_vacuous():
    certificate = nv.certify(Always(), rare_positives(), method=nv.HeldOut(unseen=True))
    assert certificate.risk_upper < 0.1
    assert certificate.is_vacuous
    assert not certificate.shown_better
    shown = view.View(certificate)
    assert "<bdi>Non-vacuous</bdi>" not in view.render(shown)
    assert shown.promise.striptags().startswith("Vacuous")
    assert "not shown to be better than always answering “0”" in shown.verdict


def test_what_is_better_than_the_largest_class_is_shown_to_be():
    inputs, labels = rare_positives()
    inputs[:, 0] = np.where(labels == 1, 5.0, -5.0)
    linear = nn.Linear(10, 2)
    with torch.no_grad():
        linear.weight.zero_()
        linear.weight[1, 0] = 1.0
        linear.bias.zero_()
    certificate = nv.certify(linear, (inputs, labels), method=nv.HeldOut(unseen=True))
    assert certificate.shown_better
    assert not certificate.is_vacuous
    baseline = certificate.baseline
    assert baseline is not None
    assert (baseline.name, baseline.errors) == ("0", int(labels.sum()))
    assert certificate.risk_upper < baseline.risk_lower < labels.mean()


@pytest.mark.parametrize("field, value", [("errors", 1400), ("answer", 1), ("failure", 0.05)])
def test_verify_counts_the_classes_again(field, value):
    """A baseline that was made worse than it is makes anything look good."""
    data = rare_positives()
    certificate = nv.certify(Always(), data, method=nv.HeldOut(unseen=True))
    assert certificate.baseline is not None
    changed = {field: value}
    errors, failure = (
        changed.get(name, getattr(certificate.baseline, name)) for name in ("errors", "failure")
    )
    changed["risk_lower"] = nv.bounds.constant_lower(
        most_frequent=3000 - errors, examples=3000, failure=failure
    )
    forged = certificate.baseline.model_copy(update=changed)
    fields = {name: getattr(certificate, name) for name in type(certificate).model_fields}
    del fields["digest"]
    resealed = nv.Certificate.sealed(**{**fields, "baseline": forged})
    failed = [f for f in nv.verify(resealed, data=data).findings if f.passed is False]
    assert [f.field for f in failed] == [f"baseline.{field}"]


def test_the_lower_end_fails_no_more_often_than_it_may():
    """Three classes whose largest is hard to tell: the end for the sample's largest class."""
    generator, shares, failure, runs = np.random.default_rng(1), (0.34, 0.33, 0.33), 0.1, 4000
    counts = generator.multinomial(50, shares, size=runs).max(axis=1)
    ends = {
        most: nv.bounds.constant_lower(most_frequent=int(most), examples=50, failure=failure)
        for most in np.unique(counts)
    }
    false = sum(ends[most] > 1 - max(shares) for most in counts)
    assert false <= runs * failure + 4 * math.sqrt(runs * failure * (1 - failure))
    least = nv.bounds.constant_lower(most_frequent=25, examples=50, failure=failure)
    assert least == nv.bounds.holdout_lower(errors=25, examples=50, failure=failure)
