"""Everything that decides what the rescaling figure shows, fixed before any number is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.experiments.published import MLPS
from nonvacuous.experiments.settings_files import SettingsFile


@dataclass(frozen=True)
class RescalingSettings(SettingsFile):
    """One reproduction of the figure.

    data              the data set; the paper's is mnist
    examples          train and bound on so many, the first ones (None: all); the others keep out
    networks          hidden widths of each perceptron
    initialization    "lecun": weights uniform with variance 1 / (number of inputs), biases zero;
                      "pytorch": torch's own
    learning_rate .. batch_size
                      plain stochastic gradient descent on the cross-entropy
    paper_prior_scale, paper_posterior_scale
                      the paper's setting: a prior centered on zero, equal noise around the weights
    column_scales     noise at which all ways of accounting are compared
    prior_scales      our grid (lowest, highest, number); every tensor chooses its own, all paid
                      for. The one in the middle also says from which point of the network's orbit
                      the posterior starts: a small one stays near the initial weights
    posterior_scales  the noise levels that are tried (free)
    trials            pairs of an example and a draw of the weights, for every risk
    attempts          certificates that share the confidence: those of the figure, and all that
                      were tried on the same examples while these settings were being chosen
    """

    data: str = "mnist"
    examples: int | None = 55_000
    networks: tuple[tuple[int, ...], ...] = tuple(entry.widths for entry in MLPS)
    initialization: str = "lecun"
    epochs: int = 5
    learning_rate: float = 0.01
    momentum: float = 0.9
    batch_size: int = 128
    paper_prior_scale: float = 1.0
    paper_posterior_scale: float = 0.03
    column_scales: tuple[float, ...] = (0.03, 0.06)
    prior_scales: tuple[float, float, int] = (0.0001, 0.5, 241)
    posterior_scales: tuple[float, float, int] = (0.02, 0.1, 16)
    trials: int = 200_000
    confidence: float = 0.95
    attempts: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("networks", "column_scales", "prior_scales", "posterior_scales"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        if not self.networks:
            raise BadInput("the figure needs at least one network; networks is empty")
        for widths in self.networks:
            if not widths or not all(isinstance(w, int) and w > 0 for w in widths):
                raise BadInput(
                    f"networks: {widths!r} is not a list of hidden widths, such as [64, 32]"
                )
        if self.initialization not in ("lecun", "pytorch"):
            raise BadInput(f"initialization must be lecun or pytorch, not {self.initialization!r}")

    @classmethod
    def quick(cls) -> RescalingSettings:
        """The same steps on the small embedded digits, in seconds: to see that everything works."""
        return cls(
            data="digits",
            examples=None,
            networks=((32,), (64, 32)),
            epochs=10,
            batch_size=32,
            prior_scales=(0.0004, 1.0, 41),
            posterior_scales=(0.03, 0.3, 4),
            trials=2_000,
        )

    def only(
        self, names: tuple[str, ...], *, inputs: int = 784, classes: int = 10
    ) -> RescalingSettings:
        """The same with some of the networks, named like 784-32-10 or by their hidden widths 32."""
        listed = {network_name(w, inputs=inputs, classes=classes): w for w in self.networks}
        short = {"-".join(map(str, w)): w for w in self.networks}
        chosen = []
        for name in names:
            plain = name.replace(",", "-")
            if plain not in listed and plain not in short:
                raise BadInput(f"there is no network {name!r} here; there are {', '.join(listed)}")
            chosen.append(listed.get(plain) or short[plain])
        return replace(self, networks=tuple(dict.fromkeys(chosen)))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, as they stand in a file."""
        record: dict[str, Any] = _plain(asdict(self))
        return record


def network_name(widths: tuple[int, ...], *, inputs: int = 784, classes: int = 10) -> str:
    """The sizes of all layers.

    >>> network_name((64, 32))
    '784-64-32-10'
    """
    return "-".join(map(str, (inputs, *widths, classes)))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value
