"""A folder with one folder of images per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nonvacuous.data.examples import Examples
from nonvacuous.data.images import SUFFIXES, decode_image, stack_images
from nonvacuous.errors import BadInput

# Written by file managers into every folder they show.
_CLUTTER = ("thumbs.db", "desktop.ini")


def read_images(
    folder: str | Path, *, name: str | None = None, class_names: Sequence[str] | None = None
) -> Examples:
    """Examples from folder/class name/image files; classes in sorted order of their names.

    All images must have one size. If some are gray and some in color, all become color. Hidden
    files are left aside; any other file that is not an image is an error, so that nothing is
    dropped unnoticed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}; check the path")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not _hidden(path))
    if not classes:
        raise BadInput(
            f"{folder} has no folders in it; expected one folder of images per class, such as "
            f"{folder.name}/cat/1.png and {folder.name}/dog/1.png"
        )
    names = tuple(class_names) if class_names is not None else tuple(classes)
    unknown = sorted(set(classes) - set(names))
    if unknown:
        raise BadInput(
            f"{folder} has a folder {unknown[0]!r} that is none of the classes of the training "
            "data; rename or remove it"
        )
    images: list[tuple[str, np.ndarray]] = []
    labels: list[int] = []
    for class_name in classes:
        files = _image_files(folder / class_name)
        if not files:
            raise BadInput(f"{folder / class_name} has no images; add some or remove the folder")
        for path in files:
            images.append((str(path), decode_image(path, where=str(path))))
            labels.append(names.index(class_name))
    return Examples.of(
        (stack_images(images), np.array(labels)), class_names=names, name=name or folder.name
    )


def _image_files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if not _hidden(path))
    for path in files:
        if path.is_dir():
            raise BadInput(f"{path} is a folder inside a class; put images directly into {folder}")
        if path.suffix.lower() not in SUFFIXES:
            raise BadInput(
                f"{path} is not an image file this reader knows ({', '.join(SUFFIXES)}); remove it"
            )
    return files


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in _CLUTTER
