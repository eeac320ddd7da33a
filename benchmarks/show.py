"""Write docs/results.md and docs/papers.md from the result files: they say what was measured.

python benchmarks/show.py            # writes both pages
python benchmarks/show.py --check    # exit code 1 if one is not what the files say
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import show_zhang as zhang
from show_evaluate import section as evaluate
from show_interpolation import interpolation, interpolation_gpu, interpolation_mnist
from show_lifted import section as lifted
from show_many import section as many
from show_measures import section as measures_attack
from show_measures_study import section as measures_study
from show_memorization import memorization
from show_papers import page as papers
from show_progressive import section as progressive
from show_records import section as records
from show_rescaling_images import architecture_section, certificate_section
from show_rescaling_images import section as rescaling_images
from show_sparsity import section as sparsity
from show_sparsity_conv import section as sparsity_conv
from show_sparsity_study import section as sparsity_study
from show_speed import section as speed
from show_sweep import section as sweep

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INTRODUCTION = """# Measured results

Every figure is the output of a script in `benchmarks/`, kept with its commit, machine, seed,
versions and command in `benchmarks/results/`. Claims about speed are ratios against a stated
baseline in the same run. Absolute times, on one GPU or on the processor of that run, say what one
machine needed and are no claim about another. `python benchmarks/show.py` writes this page.
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def promise(value: float | None) -> str:
    """A bound, rounded up: what is printed must be true as printed."""
    return "–" if value is None else f"{math.ceil(value * 10_000) / 10_000:.4f}"


def count(value: float) -> str:
    return f"{value:,.0f}"


def bounds(results: dict[str, dict[str, Any]]) -> str:
    found = results["bounds"]
    return "\n".join(
        [
            "## Inverting the binary kl",
            "",
            f"{count(found['inversions_per_second'])} inversions per second on one thread, "
            f"**{found['ratio']:.0f} times** as many as a loop of `scipy.optimize.brentq` "
            f"({count(found['brentq_inversions_per_second'])}) in the same run; goal 100. Values "
            f"differ by at most {found['largest_relative_difference']:.1e} relative. "
            "A single scalar call costs "
            f"{found['microseconds_per_scalar_inversion']:.0f} µs.",
        ]
    )


def startup(results: dict[str, dict[str, Any]]) -> str:
    found = results["startup"]
    rows = [
        [f"`{name}`", f"{case['before']:.3f}", f"{case['now']:.3f}", f"**{case['ratio']:.1f}**"]
        for name, case in found["commands"].items()
    ]
    scalar = found["microseconds"]
    single = " and ".join(
        f"`bounds.{name}` in {case['now']:.1f} µs ({case['before']:.0f} before)"
        for name, case in scalar.items()
    )
    return "\n".join(
        [
            "## Start-up",
            "",
            "Processor seconds of a process, against the version of 15 November 2026 (26c4c74) in "
            f"the same run; goal {found['goal']:g} times less. Python alone takes "
            f"{found['python_alone']:.3f}.",
            "",
            table(["command", "before", "now", "times less"], rows),
            "",
            f"One number at a time: {single}.",
        ]
    )


def risk(results: dict[str, dict[str, Any]]) -> str:
    parts = [
        "## The price of Monte Carlo",
        "",
        "Independent (weights, example) pairs against the usual scheme, m full passes with one "
        "draw each and the kl-inverse with m, at equal slack. One pass of the baseline is measured "
        "and multiplied by the passes it would need. Networks: 784-600-600-600-10 and a small CNN; "
        "60,000 examples; two cores.",
        "",
    ]
    rows = [
        [
            name,
            count(case["pairs_per_minute"]),
            number(case["slack"], 6),
            count(case["shared_passes_for_equal_slack"]),
            f"**{count(case['times_fewer_seconds'])}×**",
        ]
        for name, case in results["risk-cpu"].items()
        if isinstance(case, dict) and "times_fewer_seconds" in case
    ]
    header = ["network", "pairs per minute", "slack", "passes for the same", "fewer seconds"]
    parts.append(table(header, rows))
    if "risk-cuda" in results:
        rows = [
            [
                name,
                count(case["pairs_per_minute"]),
                f"{100 * case['part_of_floor']:.0f} %" if "part_of_floor" in case else "–",
            ]
            for name, case in results["risk-cuda"].items()
            if isinstance(case, dict) and "pairs_per_minute" in case
        ]
        parts += [
            "",
            "On one NVIDIA H200, with the part of the floor that the measured float32 rate and "
            "memory bandwidth of that machine allow:",
            "",
            table(["network", "pairs per minute", "part of the floor"], rows),
        ]
    if "risk-convolutions" in results:
        header = ["convolutional network", "µs a pair", "µs to draw and call", "times faster"]
        header += ["times faster than many drawn at once"]
        floors = ["µs at the floor", "of the floor", "times faster at the floor"]
        rows = []
        for name, case in results["risk-convolutions"].items():
            floor = case["floor_microseconds"]
            share, times = case["part_of_floor"], case["naive_microseconds"] / floor
            beside = [number(floor, 0), f"{100 * share:.0f} %", f"{times:.1f}×"]
            rows.append([name, *against_naive(case), *beside])
        parts += [
            "",
            "Convolutional networks, processor time of one core, against drawing all weights and "
            "calling the network once for each pair. Noise is drawn at the positions where these "
            "are few, its covariance summed from products of pixels: the goal of 10 times is met "
            "where rows of scales are multiples of one another, as equal noise is before and after "
            "rescaling. On a processor it is not met with a scale for each weight, which leaves "
            "most normal numbers to be drawn (over half of the time), nor on 28 x 28: with more "
            "positions than entries, drawing and multiplying by every trial's own weights are what "
            "is left. "
            "The floor is the time of these alone: the normal numbers and the operations of a "
            "pair, counted, at the rates of torch's generator and of a large matrix product, as if "
            "activations, pooling and patches took none. With a scale for each weight even the "
            "floor on 8 x 8 is below 10 times: noise at the positions would need a covariance "
            "for each channel, and to sum these in double precision would take, at the rate of "
            "large products, as long as to draw the weights. *The last layer alone*: as the "
            "recipes of `nv.Posterior` have it, all other weights are fixed, and their part is "
            "computed once for each example: 13 pairs share it here, 1.5 on 28 x 28.",
            "",
            table(header + floors, rows),
        ]
    if "risk-convolutions-cuda" in results:
        cases = results["risk-convolutions-cuda"].items()
        parts += [
            "",
            "The same on one NVIDIA H200, in wall time: the goal of 10 times a naive draw is met "
            "in every case, since a network called for a single pair leaves a GPU idle. Beside "
            "many naive pairs drawn and computed at once, as no published code does it, the gain "
            "is that of the arithmetic:",
            "",
            table(header, [[name, *against_naive(case, 2)] for name, case in cases]),
        ]
    return "\n".join(parts)


