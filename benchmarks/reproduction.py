"""A reproduction as a result file with its provenance.

    python benchmarks/reproduction.py measures-study --large --device cuda
    python benchmarks/reproduction.py measures-study --name measures-study-cnn --cnn --device cuda
    python benchmarks/reproduction.py zhang-table-1 --only inception --device cuda
    python benchmarks/reproduction.py zhang-table-1 --rows 15 16 18 19 --name zhang-table-1-cpu
    python benchmarks/reproduction.py zhang-figure-1 --table runs/zhang-table-1 --device cuda
    python benchmarks/reproduction.py rescaling-figure-1 --cifar --architectures cnn resnet20 vit \\
        --device cuda

The flags are those of `nonvacuous reproduce`, and --name, the name of the result file. A run that
was stopped goes on. Networks on images of the rescaling figure have files of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from provenance import write_result

from nonvacuous.cli.app import main as command
from nonvacuous.papers.rescaling.images import ImageSettings


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study")
    parser.add_argument("--name", default=None, help="of the result file")
    parser.add_argument("--out", type=Path, default=None)
    arguments, flags = parser.parse_known_args()
    name = arguments.name or arguments.study
    folder = arguments.out or Path("runs") / name
    resume = ["--resume"] if (folder / "settings.json").is_file() else []
    code = command(["reproduce", arguments.study, "--out", str(folder), *flags, *resume])
    if code:
        return code
    record = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    seed = record["settings"]["seed"]
    for network in record.pop("images", []):
        key = ImageSettings(**network["settings"]).key
        print(write_result(f"rescaling-images-{key}", network, seed=seed))
    print(write_result(name, shortened(record), seed=seed))
    return 0


def shortened(record: dict[str, Any]) -> dict[str, Any]:
    """Without the course of every training, and without the times of a shared machine."""
    for row in record.get("rows", []):
        row["measurements"] = len(row.pop("history"))
    if "curves" in record:
        for curve in record["curves"].values():
            # Loss by step is the picture; everything else about these networks is in the sweep.
            curve["loss"] = [[point["steps"], point["loss"]] for point in curve.pop("history")]
    if "switches" in record:
        del record["networks"]
    for case in record.get("cases", []):
        case.pop("training_seconds", None)
        case.pop("certificate_seconds", None)
    return record


if __name__ == "__main__":
    sys.exit(main())
