"""A kind of promise, as every method of :mod:`nonvacuous.methods` fills it in. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import PlainSerializer

from nonvacuous.errors import BadInput
from nonvacuous.kinds import Mode
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import Flag, Settings, checked, sentence

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nonvacuous.certificate import Certificate
    from nonvacuous.certification.job import Job
    from nonvacuous.data import Examples, Split
    from nonvacuous.distributions.priors import Prior
    from nonvacuous.records import TwinRecord
    from nonvacuous.risk.losses import Loss


#: Flags that several methods share.
PREDICTOR = Flag(
    "stochastic: weights are drawn afresh for each prediction. drawn: one network, drawn once. The "
    "modes sparsity and holdout are about the network itself."
)
TRIALS = Flag("Independent pairs of an example and a draw of the weights, for the empirical risk.")
PRIOR_SCALE = Flag(
    "Standard deviation of the prior; several make a grid, whose price the promise pays. By "
    "default 0.01 for a prior trained on data, 0.1 for one at the initial weights, and in --mode "
    "post-hoc a grid of 25."
)
STANDARDIZE = Flag(
    "For --mode posterior and progressive: subtract each feature's mean and divide by its standard "
    "deviation (each channel's for images), both computed on the prior (or first) part alone.",
    group="What is certified",
)
TWIN = Flag("Also say what a plain held-out test promises on the same data.")
PRETRAINED = Flag(
    "Declare that --weights (as the start of --mode posterior) or --initial (as the prior) were "
    "trained on other, independent data: a sentence on where they come from, which the "
    "certificate quotes.",
    group="What is certified",
)


def _declared(name: str, value: Any) -> str | None:
    return None if value is None or value is False else sentence(name, value)


Pretrained = Annotated[str | None, checked(_declared)]


class Method(Settings):
    """How a certificate is made; to be chosen before looking at results."""

    mode: ClassVar[Mode]
    #: Where ``making`` and ``checking`` lie, which import torch.
    folder: ClassVar[str]
    #: The built-in network for this method, where any other might be refused.
    usual_network: ClassVar[str | None] = None
    #: Whether a network is ever trained on the way.
    trains: ClassVar[bool] = True
    #: What a stopped run has lost at most.
    kept_by: ClassVar[str] = "epoch"

    @property
    def quotients(self) -> tuple[str, ...]:
        """Symmetries to forget in the KL, see :mod:`nonvacuous.rules.symmetries`."""
        if getattr(self, "predictor", None) == "drawn":
            return ()  # one network pays for its own weights, not for a KL
        return tuple(n for n in ("translation", "permutation") if getattr(self, n, False))

    @property
    def shaping(self) -> float | None:
        """The part of the examples that shapes the prior; None where the promise counts all."""
        return None

    def advice(self, example_shape: Sequence[int], *, tokens: bool = False) -> str | None:
        """What would serve such examples better, said before anything is spent on them.

        tokens   whether the network reads them as whole numbers
        """
        return None

    def check(self, model: nn.Module, loss: Loss) -> None:
        """Refuse what this method cannot certify, before any work."""

    def starting_network(self, model: nn.Module, device: torch.device) -> nn.Module | None:
        """The network before any training, where its weights are those that the prior starts at."""
        from nonvacuous.certification.candidate import frozen_copy

        return frozen_copy(model, device) if self.trains else None

    def prepare(self, examples: Examples) -> Examples:
        """The examples as the network is to see them."""
        return examples

    def split_of(self, examples: Examples, seed: int) -> Split:
        """Which examples shape the prior, and which ones the promise counts."""
        import numpy as np

        from nonvacuous.data import Split, split_examples

        given: Split | None = getattr(self, "split", None)
        if given is not None:
            return given
        if self.shaping is not None:
            own = derived_seed(seed, "split")
            return split_examples(examples, prior_fraction=self.shaping, seed=own)
        everything = np.arange(len(examples))
        return Split(everything[:0], everything, everything[:0], content=examples.content_hash())

    def make(self, job: Job, model: nn.Module) -> Certificate:
        """The certificate, with its evidence in the run folder, by ``making`` of the method."""
        made: Certificate = import_module(f"{self.folder}.making").make(self, job, model)
        return made

    @classmethod
    def checking(cls) -> Any:
        """What verify asks of such certificates, by ``checking`` of the method."""
        return import_module(f"{cls.folder}.checking").MethodChecking()

    def repeat(self, job: Job, start: nn.Module) -> TwinRecord | None:
        """All training of ours once more, from where it started, into the job's folder."""
        return self.make(job, start).held_out_twin


def prior_given(value: Any) -> Any:
    """A prior as nv.priors makes it, for weights that were trained elsewhere."""
    from nonvacuous.distributions.priors import Prior

    if not isinstance(value, Prior):
        raise BadInput(
            f"prior must come from nv.priors (zero_mean, at_initialization, learned), not {value!r}"
        )
    if value.kind == "pretrained":
        raise BadInput(
            "priors.pretrained belongs to nv.Posterior(prior=...), which trains what is random; "
            "for given weights use priors.at_initialization, with pretrained='where it comes from'"
        )
    return value


def without_split(prior: Prior) -> None:
    """Refuse a prior that was learned on examples, where nothing says on which."""
    if prior.kind == "learned":
        raise BadInput(
            "a learned prior comes with the split it was learned on: pass split= beside it, so "
            "that the bound counts none of the examples that the prior saw"
        )


def prior_record(prior: Any) -> Any:
    """A prior as plain values: its name, or its kind, its scales and what its means are."""
    if prior is None or isinstance(prior, str):
        return prior
    from nonvacuous.distributions.storage import tensors_digest

    # Networks are certified in float32, whatever they are given in.
    means = None if prior.means is None else {n: m.float() for n, m in prior.means.items()}
    return {
        "kind": prior.kind,
        "scales": list(prior.grid.scales),
        "per_tensor": prior.per_tensor,
        "means": None if means is None else tensors_digest(means),
        **({"fixed": tensors_digest(prior.fixed)} if prior.source is not None else {}),
    }


#: A prior, by its name or from nv.priors.
AnyPrior = Annotated[Any, PlainSerializer(prior_record)]
