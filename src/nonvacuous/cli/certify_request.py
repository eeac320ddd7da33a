"""What was asked of ``nonvacuous certify``, and whether it makes sense together. No torch here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nonvacuous.certification.recipe import Recipe
from nonvacuous.certification.sparsity_settings import LEARNED, SparsitySettings, prior_kind
from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.invocation import again
from nonvacuous.errors import BadInput

#: Defaults of the command, where the library's own recipe has no say.
TRIALS = 100_000
PRIOR_FRACTION = 0.5
#: Standard deviation of a prior trained on data, and of one at the initial weights.
LEARNED_SCALE, INITIAL_SCALE = 0.01, 0.1


@dataclass(frozen=True)
class Request:
    """The flags of one call, checked one by one already."""

    data: str
    data_dir: Path | None
    model: str | None
    weights: Path | None
    initial: Path | None
    init_seed: int | None
    pretrained: bool
    part: str | None
    unseen: bool
    mode: str
    predictor: str
    confidence: float
    prior: str | None
    prior_fraction: float
    prior_scales: tuple[float, ...]
    trials: int
    attempts: int
    rescaling: bool
    translation: bool
    permutation: bool
    twin: bool
    max_risk: float | None
    allow_conditional: bool
    recipe: Recipe
    sparsity: SparsitySettings
    seed: int
    device: str
    threads: int | None
    out: Path | None
    resume: bool
    force: bool
    report: bool
    tensorboard: Path | None
    json: bool

    @property
    def quotients(self) -> tuple[Literal["translation", "permutation"], ...] | None:
        """The symmetries to forget; None leaves it to the mode and the predictor."""
        if self.translation and self.permutation:
            return None
        if self.translation:
            return ("translation",)
        return ("permutation",) if self.permutation else ()

    def check(self) -> None:
        """Raise a usage error where flags contradict one another or would change nothing."""
        if self.resume and self.force:
            raise UsageError(
                "--resume goes on with a run and --force overwrites it: give one of them."
            )
        if self.allow_conditional and self.max_risk is None:
            raise UsageError("--allow-conditional speaks of --max-risk: give it too.")
        for flag, given, belongs in self._belongings():
            if given and self.mode not in belongs:
                raise UsageError(
                    f"{flag} would change nothing in --mode {self.mode}: it belongs to --mode "
                    f"{' or '.join(belongs)}. Leave it out."
                )
        if self.mode == "posterior":
            self._check_posterior()
        elif self.mode == "sparsity":
            self._check_sparsity()
        elif self.weights is None:
            raise UsageError(
                f"--mode {self.mode} certifies a network that is trained already: give its "
                "--weights FILE.safetensors, or leave --mode out to train one."
            )
        elif self.mode == "post-hoc":
            self._check_post_hoc()

    def _belongings(self) -> list[tuple[str, bool, tuple[str, ...]]]:
        default, usual = Recipe(), SparsitySettings()
        return [
            ("--initial", self.initial is not None, ("post-hoc", "sparsity")),
            ("--prior", self.prior is not None, ("post-hoc", "sparsity")),
            ("--pretrained", self.pretrained, ("posterior", "sparsity")),
            *(
                (flag, getattr(self.sparsity, name) != getattr(usual, name), ("sparsity",))
                for flag, name in self._sparsity_flags()
            ),
            ("--part", self.part is not None, ("holdout",)),
            ("--unseen", self.unseen, ("holdout",)),
            ("--predictor drawn", self.predictor == "drawn", ("posterior", "post-hoc")),
            ("--prior-scale", bool(self.prior_scales), ("posterior", "post-hoc")),
            ("--prior-fraction", self.prior_fraction != PRIOR_FRACTION, ("posterior",)),
            ("--no-rescaling", not self.rescaling, ("post-hoc",)),
            ("--no-translation", not self.translation, ("post-hoc",)),
            ("--no-permutation", not self.permutation, ("post-hoc",)),
            ("--tensorboard", self.tensorboard is not None, ("posterior",)),
            ("--trials", self.trials != TRIALS, ("posterior", "post-hoc")),
            *(
                (
                    f"--prior-{_dashed(name)}",
                    getattr(self.recipe.plain, name) != getattr(default.plain, name),
                    ("posterior", "post-hoc", "sparsity"),
                )
                for name in ("epochs", "learning_rate")
            ),
            *(
                (
                    f"--{_dashed(name)}",
                    getattr(self.recipe.posterior, name) != getattr(default.posterior, name),
                    ("posterior",),
                )
                for name in ("epochs", "learning_rate", "objective", "kl_penalty")
            ),
        ]

    def _sparsity_flags(self) -> list[tuple[str, str]]:
        """The flags of --mode sparsity, each with the setting it changes."""
        names = ("theorem", "variant", "passes", "steps", "pull", "noise", "activity")
        norm = "--no-unit-norm" if self.sparsity.unit_norm is False else "--unit-norm"
        return [*((f"--{name}", name) for name in names), (norm, "unit_norm")]

    def _check_posterior(self) -> None:
        if self.weights is not None and not self.pretrained:
            raise UsageError(
                "--mode posterior starts from --weights, and a start that has seen these examples "
                "makes the promise false. Add --pretrained if the weights were trained on other, "
                "independent data; to certify them as they are, use --mode post-hoc."
            )
        if self.pretrained and self.weights is None:
            raise UsageError("--pretrained speaks of --weights FILE.safetensors: give them too.")

    def _check_post_hoc(self) -> None:
        if self.predictor == "drawn" and self.quotients is not None:
            raise UsageError(
                "--no-translation and --no-permutation would change nothing with --predictor "
                "drawn: one network pays for its own weights, not for a KL. Leave them out."
            )
        if self.prior not in (None, "zero", "initialization"):
            raise UsageError(
                f"--prior {self.prior}: --mode post-hoc knows zero and initialization.",
                next_command=again(replacing={"--prior": "zero"}),
            )
        if self.prior is None and self.initial is None:
            raise UsageError(
                "--mode post-hoc measures how far the weights have come from a prior that has not "
                "seen the data. Add --initial FILE.safetensors, the same network before training "
                "(usually far better), or --prior zero."
            )
        if self.prior == "zero" and self.initial is not None:
            raise UsageError("--prior zero has no use for --initial: leave one of them out.")
        if self.prior == "initialization" and self.initial is None and self.init_seed is None:
            raise UsageError(
                "--prior initialization needs the weights before training: --initial "
                "FILE.safetensors, or --init-seed N if --model builds them from that seed."
            )

    def _check_sparsity(self) -> None:
        """A network that is trained here gets its prior here; a given one brings its own."""
        kind = self.sparse_prior[0]
        if (self.model or "").startswith("cnn:") and self.sparsity.theorem != "E":
            raise UsageError(
                f"--theorem {self.sparsity.theorem}: it covers linear layers only; a convolutional "
                "network is certified by theorem E.",
                next_command=again(replacing={"--theorem": "E"}),
            )
        if self.weights is None:
            if self.initial is not None or self.pretrained:
                raise UsageError(
                    "--initial and --pretrained speak of the prior of given --weights: give those "
                    "too, or leave them out to train a network here."
                )
            if self.model is not None and re.fullmatch(r"mlp(:[0-9, ]*)?", self.model):
                widths = self.model.partition(":")[2] or "100"
                raise UsageError(
                    f"--model {self.model} has biases, and the networks that --mode sparsity "
                    f"trains have none; write mlp:{widths}/no-bias.",
                    next_command=again(replacing={"--model": f"mlp:{widths}/no-bias"}),
                )
            if self.model is not None and re.fullmatch(r"cnn(:[0-9, ]*(/[0-9, ]+)?)?", self.model):
                plain = f"cnn:{self.model.partition(':')[2] or '32,64'}/no-bias"
                raise UsageError(
                    f"--model {self.model} has biases, and the networks that --mode sparsity "
                    f"trains have none; write {plain}.",
                    next_command=again(replacing={"--model": plain}),
                )
            return
        if kind == "learned" and self.prior is not None:
            raise UsageError(
                f"--prior {self.prior}: what these weights were trained on is not known here. Give "
                "--prior zero, or --initial FILE.safetensors with the same network before training "
                "(usually far better).",
                next_command=again(replacing={"--prior": "zero"}),
            )
        if kind == "zero" and self.prior is not None and self.initial is not None:
            raise UsageError("--prior zero has no use for --initial: leave one of them out.")
        if (self.prior is None or kind == "initialization") and self.initial is None:
            raise UsageError(
                "--mode sparsity measures how far the weights have come from a prior that has not "
                "seen the data. Add --initial FILE.safetensors, the same network before training "
                "(usually far better), or --prior zero.",
                next_command=again(replacing={"--prior": "zero"}),
            )

    @property
    def sparse_prior(self) -> tuple[str, float]:
        """The prior of --mode sparsity as a kind and a fraction."""
        try:
            return prior_kind(self.prior or LEARNED)
        except BadInput as error:
            raise UsageError(
                f"--prior: {error}.", next_command=again(replacing={"--prior": LEARNED})
            ) from error


def default_folder(data: str, model: str, seed: int) -> Path:
    """runs/DATA-MODEL-seedN, whatever characters the names have.

    >>> default_folder("my data/x<1>.npz", "mlp:256,64", 3).as_posix()
    'runs/x-1-mlp-256-64-seed3'
    """
    source = data if ":" in data else Path(data).stem
    return Path("runs") / f"{_slug(source)}-{_slug(model)}-seed{seed}"


def _slug(text: str) -> str:
    words = re.findall(r"[A-Za-z0-9._]+", text)
    return "-".join(words).strip(".-_")[:60] or "unnamed"


def _dashed(name: str) -> str:
    return name.replace("_", "-")
