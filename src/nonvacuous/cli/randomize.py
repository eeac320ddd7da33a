"""``nonvacuous randomize``: does a network learn, or would it fit anything?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import (
    SWITCH,
    Json,
    Ledger,
    OptionalWholeNumber,
    WholeNumber,
    failure_of,
)

_WHAT = Parameter(group=Group.create_ordered("What is tested"))
_TESTS = Parameter(group=Group.create_ordered("The tests"))
_TRAINING = Parameter(group=Group.create_ordered("Training"))
_RUN = Parameter(group=Group.create_ordered("The run"))
_SEVERAL = Parameter(consume_multiple=True, negative=(), show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command is told.

    Parameters
    ----------
    data
        digits (needs no files), mnist, fashion-mnist, cifar10; a file .npz, .parquet, .csv or .pt;
        a folder of images with one folder per class; or package.module:function returning (inputs,
        labels). Without test examples of its own, a fifth is split off.
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    model
        mlp:WIDTHS, cnn:CHANNELS, alexnet, inception; or package.module:function, called without
        arguments, returning a torch.nn.Module (the current folder is searched too). mlp:256,256 by
        default.
    train
        Your own training: package.module:function, called as
        train(model, inputs, labels, *, seed) and returning the trained model. If it yields the
        model after every epoch, learning curves and the time to fit are shown too.
    run
        The folder of a finished nonvacuous certify: its recipe is repeated on random labels, and
        random_labels.json is written beside its certificate. Data or a model of your own must be
        named again (--data, --model): nothing that a folder names is opened or imported.
    conditions
        What is done to the training data: partial:P (that share of labels is drawn anew),
        shuffled-pixels, random-pixels, gaussian. True and random labels are always there; by
        default four levels of partial and the three changes of inputs are too.
    seeds
        Networks for each condition; intervals are over them.
    permutations
        Networks trained on permuted labels, for a p-value of at least 1 / (permutations + 1).
    sign_vectors
        Networks trained on random signs, for the Rademacher complexity.
    certificates
        Also compute a certificate for each condition.
    regularization
        Also switch weight decay, dropout, random crops, early stopping and batch normalization, on
        true and on random labels.
    confidence
        Of every interval, test and certificate.
    epochs
        Passes over the training examples, in every condition. With --train your function decides,
        here and in all that follows.
    learning_rate
        Step size of the first epoch.
    rate_decay
        What the step size is multiplied by after each epoch.
    momentum
        Of stochastic gradient descent.
    weight_decay
        Pull of all weights toward zero.
    batch_size
        Examples per step.
    standardize
        Shift and scale all inputs by one mean and one standard deviation first.
    seed
        Everything random follows from it.
    device
        auto takes the GPU if torch sees one.
    threads
        Processor threads for torch; its own choice by default.
    out
        The folder for study.html, study.json and the pictures; runs/randomize-DATA-MODEL-seedN by
        default.
    resume
        Go on with a study that was stopped, in the same folder and with the same settings.
    force
        Overwrite the study in the folder.
    """

    data: Annotated[str | None, _WHAT] = None
    data_dir: Annotated[Path | None, _WHAT] = None
    model: Annotated[str | None, _WHAT] = None
    train: Annotated[str | None, _WHAT] = None
    run: Annotated[Path | None, _WHAT] = None
    conditions: Annotated[tuple[str, ...], _TESTS, _SEVERAL] = ()
    seeds: Annotated[WholeNumber, _TESTS] = 3
    permutations: Annotated[WholeNumber, _TESTS] = 19
    sign_vectors: Annotated[WholeNumber, _TESTS] = 5
    certificates: Annotated[bool, _TESTS] = True
    regularization: Annotated[bool, _TESTS, SWITCH] = False
    confidence: Annotated[float, _TESTS] = 0.95
    epochs: Annotated[WholeNumber, _TRAINING] = 60
    learning_rate: Annotated[float, _TRAINING] = 0.1
    rate_decay: Annotated[float, _TRAINING] = 0.96
    momentum: Annotated[float, _TRAINING] = 0.9
    weight_decay: Annotated[float, _TRAINING] = 0.0
    batch_size: Annotated[WholeNumber, _TRAINING] = 64
    standardize: Annotated[bool, _TRAINING] = True
    seed: Annotated[WholeNumber, _RUN] = 0
    device: Annotated[Literal["cpu", "cuda", "auto"], _RUN] = "auto"
    threads: Annotated[OptionalWholeNumber, _RUN] = None
    out: Annotated[Path | None, _RUN] = None
    resume: Annotated[bool, _RUN, SWITCH] = False
    force: Annotated[bool, _RUN, SWITCH] = False
    ledger: Annotated[Ledger, _RUN] = None
    json: Annotated[Json, _RUN] = False


def randomize(*, flags: Flags | None = None) -> int:
    """Train the same network on true and on randomized data, and say what the difference means."""
    flags = flags or Flags()
    failure_of(flags.confidence)
    if flags.resume and flags.force:
        raise UsageError(
            "--resume goes on with a study and --force overwrites it: give one of them."
        )
    if flags.run is None and flags.data is None:
        raise UsageError(
            "say what to test: --data NAME, such as --data digits, or --run FOLDER with a "
            "finished nonvacuous certify.",
            next_command="nonvacuous randomize --data digits",
        )
    if flags.run is not None:
        from nonvacuous.cli.randomize_certified import randomize_run

        return randomize_run(
            flags.run,
            data=flags.data,
            model=flags.model,
            data_dir=flags.data_dir,
            device=flags.device,
            threads=flags.threads,
            force=flags.force,
            ledger=flags.ledger,
            as_json=flags.json,
        )
    if flags.train is not None and flags.regularization:
        raise UsageError(
            "--regularization switches regularizers in the built-in training; with --train they "
            "are inside your function. Leave one of them out."
        )
    from nonvacuous.cli.randomize_run import run_study

    return run_study(flags)
