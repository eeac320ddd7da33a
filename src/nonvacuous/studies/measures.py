"""``nonvacuous measures``: every complexity measure of one network, and which of them to trust."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.study.settings import DataSettings, under
from nonvacuous.study.study import Answer, Context, Single, SingleStudy

if TYPE_CHECKING:
    from nonvacuous.measures.registry import Measure


class MeasuresSettings(DataSettings):
    """The network, what is measured, and the trials that the measures are put to."""

    data: str | None = Field(  # type: ignore[assignment]
        None, description=DataSettings.model_fields["data"].description
    )
    model: str = "mlp:100,100"
    """mlp:WIDTHS, cnn:CHANNELS and so on, which is trained here unless --weights is given; or
    package.module:function, called without arguments."""
    weights: Path | None = None
    """Trained weights as safetensors.torch.save_file(model.state_dict(), path) writes them."""
    initial: Path | None = None
    """The weights before training, for distances from them; known for a network trained here."""
    examples: int = Field(2000, ge=2)
    """At most so many training examples, the first ones: trained on (here) and measured on."""
    only: str | None = None
    """Names or families of measures, separated by commas; or cheap, or expensive."""
    without: str | None = Field(None, description="The same: what to leave out.")
    attack: bool = False
    """Measure the same function in random gauges: what moves depends on how it is written down."""
    gauges: int = Field(20, ge=1, description="How many, for --attack.")
    spread: float = Field(1.0, gt=0)
    """Of the logarithms of the factors on hidden channels, for --attack."""
    against: str | None = None
    """A corruption, such as random-labels: the same network is trained on such data too, and both
    columns are shown. A measure that means anything should call that network more complex."""
    against_weights: Path | None = None
    """The weights of such a network, instead of training it: other.safetensors of an earlier --out
    with the same data, seed and --against, which decide the corrupted data."""
    epochs: int = Field(300, ge=1)
    """Of training here, at most: it ends at 0 errors and a loss of 0.05."""
    learning_rate: float = Field(0.05, gt=0, description="Of training here.")
    formulas: bool = Field(False, exclude=True)
    """Print formula and source of every measure (of --only and --without), and nothing else: it
    needs no data and no network."""

    @property
    def chosen(self) -> tuple[Measure, ...]:
        from nonvacuous.measures.registry import chosen

        for name, remedy in (("only", "paths,norms"), ("without", "expensive")):
            with under(name, remedy):
                chosen(self.words(name))
        return chosen(self.words("only"), self.words("without"))

    def words(self, name: str) -> tuple[str, ...] | None:
        """The words between the commas of --only or --without."""
        listed: str | None = getattr(self, name)
        if listed is None:
            return None
        return tuple(word.strip() for word in listed.split(",") if word.strip())

    def asked(self) -> dict[str, Any]:
        """What decides the result, as it stands in its record."""
        words = {name: self.words(name) for name in ("only", "without")}
        return self.record() | {name: w and list(w) for name, w in words.items()}

    def check(self) -> None:
        from nonvacuous.randomization.registry import parse_corruption
        from nonvacuous.studies.networks import check_file

        self.chosen  # noqa: B018
        if self.data is None:
            raise BadInput(
                "--data is needed, such as --data digits; or --formulas for a list of all measures",
                instead={"--data": "digits"},
            )
        if self.initial is not None and self.weights is None:
            raise BadInput(
                "--initial belongs to --weights: a network trained here knows how it began"
            )
        if self.against_weights is not None and self.against is None:
            raise BadInput(
                "--against-weights belongs to --against, which names the data of that network",
                instead={"--against": "random-labels"},
            )
        if self.against is not None:
            with under("against", "random-labels"):
                parse_corruption(self.against)
        for name in ("weights", "initial", "against_weights"):
            path = getattr(self, name)
            if path is not None:
                check_file(path, flag=f"--{name.replace('_', '-')}")


class Measures(SingleStudy[MeasuresSettings]):
    """Show all complexity measures of a network, and put them on trial."""

    name, settings, cell = "measures", MeasuresSettings, MeasuresSettings
    devices = ("cpu",)
    #: Only of networks that were trained here.
    kept = ("network.safetensors", "other.safetensors")
    pages = "nonvacuous.studies.measures_page"

    def cells(self, settings: MeasuresSettings, finished: Sequence[Any]) -> Sequence[Any]:
        return () if settings.formulas else super().cells(settings, finished)

    def title(self, settings: MeasuresSettings) -> str:
        return f"{settings.model} on {settings.data}, seed {settings.seed}"

    def answer(self, settings: MeasuresSettings, at: Context) -> Answer | None:
        """Every measure with its formula and source."""
        if not settings.formulas:
            return None
        from nonvacuous.studies.measures_page import write_formulas

        records = [measure.to_dict() for measure in settings.chosen]
        return Answer(
            {"measures": records},
            lambda console: write_formulas(records, console),
            "nonvacuous measures --data digits --attack --out measures",
        )

    def compute(self, cell: MeasuresSettings, at: Context) -> Single:
        from nonvacuous.studies.measures_networks import measured

        return Single(record=measured(cell, at, self.kept))

    def next_command(self, result: Single, folder: Path | None) -> str | Mapping[str, str | None]:
        """First the attack, then the comparison, then the page, then a bound that survives."""
        record = result.record
        if record["attack"] is None:
            return {"--attack": None}
        if record["against"] is None:
            return {"--against": "random-labels"}
        if folder is None:
            return {"--out": "runs/measures"}
        return shlex.join(["nonvacuous", "certify", "--data", record["data_source"]])


STUDY = Measures()
