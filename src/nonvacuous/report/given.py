"""The network that was given for a post-hoc certificate: its own error, beside that of its noise.

The promise is about noise around its weights. What a person who brings a network wants to know
first is how often the network itself errs, and what a plain test of it is worth.
"""

from __future__ import annotations

from nonvacuous.bounds.holdout import holdout
from nonvacuous.certificate import Certificate
from nonvacuous.records import Observation
from nonvacuous.report.measured import is_test
from nonvacuous.report.wording import confidence_percent, percent, percent_up, whole

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


def story(certificate: Certificate) -> str:
    """The given network itself, in two sentences; nothing for certificates of another kind."""
    counted = own_error(certificate, test=False)
    if counted is None:
        return ""
    opening = f"Without noise it errs on {_rate(counted)} examples that the promise counts"
    tested = own_error(certificate, test=True)
    if tested is None:
        return (
            f"{opening}, which it was trained on. No test examples were given: a plain test on "
            "unseen ones would say more about it than any bound from training data."
        )
    failure = certificate.budget.failure
    most = holdout(errors=tested.errors, examples=tested.trials, failure=failure)
    return (
        f"{opening}, and on {_rate(tested)} test examples. If it never saw those, this plain test "
        f"promises an error of at most {percent_up(most)} with {confidence_percent(failure)} "
        "confidence of its own."
    )


def _rate(observed: Observation) -> str:
    return f"{percent(observed.errors / observed.trials)} of {whole(observed.trials)}"
