"""Memorization: 2n + d weights give n points any n values, constructed and certified exactly."""

from __future__ import annotations

from nonvacuous.memorization.exact import ExactCertificate, LemmaCheck, check_lemma
from nonvacuous.memorization.inputs import ConflictingValues, Duplicates, random_labels
from nonvacuous.memorization.memorizer import Memorizer, memorize, what_it_does_not_say
from nonvacuous.memorization.networks import MemorizingNetwork, Residual
from nonvacuous.memorization.networks import load_network as load

__all__ = [
    "ConflictingValues",
    "Duplicates",
    "ExactCertificate",
    "LemmaCheck",
    "Memorizer",
    "MemorizingNetwork",
    "Residual",
    "check_lemma",
    "load",
    "memorize",
    "random_labels",
    "what_it_does_not_say",
]
