"""What may be compared freely, and what must be paid for."""

from __future__ import annotations

import math

import pytest

from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.rescaling.accounting import Column, Complexity, remaining_nats


def test_columns_with_the_same_prior_are_minimized_for_nothing() -> None:
    shown = Complexity((Column("a", 5.0), Column("b", 3.0), Column("c", 1.0, same_prior=False)))
    assert shown.cheapest().name == "b"
    assert shown.cheapest().total_nats == pytest.approx(3.0, rel=1e-14)


def test_another_prior_takes_part_only_with_weights_and_everybody_pays() -> None:
    shown = Complexity(
        (
            Column("base", 30.0),
            Column("rescaled", 20.0),
            Column("init", 19.5, same_prior=False, family="initialization"),
            Column("init rescaled", 18.0, same_prior=False, family="initialization"),
        )
    )
    assert shown.families == ("", "initialization")
    best = shown.cheapest(family_weights={"": 0.9, "initialization": 0.1})
    # 20 + ln(1/0.9) = 20.105 is less than 18 + ln(10) = 20.303.
    assert best.name == "rescaled"
    assert best.total_nats == pytest.approx(20 + math.log(1 / 0.9))
    best = shown.cheapest(family_weights={"": 0.5, "initialization": 0.5})
    assert best.name == "init rescaled"
    assert best.total_nats == pytest.approx(18 + math.log(2))
    assert best.total_nats > 18 + math.log(2)


def test_weights_are_checked() -> None:
    shown = Complexity((Column("a", 5.0), Column("b", 3.0, same_prior=False)))
    with pytest.raises(BadInput, match="at most 1"):
        shown.cheapest(family_weights={"": 0.7, "b": 0.7})
    with pytest.raises(BadInput, match="above 0"):
        shown.cheapest(family_weights={"": 1.0, "b": 0.0})
    with pytest.raises(BadInput, match="no column has such a prior"):
        shown.cheapest(family_weights={"": 0.5, "c": 0.5})


def test_a_fixed_prior_and_a_choice_from_a_grid_are_different_priors() -> None:
    """The mistake: base with a fixed scale (free) beside a scale chosen from a grid (paid)."""
    with pytest.raises(BadInput, match="different priors"):
        Complexity((Column("base", 900.0), Column("best scale", 500.0, charge_nats=math.log(25))))
    Complexity((Column("best scale", 500.0, math.log(25)), Column("base", 900.0, same_prior=False)))


def test_charges_count_in_the_comparison() -> None:
    shown = Complexity((Column("a", 5.0, 1.0), Column("b", 4.5, 2.0)))
    assert shown.cheapest().name == "a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kl_nats": -1e-9}, "counted twice"),
        ({"kl_nats": math.nan}, "finite"),
        ({"kl_nats": 1.0, "charge_nats": math.inf}, "finite"),
        ({"kl_nats": 1.0, "family": "x"}, "belongs to no other"),
    ],
)
def test_impossible_columns_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Column("a", **arguments)


def test_a_headline_is_needed_and_names_are_distinct() -> None:
    with pytest.raises(BadInput, match="headline"):
        Complexity((Column("a", 1.0, same_prior=False),))
    with pytest.raises(BadInput, match="two columns"):
        Complexity((Column("a", 1.0), Column("a", 2.0)))


def test_what_is_left_of_a_kl_is_rounded_up_and_never_negative() -> None:
    assert remaining_nats(10.0, 3.0, 4.0) >= 3.0
    assert remaining_nats(10.0, 3.0, 4.0) == pytest.approx(3.0, rel=1e-12)
    assert 0 <= remaining_nats(0.1 + 0.2, 0.3) < 1e-14
    assert remaining_nats(0.0) == 0.0
    assert remaining_nats(0.3, 0.1, 0.2) >= 0
    with pytest.raises(InvalidCertificate, match="negative KL"):
        remaining_nats(10.0, 10.001)
