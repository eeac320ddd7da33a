"""The sentences of the first screen: what is promised, how sure, is it any good, what it is not."""

from __future__ import annotations

from dataclasses import dataclass

from nonvacuous.certificate import PLAIN_TEST, Certificate
from nonvacuous.report import html
from nonvacuous.report.measured import PREDICTOR, RETRAINED, errors_on_test, twin_name
from nonvacuous.report.wording import (
    capital,
    clean,
    confidence_percent,
    declared_percent,
    frequency,
    odds,
    percent_up,
    promised_percent,
)


@dataclass(frozen=True)
class Sentence:
    """A sentence with the words that carry it set apart."""

    before: str
    emphasis: str
    after: str

    def __str__(self) -> str:
        return f"{self.before}{self.emphasis}{self.after}"


def says_nothing(certificate: Certificate) -> bool:
    """Whether every network satisfies the promise."""
    return certificate.status == "refused" or certificate.risk_upper >= 1.0


def vacuity(certificate: Certificate) -> str:
    """``vacuous``: says nothing. ``unshown``: a constant may do as well. Else ``non-vacuous``."""
    if says_nothing(certificate):
        return "vacuous"
    return "unshown" if certificate.is_vacuous else "non-vacuous"


def promise(certificate: Certificate) -> Sentence:
    """The headline. Same shape and size whether the news is good or bad."""
    if certificate.status == "refused":
        return Sentence("", "No promise", " is made: this certificate was refused.")
    if says_nothing(certificate) and certificate.gate is not None:
        after = (
            f": an error below {declared_percent(certificate.gate)} is not shown, and nothing else."
        )
        return Sentence("", "The gate was not passed", after)
    if says_nothing(certificate):
        return Sentence("", "Nothing", " is promised: it may be wrong on every new example.")
    before = "if its conditions hold, " if certificate.status == "conditional" else ""
    if vacuity(certificate) == "unshown":
        before = f"vacuous, {clean(certificate.unshown)}: {before}"
    if certificate.gate is not None:
        often = f"less than {declared_percent(certificate.gate)}"
        return Sentence(capital(f"{before}wrong on "), often, " of new examples, on average.")
    if certificate.counts_errors:
        plain = certificate.loss.name == "zero-one"
        before += "wrong on " if plain else "wrong, or only just right, on "
        often = str(frequency(certificate.risk_upper))
        return Sentence(capital(before), often, " new examples, on average.")
    before += "a mean loss of "
    low, high = certificate.loss.lower, certificate.loss.upper
    after = f" of its range ({low:g} to {high:g}) on new examples."
    return Sentence(capital(before), f"at most {shown_risk(certificate)}", after)


def shown_risk(certificate: Certificate) -> str:
    """The promise in percent, wherever it stands on the page: the number of the headline."""
    shown = promised_percent if certificate.counts_errors else percent_up
    return shown(certificate.risk_upper)


def confidence(certificate: Certificate) -> Sentence:
    """The confidence, told as what it is: a property of the procedure."""
    failure = certificate.budget.failure
    samples, false_claims = odds(failure)
    if certificate.status == "refused":
        return Sentence("", "Not at all", ": what the confidence rests on was found to be false.")
    repeated = {
        "stochastic": "training samples (and as many rounds of Monte Carlo)",
        "drawn": "training samples, each with its own drawn network",
        "deterministic": "samples of test examples",
        "mixture": "training samples",
    }[certificate.predictor]
    if certificate.kind.prior and certificate.predictor == "deterministic":
        noisy = certificate.empirical.scheme == "fresh noise"
        repeated = "training samples" + (" (and as many rounds of Monte Carlo)" if noisy else "")
    after = (
        f" confidence in the procedure: of {samples} {repeated}, on average at most "
        f"{false_claims} would yield a false claim."
    )
    return Sentence("", confidence_percent(failure), after)


def verdict(certificate: Certificate) -> str:
    """Is that any good? Against a constant answer, the held-out twin and the test error."""
    return html.words(
        "verdict.txt.jinja",
        certificate=certificate,
        nothing=says_nothing(certificate),
        retrained=twin_name(certificate) == RETRAINED,
        errors=errors_on_test(certificate),
        predictor=PREDICTOR[certificate.predictor],
    )


def tighter(certificate: Certificate) -> str:
    """The command that gives the twin's smaller promise; the page has no room for its files."""
    twin = certificate.held_out_twin
    smaller = twin is not None and twin.risk_upper < certificate.risk_upper
    return PLAIN_TEST.partition(" --weights")[0] if certificate.dominated and smaller else ""
