"""One folder for each kind of promise: its settings, how it is made, what verify asks of it.

The folder itself holds the settings and imports no torch; ``making`` makes the certificate and
leaves its evidence, and ``checking`` recomputes both.
"""

from nonvacuous.certification.method import Method
from nonvacuous.methods.held_out import HeldOut
from nonvacuous.methods.post_hoc import PostHoc
from nonvacuous.methods.posterior import Posterior
from nonvacuous.methods.progressive import Progressive
from nonvacuous.methods.sparsity import Sparsity

__all__ = ["METHODS", "HeldOut", "Method", "PostHoc", "Posterior", "Progressive", "Sparsity"]

#: Every method by the name of its mode.
METHODS: dict[str, type[Method]] = {
    kind.mode: kind for kind in (Posterior, PostHoc, Sparsity, HeldOut, Progressive)
}
