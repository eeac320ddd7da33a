"""Theorems D, E and F on a network of linear layers, and the search for a good setting.

It is made on a few examples, with noise that is never used again. The PAC-Bayes event holds for all
settings at once, each at its own charge, so that looking at the bound examples here is free. The
final noise is not: it is drawn after the setting is frozen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import noise, theorem_d, theorem_e, theorem_f
from nonvacuous.sparsity.constants import Charge, Constants, check_covering, constants, measured
from nonvacuous.sparsity.judging import Move, NoisyJudge
from nonvacuous.sparsity.noise import Inputs, NoisyPass
from nonvacuous.sparsity.setting import SIZES, Setting, SparseSettings
from nonvacuous.sparsity.weights import Layers

#: Examples on which settings are compared; the second, even where the network is deep.
_SUBSET, _FEWEST = 3000, 500


class Evaluator(NoisyJudge[Setting, Inputs, NoisyPass]):
    """One theorem in one variant, for one network and prior.

    The network is measured once, on the processor; settings differ in noise scales, escape
    probability, tail and in which constants the loss uses.
    """

    running, rounds = noise, 12
    kind, coarse = Setting, range(-52, 0, 6)

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
        super().__init__(layers, prior, sparse=sparse, choices=choices, device=device)
        self.layers, self.theorem = layers, theorem
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
        used = self.constants(setting)
        if self.theorem == "D":
            escape = setting.escape_probability
            return theorem_d.thresholds(noisy, inputs.labels, used, escape, sparse=self.sparse)
        shared: dict[str, Any] = {
            "sparse": self.sparse,
            "anchor": self._anchor if setting.anchored else None,
        }
        if self.theorem == "F":
            grams = self._grams if setting.anchored else ()
            return theorem_f.thresholds(noisy, inputs, used, setting, grams=grams, **shared)
        return theorem_e.thresholds(noisy, inputs, used, setting, **shared)

    def drawn(
        self, inputs: Inputs, settings: SparseSettings, seed: int
    ) -> list[tuple[Inputs, tuple[Tensor, ...]]]:
        generator = torch.Generator(self.device).manual_seed(derived_seed(seed, "search"))
        subset = min(_SUBSET if settings.subset is None else settings.subset, len(inputs))
        if self.theorem == "E" and self.sparse:
            # The cost of an example grows with the square of the depth, and the same time must do.
            pairs = self.layers.hidden * (self.layers.hidden + 1) // 2
            subset = min(subset, max(_FEWEST, 3 * subset // pairs))
        chosen = torch.randperm(len(inputs), generator=generator, device=self.device)[:subset]
        part = inputs.part(chosen)
        return [(part, noise.standard_noise(self.network, len(part), generator))]

    def forms(self) -> list[tuple[Any, ...]]:
        """A cap suits networks near their prior, whose activations the prior predicts; otherwise
        every example may break it, and the descent would see nothing but ones.
        """
        forms: dict[str, list[tuple[Any, ...]]] = {
            "D": [(5, None, 0, False), (9, None, 0, False)],
            "E": [(5, "cap", 1, self.sparse), (8, "exponential", 0, False)],
            "F": [(5, SIZES, 4, self.sparse), (8, SIZES, 4, self.sparse)],
        }
        return forms[self.theorem]

    def own_moves(self) -> tuple[list[Move[Setting]], list[Move[Setting]]]:
        return [_named], [_anchored]


def _named(setting: Setting, stride: int) -> Setting | None:
    return replace(setting, named=not setting.named) if stride > 0 else None


def _anchored(setting: Setting, stride: int) -> Setting | None:
    leaves = setting.tail is not None and setting.anchored and stride > 0
    return replace(setting, anchored=False) if leaves else None
