"""Searching for a good setting on a few examples, with noise that is never used again.

The PAC-Bayes event holds for all settings at once, each at its own charge, so that looking at the
bound examples here is free. The final noise is not: it is drawn after the setting is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import theorem_d, theorem_e, theorem_f
from nonvacuous.sparsity.constants import (
    Charge,
    Constants,
    check_covering,
    chosen_among,
    constants,
    measured,
)
from nonvacuous.sparsity.judging import (
    Judge,
    Move,
    all_scales,
    first_scale,
    later_scale,
    other_escape,
    other_tail,
    searched,
)
from nonvacuous.sparsity.noise import (
    Inputs,
    NoisyPass,
    fresh_passes,
    network_errors,
    noisy_pass,
    standard_noise,
)
from nonvacuous.sparsity.setting import Setting, SparseSettings
from nonvacuous.sparsity.theorem_f import SIZES
from nonvacuous.sparsity.weights import Layers

# Theorems D, E and F on a network: losses of noisy passes, KL and ledger of a setting.


class Evaluator(Judge[Setting, Inputs, NoisyPass]):
    """One theorem in one variant, for one network and prior.

    The network is measured once, on the processor; settings differ in noise scales, escape
    probability, tail and in which constants the loss uses. Examples and noisy passes belong on
    ``device``, where ``placed`` is the network.
    """

    def __init__(
        self,
        layers: Layers,
        prior: Layers,
        *,
        theorem: str,
        sparse: bool,
        choices: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        if theorem not in ("D", "E", "F"):
            raise BadInput(f"theorem must be D, E or F here, got {theorem!r}")
        self.layers, self.theorem, self.sparse = layers, theorem, sparse
        self.on_device, self.device = layers.to(device), torch.device(device)
        self._shared = chosen_among(choices)
        self.distances = layers.squared_distances(prior)
        self._prior, self._actual = prior, measured(layers)
        self._rounded: dict[tuple[bool, bool], Constants] = {}
        output = prior.weights[-1]
        hidden = prior.weights[1:-1] if theorem == "F" else ()
        self._grams = (None, *(theorem_f.positive_gram(w).to(device) for w in hidden))
        self._anchor = (output[:, None] - output[None]).clamp(min=0).to(device)

    def constants(self, setting: Setting) -> Constants:
        """The constants that the loss of this setting uses, rounded up on their grids."""
        key = (setting.anchored, setting.named)
        if key not in self._rounded:
            rounded = constants(
                self.layers,
                self._prior,
                norms="each" if self.sparse and self.theorem == "D" else "all",
                sums=None if setting.anchored else ("each" if self.sparse else "all"),
                drift=setting.anchored,
                named=setting.named,
                units=self.theorem == "F",
                actual=self._actual,
            )
            check_covering(rounded, self._actual)
            self._rounded[key] = rounded.to(self.device)
        return self._rounded[key]

    def charges(self, setting: Setting) -> tuple[Charge, ...]:
        own = setting.charges(sparse=self.sparse)
        return (*self._shared, *own, *self.constants(setting).charges)

    def thresholds(self, setting: Setting, inputs: Inputs, noisy: NoisyPass) -> Tensor:
        widths, escape = self.layers.widths, setting.escape_probability
        used = self.constants(setting)
        if self.theorem == "D":
            quantiles = _quantiles(widths, escape, self.sparse, self.device)
            return theorem_d.thresholds(noisy, inputs.labels, used, quantiles, sparse=self.sparse)
        anchor = self._anchor if setting.anchored else None
        if self.theorem == "F":
            return theorem_f.thresholds(
                noisy,
                inputs,
                used,
                theorem_f.levels(widths, escape, sparse=self.sparse),
                setting.tail_factor,
                setting.sigmas,
                sparse=self.sparse,
                anchor=anchor,
                grams=self._grams if setting.anchored else (),
            )
        return theorem_e.thresholds(
            noisy,
            inputs,
            used,
            theorem_e.levels(widths, escape, sparse=self.sparse),
            setting.tail_rule,
            setting.sigmas,
            sparse=self.sparse,
            anchor=anchor,
        )

    def digest(self) -> str:
        return self.layers.digest()

    def fresh_passes(
        self, setting: Setting, inputs: Inputs, *, passes: int, seed: int
    ) -> Iterator[tuple[Inputs, NoisyPass]]:
        return fresh_passes(self.on_device, inputs, setting.sigmas, passes=passes, seed=seed)

    def network_errors(self, inputs: Inputs) -> int:
        return network_errors(self.on_device, inputs)


@lru_cache(maxsize=256)
def _quantiles(
    widths: tuple[int, ...], escape: float, sparse: bool, device: torch.device
) -> theorem_d.Quantiles:
    return theorem_d.quantiles(widths, escape, sparse=sparse).to(device)


_COARSE = (-52, -46, -40, -34, -28, -22, -16, -10, -4)
_ROUNDS = 12
#: Examples on which settings are compared; the second, even where the network is deep.
_SUBSET, _FEWEST = 3000, 500


def search(
    evaluator: Evaluator,
    inputs: Inputs,
    settings: SparseSettings,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Setting:
    """The setting with the smallest estimated bound, by descent along single coordinates."""
    device = evaluator.device
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search"))
    subset = min(_SUBSET if settings.subset is None else settings.subset, len(inputs))
    if evaluator.theorem == "E" and evaluator.sparse:
        # The cost of an example grows with the square of the depth, and the same time must do.
        pairs = evaluator.layers.hidden * (evaluator.layers.hidden + 1) // 2
        subset = min(subset, max(_FEWEST, 3 * subset // pairs))
    chosen = torch.randperm(len(inputs), generator=generator, device=device)[:subset]
    part = inputs.part(chosen)
    noise = standard_noise(evaluator.on_device, len(part), generator)

    def share_lost(setting: Setting) -> float:
        noisy = noisy_pass(evaluator.on_device, part, setting.sigmas, noise)
        return float(evaluator.losses(setting, part, noisy).double().mean())

    return searched(
        evaluator,
        share_lost,
        _starts(evaluator),
        _moves(len(evaluator.distances)),
        settings,
        rounds=_ROUNDS,
        examples=len(inputs),
        progress=progress,
    )


def _starts(evaluator: Evaluator) -> list[Setting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    if evaluator.theorem == "D":
        return [Setting(first, steps, position) for first in _COARSE for position in (5, 9)]
    if evaluator.theorem == "F":
        return [
            Setting(first, steps, position, SIZES, 4, evaluator.sparse)
            for first in _COARSE
            for position in (5, 8)
        ]
    # A cap suits networks near their prior, whose activations the prior predicts; otherwise every
    # example may break it, and the descent would see nothing but ones.
    forms = [("cap", 1, evaluator.sparse), ("exponential", 0, False)]
    return [
        Setting(first, steps, 5 if tail == "cap" else 8, tail, factor, anchored)
        for first in _COARSE
        for tail, factor, anchored in forms
    ]


def _moves(layers: int) -> list[Move[Setting]]:
    later: list[Move[Setting]] = [later_scale(layer) for layer in range(1, layers)]
    return [all_scales, *later, other_escape, _named, first_scale, _factor, _tail, _anchored]


def _named(setting: Setting, stride: int) -> Setting | None:
    return replace(setting, named=not setting.named) if stride > 0 else None


def _factor(setting: Setting, stride: int) -> Setting | None:
    return None if setting.tail is None else replace(setting, factor=setting.factor + stride)


def _tail(setting: Setting, stride: int) -> Setting | None:
    return None if setting.tail in (None, SIZES) or stride < 0 else other_tail(setting)


def _anchored(setting: Setting, stride: int) -> Setting | None:
    leaves = setting.tail is not None and setting.anchored and stride > 0
    return replace(setting, anchored=False) if leaves else None
