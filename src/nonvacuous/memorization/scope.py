"""What the theorem does not say about a user's n and d."""

from __future__ import annotations

from nonvacuous.bounds.memorization_capacity import MemorizationSizes


def what_it_does_not_say(sizes: MemorizationSizes) -> tuple[str, ...]:
    """Sentences to print beside a certificate, so that nobody reads more into it."""
    n, d = sizes.examples, sizes.inputs
    return (
        f"The theorem needs {n:,} hidden units, one for each point, in one layer or spread over "
        "many. It says nothing about narrower networks that people train, such as one hidden "
        "layer of 512 units.",
        "By other theorems, not constructed here, fewer units have weights for any values: "
        f"{sizes.general_position_units:,} in one hidden layer, 4⌈n/d⌉, if no {d + 1:,} points lie "
        "on one hyperplane, which constant features break (Baum 1988; Bubeck et al. 2020); "
        f"{sizes.two_layer_width:,} in each of two hidden layers, about 2√n, for any distinct "
        "points (Yun, Sra and Jadbabaie 2019).",
        "Such weights exist, and here they are. That gradient descent finds them does not follow, "
        "nor does anything about points that were not memorized.",
    )
