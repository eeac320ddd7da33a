"""The command ``nonvacuous``: finds the subcommand, runs it, turns errors into messages.

Its version and its help follow from the table below, at once. The parser is imported when a
command is called, and what that command needs with it: `nonvacuous bound` never loads torch.
"""

from __future__ import annotations

import io
import os
import sys
from functools import cache

from nonvacuous import __version__
from nonvacuous.studies import STUDIES

TYPE_CHECKING = False  # spares the import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cyclopts import App, CycloptsError

    from nonvacuous.cli.exits import UsageError

    app: App

SUMMARY = "How wrong can this network be on data it has not seen? Get a number you can prove."
EXAMPLE = "nonvacuous certify --data digits --seed 1"

#: What there is, by group: the words of the help and an example for each command. The command
#: itself is the function of its name in the module of its name, imported when it is called.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Promises": {
        "evaluate": (
            "Promise how wrong a predictor is, from examples that it never saw: exact at "
            "every size, for groups and classes too, in a file that others can verify.",
            "nonvacuous evaluate answers.csv --predictions pred --labels label --group site "
            "--unseen --max-risk 0.05",
        ),
        "compare": (
            "Is the second predictor better than the first? Exactly, on the same examples.",
            "nonvacuous compare answers.csv --first old --second new",
        ),
        "plan": (
            "How many examples does a promise take? Before anybody looks at one.",
            "nonvacuous plan --target 0.05 --risk 0.03",
        ),
        "monitor": (
            "Does a promise still hold, as labels arrive? Look as often as you like.",
            "nonvacuous monitor labels.csv --promise runs/report --watch",
        ),
        "certify": (
            "Train or take a network and promise how often it can err on data it has not "
            "seen.\n\n"
            "Prints four lines (the promise, its confidence, its terms, its caveats) and "
            "keeps in a run folder all that is needed to check, resume and report them.",
            EXAMPLE,
        ),
        "verify": (
            "Recompute somebody's certificate: its arithmetic, its files, its data and, where "
            "network and data are at hand, its risk. Nothing in a run folder is ever "
            "executed.",
            "nonvacuous verify runs/digits-cnn-32-64-seed1",
        ),
        "report": (
            "Write the page of a run folder again, or a site that compares a folder of runs.",
            "nonvacuous report runs/digits-cnn-32-64-seed1",
        ),
    },
    "A closer look": {
        "bound": (
            "Calculate every bound that follows from a few numbers, side by side.\n\n"
            "Three predictors, by what is given: --risk and --kl for the network whose "
            "weights are drawn afresh from the posterior for each prediction; --risk and "
            "--log-ratio for one network drawn from it; --errors alone for a fixed network on "
            "examples that trained nothing.",
            "nonvacuous bound --risk 0.02 --kl 5000 --examples 60000 --confidence 0.95",
        ),
        "inspect": (
            "Show which channels of a network can be rescaled without changing its function, "
            "and what stands in the way elsewhere.",
            "nonvacuous inspect --model mlp:64,32 --data digits --svg net.svg",
        ),
        "rescale": (
            "Write a network with other weights and the same function: the scales that serve "
            "a bound best, balanced ones, or an attack on bounds that depend on them.",
            "nonvacuous rescale --model mlp:64,32 --data digits --weights w.safetensors --out "
            "new.safetensors --attack 1",
        ),
    },
    "Studies": {
        "randomize": (
            "Train the same network on true and on randomized data: does it learn, or would "
            "it fit anything?\n\n"
            "Prints the answer, a table and findings (memorization, leaks, p-value, capacity, "
            "certificates) and writes a page with the pictures.",
            "nonvacuous randomize --data digits",
        ),
        **{name: (words, example) for name, (_, words, example) in STUDIES.items()},
        "reproduce": (
            "Compute a figure or table of a paper again, with the published numbers beside ours.",
            "nonvacuous reproduce rescaling-figure-1 --only 784-32-10",
        ),
    },
    "Many runs": {
        "sweep": (
            "Compute every cell of a grid once, each in a run folder of its own: on this "
            "machine or a Ray cluster.",
            "nonvacuous sweep experiment.toml",
        ),
        "runs": (
            "List the runs below a folder, finished or not; filter, sort, or ask in SQL.",
            "nonvacuous runs runs/experiment --sort risk_upper",
        ),
        "data": (
            "Describe a data set: its size, classes, values, repeated examples and fingerprint.",
            "nonvacuous data digits",
        ),
    },
}

#: Commands whose data are no argument of their own.
_ASK_DATA = ("randomize", *STUDIES)
#: Commands with a flag that may have several values.
_REPEATED = ("evaluate", "monitor", "plan", "runs")

#: Flags that people mean, and what they guess that these are called.
_GUESSED = {
    "--confidence, which is 1 minus it": ("--delta", "--failure", "--alpha"),
    "--learning-rate": ("--lr",),
    "--batch-size": ("--bs",),
    "--model": ("--arch", "--architecture", "--network", "--net"),
    "--weights": ("--checkpoint", "--ckpt", "--pretrained-weights"),
    "--out": ("--folder", "--run-folder"),
    "--mode": ("--method",),
    "--max-risk": ("--threshold",),
    "--device cuda": ("--gpu", "--cuda"),
    "--device cpu": ("--cpu",),
    "--classes": ("--class-names",),
    "--force": ("--overwrite",),
    "--standardize": ("--normalize",),
}


def _as_flag(name: str) -> str:
    """The flag of a setting, of which it may be a part or one of several forms."""
    names = [part for part in name.split(".") if part.isidentifier()]
    return f"--{names[-1].replace('_', '-')}" if names else ""


