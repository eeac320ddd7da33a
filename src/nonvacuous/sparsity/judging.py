"""What every theorem does with a setting: its price, its losses, and the number that follows.

And the search for a good one. It is made on a few examples, with noise that is never used again.
The PAC-Bayes event holds for all settings at once, each at its own charge, so that looking at the
bound examples here is free. The final noise is not: it is drawn after the setting is frozen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor

from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.holdout import sampling
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.data.examples import Examples
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import constants, noise
from nonvacuous.sparsity.constants import Charge, Constants
from nonvacuous.sparsity.noise import Inputs, NoisyPass
from nonvacuous.sparsity.setting import (
    SIZES,
    Scales,
    Setting,
    SparseSettings,
    Tailed,
    kl_nats,
    total_nats,
)
from nonvacuous.sparsity.thresholds import positive_gram, threshold_d, threshold_e, threshold_f
from nonvacuous.sparsity.weights import Layers, Network

#: A margin this little above its threshold still counts as a loss: more than rounding can do.
_RELATIVE, _ABSOLUTE = 1e-8, 1e-11
#: A margin within this of its threshold, relative, may fall to the other side on another machine.
_CLOSE = 1e-6

SettingT = TypeVar("SettingT", bound=Scales)
TailedT = TypeVar("TailedT", bound=Tailed)
#: Losses, and for the runner-up class its threshold and its margin; which losses rounding can turn.
Judged = tuple[Tensor, Tensor, Tensor, Tensor]


class Judge(ABC, Generic[SettingT]):
    """One theorem in one variant, for one network and prior: what a setting costs and promises.

    asked       what it is asked for; theorem and sparse are its letter and variant
    distances   squared distance of each layer from the prior, as the KL counts it
    network     the network on the device of examples and noise
    prior       as it was given
    sampled     whether losses are counted under noise, so that a sample of it is paid for
    noisy_pass  how such a network is run under noise
    """

    sampled: ClassVar[bool] = True
    noisy_pass: Callable[..., Any] = staticmethod(noise.noisy_pass)

    def __init__(
        self, network: Network, prior: Network, asked: SparseSettings, device: torch.device
    ) -> None:
        self.asked, self.theorem, self.sparse = asked, asked.theorem, asked.variant == "sparse"
        self.device, self.network = device, cast(Any, network.to(device))
        self.prior = cast(Any, prior)
        self.distances = network.squared_distances(prior)
        self._shared = constants.chosen_among(asked.choices)

    @abstractmethod
    def charges(self, setting: SettingT) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name, with its price.

        Measuring the constants of the network and rounding them up on their grids is part of
        this, and so is the refusal of one that is below the network's.
        """

    def read(self, examples: Examples) -> Any:
        """What the theorem needs of the examples, on the device; refuse what does not fit."""
        return noise.read_inputs(self.network, self.prior.to(self.device), examples)

    @abstractmethod
    def search(self, inputs: Any, *, seed: int, progress: Progress | None) -> SettingT:
        """The setting with the smallest estimated bound, by descent along single coordinates."""

    @abstractmethod
    def judged(self, setting: SettingT, inputs: Any, noisy: Any) -> Judged:
        """What became of every example."""

    def details(self, setting: SettingT) -> dict[str, Any]:
        return {}

    def scales(self, setting: SettingT) -> tuple[float, ...]:
        """The noise scale of each layer."""
        return setting.sigmas

    def kl(self, setting: SettingT) -> float:
        return kl_nats(self.distances, self.scales(setting))

    def loss_upper(self, setting: SettingT, errors: int, trials: int) -> float:
        """The upper end of the mean noisy loss."""
        failure = self.asked.sampling_share
        return sampling(errors=errors, trials=trials, failure=failure, identical=False)

    def bound(self, setting: SettingT, loss_upper: float, *, examples: int) -> float:
        """The certificate's number for this setting."""
        return derandomized(
            loss_upper=loss_upper,
            escape=setting.escape_probability,
            kl_nats=self.kl(setting),
            grid_nats=total_nats(self.charges(setting)),
            examples=examples,
            failure=self.asked.failure,
        )

    def fresh_passes(
        self, setting: SettingT, inputs: Any, *, passes: int, seed: int
    ) -> Iterator[tuple[Any, Any]]:
        """``passes`` independent noisy networks for every example, in pieces."""
        generator = torch.Generator(inputs.labels.device).manual_seed(seed)
        for _ in range(passes):
            for part in self._parts(inputs):
                drawn = noise.standard_noise(self.network, len(part), generator)
                yield part, self.noisy_pass(self.network, part, setting.sigmas, drawn)

    def _parts(self, inputs: Any) -> Iterator[Any]:
        return (inputs.part(piece) for piece in noise.pieces(self.network, len(inputs)))


def close(level: Tensor, margin: Tensor) -> Tensor:
    """What hangs on rounding; at infinity nothing does, though infinity is at most infinity."""
    near = (margin - level).abs() <= _CLOSE * (level.abs() + margin.abs())
    return near & level.isfinite() & margin.isfinite()


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


