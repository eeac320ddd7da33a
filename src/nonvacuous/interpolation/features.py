"""Features: what a kernel gets to see of an image. None of them is trained, none looks at a label.

A Gabor bank, and random patches of the data after Coates and Ng: patches are normalized and
whitened; some of them, with unit norm, become filters; their answers pass a rectifier to both
sides, max(±z − 0.25, 0), and are summed over four quarters of the image.

Squared distances add up over coordinates. So where points have more coordinates than memory can
hold, features are made some at a time, standardized, counted into the distances and forgotten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from nonvacuous.errors import BadInput, Unrecognized

#: Filter size, width of the bell (sigma) and wavelength, in pixels.
SCALES = ((9, 2.0, 5.0), (13, 3.2, 8.0))
ORIENTATIONS = 8
POOL = 4
_IMAGES_AT_ONCE = 500


def gabor_features(images: Tensor) -> Tensor:
    """Maps (images, channels, height, width) to (images, features); nothing in it is learned."""
    if images.ndim != 4 or min(images.shape[2:]) < POOL:
        raise BadInput(
            f"the Gabor bank, which averages {POOL} x {POOL} pixels, needs images (images, "
            f"channels, height, width) at least as large, not {tuple(images.shape)}; take raw "
            "features"
        )
    return torch.cat([_magnitudes(part) for part in images.float().split(_IMAGES_AT_ONCE)])


def _magnitudes(images: Tensor) -> Tensor:
    # Every channel is an image of its own.
    planes = images.reshape(-1, 1, *images.shape[2:])
    parts = []
    for size, sigma, wavelength in SCALES:
        even, odd = gabor_filters(size, sigma, wavelength, ORIENTATIONS)
        filters = torch.cat([even, odd])[:, None].to(planes)
        answers = F.conv2d(planes, filters, padding=size // 2)
        first, second = answers.chunk(2, dim=1)
        magnitude = (first.square() + second.square()).sqrt()
        parts.append(F.avg_pool2d(magnitude, POOL))
    return torch.cat(parts, 1).reshape(len(images), -1)


def gabor_filters(
    size: int, sigma: float, wavelength: float, orientations: int
) -> tuple[Tensor, Tensor]:
    """Even and odd filters (orientations, size, size): a wave under a bell, of unit norm."""
    middle = (size - 1) / 2
    line = torch.arange(size, dtype=torch.float64) - middle
    down, across = torch.meshgrid(line, line, indexing="ij")
    bell = torch.exp(-(down.square() + across.square()) / (2 * sigma**2))
    angles = torch.arange(orientations, dtype=torch.float64)[:, None, None] * math.pi / orientations
    along = (across * angles.cos() + down * angles.sin()) * (2 * math.pi / wavelength)
    even, odd = bell * along.cos(), bell * along.sin()
    # An even wave under a bell has a mean, which would answer to brightness.
    even = even - bell * (even.sum((1, 2), keepdim=True) / bell.sum())
    first, second = (each / each.norm(dim=(1, 2), keepdim=True) for each in (even, odd))
    return first.float(), second.float()


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Within this block float32 products on a GPU may round their factors to eleven bits.

    Features stay a fixed function of the image, which is all that is asked of them. Where the
    factors have eleven bits to begin with (float16), products are exact.
    """
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = True
    try:
        yield
    finally:
        switch.allow_tf32 = before


PATCH = 6
THRESHOLD = 0.25
#: Added to the variance of a patch, of pixels between 0 and 255.
VARIANCE = 10.0
#: Added to the eigenvalues in whitening.
WHITENING = 0.1
SAMPLED = 100_000
_ACTIVATIONS = {"cpu": 2**25, "cuda": 2**30}


