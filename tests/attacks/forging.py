"""Honest runs, and a forger who renews every number that follows and every seal."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nonvacuous.bounds import holdout
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certify import certify
from nonvacuous.data import Dataset, Examples
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import at_initialization
from nonvacuous.methods import HeldOut, Posterior, PostHoc, Progressive, Sparsity
from nonvacuous.models import build
from nonvacuous.rules.arithmetic import (
    recompute_bound,
    sampled_risk,
    statement_of,
)
from nonvacuous.rules.drawing import sampling_seed
from nonvacuous.settings import Run
from nonvacuous.training_settings import PlainTraining, PosteriorTraining
from tests.training.calls import train

ARCHITECTURE = "mlp:8"
PLAINLY = PlainTraining(epochs=4)


def examples(count: int = 600, *, seed: int = 0, name: str = "world") -> Examples:
    """Three classes in four dimensions, a tenth of the labels by chance."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator)
    rule = torch.tensor([[1.0, -1.0, 0.0], [0.5, 0.0, -1.0], [0.0, 1.0, 1.0], [-1.0, 0.5, 0.5]])
    labels = (inputs @ rule).argmax(1)
    chance = torch.rand(count, generator=generator) < 0.1
    labels[chance] = torch.randint(3, (int(chance.sum()),), generator=generator)
    return Examples(inputs, labels, ("a", "b", "c"), name)


def data() -> Dataset:
    return Dataset(examples(), examples(200, seed=5, name="world (test)"))


def network(seed: int = 0) -> torch.nn.Module:
    return build(ARCHITECTURE, (4,), 3, seed=seed)


def posterior_run(folder: Path, *, attempts: int = 4, prior_fraction: float = 0.5) -> Certificate:
    """A learned prior (or one at the start), a grid of scales, shared confidence, a test part."""
    return certify(
        network(),
        examples(),
        method=Posterior(
            prior_fraction=prior_fraction,
            prior_scale=(0.02, 0.05, 0.1),
            trials=20_000,
            training=PosteriorTraining(epochs=2),
            plain_training=PLAINLY,
        ),
        test=data().test,
        attempts=attempts,
        folder=Run(folder=folder, architecture=ARCHITECTURE),
    )


def post_hoc_run(folder: Path) -> Certificate:
    """Rescaled noise around trained weights, symmetries forgotten, a trained twin."""
    start = network()
    fitted = train(start, examples(), epochs=10, batch_size=20, learning_rate=0.1)
    return certify(
        fitted.module,
        examples(),
        method=PostHoc(
            prior=at_initialization(start, grid=ScaleGrid((0.1, 0.3, 1.0))),
            posterior_scales=(0.05, 0.1),
            trials=20_000,
            plain_training=PLAINLY,
        ),
        folder=Run(folder=folder, architecture=ARCHITECTURE),
    )


def holdout_run(folder: Path) -> Certificate:
    """The plain test of a network that never saw the examples."""
    fitted = train(network(), examples(seed=9), epochs=10, batch_size=20, learning_rate=0.1)
    return certify(
        fitted.module,
        examples(),
        method=HeldOut(unseen=True),
        folder=Run(folder=folder, architecture=ARCHITECTURE),
    )


def sparsity_run(folder: Path) -> Certificate:
    """One network trained toward a prior that was learned on a part of the examples."""
    return certify(
        build("mlp:16/no-bias", (4,), 3, seed=0),
        examples(),
        method=Sparsity(passes=1, search_examples=100, steps=60, prior_steps=60),
        test=data().test,
        folder=Run(folder=folder, architecture="mlp:16/no-bias"),
    )


def progressive_run(
    folder: Path, *, seed: int = 0, attempts: int = 1, **options: Any
) -> Certificate:
    """Two checkpoints, tested before they learned from their tests; a test part."""
    return certify(
        network(),
        examples(),
        method=Progressive(**{"batches": 2, "plain_training": PLAINLY, **options}),
        test=data().test,
        seed=seed,
        attempts=attempts,
        folder=Run(folder=folder, architecture=ARCHITECTURE),
    )


