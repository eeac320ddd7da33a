"""numpy and scipy, imported when they are first used.

``import nonvacuous.bounds`` and a bound on a few numbers need neither of them, and their import
takes longer than anything that the calculator does.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Later(ModuleType):
    """Stands for the module of this name; each attribute is looked up once, then its own."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as numpy
    from scipy import integrate as integrate
    from scipy import optimize as optimize
    from scipy import special as special
else:
    numpy, integrate = Later("numpy"), Later("scipy.integrate")
    optimize, special = Later("scipy.optimize"), Later("scipy.special")
