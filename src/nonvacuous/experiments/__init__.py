"""Experiments: the tables and figures of papers, each one call, beside what was published."""
