"""Scale groups written by hand, so that the solver is tested without capturing any network.

A sketch lists groups of channels and tensors with the channels on their axes; `finish` gives an
object with the fields of `nonvacuous.networks.scale_groups.ScaleGroups` that rescaling reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups


@dataclass(frozen=True)
class Group:
    name: str
    start: int
    size: int
    tensors: tuple[tuple[str, int, float], ...] = ()
    layer: str = ""


class HandGroups(ScaleGroups):
    def factors(self, log_scales: np.ndarray) -> dict[str, np.ndarray]:
        """The factor of every single weight, by the definition and nothing else."""
        padded = np.append(np.asarray(log_scales, dtype=np.float64), 0.0)
        found = {}
        for name, shape in self.shapes.items():
            logs = np.zeros(shape)
            for scale in self.exponents[name]:
                for place in np.ndindex(*shape):
                    where = tuple(place[axis] for axis in scale.axes)
                    logs[place] += scale.power * padded[scale.index[where]]
            found[name] = np.exp(logs)
        return found


@dataclass
class Sketch:
    groups: list[Group] = field(default_factory=list)
    exponents: dict[str, tuple[AxisScale, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    def group(self, size: int) -> np.ndarray:
        """A new group of free channels: their places in the vector of log-scales."""
        start = self.size
        self.groups.append(Group(f"group{len(self.groups)}", start, size))
        return np.arange(start, start + size)

    def tensor(
        self, shape: tuple[int, ...], *scales: tuple[tuple[int, ...], np.ndarray, float]
    ) -> None:
        name = f"tensor{len(self.shapes)}"
        self.shapes[name] = shape
        self.exponents[name] = tuple(AxisScale(a, np.asarray(i), float(p)) for a, i, p in scales)

    def linear(
        self,
        inputs: np.ndarray,
        outputs: np.ndarray,
        *,
        bias: bool = True,
        kernel: tuple[int, ...] = (),
        read: float = -1.0,
    ) -> None:
        """A linear layer or a convolution, [outputs, inputs, *kernel]."""
        shape = (len(outputs), len(inputs), *kernel)
        self.tensor(shape, ((0,), outputs, 1.0), ((1,), inputs, read))
        if bias:
            self.tensor((len(outputs),), ((0,), outputs, 1.0))

    def finish(self) -> HandGroups:
        return HandGroups(self.size, tuple(self.groups), self.exponents, (), self.shapes)


def pinned(size: int) -> np.ndarray:
    return np.full(size, -1)


def mlp(*widths: int, bias: bool = True, read: float = -1.0) -> HandGroups:
    sketch = Sketch()
    here = pinned(widths[0])
    for layer, width in enumerate(widths[1:], start=1):
        there = sketch.group(width) if layer < len(widths) - 1 else pinned(width)
        sketch.linear(here, there, bias=bias, read=read)
        here = there
    return sketch.finish()


def cnn() -> HandGroups:
    sketch = Sketch()
    first, second = sketch.group(4), sketch.group(5)
    sketch.linear(pinned(3), first, kernel=(3, 3))
    sketch.linear(first, second, kernel=(3, 3))
    sketch.linear(np.repeat(second, 6), pinned(3))
    return sketch.finish()


def transposed() -> HandGroups:
    sketch = Sketch()
    first, second = sketch.group(4), sketch.group(3)
    sketch.linear(pinned(2), first, kernel=(3,))
    sketch.tensor((4, 3, 2), ((0,), first, -1.0), ((1,), second, 1.0))
    sketch.tensor((3,), ((0,), second, 1.0))
    sketch.linear(second, pinned(2), kernel=(1,))
    return sketch.finish()


def depthwise() -> HandGroups:
    sketch = Sketch()
    first, second, third = sketch.group(5), sketch.group(5), sketch.group(4)
    sketch.linear(pinned(3), first, kernel=(3, 3), bias=False)
    sketch.tensor((5, 1, 3, 3), ((0,), second, 1.0), ((0,), first, -1.0))
    sketch.tensor((5,), ((0,), second, 1.0))
    sketch.linear(second, third, kernel=(1, 1))
    sketch.linear(third, pinned(3))
    return sketch.finish()


def grouped() -> HandGroups:
    sketch = Sketch()
    first, second = sketch.group(6), sketch.group(4)
    sketch.linear(pinned(3), first, kernel=(3,))
    # Two groups of three input and two output channels each.
    inputs = np.stack([first[:3], first[:3], first[3:], first[3:]])
    sketch.tensor((4, 3, 3), ((0,), second, 1.0), ((0, 1), inputs, -1.0))
    sketch.tensor((4,), ((0,), second, 1.0))
    sketch.linear(second, pinned(2))
    return sketch.finish()


def residual(*, blocks: int = 3, bias: bool = True) -> HandGroups:
    sketch = Sketch()
    stream = sketch.group(5)
    sketch.linear(pinned(4), stream, bias=bias)
    for _ in range(blocks):
        inner = sketch.group(4)
        sketch.linear(stream, inner, bias=bias)
        sketch.linear(inner, stream, bias=bias)
    sketch.linear(stream, pinned(3), bias=bias)
    return sketch.finish()


def two_stages() -> HandGroups:
    sketch = Sketch()
    narrow, wide = sketch.group(3), sketch.group(6)
    sketch.linear(pinned(3), narrow, kernel=(3, 3))
    inner = sketch.group(3)
    sketch.linear(narrow, inner, kernel=(3, 3))
    sketch.linear(inner, narrow, kernel=(3, 3))
    inner = sketch.group(6)
    sketch.linear(narrow, inner, kernel=(3, 3))
    sketch.linear(inner, wide, kernel=(3, 3))
    sketch.linear(narrow, wide, kernel=(1, 1))
    sketch.linear(wide, pinned(4))
    return sketch.finish()


def pinned_stream() -> HandGroups:
    sketch = Sketch()
    for _ in range(3):
        inner = sketch.group(4)
        sketch.linear(pinned(5), inner)
        sketch.linear(inner, pinned(5))
    sketch.linear(pinned(5), pinned(2))
    return sketch.finish()


def stream_to_stream(*, read: float = -1.0) -> HandGroups:
    """x + relu(W x): the layer reads and writes the same channels."""
    sketch = Sketch()
    stream = sketch.group(5)
    sketch.linear(pinned(4), stream)
    sketch.linear(stream, stream, read=read)
    sketch.linear(stream, stream, kernel=(3,), read=read)
    sketch.linear(stream, pinned(3))
    return sketch.finish()


def recurrent() -> HandGroups:
    """Tied weights without a bias, called again and again on the same channels."""
    sketch = Sketch()
    state = sketch.group(6)
    sketch.linear(pinned(3), state, bias=False)
    sketch.linear(state, state, bias=False)
    sketch.linear(state, pinned(2), bias=False)
    return sketch.finish()


def dense_block() -> HandGroups:
    sketch = Sketch()
    seen = [pinned(2)]
    for width in (3, 4, 2):
        new = sketch.group(width)
        sketch.linear(np.concatenate(seen), new, kernel=(3,))
        seen.append(new)
    sketch.linear(np.concatenate(seen[::-1]), pinned(3))
    return sketch.finish()


def pixel_shuffle() -> HandGroups:
    """Four output channels of a convolution share one scale, in an interleaved order."""
    sketch = Sketch()
    first, second = sketch.group(3), sketch.group(2)
    sketch.linear(pinned(2), first, kernel=(3,))
    sketch.linear(first, np.tile(second, 4), kernel=(3,))
    sketch.linear(second, pinned(2), kernel=(1,))
    return sketch.finish()


def partly_pinned() -> HandGroups:
    sketch = Sketch()
    first, second = sketch.group(3), sketch.group(4)
    outputs = np.array([first[0], -1, first[1], first[2], -1])
    sketch.linear(pinned(3), outputs)
    sketch.linear(outputs, second)
    sketch.linear(second[[2, 0, 3, 1]], pinned(2))
    return sketch.finish()


def attention() -> HandGroups:
    sketch = Sketch()
    query, value = sketch.group(4), sketch.group(4)
    for index, power in ((query, 1.0), (query, -1.0), (value, 1.0)):
        sketch.tensor((4, 5), ((0,), index, power))
        sketch.tensor((4,), ((0,), index, power))
    sketch.tensor((5, 4), ((1,), value, -1.0))
    sketch.tensor((5,))
    return sketch.finish()


def gated() -> HandGroups:
    sketch = Sketch()
    gate, value = sketch.group(4), sketch.group(4)
    sketch.linear(pinned(3), gate)
    sketch.linear(pinned(3), value)
    sketch.tensor((2, 4), ((1,), gate, -1.0), ((1,), value, -1.0))
    sketch.tensor((2,))
    return sketch.finish()


def bilinear() -> HandGroups:
    sketch = Sketch()
    left, right, product = sketch.group(3), sketch.group(4), sketch.group(2)
    sketch.linear(pinned(3), left)
    sketch.linear(pinned(2), right)
    sketch.tensor((2, 3, 4), ((0,), product, 1.0), ((1,), left, -1.0), ((2,), right, -1.0))
    sketch.tensor((2,), ((0,), product, 1.0))
    sketch.linear(product, pinned(3))
    return sketch.finish()


def embedding() -> HandGroups:
    sketch = Sketch()
    stream = sketch.group(4)
    sketch.tensor((7, 4), ((1,), stream, 1.0))
    sketch.linear(stream, pinned(3))
    return sketch.finish()


def autoencoder() -> HandGroups:
    sketch = Sketch()
    outer, code, back = sketch.group(5), sketch.group(2), sketch.group(5)
    sketch.linear(pinned(6), outer)
    sketch.linear(outer, code)
    sketch.linear(code, back)
    sketch.linear(np.concatenate([back, outer]), pinned(6))
    return sketch.finish()


def transposed_axes() -> HandGroups:
    """An index over two axes that are named in descending order."""
    sketch = Sketch()
    first, second = sketch.group(6), sketch.group(2)
    sketch.linear(pinned(2), first)
    inputs = first.reshape(3, 2).T  # input channel for each (axis 2, axis 0)
    sketch.tensor((3, 4, 2), ((2, 0), inputs, -1.0), ((1,), np.repeat(second, 2), 1.0))
    sketch.linear(second, pinned(2))
    return sketch.finish()


ARCHITECTURES: dict[str, Callable[[], HandGroups]] = {
    "one hidden layer": lambda: mlp(6, 5, 3),
    "three hidden layers": lambda: mlp(6, 5, 4, 5, 3),
    "no biases": lambda: mlp(6, 5, 4, 3, bias=False),
    "ten hidden layers": lambda: mlp(4, *(3,) * 10, 2),
    "one channel wide": lambda: mlp(3, 1, 1, 1, 2),
    "convolutions": cnn,
    "transposed convolution": transposed,
    "depthwise convolution": depthwise,
    "grouped convolution": grouped,
    "residual": residual,
    "residual without biases": lambda: residual(blocks=5, bias=False),
    "two stages": two_stages,
    "pinned stream": pinned_stream,
    "stream to stream": stream_to_stream,
    "recurrent": recurrent,
    "dense block": dense_block,
    "pixel shuffle": pixel_shuffle,
    "partly pinned": partly_pinned,
    "attention": attention,
    "gated": gated,
    "bilinear": bilinear,
    "embedding": embedding,
    "autoencoder": autoencoder,
    "axes in descending order": transposed_axes,
    "squared activation": lambda: mlp(5, 4, 3, 2, read=-2.0),
    "cubed activation": lambda: mlp(4, 3, 3, 3, 2, read=-3.0),
    "squared stream to stream": lambda: stream_to_stream(read=-2.0),
}