@dataclass(frozen=True, eq=False)
class RandomPatches:
    """Filters on normalized patches, with whitening already multiplied into them.

    weights   (coordinates of a patch, filters)
    offsets   (filters,): what whitening subtracts
    """

    weights: Tensor
    offsets: Tensor

    @property
    def filters(self) -> int:
        return self.weights.shape[1]

    @property
    def description(self) -> str:
        return f"{self.filters:,} random {PATCH} x {PATCH} patches as filters"

    def __call__(self, images: Tensor) -> Tensor:
        """All features, (images, 8 x filters); for many filters see :meth:`chunks`."""
        return torch.cat([part for _, part in self.chunks(images, filters=1000)], 1)

    def chunks(self, images: Tensor, *, filters: int) -> Iterator[tuple[int, Tensor]]:
        """Features of so many filters at a time, with the number of filters done so far."""
        for start in range(0, self.filters, filters):
            stop = min(start + filters, self.filters)
            yield stop, self._some(images, slice(start, stop))

    def _some(self, images: Tensor, chosen: slice) -> Tensor:
        weights = self.weights[:, chosen].to(images.device)
        offsets = self.offsets[chosen].to(images.device)
        both = torch.cat([weights, -weights], 1)
        shift = torch.cat([offsets, -offsets]) - THRESHOLD
        height, width = (side - PATCH + 1 for side in images.shape[2:])
        quarters = _quarters(height, width).to(images.device)
        each = height * width * both.shape[1]
        at_once = max(1, _ACTIVATIONS.get(images.device.type, 2**27) // each)
        summed = []
        with tensor_cores():
            for some in images.split(at_once):
                patches = _normalized(_patches(some))
                answers = torch.addmm(shift, patches, both).relu_()
                grouped = answers.view(len(some), height * width, -1)
                summed.append(torch.matmul(quarters, grouped).reshape(len(some), -1))
        return torch.cat(summed)


def random_patches(
    images: Tensor, *, filters: int, seed: int = 0, sampled: int = SAMPLED
) -> RandomPatches:
    """Draw patches from images with values in [0, 1] and make filters of some of them."""
    if images.ndim != 4 or min(images.shape[2:]) <= PATCH:
        raise BadInput(
            f"random patches of {PATCH} x {PATCH} pixels need images (images, channels, height, "
            f"width) larger than that, not {tuple(images.shape)}; take raw features"
        )
    if not 1 <= filters <= sampled:
        raise BadInput(f"filters must be between 1 and {sampled:,}, not {filters}")
    generator = torch.Generator().manual_seed(seed)
    whole = images.detach().cpu()
    count, channels, height, width = whole.shape
    which = torch.randint(count, (sampled,), generator=generator)
    top = torch.randint(height - PATCH + 1, (sampled,), generator=generator)
    left = torch.randint(width - PATCH + 1, (sampled,), generator=generator)
    steps = torch.arange(PATCH)
    rows = (top[:, None] + steps)[:, None, :, None]
    columns = (left[:, None] + steps)[:, None, None, :]
    drawn = whole[which[:, None, None, None], torch.arange(channels)[:, None, None], rows, columns]
    patches = _normalized(drawn.reshape(sampled, -1).float()).double()
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh((patches - mean).T @ (patches - mean) / (sampled - 1))
    whitening = (vectors / (values.clamp(min=0) + WHITENING).sqrt()) @ vectors.T
    # Flat patches make no filter: nothing in them has a direction.
    contrast = patches.square().sum(1)
    usable = torch.nonzero(contrast > 1e-3 * contrast.median().clamp(min=1e-12))[:, 0]
    if len(usable) < filters:
        raise BadInput(
            f"only {len(usable)} of {sampled} random patches are not flat, but {filters} filters "
            "are wanted: the images are almost constant. Take fewer filters, or raw features"
        )
    order = usable[torch.randperm(len(usable), generator=generator)[:filters]]
    chosen = (patches[order] - mean) @ whitening
    chosen /= chosen.norm(dim=1, keepdim=True)
    weights = whitening @ chosen.T
    return RandomPatches(weights.float(), (-(mean @ weights)).float())


def _patches(images: Tensor) -> Tensor:
    """(images x positions, coordinates of a patch)."""
    columns = F.unfold(images.float(), PATCH)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1])


def _normalized(patches: Tensor) -> Tensor:
    """Mean zero and about unit variance; the constant belongs to pixels between 0 and 255."""
    scaled = patches * 255
    centered = scaled - scaled.mean(1, keepdim=True)
    variance = centered.square().sum(1, keepdim=True) / (patches.shape[1] - 1)
    return centered / (variance + VARIANCE).sqrt()


def _quarters(height: int, width: int) -> Tensor:
    """(4, positions): which positions each of four overlapping quarters sums over."""
    masks = torch.zeros(4, height, width)
    for mask, (top, left) in zip(masks, product(_halves(height), _halves(width)), strict=True):
        mask[top, left] = 1
    return masks.flatten(1)