def own_training(
    model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, *, seed: int
) -> torch.nn.Module:
    """A training function of a user's own."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def part(certificate: Certificate, field: str, /, **changes: Any) -> dict[str, Any]:
    return {field: getattr(certificate, field).model_copy(update=changes)}


def forged(folder: Path, config: dict[str, str] | None = None, **changes: Any) -> Certificate:
    """Write the forgery over the run: other fields, other settings, all that follows, all seals."""
    genuine = Certificate.load(folder / "certificate.json")
    names = set(Certificate.model_fields) - {"digest", "format"}
    fields = {name: copy.deepcopy(getattr(genuine, name)) for name in names}
    fields |= changes
    path = folder / "config.toml"
    if config:
        text = path.read_text(encoding="utf-8")
        for key, value in config.items():
            text, changed = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
            if not changed:  # a setting that was left out, such as a sentence nobody wrote
                text, changed = re.subn(r"(?m)^\[method\]$", f"[method]\n{key} = {value}", text)
            assert changed == 1, f"{key} has no place in the settings"
        path.write_text(text, encoding="utf-8")
        fields["artifacts"] = {**fields["artifacts"], "config.toml": file_digest(path)}
    certificate = Certificate.sealed(**_consistent(fields))
    certificate.save(folder / "certificate.json")
    return certificate


def _consistent(fields: dict[str, Any]) -> dict[str, Any]:
    """Everything that a formula gives from the forged fields."""
    fields = dict(fields)
    fields["status"] = status_of(fields["assumptions"])
    fields["confidence"] = 1.0 - fields["budget"].failure
    risk = fields["empirical"]
    if fields["posterior"] is not None and fields["sparsity"] is None:
        moved = fields["rescaling"]
        noise = None if moved is None else moved.noise_digest
        seed = sampling_seed(fields["seed"], fields["posterior"].digest, noise)
        risk = risk.model_copy(update={"seed": seed})
    once = risk.scheme == "every example once"
    failure = None if once else fields["budget"].sampling.share
    risk = risk.model_copy(update={"risk_upper": sampled_risk(risk, failure)})
    inputs = dict(fields["bound"].inputs)
    inputs["failure"] = fields["budget"].bound.share
    for name, value in (("errors", risk.errors), ("empirical_risk", risk.risk_upper)):
        if name in inputs:
            inputs[name] = value
    bound = fields["bound"].model_copy(update={"inputs": inputs})
    fields |= {"empirical": risk, "bound": bound, "risk_upper": recompute_bound(bound)}
    twin = fields["held_out_twin"]
    if twin is not None:
        twin = twin.model_copy(update={"failure": fields["budget"].failure})
        upper = holdout(errors=twin.errors, examples=twin.examples, failure=twin.failure)
        fields["held_out_twin"] = twin.model_copy(update={"risk_upper": upper})
    rescaling = fields["rescaling"]
    if rescaling is not None:
        columns = tuple(
            c.model_copy(update={"kl_inverse": fields["risk_upper"]}) if c.certified else c
            for c in rescaling.columns
        )
        fields["rescaling"] = rescaling.model_copy(update={"columns": columns})
    draft = Certificate.model_construct(**fields, digest="")
    return fields | {"statement": statement_of(draft)}


def without_line(certificate: Certificate, name: str) -> dict[str, Any]:
    """The ledger without that line, its share given to the bound."""
    freed = certificate.budget.line(name).failure
    entries = tuple(
        e.model_copy(update={"failure": e.failure + freed}) if e.name == "bound" else e
        for e in certificate.budget.entries
        if e.name != name
    )
    return part(certificate, "budget", entries=entries)


def with_choices(certificate: Certificate, choices: int) -> dict[str, Any]:
    """The bound's line as if it had been chosen among fewer."""
    entries = tuple(
        e.model_copy(update={"choices": choices}) if e.name == "bound" else e
        for e in certificate.budget.entries
    )
    return part(certificate, "budget", entries=entries)


def rewritten(
    certificate: Certificate, matching: Callable[[Any], bool], **changes: Any
) -> dict[str, Any]:
    """Some assumptions with other words."""
    touched = [a for a in certificate.assumptions if matching(a)]
    assert touched, "no assumption is touched"
    return {
        "assumptions": tuple(
            a.model_copy(update=changes) if matching(a) else a for a in certificate.assumptions
        )
    }
