"""The network a study or a command is about: built in or the user's own, fresh or trained."""

from __future__ import annotations

import re
from pathlib import Path

from safetensors import SafetensorError
from torch import nn

from nonvacuous.certification.adapting import adapted
from nonvacuous.data import Examples, import_function
from nonvacuous.distributions.storage import read_tensors
from nonvacuous.errors import BadInput, Unrecognized, nearest
from nonvacuous.models import BUILDERS, build, seeded

#: The recommended architectures: for images, and for everything else.
IMAGES, VECTORS = "cnn:32,64", "mlp:256"
_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def default_model(examples: Examples) -> str:
    """A small convolutional network for images of at least 4 x 4, else a perceptron."""
    shape = examples.example_shape
    return IMAGES if len(shape) == 3 and min(shape[1:]) >= 4 else VECTORS


def is_built_in(spec: str) -> bool:
    return spec.partition(":")[0] in BUILDERS


def build_network(spec: str, examples: Examples, *, seed: int) -> nn.Module:
    """The network in its initial state, which depends on ``spec`` and ``seed`` alone."""
    if is_built_in(spec):
        return build(spec, examples.example_shape, examples.classes, seed=seed)
    if not _OWN.fullmatch(spec):
        meant = nearest(spec.partition(":")[0].lower(), BUILDERS, "; did you mean {}?", ".")
        raise Unrecognized(
            f"there is no model {spec!r}: it is neither built in ({', '.join(BUILDERS)}, for "
            f"instance {VECTORS} or {IMAGES}) nor of the form package.module:function{meant}"
        )
    function = import_function(spec)
    try:
        return seeded(function, seed=seed, name=spec)
    except BadInput as error:
        module, _, name = spec.partition(":")
        call = f"python -c 'import {module}; print({module}.{name}())'"
        raise BadInput(f"--model {spec}: {error}.", instead=call) from error


def check_readable(module: nn.Module, examples: Examples, *, spec: str) -> tuple[str, ...]:
    """What certify will convert, in words; raise where it cannot be read as a classifier."""
    try:
        return adapted(module, examples)[1]
    except BadInput as error:
        raise BadInput(f"--model {spec}: {error}.") from error


def load_weights(module: nn.Module, path: Path, *, flag: str, spec: str) -> None:
    """Put the weights of a safetensors file into the network; every name and shape must match."""
    check_file(path, flag=flag)
    try:
        stored = read_tensors(path)
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"{flag}: {path} is not a safetensors file ({error}). Write it with "
            "safetensors.torch.save_file(model.state_dict(), path); files of torch.save are not "
            "read, because loading them can run code."
        ) from error
    expected = dict(module.state_dict())
    for what, names in (
        ("lacks", expected.keys() - stored.keys()),
        ("has an unknown", stored.keys() - expected.keys()),
    ):
        if names:
            count = len(names) - 1
            others = f" and {count} other tensor{'s' * (count > 1)}" if count else ""
            raise BadInput(
                f"{flag}: {path} {what} {sorted(names)[0]!r}{others}, so it holds the weights of "
                f"another architecture than --model {spec} (whose first tensors are "
                f"{', '.join(list(expected)[:3])})."
            )
    for name, tensor in expected.items():
        if stored[name].shape != tensor.shape:
            raise BadInput(
                f"{flag}: {name!r} has shape {tuple(stored[name].shape)} in {path} but "
                f"{tuple(tensor.shape)} in --model {spec}: name the architecture that these "
                "weights were trained in."
            )
        if stored[name].is_floating_point() and not bool(stored[name].isfinite().all()):
            raise BadInput(
                f"{flag}: {name!r} in {path} contains NaN or infinity; train the network again "
                "with a smaller learning rate."
            )
    module.load_state_dict(stored)


def check_file(path: Path, *, flag: str) -> None:
    """Raise a usage error where a file of weights is not there."""
    if not path.is_file():
        # The file that was probably meant, if there is one beside it.
        stems = [other.stem for other in path.parent.glob("*.safetensors") if other.is_file()]
        close = nearest(path.stem, stems)
        meant = {flag: str(path.with_name(f"{close}.safetensors"))} if close else None
        raise Unrecognized(
            f"{flag}: there is no file {path}. Save the network's weights with "
            "safetensors.torch.save_file(model.state_dict(), path).",
            instead=meant,
        )
