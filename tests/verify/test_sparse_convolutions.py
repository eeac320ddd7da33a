"""Sparsity certificates of convolutional networks, recomputed: forgeries fail at their field."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from nonvacuous.certificate import Certificate
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rules.derandomization import layers_from, setting_of
from nonvacuous.sparsity.certify import final_seed
from nonvacuous.sparsity_records import SparsityRecord
from nonvacuous.verify import Verification, verify
from tests.audit import sparse_conv_worlds as worlds
from tests.test_certificate_schema import problems

from .runs import failed_fields, resealed
from .test_mutations import leaves
from .test_sparsity import charge_of_zero, consistent, record_with


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convolutional") / "run"
    worlds.run(folder)
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def genuine(honest: Path) -> Certificate:
    return Certificate.load(honest / "certificate.json")


def verified(folder: Path, **more: Any) -> Verification:
    return verify(folder, data=worlds.examples(), **more)


def shape_with(certificate: Certificate, place: int = 0, **changes: Any) -> dict[str, Any]:
    assert certificate.sparsity is not None
    layers = list(certificate.sparsity.layers)
    shape = layers[place].convolution
    assert shape is not None
    update = {"convolution": shape.model_copy(update=changes)}
    layers[place] = layers[place].model_copy(update=update)
    return record_with(certificate, layers=tuple(layers))


def test_an_honest_run_verifies_in_full(honest: Path, genuine: Certificate) -> None:
    assert genuine.status == "valid" and (genuine.empirical.errors or 0) > 0
    result = verified(honest)
    assert result.passed, str(result)
    assert [f.name for f in result.unchecked] == ["the rescaling columns follow from their KL"]
    assert any("counted again from the recorded seed" in f.detail for f in result.findings)
    assert verify(genuine).passed
    assert Certificate.from_json(genuine.model_dump_json()) == genuine


def test_it_obeys_the_schema(genuine: Certificate) -> None:
    schema = Certificate.model_json_schema()
    assert problems(json.loads(genuine.model_dump_json()), schema, schema) == []


FORGERIES: dict[str, tuple[str, Any]] = {
    "fewer positions": ("sparsity.layers", lambda c: shape_with(c, positions=1)),
    "a bias from nowhere": ("sparsity.layers", lambda c: shape_with(c, bias_scale=1.0)),
    "no padding": ("sparsity", lambda c: shape_with(c, padding=(0, 0))),
    "another stride": ("sparsity", lambda c: shape_with(c, stride=(2, 2))),
    "another dilation": ("sparsity", lambda c: shape_with(c, dilation=(2, 2))),
    "no pooling": ("sparsity.layers", lambda c: shape_with(c, pooling=None)),
    "another kernel": ("sparsity.layers", lambda c: shape_with(c, kernel=(3, 1, 3, 1))),
    "other channels": ("sparsity", lambda c: shape_with(c, kernel=(3, 3, 3, 1))),
    "a padded output": ("sparsity.layers", lambda c: shape_with(c, -1, padding=(1, 1))),
    "other images": ("sparsity.layers", lambda c: record_with(c, images=(1, 7, 7))),
    "another theorem": ("sparsity", lambda c: record_with(c, theorem="D")),
    "another variant": ("sparsity.charges", lambda c: record_with(c, variant="dense")),
    "another setting": (
        "empirical.seed",
        lambda c: record_with(c, setting={**c.sparsity.setting, "factor": 40}),
    ),
    "a setting off its grid": (
        "sparsity",
        lambda c: record_with(c, setting={**c.sparsity.setting, "blend": 99}),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_sealed_forgery_is_found_from_the_file_alone(genuine: Certificate, name: str) -> None:
    field, change = FORGERIES[name]
    result = verify(resealed(genuine, **change(genuine)))
    assert field in failed_fields(result), str(result)


def test_a_consistent_forgery_of_the_pooling_meets_the_network(
    folder: Path, genuine: Certificate
) -> None:
    """Digest and seed made to fit: only the network itself, or its losses, can tell."""
    record = genuine.sparsity
    assert record is not None
    shape = record.layers[0].convolution
    assert shape is not None and shape.pooling is not None
    average = shape.pooling.model_copy(update={"kind": "average"})
    forged = shape_with(genuine, pooling=average)["sparsity"]
    means = DiagonalGaussian.load(folder / "posterior.safetensors").means
    digest = layers_from(forged, means).digest()
    assert digest != record.network_digest
    seed = final_seed(genuine.seed, digest, setting_of(forged))
    risk = genuine.empirical.model_copy(update={"seed": seed})
    draft = resealed(genuine, **record_with(genuine, layers=forged.layers, network_digest=digest))
    consistent(draft, empirical=risk).save(folder / "certificate.json")
    result = verified(folder)
    assert "sparsity.network_digest" in failed_fields(result), str(result)


@pytest.mark.slow
def test_consistent_forgeries_meet_tensors_and_examples(folder: Path, genuine: Certificate) -> None:
    assert genuine.sparsity is not None
    lines = list(genuine.sparsity.charges)
    place = next(i for i, c in enumerate(lines) if c.choice.startswith("reference x"))
    left_out = consistent(genuine, charges=(*lines[:place], *lines[place + 1 :]))
    assert failed_fields(verify(left_out)) == ["sparsity.charges"], "the file alone shows it"
    fineness = lines[place].choice.rpartition("/")[2]
    lines[place] = lines[place].model_copy(
        update={"choice": f"reference x 2^(-60/{fineness}", "nats": charge_of_zero(-60)}
    )
    forged = consistent(genuine, charges=tuple(lines))
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(folder / "certificate.json")
    assert failed_fields(verify(folder)) == ["sparsity.charges"]
    risk = genuine.empirical.model_copy(update={"errors": 0})
    forged = consistent(genuine, empirical=risk)
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(folder / "certificate.json")
    assert failed_fields(verified(folder))[0] == "empirical.errors"
    resealed(genuine, **record_with(genuine, longest_input=2.0)).save(folder / "certificate.json")
    assert failed_fields(verified(folder))[0] == "sparsity.longest_input"


@pytest.mark.slow
def test_noise_of_another_kind_of_device_is_compared_by_rate(
    folder: Path, genuine: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    elsewhere = consistent(genuine, device="cuda")
    elsewhere.save(folder / "certificate.json")
    result = verified(folder)
    assert result.passed, str(result)
    assert any("with fresh noise" in f.detail for f in result.findings)
    risk = genuine.empirical.model_copy(update={"errors": genuine.empirical.trials})
    consistent(elsewhere, empirical=risk).save(folder / "certificate.json")
    assert failed_fields(verified(folder))[0] == "empirical.errors"


def test_another_network_of_the_same_weights(folder: Path) -> None:
    from nonvacuous.models import build

    module = build(worlds.ARCHITECTURE, (1, 5, 5), 3, seed=0)
    module.blocks[2] = type(module.blocks[2])(2, stride=1)  # type: ignore[index, operator]
    assert "model" in failed_fields(verified(folder, model=module))


#: For people to read, or a statement about where noise was drawn: see the test by rate.
UNBOUND = {("threshold",), ("margin",), ("device",)}


def mutated(value: Any, dice: random.Random) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + dice.choice((-1, 1, 2))
    if isinstance(value, float):
        return value * dice.choice((0.5, 0.999, 1.001, 2.0)) + 1e-9
    if isinstance(value, str):
        return dice.choice(("zero", "dense", "max", "average", "A", "0" * 64, value + "x"))
    if isinstance(value, list):
        return value[:-1] if dice.random() < 0.5 else [*value, *value[-1:]]
    if value is None:
        return dice.choice((1, 1.0, "max"))
    keys = list(value)
    return {key: value[key] for key in keys if key != dice.choice(keys)}


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_random_resealed_mutations_of_the_record_are_all_found(
    folder: Path, genuine: Certificate, times: int
) -> None:
    assert genuine.sparsity is not None
    original = json.loads(genuine.sparsity.model_dump_json())
    places = [place for place in leaves(original) if place not in UNBOUND]
    dice = random.Random(11)
    read = 0
    for place in places * times:
        changed = copy.deepcopy(original)
        parent = changed
        for key in place[:-1]:
            parent = parent[key]
        value = mutated(parent[place[-1]], dice)
        if value == parent[place[-1]]:
            continue
        parent[place[-1]] = value
        try:
            record = SparsityRecord.model_validate_json(json.dumps(changed))
        except ValidationError:
            continue
        read += 1
        resealed(genuine, sparsity=record).save(folder / "certificate.json")
        assert not verified(folder).passed, (place, value)
    assert read > 50 * times, "most mutations can be read, and are found by recomputing"