def against_naive(case: dict[str, float], digits: int = 0) -> list[str]:
    """What a pair takes, and how many times as long a naive one does, by itself or in a batch."""
    return [
        number(case["microseconds"], digits),
        number(case["naive_microseconds"], 0),
        f"{number(case['times_faster'], 1 if case['times_faster'] < 100 else 0)}×",
        f"{case['times_faster_than_together']:.1f}×",
    ]


#: Published numbers that nobody wrote down a source for.
UNSOURCED = (0.3155, 0.448)


def certificates(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    paid = 0
    for name in sorted(results):
        if not name.startswith("certificates-"):
            continue
        for case_name, case in results[name]["cases"].items():
            paid = case["attempts_paid"]
            published = case["case"]["published"]
            rows.append(
                [
                    case_name,
                    count(case["examples"]),
                    number(case["kl_nats"], 1),
                    promise(case["empirical_upper"]),
                    f"**{promise(case['risk_upper'])}**",
                    promise(case["held_out_twin"]),
                    number(published) + ("†" if published in UNSOURCED else ""),
                    number(case["case"]["goal"], 3),
                ]
            )
    header = ["case", "n", "KL", "empirical", "certificate", "held-out twin", "published", "goal"]
    return "\n".join(
        [
            "## Certificates",
            "",
            "Confidence 0.95, stochastic predictor, zero-one loss, Monte Carlo paid. Each shares "
            f"its confidence with {paid} certificates on the same examples, so that the settings "
            "could be tried out. *learned*: prior trained on half of the data, n is the rest; "
            "*free*: prior at the random initialization, n is everything. The published numbers "
            "for learned priors were computed with the wrong n.",
            "",
            table(header, rows),
            "",
            "Published: 0.0279 (fully connected) and 0.0155 (convolutional), MNIST with a learned "
            "prior and the quadratic objective, are attributed to Pérez-Ortiz, Rivasplata, "
            "Shawe-Taylor and Szepesvári, Tighter risk certificates for neural networks, JMLR "
            "22(227), 2021; its tables were not at hand to compare them with. † No source could be "
            "found: unverified, and no claim here rests on it.",
            "",
            "The held-out twin, a plain test on examples set aside, is tighter in every row: no "
            "PAC-Bayes certificate here or published is known to beat it.",
        ]
    )


def figure(results: dict[str, dict[str, Any]]) -> str:
    found = results["rescaling-figure-1"]
    settings = found["settings"]
    rows = []
    for network in found["networks"]:
        paper, ours = network["paper"], network["ours"]
        known = network["published"]
        rows.append(
            [
                network["name"],
                f"{known['kl_ratio']:.2f}",
                f"{paper['kl_before'] / paper['kl_after']:.2f}",
                f"{known['bound']:.2f} → {known['rescaled']:.2f}",
                f"{paper['bound']:.2f} → {paper['rescaled']:.2f}",
                f"**{promise(ours['risk_upper'])}**",
                promise(ours["held_out_twin"]),
            ]
        )
    header = [
        "network",
        "published ratio",
        "ratio",
        "published bound",
        "bound",
        "our recipe",
        "twin",
    ]
    return "\n".join(
        [
            "## Rescaling: the figure of the paper, and past it",
            "",
            "MNIST networks of Rouchouse, Gonon, Gribonval and Guedj (arXiv 2509.26149), Figure 1; "
            "the published numbers are read off the figure (bounds ± .02, ratios ± .05). "
            "*ratio* and *bound*: the paper's setting "
            "(prior N(0, 1), posterior scale 0.03, risk + sqrt(KL / 2n), before → after). "
            "*our recipe*: audited certificates at confidence 0.95 with the prior at the "
            "initialization, prior-scale grid, Monte Carlo and "
            f"{count(settings['attempts'])} attempts paid, n = {count(settings['examples'])}. "
            "`nonvacuous reproduce rescaling-figure-1` runs it.",
            "",
            table(header, rows),
        ]
    )


def rescaling(results: dict[str, dict[str, Any]]) -> str:
    found = results["rescaling-cpu"]
    rows = [
        [
            name,
            count(case["weights"]),
            f"{case['times_faster_to_the_gap']:.0f}×",
            f"{case['times_faster_from_means_and_scales']:.0f}×",
            f"{case['times_faster_whole_call']:.0f}×",
        ]
        for name, case in found.items()
        if isinstance(case, dict) and "times_faster_to_the_gap" in case
    ]
    header = ["network", "weights", "descent", "descent and collapsing", "whole call"]
    parts = [
        "## Finding the best gauge",
        "",
        "The two-level solver against block coordinate descent one neuron at a time, both to a "
        f"relative gap of {found['gap_goal']:g}, in one run, in processor seconds of one thread. "
        "*descent*: squares summed beforehand on both sides; *whole call*: with the KL before and "
        "after, which the loop does not compute.",
        "",
        table(header, rows),
        "",
        "ResNet-50-shaped networks, KL before and after included:",
        "",
    ]
    sized = [(name, case) for name, case in found.items() if "resnet50" in name]
    smallest = sized[0][1]
    rows = [
        [name, count(case["weights"]), f"{case['seconds'] / smallest['seconds']:.2f}"]
        for name, case in sized
    ]
    parts.append(table(["network", "weights", "time, smallest = 1"], rows))
    if "rescaling-cuda" in results:
        case = results["rescaling-cuda"]["resnet50 shape, width 64"]
        parts += [
            "",
            f"On one NVIDIA H200 the {count(case['weights'])} weights take "
            f"{case['seconds']:.3f} s to a gap of {case['gap']:.0e} (goal 0.2 s), of which the "
            f"descent is {case['seconds_solving']:.3f} s.",
        ]
    return "\n".join(parts)


SECTIONS: dict[str, Callable[[dict[str, dict[str, Any]]], str]] = {
    "evaluate": evaluate,
    "records-mnist-free-0": records,
    "certificates-mnist-free-cnn": certificates,
    "rescaling-figure-1": figure,
    "rescaling-images-cnn-64-128-256-512-512": architecture_section,
    "lifted": lifted,
    "risk-cpu": risk,
    "posthoc-speed": speed,
    "rescaling-cpu": rescaling,
    "rescaling-cifar": rescaling_images,
    "rescaling-certificate-vit-outside": certificate_section,
    "sparsity-mnist": sparsity,
    "sparsity-fashion": sparsity_study,
    "sparsity-conv": sparsity_conv,
    "zhang-table-1": zhang.table_section,
    "zhang-figure-1": zhang.figure_section,
    "zhang-regularization": zhang.regularization_section,
    "many-cuda": many,
    "measures-attack": measures_attack,
    "measures-study": measures_study,
    "memorization": memorization,
    "interpolation-mnist": interpolation_mnist,
    "interpolation-gpu": interpolation_gpu,
    "interpolation": interpolation,
    "progressive-gate": progressive,
    "sweep": sweep,
    "bounds": bounds,
    "startup": startup,
}


def page() -> str:
    files = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    results = {name: record["result"] for name, record in files.items()}
    sections = [make(results) for name, make in SECTIONS.items() if name in results]
    return "\n\n".join([INTRODUCTION.rstrip(), *sections, "\n".join(_sources(files))]) + "\n"


def _sources(files: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "## Where the figures come from\n"
    yield "Commands as they were at their commit; some scripts have other names since.\n"
    rows = []
    for name, record in files.items():
        origin = record["provenance"]
        machine = origin["machine"].get("gpu") or origin["machine"]["processor"]
        commit = (origin["commit"] or "none")[:10]
        changed = origin.get("uncommitted_changes")
        commit += (
            " + uncommitted changes" if changed else " (not known if clean)" * (changed is None)
        )
        rows.append(
            [f"`{name}.json`", commit, machine, origin["date"][:10], f"`{origin['command']}`"]
        )
    yield table(["file", "commit", "machine", "date", "command"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check, stale = parser.parse_args().check, 0
    for name, text in (("results.md", page()), ("papers.md", papers())):
        path = ROOT / "docs" / name
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{name} is not what the result files say: python benchmarks/show.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
