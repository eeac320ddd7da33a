"""``nonvacuous randomize``: does a network learn, or would it fit anything?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.report.study import StudyPage
from nonvacuous.study.settings import DataSettings, default_folder, under
from nonvacuous.study.study import Context, Single, SingleStudy

if TYPE_CHECKING:
    from nonvacuous.progress import Progress
    from nonvacuous.randomization.settings import StudySettings

_test: Any = partial(Field, json_schema_extra={"group": "The tests"})
_training: Any = partial(Field, json_schema_extra={"group": "Training"})
#: Settings of this command that are not the study's own.
_HERE = frozenset({"data", "model", "train", "conditions"})


class RandomizeSettings(DataSettings):
    """What is tested, by which tests, and how the networks are trained."""

    model: str = "mlp:256,256"
    """mlp:WIDTHS, cnn:CHANNELS, alexnet, inception; or package.module:function, called without
    arguments, returning a torch.nn.Module (the current folder is searched too)."""
    train: str | None = None
    """Your own training: package.module:function, called as train(model, inputs, labels, *, seed)
    and returning the trained model. If it yields the model after every epoch, learning curves and
    the time to fit are shown too."""
    conditions: tuple[str, ...] = _test(())
    """What is done to the training data: partial:P (that share of labels is drawn anew),
    shuffled-pixels, random-pixels, gaussian. True and random labels are always there; by default
    four levels of partial and the three changes of inputs are too."""
    seeds: int = _test(3, ge=1)
    """Networks for each condition; intervals are over them."""
    permutations: int = _test(19, ge=0)
    """Networks trained on permuted labels, for a p-value of at least 1 / (permutations + 1)."""
    sign_vectors: int = _test(5, ge=0)
    """Networks trained on random signs, for the Rademacher complexity."""
    certificates: bool = _test(True, description="Also compute a certificate for each condition.")
    regularization: bool = _test(False)
    """Also switch weight decay, dropout, random crops, early stopping and batch normalization, on
    true and on random labels."""
    confidence: float = _test(0.95, gt=0, lt=1)
    """Of every interval, test and certificate."""
    epochs: int = _training(60, ge=1)
    """Passes over the training examples, in every condition. With --train your function decides,
    here and in all that follows."""
    learning_rate: float = _training(0.1, gt=0, description="Step size of the first epoch.")
    rate_decay: float = _training(0.96, gt=0, le=1)
    """What the step size is multiplied by after each epoch."""
    momentum: float = _training(0.9, ge=0, description="Of stochastic gradient descent.")
    weight_decay: float = _training(0.0, ge=0, description="Pull of all weights toward zero.")
    batch_size: int = _training(64, ge=1, description="Examples per step.")
    standardize: bool = _training(True)
    """Shift and scale all inputs by one mean and one standard deviation first."""

    def check(self) -> None:
        if self.train is not None and self.regularization:
            raise BadInput(
                "--regularization switches regularizers in the built-in training; with --train "
                "they are inside your function. Leave one of them out"
            )
        self.study  # noqa: B018

    @property
    def study(self) -> StudySettings:
        """What the study itself is told."""
        from nonvacuous.randomization.settings import DEFAULT_CONDITIONS, StudySettings

        own = {name: value for name, value in self if name not in _HERE}
        with under("conditions"):
            return StudySettings(conditions=self.conditions or DEFAULT_CONDITIONS, **own)


class Randomize(SingleStudy[RandomizeSettings]):
    """Train the same network on true and on randomized data, and say what the difference means."""

    name, settings, cell = "randomize", RandomizeSettings, RandomizeSettings
    devices = ("auto", "cpu", "cuda")
    usual_folder = "runs/randomize-DATA-MODEL-seedN"
    pages = "nonvacuous.studies.randomization_page"

    def title(self, settings: RandomizeSettings) -> str:
        from nonvacuous.randomization.workshop import planned_networks

        study = settings.study
        return (
            f"{settings.model} on {settings.data}, trained by "
            f"{settings.train or 'stochastic gradient descent'}: {planned_networks(study)} "
            f"networks, {len(study.conditions)} conditions, seed {study.seed}"
        )

    def folder(self, settings: RandomizeSettings, preset: str) -> Path:
        usual = default_folder(settings.data, settings.model, settings.seed)
        return usual.with_name(f"randomize-{usual.name}")

    def compute(self, cell: RandomizeSettings, at: Context) -> Single:
        from nonvacuous.data import import_function
        from nonvacuous.randomization.study import study
        from nonvacuous.rules.outcomes import Shown
        from nonvacuous.studies.networks import build_network, is_built_in
        from nonvacuous.training.checks import check_fits

        dataset, settings = at.dataset(cell.data), cell.study
        network = build_network(cell.model, dataset.train, seed=settings.seed)
        check_fits(network, dataset.train, spec=cell.model)
        model = cell.model if is_built_in(cell.model) else import_function(cell.model)
        train = None if cell.train is None else import_function(cell.train)
        if settings.certificates:
            shown = Shown(at.ledger_file, dataset.train, command="randomize")
            shown.record({"model": cell.model, "train": cell.train, **settings.record()})
        result = study(
            model,
            dataset,
            train=train,
            settings=settings,
            names=(cell.model, cell.train),
            device=at.device,
            folder=at.folder,
            resume=True,
            progress=_lines(at),
        )
        where = None if at.data_dir is None else str(at.data_dir)
        drawn = {"model": cell.model, "data": cell.data, "dir": where}
        return Single(record=result.to_dict(), drawn=drawn)

    def files(self, result: Single, page: StudyPage) -> Mapping[str, str]:
        from nonvacuous.studies.randomization_page import drawn_of

        return {f"figures/{name}.svg": svg for name, svg in drawn_of(result).items()}

    def problem(self, result: Single) -> str:
        problems = (each for each in result.record["findings"] if each["level"] == "problem")
        names = "; ".join(each["name"] for each in problems)
        return f"the study found a problem: {names}." if names else ""

    def next_command(self, result: Single, folder: Path | None) -> str:
        drawn = result.drawn
        words = ["nonvacuous", "certify", "--data", drawn["data"], "--model", drawn["model"]]
        return shlex.join(words if drawn["dir"] is None else [*words, "--data-dir", drawn["dir"]])


STUDY = Randomize()


def _lines(at: Context) -> Progress:
    """The progress of the whole study, and a line whenever another part of it begins."""
    begun: set[str] = set()

    def progress(phase: str, done: int, total: int, message: str) -> None:
        at.tell(phase, done, total, message)
        part, _, rest = message.partition(": ")
        if part not in begun:
            begun.add(part)
            at.say(f"{part}: {rest}")

    return progress
