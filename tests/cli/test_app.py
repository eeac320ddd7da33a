"""The command line as a program: streams, exit codes, help, errors, and how quickly it starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import nonvacuous
from nonvacuous.cli import exits
from nonvacuous.cli.app import app, main
from nonvacuous.data.readers import FILE_READERS
from nonvacuous.errors import BadInput, InvalidCertificate, Unsupported
from nonvacuous.evaluation.tables import READERS

BOUND = ["bound", "--risk", "0.02", "--kl", "5000", "--examples", "60000"]


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nonvacuous", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=60,
    )


def commands() -> list[str]:
    return [name for name in app if not name.startswith("-")]


def test_version(capsys):
    assert main(["--version"]) == exits.DONE
    assert capsys.readouterr().out.strip() == f"nonvacuous {nonvacuous.__version__}"


def test_the_help_lists_every_command_by_group_in_lines_that_fit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["--help"]) == exits.DONE
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 74  # the last line is a command, which is not broken
    named = [line.split()[0] for line in lines if re.match(r"  [a-z]", line)]
    assert sorted(named) == sorted(commands())
    assert lines.index("Promises") < lines.index("Studies")


def test_alone_it_shows_help(capsys):
    assert main([]) == exits.DONE
    captured = capsys.readouterr()
    assert "Usage: nonvacuous COMMAND" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("command", [None, *commands()])
def test_every_help_ends_with_an_example_that_names_the_command(capsys, command):
    assert main([command, "--help"] if command else ["--help"]) == exits.DONE
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert "Example:" in lines
    example = " ".join(lines[lines.index("Example:") + 1 :]).strip()
    assert example.startswith(f"nonvacuous {command}" if command else "nonvacuous ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bond"],
        ["bound", "--examples", "10", "--no-such-flag", "3"],
        ["bound", "--risk", "0.1", "--kl", "3"],
        ["bound", "--risk", "much", "--kl", "3", "--examples", "10"],
        ["--no-such-flag"],
    ],
)
def test_usage_errors_are_short_exit_2_and_name_the_next_command(capsys, arguments):
    assert main(arguments) == exits.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert lines[0].startswith("Error: ")
    assert lines[-1].startswith("Next:  nonvacuous")
    assert "Traceback" not in captured.err


def test_a_flag_that_was_not_given_is_missing_and_not_its_value(capsys):
    assert main(["plan", "--risk", "0.1"]) == exits.USAGE
    assert "plan needs --target." in capsys.readouterr().err
    assert main(["plan", "--target"]) == exits.USAGE
    assert "--target requires an argument" in capsys.readouterr().err


def test_data_given_without_their_flag(capsys):
    for command in ("randomize", "memorize"):
        assert main([command, "mnist"]) == exits.USAGE
        assert "'mnist' belongs to no flag. Data are named with --data" in capsys.readouterr().err
    assert main(["runs", "runs", "--where", "a=1", "b=2"]) == exits.USAGE
    assert "given once for each" in capsys.readouterr().err
    assert main(["data", "digits", "mnist"]) == 2
    assert "Error: 'mnist' belongs to no flag.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("the file x is empty"), exits.FAILED),
        (exits.UsageError("--kl is negative"), exits.USAGE),
        (Unsupported("layer 3 is a lambda"), exits.FAILED),
        (InvalidCertificate("the digest does not match [red]"), exits.FAILED),
        (exits.UsageError("no", instead="nonvacuous data list"), exits.USAGE),
    ],
)
def test_library_errors_become_one_message(monkeypatch, capsys, error, code):
    def fail(*_arguments, **_settings):
        raise error

    monkeypatch.setattr("nonvacuous.cli.bound._calculate", fail)
    expected = exits.USAGE if isinstance(error, BadInput) else code
    assert main(BOUND) == expected
    captured = capsys.readouterr()
    assert captured.out == ""
    message, following = captured.err.strip().splitlines()
    assert message == f"Error: {error}."
    assert following.startswith("Next:  nonvacuous ")
    if getattr(error, "instead", None):
        assert following.endswith("nonvacuous data list")


def test_a_bug_is_not_dressed_up_as_a_message(monkeypatch):
    def fail(*_arguments, **_settings):
        raise ZeroDivisionError

    monkeypatch.setattr("nonvacuous.cli.bound._calculate", fail)
    with pytest.raises(ZeroDivisionError):
        main(BOUND)


def test_interruption(monkeypatch, capsys):
    def interrupt(*_arguments, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("nonvacuous.cli.bound._calculate", interrupt)
    assert main(BOUND) == exits.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err


def test_piped_output_has_no_escape_codes():
    done = program(*BOUND, TERM="xterm-256color")
    assert done.returncode == exits.DONE
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "seeger" in done.stdout


@pytest.mark.slow
def test_color_on_a_terminal_unless_no_color():
    pty = pytest.importorskip("pty")

    def on_a_terminal(**environment: str) -> str:
        primary, secondary = pty.openpty()
        surroundings = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "CI"}}
        surroundings |= {"TERM": "xterm-256color", **environment}
        process = subprocess.Popen(
            [sys.executable, "-m", "nonvacuous", "bond"],
            stdout=secondary,
            stderr=secondary,
            env=surroundings,
        )
        os.close(secondary)
        chunks = []
        while True:
            try:
                chunk = os.read(primary, 4096)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
        os.close(primary)
        assert process.wait(timeout=60) == exits.USAGE
        return b"".join(chunks).decode()

    red = "31m"
    assert red in on_a_terminal()
    assert red not in on_a_terminal(NO_COLOR="1")


def test_a_terminal_without_unicode_gets_question_marks():
    done = program(*BOUND, PYTHONIOENCODING="ascii")
    assert done.returncode == exits.DONE, done.stderr
    assert "PAC-Bayes-kl, ?(n)" in done.stdout


def test_a_closed_pipe_is_not_an_error_message():
    script = f"{sys.executable} -m nonvacuous {' '.join(BOUND)} | true"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("command", "readers"),
    [("certify", FILE_READERS), ("data", FILE_READERS), ("memorize", FILE_READERS),
     ("evaluate", READERS)],
)  # fmt: skip
def test_the_help_lists_every_kind_of_file_that_is_read(invoke, command, readers):
    said = invoke(command, "--help").out.replace("\n", " ")
    assert [ending for ending in readers if not re.search(rf"\{ending}\b", said)] == []


HEAVY = {"torch", "matplotlib", "sklearn", "jinja2", "pyarrow", "pandas", "ray"}


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], {"cyclopts", "rich", "typing", "numpy"}),
        (["--help"], {"cyclopts", "rich", "typing", "numpy"}),
        ([], {"cyclopts", "rich", "typing", "numpy"}),
        (BOUND, {"rich", "numpy", "scipy", "pydantic"}),
        ([*BOUND, "--json"], {"rich", "numpy", "scipy", "pydantic"}),
        (["bound", "--errors", "3", "--examples", "100"], {"rich", "pydantic"}),
        (["verify", "--help"], {"pydantic", "numpy"}),
        (["report", "--help"], {"pydantic", "numpy"}),
        (["runs", "--help"], {"pydantic", "numpy"}),
        (["monitor", "--help"], {"pydantic"}),
    ],
)
def test_quick_commands_load_next_to_nothing(arguments, absent):
    assert loaded([arguments]) & (HEAVY | absent) == set()


@pytest.mark.slow
def test_no_help_loads_the_heavy_libraries():
    assert loaded([[command, "--help"] for command in commands()]) & HEAVY == set()


def loaded(calls: list[list[str]]) -> set[str]:
    """The modules in a process that made these calls, all of them successful."""
    script = (
        "import sys; from nonvacuous.cli.app import main; "
        f"codes = [main(words) for words in {calls!r}]; "
        "names = sorted(sys.modules); import json; print(json.dumps([codes, names]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    codes, names = json.loads(done.stdout.splitlines()[-1])
    assert codes == [exits.DONE] * len(calls)
    return set(names)
