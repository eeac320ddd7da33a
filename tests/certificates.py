"""Certificates made by hand, for tests that need one without a network or data."""

from __future__ import annotations

from typing import Any

from nonvacuous.certificate import Certificate
from nonvacuous.records import (
    Assumption,
    BaselineRecord,
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
    TwinRecord,
)
from nonvacuous.sparsity_records import ChargeRecord, NoiseLayer, SparsityRecord

DIGEST = "0123456789abcdef" * 4
IID = Assumption(name="examples are independent", status="not checkable", detail="not testable")
DOUBT = Assumption(name="groups", status="asserted", detail="none named", effect="conditional")
BROKEN = Assumption(name="buffers", status="violated", detail="they moved", effect="refused")
MODES = ("posterior", "post-hoc", "sparsity", "holdout")

SPARSITY = SparsityRecord(
    theorem="E",
    variant="sparse",
    layers=(
        NoiseLayer(name="0", tensors=("0.weight",), scale=0.5, squared_distance=0.25),
        NoiseLayer(name="2", tensors=("2.weight", "2.bias"), scale=0.25, squared_distance=0.0),
    ),
    network_digest=DIGEST,
    escape=0.05,
    setting={"first": -4, "steps": (-4,), "tail": "cap", "anchored": True, "other": None},
    charges=(ChargeRecord(name="escape probability", choice="0.05", nats=2.5),),
    grid_nats=2.5,
    choices=1,
    passes=4,
    loss_upper=0.0625,
    device="cpu",
    prior="learned",
    prior_fraction=0.2,
    shortest_input=0.5,
    longest_input=1.0,
    threshold=None,
    margin=0.125,
)


def fields(mode: str = "posterior", **changes: Any) -> dict[str, Any]:
    """Everything but the digest, for any mode."""
    examples = ExampleSet(examples=1437, index_digest=DIGEST, content_digest=DIGEST)
    base: dict[str, Any] = {
        "statement": "with confidence 0.95 the risk is at most 0.25",
        "status": "valid",
        "mode": mode,
        "predictor": "deterministic" if mode in ("holdout", "sparsity") else "stochastic",
        "loss": LossRecord(name="zero-one"),
        "confidence": 0.95,
        "risk_upper": 0.25,
        "bound": BoundRecord(name="seeger", theorem="PAC-Bayes-kl", inputs={"n": 1437, "d": 0.04}),
        "budget": BudgetRecord(
            failure=0.05,
            entries=(
                SpendRecord(name="sampling", failure=0.01, reason="Monte Carlo"),
                SpendRecord(name="bound", failure=0.04, reason="PAC-Bayes", choices=7),
            ),
        ),
        "data": DataRecord(name="digits", classes=10, preprocessing="none", bound=examples),
        "model": ModelRecord(architecture="mlp:32", parameters=2410, fixed_digest=DIGEST),
        "empirical": RiskRecord(
            errors=31, trials=1000, scheme="pairs", identical=True, seed=5, risk_upper=0.0625
        ),
        "held_out_twin": TwinRecord(
            description="test set", errors=9, examples=360, failure=0.05, risk_upper=0.05
        ),
        "baseline": BaselineRecord(
            answer=1, name="1", errors=1290, examples=1437, failure=0.005, risk_lower=0.87
        ),
        "observed": (Observation(name="test", errors=9, trials=360),),
        "assumptions": (IID,),
        "seed": 3,
        "software": {"nonvacuous": "0.1.0"},
        "artifacts": {"prior.safetensors": DIGEST},
    }
    if mode != "holdout":
        distribution = DistributionRecord(description="Gaussian", digest=DIGEST, saw=DIGEST)
        terms = (KlTerm(tensor="0.weight", size=2048, nats=12.5),)
        base |= {
            "prior": distribution,
            "posterior": distribution,
            "complexity": ComplexityRecord(terms=terms, kl_nats=12.5, log_density_ratio=-2.5),
            "rescaling": RescalingRecord(
                kl_before=14.5,
                kl_after=12.5,
                log_scales_digest=DIGEST,
                columns=(
                    RescalingColumn(
                        name="after",
                        center="zero",
                        way="fixed scale, rescaled",
                        kl_nats=12.5,
                        charge_nats=0.0,
                        mcallester=0.5,
                        kl_inverse=0.25,
                        certified=True,
                    ),
                ),
            ),
        }
    if mode == "sparsity":
        base |= {"rescaling": None, "sparsity": SPARSITY}
    return base | changes


def sealed(mode: str = "posterior", **changes: Any) -> Certificate:
    return Certificate.sealed(**fields(mode, **changes))