def _halves(length: int) -> tuple[slice, slice]:
    # 27 positions: 14 from position 0, and 14 from position 13.
    pool, stride = length // 2 + 1, max(1, length // 2)
    return slice(0, pool), slice(min(stride, length - 1), stride + pool)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of training and test inputs, and what they are.

    constant   coordinates that are the same at all training points: no kernel here can see them
    """

    train: Tensor
    test: Tensor | None
    description: str
    constant: int


#: Features that neither a number nor the inputs decide: how they are made, and what they are.
_FIXED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "raw": (lambda inputs: inputs.reshape(len(inputs), -1), "raw values"),
    "gabor": (gabor_features, f"Gabor bank, {ORIENTATIONS} orientations x {len(SCALES)} scales"),
}


def parse_features(spec: str) -> tuple[str, int | None]:
    """The name of the features and the number after it, if the text has one.

    >>> parse_features("patches:1000"), parse_features("raw")
    (('patches', 1000), ('raw', None))
    """
    match = re.fullmatch(r"([a-z-]+)(?::(\d+))?", spec)
    if match is None or match[1] not in (*_FIXED, "patches"):
        raise Unrecognized(
            f"there are no features {spec!r}; there are {', '.join(_FIXED)}, patches, and "
            "patches:NUMBER with so many filters"
        )
    return match[1], int(match[2]) if match[2] else None


def features_of(
    spec: str,
    train: Tensor,
    test: Tensor | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Features:
    """Features by a text such as raw, gabor or patches:1000 (with 1000 filters).

    Those of patches get mean zero and unit variance on the training inputs.
    """
    name, number = parse_features(spec)
    inputs = train.to(device)
    if name in _FIXED:
        if number is not None:
            raise BadInput(f"{name} features take no number; write {name}, not {name}:{number}")
        function, description = _FIXED[name]
    else:
        patches = random_patches(inputs, filters=1000 if number is None else number, seed=seed)
        function, description = patches, f"{patches.description}, standardized"
    made, other = function(inputs), None if test is None else function(test.to(device))
    if name == "patches":
        standardize = Standardizer(made)
        made, other = standardize(made), None if other is None else standardize(other)
    constant = int((made == made[0]).all(0).sum())
    return Features(made.cpu(), None if other is None else other.cpu(), description, constant)


class Standardizer:
    """Subtracts means and divides by standard deviations of (points, features).

    A constant feature becomes zero; ``varying`` is the number of the others.
    """

    def __init__(self, features: Tensor) -> None:
        self.means = features.mean(0)
        deviations = (features - self.means).square().mean(0).sqrt()
        # Rounding gives a constant feature a tiny deviation; dividing by it would make noise of it.
        constant = deviations <= 1e-6 * features.abs().amax(0)
        self.factors = torch.where(constant, 0.0, 1 / deviations.clamp(min=1e-30))
        self.varying = int((~constant).sum())

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.means) * self.factors


_ROWS = 8192


def accumulate_distances(chunks: Iterable[Tensor], *, train: int) -> tuple[Tensor, Tensor, int]:
    """Distances among the first ``train`` points, and of all others to them; float32.

    chunks   (points, some features) each: training points first, then the others. Each feature is
             standardized over the training points and rounded to float16: the distances are those
             of the rounded features, exactly but for float32 sums
    Returns both matrices and the number of features; constant features count as none.
    """
    distances: Tensor | None = None
    norms, counted = torch.zeros((), dtype=torch.float64), 0
    for chunk in chunks:
        standardize = Standardizer(chunk[:train])
        features = standardize(chunk).half().float()
        counted += standardize.varying
        if distances is None:
            distances = torch.zeros(len(features), train, device=features.device)
        norms = norms + features.square().sum(1, dtype=torch.float64)
        with tensor_cores():
            base = features[:train].T
            for part, rows in zip(distances.split(_ROWS), features.split(_ROWS), strict=True):
                part.addmm_(rows, base, alpha=-2)
    if distances is None:
        raise BadInput("no features were given; at least one chunk of them is needed")
    for part, own in zip(distances.split(_ROWS), norms.split(_ROWS), strict=True):
        part += (own[:, None] + norms[:train]).float()
        part.clamp_(min=0)
    among, across = distances[:train], distances[train:]
    _make_symmetric(among)
    among.fill_diagonal_(0)
    return among, across, counted


def _make_symmetric(matrix: Tensor) -> None:
    """Let the lower triangle decide: sums of float32 may differ in their last bit across it."""
    for start in range(0, len(matrix), _ROWS):
        rows = slice(start, start + _ROWS)
        corner = matrix[rows, rows]
        matrix[rows, rows] = corner.tril() + corner.tril(-1).T
        for left in range(0, start, _ROWS):
            columns = slice(left, left + _ROWS)
            matrix[columns, rows] = matrix[rows, columns].T
