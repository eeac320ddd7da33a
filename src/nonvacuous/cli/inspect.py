"""``nonvacuous inspect``: which channels of a network can be rescaled, and what is in the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nonvacuous.cli import exits, output
from nonvacuous.cli.flags import SWITCH, Json, NetworkFlags, check_free
from nonvacuous.files import write_atomically
from nonvacuous.report.wording import plural, printable

if TYPE_CHECKING:
    from rich.table import Table

    from nonvacuous.cli.subject import Subject
    from nonvacuous.networks import Group


def inspect(
    *,
    network: NetworkFlags,
    weights: Path | None = None,
    fold: Annotated[bool, SWITCH] = False,
    svg: Path | None = None,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Show which channels of a network scale together, which weights they touch, and what has none.

    Args:
        weights: A safetensors file with the network's weights: adds how unevenly they are scaled.
        fold: Fold batch normalization into the layers before it first.
        svg: Write a picture of the network to this file, channels that scale together in one color.
        force: Overwrite the picture if the file exists.
    """
    check_free(svg, "--svg", force=force)
    from nonvacuous.cli.subject import Subject
    from nonvacuous.networks import preservation_error

    subject = Subject(network, weights, fold=fold)
    error = preservation_error(
        subject.module, subject.example, groups=subject.groups, seed=subject.seed
    )
    record = _record(subject, error, _imbalances(subject) if weights else {})
    if svg is not None:
        from nonvacuous.cli.graph_picture import picture

        title = f"{network.model} ({subject.shape})"
        write_atomically(svg, picture(subject.graph, subject.groups, title=title))
    output.answered(record, _write_text, as_json=json)
    if svg is not None:
        output.say(f"Picture: {svg}")
    if not json:
        output.write_next(_next(subject, network, weights, svg))
    return exits.DONE


def _record(subject: Subject, error: float, ratios: Mapping[str, Any]) -> dict[str, Any]:
    groups = subject.groups
    return {
        "model": subject.spec,
        "input_shape": list(subject.example.shape[1:]),
        "tensors": len(groups.shapes),
        "weights": sum(parameter.numel() for parameter in subject.module.parameters()),
        "free_scales": groups.size,
        "seed": subject.seed,
        "function_error": error,
        "groups": [
            {
                "name": group.name,
                "layer": group.layer,
                "channels": group.size,
                "start": group.start,
                "multiplied": _touched(group, positive=True),
                "divided": _touched(group, positive=False),
                **({"imbalance": ratios[group.name]} if ratios else {}),
            }
            for group in groups.groups
        ],
        "untouched": [name for name, entries in groups.exponents.items() if not entries],
        "pinned": [{"what": entry.what, "reason": entry.reason} for entry in groups.pinned],
        "no_scale_passes": [
            {"layer": e.layer, "operator": e.op, "reason": e.reason, "remedy": e.remedy}
            for e in subject.graph.support
        ],
        "shared_weights": [list(names) for names in subject.graph.ties],
    }


def _touched(group: Group, *, positive: bool) -> list[dict[str, Any]]:
    return [
        {"tensor": name, "axes": list(axes), "power": abs(power)}
        for name, axes, power in group.tensors
        if (power > 0) == positive
    ]


def _imbalances(subject: Subject) -> dict[str, dict[str, float]]:
    """For each group: how much larger the weights into a channel are than those out of it."""
    import numpy as np

    groups = subject.groups
    squares = {+1: np.zeros(groups.size), -1: np.zeros(groups.size)}
    parameters = dict(subject.module.named_parameters())
    for name, entries in groups.exponents.items():
        energy = parameters[name].detach().double().square().numpy()
        for entry in entries:
            others = tuple(axis for axis in range(energy.ndim) if axis not in entry.axes)
            positions = entry.spread(energy.ndim).reshape(-1)
            used = positions >= 0
            side = squares[1 if entry.power > 0 else -1]
            np.add.at(side, positions[used], energy.sum(axis=others).reshape(-1)[used])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(squares[1] / squares[-1])
    spreads = {}
    for group in groups.groups:
        own = ratio[group.start : group.start + group.size]
        own = own[np.isfinite(own) & (own > 0)]
        shown = own if len(own) else np.zeros(1)
        spreads[group.name] = {
            "lowest": float(shown.min()),
            "median": float(np.median(shown)),
            "highest": float(shown.max()),
            "dead": group.size - len(own),
        }
    return spreads


