"""What every theorem does with a setting: its price, its losses, and the number that follows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.holdout import sampling
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.constants import Charge, chosen_among
from nonvacuous.sparsity.conv_noise import ConvPass
from nonvacuous.sparsity.noise import Columns, NoisyPass, pair_margins
from nonvacuous.sparsity.setting import (
    ESCAPES,
    FIRST_SCALE,
    TAILS,
    Scales,
    SparseSettings,
    Tailed,
    kl_nats,
    total_nats,
)
from nonvacuous.sparsity.weights import Network

#: A margin this little above its threshold still counts as a loss: more than rounding can do.
_RELATIVE, _ABSOLUTE = 1e-8, 1e-11
#: A margin within this of its threshold, relative, may fall to the other side on another machine.
_CLOSE = 1e-6

SettingT = TypeVar("SettingT", bound=Scales)
TailedT = TypeVar("TailedT", bound=Tailed)
InputsT = TypeVar("InputsT", bound=Columns)
PassT = TypeVar("PassT", bound=NoisyPass | ConvPass)
#: Losses, and for the runner-up class its threshold and its margin; which losses rounding can turn.
Judged = tuple[Tensor, Tensor, Tensor, Tensor]


class Judge(ABC, Generic[SettingT, InputsT, PassT]):
    """One theorem in one variant, for one network and prior: what a setting costs and promises.

    theorem     its letter
    sparse      whether it makes use of inactive units
    distances   squared distance of each layer from the prior, as the KL counts it
    network     the network on the device of examples and noise
    sampled     whether losses are counted under noise, so that a sample of it is paid for
    running     how such a network is run under noise: the module noise or conv_noise
    """

    theorem: str
    sampled: ClassVar[bool] = True
    running: ModuleType

    def __init__(
        self,
        network: Network,
        prior: Network,
        *,
        sparse: bool,
        choices: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sparse, self.device = sparse, torch.device(device)
        self.network: Any = network.to(device)
        self.distances = network.squared_distances(prior)
        self._shared = chosen_among(choices)

    @abstractmethod
    def charges(self, setting: SettingT) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name, with its price.

        Measuring the constants of the network and rounding them up on their grids is part of
        this, and so is the refusal of one that is below the network's.
        """

    @abstractmethod
    def search(
        self, inputs: InputsT, settings: SparseSettings, *, seed: int, progress: Progress | None
    ) -> SettingT:
        """The setting with the smallest estimated bound, by descent along single coordinates."""

    @abstractmethod
    def judged(self, setting: SettingT, inputs: InputsT, noisy: PassT) -> Judged:
        """What became of every example."""

    def details(self, setting: SettingT) -> dict[str, Any]:
        return {}

    def scales(self, setting: SettingT) -> tuple[float, ...]:
        """The noise scale of each layer."""
        return setting.sigmas

    def kl(self, setting: SettingT) -> float:
        return kl_nats(self.distances, self.scales(setting))

    def loss_upper(self, setting: SettingT, errors: int, trials: int, *, failure: float) -> float:
        """The upper end of the mean noisy loss."""
        return sampling(errors=errors, trials=trials, failure=failure, identical=False)

    def bound(
        self, setting: SettingT, loss_upper: float, *, examples: int, failure: float
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

    def fresh_passes(
        self, setting: SettingT, inputs: InputsT, *, passes: int, seed: int
    ) -> Iterator[tuple[InputsT, PassT]]:
        """``passes`` independent noisy networks for every example, in pieces."""
        generator = torch.Generator(inputs.labels.device).manual_seed(seed)
        for _ in range(passes):
            for part in self._parts(inputs):
                noise = self.running.standard_noise(self.network, len(part), generator)
                yield part, self.running.noisy_pass(self.network, part, setting.sigmas, noise)

    def _parts(self, inputs: InputsT) -> Iterator[InputsT]:
        return (inputs.part(piece) for piece in self.running.pieces(self.network, len(inputs)))


def close(level: Tensor, margin: Tensor) -> Tensor:
    """What hangs on rounding; at infinity nothing does, though infinity is at most infinity."""
    near = (margin - level).abs() <= _CLOSE * (level.abs() + margin.abs())
    return near & level.isfinite() & margin.isfinite()


# Descent along single coordinates of a setting: what the searches of all theorems share.

#: The neighbor along one coordinate, a stride away; None where the grid ends.
Move = Callable[[SettingT, int], SettingT | None]


def descend(
    starts: Sequence[SettingT],
    objective: Callable[[SettingT], float],
    moves: Sequence[Move[SettingT]],
    *,
    rounds: int,
    progress: Progress | None,
    strides: Sequence[int] = (4, 2, 1),
) -> SettingT:
    """From the best of the starts, walk along one coordinate after the other while it helps."""
    reporter = Reporter(progress, "search")
    seen: dict[SettingT, float] = {}

    def value(setting: SettingT) -> float:
        if setting not in seen:
            seen[setting] = objective(setting)
            reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    best = min(starts, key=value)
    for stride in strides:
        for _ in range(rounds):
            before = best
            for move, direction in product(moves, (stride, -stride)):
                while (moved := move(best, direction)) is not None and value(moved) < value(best):
                    best = moved
            if best == before:
                break
    reporter.report(1, 1, "setting found", always=True)
    return best


def vacuous(share: float, complexity: float) -> float:
    """An order among settings that say nothing: by how far they are from saying something.

    So much noise that every loss is 1 would be nearest by this measure, and is put last.
    """
    return (2.0 if share < 0.95 else 4.0) + share + math.sqrt(0.5 * complexity)


def all_scales(setting: SettingT, stride: int) -> SettingT | None:
    """The noise of all layers together."""
    first = setting.first + stride
    return replace(setting, first=first) if first in FIRST_SCALE else None


def one_scale(layer: int) -> Move[SettingT]:
    """The noise of a single layer: the step into it grows, and the step out of it shrinks."""

    def move(setting: SettingT, stride: int) -> SettingT | None:
        scales = [setting.first, *setting.steps]
        scales[layer] += stride
        if layer + 1 < len(scales):
            scales[layer + 1] -= stride
        first, *steps = scales
        return replace(setting, first=first, steps=tuple(steps)) if first in FIRST_SCALE else None

    return move


def other_escape(setting: SettingT, stride: int) -> SettingT | None:
    """The escape probability, always to the next on the list."""
    position = setting.escape + (1 if stride > 0 else -1)
    return replace(setting, escape=position) if 0 <= position < len(ESCAPES) else None


def other_factor(setting: TailedT, stride: int) -> TailedT | None:
    return None if setting.tail is None else replace(setting, factor=setting.factor + stride)


def other_tail(setting: TailedT, stride: int) -> TailedT | None:
    """The other form of the tail, with the factor that it starts from."""
    if setting.tail not in TAILS or stride < 0:
        return None
    other = "exponential" if setting.tail == "cap" else "cap"
    return replace(setting, tail=other, factor=1 if other == "cap" else 0)


class NoisyJudge(Judge[TailedT, InputsT, PassT]):
    """A theorem whose losses are counted under noise.

    every_class   whether a loss counts as close where any class is, not the runner-up alone
    rounds        of the search, at most, at each stride
    kind          its settings
    coarse        noise scales of the first layer that the search begins with
    """

    every_class: ClassVar[bool] = False
    rounds: ClassVar[int]
    kind: type[TailedT]
    coarse: ClassVar[range]

    @abstractmethod
    def drawn(
        self, inputs: InputsT, settings: SparseSettings, seed: int
    ) -> list[tuple[InputsT, tuple[Tensor, ...]]]:
        """Some of the examples, in pieces, with the noise that settings are compared with."""

    @abstractmethod
    def forms(self) -> list[tuple[Any, ...]]:
        """What the search begins with for each noise: an escape probability, a tail, its factor."""

    @abstractmethod
    def own_moves(self) -> tuple[list[Move[TailedT]], list[Move[TailedT]]]:
        """Coordinates that other theorems have not: before the first layer's noise, and last."""

    @abstractmethod
    def thresholds(self, setting: TailedT, inputs: InputsT, noisy: PassT) -> Tensor:
        """D(W', x) for every example and every class."""

    def losses(self, setting: TailedT, inputs: InputsT, noisy: PassT) -> Tensor:
        """True where some class comes within its threshold of the label; NaN counts as a loss."""
        return ~self._compared(setting, inputs, noisy)[2].all(1)

    def judged(self, setting: TailedT, inputs: InputsT, noisy: PassT) -> Judged:
        margins, levels, clear = self._compared(setting, inputs, noisy)
        nearest = margins.argmin(1, keepdim=True)
        level, margin = (values.gather(1, nearest)[:, 0] for values in (levels, margins))
        near = close(levels, margins).any(1) if self.every_class else close(level, margin)
        return ~clear.all(1), level, margin, near

    def _compared(
        self, setting: TailedT, inputs: InputsT, noisy: PassT
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Margins, thresholds and whether the one clears the other, (examples, classes)."""
        margins = pair_margins(noisy.scores, inputs.labels)
        level = (self.thresholds(setting, inputs, noisy) * (1.0 + _RELATIVE)).expand_as(margins)
        room = _ABSOLUTE * noisy.scores.abs().amax(1, keepdim=True)
        clear = (margins > level + room).scatter(1, inputs.labels[:, None], True)
        return margins, level, clear

    def search(
        self, inputs: InputsT, settings: SparseSettings, *, seed: int, progress: Progress | None
    ) -> TailedT:
        drawn, examples = self.drawn(inputs, settings, seed), len(inputs)
        # Nats by which the noise of the final estimate may raise the share of losses.
        slack = -math.log(settings.sampling_share) / (settings.passes * examples)
        tried = sum(len(part) for part, _ in drawn)

        def objective(setting: TailedT) -> float:
            # Far too large noise cannot win, and the KL alone may rule a setting out.
            complexity = self.kl(setting) / examples
            if complexity > 3.0:
                return vacuous(1.0, complexity)
            lost = 0
            for part, noise in drawn:
                noisy = self.running.noisy_pass(self.network, part, setting.sigmas, noise)
                lost += int(self.losses(setting, part, noisy).sum())
            share = lost / tried
            upper = float(kl_inverse_upper(share, slack))
            bound = self.bound(setting, upper, examples=examples, failure=settings.failure)
            return bound if bound < 1.0 else vacuous(share, complexity)

        layers = len(self.distances)
        steps = (2,) + (0,) * (layers - 2)
        starts = [self.kind(first, steps, *form) for first in self.coarse for form in self.forms()]
        single: list[Move[TailedT]] = [one_scale(k) for k in range(layers)]
        early, last = self.own_moves()
        moves: list[Move[TailedT]] = [all_scales, *single[1:], other_escape, *early, single[0]]
        moves += [other_factor, other_tail, *last]
        return descend(starts, objective, moves, rounds=self.rounds, progress=progress)
