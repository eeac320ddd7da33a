"""How wrong can this network be on data it has not seen? Get a number you can prove.

This module only re-exports, and only on first use (PEP 562): `import nonvacuous.bounds` never
imports torch. A new public name goes into `_OBJECTS` and into the imports for type checkers;
a test keeps the two in step.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

TYPE_CHECKING = False  # a type checker takes it for true; importing typing takes time
if TYPE_CHECKING:
    from nonvacuous import bounds as bounds
    from nonvacuous import data as data
    from nonvacuous import errors as errors
    from nonvacuous import interpolation as interpolation
    from nonvacuous import measures as measures
    from nonvacuous import memorization as memorization
    from nonvacuous import models as models
    from nonvacuous import randomization as randomization
    from nonvacuous import sparsity as sparsity
    from nonvacuous.bounds import ConfidenceBudget as ConfidenceBudget
    from nonvacuous.certificate import Certificate as Certificate
    from nonvacuous.certify import certify as certify
    from nonvacuous.distributions import DiagonalGaussian as DiagonalGaussian
    from nonvacuous.distributions import priors as priors
    from nonvacuous.evaluation.compare import compare as compare
    from nonvacuous.evaluation.compare import disagreement as disagreement
    from nonvacuous.evaluation.evaluate import evaluate as evaluate
    from nonvacuous.evaluation.monitor import monitor as monitor
    from nonvacuous.evaluation.plan import plan as plan
    from nonvacuous.evaluation_records import Evaluation as Evaluation
    from nonvacuous.integrations import sklearn as sklearn
    from nonvacuous.interpolation import interpolate as interpolate
    from nonvacuous.memorization import memorize as memorize
    from nonvacuous.methods import HeldOut as HeldOut
    from nonvacuous.methods import Posterior as Posterior
    from nonvacuous.methods import PostHoc as PostHoc
    from nonvacuous.methods import Progressive as Progressive
    from nonvacuous.methods import Sparsity as Sparsity
    from nonvacuous.methods.progressive.making import load_mixture as load_mixture
    from nonvacuous.networks import LayerGraph as LayerGraph
    from nonvacuous.networks import ScaleGroups as ScaleGroups
    from nonvacuous.networks import capture as capture
    from nonvacuous.networks import fold_batch_norm as fold_batch_norm
    from nonvacuous.networks import register_operator as register_operator
    from nonvacuous.networks import rescaled as rescaled
    from nonvacuous.networks import scale_groups as scale_groups
    from nonvacuous.report import report as report
    from nonvacuous.rescaling.lifted import lifted_kl as lifted_kl
    from nonvacuous.rescaling.paths import path_lifting as path_lifting
    from nonvacuous.rescaling.paths import path_norm as path_norm
    from nonvacuous.rescaling.solver import rescale as rescale
    from nonvacuous.risk.losses import zero_one as zero_one
    from nonvacuous.risk.pairs import estimate_risk as estimate_risk
    from nonvacuous.settings import Run as Run
    from nonvacuous.training_settings import PlainTraining as PlainTraining
    from nonvacuous.training_settings import PosteriorTraining as PosteriorTraining
    from nonvacuous.verify import verify as verify

#: Public names by the module that defines them, and modules that are public themselves.
_OBJECTS = {
    "bounds": "ConfidenceBudget",
    "certificate": "Certificate",
    "certify": "certify",
    "distributions": "DiagonalGaussian",
    "evaluation.compare": "compare disagreement",
    "evaluation.evaluate": "evaluate",
    "evaluation.monitor": "monitor",
    "evaluation.plan": "plan",
    "evaluation_records": "Evaluation",
    "interpolation": "interpolate",
    "memorization": "memorize",
    "methods": "HeldOut PostHoc Posterior Progressive Sparsity",
    "methods.progressive.making": "load_mixture",
    "networks": "LayerGraph ScaleGroups capture fold_batch_norm register_operator rescaled "
    "scale_groups",
    "report": "report",
    "rescaling.lifted": "lifted_kl",
    "rescaling.paths": "path_lifting path_norm",
    "rescaling.solver": "rescale",
    "risk.losses": "zero_one",
    "risk.pairs": "estimate_risk",
    "settings": "Run",
    "training_settings": "PlainTraining PosteriorTraining",
    "verify": "verify",
}
_MODULES = (
    "bounds data distributions.priors errors integrations.sklearn interpolation measures "
    "memorization models randomization sparsity"
)
#: Public name -> "module:attribute", or "module" where the module itself is what is exported.
_EXPORTS = {module.rpartition(".")[2]: f"nonvacuous.{module}" for module in _MODULES.split()} | {
    name: f"nonvacuous.{module}:{name}"
    for module, names in _OBJECTS.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # to a type checker it would mean that every name exists

    def __getattr__(name: str) -> object:
        target = _EXPORTS.get(name)
        if target is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module_name, _, attribute = target.partition(":")
        module = import_module(module_name)
        value = getattr(module, attribute) if attribute else module
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | _EXPORTS.keys())


class _Package(ModuleType):
    """The package, in which a function keeps its name beside a submodule of the same name.

    When Python has imported `nonvacuous.certify`, it sets the attribute `certify` of the package
    to that module, which would hide the function `nonvacuous.certify`. The module stays reachable
    where the import system looks for it: `from nonvacuous.certify import ...` is unaffected.
    """

    def __setattr__(self, name: str, value: object) -> None:
        exported_object = ":" in _EXPORTS.get(name, "")
        if exported_object and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
