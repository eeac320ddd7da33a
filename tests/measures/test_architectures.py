"""The panel on networks of all kinds: a number or a reason, never an exception."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.measures import INVARIANCES, MEASURES, Subject, Undefined, Value, moved
from nonvacuous.measures.gauges import balanced
from tests.networks.architectures import ARCHITECTURES

NAMES = (
    "mlp squared relu", "mlp tanh", "functional", "one factor", "glu by chunk",
    "tied language model", "recurrent without bias", "mobilenet relu", "densenet",
    "grouped convolutions", "group and instance norm", "attention only", "transformer relu",
    "linear attention",
)  # fmt: skip
CHOSEN = [entry for entry in ARCHITECTURES if entry.name in NAMES]


def test_the_names_are_right() -> None:
    assert {entry.name for entry in CHOSEN} == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", CHOSEN, ids=lambda entry: entry.name)
def test_every_measure_gives_a_number_or_a_reason(architecture) -> None:
    module, example = architecture.made()
    inputs = torch.cat([example] * 3)
    if example.is_floating_point():
        source = torch.Generator().manual_seed(1)
        inputs = torch.randn(inputs.shape, generator=source).double()
    with torch.no_grad():
        outputs = module(inputs)
    data: object = inputs
    if outputs.ndim == 2 and example.is_floating_point():
        labels = outputs.argmax(1)
        labels[: outputs.shape[1]] = torch.arange(outputs.shape[1])[: len(labels)]
        data = (inputs.float(), labels)
    subject = Subject.of(module, data, initial=module, seed=1)
    for measure in MEASURES.values():
        result = measure(subject)
        assert isinstance(result, Value) or (isinstance(result, Undefined) and result.reason)
    # The balanced gauge and the random ones are the same function.
    places = [moved(subject, kind, draw=0) for kind in INVARIANCES[:2]]
    weights = [place.weights for place in places if not isinstance(place, str)]
    given = subject.outputs(subject.example)
    for other in [balanced(subject), *weights]:
        difference = (subject.outputs(subject.example, other) - given).abs().max()
        assert float(difference) < 1e-8 * float(given.abs().max())
