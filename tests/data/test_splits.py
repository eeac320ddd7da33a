from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.data import Examples, Split, index_digest, make_split, split_examples
from nonvacuous.errors import BadInput

fractions = st.tuples(st.floats(0.05, 0.6), st.floats(0.0, 0.35))


def roles(split: Split, n: int) -> np.ndarray:
    """The role of every example as a number; fails where an example has none or two."""
    role = np.full(n, -1)
    for number, part in enumerate((split.prior, split.bound, split.heldout)):
        assert (role[part] == -1).all()
        role[part] = number
    assert (role >= 0).all()
    return role


@given(n=st.integers(30, 400), seed=st.integers(0, 2**63), fraction=fractions)
def test_plain_split_is_exact_disjoint_covering_and_deterministic(n, seed, fraction):
    prior, heldout = fraction
    arguments = {"prior_fraction": prior, "heldout_fraction": heldout, "seed": seed}
    if round(heldout * n) == 0:
        arguments["heldout_fraction"] = heldout = 0.0
    split = make_split(n, **arguments)
    roles(split, n)
    assert len(split) == n
    assert len(split.prior) == round(prior * n)
    assert len(split.heldout) == round(heldout * n)
    assert split.tied == 0
    torch.rand(3)
    np.random.random(3)
    again = make_split(n, **arguments)
    assert again.digest() == split.digest()


@given(
    n=st.integers(80, 200),
    spread=st.integers(20, 2000),
    seed=st.integers(0, 10**6),
    use=st.sampled_from([("groups",), ("content_hashes",), ("groups", "content_hashes")]),
)
def test_groups_and_copies_never_cross_roles(n, spread, seed, use):
    generator = np.random.default_rng(seed)
    values = {
        "groups": generator.integers(0, spread, n),
        "content_hashes": generator.integers(0, spread, n).astype("S64"),
    }
    keys = {name: values[name] for name in use}
    try:
        split = make_split(n, prior_fraction=0.4, heldout_fraction=0.2, seed=seed, **keys)
    except BadInput as error:  # with both keys everything may hang together in one piece
        assert len(use) == 2 and "empty" in str(error)
        return
    role = roles(split, n)
    for key in keys.values():
        for value in np.unique(key):
            assert len(set(role[key == value])) == 1
    if len(use) == 1:
        counts = np.unique(keys[use[0]], return_counts=True)[1]
        assert split.tied == counts[counts > 1].sum()


@given(n=st.integers(50, 300), seed=st.integers(0, 1000))
def test_unique_hashes_change_nothing(n, seed):
    plain = make_split(n, prior_fraction=0.5, seed=seed)
    keyed = make_split(n, prior_fraction=0.5, seed=seed, content_hashes=np.arange(n)[::-1])
    assert plain.digest() == keyed.digest()


def test_every_example_is_equally_likely_to_be_in_the_prior():
    counts = np.zeros(40)
    for seed in range(4000):
        counts[make_split(40, prior_fraction=0.25, seed=seed).prior] += 1
    # 4000 draws of probability 1/4: a standard deviation of 27; six of them for forty positions.
    assert np.abs(counts - 1000).max() < 6 * 27.4


def test_a_known_split_stays_what_it_is():
    split = make_split(12, prior_fraction=0.5, heldout_fraction=0.25, seed=7)
    order = np.random.Generator(np.random.PCG64(7)).permutation(12)
    assert split.prior.tolist() == sorted(order[:6].tolist())
    assert split.heldout.tolist() == sorted(order[6:9].tolist())
    assert split.bound.tolist() == sorted(order[9:].tolist())


def test_without_a_prior_part():
    split = make_split(20, prior_fraction=0.0, seed=0)
    assert len(split.prior) == 0 and len(split.bound) == 20 and len(split.heldout) == 0


def test_a_copy_in_two_groups_ties_both():
    groups = ["a"] * 10 + ["b"] * 10 + [f"c{index}" for index in range(40)]
    hashes = np.arange(60)
    hashes[19] = hashes[0]
    for seed in range(20):
        split = make_split(60, prior_fraction=0.5, seed=seed, groups=groups, content_hashes=hashes)
        assert len(set(roles(split, 60)[:20])) == 1
        assert split.tied == 20


def test_split_examples_ties_relabeled_copies_too(make_examples):
    base = make_examples(100)
    inputs = base.inputs.clone()
    inputs[50:] = inputs[:50]
    examples = Examples(inputs, base.labels, base.class_names, "copies")
    split = split_examples(examples, prior_fraction=0.5, seed=3)
    role = roles(split, 100)
    assert (role[:50] == role[50:]).all()
    assert split.tied == 100
    split.check_fits(examples)
    with pytest.raises(BadInput, match="other examples"):
        split.check_fits(examples.subset(np.arange(100)[::-1]))
    with pytest.raises(BadInput, match="has only 40"):
        split.check_fits(examples.subset(np.arange(40)))


