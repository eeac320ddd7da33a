"""Tests of predictors on examples they never saw: exact, and checked by others. No torch."""
