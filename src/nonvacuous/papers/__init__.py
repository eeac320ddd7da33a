"""Figures and tables of papers, computed again with the published numbers beside ours.

One folder, or one module, for each paper. To add a reproduction, write its study and name it here.
"""

from typing import NamedTuple


class Reproduction(NamedTuple):
    """module: below this package, with the study as STUDY. example: flags that end soon."""

    module: str
    what: str
    example: str = "--quick"


REPRODUCTIONS = {
    "rescaling-figure-1": Reproduction(
        "rescaling.figure",
        "Rouchouse et al., Can Rescaling Invariances Help? (arXiv 2509.26149), Figure 1: "
        "ten perceptrons on MNIST before and after rescaling, and a certificate for each.",
        "--only 784-32-10",
    ),
    "measures-study": Reproduction(
        "measures.study",
        "Jiang et al. (ICLR 2020) and Dziugaite et al. (NeurIPS 2020): a grid of networks "
        "trained to the same loss, and which complexity measures predict their gaps.",
    ),
    "sparsity-mnist": Reproduction(
        "sparsity.study",
        "Muthukumar and Sulam, Sparsity-aware generalization theory for deep neural "
        "networks (COLT 2023): certificates for deterministic networks on MNIST, by every "
        "theorem, dense and sparse, and deeper.",
    ),
    "zhang-table-1": Reproduction(
        "zhang.table",
        "Zhang et al., Understanding deep learning requires rethinking generalization "
        "(ICLR 2017), Table 1: nineteen networks on CIFAR-10, on true and on random "
        "labels.",
        "--only mlp",
    ),
    "zhang-figure-1": Reproduction(
        "zhang.figure",
        "Zhang et al. (ICLR 2017), Figure 1: learning curves, time to fit and test error "
        "as more and more labels are redrawn.",
    ),
    "zhang-regularization": Reproduction(
        "zhang.regularization",
        "Zhang et al. (ICLR 2017): weight decay, augmentation, dropout, batch normalization "
        "and early stopping on and off, on true and on random labels.",
    ),
    "zhang-theorem-1": Reproduction(
        "zhang.theorem",
        "Zhang et al. (ICLR 2017), Theorem 1: 2n + d weights memorize any labels, at "
        "every depth, certified in exact arithmetic.",
    ),
    "zhang-kernels": Reproduction(
        "zhang.kernels",
        "Zhang et al. (ICLR 2017), section 5: exact kernel interpolation of MNIST and "
        "CIFAR-10 with raw pixels, a Gabor bank and random patches.",
    ),
    "zhang-linear": Reproduction(
        "zhang.linear",
        "Zhang et al. (ICLR 2017), section 5: more weights than examples, and which "
        "perfect fit SGD finds.",
    ),
}
