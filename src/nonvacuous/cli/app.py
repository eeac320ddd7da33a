"""The command ``nonvacuous``: finds the subcommand, runs it, turns errors into messages."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownOptionError

from nonvacuous import __version__
from nonvacuous.cli.exits import (
    DONE,
    FAILED,
    USAGE,
    exit_code,
    help_of,
    next_step,
    trouble_of,
)
from nonvacuous.cli.invocation import started_with
from nonvacuous.cli.output import write_error
from nonvacuous.cli.reproduce import reproduce
from nonvacuous.cli.settings import from_environment, from_toml
from nonvacuous.cli.stopping import exit_code_of
from nonvacuous.errors import NonvacuousError

EXAMPLE_BOUND = "nonvacuous bound --risk 0.02 --kl 5000 --examples 60000 --confidence 0.95"
EXAMPLE_CERTIFY = "nonvacuous certify --data digits --seed 1"


app = App(
    name="nonvacuous",
    help="How wrong can this network be on data it has not seen? Get a number you can prove.",
    help_epilogue=f"Example:\n\n{EXAMPLE_CERTIFY}",
    help_format="restructuredtext",
    version=f"nonvacuous {__version__}",
    # Commands report by exit code; what they print they print themselves.
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

# Commands are named by their import path, so that one command does not wait for the imports of
# another: `nonvacuous bound` never loads torch.
app.command(
    "nonvacuous.cli.evaluate:evaluate",
    name="evaluate",
    help=(
        "Promise how wrong a predictor is, from examples that it never saw: exact at every size, "
        "for groups and classes too, in a file that others can verify."
    ),
    help_epilogue=(
        "Example:\n\nnonvacuous evaluate answers.csv --predictions pred --labels label "
        "--group site --unseen --max-risk 0.05"
    ),
)
app.command(
    "nonvacuous.cli.compare:compare",
    name="compare",
    help="Is the second predictor better than the first? Exactly, on the same examples.",
    help_epilogue="Example:\n\nnonvacuous compare answers.csv --first old --second new",
)
app.command(
    "nonvacuous.cli.plan:plan",
    name="plan",
    help="How many examples does a promise take? Before anybody looks at one.",
    help_epilogue="Example:\n\nnonvacuous plan --target 0.05 --risk 0.03",
)
app.command(
    "nonvacuous.cli.monitor:monitor",
    name="monitor",
    help="Does a promise still hold, as labels arrive? Look as often as you like.",
    help_epilogue="Example:\n\nnonvacuous monitor labels.csv --promise runs/report --watch",
)
app.command(
    "nonvacuous.cli.certify:certify",
    name="certify",
    help=(
        "Train or take a network and promise how often it can err on data it has not seen.\n\n"
        "Prints four lines (the promise, its confidence, its terms, its caveats) and keeps in a "
        "run folder all that is needed to check, resume and report them."
    ),
    help_epilogue=f"Example:\n\n{EXAMPLE_CERTIFY}",
    config=(from_environment, from_toml),
)
app.command(
    "nonvacuous.cli.verify:verify",
    name="verify",
    help=(
        "Recompute somebody's certificate: its arithmetic, its files, its data and, where network "
        "and data are at hand, its risk. Nothing in a run folder is ever executed."
    ),
    help_epilogue="Example:\n\nnonvacuous verify runs/digits-cnn-32-64-seed1",
)
app.command(
    "nonvacuous.cli.report:report",
    name="report",
    help="Write the page of a run folder again, or a site that compares a folder of runs.",
    help_epilogue="Example:\n\nnonvacuous report runs/digits-cnn-32-64-seed1",
)
app.command(
    "nonvacuous.cli.sweep:sweep",
    name="sweep",
    help=(
        "Compute every cell of a grid once, each in a run folder of its own: on this machine or a "
        "Ray cluster."
    ),
    help_epilogue="Example:\n\nnonvacuous sweep experiment.toml",
)
app.command(
    "nonvacuous.cli.runs:runs",
    name="runs",
    help="List the runs below a folder, finished or not; filter, sort, or ask in SQL.",
    help_epilogue="Example:\n\nnonvacuous runs runs/experiment --sort risk_upper",
)
app.command(
    "nonvacuous.cli.data:data",
    name="data",
    help="Describe a data set: its size, classes, values, repeated examples and fingerprint.",
    help_epilogue="Example:\n\nnonvacuous data digits",
)
app.command(
    "nonvacuous.cli.bound:bound",
    name="bound",
    help=(
        "Calculate every bound that follows from a few numbers, side by side.\n\n"
        "Three predictors, by what is given: --risk and --kl for the network whose weights are "
        "drawn afresh from the posterior for each prediction; --risk and --log-ratio for one "
        "network drawn from it; --errors alone for a fixed network on examples that trained "
        "nothing."
    ),
    help_epilogue=f"Example:\n\n{EXAMPLE_BOUND}",
)
app.command(
    "nonvacuous.cli.inspect:inspect",
    name="inspect",
    help=(
        "Show which channels of a network can be rescaled without changing its function, and what "
        "stands in the way elsewhere."
    ),
    help_epilogue="Example:\n\nnonvacuous inspect --model mlp:64,32 --data digits --svg net.svg",
)
app.command(
    "nonvacuous.cli.rescale:rescale",
    name="rescale",
    help=(
        "Write a network with other weights and the same function: the scales that serve a bound "
        "best, balanced ones, or an attack on bounds that depend on them."
    ),
    help_epilogue=(
        "Example:\n\nnonvacuous rescale --model mlp:64,32 --data digits --weights w.safetensors "
        "--out new.safetensors --attack 1"
    ),
)
app.command(
    "nonvacuous.cli.randomize:randomize",
    name="randomize",
    help=(
        "Train the same network on true and on randomized data: does it learn, or would it fit "
        "anything?\n\nPrints the answer, a table and findings (memorization, leaks, p-value, "
        "capacity, certificates) and writes a page with the pictures."
    ),
    help_epilogue="Example:\n\nnonvacuous randomize --data digits",
)
app.command(
    "nonvacuous.cli.measures:measures",
    name="measures",
    help=(
        "Show all complexity measures of a network, and put them on trial.\n\n"
        "Trains the network unless --weights is given. --attack measures the same function in "
        "random gauges; --against random-labels sets a network trained on random labels beside it."
    ),
    help_epilogue="Example:\n\nnonvacuous measures --data digits --attack --out measures",
)
app.command(
    "nonvacuous.cli.memorize:memorize",
    name="memorize",
    help=(
        "Construct a network with 2n + d weights that gets every label right, random ones "
        "included, and prove it in exact arithmetic."
    ),
    help_epilogue="Example:\n\nnonvacuous memorize --data digits --out memorized",
)
app.command(
    "nonvacuous.cli.interpolate:interpolate",
    name="interpolate",
    help=(
        "Fit every training example exactly with a kernel: the function of smallest norm, for true "
        "and random labels at once, with its error on new examples.\n\n"
        "No ridge is added; near-singular is reported."
    ),
    help_epilogue=(
        "Example:\n\nnonvacuous interpolate --data digits --labels true,partial:0.5,random"
    ),
)
app.command(
    "nonvacuous.cli.sparsity:sparsity",
    name="sparsity",
    help=(
        "Show how few units of a network are active, how firmly, and what a bound makes of it.\n\n"
        "With a prior, a certificate for the network itself stands beside a plain test and the "
        "bounds from norms."
    ),
    help_epilogue="Example:\n\nnonvacuous sparsity --data digits --out sparsity",
)
app.command(reproduce)


#: Flags that people guess, and the ones they mean.
_MEANT = {
    "--delta": "--confidence, which is 1 minus it",
    "--failure": "--confidence, which is 1 minus it",
    "--alpha": "--confidence, which is 1 minus it",
    "--lr": "--learning-rate",
    "--bs": "--batch-size",
    "--arch": "--model",
    "--architecture": "--model",
    "--network": "--model",
    "--net": "--model",
    "--checkpoint": "--weights",
    "--ckpt": "--weights",
    "--pretrained-weights": "--weights",
    "--folder": "--out",
    "--run-folder": "--out",
    "--method": "--mode",
    "--threshold": "--max-risk",
    "--gpu": "--device cuda",
    "--cuda": "--device cuda",
    "--cpu": "--device cpu",
    "--class-names": "--classes",
    "--overwrite": "--force",
    "--normalize": "--standardize",
}


def _usage_message(error: CycloptsError, command: str | None = None) -> str:
    """The parser's message on one line, with the file that a value came from, if it was a file."""
    message = " ".join(str(error).split())
    keyword = str(getattr(getattr(error, "token", None), "keyword", ""))
    meant = _MEANT.get(keyword.replace("_", "-"))
    if isinstance(error, UnknownOptionError) and meant and command == "certify":
        message = f"Unknown option: {keyword}. Did you mean {meant}?"
    source = str(getattr(getattr(error, "token", None), "source", "cli"))
    return message if source in ("", "cli", "environment") else f"{source}: {message}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets a question mark, not a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    command = tokens[0] if tokens and tokens[0] in app and tokens[0][0] != "-" else None
    try:
        with started_with(tokens):
            code = app(tokens, exit_on_error=False, print_error=False)
            sys.stdout.flush()
    except CycloptsError as error:
        write_error(_usage_message(error, command), next_command=help_of(command))
        return USAGE
    except NonvacuousError as error:
        write_error(str(error), next_command=next_step(error, command))
        return exit_code(error)
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        # The disk or the permissions: nothing that a traceback would explain better.
        write_error(trouble_of(error), next_command=help_of(command))
        return FAILED
    except KeyboardInterrupt as stop:
        # What can be resumed says so itself; here nothing was kept, or all that is needed was.
        write_error("interrupted.", next_command=shlex.join(["nonvacuous", *tokens]))
        return exit_code_of(stop)
    return code if isinstance(code, int) else DONE


if __name__ == "__main__":
    sys.exit(main())
