"""What the studies of a user's own data and networks share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.study.settings import StudySettings

if TYPE_CHECKING:
    from nonvacuous.data import Examples

EXAMPLES = "Only so many training examples, the first ones."


class DataSettings(StudySettings):
    """Settings of a study of data that the user names."""

    presets: ClassVar[Mapping[str, str]] = {}

    data: str = Field(
        description="digits, mnist, fashion-mnist, cifar10; a file .npz, .parquet, .csv or .pt; a "
        "folder of images with one folder for each class; or package.module:function."
    )


def first_examples(train: Examples, count: int | None) -> Examples:
    """The first so many, or all of them; more than there are is refused."""
    import numpy as np

    if count is None:
        return train
    if count > len(train):
        raise BadInput(
            f"--examples {count:,}: {train.name} has {len(train):,} training examples.",
            instead={"--examples": str(len(train))},
        )
    return train.subset(np.arange(count))


def default_folder(data: str, model: str, seed: int) -> Path:
    """runs/DATA-MODEL-seedN, whatever characters the names have.

    >>> default_folder("my data/x<1>.npz", "mlp:256,64", 3).as_posix()
    'runs/x-1-mlp-256-64-seed3'
    """
    source = data if ":" in data else Path(data).stem
    return Path("runs") / f"{_slug(source)}-{_slug(model)}-seed{seed}"


def _slug(text: str) -> str:
    words = re.findall(r"[A-Za-z0-9._]+", text)
    return "-".join(words).strip(".-_")[:60] or "unnamed"
