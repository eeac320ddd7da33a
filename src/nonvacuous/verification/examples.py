"""The certificate against the data: the very examples, by content."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nonvacuous.audit.data_checks import COPIES, INDEPENDENT, MANY_REPEATS, SEEN, repeated
from nonvacuous.certificate import Certificate
from nonvacuous.data import Dataset, Examples, Split, Standardize, load
from nonvacuous.data.preprocessing import STANDARDIZED
from nonvacuous.rules import arithmetic, digests
from nonvacuous.sparsity.training import scaled
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry, Known, roles

_SAME = "the examples are the recorded ones"


def check_examples(inquiry: Inquiry, data: Any) -> Known | None:
    """Compare content hashes. Returns the examples if they are the recorded ones."""
    certificate = inquiry.certificate

    def read() -> tuple[str, tuple[Examples, Examples | None]]:
        whole = load(os.fspath(data)) if isinstance(data, str | os.PathLike) else Dataset.of(data)
        train = prepared(whole.train, certificate)
        test = None if whole.test is None else prepared(whole.test, certificate)
        equal(certificate.data.classes, train.classes, "data.classes")
        return f"{train.name}: {len(train)} examples, {train.classes} classes.", (train, test)

    given = inquiry.learn("the data can be read", "data", read)
    if given is None:
        return None

    def same() -> tuple[str, Known]:
        (examples, test), record = given, certificate.data
        split, everything = inquiry.contents.split, np.arange(len(examples))
        if split is None:  # all examples for the bound, where that is how it came about
            alone = record.prior is None and record.held_out is None
            if not alone or digests.index_digest(everything) != record.bound.index_digest:
                raise NotAsked(
                    "which examples they are is stored in the run folder, which is not at hand."
                )
            split = Split(everything[:0], everything, everything[:0])
        own, recorded, standardized = examples.preprocessing, record.preprocessing, False
        if len(split.prior) >= 2 and "; ".join(own) != recorded and STANDARDIZED in recorded:
            # Means and scales computed again from the prior part, where the certificate says so.
            fitted = Standardize.fit(examples.subset(split.prior))
            standardized = "; ".join((*own, fitted.step)) == recorded
            if standardized:
                examples, test = fitted(examples), None if test is None else fitted(test)
        for where, indices, part in roles(split, record):
            if part is not None:
                digest = digests.content_digest(examples, indices)
                equal(part.content_digest, digest, f"{where}.content_digest")
        words = f"{len(split.bound)} bound examples, compared by content."
        return words, Known(examples, split, test, standardized)

    known = inquiry.learn(_SAME, "data.bound.content_digest", same)
    if known is None:
        return None
    examples, split = known.examples, known.split

    def apart() -> str:
        if inquiry.admitted(SEEN) or inquiry.admitted(COPIES):
            raise NotAsked("the certificate itself says that it did.", needed=False)
        hashes = examples.input_hashes()
        copies = int(np.isin(hashes[split.bound], hashes[split.prior]).sum())
        if copies:
            raise Disagreement(f"{copies} bound examples are copies of examples the prior saw.")
        return "compared by content, none is a copy."

    def different() -> str:
        repeats, count = repeated(examples, split.bound), len(split.bound)
        if repeats > MANY_REPEATS * count:
            many = f"{repeats} of the {count} bound examples repeat the input of another one"
            if not inquiry.admitted(INDEPENDENT):
                raise Disagreement(
                    f"{many}, and the certificate counts them as independent draws without a "
                    "condition."
                )
            return f"{many}, as the certificate itself says."
        return f"{repeats} of {count} repeat the input of another one."

    def constant() -> str:
        baseline = certificate.baseline
        assert baseline is not None
        counts = examples.class_counts(split.bound)
        expected = arithmetic.baseline_record(counts, examples.class_names, certificate.budget)
        equal(baseline.errors, expected.errors, "baseline.errors")
        equal(baseline.answer, expected.answer, "baseline.answer")
        # Without names, here or where it was made, classes are called by their numbers.
        unnamed = str(expected.answer) in (baseline.name, expected.name)
        if not unnamed or baseline.name in examples.class_names:
            equal(baseline.name, expected.name, "baseline.name")
        return f"always answering “{baseline.name}” errs on {baseline.errors} of them."

    if certificate.baseline is not None:
        inquiry.expect("the constant answer is the most frequent class", "baseline", constant)
    inquiry.expect("the bound examples are no copies of one another", "data.bound", different)
    if inquiry.learned:
        inquiry.expect(SEEN, "data.prior", apart)
    return known


def prepared(examples: Examples, certificate: Certificate) -> Examples:
    """The examples with inputs of norm 1, where the certificate is about such and these are not."""
    recorded = certificate.data.preprocessing
    if not certificate.kind.noisy or examples.steps == recorded:
        return examples
    candidate = scaled(examples)
    return candidate if candidate.steps == recorded else examples
