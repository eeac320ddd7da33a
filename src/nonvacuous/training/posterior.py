"""Posterior training: move a Gaussian over the weights so that its PAC-Bayes bound falls.

Q starts at the prior P (or where it is told to) and follows the gradient of a bound, with a
bounded cross-entropy in place of the 0-1 loss. The network runs in evaluation mode throughout:
its buffers stay those of the prior, as a certificate requires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.models.fronts import behind_fixed_front
from nonvacuous.seeds import DRAWS, derived_seed
from nonvacuous.settings import Count, Inside, NonNegative, Positive, PositiveCount, Share
from nonvacuous.training import checks, optimizers
from nonvacuous.training.graphs import Branch, Inputs, Recordings, fast_arithmetic
from nonvacuous.training.loop import Learner, Records, run_epochs
from nonvacuous.training.objectives import OBJECTIVES, Plan, bounded_cross_entropy, power_loss
from nonvacuous.training.stochastic import draw_noise, find_layout, noisy_call
from nonvacuous.training_settings import PosteriorTraining, RateSchedule

_SCALE_RATE = 20.0
_STEP = "training step"
_KEPT_BYTES = 31 << 20


@dataclass(frozen=True, eq=False)
class TrainedPosterior:
    """A trained posterior and how it came about.

    posterior        the Gaussian after the last step
    history          one entry per epoch: objective, surrogate risk, error rate and KL as they ran
                     during the epoch. None of them certifies anything: recompute the KL with
                     `posterior.kl_to(prior)` and the risk with `estimate_risk`
    free_parameter   of an objective that has one, the trade-off of 'thiemann' or the temperature of
                     'catoni': its best value after the last epoch
    """

    posterior: DiagonalGaussian
    history: tuple[Mapping[str, Any], ...]
    free_parameter: float | None


class PosteriorSettings(PosteriorTraining):
    """Posterior training as :func:`train_posterior` takes it, with the numbers of its bound.

    kl_penalty       1 is the bound itself
    failure          the failure probability the objective plans with
    bound_examples   how many examples the certificate will count; by default all
    """

    kl_penalty: NonNegative = 1.0
    epochs: Count = 30
    batch_size: PositiveCount = 256
    learning_rate: Positive = 0.02
    scale_learning_rate: NonNegative | None = None
    momentum: Share = 0.95
    schedule: RateSchedule = "constant"
    minimum_probability: Inside = 0.01
    failure: Inside = 0.05
    bound_examples: PositiveCount | None = None


def train_posterior(
    model: nn.Module,
    prior: DiagonalGaussian,
    examples: Examples,
    settings: PosteriorTraining | None = None,
    *,
    start: DiagonalGaussian | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    record: bool | None = None,
    records: Records | None = None,
) -> TrainedPosterior:
    """Train a Gaussian posterior over all parameters of `model` on a PAC-Bayes objective.

    Neither the model nor the distributions given are changed. The result depends on the arguments
    and `seed` alone (on a CPU: bit for bit, killed and resumed or not).

    prior      fixed: only the posterior moves
    examples   a posterior may see all data, those of the bound included
    start      where the posterior starts; by default at the prior. From a prior that guesses, start
               around a trained network: near such a prior the bound has a minimum of its own
    device     where to compute and where the result lies; by default the prior's device
    record     on a GPU: record the step once and replay it, several times faster for small
               networks; by default where the network allows it, for its forward pass must not
               depend on values of tensors
    """
    examples = Examples.of(examples)
    begin = start or prior
    prior.check_covers(model)
    begin.check_covers(model)
    chosen = PosteriorSettings(**dict(settings or ()))
    if chosen.scale_learning_rate is None:
        chosen = chosen.changed(scale_learning_rate=_SCALE_RATE * chosen.learning_rate)
    if chosen.bound_examples is None:
        chosen = chosen.changed(bound_examples=max(1, len(examples)))
    checks.whole_number("seed", seed, least=0)
    where = prior.device if device is None else torch.device(device)
    if record and where.type != "cuda":
        raise BadInput(f"record=True needs a CUDA device, but the device is {where}: leave it out.")
    learner = _Learner(model, prior, begin, examples, chosen, seed, where, record=record)
    with fast_arithmetic(where):
        run_epochs(
            learner,
            "posterior",
            records or Records(),
            configuration=lambda: {
                **chosen.record(),
                "seed": seed,
                "kind": "posterior training",
                # An earlier release drew other noise: nobody could repeat a training with both.
                "draws": DRAWS,
                "architecture": str(model),
                "buffers": tensors_digest(dict(model.named_buffers())),
                "prior": prior.digest(),
                "start": begin.digest(),
                "examples": examples.content_hash(),
            },
            advice=(
                f"Try a smaller learning_rate (now {chosen.learning_rate:g}) or "
                f"scale_learning_rate (now {chosen.scale_learning_rate:g}), or a smaller prior "
                "scale."
            ),
        )
    return TrainedPosterior(
        posterior=learner.posterior(),
        history=tuple(learner.facts["history"]),
        free_parameter=learner.facts["free_parameter"],
    )


class _Learner(Learner):
    """The state of posterior training.

    All means lie in one flat tensor, all log-scales (relative to the prior's scales) in another:
    KL and optimizer step are then a few kernels, whatever the number of layers.
    """

    settings: PosteriorSettings

    def __init__(
        self,
        model: nn.Module,
        prior: DiagonalGaussian,
        start: DiagonalGaussian,
        examples: Examples,
        settings: PosteriorSettings,
        seed: int,
        device: torch.device,
        *,
        record: bool | None,
    ) -> None:
        self.settings, self.seed = settings, seed
        self._bound_examples = settings.bound_examples or max(1, len(examples))
        self._module = module = copied_network(model).to(device).eval().requires_grad_(False)
        inputs, self.labels = checks.resident(examples, module, device)
        inputs = behind_fixed_front(module, inputs)
        self._layout = find_layout(module, inputs[:3])
        self._inputs = Inputs(inputs, module)
        self._like = dict(module.named_parameters())
        self._sizes = [parameter.numel() for parameter in self._like.values()]
        self._prior_means = self._flat(prior.means)
        self._prior_scales = self._flat(prior.scales)
        self._prior_variances = self._prior_scales.square()
        self._precisions = self._prior_variances.reciprocal()
        self._means = self._flat(start.means).clone().requires_grad_(True)
        ratios = torch.log(self._flat(start.scales) / self._prior_scales)
        self._log_ratios = ratios.requires_grad_(True)
        self.optimizer = optimizers.build_optimizer(
            settings.optimizer,
            [
                ([self._means], settings.learning_rate),
                ([self._log_ratios], settings.scale_learning_rate or 0.0),
            ],
            momentum=settings.momentum,
            fused=True,
        )
        self._objective = OBJECTIVES[settings.objective]
        self._generator = torch.Generator(device=device)
        self._warm_up = settings.warm_up_epochs * -(-len(examples) // settings.batch_size)
        self._penalty = torch.tensor(settings.kl_penalty, dtype=torch.float64, device=device)
        self._must_record = record is True
        self._recordings: Recordings | None = None
        self._branch = Branch(device)
        if device.type == "cuda" and record is not False:
            optimizers.make_recordable(self.optimizer)
            self._recordings = Recordings(
                device,
                generator=self._generator,
                instead="Leave record out: training is then slower, with the same result.",
            )
        self._batch = torch.zeros(settings.batch_size, dtype=torch.int64, device=device)
        # Written anew in every step: new memory costs more than the numbers. For what else a step
        # needs: once so much was freed, the C library keeps what is freed for the next request.
        torch.empty(_KEPT_BYTES if device.type == "cpu" else 0, dtype=torch.uint8)
        self._shifts, self._pulls, self._growth, self._variances, self._terms = (
            torch.empty_like(self._prior_means) for _ in range(5)
        )
        self._means.grad, self._log_ratios.grad = self._pulls, self._growth
        # Sums over the epoch's examples of objective, risk, errors, KL and penalized KL.
        self._sums = torch.zeros(5, dtype=torch.float64, device=device)
        parameter = None if self._objective.best_parameter is None else 1.0
        self.facts: dict[str, Any] = {"history": [], "free_parameter": parameter}

    def tensors(self) -> dict[str, Tensor]:
        return {
            "means": self._means,
            "log_ratios": self._log_ratios,
            "sums": self._sums,
            **optimizers.optimizer_tensors(self.optimizer),
        }

    def step(self, batch: Tensor, *, epoch: int, step: int, done: int) -> None:
        if self._warm_up:
            self._penalty.fill_(self.settings.kl_penalty * min(1.0, done / self._warm_up))
        size = len(batch)
        self._batch[:size] = batch
        if self._recordings is not None and (_STEP, size) not in self._recordings:
            try:
                changing = list(self.tensors().values())
                self._recordings.record(_STEP, size, self._advance, changing=changing)
            except Unsupported:
                if self._must_record:
                    raise
                self._recordings = None
        self._generator.manual_seed(derived_seed(self.seed, "noise", epoch, step))
        if self._recordings is None:
            self._advance(size)
            return
        self._recordings.begin()
        self._recordings.replay(_STEP, size)
        self._recordings.end()

    def _advance(self, size: int) -> None:
        """One step on the examples that are noted in `_batch`."""
        self._find_slopes(self._batch[:size])
        optimizers.take_step(self.optimizer)

    def _find_slopes(self, batch: Tensor) -> None:
        """Slopes by means and log-scales; adds to the sums. Nothing here waits for the GPU.

        Of the network alone they come from torch. There are as many numbers as weights, and every
        pass over them counts: the rest is written out, with r = ln(scale of Q / scale of P).
        """
        settings, labels = self.settings, self.labels[batch]
        ratios = self._log_ratios.detach()
        with torch.no_grad():
            shifts = torch.sub(self._means, self._prior_means, out=self._shifts)
            pulls = torch.mul(shifts, self._precisions, out=self._pulls)
            # Of the variances, from those of P; exp2 takes a quarter of the time of expm1.
            growth = torch.mul(ratios, 2.0 / math.log(2.0), out=self._growth).exp2_()
            own = self._prior_variances
            variances = self._named(torch.mul(own, growth, out=self._variances))
            growth -= 1.0
            noise = draw_noise(self._layout, variances, self._generator)
        means = self._named(self._means.detach())
        leaves = [tensor.requires_grad_(True) for tensor in (*means.values(), *noise.values())]
        outputs = noisy_call(
            self._module,
            self._inputs[batch],
            layout=self._layout,
            means=means,
            noise=noise,
            generator=self._generator,
        )
        if settings.power is None:
            losses = bounded_cross_entropy(
                outputs, labels, minimum_probability=settings.minimum_probability
            )
        else:
            losses = power_loss(outputs, labels, power=settings.power)
        risk = losses.mean(dtype=torch.float64)
        # Some hundred kernels for a few numbers: a GPU finds the slopes of the network meanwhile.
        with self._branch.begun():
            with torch.no_grad():
                terms = torch.sub(growth, ratios, alpha=2.0, out=self._terms)
                kl = 0.5 * terms.addcmul_(shifts, pulls).sum().double()
                error = (outputs.argmax(dim=1) != labels).double().mean()
            value, penalized, (by_risk, by_kl) = self._bound(risk.detach(), kl)
            sums = torch.stack([value, risk.detach(), error, kl.detach(), penalized])
            self._sums.add_(sums, alpha=len(batch))
        try:
            # Given as an argument, the slope would make torch import sympy at the first step.
            slopes = torch.autograd.grad(
                risk if risk.is_cuda else risk * by_risk, leaves, materialize_grads=True
            )
        except RuntimeError as failure:
            checks.check_learnable(risk)
            if "checkpoint" not in str(failure).lower():
                raise
            raise BadInput(
                "the network computes a part of itself again for its gradients "
                "(torch.utils.checkpoint), and by then the weights that were drawn are gone; "
                "switch checkpointing off for posterior training."
            ) from failure
        with torch.no_grad():
            self._branch.joined()
            if risk.is_cuda:
                slopes = torch._foreach_mul(slopes, by_risk.to(pulls.dtype))
            count, by_kl = len(self._sizes), by_kl.to(pulls.dtype)
            flat = [slope.reshape(-1) for slope in slopes]
            torch.addcmul(torch.cat(flat[:count], out=self._terms), pulls, by_kl, out=pulls)
            # A draw grows with the scale, a variance with its square.
            torch._foreach_addcmul_(
                growth.mul_(by_kl).split(self._sizes),
                [drawn.reshape(-1) for drawn in noise.values()],
                flat[count:],
                [2.0 if drawn is variances[name] else 1.0 for name, drawn in noise.items()],
            )

    def _bound(self, risk: Tensor, kl: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The objective and the penalized KL, and the slopes of the objective by risk and KL."""
        risk, kl = risk.requires_grad_(True), kl.requires_grad_(True)
        penalized = kl * self._penalty
        plan = Plan(self._bound_examples, self.settings.failure, self.facts["free_parameter"])
        value = self._objective.function(risk, penalized, plan)
        slopes = torch.autograd.grad(value, (risk, kl))
        return value.detach(), penalized.detach(), slopes

    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        value, risk, error, kl, penalized = (self._sums / len(self.labels)).tolist()
        self._sums.zero_()
        parameter = self.facts["free_parameter"]
        record = {"epoch": epoch + 1, "objective": value, "risk": risk, "error": error, "kl": kl}
        if parameter is not None:
            record["free_parameter"] = parameter
        if self._objective.best_parameter is not None:
            self.facts["free_parameter"] = self._objective.best_parameter(
                empirical_risk=min(1.0, max(0.0, risk)),
                kl_nats=max(0.0, penalized),
                examples=self._bound_examples,
                failure=self.settings.failure,
            )
            if self._recordings is not None:
                self._recordings.forget()  # They hold the old value as a constant.
        return record, False

    def posterior(self) -> DiagonalGaussian:
        with torch.no_grad():
            return DiagonalGaussian(
                means=self._named(self._means),
                scales=self._named(self._prior_scales * torch.exp(self._log_ratios)),
            )

    def _flat(self, tensors: Mapping[str, Tensor]) -> Tensor:
        where = self.labels.device
        return torch.cat([tensors[name].to(where).reshape(-1) for name in self._like])

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split(self._sizes)
        return {
            name: part.view(like.shape).to(like.dtype)
            for part, (name, like) in zip(parts, self._like.items(), strict=True)
        }
