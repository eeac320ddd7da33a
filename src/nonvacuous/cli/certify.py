"""``nonvacuous certify``: from a network and data to a certificate, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from nonvacuous.bounds import checks
from nonvacuous.certification.recipe import PlainRecipe, PosteriorRecipe, Recipe
from nonvacuous.certification.sparsity_settings import SparsitySettings
from nonvacuous.cli.certify_request import PRIOR_FRACTION, TRIALS, Request
from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import (
    SWITCH,
    Json,
    OptionalWholeNumber,
    WholeNumber,
    failure_of,
    prior_of,
)
from nonvacuous.errors import BadInput

_WHAT = Parameter(group=Group.create_ordered("What is certified"))
_PROMISE = Parameter(group=Group.create_ordered("The promise"))
_SPARSITY = Parameter(group=Group.create_ordered("With --mode sparsity"))
_TRAINING = Parameter(group=Group.create_ordered("Training"))
_RUN = Parameter(group=Group.create_ordered("The run"))
_SEVERAL = Parameter(consume_multiple=True, negative=(), show_default=False)


def certify(
    *,
    data: Annotated[str, _WHAT],
    data_dir: Annotated[Path | None, _WHAT] = None,
    model: Annotated[str | None, _WHAT] = None,
    weights: Annotated[Path | None, _WHAT] = None,
    initial: Annotated[Path | None, _WHAT] = None,
    init_seed: Annotated[OptionalWholeNumber, _WHAT] = None,
    pretrained: Annotated[bool, _WHAT, SWITCH] = False,
    part: Annotated[Literal["train", "test"] | None, _WHAT] = None,
    unseen: Annotated[bool, _WHAT, SWITCH] = False,
    mode: Annotated[
        Literal["posterior", "post-hoc", "sparsity", "holdout"] | None, _PROMISE
    ] = None,
    predictor: Annotated[Literal["stochastic", "drawn"], _PROMISE] = "stochastic",
    confidence: Annotated[float, _PROMISE] = 0.95,
    prior: Annotated[str | None, _PROMISE] = None,
    prior_fraction: Annotated[float, _PROMISE] = PRIOR_FRACTION,
    prior_scale: Annotated[tuple[float, ...], _PROMISE, _SEVERAL] = (),
    trials: Annotated[WholeNumber, _PROMISE] = TRIALS,
    attempts: Annotated[WholeNumber, _PROMISE] = 1,
    rescaling: Annotated[bool, _PROMISE] = True,
    translation: Annotated[bool, _PROMISE] = True,
    permutation: Annotated[bool, _PROMISE] = True,
    twin: Annotated[bool, _PROMISE] = True,
    max_risk: Annotated[float | None, _PROMISE] = None,
    allow_conditional: Annotated[bool, _PROMISE, SWITCH] = False,
    theorem: Annotated[Literal["E", "F", "D", "A"], _SPARSITY] = "E",
    variant: Annotated[Literal["sparse", "dense"], _SPARSITY] = "sparse",
    passes: Annotated[WholeNumber, _SPARSITY] = SparsitySettings.passes,
    steps: Annotated[WholeNumber, _SPARSITY] = SparsitySettings.steps,
    pull: Annotated[float | None, _SPARSITY] = None,
    noise: Annotated[float | None, _SPARSITY] = None,
    activity: Annotated[float, _SPARSITY] = SparsitySettings.activity,
    unit_norm: Annotated[bool | None, _SPARSITY] = None,
    objective: Annotated[
        Literal["quadratic", "seeger", "mcallester", "thiemann", "catoni"], _TRAINING
    ] = PosteriorRecipe.objective,  # type: ignore[assignment]
    kl_penalty: Annotated[float, _TRAINING] = PosteriorRecipe.kl_penalty,
    epochs: Annotated[WholeNumber, _TRAINING] = PosteriorRecipe.epochs,
    learning_rate: Annotated[float, _TRAINING] = PosteriorRecipe.learning_rate,
    prior_epochs: Annotated[WholeNumber, _TRAINING] = PlainRecipe.epochs,
    prior_learning_rate: Annotated[float, _TRAINING] = PlainRecipe.learning_rate,
    batch_size: Annotated[WholeNumber, _TRAINING] = PosteriorRecipe.batch_size,
    seed: Annotated[WholeNumber, _RUN] = 0,
    device: Annotated[Literal["cpu", "cuda", "auto"], _RUN] = "auto",
    threads: Annotated[OptionalWholeNumber, _RUN] = None,
    out: Annotated[Path | None, _RUN] = None,
    resume: Annotated[bool, _RUN, SWITCH] = False,
    force: Annotated[bool, _RUN, SWITCH] = False,
    report: Annotated[bool, _RUN] = True,
    tensorboard: Annotated[Path | None, _RUN] = None,
    config: Annotated[Path | None, _RUN] = None,
    json: Annotated[Json, _RUN] = False,
) -> int:
    """Train or take a network and promise how often it can err on data it has not seen.

    Parameters
    ----------
    data
        digits (needs no files), mnist, fashion-mnist, cifar10; a file .npz or .parquet; a folder of
        images with one folder per class; or package.module:function returning (inputs, labels).
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    model
        mlp:WIDTHS, cnn:CHANNELS or cnn:CHANNELS/WIDTHS, with /no-bias at the end without biases;
        alexnet, inception, or inception:no-bn without batch normalization; or
        package.module:function, called without arguments, returning a torch.nn.Module (the current
        folder is searched too). By default cnn:32,64 for images and mlp:256 for other inputs; in
        --mode sparsity mlp:100/no-bias.
    weights
        Weights of a trained network to certify: a safetensors file as
        safetensors.torch.save_file(model.state_dict(), path) writes it.
    initial
        The same network's weights before training, as safetensors: the prior of given --weights.
    init_seed
        Seed of the initial weights; the --seed by default.
    pretrained
        Declare that --weights (as the start of --mode posterior) or --initial (as the prior of
        --mode sparsity) were trained on other, independent data.
    part
        Which part of the data --mode holdout tests on, one that the network never saw: the test
        part, unless said otherwise.
    unseen
        For --mode holdout: declare that the network, and every choice about it, was fixed before
        anyone looked at these examples. Without it the certificate is conditional.
    mode
        posterior: train a randomized network for a good certificate (default). post-hoc: certify
        noise around given --weights (default with --weights). sparsity: certify one fixed network
        of linear layers or convolutions with ReLU, trained here or given. holdout: the plain test
        of --weights on examples that they never saw.
    predictor
        stochastic: weights are drawn afresh for each prediction. drawn: one network, drawn once.
        The modes sparsity and holdout are about the network itself.
    confidence
        Of many data sets, at least this share would yield a true claim.
    prior
        For --mode post-hoc: zero, weights of zero, or initialization, the --initial weights
        (usually far better). For --mode sparsity: learned:FRACTION of the examples, which the
        promise then leaves out (learned:0.2 by default), initialization or zero; with --weights,
        zero, or initialization with --initial.
    prior_fraction
        For --mode posterior: the part of the examples that trains the prior; the promise counts the
        others. 0 puts the prior at the initial weights and counts all examples.
    prior_scale
        Standard deviation of the prior; several make a grid, whose price the promise pays. By
        default 0.01 for a prior trained on data, 0.1 for one at the initial weights, and in --mode
        post-hoc a grid of 25.
    trials
        Independent pairs of an example and a draw of the weights, for the empirical risk.
    attempts
        How many certificates you will compute on these examples, to report the best of them: they
        share the confidence.
    rescaling
        For --mode post-hoc: move the posterior along the network's rescaling symmetries to where
        it is cheapest. The certificate is never worse for it.
    translation
        For --mode post-hoc: forget a common shift of all scores in the complexity. No prediction
        depends on it, and it is free.
    permutation
        For --mode post-hoc: forget the order of a layer's units in the complexity, where the prior
        does not tell them apart (--prior zero). No prediction depends on it, and it is free.
    twin
        Also say what a plain held-out test promises on the same data.
    max_risk
        Exit with code 3 if the certificate is above this, refused, conditional or vacuous (not
        shown to be better than always answering one class): a gate for CI.
    allow_conditional
        Let a conditional certificate pass --max-risk.
    theorem
        Which proof of docs/theory/sparsity.md; choose before looking, each is its own claim.
        Convolutional networks have E.
    variant
        sparse makes use of units that stay inactive, dense does not.
    passes
        Noisy networks drawn for each example.
    steps
        Of training the prior, and of training the network toward it.
    pull
        How strongly training is drawn to the prior: 1 by default (10 with convolutions), 0.003 to a
        prior without data.
    noise
        Noise on the weights in training; by default 0.08 for a learned prior and none after it,
        0.2 toward a prior without data; 0.03 with convolutions.
    activity
        Weight of the l1 norm of the activations in training; 0.01 gives a sparse network.
    unit_norm
        Scale every input to norm 1. On for a network trained here, off for given --weights.
    objective
        The bound that posterior training minimizes.
    kl_penalty
        Weight of the complexity in training; 1 follows the bound.
    epochs
        Passes over the examples when the posterior is trained.
    learning_rate
        Step size when the posterior is trained.
    prior_epochs
        Passes over its examples when the prior (or the held-out twin) is trained.
    prior_learning_rate
        Step size when the prior (or the held-out twin) is trained.
    batch_size
        Examples per step, in all training.
    seed
        Everything random follows from it.
    device
        auto takes the GPU if torch sees one.
    tensorboard
        A folder for TensorBoard to read training from, if that package is installed.
    threads
        Processor threads for torch; its own choice by default.
    out
        The run folder; runs/DATA-MODEL-seedN by default.
    resume
        Go on with a run that was stopped, in the same folder and with the same settings.
    force
        Overwrite the run in the folder.
    report
        Write report.html beside the certificate.
    config
        TOML file with settings named like these flags. Flags come first, then variables such as
        NONVACUOUS_SEED, then this file, then the defaults.
    """
    failure_of(confidence)
    _check_numbers(
        least={
            "--init-seed": (init_seed, 0),
            "--trials": (trials, 1),
            "--attempts": (attempts, 1),
            "--epochs": (epochs, 1),
            "--prior-epochs": (prior_epochs, 1),
            "--batch-size": (batch_size, 1),
            "--seed": (seed, 0),
            "--threads": (threads, 1),
            "--passes": (passes, 1),
            "--steps": (steps, 1),
        },
        positive={
            "--learning-rate": (learning_rate,),
            "--prior-learning-rate": (prior_learning_rate,),
            "--kl-penalty": (kl_penalty,),
            "--prior-scale": prior_scale,
        },
        nonnegative={"--pull": pull, "--noise": noise, "--activity": activity},
        fractions={"--prior-fraction": prior_fraction, "--max-risk": max_risk},
    )
    if prior_fraction == 1.0:
        raise UsageError(
            "--prior-fraction 1 leaves no example for the promise to count; 0.5 is a good start."
        )
    request = Request(
        data=data,
        data_dir=data_dir,
        model=model,
        weights=weights,
        initial=initial,
        init_seed=init_seed,
        pretrained=pretrained,
        part=part,
        unseen=unseen,
        mode=mode or ("posterior" if weights is None else "post-hoc"),
        predictor=predictor,
        confidence=confidence,
        prior=prior_of(prior),
        prior_fraction=prior_fraction,
        prior_scales=prior_scale,
        trials=trials,
        attempts=attempts,
        rescaling=rescaling,
        translation=translation,
        permutation=permutation,
        twin=twin,
        max_risk=max_risk,
        allow_conditional=allow_conditional,
        recipe=Recipe(
            plain=PlainRecipe(
                epochs=prior_epochs, learning_rate=prior_learning_rate, batch_size=batch_size
            ),
            posterior=PosteriorRecipe(
                objective=objective,
                kl_penalty=kl_penalty,
                epochs=epochs,
                learning_rate=learning_rate,
                batch_size=batch_size,
            ),
        ),
        sparsity=SparsitySettings(
            theorem=theorem,
            variant=variant,
            passes=passes,
            steps=steps,
            prior_steps=steps,
            pull=pull,
            noise=noise,
            activity=activity,
            unit_norm=unit_norm,
        ),
        seed=seed,
        device=device,
        threads=threads,
        out=out,
        resume=resume,
        force=force,
        report=report,
        tensorboard=tensorboard,
        json=json,
    )
    request.check()
    # Imported once the flags are known to make sense: torch takes seconds to load.
    from nonvacuous.cli.certify_run import run

    return run(request)


def _check_numbers(
    *,
    least: dict[str, tuple[int | None, int]],
    positive: dict[str, tuple[float, ...]],
    nonnegative: dict[str, float | None],
    fractions: dict[str, float | None],
) -> None:
    try:
        for flag, (count, minimum) in least.items():
            if count is not None:
                checks.count(flag, count, minimum=minimum)
        for flag, numbers in positive.items():
            for number in numbers:
                checks.positive(flag, number)
        for flag, value in nonnegative.items():
            if value is not None:
                checks.non_negative(flag, value)
        for flag, fraction in fractions.items():
            if fraction is not None:
                checks.unit_interval(flag, fraction)
    except BadInput as error:
        raise UsageError(str(error)) from error
