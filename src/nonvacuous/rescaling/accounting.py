"""Which complexities may be compared freely, and which only at a price.

A PAC-Bayes bound holds for all posteriors at once, so among complexities with the *same prior* the
smallest may be quoted after seeing the data, for nothing. A different prior is a different
theorem: choosing between priors must be paid for with weights that were fixed before the data,
ln(1 / weight) nats each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nonvacuous.errors import BadInput, InvalidCertificate

_EPSILON = 2.0**-52


@dataclass(frozen=True)
class Column:
    """One way to account for the complexity.

    kl_nats      the KL, rounded up
    charge_nats  what choosing this member of a grid of priors costs (0: nothing was chosen)
    same_prior   whether the prior is that of the first column: the family named in advance
    family       which columns with another prior share one; by default each stands alone
    """

    name: str
    kl_nats: float
    charge_nats: float = 0.0
    same_prior: bool = True
    family: str = ""

    def __post_init__(self) -> None:
        for label in ("kl_nats", "charge_nats"):
            value = getattr(self, label)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(
                    f"column {self.name!r}: {label} is {value!r}; a KL and a charge are finite "
                    "and at least 0, and a negative one means that some saving was counted twice"
                )
        if not self.same_prior and not self.family:
            object.__setattr__(self, "family", self.name)
        if self.same_prior and self.family:
            raise BadInput(
                f"column {self.name!r} has the prior named in advance, so it belongs to no other "
                f"family; leave out family={self.family!r} or set same_prior=False"
            )

    @property
    def total_nats(self) -> float:
        """KL and charge, rounded up: what goes into a bound."""
        return rounded_up_sum(self.kl_nats, self.charge_nats)


@dataclass(frozen=True)
class Complexity:
    """All the columns that are shown, and the rules for quoting one of them.

    >>> shown = Complexity((
    ...     Column("weight space", 900.0),
    ...     Column("rescaled", 500.0),
    ...     Column("prior at initialization", 300.0, same_prior=False),
    ... ))
    >>> shown.cheapest().name
    'rescaled'
    >>> weights = {"": 0.5, "prior at initialization": 0.5}
    >>> shown.cheapest(family_weights=weights).charge_nats > math.log(2)
    True
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise BadInput(f"two columns are called {name!r}; give each its own name")
        if not any(column.same_prior for column in self.columns):
            raise BadInput("no column has the prior named in advance; one must be the headline")
        for family in self.families:
            self._check_charges(family)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of priors, "" for the one named in advance."""
        return tuple(dict.fromkeys(column.family for column in self.columns))

    def cheapest(self, *, family_weights: Mapping[str, float] | None = None) -> Column:
        """The column that may be quoted as the minimum, with everything it must be charged.

        Without weights only the columns with the prior named in advance take part. With
        ``family_weights`` (fixed before the data, one for each family, "" for that of the prior
        named in advance, sum at most 1) every column does, and each pays ln(1 / weight) of its
        family, also those of the prior named in advance.
        """
        if family_weights is None:
            free = [column for column in self.columns if column.same_prior]
            return min(free, key=lambda column: column.total_nats)
        self._check_weights(family_weights)
        return min(
            (
                Column(
                    name=column.name,
                    kl_nats=column.kl_nats,
                    charge_nats=rounded_up_sum(
                        column.charge_nats, -math.log(family_weights[column.family])
                    ),
                    same_prior=column.same_prior,
                    family=column.family,
                )
                for column in self.columns
                if column.family in family_weights
            ),
            key=lambda column: column.total_nats,
        )

    def _check_weights(self, weights: Mapping[str, float]) -> None:
        unknown = sorted(set(weights) - set(self.families))
        if unknown:
            raise BadInput(
                f"family_weights names {unknown[0]!r}, but no column has such a prior; the "
                f"families are {', '.join(repr(family) for family in self.families)}"
            )
        if not weights or any(not 0 < weight <= 1 for weight in weights.values()):
            raise BadInput("family_weights must be numbers above 0 and at most 1")
        if math.fsum(weights.values()) > 1:
            raise BadInput(
                f"family_weights add up to {math.fsum(weights.values())!r}; they share one failure "
                "probability, so they may add up to at most 1"
            )

    def _check_charges(self, family: str) -> None:
        """Within one prior, a member that costs nothing has all the weight: no other has any."""
        charges = [c for c in self.columns if c.family == family]
        free = [c.name for c in charges if c.charge_nats == 0]
        paying = [c.name for c in charges if c.charge_nats > 0]
        if free and paying:
            raise BadInput(
                f"columns {free[0]!r} (no charge) and {paying[0]!r} (charged for a choice) are "
                "said to have the same prior; a prior fixed in advance and a choice from a grid "
                "are different priors: charge both, or mark one with same_prior=False"
            )


def rounded_up_sum(*parts: float) -> float:
    """A sum of nonnegative numbers, rounded up; 0 where all are 0."""
    total = math.fsum(parts)
    return math.nextafter(total * (1 + _EPSILON), math.inf) if total > 0 else 0.0


def remaining_nats(kl_nats: float, *savings: float) -> float:
    """What is left of a KL after savings, rounded up.

    Each saving is the difference between two KLs, so what is left is a KL and cannot be negative.
    Where it is, by more than rounding explains, two savings were counted that exclude one
    another, and no number is given.
    """
    left = math.fsum([kl_nats, *(-saving for saving in savings)])
    slack = 8 * _EPSILON * (kl_nats + math.fsum(savings))
    if left < -slack:
        raise InvalidCertificate(
            f"savings of {math.fsum(savings):.6g} nats are claimed on a KL of {kl_nats:.6g} nats: "
            "the result would be a negative KL, which does not exist; some savings exclude one "
            "another (as the symmetry of a layer's units, computed with the full last layer, "
            "excludes the shift of the scores)"
        )
    return math.nextafter(left + slack, math.inf) if left + slack > 0 else 0.0
