"""Certificates such as the library makes, with numbers that its own bounds give."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from nonvacuous import bounds
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.records import (
    Assumption,
    BoundRecord,
    BudgetRecord,
    ComplexityRecord,
    DataRecord,
    DistributionRecord,
    ExampleSet,
    KlTerm,
    LossRecord,
    ModelRecord,
    Observation,
    RescalingColumn,
    RescalingRecord,
    RiskRecord,
    SpendRecord,
    SymmetrySaving,
    TwinRecord,
)
from nonvacuous.rules.arithmetic import baseline_record

#: Everything that HTML, XML, CSS, mathtext, a shell or a terminal could stumble over.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table runs; --",
    "]]></style><b>bold</b>",
    "$\\frac{1}{$ \\undefined $$",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;already&gt; & <!-- open",
    "url(https://example.invalid/x)",
    "line\nbreak\ttab\x00\x1b[31mred",
    "\u202egnp.exe 雪 🎉 \ufffe",
    "a" * 300,
)

#: As an audit names and tells them: what it checked, and what it can only write down.
CHECKS = (
    (
        "n comes from the stored indices",
        "n = 30000, the number of stored indices of bound examples.",
    ),
    (
        "the split belongs to these examples",
        "the split names the content of the examples it was made for.",
    ),
    (
        "the prior saw no bound example",
        "the prior was fitted on 30000 examples; none is a bound example.",
    ),
    (
        "no example has a copy in another part of the data",
        "compared by content, no input occurs in two parts. No test input occurs "
        "among them either.",
    ),
    (
        "prior and posterior cover every parameter",
        "all 8 parameter tensors are in both, or are fixed.",
    ),
    (
        "the KL counts every random tensor",
        "8 tensors, 1199882 weights.",
    ),
    (
        "what is not random was fixed before the bound examples",
        "the network has no buffers and no parameter outside the posterior.",
    ),
    (
        "all weights are finite",
        "no NaN or infinity in 40 tensors.",
    ),
    (
        "the KL belongs to the frozen posterior",
        "recomputed from the frozen tensors, term by term.",
    ),
    (
        "an independent formula gives the same KL",
        "the textbook formula in extended precision agrees, term by term.",
    ),
    (
        "the KL is summed in float64 and rounded up",
        "8 terms sum to 61.7 nats.",
    ),
    (
        "the network is in evaluation mode",
        "no part of it is in training mode.",
    ),
    (
        "each prediction depends on its own example alone",
        "16 bound examples give the same outputs alone, together, in another order and again.",
    ),
    (
        "predicting leaves the network unchanged",
        "no buffer is written while predicting.",
    ),
    (
        "the loss stays in [0, 1]",
        "checked on predictions of the network and on extreme scores.",
    ),
    (
        "the risk was measured on the evaluation inputs",
        "both are transformed by: pixel/255.",
    ),
    (
        "the risk is a count of independent trials",
        "200000 pairs of an example and weights, each drawn afresh.",
    ),
    (
        "the sampling seed was used once, after freezing",
        "derived from the frozen posterior's digest and used once.",
    ),
    (
        "the risk belongs to the frozen posterior",
        "the posterior has the digest it had when its risk was measured.",
    ),
    (
        "the sampling error is paid for",
        "the ledger pays 0.01 for it.",
    ),
    (
        "the failure probability is spent once",
        "0.01 (sampling) + 0.04 (bound) is at most 0.05.",
    ),
    (
        "every search was paid for",
        "searched and accounted for: nothing.",
    ),
    (
        "what the theorem wants fixed was fixed before the data",
        "seeger holds for all values of its other inputs at once.",
    ),
    (
        "the bound is a known theorem",
        "PAC-Bayes-kl bound: Seeger (2002), Langford (2005), with the constant of Maurer (2004).",
    ),
    (
        "the bound was computed from the recorded facts",
        "empirical risk and complexity are those recorded, applied once.",
    ),
    (
        "the bound can be recomputed",
        "recomputed from its inputs: 0.0158794.",
    ),
    (
        "the promise is about the predictor that was measured",
        "measured and promised: the randomized network (weights drawn afresh from"
        " the posterior for each input).",
    ),
    (
        "the test examples were read after the end",
        "nothing looked at test examples before the network was frozen.",
    ),
    (
        "the promise says no more than the theorem",
        "it is about inputs drawn as the 30000 bound examples of MNIST were, with confidence 0.95.",
    ),
)
TRUSTED = (
    Assumption(
        name="the preprocessing saw no bound example",
        status="asserted",
        detail="the preprocessing (pixel/255) was not fitted to any example, as stated "
        "by the one who chose it.",
    ),
    Assumption(
        name="the starting weights saw no bound example",
        status="asserted",
        detail="the weights that the prior starts from were chosen without the bound "
        "examples, as stated by the one who made them.",
    ),
    Assumption(
        name="examples do not come in groups",
        status="asserted",
        detail="no groups were declared.",
    ),
    Assumption(
        name="earlier certificates on these examples are paid for",
        status="asserted",
        detail="no other certificate on these bound examples is on record.",
    ),
    Assumption(
        name="architecture and settings were chosen before looking",
        status="asserted",
        detail="that the prior, architecture and settings were chosen without looking at"
        " the bound examples is stated by the user; a spread over several seeds "
        "is no substitute for it.",
    ),
    Assumption(
        name="examples are independent and identically distributed",
        status="not checkable",
        detail="every promise here is about draws from the one distribution that the "
        "bound examples were drawn from, independently; no file can show this.",
    ),
    Assumption(
        name="the data are what they are said to be",
        status="not checkable",
        detail="that the 30000 examples of MNIST were collected as described, and not "
        "selected, is known only to whoever collected them.",
    ),
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def example_set(examples: int, role: str) -> ExampleSet:
    return ExampleSet(
        examples=examples, index_digest=digest(f"{role} index"), content_digest=digest(role)
    )


def checked() -> tuple[Assumption, ...]:
    return tuple(Assumption(name=n, status="checked", detail=d) for n, d in CHECKS)


def terms(shares: dict[str, tuple[int, float]]) -> tuple[KlTerm, ...]:
    return tuple(KlTerm(tensor=t, size=s, nats=n) for t, (s, n) in shares.items())


def build(**changes: Any) -> Certificate:
    """A posterior on MNIST, certified; ``changes`` replace whole fields before it is sealed."""
    examples, kl_nats, failure, sampling_failure = 30_000, 61.7, 0.05, 0.01
    errors, trials = 1_531, 200_000
    empirical = bounds.sampling(errors=errors, trials=trials, failure=sampling_failure)
    inputs: dict[str, Any] = {
        "empirical_risk": empirical,
        "kl_nats": kl_nats,
        "examples": examples,
        "failure": failure - sampling_failure,
    }
    tensors = {
        "features.0.weight": (288, 3.1),
        "features.0.bias": (32, 0.4),
        "features.2.weight": (18_432, 14.9),
        "features.2.bias": (64, 0.6),
        "classifier.0.weight": (1_179_648, 27.2),
        "classifier.0.bias": (128, 1.3),
        "classifier.2.weight": (1_280, 13.6),
        "classifier.2.bias": (10, 0.6),
    }
    fields: dict[str, Any] = {
        "statement": "With confidence 0.95 over the draw of the 30000 bound examples of MNIST and "
        "of the Monte-Carlo trials, the zero-one risk of the randomized network (weights drawn "
        "afresh from the posterior for each input) is at most 0.0159.",
        "mode": "posterior",
        "predictor": "stochastic",
        "loss": LossRecord(name="zero-one"),
        "confidence": 1.0 - failure,
        "risk_upper": bounds.seeger(**inputs, exact_moment=True),
        "bound": BoundRecord(
            name="seeger",
            theorem="PAC-Bayes-kl bound: Seeger (2002), Langford (2005), with the constant of "
            "Maurer (2004)",
            inputs={**inputs, "exact_moment": 1},
        ),
        "budget": BudgetRecord(
            failure=failure,
            entries=(
                SpendRecord(
                    name="sampling", failure=0.01, reason="Monte-Carlo estimate of the risk"
                ),
                SpendRecord(
                    name="bound",
                    failure=failure - sampling_failure,
                    reason="PAC-Bayes bound, prior fixed before the data",
                ),
            ),
        ),
        "data": DataRecord(
            name="MNIST",
            classes=10,
            preprocessing="pixel/255",
            bound=example_set(examples, "bound"),
            prior=example_set(30_000, "prior"),
        ),
        "model": ModelRecord(
            architecture="cnn:32,64", parameters=1_199_882, fixed_digest=digest("fixed")
        ),
        "prior": DistributionRecord(
            description="Gaussian centered on weights trained on the prior part of the data, with "
            "scale 0.03 fixed before the data.",
            digest=digest("prior"),
            saw=digest("prior index"),
        ),
        "posterior": DistributionRecord(
            description="Gaussian trained on the quadratic objective", digest=digest("posterior")
        ),
        "complexity": ComplexityRecord(terms=terms(tensors), kl_nats=kl_nats),
        "empirical": RiskRecord(
            errors=errors,
            trials=trials,
            scheme="pairs",
            identical=True,
            seed=7,
            risk_upper=empirical,
        ),
        "held_out_twin": TwinRecord(
            description="the network with the prior's mean weights, trained on 30,000 examples and "
            "tested once on the 30,000 bound examples",
            errors=249,
            examples=30_000,
            failure=failure,
            risk_upper=bounds.holdout(errors=249, examples=30_000, failure=failure),
        ),
        "observed": (
            Observation(
                name="the network with the mean weights on the bound examples",
                errors=201,
                trials=30_000,
            ),
            Observation(
                name="the network with the mean weights on the test examples",
                errors=91,
                trials=10_000,
            ),
        ),
        "assumptions": (*checked(), *TRUSTED),
        "seed": 0,
        "software": {"nonvacuous": "0.1.0", "torch": "2.13.0", "numpy": "2.4.0", "python": "3.11"},
        "artifacts": {
            name: digest(name)
            for name in ("config.toml", "split.npz", "prior.safetensors", "posterior.safetensors")
        },
    }
    fields |= changes
    if "baseline" not in fields:
        data = fields["data"]
        share, rest = divmod(data.bound.examples, data.classes)
        counts = [share + (label < rest) for label in range(data.classes)]
        names = [str(label) for label in range(data.classes)]
        fields["baseline"] = baseline_record(counts, names, fields["budget"])
    fields["status"] = status_of(fields["assumptions"])
    return Certificate.sealed(**fields)


def posterior() -> Certificate:
    """MNIST, a small convolutional network, prior learned on half of the data: 0.0159."""
    return build()


WAYS = (
    ("fixed scale", "prior scale 1", 9.4),
    ("fixed scale, rescaled", "prior scale 1, rescaled", 2.6),
    ("best scale", "best prior scale", 1.31),
    ("best scale per tensor, rescaled", "best prior scale per tensor, rescaled", 1.07),
    ("best scale, rescaled", "best prior scale, rescaled", 1.09),
    ("scale of the scores", "+ scale of the scores", 1.05),
    ("shift of the scores", "+ shift of the scores", 1.02),
    ("order of the units", "+ order of the units", 1.0),
)


def rescaling_columns(
    bound: dict[str, Any], *, failure: float, choices: int, center: str = "zero"
) -> tuple[RescalingColumn, ...]:
    """As a post-hoc certificate has them; around the initial weights, those around zero too."""
    names = {"zero": "zero", "initialization": "initial weights"}
    ways = [("zero", *way) for way in WAYS[:5]] if center != "zero" else []
    # Units have an order under a prior that tells them apart.
    ways += [(center, *way) for way in (WAYS if center == "zero" else WAYS[:-1])]
    columns = []
    for number, (around, way, name, factor) in enumerate(ways):
        certified = number == len(ways) - 1
        kl_nats = bound["kl_nats"] * (1.0 if certified else factor)
        charge = math.log(choices) * (0 if "fixed" in way else 6 if "tensor" in way else 1)
        numbers = {**bound, "kl_nats": kl_nats + charge, "failure": failure}
        columns.append(
            RescalingColumn(
                name=f"around {names[around]}, {name}",
                center=around,  # type: ignore[arg-type]
                way=way,  # type: ignore[arg-type]
                kl_nats=kl_nats,
                charge_nats=charge,
                mcallester=bounds.mcallester(**numbers),
                kl_inverse=bounds.seeger(**numbers, exact_moment=True),
                certified=certified,
            )
        )
    return tuple(columns)


def vacuous(kl_nats: float = 92_140.0, center: str = "zero") -> Certificate:
    """The digits, noise around given weights, a prior at zero with a grid of scales: 1.0."""
    examples, failure = 1_437, 0.05
    errors, trials, choices = 4_112, 200_000, 24
    empirical = bounds.sampling(errors=errors, trials=trials, failure=0.01)
    inputs: dict[str, Any] = {
        "empirical_risk": empirical,
        "kl_nats": kl_nats,
        "examples": examples,
        "failure": 0.04 / choices,
    }
    tensors = {
        "0.weight": (38_400, 0.332 * kl_nats),
        "0.bias": (600, 0.001 * kl_nats),
        "2.weight": (360_000, 0.621 * kl_nats),
        "2.bias": (600, 0.001 * kl_nats),
        "4.weight": (6_000, 0.044 * kl_nats),
        "4.bias": (10, 0.001 * kl_nats),
    }
    return build(
        statement="With confidence 0.95 over the draw of the 1437 bound examples of digits and of "
        "the Monte-Carlo trials, the zero-one risk of the randomized network is at most 1.0000. "
        "This says nothing: every risk is at most 1.",
        mode="post-hoc",
        risk_upper=bounds.seeger(**inputs, exact_moment=True),
        bound=BoundRecord(
            name="seeger",
            theorem="PAC-Bayes-kl bound: Seeger (2002), Langford (2005), with the constant of "
            "Maurer (2004)",
            inputs={**inputs, "exact_moment": 1},
        ),
        budget=BudgetRecord(
            failure=failure,
            entries=(
                SpendRecord(
                    name="sampling", failure=0.01, reason="Monte-Carlo estimate of the risk"
                ),
                SpendRecord(
                    name="bound",
                    failure=0.04,
                    reason="PAC-Bayes bound, union over the grid of prior scales",
                    choices=choices,
                ),
            ),
        ),
        data=DataRecord(
            name="digits",
            classes=10,
            preprocessing="pixel/16",
            bound=example_set(examples, "bound"),
        ),
        model=ModelRecord(
            architecture="mlp:600,600", parameters=405_610, fixed_digest=digest("none")
        ),
        prior=DistributionRecord(
            description="Gaussian centered on zero, with a scale (one for all weights) chosen "
            "among 24 from 0.001 to 0.3 that were fixed before the data.",
            digest=digest("zero"),
        ),
        posterior=DistributionRecord(
            description="Gaussian around the given weights with scale 0.0316",
            digest=digest("noise"),
        ),
        complexity=ComplexityRecord(
            terms=terms({name: (size, 1.05 * nats) for name, (size, nats) in tensors.items()}),
            symmetries=(
                SymmetrySaving(
                    symmetry="translation", place="4.weight", units=10, nats=0.03 * kl_nats
                ),
                SymmetrySaving(symmetry="permutation", place="0", units=600, nats=0.02 * kl_nats),
            ),
            kl_nats=kl_nats,
        ),
        rescaling=RescalingRecord(
            kl_before=1.31 * kl_nats,
            kl_after=1.05 * kl_nats,
            log_scales_digest=digest("scales"),
            columns=rescaling_columns(inputs, failure=0.04, choices=choices, center=center),
        ),
        empirical=RiskRecord(
            errors=errors,
            trials=trials,
            scheme="pairs",
            identical=True,
            seed=3,
            risk_upper=empirical,
        ),
        held_out_twin=TwinRecord(
            description="the same architecture trained plainly on 1150 of the examples and tested "
            "once on the other 287",
            errors=7,
            examples=287,
            failure=failure,
            risk_upper=bounds.holdout(errors=7, examples=287, failure=failure),
        ),
        observed=(
            Observation(
                name="the network with the mean weights on the test examples",
                errors=9,
                trials=360,
            ),
        ),
    )


def hopeless() -> Certificate:
    """A certificate that rules something out, but nothing that a guess would not beat."""
    return vacuous(kl_nats=9_214.0)


def post_hoc() -> Certificate:
    """Noise around given weights and a prior at the initial ones: every column there is."""
    return vacuous(kl_nats=512.0, center="initialization")


def refused() -> Certificate:
    """As the posterior, but forty of the bound examples had trained the prior."""
    violated = Assumption(
        name="the prior saw no bound example",
        status="violated",
        detail="40 bound examples are byte for byte among those that trained the prior; split "
        "again with the content hashes, so that copies stay in one role",
        effect="refused",
    )
    kept = tuple(a for a in (*checked(), *TRUSTED) if a.name != violated.name)
    return build(
        statement="No promise is made about the zero-one risk of the randomized network. Found "
        "false: the prior saw no bound example.",
        assumptions=(violated, *kept),
    )


def conditional() -> Certificate:
    """As the posterior, if other certificates on the same examples are not counted."""
    doubtful = Assumption(
        name="earlier certificates on these examples are paid for",
        status="asserted",
        detail="3 certificates were computed on the same bound examples before this one, and the "
        "budget pays for 1",
        effect="conditional",
    )
    kept = tuple(a for a in (*checked(), *TRUSTED) if a.name != doubtful.name)
    return build(assumptions=(*kept, doubtful))


def close() -> Certificate:
    """Test error, twin and certificate within one percent of one another: a test for the scale."""
    twin = TwinRecord(
        description="tested once", errors=223, examples=10_000, failure=0.05, risk_upper=0.0249
    )
    observed = (Observation(name="test examples", errors=210, trials=10_000),)
    return build(
        risk_upper=0.0291,
        held_out_twin=twin,
        observed=observed,
        bound=BoundRecord(name="published table", theorem="taken as given", inputs={}),
    )


def holdout() -> Certificate:
    """A ResNet tested on 10,000 examples that nobody had looked at: no prior, no complexity."""
    errors, examples, failure = 612, 10_000, 0.05
    common: dict[str, Any] = {"errors": errors, "examples": examples, "failure": failure}
    return build(
        statement="With confidence 0.95 over the draw of the 10000 bound examples of CIFAR-10, the "
        "zero-one risk of the network is at most 0.0653.",
        mode="holdout",
        predictor="deterministic",
        risk_upper=bounds.holdout(**common),
        bound=BoundRecord(
            name="holdout",
            theorem="Exact binomial tail: Clopper and Pearson (1934), Langford (2005), Theorem 3.3",
            inputs=common,
        ),
        budget=BudgetRecord(
            failure=failure,
            entries=(SpendRecord(name="bound", failure=failure, reason="exact binomial tail"),),
        ),
        data=DataRecord(
            name="CIFAR-10",
            classes=10,
            preprocessing="channels centered and scaled with constants fixed beforehand",
            bound=example_set(examples, "bound"),
        ),
        model=ModelRecord(
            architecture="resnet:18", parameters=11_173_962, fixed_digest=digest("resnet")
        ),
        prior=None,
        posterior=None,
        complexity=None,
        empirical=RiskRecord(
            errors=errors,
            trials=examples,
            scheme="every example once",
            identical=True,
            seed=0,
            risk_upper=errors / examples,
        ),
        held_out_twin=None,
        observed=(),
    )


def hostile() -> Certificate:
    """Every name there is, chosen by an enemy."""
    tensors = {name: (10 + i, 1.0 + i) for i, name in enumerate(HOSTILE)}
    joined = " ".join(HOSTILE)
    return build(
        statement=joined,
        model=ModelRecord(architecture=joined, parameters=1, fixed_digest=digest("x")),
        data=DataRecord(
            name=joined, classes=3, preprocessing=joined, bound=example_set(100, "bound")
        ),
        complexity=ComplexityRecord(
            terms=terms(tensors), kl_nats=sum(nats for _, nats in tensors.values())
        ),
        prior=DistributionRecord(description=joined, digest=digest("p")),
        posterior=DistributionRecord(description=joined, digest=digest("q")),
        bound=BoundRecord(name=HOSTILE[0], theorem=joined, inputs={"kl_nats": 1.0}),
        held_out_twin=TwinRecord(
            description=joined, errors=1, examples=10, failure=0.05, risk_upper=0.4
        ),
        rescaling=RescalingRecord(
            kl_before=2.0,
            kl_after=1.0,
            log_scales_digest=digest("s"),
            columns=tuple(
                RescalingColumn(
                    name=name,
                    center="zero",
                    way="fixed scale" if number else "fixed scale, rescaled",
                    kl_nats=1.0 + number,
                    charge_nats=0.0,
                    mcallester=0.5,
                    kl_inverse=0.5,
                    certified=number == 3,
                )
                for number, name in enumerate(HOSTILE)
            ),
        ),
        observed=tuple(Observation(name=f"test {n}", errors=1, trials=9) for n in HOSTILE),
        assumptions=tuple(
            Assumption(name=n, status="asserted", detail=n, effect="conditional") for n in HOSTILE
        ),
        software={name: name for name in HOSTILE},
        artifacts={name: digest(name) for name in HOSTILE},
    )


def events() -> list[dict[str, Any]]:
    """The lines of an events.jsonl."""
    prior = [
        {
            "time": "2026-01-01T00:00:00.000+00:00",
            "phase": "prior",
            "event": "epoch",
            "epoch": epoch,
            "metrics": {"epoch": epoch + 1, "loss": 2.3 * 0.8**epoch + 0.02},
        }
        for epoch in range(30)
    ]
    trained = [
        {
            "time": "2026-01-01T00:00:00.000+00:00",
            "phase": "posterior",
            "event": "epoch",
            "epoch": epoch,
            "metrics": {
                "epoch": epoch + 1,
                "objective": 0.031 + 0.05 * 0.85**epoch,
                "error": 0.0097 + 0.01 * 0.8**epoch,
                "kl": 60.0,
            },
        }
        for epoch in range(20)
    ]
    return [*prior, {"phase": "posterior", "event": "start"}, *trained]


SAMPLES = {
    "posterior": posterior,
    "vacuous": vacuous,
    "hopeless": hopeless,
    "post_hoc": post_hoc,
    "refused": refused,
    "conditional": conditional,
    "close": close,
    "holdout": holdout,
    "hostile": hostile,
}
