"""The kinds of promises, by what a certificate of each has. Its ``mode`` names one of them.

Whoever asks what kind a certificate is asks here for the fact that matters, not for a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nonvacuous.errors import BadInput

Mode = Literal["posterior", "post-hoc", "sparsity", "holdout", "progressive"]
#: What a record can be of: certify makes all but the last.
AnyMode = Literal[Mode, "evaluate"]
Predictor = Literal["stochastic", "drawn", "deterministic", "mixture"]
#: What a prior can be centered on.
Center = Literal["zero", "initialization", "learned", "pretrained"]
#: How a column beside a rescaled certificate accounts for the complexity.
Way = Literal[
    "fixed scale",
    "fixed scale, rescaled",
    "best scale",
    "best scale, rescaled",
    "best scale per tensor, rescaled",
    "scale of the scores",
    "shift of the scores",
    "order of the units",
]
#: What a prior is centered on, in words.
CENTERS: dict[str, str] = {
    "zero": "zero",
    "initialization": "the initial weights",
    "learned": "weights trained on the prior part of the data",
    "pretrained": "weights trained on other data",
}

#: Data sets and kinds of networks that their names alone bring back; all others are somebody's own.
DATA_SETS = ("digits", "mnist", "fashion-mnist", "cifar10")
ARCHITECTURES = ("mlp", "cnn", "inception", "alexnet", "resnet", "resnet9", "scatter", "vit")
#: Other words for the same priors, accepted wherever one is named.
PRIOR_NAMES = {"zero-mean": "zero", "init": "initialization"}
#: A prior that is learned here: on a fifth of the examples.
LEARNED = "learned:0.2"


def prior_kind(text: str) -> tuple[str, float]:
    """``zero``, ``initialization`` or ``learned:0.2`` as what it is centered on and a fraction.

    >>> prior_kind("learned:0.05"), prior_kind("zero")
    (('learned', 0.05), ('zero', 0.0))
    """
    kind, _, number = text.partition(":")
    kind = PRIOR_NAMES.get(kind, kind)
    if kind not in ("zero", "initialization", "learned") or (number and kind != "learned"):
        raise BadInput(
            f"there is no prior {text!r}; write zero, initialization, or {LEARNED} for one that "
            "is learned on a fifth of the examples"
        )
    if kind != "learned":
        return kind, 0.0
    try:
        fraction = float(number or "nan")
    except ValueError:
        fraction = float("nan")
    if not 0.0 < fraction < 1.0:
        raise BadInput(f"prior {text!r}: the fraction must be above 0 and below 1: {LEARNED}")
    return kind, fraction


@dataclass(frozen=True)
class Kind:
    """What a certificate of one mode has.

    predictors   what its promise can be about
    prior        whether there are a prior and a posterior, and training data
    steps        whether checkpoints along a training are tested before they learn from their tests
    given        whether the network is always one that was trained elsewhere
    noisy        whether the posterior is noise around the one network that is promised
    paid_for     what the bound's line of the ledger pays for, in words, where nothing is chosen
    evaluation   whether it is the report of a test, with claims about parts of the examples
    """

    predictors: tuple[Predictor, ...]
    paid_for: str = "PAC-Bayes bound, prior fixed before the data"
    prior: bool = True
    steps: bool = False
    given: bool = False
    noisy: bool = False
    evaluation: bool = False

    @property
    def random(self) -> bool:
        """Whether the promise is about a randomized network, or about one drawn from it."""
        return self.prior and not self.noisy


KINDS: dict[AnyMode, Kind] = {
    "posterior": Kind(("stochastic", "drawn")),
    "post-hoc": Kind(("stochastic", "drawn"), given=True),
    "sparsity": Kind(
        ("deterministic",), "PAC-Bayes bound for the noisy loss, all settings at once", noisy=True
    ),
    "holdout": Kind(("deterministic",), "exact binomial tail", prior=False, given=True),
    "progressive": Kind(
        ("mixture",),
        "tests of the checkpoints, each before training on them",
        prior=False,
        steps=True,
    ),
    "evaluate": Kind(
        ("deterministic",), "exact binomial tail", prior=False, given=True, evaluation=True
    ),
}


def kind_of(mode: str) -> Kind:
    if mode not in KINDS:
        raise BadInput(f"there is no certificate of mode {mode!r}; modes are {', '.join(KINDS)}")
    return KINDS[mode]


#: Modes whose promise is about a randomized network, or about one drawn from it.
RANDOM_MODES = tuple(mode for mode, kind in KINDS.items() if kind.random)
#: Modes in which a prior and a posterior exist.
PRIOR_MODES = tuple(mode for mode, kind in KINDS.items() if kind.prior)
#: Modes in which checkpoints along a training are tested.
STEPS_MODES = tuple(mode for mode, kind in KINDS.items() if kind.steps)
#: Modes of certificates that the audit of certify knows.
ALL_MODES = tuple(mode for mode, kind in KINDS.items() if not kind.evaluation)
