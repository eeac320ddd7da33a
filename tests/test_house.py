"""The house as it stands: pages drawn from the code are fresh, and imports go downward only."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house = script("house")


def test_the_picture_is_fresh() -> None:
    assert house.drawn() == house.PAGE.read_text("utf-8"), "run make house"


def test_the_page_of_theorems_is_fresh() -> None:
    bounds_page = script("bounds-page")
    assert bounds_page.page() == bounds_page.TARGET.read_text("utf-8"), "run make house"


def test_no_room_imports_one_above_it_not_even_inside_a_function() -> None:
    floor = {room: number for number, rooms in enumerate(house.floors()) for room in rooms}
    upward = [
        f"{module} imports {target}"
        for module, targets in house.imports().items()
        for target in targets
        if floor[house.room_of(target)] < floor[house.room_of(module)]
    ]
    assert not upward
    assert not house.cycles(house.room_imports())


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert not house.cycles(house.imports()), (
        "not even inside functions: move what both need below both"
    )


def test_circles_are_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert house.cycles(graph) == [["b", "c"]]
    assert house.cycles({**graph, "c": set()}) == []


#: Functions with more parameters than ten, and how many: the verbs, and what is still to shrink.
MANY = {
    "certify.certify": 12,
    "evaluation.evaluate.evaluate": 12,
}


def test_no_function_takes_more_than_ten_parameters() -> None:
    package = ROOT / "src/nonvacuous"
    counted = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(argument.arg not in ("self", "cls") for argument in given)
                if count > 10:
                    module = ".".join(path.relative_to(package).with_suffix("").parts)
                    counted[f"{module}.{node.name}"] = count
    assert counted == MANY, "a settings object says it better; take what has shrunk off the list"
