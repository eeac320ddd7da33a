"""The sparsity study of one data set as a result file, put together from several processes.

    nonvacuous reproduce sparsity-mnist --data cifar10 --only best --device cuda --out runs/a &
    nonvacuous reproduce sparsity-mnist --data cifar10 --only width --device cuda --out runs/b &
    wait; python benchmarks/sparsity_study.py --name sparsity-cifar10 runs/a runs/b

Networks that are finished are taken, whether or not the whole run is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from provenance import RESULTS, write_result

from nonvacuous.papers.sparsity.results import CaseResult, SparsityResult
from nonvacuous.papers.sparsity.settings import SparsitySettings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--name", required=True, help="of the result file")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    claims = [json.loads((folder / "settings.json").read_text()) for folder in arguments.folders]
    if any(claim != claims[0] for claim in claims):
        raise SystemExit("the folders hold studies of different settings")
    settings = SparsitySettings.of(claims[0])
    finished = {}
    for folder in arguments.folders:
        for path in folder.glob("cells/*/h*.json"):
            result = CaseResult(**json.loads(path.read_text()))
            finished[result.case.key] = result
    ordered = (finished[case.key] for case in settings.cases() if case.key in finished)
    record = SparsityResult(settings, tuple(ordered)).to_dict()
    for case in record["cases"]:
        # What a reader needs of a certificate that is not the best: its number.
        case["certificates"] = {
            name: entry if name == case["best_by"] else {"risk_upper": entry["risk_upper"]}
            for name, entry in case["certificates"].items()
        }
    # Parts and recipes are the defaults of the command.
    for name in ("parts", "recipes"):
        del record["settings"][name]
    print(write_result(arguments.name, record, seed=settings.seed, folder=arguments.to))
    return 0


if __name__ == "__main__":
    sys.exit(main())
