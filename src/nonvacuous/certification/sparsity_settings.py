"""The choices of a sparsity certificate: plain numbers, with defaults that work. No torch here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput

THEOREMS, VARIANTS = ("A", "D", "E", "F"), ("sparse", "dense")
KINDS = ("zero", "initialization", "learned")
#: The prior of a network that is trained here.
LEARNED = "learned:0.2"


@dataclass(frozen=True)
class SparsitySettings:
    """How a certificate of mode "sparsity" is made; to be chosen before looking at results.

    theorem          A, D, E or F of docs/theory/sparsity.md; E for convolutional networks
    variant          sparse: use is made of units that stay inactive; dense: none is
    prior            for a network that is trained here: learned:FRACTION, initialization or zero
    passes           noisy networks drawn for each example
    search_examples  examples on which settings are compared
    unit_norm        scale every input to norm 1; by default for networks that are trained here
    steps            of training the network toward its prior
    prior_steps      of training a learned prior on its part of the examples
    pull             weight of the squared distance to the prior in training; None: 1 for a
                     learned prior (10 with convolutions), 0.003 for one that knows nothing
    noise            of the weights in training, so that the margin survives it; None: 0.08 for a
                     learned prior and 0 from there on, 0.2 for a prior that knows nothing, and
                     0.03 throughout for convolutional networks
    activity         weight of the l1 norm of the activations in training
    """

    theorem: str = "E"
    variant: str = "sparse"
    prior: str = LEARNED
    passes: int = 4
    search_examples: int = 3_000
    unit_norm: bool | None = None
    steps: int = 2_000
    prior_steps: int = 2_000
    pull: float | None = None
    noise: float | None = None
    activity: float = 0.0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("theorem", self.theorem, THEOREMS),
            ("variant", self.variant, VARIANTS),
        ):
            if value not in known:
                raise BadInput(f"{name} must be one of {', '.join(known)}, not {value!r}")
        prior_kind(self.prior)
        for name in ("passes", "search_examples", "steps", "prior_steps"):
            checks.count(name, getattr(self, name), minimum=1)
        for name in ("pull", "noise", "activity"):
            if getattr(self, name) is not None:
                checks.non_negative(name, getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def prior_kind(text: str) -> tuple[str, float]:
    """``zero``, ``initialization`` or ``learned:0.2`` as a kind and a fraction.

    >>> prior_kind("learned:0.05"), prior_kind("zero")
    (('learned', 0.05), ('zero', 0.0))
    """
    kind, _, number = text.partition(":")
    kind = {"init": "initialization", "zero-mean": "zero"}.get(kind, kind)
    if kind not in KINDS or (number and kind != "learned"):
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