class NoisyJudge(Judge[TailedT]):
    """A theorem whose losses are counted under noise.

    every_class   whether a loss counts as close where any class is, not the runner-up alone
    rounds        of the search, at most, at each stride
    kind          its settings
    coarse        noise scales of the first layer that the search begins with
    early, last   coordinates that other theorems have not: before the first layer's noise, and last
    """

    every_class: ClassVar[bool] = False
    rounds: ClassVar[int]
    kind: type[TailedT]
    coarse: ClassVar[range]
    early: Sequence[Move[TailedT]] = ()
    last: Sequence[Move[TailedT]] = ()

    @abstractmethod
    def drawn(self, inputs: Any, seed: int) -> list[tuple[Any, tuple[Tensor, ...]]]:
        """Some of the examples, in pieces, with the noise that settings are compared with."""

    @abstractmethod
    def forms(self) -> list[tuple[Any, ...]]:
        """What the search begins with for each noise: an escape probability, a tail, its factor."""

    @abstractmethod
    def thresholds(self, setting: TailedT, inputs: Any, noisy: Any) -> Tensor:
        """D(W', x) for every example and every class."""

    def judged(self, setting: TailedT, inputs: Any, noisy: Any) -> Judged:
        """Lost where some class comes within its threshold of the label; NaN counts as a loss."""
        margins = noise.pair_margins(noisy.scores, inputs.labels)
        levels = (self.thresholds(setting, inputs, noisy) * (1.0 + _RELATIVE)).expand_as(margins)
        room = _ABSOLUTE * noisy.scores.abs().amax(1, keepdim=True)
        clear = (margins > levels + room).scatter(1, inputs.labels[:, None], True)
        nearest = margins.argmin(1, keepdim=True)
        level, margin = (values.gather(1, nearest)[:, 0] for values in (levels, margins))
        near = close(levels, margins).any(1) if self.every_class else close(level, margin)
        return ~clear.all(1), level, margin, near

    def search(self, inputs: Any, *, seed: int, progress: Progress | None) -> TailedT:
        drawn, examples = self.drawn(inputs, seed), len(inputs)
        # Nats by which the noise of the final estimate may raise the share of losses.
        slack = -math.log(self.asked.sampling_share) / (self.asked.passes * examples)
        tried = sum(len(part) for part, _ in drawn)

        def objective(setting: TailedT) -> float:
            # Far too large noise cannot win, and the KL alone may rule a setting out.
            complexity = self.kl(setting) / examples
            if complexity > 3.0:
                return vacuous(1.0, complexity)
            lost = 0
            for part, standard in drawn:
                noisy = self.noisy_pass(self.network, part, setting.sigmas, standard)
                lost += int(self.judged(setting, part, noisy)[0].sum())
            share = lost / tried
            upper = float(kl_inverse_upper(share, slack))
            bound = self.bound(setting, upper, examples=examples)
            return bound if bound < 1.0 else vacuous(share, complexity)

        layers = len(self.distances)
        steps = (2,) + (0,) * (layers - 2)
        starts = [self.kind(first, steps, *form) for first in self.coarse for form in self.forms()]
        kind = self.kind
        first, *single = (partial(kind.one_scale, layer=k) for k in range(layers))
        moves: list[Move[TailedT]] = [
            kind.all_scales,
            *single,
            kind.other_escape,
            *self.early,
            first,
        ]
        moves += [kind.other_factor, kind.other_tail, *self.last]
        return descend(starts, objective, moves, rounds=self.rounds, progress=progress)


#: Examples on which settings are compared; the second, even where the network is deep.
_SUBSET, _FEWEST = 3000, 500


class Evaluator(NoisyJudge[Setting]):
    """Theorem D, E or F on a network of linear layers.

    The network is measured once, on the processor; settings differ in noise scales, escape
    probability, tail and in which constants the loss uses.
    """

    rounds, kind, coarse = 12, Setting, range(-52, 0, 6)
    early, last = (Setting.other_named,), (Setting.unanchored,)

    def __init__(
        self, layers: Layers, prior: Layers, asked: SparseSettings, device: torch.device
    ) -> None:
        super().__init__(layers, prior, asked, device)
        self.layers = layers
        self._actual = constants.measured(layers, units=self.theorem == "F")
        self._rounded = cache(self._round)
        output = prior.weights[-1]
        hidden = prior.weights[1:-1] if self.theorem == "F" else ()
        self._grams = tuple(positive_gram(w).to(device) for w in hidden)
        self._anchor = (output[:, None] - output[None]).clamp(min=0).to(device)

    def constants(self, setting: Setting) -> Constants:
        """The constants that the loss of this setting uses, rounded up on their grids."""
        return self._rounded(setting.anchored, setting.named)

    def _round(self, anchored: bool, named: bool) -> Constants:
        rounded = constants.constants(
            self.layers,
            self.prior,
            norms="each" if self.sparse and self.theorem == "D" else "all",
            sums=None if anchored else ("each" if self.sparse else "all"),
            drift=anchored,
            named=named,
            units=self.theorem == "F",
            actual=self._actual,
        )
        constants.check_covering(rounded, self._actual)
        return rounded.to(self.device)

    def charges(self, setting: Setting) -> tuple[Charge, ...]:
        own = setting.charges(sparse=self.sparse)
        return (*self._shared, *own, *self.constants(setting).charges)

    def thresholds(self, setting: Setting, inputs: Inputs, noisy: NoisyPass) -> Tensor:
        used = self.constants(setting)
        if self.theorem == "D":
            escape = setting.escape_probability
            return threshold_d(noisy, inputs.labels, used, escape, sparse=self.sparse)
        shared: dict[str, Any] = {"sparse": self.sparse, "anchor": self._anchor}
        if self.theorem == "F":
            return threshold_f(noisy, inputs, used, setting, grams=self._grams, **shared)
        return threshold_e(noisy, inputs, used, setting, **shared)

    def drawn(self, inputs: Inputs, seed: int) -> list[tuple[Inputs, tuple[Tensor, ...]]]:
        generator = torch.Generator(self.device).manual_seed(derived_seed(seed, "search"))
        subset = min(self.asked.subset or _SUBSET, len(inputs))
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
