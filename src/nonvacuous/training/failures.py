"""The ways in which training stops on purpose."""

from __future__ import annotations

from nonvacuous.errors import BadInput, NonvacuousError


class Diverged(NonvacuousError):
    """The loss or a weight left the finite numbers."""


class CorruptCheckpoint(BadInput):
    """A checkpoint file was damaged or is not a checkpoint of this library."""


class OtherConfiguration(BadInput):
    """A checkpoint belongs to a run with other settings, another model or other data."""
