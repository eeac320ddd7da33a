"""Which measured test error stands beside a promise: that of the predictor that is promised about.

A certificate may record several: of the randomized network, of the network with the mean weights.
Their names say whose error each is. Where a network was given, its own error stands beside that of
its noise: whoever brings one wants to know first how often it errs itself, and what a plain test of
it is worth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nonvacuous.certificate import Certificate
from nonvacuous.evaluation_records import Slice
from nonvacuous.records import Observation

#: The predictor in few words.
PREDICTOR = {
    "stochastic": "the randomized network",
    "drawn": "one network drawn at random",
    "deterministic": "the network itself",
    "mixture": "a checkpoint drawn for each input",
}
#: The predictor in fewer words still, as beside a number.
SHORT = {
    "stochastic": "randomized network",
    "drawn": "drawn network",
    "deterministic": "network itself",
    "mixture": "drawn checkpoint",
    "last": "last checkpoint",
    "mean": "mean weights",
}
#: Words in the name of an observation, and the predictor that they mean.
_NAMED = {
    "mean weights": "mean",
    "last checkpoint": "last",
    "checkpoint drawn": "mixture",
    "randomized": "stochastic",
    "drawn": "drawn",
    "network": "deterministic",
}


@dataclass(frozen=True)
class Measured:
    """A measured test error. ``own``: of the very predictor that the promise is about."""

    rate: float
    #: Whose error it is, in few words.
    whose: str
    own: bool


def measured_risk(certificate: Certificate, part: Slice | None = None) -> float:
    """The empirical risk, or that of a group, in the units of the promise.

    F1 of a class is bounded through its Jaccard index.
    """
    mean, test = certificate.empirical.mean, certificate.evaluation
    if part is not None:
        mean = part.errors / max(1, part.examples)
    if test is None or test.settings.metric != "f1" or test.settings.over_all_classes:
        return mean
    return mean / (2.0 - mean)


def errors_on_test(certificate: Certificate) -> tuple[Measured, ...]:
    """Every test error on record, that of the certified predictor first."""
    errors = []
    for observation in filter(is_test, certificate.observed):
        name, own = observation.name.lower(), certificate.predictor
        # A name that tells of no predictor is taken to be about the one there is.
        kind = next((kind for words, kind in _NAMED.items() if words in name), own)
        rate = observation.errors / observation.trials
        errors.append(Measured(rate, SHORT[kind], kind == own))
    return tuple(sorted(errors, key=lambda error: not error.own))


def is_test(observation: Observation) -> bool:
    """Whether it was measured on test examples, by its name."""
    return re.search(r"\btest", observation.name, flags=re.IGNORECASE) is not None


#: How the twin of a certificate is called where a network was trained for it.
RETRAINED = "Retrained twin"


def is_given(certificate: Certificate) -> bool:
    """Whether the promise is about noise around a network that somebody brought."""
    return certificate.kind.given and certificate.kind.random


def own_error(certificate: Certificate, *, test: bool) -> Observation | None:
    """The given network's own errors: rescaled, the mean weights compute what the given ones do."""
    if not is_given(certificate):
        return None
    own = (o for o in certificate.observed if "mean weights" in o.name and is_test(o) == test)
    return next(own, None)


def twin_name(certificate: Certificate) -> str:
    """Whose plain test stands beside the promise."""
    retrained = is_given(certificate) and certificate.data.prior is None
    return RETRAINED if retrained else "Held-out twin"
