"""What the estimators refuse: wrong modes, hidden weights, names and arguments that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported, WrongMode
from nonvacuous.risk.pairs import estimate_risk

from .networks import seeded


def test_training_mode_is_refused_by_layer_name(problem) -> None:
    network, posterior, examples = problem
    network[1].train()
    with pytest.raises(WrongMode, match="'1'"):
        estimate_risk(network, posterior, examples, generator=seeded())


def test_predictions_that_depend_on_the_batch_are_refused() -> None:
    batch_statistics = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)
    ).eval()

    class Chance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(torch.nn.functional.dropout(inputs, 0.5, training=True))

    class Centered(Chance):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs - inputs.mean(0))

    for network in (Chance().eval(), Centered().eval()):
        posterior = DiagonalGaussian.around(network)
        examples = (torch.randn(9, 4), torch.zeros(9, dtype=torch.int64))
        with pytest.raises(WrongMode, match="other examples"):
            estimate_risk(network, posterior, examples, trials=10, generator=seeded())
    with pytest.raises((WrongMode, BadInput)):
        posterior = DiagonalGaussian.around(batch_statistics)
        estimate_risk(batch_statistics, posterior, examples, trials=10, generator=seeded())


def test_weights_kept_outside_the_parameters_are_refused() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.cache = [self.layer.weight]

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs @ self.cache[0].t() + self.layer.bias

    network = Cached().eval()
    examples = (torch.randn(9, 4), torch.zeros(9, dtype=torch.int64))
    with pytest.raises(Unsupported, match="somewhere else"):
        estimate_risk(
            network, DiagonalGaussian.around(network), examples, trials=10, generator=seeded()
        )


def test_use_that_changes_between_batches_is_refused() -> None:
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs = self.layer(inputs)
            return outputs + 0 * self.layer(inputs) if len(inputs) > 10 else outputs

    network = Fickle().eval()
    examples = (torch.randn(50, 4), torch.zeros(50, dtype=torch.int64))
    posterior = DiagonalGaussian.around(network)
    with pytest.raises(Unsupported, match="local=False"):
        estimate_risk(network, posterior, examples, trials=100, generator=seeded())
    result = estimate_risk(
        network, posterior, examples, trials=100, generator=seeded(), local=False
    )
    assert result.trials == 100


def test_names_must_cover_the_network(problem) -> None:
    network, posterior, examples = problem
    partial = DiagonalGaussian.around(network[0])
    with pytest.raises(BadInput, match="lacks"):
        estimate_risk(network, partial, examples, generator=seeded())
    wider = DiagonalGaussian.from_means(dict(posterior.means) | {"ghost": torch.zeros(2)}, 0.1)
    with pytest.raises(BadInput, match="ghost"):
        estimate_risk(network, wider, examples, generator=seeded())


def test_bad_arguments(problem) -> None:
    network, posterior, (inputs, labels) = problem
    run = lambda examples, **options: estimate_risk(  # noqa: E731
        network, posterior, examples, **{"generator": seeded(), "trials": 10} | options
    )
    assert type(run((inputs, labels), trials=np.int64(10)).trials) is int
    for trials in (0, -1, 2.5, True, None):
        with pytest.raises(BadInput, match="trials"):
            run((inputs, labels), trials=trials)
    with pytest.raises(BadInput, match="chunk"):
        run((inputs, labels), chunk=0)
    with pytest.raises(BadInput, match="generator"):
        run((inputs, labels), generator=7)
    with pytest.raises(BadInput, match="labels run from"):
        run((inputs, labels + 5))
    with pytest.raises(BadInput, match="labels run from"):
        run((inputs, labels - 1))
    with pytest.raises(BadInput, match="flat integer"):
        run((inputs, labels.float()))
    with pytest.raises(BadInput, match="flat integer"):
        run((inputs[:-1], labels))
    with pytest.raises(BadInput, match="no examples"):
        run((inputs[:0], labels[:0]))
    with pytest.raises(BadInput, match="pair of tensors"):
        run(3)
    with pytest.raises(BadInput, match="must be tensors"):
        run(([1.0], [0]))
    with pytest.raises(BadInput, match="fails on inputs of shape"):
        run((torch.randn(40, 5), labels))


def test_outputs_must_be_rows_of_scores() -> None:
    examples = (torch.randn(9, 4), torch.zeros(9, dtype=torch.int64))
    single = nn.Linear(4, 1).eval()
    with pytest.raises(BadInput, match="at least two class scores"):
        estimate_risk(
            single, DiagonalGaussian.around(single), examples, trials=5, generator=seeded()
        )

    class Several(nn.Linear):
        def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(inputs), inputs

    several = Several(4, 3).eval()
    with pytest.raises(BadInput, match="must return one tensor"):
        estimate_risk(
            several, DiagonalGaussian.around(several), examples, trials=5, generator=seeded()
        )
