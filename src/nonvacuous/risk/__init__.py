"""Measuring risk: losses with a range, and estimators that say how much they may be trusted."""
