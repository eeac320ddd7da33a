"""``nonvacuous rescale``: other weights, the same function. To improve a bound, or to break one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from nonvacuous.bounds import checks, rounding
from nonvacuous.cli.exits import UsageError, as_usage, command
from nonvacuous.cli.flags import SWITCH, Json, Ledger, NetworkFlags, Noise, check_free, instead_of
from nonvacuous.cli.output import answered, plain_table, result_console, write_lines

#: What a row is called, and how its numbers are written.
_ROWS = (
    ("norm", "norm of all weights", "{:.4g}".format),
    ("largest_weight", "largest weight", "{:.4g}".format),
    ("kl_naive", "KL of equal noise around them", "{:,.0f}".format),
    ("bound_naive", "  bound with it", rounding.shown_up),
    ("kl_carried", "KL of the noise moved along", "{:,.0f}".format),
    ("kl_smallest", "  smallest on its orbit", "{:,.0f}".format),
    ("bound_smallest", "  bound with that", rounding.shown_up),
)


def rescale(
    *,
    network: NetworkFlags,
    weights: Path,
    out: Path,
    gauge: Literal["optimal", "balanced"] | None = None,
    attack: float | None = None,
    noise: Noise = Noise(),  # noqa: B008
    force: Annotated[bool, SWITCH] = False,
    ledger: Ledger = None,
    json: Json = False,
) -> int:
    """Write a network with other weights and the same function, and say what that changes.

    Args:
        weights: The network's weights: a safetensors file as
            safetensors.torch.save_file(model.state_dict(), path) writes it. It is not changed.
        out: Where the rescaled weights go, as safetensors for the same --model.
        gauge: optimal: the smallest KL of noise --sigma around the weights, moved along with them,
            to a prior centered on zero with scale --tau (default). balanced: the weights into each
            channel and out of it get the same norm, which makes the norm of all weights smallest.
        attack: Instead of --gauge: multiply every free scale by exp(SPREAD x a standard normal
            number). Bounds that depend on the scale of the weights move; the function does not.
        force: Overwrite --out if it exists.
    """
    with as_usage():
        for flag, value in (("--sigma", noise.sigma), ("--tau", noise.tau), ("--attack", attack)):
            if value is not None:
                checks.positive(flag, value)
        checks.count("--trials", noise.trials, minimum=1)
    if attack is not None and gauge is not None:
        raise UsageError("--attack spoils the scales and --gauge mends them: give one of them.")
    if out.exists() and weights.exists() and out.samefile(weights):
        raise UsageError(
            f"--out: {out} is the file of --weights, which is not changed. Name another file.",
            instead={**instead_of(out), "--force": ""},
        )
    check_free(out, "--out", force=force)
    from nonvacuous.cli.rescale_run import run
    from nonvacuous.cli.subject import Subject

    record = run(
        Subject(network, weights),
        noise,
        out=out,
        gauge=None if attack is not None else gauge or "optimal",
        attack=attack,
        ledger=ledger,
    )
    following = command("inspect", **network.named(out))
    if attack is not None:
        mended = out.with_name(f"{out.stem}-mended{out.suffix}")
        following = command("rescale", **network.named(out), out=mended)
    return answered(record, _write_text, as_json=json, next_command=following)


def _write_text(record: dict[str, Any]) -> None:
    write_lines(f"{record['out']}: {record['model']} with {record['done']}")
    heading = f"σ = {record['sigma']:g}, τ = {record['tau']:g}, seed {record['seed']}"
    table = plain_table(heading, "before", "after", right=(1, 2))
    for key, title, form in _ROWS:
        if key in record["before"]:
            texts = [form(record[side][key]) for side in ("before", "after")]
            table.add_row(title, *(f"{t} (vacuous)" if t == "1.0000" else t for t in texts))
    result_console().print(table)
    if "bound_naive" in record["before"]:
        write_lines(
            "Bounds: PAC-Bayes-kl with confidence 0.95, to illustrate; nonvacuous certify makes "
            "them with their evidence."
        )
    same, factors = record["function"], record["factors"]
    write_lines(
        f"Function: outputs change by {same['float64_error']:.0e} of the largest in float64 and by "
        f"{same['float32_error']:.0e} as stored; {same['predictions_changed']:,} of "
        f"{same['inputs']:,} predictions change.",
        f"Scales: {record['free_scales']:,} free, from {factors['smallest']:.3g} to "
        f"{factors['largest']:.3g} (largest in {factors['where']}).",
    )
