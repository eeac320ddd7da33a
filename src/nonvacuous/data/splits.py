"""Which examples shape the prior, which enter the bound, which are held out: fixed once, on disk.

A split is random and never stratified by label: stratification ties the choice of one example to
the labels of the others, the bound part is then no longer a sample of independent examples, and the
theorem does not apply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nonvacuous.data.examples import Examples, checked_positions
from nonvacuous.data.files import read_npz_arrays, write_npz
from nonvacuous.errors import BadInput


def find_units(n: int, *, groups: Any, content_hashes: Any) -> tuple[np.ndarray, int]:
    """The unit of every example, numbered by first appearance, and how many examples share one."""
    keys = [
        _codes(values, n=n, name=name)
        for name, values in (("groups", groups), ("content_hashes", content_hashes))
        if values is not None
    ]
    if not keys:
        return np.arange(n), 0
    # Examples and key values are the nodes of a graph; what is connected must stay together, so
    # a copy that appears in two groups ties both.
    offset, nodes = n, []
    for codes in keys:
        nodes.append(codes + offset)
        offset += int(codes.max(initial=-1)) + 1
    rows, columns = np.tile(np.arange(n), len(nodes)), np.concatenate(nodes)
    graph = coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(offset, offset))
    component = connected_components(graph, directed=False)[1][:n]
    _, first, unit, sizes = np.unique(
        component, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[unit], int(sizes[sizes > 1].sum())


def _codes(values: Any, *, n: int, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (n,):
        raise BadInput(
            f"make_split: {name} has shape {array.shape}; expected one value for each "
            f"of {n} examples"
        )
    if array.dtype.kind not in "iubUS":
        raise BadInput(
            f"make_split: {name} must be integers or text (dtype {array.dtype} cannot be compared "
            "exactly); convert them with numpy.asarray(values).astype(str)"
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


ROLES = ("prior", "bound", "heldout")


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of examples by role; every position has at most one role.

    prior     examples that may shape the prior (and the architecture, the preprocessing, ...)
    bound     examples the bound is computed on: their number is the n of the theorem
    heldout   examples kept for the held-out comparison
    tied      how many examples had to stay with a copy or with their group
    content   content hash of the examples that were split; empty when unknown
    """

    prior: np.ndarray
    bound: np.ndarray
    heldout: np.ndarray
    tied: int = 0
    content: str = ""

    def __post_init__(self) -> None:
        for role in ROLES:
            cleaned = sorted_positions(getattr(self, role), f"the {role} part of a split")
            object.__setattr__(self, role, cleaned)
        for first, second in combinations(ROLES, 2):
            shared = np.intersect1d(getattr(self, first), getattr(self, second), assume_unique=True)
            if shared.size:
                raise BadInput(
                    f"example {int(shared[0])} has two roles, {first} and {second} "
                    f"({shared.size} examples do); a bound on data the prior has seen is false. "
                    "Make the split again with make_split"
                )

    def __len__(self) -> int:
        return len(self.prior) + len(self.bound) + len(self.heldout)

    def digest(self) -> str:
        """sha256 over the indices, each role with its name and its number of examples."""
        digest = hashlib.sha256(b"nonvacuous split\n")
        for role in ROLES:
            indices = getattr(self, role)
            digest.update(f"{role} {len(indices)}\n".encode())
            digest.update(indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def check_fits(self, examples: Examples) -> None:
        """Raise BadInput unless this split belongs to these examples in this order."""
        highest = max(int(getattr(self, role).max(initial=-1)) for role in ROLES)
        if highest >= len(examples):
            raise BadInput(
                f"the split names example {highest}, but {examples.name} has only {len(examples)}; "
                "it was made for other data"
            )
        if self.content and self.content != examples.content_hash():
            raise BadInput(
                f"the split was made for other examples than {examples.name}, or for the same in "
                "another order; load the data it was made with, or make a new split"
            )

    def save(self, path: str | Path) -> None:
        """Write the split to an npz file, atomically."""
        facts = {"tied": self.tied, "content": self.content, "digest": self.digest()}
        arrays = {role: getattr(self, role) for role in ROLES}
        write_npz(Path(path), arrays | {name: np.array(fact) for name, fact in facts.items()})

    @classmethod
    def load(cls, path: str | Path) -> Split:
        """Read a split back; roles that overlap or a changed file raise BadInput."""
        arrays = read_npz_arrays(Path(path))
        missing = [key for key in (*ROLES, "digest") if key not in arrays]
        if missing:
            raise BadInput(
                f"{path} is not a split: it has the keys {sorted(arrays)}, "
                f"but {missing} are missing"
            )
        for key, kinds in (("tied", "iu"), ("content", "U"), ("digest", "U")):
            if key in arrays and (arrays[key].ndim != 0 or arrays[key].dtype.kind not in kinds):
                raise BadInput(f"{path} is not a split: {key!r} is not a single value")
        prior, bound, heldout = (arrays[role] for role in ROLES)
        tied, content = int(arrays.get("tied", 0)), str(arrays.get("content", ""))
        split = cls(prior, bound, heldout, tied, content)
        if split.digest() != str(arrays["digest"]):
            raise BadInput(
                f"{path} was changed after it was written: its digest does not match its indices. "
                "Restore it, or train again with a new split"
            )
        return split


def index_digest(indices: np.ndarray) -> str:
    """sha256 over positions alone, whatever their role: equal for equal sets of examples."""
    return hashlib.sha256(np.sort(indices).astype("<i8").tobytes()).hexdigest()


def make_split(
    n: int,
    *,
    prior_fraction: float,
    heldout_fraction: float = 0.0,
    seed: int,
    groups: Sequence[Any] | np.ndarray | None = None,
    content_hashes: Sequence[Any] | np.ndarray | None = None,
    content: str = "",
) -> Split:
    """Split n examples at random into prior, bound and held-out part.

    groups           one value per example (a patient, a document): a group stays in one role
    content_hashes   one value per example: identical examples stay in one role, so that the bound
                     is not computed on copies of what the prior saw
    content          content hash of the whole set, stored in the split for later checks

    Depends on the arguments alone: the same seed gives the same split, whatever else in the
    process draws random numbers. With groups or copies the parts have nearly, not exactly, the
    sizes asked for; `Split.tied` counts the examples concerned. Examples within a group are not
    independent of one another: keeping groups together prevents leaks, but a bound that counts
    every example still assumes independence.
    """
    _check_numbers(n, prior_fraction, heldout_fraction, seed)
    unit, tied = find_units(n, groups=groups, content_hashes=content_hashes)
    sizes = np.bincount(unit)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(sizes))
    ends = np.cumsum(sizes[order])
    # A unit belongs where its middle lies; for units of one example the parts come out exact.
    middles = ends - sizes[order] / 2
    prior_end = round(prior_fraction * n)
    heldout_end = prior_end + round(heldout_fraction * n)
    role_of_unit = np.empty(len(sizes), dtype=np.int64)
    role_of_unit[order] = np.where(middles < prior_end, 0, np.where(middles < heldout_end, 2, 1))
    role = role_of_unit[unit]
    parts = [np.flatnonzero(role == index) for index in range(3)]
    wanted = (prior_fraction > 0, True, heldout_fraction > 0)
    for name, part, needed in zip(ROLES, parts, wanted, strict=True):
        if needed and not len(part):
            raise BadInput(
                f"make_split: the {name} part would be empty ({n} examples in {len(sizes)} groups "
                f"that must stay together, prior_fraction {prior_fraction}, heldout_fraction "
                f"{heldout_fraction}); use more examples, finer groups or other fractions"
            )
    return Split(parts[0], parts[1], parts[2], tied, content)


