"""The network a command is about: built in or the user's own, fresh or with trained weights."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nonvacuous.certification.adapting import adapted
from nonvacuous.cli.exits import CommandError, UsageError, again, passed_on
from nonvacuous.data import NAMES, Dataset, Examples, import_function, load
from nonvacuous.errors import BadInput
from nonvacuous.models import BUILDERS, build, seeded
from nonvacuous.networks import LayerGraph, ScaleGroups, capture, fold_batch_norm, scale_groups


def load_data(source: str, data_dir: Path | None, classes: str | None = None) -> Dataset:
    """The data set behind --data; an error says which command shows more."""
    names = None if classes is None else [name.strip() for name in classes.split(",")]
    try:
        return load(source, data_dir=data_dir, class_names=names)
    except BadInput as error:
        raise passed_on(error, next_command=_next_command(source)) from error


def _next_command(source: str) -> str:
    close = difflib.get_close_matches(source.lower().replace("_", "-"), NAMES, n=1)
    if close and source != "digits":
        # A known name without its files, or a slip of the finger.
        return f"nonvacuous data {'digits' if source in NAMES else close[0]}"
    return "nonvacuous data --help"


#: The recommended architectures: for images, and for everything else.
IMAGES, VECTORS = "cnn:32,64", "mlp:256"
_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def default_model(examples: Examples) -> str:
    """A small convolutional network for images of at least 4 x 4, else a perceptron."""
    shape = examples.example_shape
    return IMAGES if len(shape) == 3 and min(shape[1:]) >= 4 else VECTORS


def is_built_in(spec: str) -> bool:
    """Whether the name is one of the library's own architectures."""
    return spec.partition(":")[0] in BUILDERS


def build_network(spec: str, examples: Examples, *, seed: int) -> nn.Module:
    """The network in its initial state, which depends on ``spec`` and ``seed`` alone."""
    if is_built_in(spec):
        return build(spec, examples.example_shape, examples.classes, seed=seed)
    if not _OWN.fullmatch(spec):
        close = difflib.get_close_matches(spec.partition(":")[0].lower(), BUILDERS, n=1)
        raise UsageError(
            f"there is no model {spec!r}: it is neither built in ({', '.join(BUILDERS)}, for "
            f"instance {VECTORS} or {IMAGES}) nor of the form package.module:function"
            + (f"; did you mean {close[0]}?" if close else "."),
        )
    function = import_function(spec)
    try:
        return seeded(function, seed=seed, name=spec)
    except BadInput as error:
        raise CommandError(f"--model {spec}: {error}.", next_command=_call(spec)) from error


def check_fits(module: nn.Module, examples: Examples, *, spec: str) -> None:
    """Run the network on two examples, so that a misfit is told before anything is trained."""
    shape, classes = examples.example_shape, examples.classes
    inputs = f"inputs of shape {shape} (the examples of {examples.name})"
    was_training = module.training
    try:
        with torch.no_grad():
            outputs = module.eval()(examples.inputs[:2])
    except Exception as error:  # the user's code may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CommandError(
            f"the model {spec} cannot take {inputs}: {first}. Build it for this shape, or bring "
            "the data in the shape it expects.",
        ) from error
    finally:
        module.train(was_training)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, classes):
        got = (
            f"outputs of shape {tuple(outputs.shape)}"
            if isinstance(outputs, Tensor)
            else f"a {type(outputs).__name__}"
        )
        raise CommandError(
            f"the model {spec} gives {got} for two {inputs}; a classifier of {classes} classes "
            f"must give (2, {classes}), one score for each class.",
        )


def check_readable(module: nn.Module, examples: Examples, *, spec: str) -> tuple[str, ...]:
    """What certify will convert, in words; raise where it cannot be read as a classifier."""
    try:
        return adapted(module, examples)[1]
    except BadInput as error:
        raise CommandError(f"--model {spec}: {error}.") from error


def load_weights(module: nn.Module, path: Path, *, flag: str, spec: str) -> None:
    """Put the weights of a safetensors file into the network; every name and shape must match."""
    stored = _read(path, flag)
    expected = dict(module.state_dict())
    for what, names in (
        ("lacks", expected.keys() - stored.keys()),
        ("has an unknown", stored.keys() - expected.keys()),
    ):
        if names:
            raise CommandError(
                f"{flag}: {path} {what} {sorted(names)[0]!r}"
                f"{_others(len(names) - 1)}, so it holds the weights of another architecture than "
                f"--model {spec} (whose first tensors are {', '.join(list(expected)[:3])}).",
            )
    for name, tensor in expected.items():
        if stored[name].shape != tensor.shape:
            raise CommandError(
                f"{flag}: {name!r} has shape {tuple(stored[name].shape)} in {path} but "
                f"{tuple(tensor.shape)} in --model {spec}: name the architecture that these "
                "weights were trained in.",
            )
        if stored[name].is_floating_point() and not bool(stored[name].isfinite().all()):
            raise CommandError(
                f"{flag}: {name!r} in {path} contains NaN or infinity; train the network again "
                "with a smaller learning rate.",
            )
    module.load_state_dict(stored)


