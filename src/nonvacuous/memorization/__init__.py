"""Memorization: 2n + d weights give n points any n values, constructed and certified exactly."""

from __future__ import annotations

from nonvacuous.memorization.assemble import memorize
from nonvacuous.memorization.duplicates import ConflictingValues, Duplicates
from nonvacuous.memorization.evaluate import Residual
from nonvacuous.memorization.exact import ExactCertificate
from nonvacuous.memorization.export import load_network as load
from nonvacuous.memorization.labels import random_labels
from nonvacuous.memorization.lemma import LemmaCheck, check_lemma
from nonvacuous.memorization.memorizer import Memorizer
from nonvacuous.memorization.networks import MemorizingNetwork
from nonvacuous.memorization.scope import what_it_does_not_say

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