def split_examples(
    examples: Examples,
    *,
    prior_fraction: float,
    heldout_fraction: float = 0.0,
    seed: int,
    groups: Sequence[Any] | np.ndarray | None = None,
) -> Split:
    """make_split for these examples: identical inputs stay together, and the split knows them.

    Inputs are compared without their labels, so that a copy with another label cannot leak either.
    """
    return make_split(
        len(examples),
        prior_fraction=prior_fraction,
        heldout_fraction=heldout_fraction,
        seed=seed,
        groups=groups,
        content_hashes=examples.input_hashes(),
        content=examples.content_hash(),
    )


def sorted_positions(indices: Sequence[int] | np.ndarray, what: str) -> np.ndarray:
    """Positions of examples in ascending order; ``what`` may not name one twice."""
    array = np.sort(checked_positions(indices, what))
    if array.size > 1 and not np.all(array[1:] > array[:-1]):
        raise BadInput(f"{what} names an example twice")
    array.setflags(write=False)
    return array


def _check_numbers(n: int, prior_fraction: float, heldout_fraction: float, seed: int) -> None:
    for name, number in (("n", n), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0:
            raise BadInput(f"make_split: {name} must be a whole number from 0 up, not {number!r}")
    for name, value in (("prior", prior_fraction), ("heldout", heldout_fraction)):
        if not 0.0 <= value < 1.0:
            raise BadInput(f"make_split: {name}_fraction must be in [0, 1), not {value!r}")
    if not prior_fraction + heldout_fraction < 1.0:
        raise BadInput(
            f"make_split: prior_fraction {prior_fraction} and heldout_fraction {heldout_fraction} "
            "leave nothing for the bound; their sum must stay below 1"
        )
