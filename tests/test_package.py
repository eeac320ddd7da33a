"""The package's front door: lazy, complete, and never confused with a submodule."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nonvacuous as nv

INIT = Path(nv.__file__)


def in_fresh_python(code: str) -> str:
    """Run `code` where nothing has been imported yet, and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_version_is_a_release_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", nv.__version__)


def test_installed_metadata_agree_with_the_version() -> None:
    assert importlib.metadata.version("nonvacuous") == nv.__version__


def test_package_is_marked_as_typed() -> None:
    assert (INIT.parent / "py.typed").is_file()


@pytest.mark.parametrize("module", ["nonvacuous", "nonvacuous.bounds", "nonvacuous.errors"])
def test_import_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    assert in_fresh_python(code) == "False"


@pytest.mark.parametrize("name", sorted(nv._EXPORTS))
def test_every_public_name_resolves(name: str) -> None:
    is_module = ":" not in nv._EXPORTS[name]
    assert isinstance(getattr(nv, name), ModuleType) == is_module
    assert name in dir(nv)


def test_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'certifi'"):
        _ = nv.certifi
    assert not hasattr(nv, "_no_such_name")


def test_type_checkers_see_exactly_the_public_names() -> None:
    blocks = [
        node
        for node in ast.parse(INIT.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    declared = {}
    for name, target in nv._EXPORTS.items():
        module, _, attribute = target.partition(":")
        declared[name] = (module, attribute) if attribute else tuple(module.rsplit(".", 1))
    assert seen == declared


FUNCTIONS_NAMED_LIKE_THEIR_MODULE = [
    name for name, target in nv._EXPORTS.items() if target == f"nonvacuous.{name}:{name}"
]


def test_there_are_functions_named_like_their_module() -> None:
    assert set(FUNCTIONS_NAMED_LIKE_THEIR_MODULE) >= {"certify", "verify"}


WAYS_TO_IMPORT = [
    "import nonvacuous as nv",
    "import nonvacuous as nv; import nonvacuous.{name}",
    "import nonvacuous as nv; nv.{name}; import nonvacuous.{name}",
    "import nonvacuous.{name}; import nonvacuous as nv",
    "from nonvacuous.{name} import {name}; import nonvacuous as nv",
    "import importlib, nonvacuous as nv; importlib.import_module('nonvacuous.{name}')",
]
#: Each way in a process of its own that has what takes time to import, and nothing of ours.
IN_FORKS = """
import os, sys, torch, scipy.optimize, scipy.stats, pydantic, safetensors.torch
for code in {codes!r}:
    child = os.fork()
    if child == 0:
        exec(code, dict())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, code
assert "nonvacuous" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_submodule_never_hides_the_function() -> None:
    # All functions of one way in one process: none of them imports the module of another.
    codes = [
        "import sys;"
        + "; ".join(
            f"assert 'nonvacuous.{name}' not in sys.modules, {name!r}; {way.format(name=name)};"
            f"assert callable(nv.{name}), nv.{name};"
            f"assert nv.{name} is sys.modules['nonvacuous.{name}'].{name}"
            for name in FUNCTIONS_NAMED_LIKE_THEIR_MODULE
        )
        for way in WAYS_TO_IMPORT
    ]
    in_fresh_python(IN_FORKS.format(codes=codes))


def test_a_submodule_that_hides_nothing_is_set_as_usual() -> None:
    code = "import nonvacuous.bounds as a, sys; print(a is sys.modules['nonvacuous.bounds'])"
    assert in_fresh_python(code) == "True"


def test_names_can_still_be_replaced_in_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in() -> None: ...

    monkeypatch.setattr(nv, "certify", stand_in)
    assert nv.certify is stand_in
