"""The theorem on a convolutional network: losses of noisy passes, KL and ledger of a setting."""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.sparsity.constants import Charge, chosen_among
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass, pair_margins
from nonvacuous.sparsity.conv_setting import ConvSetting, network_bounds
from nonvacuous.sparsity.conv_theorem import Anchor, thresholds
from nonvacuous.sparsity.setting import kl_nats, total_nats

#: A margin this little above its threshold still counts as a loss: more than rounding can do.
_RELATIVE, _ABSOLUTE = 1e-8, 1e-11


class ConvEvaluator:
    """One variant of the theorem for one network and prior; the network is measured once."""

    def __init__(
        self, chain: ConvChain, prior: ConvChain, *, sparse: bool, choices: int = 1
    ) -> None:
        self.chain, self.sparse = chain, sparse
        self.distances = chain.squared_distances(prior)
        self.bounds, lines = network_bounds(chain, prior, sparse=sparse)
        self._charges = (*chosen_among(choices), *lines)
        self._anchor = Anchor.of(prior)

    def charges(self, setting: ConvSetting) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name."""
        return (*setting.charges(sparse=self.sparse), *self._charges)

    def kl(self, setting: ConvSetting) -> float:
        return kl_nats(self.distances, setting.sigmas)

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

    def judged(
        self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses (NaN counts as one), and the runner-up class's threshold and margin."""
        margins, level, clear = self._compared(setting, inputs, noisy)
        nearest = margins.argmin(1, keepdim=True)
        return ~clear.all(1), level.gather(1, nearest)[:, 0], margins.gather(1, nearest)[:, 0]

    def counted(
        self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass, *, within: float
    ) -> tuple[Tensor, Tensor]:
        """Losses, and which of them rounding could turn: a class is this close to its threshold."""
        margins, level, clear = self._compared(setting, inputs, noisy)
        # At infinity nothing is close, though infinity is at most infinity.
        near = (margins - level).abs() <= within * (margins.abs() + level.abs())
        near = (near & margins.isfinite() & level.isfinite()).any(1)
        return ~clear.all(1), near

    def _compared(
        self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Margins, thresholds and whether the one clears the other, (examples, classes)."""
        margins = pair_margins(noisy.scores, inputs.labels)
        level = self.thresholds(setting, inputs, noisy) * (1.0 + _RELATIVE)
        room = _ABSOLUTE * noisy.scores.abs().amax(1, keepdim=True)
        clear = (margins > level + room).scatter(1, inputs.labels[:, None], True)
        return margins, level, clear

    def losses(self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass) -> Tensor:
        """True where some class comes within its threshold of the label."""
        return self.judged(setting, inputs, noisy)[0]

    def bound(
        self, setting: ConvSetting, loss_upper: float, *, examples: int, failure: float
    ) -> float:
        """The certificate's number for this setting."""
        return derandomized(
            loss_upper=loss_upper,
            escape=setting.escape_probability,
            kl_nats=self.kl(setting),
            grid_nats=total_nats(self.charges(setting)),
            examples=examples,
            failure=failure,
        )


def median(pieces: list[Tensor]) -> float:
    """The median over everything in the pieces."""
    return float(torch.cat(pieces).median())
