"""A certificate that a plain test beats must say so where it is read first."""

from __future__ import annotations

from nonvacuous.report import view
from tests.certificates import sealed
from tests.report import samples


def test_line_two_names_the_command_that_gives_the_tighter_promise():
    certificate = samples.posterior()
    assert certificate.held_out_twin is not None
    assert certificate.dominated
    assert "tighter than this certificate" in certificate.lines()[1]
    command = certificate.plain_test
    assert command.endswith(" --weights FILE --data FILE --model cnn:32,64")
    assert command in certificate.lines()[1]
    shown = view.View(certificate)
    assert "dominated by its twin" in shown.verdict and shown.tighter == command
    words = "".join(f"<span>{word}</span> " for word in command.split()).rstrip()
    assert f'dominated by its twin.</bdi> Tighter: <code class="inline">{words}</code>' in (
        view.render(shown)
    )


def test_the_command_names_a_network_that_can_be_built():
    """Another one than the recommended is named; a stranger's own is left to its author."""
    for name, flag in (
        ("mlp:8", "mlp:8"),
        ("mlp:8; rm -rf x", "'mlp:8; rm -rf x'"),
        ("my_model:build", "MODULE:FUNCTION"),
        ("Sequential", "MODULE:FUNCTION"),
    ):
        model = sealed().model.model_copy(update={"architecture": name})
        assert sealed(model=model).plain_test.endswith(f" --model {flag}")


def test_a_tighter_certificate_is_not_called_dominated():
    twin = sealed().held_out_twin
    assert twin is not None
    looser = twin.model_copy(update={"risk_upper": 0.5})
    certificate = sealed(held_out_twin=looser)
    assert not certificate.dominated and view.View(certificate).tighter == ""
    assert "tighter" not in certificate.lines()[1]


def test_the_first_word_is_vacuous_where_it_is():
    assert str(samples.vacuous()).startswith("VACUOUS")
    assert str(samples.hopeless()).startswith("VACUOUS")
    assert not str(samples.posterior()).startswith("VACUOUS")
