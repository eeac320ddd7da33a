"""``nonvacuous data``: what is in a data set, before anything is trained on it."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from nonvacuous.cli import exits, flags, output
from nonvacuous.foreign import SOURCES
from nonvacuous.report.wording import printable

_Source = Annotated[str, Parameter(help=SOURCES)]


def data(source: _Source, /, *, data_dir: flags.DataDir = None, json: flags.Json = False) -> int:
    """Describe a data set: its size, classes, values, repeated examples and fingerprint."""
    from nonvacuous.data import describe
    from nonvacuous.study.study import named_data

    record = describe(named_data(source, data_dir))
    following = exits.command("certify", data=source, data_dir=data_dir)
    return output.answered(record, _write_text, as_json=json, next_command=following)


def _write_text(record: dict[str, Any]) -> None:
    shape = " x ".join(map(str, record["example_shape"]))
    output.write_lines(f"{record['name']}: {record['classes']} classes, inputs of {shape}")
    parts = [record[key] for key in ("train", "test") if record[key] is not None]
    table = output.plain_table("class", *(part["name"] for part in parts), right=(1, 2))
    for number, name in enumerate(record["class_names"]):
        table.add_row(printable(name), *(f"{part['label_counts'][number]:,}" for part in parts))
    table.add_row("all", *(f"{part['examples']:,}" for part in parts), style="bold")
    output.result_console().print(table)
    for part in parts:
        output.write_lines(
            f"{part['name']}: values {part['lowest_input']:g} to {part['highest_input']:g} "
            f"({'; '.join(part['preprocessing']) or 'as given'}), "
            f"{part['repeats']['inputs']:,} repeated inputs, always guessing the largest class "
            f"errs on {1 - part['largest_class_fraction']:.1%}, "
            f"SHA-256 {part['content_hash'][:16]}..."
        )
    if record["unused"]:
        output.write_lines(f"not used: {', '.join(record['unused'])}")
    across = record["duplicates_across"]
    if across is not None and across["inputs"]:
        output.write_lines(
            f"{across['inputs']:,} test inputs also occur in training: errors measured on them "
            "say nothing about new data."
        )
