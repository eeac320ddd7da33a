"""The block of the page that sets real labels against random ones."""

from __future__ import annotations

import pytest

from nonvacuous.report import view, write_report
from tests.report import samples


def record(certificate, risk):
    return {"certificate": certificate.digest, "random_labels": {"risk_upper": risk}}


def test_the_page_shows_both_promises(tmp_path):
    certificate = samples.posterior()
    path = write_report(certificate, tmp_path / "page.html", labels=record(certificate, 0.9 + 0.05))
    text = path.read_text()
    assert "Real against random labels" in text
    assert "promises nothing, as it must" in text


def test_a_promise_on_random_labels_is_called_a_failure():
    certificate = samples.posterior()
    shown = view.View(certificate, labels=record(certificate, 0.2))
    assert [bar.name for bar in shown.labels] == ["Real labels", "Random labels", "Guessing"]
    assert "do not rely" in view.render(shown)


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {},
        {"certificate": "0" * 64, "random_labels": {"risk_upper": 0.95}},
        {"random_labels": {"risk_upper": 0.95}},
        {"certificate": samples.posterior().digest, "random_labels": {"risk_upper": "<b>"}},
        {"certificate": samples.posterior().digest, "random_labels": {"risk_upper": 7.0}},
        {"certificate": samples.posterior().digest, "random_labels": 3},
    ],
)
def test_what_belongs_to_another_certificate_is_left_out(tmp_path, labels):
    path = write_report(samples.posterior(), tmp_path / "page.html", labels=labels)
    assert "random labels" not in path.read_text()
