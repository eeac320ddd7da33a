"""Modules that are imported when they are first used.

``import nonvacuous.bounds`` and a bound on a few numbers need neither numpy nor scipy, whose import
takes longer than anything that the calculator does.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """Stands for the module of this name; each attribute is looked up once, then its own."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value
