"""The theorem on a convolutional network: losses of noisy passes, KL and ledger of a setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from nonvacuous.sparsity.constants import Charge, chosen_among
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass, fresh_passes, network_errors
from nonvacuous.sparsity.conv_setting import ConvSetting, network_bounds
from nonvacuous.sparsity.conv_theorem import Anchor, thresholds
from nonvacuous.sparsity.judging import Judge

#: The one proof for chains of convolutions.
CONV_THEOREM = "E"


class ConvEvaluator(Judge[ConvSetting, ConvInputs, ConvPass]):
    """One variant of the theorem for one network and prior; the network is measured once."""

    def __init__(
        self, chain: ConvChain, prior: ConvChain, *, sparse: bool, choices: int = 1
    ) -> None:
        self.theorem, self.chain, self.sparse = CONV_THEOREM, chain, sparse
        self.distances = chain.squared_distances(prior)
        self.bounds, lines = network_bounds(chain, prior, sparse=sparse)
        self._charges = (*chosen_among(choices), *lines)
        self._anchor = Anchor.of(prior)

    def charges(self, setting: ConvSetting) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name."""
        return (*setting.charges(sparse=self.sparse), *self._charges)

    def thresholds(self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass) -> Tensor:
        """D(W', x) for every example and every class."""
        return thresholds(
            self.chain,
            noisy,
            inputs,
            self.bounds,
            self._anchor,
            setting.tail_rule,
            setting.sigmas,
            setting.escape_probability,
            sparse=self.sparse,
        )

    def digest(self) -> str:
        return self.chain.digest()

    def fresh_passes(
        self, setting: ConvSetting, inputs: ConvInputs, *, passes: int, seed: int
    ) -> Iterator[tuple[ConvInputs, ConvPass]]:
        return fresh_passes(self.chain, inputs, setting.sigmas, passes=passes, seed=seed)

    def network_errors(self, inputs: ConvInputs) -> int:
        return network_errors(self.chain, inputs)

    def details(self) -> dict[str, Any]:
        return {
            "layers": list(self.chain.names),
            "operator_norms": list(self.bounds.spectral),
            "kernel_norms": list(self.bounds.rows),
            "pooling_norms": list(self.bounds.pools),
            "drift": self.bounds.drift,
        }
