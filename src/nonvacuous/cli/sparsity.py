"""``nonvacuous sparsity``: how few units of a network are active, how firmly, and what it buys."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.bounds import checks
from nonvacuous.cli.exits import DONE, UsageError, again
from nonvacuous.cli.flags import (
    SWITCH,
    Json,
    Ledger,
    OptionalWholeNumber,
    WholeNumber,
    failure_of,
    prior_of,
)
from nonvacuous.cli.output import narration_console, result_console, write_json, write_next
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.cli.sparsity_request import Request

#: The files that --out receives; the first only where a network was trained here.
FILES = ("network.safetensors", "record.json", "sparsity.html")
#: What these names alone stand for.
_USUAL = {"mlp": "mlp:600,600", "cnn": "cnn:32,64"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command is told.

    Parameters
    ----------
    data
        digits, mnist, fashion-mnist, cifar10; a file.npz, file.parquet or folder of images; or
        package.module:function.
    model
        mlp:WIDTHS or cnn:CHANNELS, which are trained here unless --weights is given; or
        package.module:function, called without arguments, returning linear layers or convolutions
        with ReLU between them and pooling after it.
    weights
        Trained weights as safetensors.torch.save_file(model.state_dict(), path) writes them.
    prior
        Adds a certificate. zero: weights of zero. initialization: the initial weights. learned:0.2:
        trained on a fifth of the data, which the bounds then leave out (for a network trained here;
        the default there). FILE: weights chosen without these data. none: no certificate.
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    examples
        Only so many training examples, the first ones.
    epsilons
        How far the weights of each layer may move, relative to its norms; separated by commas.
    unit_norm
        Scale every input to norm 1, as the theorems like it. On for a network trained here, off for
        weights that were trained elsewhere, where the inputs are taken as they are.
    theorem
        Which certificate; docs/theory/sparsity.md proves them. F is for depth; convolutions have E.
    pull
        How strongly training here is drawn to the prior (lambda of the paper). 10 for a
        convolutional network with a learned prior, else 0.1.
    activity
        Weight of the l1 norm of the activations in training here; 0.01 gives a sparse network.
    steps
        Of training here.
    confidence
        Of each bound.
    seed
        Everything random follows from it.
    out
        Folder for network.safetensors, record.json and the page sparsity.html.
    force
        Overwrite these files in --out.
    """

    data: str
    model: str = "mlp:100"
    weights: Path | None = None
    prior: str | None = None
    data_dir: Path | None = None
    examples: OptionalWholeNumber = None
    epsilons: str = "0.0001,0.0003,0.001,0.003,0.01,0.03,0.1"
    unit_norm: bool | None = None
    theorem: Literal["E", "F", "D", "A"] = "E"
    pull: float | None = None
    activity: float = 0.0
    steps: WholeNumber = 2000
    confidence: float = 0.95
    seed: WholeNumber = 0
    out: Path | None = None
    force: Annotated[bool, SWITCH] = False
    ledger: Ledger = None
    json: Json = False


def sparsity(*, flags: Flags) -> int:
    """Show how sparse a network's activations are, how firmly, and what a bound makes of it."""
    sizes = _epsilons(flags.epsilons)
    failure_of(flags.confidence)
    try:
        for flag, value in (("--pull", flags.pull or 0.0), ("--activity", flags.activity)):
            checks.non_negative(flag, value)
        checks.count("--steps", flags.steps, minimum=1)
        if flags.examples is not None:
            checks.count("--examples", flags.examples, minimum=1)
    except BadInput as error:
        raise UsageError(str(error)) from error
    taken = [name for name in FILES if flags.out is not None and (flags.out / name).exists()]
    if taken and not flags.force:
        raise UsageError(
            f"--out: {flags.out} holds {taken[0]} already. Add --force to overwrite it, or name "
            "another folder.",
            next_command=again("--force"),
        )
    from nonvacuous.cli.sparsity_request import Request
    from nonvacuous.cli.sparsity_run import run
    from nonvacuous.studies.sparsity_text import write_text

    request = Request(**{**vars(flags), "prior": prior_of(flags.prior)}, sizes=sizes)
    request.check()
    record, paths = run(request)
    if flags.json:
        write_json(record)
    else:
        write_text(record, result_console())
    for path in paths:
        narration_console().print(f"Written: {path}", soft_wrap=True)
    write_next(_next(record, request))
    return DONE


def _epsilons(text: str) -> tuple[float, ...]:
    try:
        return checks.grid_of("--epsilons", [float(part) for part in text.split(",")])
    except ValueError as error:
        reason = str(error) if isinstance(error, BadInput) else f"{text!r} is not a list of numbers"
        raise UsageError(
            f"{reason.rstrip('.')}; write different positive numbers separated by commas, such as "
            "--epsilons 0.001,0.01.",
            next_command=again(replacing={"--epsilons": "0.001,0.01"}),
        ) from error


def _next(record: dict[str, Any], request: Request) -> str:
    """The page first, then the sparse network, then a certificate that can be kept and verified."""
    out = request.out
    if out is None:
        return again(replacing={"--out": "runs/sparsity"})
    if record["trained"] and not record["trained"]["activity"]:
        sparse = str(out.with_name(f"{out.name}-l1"))
        return again(without=["--force"], replacing={"--activity": "0.01", "--out": sparse})
    return shlex.join(["nonvacuous", "certify", *_certificate(request)])


def _certificate(request: Request) -> list[str]:
    """The flags with which ``certify`` speaks of the same network."""
    words = ["--data", request.data]
    if request.data_dir is not None:
        words += ["--data-dir", str(request.data_dir)]
    if not request.trains and request.weights is None:
        # Studied as it was built: any network can be trained for a certificate.
        return [*words, "--model", request.model]
    words = ["--mode", "sparsity", *words]
    if request.theorem != "E":
        words += ["--theorem", request.theorem]
    if request.unit_norm is not None:
        words.append("--unit-norm" if request.unit_norm else "--no-unit-norm")
    if request.weights is None:
        plain = _USUAL.get(request.model, request.model).removesuffix("/no-bias")
        words += ["--model", f"{plain}/no-bias", "--activity", f"{request.activity:g}"]
        return [*words, "--prior", request.prior] if request.prior not in (None, "none") else words
    words += ["--model", request.model, "--weights", str(request.weights)]
    if request.prior in (None, "none", "zero"):
        return [*words, "--prior", "zero"]
    return [*words, "--initial", str(request.prior)]
