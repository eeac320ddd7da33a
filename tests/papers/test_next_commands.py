"""The command that a reproduction ends with can be pasted as it stands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from nonvacuous.papers.rescaling.figure import STUDY as FIGURE
from nonvacuous.papers.zhang.table import STUDY as TABLE
from nonvacuous.papers.zhang.theorem import STUDY as THEOREM


def test_folders_and_files_are_quoted() -> None:
    network = SimpleNamespace(ours=SimpleNamespace(certificate=Path("cells/a/certificate")))
    figure, table = (
        SimpleNamespace(networks=[network]),
        SimpleNamespace(settings=SimpleNamespace(data="digits")),
    )
    folder = Path("my runs")
    verify = FIGURE.next_command(figure, folder)  # type: ignore[arg-type]
    assert verify == "nonvacuous verify 'my runs/cells/a/certificate'"
    regularize = TABLE.next_command(table, folder)  # type: ignore[arg-type]
    assert regularize == "nonvacuous reproduce zhang-regularization --table 'my runs' --quick"
    theorem = SimpleNamespace(settings=SimpleNamespace(data="my data.npz"))
    memorize = THEOREM.next_command(theorem, folder)  # type: ignore[arg-type]
    assert memorize == "nonvacuous memorize --data 'my data.npz' --labels true"
