"""Draw the house: rooms, floors and who imports whom, from the code itself.

Usage: python scripts/house.py, or `make house`. What it draws stands between two marks in
docs/architecture.md; a test fails while the page is out of date. Imports inside functions count
like all others; only those for type checkers do not, since they never run.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "nonvacuous"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- drawn by `make house`: begin -->\n", "<!-- drawn by `make house`: end -->\n"


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    named = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports() -> dict[str, set[str]]:
    """For every module, the modules that it imports anywhere in its text."""
    return {module: set(targets) for module, targets in _imports()}


@cache
def _imports() -> tuple[tuple[str, frozenset[str]], ...]:
    named = modules()
    # The package's own re-exports are lazy and point everywhere: they are not dependencies.
    return tuple(
        (module, frozenset(_imported(module, path, named)) - {module, "nonvacuous"})
        for module, path in named.items()
        if module != "nonvacuous"
    )


def _imported(module: str, path: Path, named: dict[str, Path]) -> Iterator[str]:
    for node in _running(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in named)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                for target in (f"{base}.{alias.name}", base):
                    if target in named:
                        yield target
                        break


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING:``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            if ast.unparse(node.test).startswith("not "):
                yield from _running(node)
            continue
        yield node
        yield from _running(node)


def floors() -> list[list[str]]:
    """The rooms of each floor, the highest first: the first contract of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[room.strip(" ()") for room in line.replace(":", "|").split("|")] for line in lines]


def room_of(module: str) -> str:
    return module.split(".")[1]


def room_imports() -> dict[str, set[str]]:
    """For every room, the other rooms that something in it imports."""
    lines: dict[str, set[str]] = {}
    for module, targets in imports().items():
        lines.setdefault(room_of(module), set()).update(map(room_of, targets))
    return {room: targets - {room} for room, targets in lines.items()}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach one another (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def purpose(room: str) -> str:
    """The first sentence of what the room says about itself."""
    path = PACKAGE / room / "__init__.py"
    text = ast.get_docstring(
        ast.parse((path if path.exists() else PACKAGE / f"{room}.py").read_text("utf-8"))
    )
    return (text or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


def picture() -> str:
    """The floors from the roof down; for each room what it is and which rooms it stands on."""
    lines, order = room_imports(), [room for floor in floors() for room in floor]
    rows = ["```", *("   ".join(floor) for floor in floors()), "```", ""]
    rows += ["| room | what is in it | imports |", "|---|---|---|"]
    for room in order:
        below = ", ".join(sorted(lines.get(room, ()), key=order.index)) or "nothing of ours"
        name = f"`{room}/`" if (PACKAGE / room).is_dir() else f"`{room}.py`"
        rows.append(f"| {name} | {purpose(room)} | {below} |")
    return "\n".join(rows) + "\n"


def drawn() -> str:
    """The page with the picture as it should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + picture() + "\n" + END + rest.partition(END)[2]


def main() -> None:
    PAGE.write_text(drawn(), "utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
