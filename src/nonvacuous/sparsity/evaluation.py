"""Theorems D, E and F on a network: losses of noisy passes, KL and ledger of a setting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.sparsity import theorem_d, theorem_e, theorem_f
from nonvacuous.sparsity.constants import (
    Charge,
    Constants,
    check_covering,
    chosen_among,
    constants,
    measured,
)
from nonvacuous.sparsity.judging import Judge
from nonvacuous.sparsity.noise import Inputs, NoisyPass, fresh_passes, network_errors
from nonvacuous.sparsity.setting import Setting
from nonvacuous.sparsity.weights import Layers


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
        self.placed, self.device = layers.to(device), torch.device(device)
        self._shared = chosen_among(choices)
        self.distances = layers.squared_distances(prior)
        self._prior, self._actual = prior, measured(layers)
        self._found: dict[tuple[bool, bool], Constants] = {}
        output = prior.weights[-1]
        hidden = prior.weights[1:-1] if theorem == "F" else ()
        self._grams = (None, *(theorem_f.positive_gram(w).to(device) for w in hidden))
        self._anchor = (output[:, None] - output[None]).clamp(min=0).to(device)

    def constants(self, setting: Setting) -> Constants:
        """The constants that the loss of this setting uses, rounded up on their grids."""
        key = (setting.anchored, setting.named)
        if key not in self._found:
            found = constants(
                self.layers,
                self._prior,
                norms="each" if self.sparse and self.theorem == "D" else "all",
                sums=None if setting.anchored else ("each" if self.sparse else "all"),
                drift=setting.anchored,
                named=setting.named,
                units=self.theorem == "F",
                actual=self._actual,
            )
            check_covering(found, self._actual)
            self._found[key] = found.to(self.device)
        return self._found[key]

    def charges(self, setting: Setting) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name."""
        own = setting.charges(sparse=self.sparse)
        return (*self._shared, *own, *self.constants(setting).charges)

    def thresholds(self, setting: Setting, inputs: Inputs, noisy: NoisyPass) -> Tensor:
        """D(W', x) for every example and every class."""
        widths, escape = self.layers.widths, setting.escape_probability
        used = self.constants(setting)
        if self.theorem == "D":
            found = _quantiles(widths, escape, self.sparse, self.device)
            return theorem_d.thresholds(noisy, inputs.labels, used, found, sparse=self.sparse)
        if self.theorem == "F":
            return theorem_f.thresholds(
                noisy,
                inputs,
                used,
                theorem_f.levels(widths, escape, sparse=self.sparse),
                setting.tail_factor,
                setting.sigmas,
                sparse=self.sparse,
                anchor=self._anchor if setting.anchored else None,
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
            anchor=self._anchor if setting.anchored else None,
        )

    def digest(self) -> str:
        return self.layers.digest()

    def fresh_passes(
        self, setting: Setting, inputs: Inputs, *, passes: int, seed: int
    ) -> Iterator[tuple[Inputs, NoisyPass]]:
        return fresh_passes(self.placed, inputs, setting.sigmas, passes=passes, seed=seed)

    def network_errors(self, inputs: Inputs) -> int:
        return network_errors(self.placed, inputs)


@lru_cache(maxsize=256)
def _quantiles(
    widths: tuple[int, ...], escape: float, sparse: bool, device: torch.device
) -> theorem_d.Quantiles:
    return theorem_d.quantiles(widths, escape, sparse=sparse).to(device)