def _write_text(record: dict[str, Any]) -> None:
    shape = " x ".join(map(str, record["input_shape"])) or "one number"
    output.write_lines(
        f"{record['model']} on inputs of {shape}: {record['tensors']} weight tensors, "
        f"{record['weights']:,} weights, {record['free_scales']:,} free scales in "
        f"{plural(len(record['groups']), 'group')}"
    )
    if record["groups"]:
        output.result_console().print(_table(record))
        output.write_lines(
            "Each channel of a group has a scale λ of its own: multiply the weights on the left "
            "by it along their axis, divide those on the right, and the function stays the same "
            f"(tried with random scales, seed {record['seed']}: outputs change by "
            f"{record['function_error']:.0e} of the largest)."
        )
        if "imbalance" in record["groups"][0]:
            output.write_lines(
                "in / out: the norm of the weights on the left over that of those on the right, "
                "channel by channel: the median (and the range)."
            )
    for names in record["shared_weights"]:
        output.write_lines(f"One weight under several names: {', '.join(names)}.")
    if record["untouched"]:
        output.write_lines(f"Touched by no scale: {', '.join(record['untouched'])}.")
    pinned = [(entry["what"], entry["reason"]) for entry in record["pinned"]]
    _write_list("Channels that keep the scale 1:", pinned)
    stops = record["no_scale_passes"]
    names = (f"{entry['layer'] or 'the network'} ({entry['operator']})" for entry in stops)
    reasons = (f"{entry['reason']}. {entry['remedy']}" for entry in stops)
    _write_list("Layers that no scale passes:", zip(names, reasons, strict=True))


def _table(record: dict[str, Any]) -> Table:
    with_weights = "imbalance" in record["groups"][0]
    headings = ["group", "channels", "times λ [axis]", "divided by λ [axis]"]
    table = output.plain_table(*headings, *(["in / out"] if with_weights else []), right=(1, 4))
    for group in record["groups"]:
        row = [
            printable(group["name"]),
            f"{group['channels']:,}",
            *(
                "\n".join(printable(_written(entry)) for entry in group[side])
                for side in ("multiplied", "divided")
            ),
        ]
        if with_weights:
            spread = group["imbalance"]
            dead = f"\n{spread['dead']} dead" if spread["dead"] else ""
            limits = f"{spread['lowest']:.2g} to {spread['highest']:.2g}"
            row.append(f"{spread['median']:.2g} ({limits}){dead}")
        table.add_row(*row)
    return table


def _written(entry: dict[str, Any]) -> str:
    power = "" if entry["power"] == 1 else f" ^{entry['power']:g}"
    return f"{entry['tensor']} [{','.join(map(str, entry['axes']))}]{power}"


def _write_list(heading: str, entries: Iterable[tuple[str, str]]) -> None:
    """One line for each reason, with everything that it holds for in front."""
    together: dict[str, list[str]] = {}
    for what, why in entries:
        together.setdefault(why, []).append(what)
    lines = [f"  {', '.join(what)}: {why}" for why, what in together.items()]
    if lines:
        output.write_lines(heading, *lines)


def _next(subject: Subject, network: NetworkFlags, weights: Path | None, svg: Path | None) -> str:
    """What makes sense after looking."""
    if any("batch_norm" in entry.op for entry in subject.graph.support):
        return exits.again({"--fold": None})
    if weights is not None and subject.groups.size:
        return exits.command("rescale", **network.named(weights), out="new.safetensors")
    if svg is None:
        return exits.again({"--svg": "network.svg"})
    if network.data is not None:
        asked = {"data": network.data, "model": network.model, "data_dir": network.data_dir}
        return exits.command("certify", **asked)
    return exits.command("certify", "--help")
