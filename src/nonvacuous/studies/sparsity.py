"""``nonvacuous sparsity``: how few units of a network are active, how firmly, and what it buys."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.kinds import LEARNED, PRIOR_NAMES, prior_kind
from nonvacuous.study.settings import EXAMPLES, DataSettings, first_examples
from nonvacuous.study.study import Context, Single, SingleStudy

if TYPE_CHECKING:
    from nonvacuous.data import Examples

#: What these names alone stand for.
_USUAL = {"mlp": "mlp:600,600", "cnn": "cnn:32,64"}


class SparsitySettings(DataSettings):
    """The network, what its weights may do, and the certificate that is asked for."""

    model: str = "mlp:100"
    """mlp:WIDTHS or cnn:CHANNELS, which are trained here unless --weights is given; or
    package.module:function, called without arguments, returning linear layers or convolutions with
    ReLU between them and pooling after it."""
    weights: Path | None = None
    """Trained weights as safetensors.torch.save_file(model.state_dict(), path) writes them."""
    prior: str | None = None
    """Adds a certificate. zero: weights of zero. initialization: the initial weights. learned:0.2:
    trained on a fifth of the data, which the bounds then leave out (for a network trained here; the
    default there). FILE: weights chosen without these data. none: no certificate."""
    examples: int | None = Field(None, ge=1, description=EXAMPLES)
    epsilons: str = "0.0001,0.0003,0.001,0.003,0.01,0.03,0.1"
    """How far the weights of each layer may move, relative to its norms; separated by commas."""
    unit_norm: bool | None = None
    """Scale every input to norm 1, as the theorems like it. On for a network trained here, off for
    weights that were trained elsewhere, where the inputs are taken as they are."""
    theorem: Literal["E", "F", "D", "A"] = "E"
    """Which certificate; docs/theory/sparsity.md proves them. F is for depth; convolutions have
    E."""
    pull: float | None = Field(None, ge=0)
    """How strongly training here is drawn to the prior (lambda of the paper). 10 for a
    convolutional network with a learned prior, else 0.1."""
    activity: float = Field(0.0, ge=0)
    """Weight of the l1 norm of the activations in training here; 0.01 gives a sparse network."""
    steps: int = Field(2000, ge=1, description="Of training here.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Of each bound.")

    @field_validator("prior")
    @classmethod
    def _one_name(cls, prior: str | None) -> str | None:
        return None if prior is None else PRIOR_NAMES.get(prior, prior)

    @property
    def sizes(self) -> tuple[float, ...]:
        try:
            return checks.grid_of("epsilons", [float(part) for part in self.epsilons.split(",")])
        except ValueError as error:
            reason = f"{self.epsilons!r} is not a list of numbers"
            if isinstance(error, BadInput):
                reason = str(error).removeprefix("epsilons").strip(" .:")
            raise BadInput(
                f"epsilons: {reason}; write different positive numbers separated by commas, such "
                "as --epsilons 0.001,0.01",
                instead={"--epsilons": "0.001,0.01"},
            ) from error

    @property
    def kind(self) -> str:
        return self.model.partition(":")[0]

    @property
    def trains(self) -> bool:
        return self.kind in ("mlp", "cnn") and self.weights is None

    @property
    def scales_inputs(self) -> bool:
        return self.trains if self.unit_norm is None else self.unit_norm

    def pull_toward(self, prior: str) -> float:
        """How strongly training is drawn to this prior.

        A learned prior classifies already, and a convolution's noise meets every position: there
        staying close pays.
        """
        if prior == "none":
            return 0.0
        if self.pull is not None:
            return self.pull
        return 10.0 if self.kind == "cnn" and prior.startswith("learned") else 0.1

    @property
    def trained_prior(self) -> str:
        wanted = self.prior or LEARNED
        if wanted.endswith(".safetensors"):
            raise BadInput(
                f"prior {wanted}: a file goes with --weights. A network that is trained here "
                "gets its prior here: zero, initialization or learned:0.2",
                instead={"--prior": LEARNED},
            )
        return wanted

    def check(self) -> None:
        from nonvacuous.studies.networks import check_file

        self.sizes  # noqa: B018
        if self.weights is not None:
            check_file(self.weights, flag="--weights")
        if not self.trains:
            prior = self.prior or "none"
            if prior not in ("none", "zero") and not prior.startswith(("learned", "init")):
                check_file(Path(prior), flag="--prior")
        elif self.trained_prior != "none":
            try:
                prior_kind(self.trained_prior)
            except BadInput as error:
                raise BadInput(f"prior: {error}", instead={"--prior": LEARNED}) from error

    def check_size(self, examples: Examples) -> None:
        """Refuse too few examples before the network is trained for nothing."""
        from nonvacuous.sparsity.noise import FEWEST

        fraction = 0.0 if self.trained_prior == "none" else prior_kind(self.trained_prior)[1]
        left = len(examples) - round(fraction * len(examples))
        if left >= FEWEST:
            return
        kept = f", of which --prior {self.trained_prior} leaves {left}" if fraction else ""
        enough = len(examples) >= FEWEST
        raise BadInput(
            f"{examples.name} has {len(examples)} examples{kept}; a study of how activations are "
            f"distributed needs at least {FEWEST}. "
            + ("Take a prior that needs none." if enough else "Bring more examples."),
            instead={"--prior": "initialization"} if enough else None,
        )


class Sparsity(SingleStudy[SparsitySettings]):
    """Show how sparse a network's activations are, how firmly, and what a bound makes of it."""

    name, settings, cell = "sparsity", SparsitySettings, SparsitySettings
    devices = ("cpu",)
    kept = ("network.safetensors",)
    pages = "nonvacuous.studies.sparsity_page"

    def title(self, settings: SparsitySettings) -> str:
        return f"{settings.model} on {settings.data}, seed {settings.seed}"

    def compute(self, cell: SparsitySettings, at: Context) -> Single:
        from nonvacuous.distributions.storage import save_tensors
        from nonvacuous.rules.outcomes import Shown
        from nonvacuous.seeds import derived_seed
        from nonvacuous.sparsity import study
        from nonvacuous.sparsity.training import unit_norm
        from nonvacuous.studies.sparsity_networks import load, prepared, train

        dataset = at.dataset(cell.data)
        examples = prepared(first_examples(dataset.train, cell.examples), cell)
        test = dataset.test
        if test is not None and cell.scales_inputs:
            test = unit_norm(test)
        subject = (train if cell.trains else load)(cell, examples, at)
        result = study(
            subject.network,
            subject.examples,
            epsilons=cell.sizes,
            prior=subject.prior,
            held_out=test,
            input_norm=1.0 if cell.scales_inputs else None,
            confidence=cell.confidence,
            theorem=cell.theorem,
            seed=derived_seed(cell.seed, "certificate"),
            progress=at.progress,
        )
        if subject.prior is not None:
            shown = Shown(at.ledger_file, dataset.train, command="sparsity")
            shown.record({"asked": cell.record(), "network": subject.network.digest()})
        if subject.module is not None:
            path = at.folder / self.kept[0]
            save_tensors(path, dict(subject.module.state_dict()), kind="weights")
        counts = subject.examples.class_counts()
        largest = max(range(len(counts)), key=counts.__getitem__)
        record = {
            **result.to_dict(),
            "largest_class": {
                "name": subject.examples.class_names[largest],
                "error": 1.0 - counts[largest] / sum(counts),
            },
            "model": cell.model,
            "data_source": cell.data,
            "weights": None if cell.weights is None else str(cell.weights),
            "prior": subject.prior_name,
            "unit_norm": cell.scales_inputs,
            "confidence": cell.confidence,
            "seed": cell.seed,
            "trained": subject.trained,
        }
        drawn = {
            "radii": [[r for r in layer if 0 < r < math.inf] for layer in result.shown.radii],
            "sparsity": result.shown.sparsity,
            "epsilon": result.shown.epsilon,
        }
        where = None if at.data_dir is None else str(at.data_dir)
        return Single(
            record=record, drawn={"settings": cell.record(), "shown": drawn, "data_dir": where}
        )

    def next_command(self, result: Single, folder: Path | None) -> str | Mapping[str, str | None]:
        """The page first, then the sparse network, then a certificate that can be verified."""
        if folder is None:
            return {"--out": "runs/sparsity"}
        trained = result.record["trained"]
        if trained and not trained["activity"]:
            return {"--activity": "0.01", "--out": str(folder.with_name(f"{folder.name}-l1"))}
        settings = SparsitySettings(**result.drawn["settings"])
        where = result.drawn["data_dir"]
        words = [] if where is None else ["--data-dir", where]
        return shlex.join(["nonvacuous", "certify", *_certificate(settings), *words])


STUDY = Sparsity()


def _certificate(settings: SparsitySettings) -> list[str]:
    """The flags with which ``certify`` speaks of the same network."""
    words = ["--data", settings.data]
    if not settings.trains and settings.weights is None:
        # Studied as it was built: any network can be trained for a certificate.
        return [*words, "--model", settings.model]
    words = ["--mode", "sparsity", *words]
    if settings.theorem != "E":
        words += ["--theorem", settings.theorem]
    if settings.unit_norm is not None:
        words.append("--unit-norm" if settings.unit_norm else "--no-unit-norm")
    prior = settings.prior or "none"
    if settings.weights is None:
        plain = _USUAL.get(settings.model, settings.model).removesuffix("/no-bias")
        words += ["--model", f"{plain}/no-bias", "--activity", f"{settings.activity:g}"]
        return words if prior == "none" else [*words, "--prior", prior]
    words += ["--model", settings.model, "--weights", str(settings.weights)]
    return [*words, *(("--prior", "zero") if prior in ("none", "zero") else ("--initial", prior))]
