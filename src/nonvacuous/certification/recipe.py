"""How networks are trained on the way to a certificate: plain numbers, with defaults that work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class PlainRecipe:
    """Plain training: of a learned prior on the prior part, and of the held-out twin."""

    epochs: int = 60
    batch_size: int = 64
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    #: Stop after so many epochs without progress on a tenth of the same examples; None: never.
    patience: int | None = None


@dataclass(frozen=True)
class PosteriorRecipe:
    """Training of the posterior on a PAC-Bayes objective."""

    objective: str = "quadratic"
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 0.002
    scale_learning_rate: float | None = None
    momentum: float = 0.9
    schedule: str = "cosine"
    optimizer: str = "sgd"
    kl_penalty: float = 1.0
    warm_up_epochs: int = 0
    minimum_probability: float = 1e-4


@dataclass(frozen=True)
class Recipe:
    """Everything about training that a certificate's maker may choose before seeing the data."""

    plain: PlainRecipe = field(default_factory=PlainRecipe)
    posterior: PosteriorRecipe = field(default_factory=PosteriorRecipe)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Recipe:
        """The recipe out of a table such as TOML gives; an unknown name is an error."""
        parts = {"plain": PlainRecipe, "posterior": PosteriorRecipe}
        for name in record.keys() - parts.keys():
            raise BadInput(f"a recipe has no part {name!r}; it has {', '.join(parts)}")
        made: dict[str, Any] = {}
        for name, kind in parts.items():
            known = {entry.name for entry in fields(kind)}
            given = record.get(name, {})
            for key in given.keys() - known:
                raise BadInput(f"{name} training has no setting {key!r}; it has {sorted(known)}")
            made[name] = kind(**given)
        return cls(**made)
