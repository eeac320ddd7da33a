"""What one asks of a data set or a network: the computation, the page and the words of each."""

#: The studies that are commands: the module below this package that has the study as STUDY, the
#: words of the help and an example.
STUDIES = {
    "memorize": (
        "memorization",
        "Construct a network with 2n + d weights that gets every label right, random ones "
        "included, and prove it in exact arithmetic.",
        "nonvacuous memorize --data digits --out memorized",
    ),
    "interpolate": (
        "interpolate",
        "Fit every training example exactly with a kernel: the function of smallest norm, "
        "for true and random labels at once, with its error on new examples.\n\n"
        "No ridge is added; near-singular is reported.",
        "nonvacuous interpolate --data digits --labels true,partial:0.5,random",
    ),
    "measures": (
        "measures",
        "Show all complexity measures of a network, and put them on trial.\n\n"
        "Trains the network unless --weights is given. --attack measures the same "
        "function in random gauges; --against random-labels sets a network trained on "
        "random labels beside it.",
        "nonvacuous measures --data digits --attack --out measures",
    ),
    "sparsity": (
        "sparsity",
        "Show how few units of a network are active, how firmly, and what a bound makes "
        "of it.\n\n"
        "With a prior, a certificate for the network itself stands beside a plain test "
        "and the bounds from norms.",
        "nonvacuous sparsity --data digits --out sparsity",
    ),
}
