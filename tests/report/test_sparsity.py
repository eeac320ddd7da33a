"""The page of a sparsity certificate: its own accounts, and no claim of other theorems."""

from __future__ import annotations

import pytest
from markupsafe import escape

from nonvacuous.certificate import Certificate
from nonvacuous.comparison import compare
from nonvacuous.report import view
from nonvacuous.report.wording import capital
from tests.audit import sparse_conv_worlds
from tests.audit.sparse_worlds import QUICK, run


@pytest.fixture(scope="module", params=["E", "A"])
def certificate(request: pytest.FixtureRequest) -> Certificate:
    return run(None, method=QUICK.changed(theorem=request.param))


@pytest.mark.slow
def test_the_terms_add_up_to_the_certificate(certificate: Certificate) -> None:
    found = compare(certificate)
    keys = [step.key for step in found.steps]
    sampled = ["sampling"] if certificate.empirical.scheme == "fresh noise" else []
    assert keys == ["counted", *sampled, "examples", "complexity", "settings", "escape"]
    assert found.steps[-1].risk_upper == certificate.risk_upper
    rises = [step.risk_upper for step in found.steps]
    assert rises == sorted(rises)
    # Other theorems on these counts would be about the noisy network.
    assert [row.key for row in found.bounds] == ["derandomized"]


@pytest.mark.slow
def test_shared_confidence_is_the_last_term() -> None:
    shared = run(None, attempts=4)
    steps = compare(shared).steps
    assert steps[-1].key == "searches"
    assert steps[-1].risk_upper == shared.risk_upper > steps[-2].risk_upper


def test_the_page_shows_noise_and_choices(certificate: Certificate) -> None:
    record = certificate.sparsity
    assert record is not None
    shown = view.View(certificate, comparison=compare(certificate))
    page = view.render(shown)
    assert page.count('data-label="Distance"') == len(record.layers)
    for charge in record.charges:
        assert f"<bdi>{escape(capital(charge.name))}</bdi>" in page
    for words in ("From noise to the network itself", "Added to the KL", record.theorem):
        assert words in page
    marks = {mark.name: mark for mark in shown.marks}
    observed = certificate.observed[0]
    assert marks["Training error"].value == observed.errors / observed.trials
    assert "<bdi>Predictor: network itself</bdi>" in page
    noisy = certificate.empirical.scheme == "fresh noise"
    assert ("Monte Carlo" in shown.confidence) == noisy


@pytest.mark.slow
def test_the_page_of_a_convolutional_network() -> None:
    certificate = sparse_conv_worlds.run(None)
    assert [step.key for step in compare(certificate).steps][-1] == "escape"
    page = view.render(view.View(certificate, comparison=compare(certificate)))
    assert "up to 25;" in page and "the distance of a bias counts" in page
    assert "operator norm" not in page, "one hidden layer has none to name"
