"""What every theorem with noise does once it has thresholds: losses, KL, ledger and the number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.noise import pair_margins
from nonvacuous.sparsity.setting import (
    ESCAPES,
    FIRST_SCALE,
    Scales,
    SparseSettings,
    Tailed,
    kl_nats,
    total_nats,
)

#: A margin this little above its threshold still counts as a loss: more than rounding can do.
_RELATIVE, _ABSOLUTE = 1e-8, 1e-11


class Labeled(Protocol):
    """Examples as a theorem reads them."""

    @property
    def labels(self) -> Tensor: ...

    def __len__(self) -> int: ...


class Scored(Protocol):
    """One noisy network per example."""

    @property
    def scores(self) -> Tensor: ...


SettingT = TypeVar("SettingT", bound=Scales)
TailedT = TypeVar("TailedT", bound=Tailed)
InputsT = TypeVar("InputsT", bound=Labeled)
PassT = TypeVar("PassT", bound=Scored)


class Priced(ABC, Generic[SettingT]):
    """One theorem in one variant, for one network and prior: what a setting costs and promises.

    theorem     its letter
    sparse      whether it makes use of inactive units
    distances   squared distance of each layer from the prior, as the KL counts it
    """

    theorem: str
    sparse: bool
    distances: tuple[float, ...]

    @abstractmethod
    def charges(self, setting: SettingT) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name, with its price.

        Measuring the constants of the network and rounding them up on their grids is part of
        this, and so is the refusal of one that is below the network's.
        """

    def details(self, setting: SettingT) -> dict[str, Any]:
        return {}

    def scales(self, setting: SettingT) -> tuple[float, ...]:
        """The noise scale of each layer."""
        return setting.sigmas

    def kl(self, setting: SettingT) -> float:
        return kl_nats(self.distances, self.scales(setting))

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


class Judge(Priced[SettingT], Generic[SettingT, InputsT, PassT]):
    """A theorem whose losses are counted under noise."""

    @abstractmethod
    def thresholds(self, setting: SettingT, inputs: InputsT, noisy: PassT) -> Tensor:
        """D(W', x) for every example and every class."""

    @abstractmethod
    def digest(self) -> str:
        """Of the network, for the seed of the final noise."""

    @abstractmethod
    def fresh_passes(
        self, setting: SettingT, inputs: InputsT, *, passes: int, seed: int
    ) -> Iterator[tuple[InputsT, PassT]]:
        """Independent noisy networks for every example, in pieces."""

    @abstractmethod
    def network_errors(self, inputs: InputsT) -> int:
        """Errors of the network itself, ties included."""

    def losses(self, setting: SettingT, inputs: InputsT, noisy: PassT) -> Tensor:
        """True where some class comes within its threshold of the label; NaN counts as a loss."""
        return ~self._compared(setting, inputs, noisy)[2].all(1)

    def judged(
        self, setting: SettingT, inputs: InputsT, noisy: PassT
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The losses, and for the runner-up class its threshold and its margin."""
        margins, level, clear = self._compared(setting, inputs, noisy)
        nearest = margins.argmin(1, keepdim=True)
        return ~clear.all(1), level.gather(1, nearest)[:, 0], margins.gather(1, nearest)[:, 0]

    def counted(
        self, setting: SettingT, inputs: InputsT, noisy: PassT, *, within: float
    ) -> tuple[Tensor, Tensor]:
        """Losses, and which of them rounding could turn: a class is this close to its threshold."""
        margins, level, clear = self._compared(setting, inputs, noisy)
        # At infinity nothing is close, though infinity is at most infinity.
        near = (margins - level).abs() <= within * (margins.abs() + level.abs())
        near = (near & margins.isfinite() & level.isfinite()).any(1)
        return ~clear.all(1), near

    def _compared(
        self, setting: SettingT, inputs: InputsT, noisy: PassT
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Margins, thresholds and whether the one clears the other, (examples, classes)."""
        margins = pair_margins(noisy.scores, inputs.labels)
        level = (self.thresholds(setting, inputs, noisy) * (1.0 + _RELATIVE)).expand_as(margins)
        room = _ABSOLUTE * noisy.scores.abs().amax(1, keepdim=True)
        clear = (margins > level + room).scatter(1, inputs.labels[:, None], True)
        return margins, level, clear


# Descent along single coordinates of a setting: what the searches of all theorems share.

#: The estimated bound of a setting.
Objective = Callable[[SettingT], float]
#: The neighbor along one coordinate, a stride away; None where the grid ends.
Move = Callable[[SettingT, int], SettingT | None]


def descend(
    starts: Sequence[SettingT],
    objective: Objective[SettingT],
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
            for move in moves:
                best = _along(best, move, stride, value)
            if best == before:
                break
    reporter.report(1, 1, "setting found", always=True)
    return best


def _along(
    best: SettingT, move: Move[SettingT], stride: int, value: Objective[SettingT]
) -> SettingT:
    for direction in (stride, -stride):
        while True:
            moved = move(best, direction)
            if moved is None or not value(moved) < value(best):
                break
            best = moved
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


def later_scale(layer: int) -> Move[SettingT]:
    """The noise of one layer after the first, counted from 1."""

    def move(setting: SettingT, stride: int) -> SettingT | None:
        # The step into it grows, and the step out of it shrinks.
        steps = list(setting.steps)
        steps[layer - 1] += stride
        if layer < len(steps):
            steps[layer] -= stride
        return replace(setting, steps=tuple(steps))

    return move


def first_scale(setting: SettingT, stride: int) -> SettingT | None:
    """The noise of the first layer alone: the step out of it makes up for it."""
    first, rest = setting.first + stride, (setting.steps[0] - stride, *setting.steps[1:])
    return replace(setting, first=first, steps=rest) if first in FIRST_SCALE else None


def other_escape(setting: SettingT, stride: int) -> SettingT | None:
    """The escape probability, always to the next on the list."""
    position = setting.escape + (1 if stride > 0 else -1)
    return replace(setting, escape=position) if 0 <= position < len(ESCAPES) else None


def other_tail(setting: TailedT) -> TailedT:
    """The other form of the tail, with the factor that it starts from."""
    other = "exponential" if setting.tail == "cap" else "cap"
    return replace(setting, tail=other, factor=1 if other == "cap" else 0)


def searched(
    judge: Judge[SettingT, Any, Any],
    share_lost: Callable[[SettingT], float],
    starts: Sequence[SettingT],
    moves: Sequence[Move[SettingT]],
    settings: SparseSettings,
    *,
    rounds: int,
    examples: int,
    progress: Progress | None,
) -> SettingT:
    """The setting with the smallest estimated bound, by descent along single coordinates.

    share_lost   the part of some examples on which a setting's noisy loss is 1
    """
    # Nats by which the noise of the final estimate may raise that part.
    slack = -math.log(settings.sampling_share) / (settings.passes * examples)

    def objective(setting: SettingT) -> float:
        # Far too large noise cannot win, and the KL alone may rule a setting out.
        complexity = judge.kl(setting) / examples
        if complexity > 3.0:
            return vacuous(1.0, complexity)
        share = share_lost(setting)
        upper = float(kl_inverse_upper(share, slack))
        bound = judge.bound(setting, upper, examples=examples, failure=settings.failure)
        return bound if bound < 1.0 else vacuous(share, complexity)

    return descend(starts, objective, moves, rounds=rounds, progress=progress)
