"""Derivatives of the training loss that several measures share."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from nonvacuous.errors import NotYetSupported
from nonvacuous.measures.subject import Subject
from nonvacuous.risk.losses import class_margins

#: Examples for derivatives that are taken class by class.
FEW = 128
#: Derivatives by weights that are held at once.
_NUMBERS = 4_000_000


@contextmanager
def _by_torch() -> Iterator[None]:
    """Say so where PyTorch has no derivative of one of the network's operators.

    Attention is computed step by step: its fast versions have no second derivatives.
    """
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    except torch.OutOfMemoryError:
        raise  # a matter of the machine, not of the network
    except (NotImplementedError, RuntimeError) as error:
        # PyTorch has no class of its own for a missing derivative; its words go along.
        first = str(error).strip().splitlines()[0]
        raise NotYetSupported(
            f"PyTorch cannot take this derivative of the network: {first}"
        ) from error


def _along_weights(subject: Subject) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For every batch ε, v and d/dε Σ v_i loss_i when all weights are multiplied by 1 + ε.

    At ε = 0 and v = 1. Rescaling multiplies a weight and divides its derivative by the same factor:
    nothing changes.
    """
    for inputs, labels in subject.batches():
        step = inputs.new_zeros((), dtype=torch.float64, requires_grad=True)
        marks = inputs.new_ones(len(labels), dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            moved = {name: weight * (1 + step) for name, weight in subject.ready.items()}
            losses = cross_entropy(subject.outputs(inputs, moved), labels, reduction="none")
            (slope,) = torch.autograd.grad((marks * losses).sum(), step, create_graph=True)
        yield step, marks, slope


@_by_torch()
def slopes_along_weights(subject: Subject) -> Tensor:
    """For every example d/dε of its cross-entropy: what is linear in v, derived by v."""
    return torch.cat(
        [torch.autograd.grad(slope, marks)[0] for _, marks, slope in _along_weights(subject)]
    )


@_by_torch()
def bend_along_weights(subject: Subject) -> float:
    """d²/dε² of the mean cross-entropy when all weights are multiplied by 1 + ε: wᵀHw."""
    bends = (torch.autograd.grad(slope, step)[0] for step, _, slope in _along_weights(subject))
    return sum(map(float, bends)) / len(subject.examples[1])


def _by_weights(
    subject: Subject, inputs: Tensor, labels: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The weights, and the derivative of the mean cross-entropy by all of them in a row."""
    leaves = {name: weight.clone().requires_grad_(True) for name, weight in subject.ready.items()}
    weights = tuple(leaves.values())
    with torch.enable_grad():
        loss = cross_entropy(subject.outputs(inputs, leaves), labels)
        slopes = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
        return weights, _joined(slopes)


def _joined(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


@_by_torch()
def weight_gradient(subject: Subject) -> Tensor:
    """Of the mean cross-entropy over all examples, by all weights in a row."""
    sums = (len(y) * _by_weights(subject, x, y)[1].detach() for x, y in subject.batches())
    return functools.reduce(torch.add, sums) / len(subject.examples[1])


@_by_torch()
def gauss_newton_trace(subject: Subject) -> float:
    """Mean over the first examples of Σ_k p_k ‖∇ ln p_k‖² by the weights.

    For a network in which no path passes a weight twice and all functions are piecewise linear,
    this is the trace of the Hessian of the cross-entropy, whatever the labels.
    """
    weights = subject.ready
    inputs = subject.examples[0][:FEW]
    classes = subject.scores.shape[1]

    def log_probability(w: dict[str, Tensor], x: Tensor, marked: Tensor) -> Tensor:
        return (subject.outputs(x[None], w)[0].log_softmax(0) * marked).sum()

    by_classes = vmap(grad(log_probability), in_dims=(None, None, 0))
    by_examples = vmap(by_classes, in_dims=(None, 0, None))
    count = sum(weight.numel() for weight in weights.values())
    size = max(1, _NUMBERS // (classes * count))
    total = 0.0
    for part in inputs.split(size):
        with torch.no_grad():
            probabilities = subject.outputs(part).softmax(1)
        marked = torch.eye(classes, dtype=torch.float64, device=part.device)
        slopes = by_examples(weights, part, marked)
        rows = (slope.reshape(*slope.shape[:2], -1) for slope in slopes.values())
        squares = torch.stack([row.square().sum(2) for row in rows])
        total += float((probabilities * squares.sum(0)).sum().detach())
    return total / len(inputs)


@_by_torch()
def largest_curvature(subject: Subject) -> float:
    """The largest eigenvalue of the Hessian of the mean cross-entropy on the first examples.

    By Lanczos iteration from products of the Hessian with vectors. It starts at the gradient plus
    the weights, which change order together with the channels, so that their order does not matter.
    """
    weights, slope = _by_weights(subject, *(part[:FEW] for part in subject.examples))

    def product(vector: np.ndarray) -> np.ndarray:
        along = torch.from_numpy(vector).reshape(-1).to(slope.device)
        parts = torch.autograd.grad(
            slope, weights, along, retain_graph=True, materialize_grads=True
        )
        return _joined(parts).cpu().numpy()

    start = (_joined(weights) + slope).detach()
    hessian = LinearOperator((len(start), len(start)), matvec=product, dtype=np.float64)
    try:
        values = eigsh(hessian, k=1, which="LA", v0=start.cpu().numpy(), return_eigenvectors=False)
    except ArpackError as error:
        raise NotYetSupported(f"the largest eigenvalue was not found: {error}") from error
    return float(values[0])


@_by_torch()
def input_gradients(subject: Subject, *, of_margin: bool) -> Tensor:
    """For every example the length of the derivative of its loss, or margin, by the input."""
    parts = []
    for inputs, labels in subject.batches():
        here = inputs.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            scores = subject.outputs(here)
            if of_margin:
                value = class_margins(scores, labels).sum()
            else:
                value = cross_entropy(scores, labels, reduction="sum")
            (slope,) = torch.autograd.grad(value, here)
        parts.append(slope.flatten(1).square().sum(1).sqrt())
    return torch.cat(parts)
