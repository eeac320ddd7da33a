"""Networks of the usual shapes with tiny widths, each with its number of free scales by hand.

The counts are worked out on paper, as the docstring of each network says: a hidden channel has one
free scale unless something (an output, a normalization, a bounded activation) pins it.
"""

from __future__ import annotations

from tests.networks.architecture import Architecture
from tests.networks.attention import ATTENTION
from tests.networks.convolutional import CONVOLUTIONAL
from tests.networks.dense import DENSE

ARCHITECTURES: list[Architecture] = [*DENSE, *CONVOLUTIONAL, *ATTENTION]
BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}
