"""``nonvacuous reproduce``: a figure or table of a paper, computed again, in one command.

To add one, write a function in ``cli/reproductions/`` and name it in REPRODUCTIONS.
"""

from __future__ import annotations

import difflib
from typing import Annotated

from cyclopts import App, Parameter

from nonvacuous.cli.exits import UsageError

#: What can be reproduced: what it is, and an example that ends soon.
REPRODUCTIONS = {
    "rescaling-figure-1": (
        "Rouchouse et al., Can Rescaling Invariances Help? (arXiv 2509.26149), Figure 1: ten "
        "perceptrons on MNIST before and after rescaling, and a certificate for each.",
        "--only 784-32-10",
    ),
    "measures-study": (
        "Jiang et al. (ICLR 2020) and Dziugaite et al. (NeurIPS 2020): a grid of networks trained "
        "to the same loss, and which complexity measures foretell their gaps.",
        "--quick",
    ),
    "sparsity-mnist": (
        "Muthukumar and Sulam, Sparsity-aware generalization theory for deep neural networks (COLT "
        "2023): certificates for deterministic networks on MNIST, by every theorem, dense and "
        "sparse, and deeper.",
        "--quick",
    ),
    "zhang-table-1": (
        "Zhang et al., Understanding deep learning requires rethinking generalization (ICLR 2017), "
        "Table 1: nineteen networks on CIFAR-10, on true and on random labels.",
        "--only mlp",
    ),
    "zhang-figure-1": (
        "Zhang et al. (ICLR 2017), Figure 1: learning curves, time to fit and test error as more "
        "and more labels are redrawn.",
        "--quick",
    ),
    "zhang-regularization": (
        "Zhang et al. (ICLR 2017): weight decay, augmentation, batch normalization and early "
        "stopping on and off, on true and on random labels.",
        "--quick",
    ),
    "zhang-theorem-1": (
        "Zhang et al. (ICLR 2017), Theorem 1: 2n + d weights memorize any labels, at every depth, "
        "certified in exact arithmetic.",
        "--quick",
    ),
    "zhang-kernels": (
        "Zhang et al. (ICLR 2017), section 5: exact kernel interpolation of MNIST and CIFAR-10 "
        "with raw pixels, a Gabor bank and random patches.",
        "--quick",
    ),
    "zhang-linear": (
        "Zhang et al. (ICLR 2017), section 5: more weights than examples, and which perfect fit "
        "SGD finds.",
        "--quick",
    ),
}

reproduce = App(
    name="reproduce",
    help="Compute a figure or table of a paper again, with the published numbers beside ours.",
    help_epilogue="Example:\n\nnonvacuous reproduce rescaling-figure-1 --only 784-32-10",
    help_format="restructuredtext",
    version_flags=(),
    result_action="return_value",
)
for _name, (_what, _flags) in REPRODUCTIONS.items():
    _function = _name.replace("-", "_")
    # By import path, so that nothing is loaded for the one that is not asked for.
    reproduce.command(
        f"nonvacuous.cli.reproductions.{_function}:{_function}",
        name=_name,
        help=_what,
        help_epilogue=f"Example:\n\nnonvacuous reproduce {_name} {_flags}",
    )


@reproduce.default
def _unknown(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
) -> int:
    """Say what there is when nothing, or something unknown, was asked for."""
    asked = words[0] if words else None
    close = difflib.get_close_matches(asked or "", REPRODUCTIONS, n=1, cutoff=0.4)
    name = close[0] if close else next(iter(REPRODUCTIONS))
    raise UsageError(
        ("name what to reproduce" if asked is None else f"there is no figure {asked!r} here")
        + "; there is "
        + "; ".join(REPRODUCTIONS)
        + ".",
        next_command=f"nonvacuous reproduce {name} --quick",
    )