def test_round_trip_on_disk(tmp_path):
    split = make_split(90, prior_fraction=0.3, heldout_fraction=0.1, seed=1, content="ab" * 32)
    path = tmp_path / "run" / "split.npz"
    split.save(path)
    loaded = Split.load(path)
    assert loaded.digest() == split.digest()
    assert (loaded.tied, loaded.content) == (0, "ab" * 32)
    assert loaded.bound.dtype == np.int64 and not loaded.bound.flags.writeable
    assert [entry.name for entry in path.parent.iterdir()] == ["split.npz"]  # no temporary left


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "split.npz"
    old = make_split(90, prior_fraction=0.3, seed=1)
    old.save(path)

    def broken(stream, **_):
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        make_split(90, prior_fraction=0.3, seed=2).save(path)
    assert Split.load(path).digest() == old.digest()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["split.npz"]


def test_digest_knows_roles():
    a, b, none = np.array([0, 1]), np.array([2, 3]), np.array([], dtype=int)
    digests = {
        Split(a, b, none).digest(), Split(b, a, none).digest(), Split(a, none, b).digest(),
        Split(none, np.arange(4), none).digest(),
    }  # fmt: skip
    assert len(digests) == 4
    assert index_digest(np.array([3, 1])) == index_digest(np.array([1, 3]))
    assert index_digest(a) != index_digest(b)


def test_unsorted_indices_are_sorted_and_copied():
    given_indices = np.array([5, 1, 3])
    split = Split(given_indices, np.array([2]), np.array([]))
    given_indices[0] = 2
    assert split.prior.tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("prior", "bound", "heldout", "message"),
    [
        ([0, 1], [1, 2], [], "example 1 has two roles, prior and bound"),
        ([0], [1, 2], [2], "two roles, bound and heldout"),
        ([0], [1], [0], "two roles, prior and heldout"),
        ([0, 0], [1], [], "twice"),
        ([-1], [1], [], "negative"),
        ([0.5], [1], [], "integer positions"),
        ([[0]], [1], [], "integer positions"),
        ([True], [1], [], "integer positions"),
    ],
)
def test_bad_roles(tmp_path, prior, bound, heldout, message):
    with pytest.raises(BadInput, match=message):
        Split(np.array(prior), np.array(bound), np.array(heldout))
    path = tmp_path / "bad.npz"
    np.savez(path, prior=prior, bound=bound, heldout=heldout, digest="0" * 64)
    with pytest.raises(BadInput, match=message):
        Split.load(path)


def test_load_refuses_what_is_not_a_split(tmp_path):
    with pytest.raises(BadInput, match="no file"):
        Split.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(BadInput, match="cannot be read"):
        Split.load(tmp_path / "text.npz")
    np.savez(tmp_path / "keys.npz", prior=[0], bound=[1])
    with pytest.raises(BadInput, match=r"\['heldout', 'digest'\] are missing"):
        Split.load(tmp_path / "keys.npz")
    np.savez(tmp_path / "changed.npz", prior=[0], bound=[1], heldout=[2], digest="0" * 64)
    with pytest.raises(BadInput, match="changed after it was written"):
        Split.load(tmp_path / "changed.npz")
    np.savez(tmp_path / "odd.npz", prior=[0], bound=[1], heldout=[2], digest=[1, 2])
    with pytest.raises(BadInput, match="not a single value"):
        Split.load(tmp_path / "odd.npz")
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "objects.npz", prior=objects, bound=[1], heldout=[2], digest="")
    with pytest.raises(BadInput, match="Python objects"):
        Split.load(tmp_path / "objects.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": -1}, "n must be"),
        ({"n": 2.5}, "n must be"),
        ({"n": True}, "n must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"prior_fraction": -0.1}, "prior_fraction"),
        ({"prior_fraction": float("nan")}, "prior_fraction"),
        ({"heldout_fraction": 1.0}, "heldout_fraction"),
        ({"heldout_fraction": 0.5}, "leave nothing for the bound"),
        ({"n": 0}, "empty"),
        ({"prior_fraction": 0.001}, "prior part would be empty"),
        ({"groups": [0] * 100}, "part would be empty"),
        ({"groups": [0] * 99}, r"shape \(99,\)"),
        ({"groups": np.full(100, np.nan)}, "integers or text"),
        ({"groups": [None] * 100}, "integers or text"),
    ],
)
def test_make_split_refuses(changes, message):
    arguments = {"n": 100, "prior_fraction": 0.5, "seed": 0} | changes
    with pytest.raises(BadInput, match=message):
        make_split(arguments.pop("n"), **arguments)
