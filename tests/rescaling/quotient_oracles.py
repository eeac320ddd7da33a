"""Slow and independent: true divergences after a symmetry was divided out, and small worlds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.output_layer import OutputLayer
from nonvacuous.rescaling.unit_layers import UnitLayer
from tests.rescaling.hand_groups import HandGroups, mlp

# Names that hand_groups.mlp gives to the tensors of a network with one hidden layer.
HIDDEN_WEIGHT, HIDDEN_BIAS, WEIGHT, BIAS = "tensor0", "tensor1", "tensor2", "tensor3"
OUTPUT = OutputLayer(WEIGHT, BIAS)


@dataclass(frozen=True, eq=False)
class World:
    """A network inputs-units-classes with a posterior and a prior."""

    groups: HandGroups
    Q: DiagonalGaussian
    P: DiagonalGaussian

    @property
    def units(self) -> int:
        return self.groups.shapes[HIDDEN_WEIGHT][0]

    @property
    def layer(self) -> UnitLayer:
        blocks = ((HIDDEN_WEIGHT, 0, 1), (HIDDEN_BIAS, 0, 1), (WEIGHT, 1, 1))
        return UnitLayer("hidden", self.units, blocks)


def small_world(
    units: int,
    classes: int,
    *,
    inputs: int = 2,
    seed: int = 0,
    spread: float = 1.0,
    scale: float = 0.3,
    centered: bool = True,
    same_scales: bool = False,
) -> World:
    """Random means of size ``spread``, scales around ``scale``; a prior that may have means."""
    groups = mlp(inputs, units, classes)
    rng = np.random.default_rng(seed)
    means, scales, prior_means, prior_scales = {}, {}, {}, {}
    for name, shape in groups.shapes.items():
        means[name] = torch.from_numpy(spread * rng.standard_normal(shape))
        wobble = np.ones(shape) if same_scales else np.exp(0.5 * rng.standard_normal(shape))
        scales[name] = torch.from_numpy(scale * wobble)
        prior_means[name] = torch.zeros(shape, dtype=torch.float64)
        if not centered:
            prior_means[name] += torch.from_numpy(rng.standard_normal(shape))
        prior_scales[name] = torch.full(shape, 0.5 + rng.random(), dtype=torch.float64)
    return World(
        groups,
        DiagonalGaussian(means=means, scales=scales),
        DiagonalGaussian(means=prior_means, scales=prior_scales),
    )


def shift_basis(classes: int) -> np.ndarray:
    """[classes, classes - 1], orthonormal and orthogonal to (1, ..., 1)."""
    full = np.column_stack([np.ones(classes), np.eye(classes)[:, :-1]])
    return np.linalg.qr(full)[0][:, 1:]


def gaussian_kl(
    mean: np.ndarray, covariance: np.ndarray, prior_mean: np.ndarray, prior_covariance: np.ndarray
) -> float:
    """KL between two Gaussians with full covariances."""
    inverse = np.linalg.inv(prior_covariance)
    difference = mean - prior_mean
    value = np.trace(inverse @ covariance) + difference @ inverse @ difference - len(mean)
    value += np.linalg.slogdet(prior_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return float(value) / 2


def shift_free_kl(Q: DiagonalGaussian, P: DiagonalGaussian, name: str) -> float:
    """KL of one tensor [classes, ...] after projecting every column away from (1, ..., 1)."""
    parts = [t[name].double().numpy() for t in (Q.means, Q.scales, P.means, P.scales)]
    mean, scale, prior_mean, prior_scale = (p.reshape(len(p), -1) for p in parts)
    basis = shift_basis(len(mean))
    return math.fsum(
        gaussian_kl(
            basis.T @ mean[:, k],
            basis.T @ np.diag(scale[:, k] ** 2) @ basis,
            basis.T @ prior_mean[:, k],
            basis.T @ np.diag(prior_scale[:, k] ** 2) @ basis,
        )
        for k in range(mean.shape[1])
    )


@dataclass(frozen=True)
class Estimate:
    nats: float
    standard_error: float


def symmetrized_kl(world: World, *, forget_shift: bool, draws: int, seed: int = 0) -> Estimate:
    """The true KL after averaging over all orders of the hidden units, by Monte Carlo.

    With ``forget_shift`` the last layer is first projected away from a common shift of the
    classes. All orders are listed, so this is for two to five units.
    """
    basis = shift_basis(world.groups.shapes[WEIGHT][0])
    if not forget_shift:
        basis = np.eye(len(basis))
    units, rng = world.units, np.random.default_rng(seed)
    laws = [[_block(side, k, basis) for k in range(units)] for side in (world.Q, world.P)]
    drawn = [_sample(law, draws, rng) for law in laws[0]]
    # logs[k][j]: the density of unit j's law at the block drawn for place k.
    logs = [[_log_density(drawn[k], laws[0][j]) for j in range(units)] for k in range(units)]
    orders = list(itertools.permutations(range(units)))
    per_order = np.stack([sum(logs[k][o[k]] for k in range(units)) for o in orders])
    mixture = np.logaddexp.reduce(per_order, axis=0) - math.log(len(orders))
    own = sum(logs[k][k] for k in range(units))
    exact = sum(
        gaussian_kl(*law, *prior_law) for law, prior_law in zip(laws[0], laws[1], strict=True)
    )
    # Only the difference is sampled: the ordinary KL is known exactly.
    differences = mixture - own
    rest = shift_free_kl(world.Q, world.P, BIAS) if forget_shift else _plain_kl(world, BIAS)
    error = float(differences.std(ddof=1)) / math.sqrt(draws)
    return Estimate(exact + float(differences.mean()) + rest, error)


def _plain_kl(world: World, name: str) -> float:
    return world.Q.kl_to(world.P)[name]


def _block(side: DiagonalGaussian, unit: int, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of one unit: row, bias, projected column."""
    mean = np.concatenate(
        [
            side.means[HIDDEN_WEIGHT][unit].numpy(),
            side.means[HIDDEN_BIAS][unit : unit + 1].numpy(),
            basis.T @ side.means[WEIGHT][:, unit].numpy(),
        ]
    )
    incoming = np.concatenate(
        [
            side.scales[HIDDEN_WEIGHT][unit].numpy(),
            side.scales[HIDDEN_BIAS][unit : unit + 1].numpy(),
        ]
    )
    column = basis.T @ np.diag(side.scales[WEIGHT][:, unit].numpy() ** 2) @ basis
    covariance = np.zeros((len(mean), len(mean)))
    covariance[: len(incoming), : len(incoming)] = np.diag(incoming**2)
    covariance[len(incoming) :, len(incoming) :] = column
    return mean, covariance


def _sample(law: tuple[np.ndarray, np.ndarray], draws: int, rng: np.random.Generator) -> np.ndarray:
    root = np.linalg.cholesky(law[1])
    return law[0] + rng.standard_normal((draws, len(law[0]))) @ root.T


def _log_density(points: np.ndarray, law: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    centered = points - law[0]
    square = np.einsum("ni,ij,nj->n", centered, np.linalg.inv(law[1]), centered)
    volume = np.linalg.slogdet(2 * np.pi * law[1])[1]
    return -(square + volume) / 2
