"""Which examples did what: the n of the theorem, what the prior saw, copies, independence."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from nonvacuous.audit import gathering, probing
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.holding import held_examples
from nonvacuous.audit.knowing import irreproducible, knowledge, surprises
from nonvacuous.audit.registry import Outcome, asserted, check, doubtful, holds, refuse, unknowable
from nonvacuous.certificate import UNSEEN
from nonvacuous.data import Examples, splits
from nonvacuous.kinds import PRIOR_MODES, STEPS_MODES
from nonvacuous.recipes import recipe_of
from nonvacuous.risk.losses import zero_one
from nonvacuous.rules.digests import example_set, index_digest

#: Data sets that were collected with care hold next to no copies; from this part of the bound
#: examples on, counting each as a draw of its own is in doubt.
MANY_REPEATS = 0.01
#: Standard deviations by which a prior may happen to be right about the part that it never saw
#: more often than about its own.
_DEVIATIONS = 4.0
#: Names that verification asks for.
SEEN = "the prior saw no bound example"
COPIES = "no example has a copy in another part of the data"
START = "the starting weights saw no bound example"
INDEPENDENT = "examples are independent and identically distributed"
#: What a certificate says where the user declared that the starting weights are pretrained.
DECLARED = (
    "the weights that training started from were trained on other, independent data, as declared "
    "by the user."
)
_REMEDY = (
    "Give the function that builds the network (for a prior nv.models.seeded(function, seed=0)), "
    "or nv.models.build(..., seed=0); or, if the weights were trained on other data that are "
    'independent of these, declare pretrained="where they come from".'
)
_READS_NOTHING = (
    "A function that builds the network may have read them; nv.models.build(..., seed=0) does not."
)
_SEEDED = "the starting weights are those of {} at seed {}: "
_BY_FUNCTION = "the function read none of the bound examples and that "
#: What a certificate says of a prior that starts at no network.
CHOSEN = "the prior was chosen without the bound examples, as stated by the one who made it."


def declared(sentence: str) -> str:
    """What a certificate says of pretrained weights: whatever the user says of them."""
    return f"{DECLARED} In their words: “{sentence}”"


class NamedStart(NamedTuple):
    """What made the starting weights, as a certificate names it."""

    builder: str
    seed: int
    built_in: bool

    @property
    def words(self) -> str:
        said = "" if self.built_in else _BY_FUNCTION
        return (
            f"{_SEEDED.format(self.builder, self.seed)}built again, every bit is the same. That "
            f"{said}the seed was not chosen by looking at the bound examples is stated by the one "
            "who chose it."
        )


def named_start(detail: str) -> NamedStart | None:
    """Builder and seed of the starting weights, where a certificate names them."""
    pattern = re.escape(_SEEDED).replace(r"\{\}", "(.+)", 1).replace(r"\{\}", r"(-?\d+)")
    named = re.match(pattern, detail)
    if named is None:
        return None
    return NamedStart(named[1], int(named[2]), _BY_FUNCTION not in detail)


@check(rows=(1,), since=1, name="n comes from the stored indices")
def counted_examples(evidence: Evidence) -> Outcome:
    stored = evidence.bound_examples
    inputs = evidence.bound.inputs
    used = inputs.get("examples", inputs.get("trials"))
    if isinstance(used, bool) or not isinstance(used, int) or used != stored:
        return refuse(
            f"the bound was computed with n = {used!r}, but the stored split has {stored} bound "
            "examples: examples that trained the prior, or were never looked at, do not count. "
            "Compute the bound with the size of split.bound."
        )
    if evidence.data is not None:
        expected = example_set(evidence.examples, evidence.split.bound)
        if evidence.data.bound != expected:
            return refuse(
                f"the record of the bound examples ({evidence.data.bound.examples} examples) does "
                f"not describe the stored split ({expected.examples} examples). Make it with "
                "rules.digests.example_set(examples, split.bound)."
            )
    return holds(f"n = {stored}, the number of stored indices of bound examples.")


@check(rows=(1, 6), since=1, name="the split belongs to these examples")
def split_fits(evidence: Evidence) -> Outcome:
    evidence.split.check_fits(evidence.examples)
    if not evidence.bound_examples:
        return refuse("the split has no bound examples; a bound needs at least one.")
    if evidence.split.content:
        return holds("the split names the content of the examples it was made for.")
    return holds("every index of the split is an example of the data.")


@check(rows=(6,), since=1, name=SEEN, says=("checked", "asserted"), modes=PRIOR_MODES)
def prior_saw_nothing(evidence: Evidence) -> Outcome:
    saw = evidence.prior_saw
    if evidence.prior_saw_digest is not None and (
        saw is None or index_digest(np.unique(saw)) != evidence.prior_saw_digest
    ):
        return refuse(
            "the prior records other examples than those it is said to have seen; pass the split "
            "that the prior was learned on, with its bound part outside of them."
        )
    if saw is None:
        return asserted("the prior was fitted on no example, as stated by the one who made it.")
    if seen := _seen(evidence, saw, who="prior", remedy="train it on split.prior alone"):
        return seen
    kept = np.intersect1d(saw, evidence.split.heldout)
    if kept.size:
        return refuse(
            f"the prior was fitted on {kept.size} held-out examples (the first is {int(kept[0])}), "
            "which the comparison beside the certificate counts as unseen. Train it on "
            "split.prior alone."
        )
    if evidence.prior_given:
        if mixed_up := _knows_the_other_part(evidence, saw):
            return doubtful(mixed_up)
        return asserted(
            f"the prior was fitted on {len(saw)} examples and on no others, as stated by the one "
            "who made it; none of these is a bound example."
        )
    return holds(f"the prior was fitted on {len(saw)} examples; none is a bound example.")


@check(
    rows=(6,), since=1, name="the preprocessing saw no bound example", says=("checked", "asserted")
)
def preprocessing_saw_nothing(evidence: Evidence) -> Outcome:
    saw = evidence.preprocessing_saw
    if saw is None:
        return asserted(
            f"the preprocessing ({evidence.evaluation_transform}) was not fitted to any example, "
            "as stated by the one who chose it."
        )
    outcome = _seen(evidence, saw, who="preprocessing", remedy="fit it on split.prior alone")
    return outcome or holds(f"it was fitted on {len(saw)} examples; none is a bound example.")


@check(rows=(6,), since=1, name=START, says=("asserted",), modes=(*PRIOR_MODES, *STEPS_MODES))
def start_saw_nothing(evidence: Evidence) -> Outcome:
    start = evidence.start
    recipe = None if start is None else recipe_of(start)
    unexplained = "" if start is None else irreproducible(start)
    # The library's own networks read nothing.
    untrained = recipe is not None and recipe.built_in and not unexplained
    if start is not None and not untrained and (held := held_examples(start, evidence.bound_part)):
        return refuse(
            f"before any training here {held.tensor!r} of the network holds {held.examples} of the "
            "bound examples, up to a scale and a shift: whatever built it has read them (or drew "
            "them from the same seed: take another), and what it says near them tells nothing of "
            "others. Take such references from examples that the promise does not count."
        )
    if evidence.pretrained:
        return asserted(declared(evidence.pretrained))
    if start is None:
        return asserted(CHOSEN)
    known = knowledge(start, evidence.bound_part)
    reason = (
        f"before any training here the network already errs on only {known.error:.1%} of the "
        f"bound examples (guessing: {known.guessing:.1%}"
    )
    if known.certain:
        return refuse(f"{reason}): its weights have seen them, or data like them. {_REMEDY}")
    if known.likely and not untrained:
        # Whose function was called, and gives them again, is not asked for it once more.
        remedy = _REMEDY if unexplained else _READS_NOTHING
        return doubtful(
            f"{reason}, with {known.classes} classes): its weights have seen them, or data like "
            f"them, unless they are untrained and very lucky, and then the promise holds. {remedy}"
        )
    if not untrained and (better := surprises(start, evidence.bound_part)):
        return doubtful(
            "before any training here the weights know the bound examples better than the same "
            f"weights in random order ({'; '.join(better)}): they have seen them, or "
            f"data like them, unless their order was designed. {_REMEDY}"
        )
    if unexplained or recipe is None:
        return doubtful(
            f"no seed accounts for the starting weights ({unexplained}), and if "
            f"they were trained on these examples the promise is false. {_REMEDY}"
        )
    return asserted(NamedStart(recipe.name, recipe.seed, recipe.built_in).words)


@check(rows=(6,), since=2, name=UNSEEN, says=("asserted",), modes=("holdout",))
def network_saw_nothing(evidence: Evidence) -> Outcome:
    if evidence.examples.beside_test:
        return doubtful(
            "these are the training part of data that come with a test part, and networks are "
            "trained on such parts. Test on the test part."
        )
    if evidence.unseen:
        return asserted(
            "as declared by the user (unseen): the network, and everything that was chosen about "
            "it, was fixed before anyone looked at these examples."
        )
    return doubtful(
        "nobody said so, and a network that was trained on them, or chosen by them, errs on fewer "
        "of them than of others. Declare unseen=True (--unseen) if it never saw them; a network "
        "that did is certified with a prior (mode post-hoc)."
    )


@check(rows=(6, 23), since=1, name=COPIES)
def no_copies(evidence: Evidence) -> Outcome:
    # Inputs are compared without labels: a relabeled copy leaks just as well.
    hashes, split, saw = evidence.examples.input_hashes(), evidence.split, evidence.prior_saw
    prior = split.prior if saw is None else np.union1d(split.prior, saw)
    copies = _copies(hashes, prior, split.bound)
    if copies.size and evidence.kind.prior and saw is not None:
        return refuse(
            f"{copies.size} bound examples (the first is {int(copies[0])}) are copies of examples "
            "that the prior was fitted on, under another index. Split with split_examples, which "
            "keeps copies in one part."
        )
    for first, second, names in (
        (prior, split.bound, "prior and bound"),
        (split.bound, split.heldout, "bound and held-out"),
        (prior, split.heldout, "prior and held-out"),
    ):
        shared = _copies(hashes, first, second)
        if shared.size:
            return doubtful(
                f"{shared.size} examples (the first is {int(shared[0])}) occur in the {names} "
                "parts, so the parts are not independent. Split with split_examples, which keeps "
                "copies in one part."
            )
    words = "compared by content, no input occurs in two parts."
    if evidence.test is None:
        return holds(words)
    copies = np.isin(evidence.test.input_hashes(), hashes)
    if not copies.any():
        return holds(f"{words} No test input occurs among them either.")
    return holds(
        f"{words} {copies.sum()} of {len(evidence.test)} test inputs are copies of training "
        "inputs: this touches the measured test error, not the promise."
    )


@check(rows=(23,), since=1, name="examples do not come in groups", says=("asserted",))
def no_groups(evidence: Evidence) -> Outcome:
    copies = splits.find_units(
        len(evidence.examples), groups=None, content_hashes=evidence.examples.input_hashes()
    )[1]
    # A split ties copies, and the groups that it is told of.
    if evidence.groups_declared or evidence.split.tied > copies:
        return doubtful(
            "the user declared groups (one patient, one document, one time series): examples of a "
            "group are not independent, and the theorem counts them as if they were. Keep one "
            "example of each group, or read the promise as one about groups."
        )
    return asserted("no groups were declared.")


@check(rows=(23,), since=1, name=INDEPENDENT, says=("not checkable",))
def independent(evidence: Evidence) -> Outcome:
    repeats, count = repeated(evidence.examples, evidence.split.bound), evidence.bound_examples
    if repeats > MANY_REPEATS * count:
        return doubtful(
            f"{repeats} of the {count} bound examples ({repeats / count:.1%}) repeat the input of "
            f"another one: there are only {count - repeats} different inputs, and the theorem "
            f"counts {count} independent draws. Drop the copies (Examples.input_hashes tells "
            "them) and certify again; if they are records of one group (one patient, one "
            "document), keep one example of each. The promise holds only if every repeat was "
            "drawn independently, as where inputs take few values."
        )
    if (numbering := gathering.numbered(evidence.examples)) is not None:
        return refuse(
            f"number {numbering + 1} of each input is another one for each of the "
            f"{len(evidence.examples)} examples, and they lie as evenly as row numbers, ids, "
            "ranks or times at regular intervals do: independent draws would meet or come close. "
            "It tells where an example stood, and the class where a file is sorted by class; new "
            "examples have other ones. Drop that column and certify again."
        )
    # There is no bound beforehand, when only refusals are asked for: a doubt waits for the end.
    if evidence.bound.inputs:
        alike, looked_at = gathering.nearly_alike(evidence.examples, evidence.split.bound)
    else:
        alike, looked_at = 0, count
    if alike > MANY_REPEATS * looked_at:
        return doubtful(
            f"{alike} of {looked_at} bound pictures hardly differ from another one of the data, up "
            "to brightness, contrast and noise: frames of one film, or what augmentation made of "
            f"one picture. The theorem counts {count} independent draws, and a picture whose like "
            "was trained on says nothing of new ones. Keep one of each kind, and augment in "
            "training alone."
        )
    note = f" {repeats} bound examples repeat the input of another one." if repeats else ""
    return unknowable(
        "every promise here is about draws from the one distribution that the bound examples were "
        f"drawn from, independently; no file can show this.{note}"
    )


@check(rows=(24,), since=1, name="the data are what they are said to be", says=("not checkable",))
def honest_source(evidence: Evidence) -> Outcome:
    if (tested := gathering.contradicted(evidence)) is not None:
        rate, count = tested.errors / tested.trials, evidence.bound_examples
        return doubtful(
            f"{tested.name} errs on {rate:.1%}, and the promise leaves next to no chance to that. "
            f"Either these are not drawn as the {count} bound examples are, or something knew "
            "those: groups or near copies in several parts, a column that gives the class away, "
            "weights or a choice that rest on them. Only a promise about examples like the bound "
            "ones may hold."
        )
    return unknowable(
        f"that the {evidence.bound_examples} examples of {evidence.examples.name} were collected "
        "as described, and not selected, is known only to whoever collected them."
    )


def repeated(examples: Examples, indices: np.ndarray) -> int:
    """How many of these examples have the input of an earlier one."""
    hashes = examples.input_hashes()[indices]
    return len(hashes) - len(np.unique(hashes))


def _knows_the_other_part(evidence: Evidence, saw: np.ndarray) -> str | None:
    """Whether the prior's network is right about the bound part more than about its own."""
    assert evidence.prior is not None
    # Of one fixed network the noise is kept in doubles.
    means = {n: m.to(evidence.module.get_parameter(n)) for n, m in evidence.prior.means.items()}
    network, bound = probing.Network.of(evidence.module, means), evidence.split.bound
    own, other = (
        probing.recount(network, evidence.examples.subset(part), zero_one) for part in (saw, bound)
    )
    mean = (own.total + other.total) / (own.trials + other.trials)
    deviation = math.sqrt(mean * (1.0 - mean) * (1.0 / own.trials + 1.0 / other.trials))
    rates = own.total / own.trials, other.total / other.trials
    if rates[0] - rates[1] <= _DEVIATIONS * deviation:
        return None
    return (
        f"the prior's network errs on {rates[0]:.1%} of the {own.trials} examples that it is said "
        f"to have been fitted on, and on {rates[1]:.1%} of the {other.trials} bound ones: is it "
        "the other way round, or were the examples in another order then?"
    )


def _seen(evidence: Evidence, saw: np.ndarray, *, who: str, remedy: str) -> Outcome | None:
    indices = np.asarray(saw)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return refuse(f"the record of what the {who} saw is not a list of indices.")
    if indices.size and (indices.min() < 0 or int(indices.max()) >= len(evidence.examples)):
        return refuse(
            f"the {who} records indices outside the {len(evidence.examples)} examples; it was made "
            "with other data."
        )
    shared = np.intersect1d(indices, evidence.split.bound)
    if shared.size:
        return refuse(
            f"the {who} was fitted on {shared.size} bound examples (the first is "
            f"{int(shared[0])}): the bound counts them as unseen. To fix it, {remedy}."
        )
    copies = _copies(evidence.examples.input_hashes(), indices, evidence.split.bound)
    if copies.size:
        return refuse(
            f"{copies.size} bound examples (the first is {int(copies[0])}) are copies of examples "
            f"that the {who} was fitted on. Split with split_examples, which keeps copies "
            f"together, and {remedy}."
        )
    return None


def _copies(hashes: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Indices of ``second`` whose content also occurs among ``first``."""
    return np.asarray(second)[np.isin(hashes[second], hashes[first])]
