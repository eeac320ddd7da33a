"""The page docs/papers.md: every definition, theorem, figure, table and claim of the papers.

`python benchmarks/show.py` writes it. Numbers come from the result files. A row names what there is
in the library (a dotted name that can be imported) and the command that shows it;
tests/test_papers_page.py tries both.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import show_rescaling_images as networks_on_images
from show_interpolation import at_end, parts_of, published_norms_told, widths_of
from show_zhang import curves_of, gains_of, switches_of

ROOT = Path(__file__).resolve().parents[1]

#: What can be said of a row.
VERDICTS = {
    "holds": "computed or proved here, and it is as the paper says",
    "beyond": "holds, and goes further here",
    "differs": "computed here, and it is not as the paper says; the row says how",
    "in part": "some of it is here; the row says what lacks",
    "missing": "not computed here",
    "quoted": "the paper's number is repeated and marked as not computed here",
}


class Row(NamedTuple):
    item: str
    lives: str
    command: str
    published: str
    ours: str
    verdict: str


def read(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["result"]


def read_all(start: str) -> dict[str, Any]:
    """Every result file whose name begins so."""
    paths = (ROOT / "benchmarks" / "results").glob(f"{start}*.json")
    return {path.stem: read(path.stem) for path in sorted(paths)}


def up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"


def rescaling() -> list[Row]:
    figure, images = read("rescaling-figure-1"), read_all("rescaling-")
    panel = networks_on_images.nearest(images)
    near = networks_on_images.within(panel)
    squares = networks_on_images.inferred_weights()[1]
    accounted = 10 + len(networks_on_images.architectures(images))
    certified = [r for r in networks_on_images.certificates(images) if not r["is_vacuous"]]
    summary, networks = figure["summary"], figure["networks"]
    ratios = [network["kl_ratio"] for network in networks]
    promises = [network["ours"]["risk_upper"] for network in networks]
    measured = panel["kl_ratios"]
    learned = [
        seed["risk_upper"]
        for name in range(3)
        for seed in read(f"records-cifar-learned-{name}")["seeds"]
    ]
    published = [point["published_kl_ratio"] for point in panel["points"]]
    left = [row["fiber_gap"] / row["best_lambda_nats"] for row in read("lifted")["rows"]]
    run = "nonvacuous reproduce rescaling-figure-1"
    return [
        Row(
            "The action of rescalings, and that it changes no function",
            "nonvacuous.rescaled",
            "nonvacuous inspect --model mlp:64,32 --data digits",
            "for ReLU networks",
            "any graph that torch.export captures; what cannot move is pinned and named",
            "beyond",
        ),
        Row(
            "Path lifting Φ and the path+sign lift ψ",
            "nonvacuous.path_lifting",
            "nonvacuous measures --data digits --model mlp:16",
            "definition",
            "built for small networks, path norms for all",
            "holds",
        ),
        Row(
            "PAC-Bayes holds for the lifted divergence",
            "nonvacuous.bounds.seeger",
            "nonvacuous bound --risk 0.02 --kl 5000 --examples 60000",
            "theorem",
            "the lemma “what is free” proves it again; a world of simulated certificates counts it",
            "holds",
        ),
        Row(
            "Chain: lifted ≤ stochastic λ ≤ deterministic λ ≤ plain KL",
            "nonvacuous.lifted_kl",
            "nonvacuous rescale --help",
            "theorem",
            "each step tested; the two-sided infimum is shown to equal the one-sided one",
            "beyond",
        ),
        Row(
            "The lifted divergence itself",
            "nonvacuous.lifted_kl",
            "nonvacuous rescale --help",
            "no way to compute it",
            "exact for one hidden layer of any width (Bessel functions), sampled between two ends "
            f"beyond: the best λ leaves {min(left):.1%} to {max(left):.1%} of its KL",
            "beyond",
        ),
        Row(
            "The best deterministic λ: strictly convex, block coordinate descent",
            "nonvacuous.rescale",
            "nonvacuous rescale --help",
            "algorithm",
            "unique minimum proved for priors around zero; two-level solver 35 to 1,422 times as "
            "fast as one neuron at a time",
            "beyond",
        ),
        Row(
            "Architectures: convolutions, pooling, residual streams, normalization",
            "nonvacuous.scale_groups",
            "nonvacuous inspect --model resnet:8,16 --data digits",
            "directed graphs of ReLU units",
            "those, and attention, gated units, shared weights; what has no rescaling is pinned "
            "and named",
            "beyond",
        ),
        Row(
            "Figure 1, MNIST: ratio of the divergences",
            "nonvacuous.papers",
            run,
            "2.31 to 5.58 (read off, ± .05)",
            f"{min(ratios):.2f} to {max(ratios):.2f}; {summary['ratios_within_15_percent']} of "
            f"{summary['published']} within 15 %",
            "holds",
        ),
        Row(
            "Figure 1, MNIST: bounds before and after",
            "nonvacuous.papers",
            run,
            ".87 → .46 for the smallest (read off, ± .02)",
            f"{networks[-1]['paper']['bound']:.2f} → {networks[-1]['paper']['rescaled']:.2f}",
            "holds",
        ),
        Row(
            "“Rescaling turns vacuous bounds into non-vacuous ones”",
            "nonvacuous.PostHoc",
            run,
            "4 of 10 perceptrons below 1, by a fixed prior N(0, 1)",
            f"{summary['better_than_guessing']} of {summary['networks']} better than guessing, "
            f"{up(min(promises))} to {up(max(promises))}, audited; most of it comes from choosing "
            "the prior's scale (results.md)",
            "beyond",
        ),
        Row(
            "“Always tighter”",
            "nonvacuous.certify",
            "nonvacuous certify --help",
            "inf over λ ≤ λ = 1",
            "certificates with rescaling are never above those without: where another noise is not "
            "clearly better, both are measured and paid for; property-tested",
            "holds",
        ),
        Row(
            "Figure 1, CIFAR-10 panel",
            "nonvacuous.papers",
            f"{run} --cifar",
            "ratios " + ", ".join(f"{value:.2f}" for value in published),
            ", ".join(f"{value:.2f}" for value in measured)
            + f"; {near} of {len(measured)} within 25 %, by a network whose squares add up to "
            f"{panel['weights_squared']:,.0f}; the paper's numbers imply "
            f"{squares:,.0f}, and the squares decide the ratios",
            "holds" if near >= 5 else "differs",
        ),
        Row(
            "The paper's own accounting (Q kept, rescaled, N(0, σ²)) beside ours",
            "nonvacuous.papers",
            f"{run} --architectures cnn resnet20 vit",
            "one table",
            f"one table for {accounted} networks, the ten perceptrons among them (results.md); in "
            "the record of every post-hoc certificate (`rescaling.paper`)",
            "holds" if accounted >= 13 else "in part",
        ),
        Row(
            "Certificates for residual and attention networks",
            "nonvacuous.scale_groups",
            "nonvacuous inspect --model vit:16,1 --data digits",
            "–",
            f"learned priors on CIFAR-10: {up(min(learned))} for a ResNet-9, its last layer "
            "random; all weights random: "
            + ", ".join(
                f"{up(r['risk_upper'])} for {r['architecture']} ({r['kind']})" for r in certified
            ),
            "beyond" if any("vit" in r["architecture"] for r in certified) else "in part",
        ),
    ]


def randomization() -> list[Row]:
    table = read("zhang-table-1")
    figure, switches = read("zhang-figure-1"), switches_of(read_all("zhang-regularization"))
    kernels = parts_of(read_all("interpolation-gpu"))
    nearest = min(
        widths_of(kernels, "cifar10 raw"), key=lambda entry: abs(entry["test_errors"] - 4600)
    )
    curves = curves_of(read_all("zhang-figure-1"))
    slow = [figure["sweep"][network][-1]["slowdown"] for network in figure["sweep"]]
    gains = gains_of(switches).values()
    full = switches["inception", "full", 0, False]["random_train"]

    def error(part: str) -> str:
        found = kernels[part]["labelings"][0]
        return f"{found['test_errors'] / 100:.2f} %"

    edge = " (at the edge of its grid)" if at_end(kernels["cifar10 raw"]) else ""
    study = "nonvacuous randomize --data digits --model mlp:64"
    first, second = "nonvacuous reproduce zhang-table-1", "nonvacuous reproduce zhang-figure-1"
    third = "nonvacuous reproduce zhang-regularization"
    kernel, linear = "nonvacuous reproduce zhang-kernels", "nonvacuous reproduce zhang-linear"
    theorem = "nonvacuous reproduce zhang-theorem-1"
    return [
        Row(
            "For a fixed hypothesis the empirical risk concentrates (Hoeffding)",
            "nonvacuous.bounds.hoeffding_radius",
            study,
            "inequality",
            "counted in simulated worlds",
            "holds",
        ),
        Row(
            "Learning chooses the hypothesis from the sample, so that this fails",
            "nonvacuous.randomization.Study",
            study,
            "argument",
            "the gap on random labels is far beyond the radius",
            "holds",
        ),
        Row(
            "Rademacher complexity is how well random signs are fitted",
            "nonvacuous.randomization.rademacher_estimate",
            study,
            "close to 1",
            "estimated, with its standard error, as the lower bound that it is",
            "beyond",
        ),
        Row(
            "Table 1: train and test accuracy of 19 networks",
            "nonvacuous.papers",
            first,
            "19 rows",
            "19 of 19 fit as the paper's, 19 of 19 within 2.5 points of test accuracy "
            f"({table['summary']['rows']} rows; two groups trained again)",
            "holds",
        ),
        Row(
            "Random labels are fitted by the same network and optimizer",
            "nonvacuous.papers",
            first,
            "≥ 99.34 % train, 10 ± 1 % test",
            "99.71 to 100 % train, 9.8 to 10.3 % test",
            "holds",
        ),
        Row(
            "Figure 1a: shuffled pixels, random pixels, Gaussian images are fitted too",
            "nonvacuous.randomization.CORRUPTIONS",
            second,
            "100 % train in all five",
            "; ".join(
                f"{name} {curve['train_accuracy']:.0f} % in {curve['fit_epoch']} epochs"
                for name, curve in curves.items()
            ),
            "holds",
        ),
        Row(
            "Figure 1b: fitting stays easy",
            "nonvacuous.papers",
            second,
            "slower by a small constant factor",
            f"{min(slow):.1f} to {max(slow):.1f} times the epochs at random labels",
            "holds",
        ),
        Row(
            "Figure 1c: the test error rises smoothly to guessing",
            "nonvacuous.papers",
            second,
            "to 90 %",
            ", ".join(
                f"{network} {100 * points[-1]['test_error']:.1f} %"
                for network, points in figure["sweep"].items()
            )
            + "; never falls beyond the intervals",
            "holds",
        ),
        Row(
            "Clean training points are learned before corrupted ones",
            "nonvacuous.randomization.Study",
            study,
            "conjecture in the text",
            "both accuracies per epoch, for any network and data",
            "holds",
        ),
        Row(
            "Nothing but the data changes between true and random labels",
            "nonvacuous.randomization.Study",
            study,
            "protocol",
            "one digest over all settings, checked",
            "holds",
        ),
        Row(
            "A gap on random labels shows a leak",
            "nonvacuous.randomization.Study",
            study,
            "–",
            "better than guessing on test data after the labels were redrawn: said to be a leak",
            "beyond",
        ),
        Row(
            "Explicit regularization is not necessary",
            "nonvacuous.papers",
            third,
            "85.75 against 89.31 % (Inception)",
            f"regularizers add at most {max(gains):.1f} points",
            "holds",
        ),
        Row(
            "… nor sufficient: random labels with weight decay and augmentation",
            "nonvacuous.papers",
            third,
            "Inception: crop 99.93, full augmentation 99.28, weight decay 100 % train",
            f"{switches['inception', 'crop', 0, False]['random_train']:.2f}, "
            f"{full:.2f} (300 epochs), "
            f"{switches['inception', 'none', 1, False]['random_train']:.2f}",
            "holds" if full >= 98.5 else "in part",
        ),
        Row(
            "AlexNet with weight decay does not fit random labels",
            "nonvacuous.papers",
            third,
            "did not converge",
            "with the paper's schedule: "
            + ", ".join(
                f"{switches['alexnet', 'none', times, False]['random_train']:.2f} % train at decay "
                f"{0.0005 * times:g}"
                for times in (1, 2, 4, 8)
            )
            + f" (test {switches['alexnet', 'none', 8, False]['true_test']:.2f} % on true labels, "
            "published 77.36 %): it depends on the strength, which the paper does not give",
            "holds",
        ),
        Row(
            "Figure 2a: early stopping",
            "nonvacuous.papers",
            third,
            "could help on ImageNet; CIFAR-10 not",
            "adds at most "
            f"{max(s['early_stopping_points'] or 0 for s in switches.values()):.2f} points",
            "holds",
        ),
        Row(
            "Figure 2b: batch normalization",
            "nonvacuous.papers",
            first,
            "3 to 4 points",
            "87.45 against 83.53 % with weight decay, 86.95 against 84.15 % without",
            "holds",
        ),
        Row(
            "A dropout arm of the regularizers",
            "nonvacuous.papers",
            third,
            "on ImageNet only",
            "random labels fitted in 120 (Inception) or 150 epochs, and points added on true ones: "
            + ", ".join(
                f"{network} {dropped['random_train']:.1f} % and "
                f"{dropped['true_test'] - switches[network, 'none', 0, False]['true_test']:+.2f}"
                for (network, *_, drops), dropped in switches.items()
                if drops
            ),
            "beyond",
        ),
        Row(
            "Table 2: ImageNet",
            "nonvacuous.papers",
            third,
            "77.84 and 59.80 % test with and without regularizers; random labels 95.20 % train",
            "not computed here",
            "quoted",
        ),
        Row(
            "Theorem 1: 2n + d weights give n points any n values",
            "nonvacuous.memorize",
            theorem,
            "existence",
            "constructed for 60,000 points, certified in exact rational arithmetic: 0 mismatches",
            "beyond",
        ),
        Row(
            "Lemma 1: the matrix of the construction is lower triangular",
            "nonvacuous.memorization.check_lemma",
            theorem,
            "lemma",
            "checked exactly",
            "holds",
        ),
        Row(
            "Corollary: depth k with O(n/k) units a layer",
            "nonvacuous.memorization.memorize",
            theorem,
            "existence",
            "built: depth 601, width 104, 7.2e-09 unit by unit",
            "beyond",
        ),
        Row(
            "What Theorem 1 does not say",
            "nonvacuous.memorization.what_it_does_not_say",
            "nonvacuous memorize --data digits",
            "–",
            "width n is needed; other constructions are printed beside it",
            "beyond",
        ),
        Row(
            "More weights than examples: infinitely many perfect fits, one Hessian",
            "nonvacuous.interpolation",
            linear,
            "argument",
            "equal to 1e-15",
            "holds",
        ),
        Row(
            "SGD from zero finds the fit of least norm",
            "nonvacuous.interpolation",
            linear,
            "argument",
            "relative error below 1e-12; from elsewhere, and by Adam, it does not",
            "beyond",
        ),
        Row(
            "Kernel interpolation, MNIST pixels",
            "nonvacuous.interpolate",
            kernel,
            "1.2 %",
            error("mnist raw"),
            "holds",
        ),
        Row(
            "… with a Gabor bank",
            "nonvacuous.interpolate",
            kernel,
            "0.6 %",
            error("mnist gabor"),
            "holds",
        ),
        Row(
            "… CIFAR-10 pixels",
            "nonvacuous.interpolate",
            kernel,
            "46 %",
            f"{nearest['test_errors'] / 100:.2f} % at γ = {nearest['gamma']:.2g}, "
            f"{error('cifar10 raw')} at the γ that held-out data choose{edge}",
            "holds",
        ),
        Row(
            "… random patches",
            "nonvacuous.interpolate",
            kernel,
            "17 % (32,000 filters)",
            error("cifar10 patches"),
            "holds",
        ),
        Row(
            "The smaller norm does not mean the smaller error",
            "nonvacuous.interpolate",
            kernel,
            "norms 220 without and 390 with wavelets, errors 1.2 and .6 %",
            "norms "
            f"{kernels['mnist raw']['labelings'][0]['norm']:.0f} and "
            f"{kernels['mnist gabor']['labelings'][0]['norm']:.0f} at the γ that held-out data "
            f"choose. {published_norms_told(kernels)}",
            "holds",
        ),
        Row(
            "VC dimension, Rademacher complexity, uniform stability cannot tell true from random",
            "nonvacuous.randomization.uniform_stability",
            study,
            "argument",
            "computed on both, identical",
            "holds",
        ),
    ]


#: Certificates of the measurement of blocks that know nothing of blocks.
_UNGROUPED = ("dense", "blocks of 1")


def sparsity() -> list[Row]:
    study = read("sparsity-mnist")
    cases = {case["key"]: case for case in study["cases"]}
    paper = [gain for gain in study["gains"] if gain["theorem"] == "A"]
    others = [gain for gain in study["gains"] if gain["theorem"] != "A"]
    deep = {case["key"]: case for case in read("sparsity-depth-cpu")["cases"]}
    top = {
        name: min(read(f"sparsity-{name}")["cases"], key=lambda case: case["best"])
        for name in ("fashion", "cifar10")
    }
    # Networks that a penalty silenced have nothing to certify.
    blocks = [c for c in read("sparsity-blocks")["perceptrons"] if c["test_errors"] < 5_000]
    gained = sum(
        min(value for label, value in case["risks"].items() if label not in _UNGROUPED)
        < min(case["risks"][label] for label in _UNGROUPED)
        for case in blocks
    )
    run = "nonvacuous reproduce sparsity-mnist"
    one = "nonvacuous sparsity --data digits --model mlp:32"

    def best(key: str) -> str:
        return up(cases[key]["best"])

    return [
        Row(
            "Sparse induced norm",
            "nonvacuous.sparsity.sparse_norm",
            one,
            "definition",
            "against brute force on 300 matrices",
            "holds",
        ),
        Row(
            "Reduced babel function, and the norm's bound by it",
            "nonvacuous.sparsity.babel_norm",
            one,
            "lemma",
            "holds; beats the spectral norm only above about 87 % sparsity",
            "holds",
        ),
        Row(
            "Inactive sets and the sparse local radius",
            "nonvacuous.sparsity.local_radii",
            one,
            "definition",
            "one pass, no sorting",
            "holds",
        ),
        Row(
            "Sensitivity: inactive units stay inactive",
            "nonvacuous.sparsity.stability_thresholds",
            one,
            "theorem",
            "proved again; more than a million unit events tried, none broke",
            "holds",
        ),
        Row(
            "Main theorem: sparsity-aware bound",
            "nonvacuous.Sparsity",
            run,
            "constants not recovered from the text",
            "Theorem A with explicit constants, coefficient 1 instead of 2 on the sparse loss",
            "beyond",
        ),
        Row(
            "… sharper: events that may depend on the input",
            "nonvacuous.sparsity.certify_sparse",
            run,
            "–",
            "Theorems D, E and F, proved in docs/theory/sparsity.md",
            "beyond",
        ),
        Row(
            "Greedy sparsity s*(x, ε)",
            "nonvacuous.sparsity.greedy_sparsity",
            one,
            "search by bisection",
            "one comparison and a sum give the same",
            "beyond",
        ),
        Row(
            "Figure 2: effective activity ratios",
            "nonvacuous.sparsity.SparsityStudy",
            run,
            "figure only",
            "table on results.md",
            "holds",
        ),
        Row(
            "Non-vacuous with a prior from 5 % of the data (MNIST)",
            "nonvacuous.Sparsity",
            run,
            "figure only",
            f"{best('h1-w100-learned0.05-pull1-robust')} (one hidden layer), "
            f"{best('h2-w100-learned0.05-pull1-robust')} (two); a plain test of the prior is "
            "tighter in every row",
            "beyond",
        ),
        Row(
            "Non-vacuous without a learned prior",
            "nonvacuous.Sparsity",
            run,
            "not claimed",
            f"{best('h1-w100-zero-pull0.003-blind')} at width 100; two hidden layers: vacuous",
            "beyond",
        ),
        Row(
            "Widths 100, 500, 1000",
            "nonvacuous.Sparsity",
            run,
            "grows slowly",
            ", ".join(best(f"h1-w{width}-learned0.05-pull1-robust") for width in (100, 500, 1000)),
            "holds",
        ),
        Row(
            "“No exponential dependence on depth”",
            "nonvacuous.Sparsity",
            run,
            "claim",
            "ordinary training: "
            + ", ".join(best(f"h{depth}-w100-learned0.05-pull1-plain") for depth in (3, 5, 10))
            + " at 3, 5 and 10 hidden layers: the product of norms stands in the threshold; with "
            "spectral control "
            + ", ".join(best(f"h{depth}-w100-learned0.05-pull1-spectral") for depth in (3, 5, 10))
            + ", and with λ = 10 "
            + ", ".join(
                up(deep[f"h{depth}-w100-learned0.05-pull10-spectral"]["best"])
                for depth in (3, 5, 10, 15, 20)
            )
            + " at 3 to 20; a proof that thresholds grow like K^1.5 where norms are near 1",
            "differs",
        ),
        Row(
            "Does sparsity help in the paper's own form?",
            "nonvacuous.Sparsity",
            run,
            "yes",
            f"Theorem A: in {sum(g['change'] < 0 for g in paper)} of {len(paper)} rows; Theorems "
            f"D to F: in {sum(g['change'] < 0 for g in others)} of {len(others)}",
            "differs",
        ),
        Row(
            "Comparison with norm bounds (Neyshabur, Bartlett, Golowich)",
            "nonvacuous.bounds.neyshabur_gap",
            run,
            "all vacuous",
            "all vacuous at every width, on MNIST, Fashion-MNIST and CIFAR-10",
            "holds",
        ),
        Row(
            "Training subsets of 20 to 100 %",
            "nonvacuous.Sparsity",
            run,
            "figure only",
            ", ".join(
                best(f"h1-w100-learned0.05-pull1-robust-share{share}")
                for share in ("0.2", "0.4", "0.6", "0.8")
            )
            + f", {best('h1-w100-learned0.05-pull1-robust')}",
            "holds",
        ),
        Row(
            "Convolutional networks",
            "nonvacuous.sparsity.certify_sparse",
            "nonvacuous sparsity --data mnist --model cnn:8",
            "remark",
            "Theorem E for convolutions, .0462 on MNIST; D and F would at best have 2.5 to 8 times "
            "its threshold from two convolutions on",
            "beyond",
        ),
        Row(
            "Open question: which priors, data, widths, depths",
            "nonvacuous.Sparsity",
            f"{run} --data cifar10 --centered",
            "open",
            "one table for three data sets: the prior decides; best "
            + ", ".join(
                f"{word} {up(top[name]['best'])} (plain test {up(top[name]['twin'])})"
                for name, word in (("fashion", "Fashion-MNIST"), ("cifar10", "CIFAR-10"))
            ),
            "beyond",
        ),
        Row(
            "Open question: structured sparsity",
            "nonvacuous.sparsity.sparse_norm",
            run,
            "open",
            "norms, sensitivity and Theorem A for groups, proved; blocks beat both units and no "
            f"sparsity in {gained} of {len(blocks)} networks, and channels of convolutions are "
            "hardly ever silent",
            "beyond",
        ),
    ]


def measures() -> list[Row]:
    attack = "nonvacuous measures --data digits --model mlp:16 --attack"
    both = "nonvacuous reproduce measures-study --cnn"
    cnn = read("measures-study-cnn")
    own = [entry for entry in cnn["measures"] if entry["name"] != "random-numbers"]
    by_name = {entry["name"]: entry for entry in own}

    def tau(name: str) -> str:
        return f"{name} {by_name[name]['tau']['value']:+.2f}"

    robust = [entry["name"] for entry in own if entry["worst_error"]["high"] < 0.5]
    least = min(own, key=lambda entry: entry["worst_error"]["value"])
    gauges = {
        verdict: [entry["best"] for entry in cnn["rescaled"] if entry["verdict"] == verdict]
        for verdict in ("better", "worse", "mixed", "no difference")
    }
    return [
        Row(
            "Norm, margin, path, sharpness and PAC-Bayes measures",
            "nonvacuous.measures.MEASURES",
            "nonvacuous measures --data digits --model mlp:16",
            "some forty",
            "61, with oracles in tests/measures",
            "beyond",
        ),
        Row(
            "Rescaling makes sharpness and norms arbitrary (Dinh et al. 2017)",
            "nonvacuous.measures.Attack",
            attack,
            "argument",
            "up to 3.6 decades for the same function; 23 measures do not move",
            "beyond",
        ),
        Row(
            "Rank correlations with the gap (Jiang et al. 2020)",
            "nonvacuous.measures.correlation.Trials",
            both,
            "more than 10,000 convolutional networks: sharpness and PAC-Bayes best overall, many "
            "norms poor or inverted",
            f"{cnn['networks']:,} on CIFAR-10 (16 by 16, {cnn['settings']['examples'][0]:,} "
            f"examples) and 2,592 perceptrons, with intervals: τ of {tau('flatness-magnitude')}, "
            f"{tau('sharpness-largest')}; {tau('spectral-product')}, {tau('path-norm-1')}, "
            f"{tau('distance')}, inverted for dropout; the divergence itself: {tau('rescaled-kl')}",
            "holds",
        ),
        Row(
            "Robustness: sign errors, worst kind of change (Dziugaite et al. 2020)",
            "nonvacuous.measures.correlation_summary.Court",
            both,
            "no measure is robust",
            "convolutional networks: surely better than a coin in every kind of change: "
            f"{', '.join(robust) or 'none'} (nearest: {least['name']}, "
            f"{100 * least['worst_error']['value']:.0f} % wrong at worst); perceptrons: "
            "flatness-relative, flatness-magnitude",
            "differs" if robust else "holds",
        ),
        Row(
            "Conditional mutual information (Jiang et al. 2020)",
            "nonvacuous.measures.correlation_summary.Court",
            both,
            "table",
            "for every measure, with intervals, on perceptrons and convolutional networks",
            "holds",
        ),
        Row(
            "Do rescaling-optimal versions predict better than raw ones?",
            "nonvacuous.measures.MEASURES",
            both,
            "–",
            "ten pairs, intervals of the difference of τ; convolutional networks: "
            + "; ".join(f"{verdict}: {', '.join(n)}" for verdict, n in gauges.items() if n)
            + ". Perceptrons: sharpness τ .47 balanced, .50 raw; KL .30 rescaled, .34 raw",
            "beyond",
        ),
    ]


SECTIONS = {
    "Can rescaling invariances help? (Rouchouse, Gonon, Gribonval, Guedj, arXiv 2509.26149)": (
        rescaling
    ),
    "Understanding deep learning requires rethinking generalization (Zhang et al., ICLR 2017)": (
        randomization
    ),
    "Sparsity-aware generalization theory for deep networks (Muthukumar, Sulam, COLT 2023)": (
        sparsity
    ),
    "Measures on trial (Jiang et al. 2020, Dziugaite et al. 2020, Dinh et al. 2017)": measures,
}


def rows() -> list[Row]:
    return [row for make in SECTIONS.values() for row in make()]


def page() -> str:
    counted = {verdict: sum(row.verdict == verdict for row in rows()) for verdict in VERDICTS}
    lines = [
        "# The papers, row by row",
        "",
        "Every definition, theorem, figure, table and claim of the founding papers that software "
        "can show: where it lives, the command that shows it, the published number, ours, a "
        "verdict. Figures of the commands' full runs stand on [the page of results](results.md). "
        "`python benchmarks/show.py` writes this page.",
        "",
        *(f"- **{name}** ({counted[name]}): {text}." for name, text in VERDICTS.items()),
    ]
    for title, make in SECTIONS.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| what | lives in | command | published | ours | verdict |",
            "|---|---|---|---|---|---|",
        ]
        for row in make():
            lines.append(
                f"| {row.item} | `{row.lives}` | `{row.command}` | {row.published} | {row.ours} "
                f"| **{row.verdict}** |"
            )
    return "\n".join(lines) + "\n"