def _usage_error(error: CycloptsError, command: str | None = None) -> UsageError:
    """The parser's message on one line, with the file that a value came from, if it was a file."""
    from nonvacuous.cli.exits import UsageError

    message, instead = " ".join(str(error).split()), None
    refused = error.__cause__
    if type(refused).__name__ == "ValidationError":  # pydantic's, which is loaded by few commands
        from nonvacuous.settings import in_words

        known = in_words(refused, spelled=_as_flag)  # type: ignore[arg-type]
        message, instead = f"{known}.", known.instead
    if type(error).__name__ == "MissingArgumentError" and not getattr(error, "keyword", None):
        missing = error.argument  # not given at all, which the parser words as given without value
        message = f"{command or 'the command'} needs {missing.name if missing else 'an argument'}."
    if type(error).__name__ == "UnusedCliTokensError":
        first = getattr(error, "unused_tokens", [""])[0]
        message = f"{first!r} belongs to no flag."
        if command in _ASK_DATA:
            message += f" Data are named with --data, as in --data {first}."
        elif command in _REPEATED:
            message += " A flag that may have several values is given once for each, as in "
            message += "--group site --group age."
    keyword = str(getattr(getattr(error, "token", None), "keyword", ""))
    if type(error).__name__ == "UnknownOptionError" and command == "certify":
        for meant, guessed in _GUESSED.items():
            if keyword.replace("_", "-") in guessed:
                message = f"Unknown option: {keyword}. Did you mean {meant}?"
    source = str(getattr(getattr(error, "token", None), "source", "cli"))
    message = message if source in ("", "cli", "environment") else f"{source}: {message}"
    return UsageError(message, instead=instead)


def __getattr__(name: str) -> App:
    """``app``, the parser of all commands, made when somebody asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _parser()


@cache
def _parser() -> App:
    from cyclopts import App

    from nonvacuous.cli.flags import from_environment, from_toml

    parser = App(
        name="nonvacuous",
        help=SUMMARY,
        help_epilogue=f"Example:\n\n{EXAMPLE}",
        help_format="restructuredtext",
        version=f"nonvacuous {__version__}",
        # Commands report by exit code; what they print they print themselves.
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for group, commands in COMMANDS.items():
        for name, (words, example) in commands.items():
            module = "study_command" if name in STUDIES else name
            path = f"nonvacuous.cli.{module}:{name}"
            more: dict[str, Any] = {"help_epilogue": f"Example:\n\n{example}"}
            if name == "reproduce":  # a parser of its own, with a command for each figure
                more = {}
            elif name == "certify":
                more["config"] = (from_environment, from_toml)
            parser.command(path, name=name, help=words, group=group, **more)
    return parser


def _help() -> str:
    """The commands by group, in lines that fit the terminal."""
    from textwrap import TextWrapper

    try:
        width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size().columns
    except (OSError, ValueError):
        width = 80
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    bold = on_terminal and not os.environ.get("NO_COLOR")
    fold = TextWrapper(max(width, 20), break_long_words=False, break_on_hyphens=False)
    lines = ["Usage: nonvacuous COMMAND", "", *fold.wrap(SUMMARY)]
    indent = 4 + max(len(name) for commands in COMMANDS.values() for name in commands)
    fold.width = max(width, 20 + indent)
    fold.subsequent_indent = " " * indent
    for group, commands in COMMANDS.items():
        lines += ["", f"\x1b[1m{group}\x1b[0m" if bold else group]
        for name, (words, _) in commands.items():
            lines += fold.wrap(f"  {name}".ljust(indent) + words.split("\n")[0])
    lines += ["", "nonvacuous COMMAND --help shows the flags of one, --version the version."]
    return "\n".join([*lines, "", "Example:", "", EXAMPLE, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets a question mark, not a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = 0
    try:
        if tokens == ["--version"]:
            sys.stdout.write(f"nonvacuous {__version__}\n")
        elif tokens in ([], ["--help"], ["-h"]):
            sys.stdout.write(_help())
        else:
            code = _run(tokens)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(tokens: list[str]) -> int:
    """The exit code, with errors turned into messages while it is known how all began."""
    from cyclopts import CycloptsError

    from nonvacuous.cli import exits
    from nonvacuous.cli.output import write_error
    from nonvacuous.errors import NonvacuousError, Unrecognized

    command = tokens[0] if any(tokens[0] in names for names in COMMANDS.values()) else None
    with exits.started_with(tokens):
        next_command = exits.command(*filter(None, [command]), "--help")
        try:
            code = _parser()(tokens, exit_on_error=False, print_error=False)
            sys.stdout.flush()
            return code if isinstance(code, int) else exits.DONE
        except (CycloptsError, NonvacuousError) as error:
            known = _usage_error(error, command) if isinstance(error, CycloptsError) else error
            if instead := getattr(known, "instead", None):  # it knows better
                next_command = exits.again(instead)
            # Usage where the value of a flag cannot be meant: a name that nothing has, a file that
            # is not there, found before any work is announced. What goes wrong with something that
            # is there, a file with bad numbers or a function that raises, is a failure.
            meant_otherwise = isinstance(known, exits.UsageError | Unrecognized)
            message, code = str(known), exits.USAGE if meant_otherwise else exits.FAILED
        except BrokenPipeError:
            raise
        except OSError as error:
            # The disk or the permissions: nothing that a traceback would explain better.
            message, code = exits.trouble_of(error), exits.FAILED
        except KeyboardInterrupt as stop:
            # Without words of its own nothing was kept, or all that is needed was.
            message, next_command = stop.args or ("interrupted.", exits.again())
            code = exits.TERMINATED if isinstance(stop, exits.Stopped) else exits.INTERRUPTED
        write_error(message, next_command=next_command)
        return code


if __name__ == "__main__":
    sys.exit(main())
