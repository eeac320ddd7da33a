"""A small honest certificate in the making, whose facts tests can then spoil one by one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.audit.evidence import Evidence, Search
from nonvacuous.audit.probing import Network, recount
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.records import (
    BudgetRecord,
    ComplexityRecord,
    DataRecord,
    KlTerm,
    RiskRecord,
)
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.pairs import estimate_risk
from nonvacuous.rules.arithmetic import (
    bound_record,
    complexity_nats,
    ledger,
    recompute_bound,
    sampled_risk,
    total_nats,
)
from nonvacuous.rules.digests import example_set, fixed_tensors
from nonvacuous.rules.drawing import draw_network, sampling_seed
from nonvacuous.rules.symmetries import SYMMETRIES, captured, symmetry_savings

FAILURE = 0.05
TRIALS = 2_000
SCALES = 4


def examples(count: int = 120, *, seed: int = 0, name: str = "world") -> Examples:
    """Three classes in four dimensions, told apart by a linear rule."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator)
    rule = torch.tensor([[1.0, -1.0, 0.0], [0.5, 0.0, -1.0], [0.0, 1.0, 1.0], [-1.0, 0.5, 0.5]])
    return Examples(inputs, (inputs @ rule).argmax(1), ("a", "b", "c"), name)


def split(count: int = 120) -> Split:
    order = np.random.default_rng(0).permutation(count)
    prior, held_out = count // 3, count // 12
    return Split(order[:prior], order[prior + held_out :], order[prior : prior + held_out])


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


class WithBuffer(nn.Module):
    """A network that centers its inputs with statistics kept in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(4))
        self.layers = network()
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs - self.center)
        return scores


def moved(module: nn.Module, step: float, seed: int = 1) -> dict[str, Tensor]:
    """Weights near those of the module."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: p.detach() + step * torch.randn(p.shape, generator=generator)
        for name, p in module.named_parameters()
    }


def budget_record(
    *, sampling: bool = True, choices: int = SCALES, mode: str = "posterior"
) -> BudgetRecord:
    return ledger(mode=mode, failure=FAILURE, attempts=1, sampled=sampling, choices=choices)


def risk_record(fields: dict[str, Any], budget: BudgetRecord) -> RiskRecord:
    once = fields["scheme"] == "every example once"
    draft = RiskRecord(**fields, risk_upper=1.0)
    failure = None if once else budget.sampling.share
    return RiskRecord(**fields, risk_upper=sampled_risk(draft, failure))


def complexity_of(
    posterior: DiagonalGaussian, prior: DiagonalGaussian, ratio: float | None = None
) -> ComplexityRecord:
    terms = tuple(
        KlTerm(tensor=name, size=posterior.means[name].numel(), nats=nats)
        for name, nats in posterior.kl_to(prior).items()
    )
    return ComplexityRecord(terms=terms, kl_nats=total_nats(terms), log_density_ratio=ratio)


def data_record(data: Examples, parts: Split) -> DataRecord:
    return DataRecord(
        name=data.name,
        classes=data.classes,
        preprocessing="as given",
        bound=example_set(data, parts.bound),
        prior=example_set(data, parts.prior),
        held_out=example_set(data, parts.heldout),
    )


def stochastic(
    *,
    module: nn.Module | None = None,
    loss: Loss = zero_one,
    seed: int = 7,
    data: Examples | None = None,
    parts: Split | None = None,
) -> Evidence:
    """Honest evidence for a randomized network."""
    data, parts = data or examples(), parts or split()
    module = module or network()
    prior = DiagonalGaussian.around(module, scale=0.1)
    posterior = DiagonalGaussian(means=moved(module, 0.05), scales=prior.scales)
    certified = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in certified.named_parameters():
            parameter.copy_(posterior.means[name])
    digest = posterior.digest()
    sampled_with = sampling_seed(seed, digest)
    generator = torch.Generator().manual_seed(sampled_with)
    bound_part = data.subset(parts.bound)
    estimate = estimate_risk(
        certified, posterior, bound_part, loss=loss, trials=TRIALS, generator=generator
    )
    budget = budget_record()
    risk = risk_record(
        {
            "errors": estimate.errors,
            "total": estimate.total if estimate.errors is None else None,
            "trials": estimate.trials,
            "scheme": estimate.scheme,
            "identical": True,
            "seed": sampled_with,
        },
        budget,
    )
    complexity = complexity_of(posterior, prior)
    bound = bound_record(
        "seeger",
        empirical_risk=risk.risk_upper,
        kl_nats=complexity.kl_nats,
        examples=len(parts.bound),
        failure=budget.bound.share,
        exact_moment=True,
    )
    return Evidence(
        mode="posterior",
        predictor="stochastic",
        measured_predictor="stochastic",
        module=certified,
        examples=data,
        split=parts,
        loss=loss,
        bound=bound,
        budget=budget,
        risk=risk,
        seed=seed,
        evaluation_transform="as given",
        risk_transform="as given",
        searches=(
            Search("prior scale", SCALES, "bound", "a union over a grid fixed before the data"),
        ),
        prior=prior,
        posterior=posterior,
        complexity=complexity,
        posterior_at_kl=digest,
        posterior_at_risk=digest,
        fixed_before={name: t.clone() for name, t in fixed_tensors(module, prior.names).items()},
        prior_saw=parts.prior,
        draws=(("posterior training", 3), ("freeze", 0), ("sampling", sampled_with)),
        test_reads=("freeze", "report"),
        test=examples(40, seed=5, name="world (test)"),
        risk_upper=recompute_bound(bound),
        confidence=1.0 - FAILURE,
        data=data_record(data, parts),
    )


