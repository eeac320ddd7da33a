"""``nonvacuous certify``: from a network and data to a certificate, in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from pydantic import BaseModel

from nonvacuous.bounds import checks
from nonvacuous.cli.certify_method import method_asked, method_flags
from nonvacuous.cli.exits import UsageError, as_usage
from nonvacuous.cli.flags import (
    SWITCH,
    Json,
    Ledger,
    OptionalWholeNumber,
    WholeNumber,
    check_counts,
    dashed,
    failure_of,
)
from nonvacuous.cli.folders import check_one_of
from nonvacuous.kinds import PRIOR_NAMES, Mode

_GROUPS = {
    name: Group.create_ordered(name)
    for name in ("What is certified", "The promise", "With --mode sparsity", "Training", "The run")
}
_WHAT = Parameter(group=_GROUPS["What is certified"])
_PROMISE = Parameter(group=_GROUPS["The promise"])
_RUN = Parameter(group=_GROUPS["The run"])


@dataclass(frozen=True)
class Call:
    """What every call of the command has, whatever the method.

    Args:
        data: digits (needs no files), mnist, fashion-mnist, cifar10; a file .npz, .parquet, .csv or
            .pt; a folder of images with one folder per class; or package.module:function returning
            (inputs, labels).
        data_dir: Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable
            NONVACUOUS_DATA.
        classes: Names of the classes in the order of the network's scores, as in cat,dog; by
            default in the order of the alphabet.
        model: mlp:WIDTHS, cnn:CHANNELS or cnn:CHANNELS/WIDTHS, with /no-bias at the end without
            biases; resnet, resnet9, vit, scatter, alexnet, inception, or inception:no-bn without
            batch normalization; or package.module:function, called without arguments, returning a
            torch.nn.Module (the current folder is searched too). By default cnn:32,64 for images
            and mlp:256 for other inputs; in --mode sparsity mlp:100/no-bias.
        weights: Weights of a trained network to certify: a safetensors file as
            safetensors.torch.save_file(model.state_dict(), path) writes it.
        initial: The same network's weights before training, as safetensors: the prior of given
            --weights.
        init_seed: Seed of the initial weights; the --seed by default.
        part: Which part of the data --mode holdout tests on, one that the network never saw: the
            test part, unless said otherwise.
        mode: posterior: train a randomized network for a good certificate (default). post-hoc:
            certify noise around given --weights (default with --weights). sparsity: certify one
            fixed network of linear layers or convolutions with ReLU, trained here or given.
            holdout: the plain test of --weights on examples that they never saw. progressive: train
            in steps, each batch a test before it is learned from; about the predictor that draws
            one of the checkpoints.
        confidence: Of many data sets, at least this share would yield a true claim.
        attempts: How many certificates you will compute on these examples, to report the best of
            them: they share the confidence.
        different_data: Where the ledger has examples with the same labels: why these are other
            data, in a sentence that the certificate quotes.
        max_risk: Exit with code 3 if the certificate is above this, refused, conditional or vacuous
            (not shown to be better than always answering one class): a gate for CI. In --mode
            progressive it is the --threshold, declared before training: below it, or no promise.
        allow_conditional: Let a conditional certificate pass --max-risk.
        seed: Everything random follows from it.
        device: auto takes the GPU if torch sees one.
        threads: Processor threads for torch; its own choice by default.
        out: The run folder; runs/DATA-MODEL-seedN by default.
        resume: Go on with a run that was stopped, in the same folder and with the same settings.
        force: Overwrite the run in the folder.
        report: Write report.html beside the certificate.
        tensorboard: A folder for TensorBoard to read training from, if that package is installed.
        config: TOML file with settings named like these flags. Flags come first, then variables
            such as NONVACUOUS_SEED, then this file, then the defaults.
    """

    data: Annotated[str, _WHAT]
    data_dir: Annotated[Path | None, _WHAT] = None
    classes: Annotated[str | None, _WHAT] = None
    model: Annotated[str | None, _WHAT] = None
    weights: Annotated[Path | None, _WHAT] = None
    initial: Annotated[Path | None, _WHAT] = None
    init_seed: Annotated[OptionalWholeNumber, _WHAT] = None
    part: Annotated[Literal["train", "test"] | None, _WHAT] = None
    mode: Annotated[Mode | None, _PROMISE] = None
    confidence: Annotated[float, _PROMISE] = 0.95
    attempts: Annotated[WholeNumber, _PROMISE] = 1
    different_data: Annotated[str | None, _PROMISE] = None
    max_risk: Annotated[float | None, _PROMISE] = None
    allow_conditional: Annotated[bool, _PROMISE, SWITCH] = False
    seed: Annotated[WholeNumber, _RUN] = 0
    device: Annotated[Literal["cpu", "cuda", "auto"], _RUN] = "auto"
    threads: Annotated[OptionalWholeNumber, _RUN] = None
    out: Annotated[Path | None, _RUN] = None
    resume: Annotated[bool, _RUN, SWITCH] = False
    force: Annotated[bool, _RUN, SWITCH] = False
    report: Annotated[bool, _RUN] = True
    tensorboard: Annotated[Path | None, _RUN] = None
    config: Annotated[Path | None, _RUN] = None
    ledger: Annotated[Ledger, _RUN] = None
    json: Annotated[Json, _RUN] = False

    def check(self) -> None:
        """Raise a usage error where a number is out of range, or two flags exclude one another."""
        failure_of(self.confidence)
        least = {"init_seed": 0, "attempts": 1, "seed": 0, "threads": 1}
        check_counts({dashed(name): (getattr(self, name), low) for name, low in least.items()})
        with as_usage():
            if self.max_risk is not None:
                checks.unit_interval("--max-risk", self.max_risk)
        check_one_of("run", resume=self.resume, force=self.force)
        if self.allow_conditional and self.max_risk is None:
            raise UsageError("--allow-conditional speaks of --max-risk: give it too.")


MethodFlags: type[BaseModel] = method_flags(_GROUPS)
_NONE_GIVEN = MethodFlags()


def certify(
    *,
    call: Annotated[Call, Parameter(name="*")],
    options: Annotated[MethodFlags, Parameter(name="*")] = _NONE_GIVEN,  # type: ignore[valid-type]
) -> int:
    """Train or take a network and promise how often it can err on data it has not seen."""
    call.check()
    chosen: dict[str, Any] = dict(options)
    given = {name: value for name, value in chosen.items() if value is not None}
    if "prior" in given:
        given["prior"] = PRIOR_NAMES.get(given["prior"], given["prior"])
    method = method_asked(call, given)
    # Imported once the flags are known to make sense: torch takes seconds to load.
    from nonvacuous.cli.certify_run import run

    return run(call, method)