def check_file(path: Path, *, flag: str) -> None:
    """Raise a usage error where a file of weights is not there."""
    if not path.is_file():
        raise UsageError(
            f"{flag}: there is no file {path}. Save the network's weights with "
            "safetensors.torch.save_file(model.state_dict(), path).",
            next_command=_with_another(path, flag),
        )


def _read(path: Path, flag: str) -> dict[str, Tensor]:
    check_file(path, flag=flag)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise CommandError(
            f"{flag}: {path} is not a safetensors file ({error}). Write it with "
            "safetensors.torch.save_file(model.state_dict(), path); files of torch.save are not "
            "read, because loading them can run code.",
        ) from error


def _with_another(path: Path, flag: str) -> str | None:
    """The same command with the file that was probably meant, if there is one beside it."""
    stems = [other.stem for other in path.parent.glob("*.safetensors") if other.is_file()]
    close = difflib.get_close_matches(path.stem, stems, n=1)
    meant = path.with_name(f"{close[0]}.safetensors") if close else None
    return None if meant is None else again(replacing={flag: str(meant)})


def _others(count: int) -> str:
    return f" and {count} other tensors" if count > 1 else " and 1 other tensor" if count else ""


def _call(spec: str) -> str:
    module, _, function = spec.partition(":")
    return f"python -c 'import {module}; print({module}.{function}())'"


_WHOLE = "int:"


@dataclass(frozen=True, eq=False)
class Subject:
    """A network in evaluation mode, what it computes, and along which scales it can move.

    examples   those of --data; None where only the shape of an input was given
    example    a batch of two inputs, by which the network was written down
    """

    spec: str
    module: nn.Module
    examples: Examples | None
    example: Tensor
    graph: LayerGraph
    groups: ScaleGroups

    @property
    def shape(self) -> str:
        """The shape of one input, for a person."""
        return " x ".join(map(str, self.example.shape[1:])) or "one number"

    @property
    def takes_floats(self) -> bool:
        """Whether inputs are real numbers; word numbers are not."""
        return self.example.is_floating_point()

    @property
    def weights(self) -> int:
        """How many single weights the network has."""
        return sum(parameter.numel() for parameter in self.module.parameters())


def find_subject(
    *,
    model: str,
    data: str | None,
    data_dir: Path | None,
    example: str | None,
    classes: int,
    weights: Path | None,
    seed: int,
    fold: bool = False,
) -> Subject:
    """Build the network of --model for the inputs of --data or --example, and capture it."""
    if (data is None) == (example is None):
        raise UsageError(
            "give the shape of an input once: --data NAME, or --example with the sizes of one "
            "input, such as --example 1,28,28."
        )
    examples = None if data is None else load_data(data, data_dir).train
    inputs = _inputs(example, seed) if examples is None else examples.inputs[:2]
    module = build_network(model, examples or _stand_in(inputs, classes), seed=seed)
    if examples is not None:
        check_fits(module, examples, spec=model)
    if weights is not None:
        load_weights(module, weights, flag="--weights", spec=model)
    module = module.eval().requires_grad_(False)
    if fold:
        module = fold_batch_norm(module, inputs)
    graph = capture(module, inputs)
    return Subject(model, module, examples, inputs, graph, scale_groups(graph))


def random_inputs(subject: Subject, count: int, *, seed: int) -> Tensor:
    """Inputs on which to compare functions: those of --data, else random ones of the same shape."""
    if subject.examples is not None:
        return subject.examples.inputs[:count]
    shape = (count, *subject.example.shape[1:])
    generator = torch.Generator().manual_seed(seed)
    if not subject.takes_floats:
        return torch.randint(0, 2, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _inputs(text: str | None, seed: int) -> Tensor:
    """A batch of two inputs of the shape that --example gives."""
    assert text is not None
    whole = text.startswith(_WHOLE)
    sizes = [part.strip() for part in text.removeprefix(_WHOLE).split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in sizes):
        raise UsageError(
            f"--example: {text!r} is not the shape of an input; write whole numbers separated by "
            "commas, such as 1,28,28 for an image or 20 for a vector (int:20 for a network that "
            "takes whole numbers, such as word numbers)."
        )
    shape = (2, *(int(part) for part in sizes))
    if whole:
        return torch.zeros(shape, dtype=torch.int64)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _stand_in(inputs: Tensor, classes: int) -> Examples:
    """Examples of which only the shape and the number of classes are looked at."""
    if classes < 2:
        raise UsageError(f"--classes must be at least 2, got --classes = {classes}.")
    names = tuple(map(str, range(classes)))
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    return Examples(inputs.float(), labels, names, name="--example")