def symmetric(
    *, which: tuple[str, ...] = SYMMETRIES, loss: Loss = zero_one, units: int = 8
) -> Evidence:
    """Honest evidence whose KL makes use of symmetries: noise around weights, a prior at zero."""
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 6), nn.ReLU(), nn.Linear(6, 3)
    ).eval()
    base = stochastic(module=module, loss=loss)
    prior = DiagonalGaussian.centered(module, scale=0.5)
    posterior = DiagonalGaussian.around(module, scale=0.02)
    graph = captured(module, base.examples.inputs)
    savings = symmetry_savings(graph, posterior, prior, loss=loss.name, which=which)
    plain = complexity_of(posterior, prior)
    complexity = plain.model_copy(
        update={"symmetries": savings, "kl_nats": complexity_nats(plain.terms, savings)}
    )
    digest = posterior.digest()
    sampled_with = sampling_seed(base.seed, digest)
    estimate = estimate_risk(
        module,
        posterior,
        base.examples.subset(base.split.bound),
        loss=loss,
        trials=TRIALS,
        generator=torch.Generator().manual_seed(sampled_with),
    )
    fields = {
        **{name: getattr(base.risk, name) for name in ("scheme", "identical")},
        "errors": estimate.errors,
        "total": estimate.total if estimate.errors is None else None,
        "trials": estimate.trials,
        "seed": sampled_with,
    }
    risk = risk_record(fields, base.budget)
    bound = bound_record(
        "seeger",
        empirical_risk=risk.risk_upper,
        kl_nats=complexity.kl_nats,
        examples=base.bound_examples,
        failure=base.budget.bound.share,
        exact_moment=True,
    )
    return changed(
        base,
        mode="post-hoc",
        module=module,
        prior=prior,
        posterior=posterior,
        complexity=complexity,
        posterior_at_kl=digest,
        posterior_at_risk=digest,
        risk=risk,
        bound=bound,
        risk_upper=recompute_bound(bound),
        prior_saw=None,
        draws=(("posterior training", 3), ("freeze", 0), ("sampling", sampled_with)),
        searches=(
            *base.searches,
            Search("posterior symmetries", 4, "free", "the bound holds for all posteriors at once"),
        ),
    )


def drawn(*, seed: int = 7, module: nn.Module | None = None) -> Evidence:
    """Honest evidence for one network drawn from the posterior."""
    base = stochastic(seed=seed, module=module)
    assert base.posterior is not None and base.prior is not None
    weights = draw_network(base.posterior, base.risk.seed)
    budget = budget_record(sampling=False)
    counted = recount(
        Network.of(base.module, weights), base.examples.subset(base.split.bound), base.loss
    )
    risk = risk_record(
        {
            "errors": counted.errors,
            "trials": counted.trials,
            "scheme": "every example once",
            "identical": True,
            "seed": base.risk.seed,
        },
        budget,
    )
    ratio = base.posterior.log_density_ratio(base.prior, weights)
    bound = bound_record(
        "disintegrated",
        empirical_risk=risk.risk_upper,
        log_density_ratio=ratio,
        examples=base.bound_examples,
        failure=budget.bound.share,
    )
    return changed(
        base,
        predictor="drawn",
        measured_predictor="drawn",
        bound=bound,
        budget=budget,
        risk=risk,
        complexity=complexity_of(base.posterior, base.prior, ratio),
        drawn=weights,
        risk_upper=recompute_bound(bound),
    )


def holdout(*, module: nn.Module | None = None) -> Evidence:
    """Honest evidence for a plain test."""
    base = stochastic(module=module)
    budget = budget_record(sampling=False, choices=1, mode="holdout")
    counted = recount(Network.of(base.module), base.examples.subset(base.split.bound), base.loss)
    risk = risk_record(
        {
            "errors": counted.errors,
            "trials": counted.trials,
            "scheme": "every example once",
            "identical": True,
            "seed": base.seed,
        },
        budget,
    )
    assert risk.errors is not None
    bound = bound_record(
        "holdout",
        errors=risk.errors,
        examples=base.bound_examples,
        failure=budget.bound.share,
    )
    return changed(
        base,
        mode="holdout",
        unseen=True,
        predictor="deterministic",
        measured_predictor="deterministic",
        bound=bound,
        budget=budget,
        risk=risk,
        searches=(),
        prior=None,
        posterior=None,
        complexity=None,
        posterior_at_kl=None,
        posterior_at_risk=None,
        fixed_before=None,
        prior_saw=None,
        draws=(("freeze", 0),),
        risk_upper=recompute_bound(bound),
    )


def changed(evidence: Evidence, **changes: Any) -> Evidence:
    """The same evidence with some facts replaced."""
    fields = {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}
    return Evidence(**{**fields, **changes})
