"""The study of measures on a tiny grid: what is trained, kept, resumed and judged."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import parallel_config
from torch.nn.functional import cross_entropy

from nonvacuous.errors import BadInput
from nonvacuous.measures.panel import panel
from nonvacuous.models import build
from nonvacuous.papers.measures import study, training
from nonvacuous.papers.measures.page import gauges_tables, lead
from nonvacuous.papers.measures.settings import (
    AXES,
    CHANCE,
    MeasuresCell,
    MeasuresSettings,
    NetworkRecord,
    Times,
)
from nonvacuous.study.local import LocalEngine
from nonvacuous.study.running import Surroundings, finished_cells, run_study, write_pages
from nonvacuous.study.study import Context
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, ManyExamples, ManySettings

#: Networks are trained for them, once for all.
pytestmark = pytest.mark.slow

TINY = MeasuresSettings(
    width=(6, 16), depth=(1,), learning_rate=(0.1,), batch_size=(20,), weight_decay=(0.0,),
    dropout=(0.0, 0.1), label_noise=(0.0, 0.2), examples=(40, 80), repetitions=2, stop_loss=0.3,
    epochs=60, measures=("norms", "margins", "gonon-gap"), draws=40, information_draws=10, alone=1,
    alone_epochs=2,
)  # fmt: skip
ROOT = Path(__file__).parents[3]


def run(
    settings: MeasuresSettings, folder: Path, *, progress=None, **around: object
) -> study.StudyResult:
    found = Surroundings(**around)
    return run_study(study.STUDY, settings, folder, surroundings=found, progress=progress)


def material_of(settings: MeasuresSettings) -> training.Training:
    return training.Training(MeasuresCell.of(settings.networks(), settings), Context(Path()))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[study.StudyResult, Path]:
    folder = tmp_path_factory.mktemp("study")
    return run(TINY, folder), folder


def test_the_grids() -> None:
    assert len(MeasuresSettings().networks()) == 256
    assert len(MeasuresSettings.large().networks()) == 2592
    assert len({cell.key for cell in MeasuresSettings.large().networks()}) == 2592
    assert len({cell.key for cell in MeasuresSettings.cnn().networks()}) == 1458
    # Each part has one seed and all rates, decays and dropouts: a stop leaves whole combinations.
    for part in MeasuresSettings.cnn().groups():
        assert len({cell.repetition for cell in part}) == 1
        assert len({(c.learning_rate, c.weight_decay, c.dropout) for c in part}) == 27
    groups = list(TINY.groups())
    assert [len(group) for group in groups] == [8] * 4
    for group in groups:
        assert len({cell.group for cell in group}) == 1
    assert max(len(g) for g in TINY.changed(together=3).groups()) == 3


def test_the_files_hold_the_defaults() -> None:
    for name, settings in (
        ("", MeasuresSettings()),
        ("-large", MeasuresSettings.large()),
        ("-cnn", MeasuresSettings.cnn()),
    ):
        read = MeasuresSettings.from_toml(ROOT / "experiments" / f"measures-study{name}.toml")
        assert read == settings
        assert MeasuresSettings.of(json.loads(json.dumps(settings.record()))) == settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": [0]}, "width is 0"),
        ({"width": []}, "at least one value"),
        ({"dropout": [0.1, 0.1]}, "none of them twice"),
        ({"dropout": [1.0]}, "dropout must be below 1"),
        ({"learning_rate": [0.0]}, "learning_rate must be positive"),
        ({"width": 3}, "valid tuple"),
        ({"stop_loss": 0}, "stop_loss"),
        ({"draws": 1}, "draws is 1"),
        ({"breadth": [1]}, "no setting 'breadth'"),
    ],
)
def test_refused_settings(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        MeasuresSettings.of(changes)


def test_sets_and_noise_are_nested() -> None:
    settings = TINY.changed(label_noise=(0.0, 0.2, 0.5))
    material = material_of(settings)
    clean, some, more = material.labels
    assert ((some != clean) <= (more != clean)).all()
    assert 0 < (some != clean).sum() < (more != clean).sum()
    small, large = (
        material.training_set(next(c for c in settings.networks() if c.examples == n))[0]
        for n in (40, 80)
    )
    assert torch.equal(small, large[:40])
    # Nothing that is trained on is tested on.
    assert len(material.test_labels) == 1797 - 80
    assert len(material_of(settings.changed(unused_as_test=False)).test_labels) == 360
    halved = material_of(settings.changed(pool=2))
    assert halved.shape == (1, 4, 4)
    assert torch.allclose(halved.inputs[0, 0, 0, 0], material.inputs[0, 0, :2, :2].mean())


def test_a_measure_that_is_not_there_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(BadInput, match=r"^--measures: there is no measure or family 'nroms'"):
        study.STUDY.cells(TINY.changed(measures=("nroms",)), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"examples": (40, 5000)}, "asks for 5000"), ({"pool": 9}, "set pool = 1")],
)
def test_refused_material(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        material_of(TINY.changed(**changes))


def test_a_record_is_what_a_network_trained_alone_comes_to(
    done: tuple[study.StudyResult, Path],
) -> None:
    result, _ = done
    material = material_of(TINY)
    places = [place for place, entry in enumerate(result.records) if entry.judged]
    for place in (places[1], places[-1]):
        cell, record = TINY.networks()[place], result.records[place]
        assert record.key == cell.key
        inputs, labels = material.training_set(cell)
        seed = training.network_seed(TINY.seed, cell)

        def fresh(seed: int, model: str = cell.model) -> torch.nn.Module:
            return build(model, (1, 8, 8), 10, seed=seed)

        alone = train_many(
            fresh,
            ManyExamples([inputs], labels.unsqueeze(0)),
            [Job(seed=seed, learning_rate=0.1, dropout=cell.dropout)],
            settings=ManySettings(
                epochs=60, batch_size=20, decay=1.0, stop_loss=0.3, measure_every=2
            ),
            method="one at a time",
            device="cpu",
        ).jobs[0]
        assert (record.stopped, record.epochs) == (alone.stopped, alone.history[-1].epoch)
        network = fresh(seed)
        network.load_state_dict(alone.state)
        with torch.no_grad():
            scores, tested = network(inputs), network(material.test_inputs)
        assert record.train_errors == int((scores.argmax(1) != labels).sum())
        assert record.train_loss == pytest.approx(float(cross_entropy(scores, labels)), rel=1e-3)
        wrong = int((tested.argmax(1) != material.test_labels).sum())
        assert abs(record.test_errors - wrong) <= 2
        assert record.gap == pytest.approx(
            record.test_errors / 1717 - record.train_errors / cell.examples
        )
        expected = panel(network, (inputs, labels), initial=fresh(seed), only=TINY.measures)
        for entry in expected.entries:
            found = record.measures[entry.measure.name]
            assert found["number"] == pytest.approx(entry.result.to_dict()["number"], rel=1e-3)


def test_convolutional_networks_are_trained_together_and_measured(tmp_path: Path) -> None:
    settings = TINY.changed(
        network="cnn", centered=True, width=(4, 6), dropout=(0.0,), label_noise=(0.0,),
        learning_rate=(0.05,), measures=("norms", "kl"), repetitions=1, alone=0, stop_loss=1.5,
    )  # fmt: skip
    result = run(settings.changed(examples=(40, 60), repetitions=2), tmp_path)
    material = material_of(settings)
    assert -2.0 <= float(material.inputs.min()) < -1.0 < 1.0 < float(material.inputs.max()) <= 2.0
    record = next(entry for entry in result.records if entry.judged)
    assert record.key.startswith("cnn-w4-d1-")
    assert {"balanced-spectral-sum", "kl"} <= set(record.measures)
    assert not any("undefined" in entry for entry in record.measures.values())
    assert result.times.method == "matrices"
    page = study.STUDY.page(result, "")
    assert any(
        "Convolutional networks on digits" in text
        for part in page.sections
        for text in part.paragraphs
    )


def test_every_network_is_there_and_judged_only_if_it_reached_the_loss(
    done: tuple[study.StudyResult, Path],
) -> None:
    result, _ = done
    assert [entry.key for entry in result.records] == [cell.key for cell in TINY.networks()]
    for entry in result.records:
        reached = entry.train_loss is not None and entry.train_loss <= 0.3
        assert entry.judged == reached == bool(entry.measures)
    assert result.left_out == 32 - len(result.reached)
    files = study.STUDY.files(result, study.STUDY.page(result, ""))
    assert len(files["networks.jsonl"].splitlines()) == 32
    names = {entry.name for entry in result.judged}
    assert study.CHANCE in names
    assert "gonon-gap" in names
    divided = {entry.name: entry.divided for entry in result.judged}
    assert not divided["gonon-gap"]
    assert divided["spectral-sum"]
    assert result.times.networks == 32
    assert result.times.alone_networks == 1
    assert set(result.judged[0].granulated) <= {
        "width", "dropout", "label_noise", "examples",
    }  # fmt: skip
    json.dumps(result.to_dict(), allow_nan=False)


def test_statistics_are_computed_again_without_training(
    done: tuple[study.StudyResult, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder = done
    monkeypatch.setattr(training, "train_many", None)
    again = run(TINY, folder, resume=True)
    assert again.to_dict() == result.to_dict()
    other = run(TINY.changed(per_root_n=False, draws=50), folder, resume=True)
    assert not any(entry.divided for entry in other.judged)
    assert other.records == result.records
    with pytest.raises(BadInput, match="holds a reproduction already"):
        run(TINY, folder)
    with pytest.raises(BadInput, match=r"other settings \(stop_loss\)"):
        run(TINY.changed(stop_loss=0.5), folder, resume=True)
    run(TINY, folder, resume=True)


def test_a_stopped_run_goes_on_where_it_was(
    done: tuple[study.StudyResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = done
    trained: list[int] = []

    def breaking(*arguments: object, **options: object) -> object:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(1)
        return train_many(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_many", breaking)
        with pytest.raises(KeyboardInterrupt):
            run(TINY, tmp_path)
    finished = finished_cells(study.STUDY, tmp_path)
    assert sum(len(entry.result.records) for entry in finished) == 16
    # What is there can be judged as it is.
    part = run(TINY.changed(train=False), tmp_path, resume=True)
    assert part.records == tuple(entry for entry in result.records if entry in part.records)
    assert (part.to_dict()["networks"], part.to_dict()["planned"]) == (16, 32)
    resumed = run(TINY, tmp_path, resume=True)
    assert resumed.records == result.records
    assert [e.to_dict() for e in resumed.judged] == [e.to_dict() for e in result.judged]


def test_a_network_that_was_measured_is_not_trained_again(
    done: tuple[study.StudyResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = next(iter(TINY.groups()))
    cell = MeasuresCell.of(networks, TINY)
    measured: list[str] = []
    measure = training.Training._measures

    def stopping(self, network, job):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(network.key)
        return measure(self, network, job)

    with monkeypatch.context() as patch:
        patch.setattr(training.Training, "_measures", stopping)
        with pytest.raises(KeyboardInterrupt):
            training.Training(cell, Context(tmp_path)).together()
    again = list(tmp_path.glob("*.json"))
    assert len(again) == 3
    asked: list[int] = []

    def counting(build, examples, jobs, **options):
        asked.append(len(jobs))
        return train_many(build, examples, jobs, **options)

    monkeypatch.setattr(training, "train_many", counting)
    found = training.Training(cell, Context(tmp_path)).together()
    assert asked == [len(networks) - len(again)]
    known = {entry.key: entry for entry in done[0].records}
    assert [entry.key for entry in found.records] == [network.key for network in networks]
    for entry in found.records:
        assert entry.test_errors == known[entry.key].test_errors
    assert not any(tmp_path.glob("*.json"))


def test_judges_side_by_side_find_the_same() -> None:
    pair = {"kl": lambda place: number(place % 7), "rescaled-kl": lambda place: number(place)}
    records = made_up(pair)
    alone = study.judge(records, JUDGE), study.compare_gauges(records, JUDGE)
    with parallel_config(backend="threading"):
        together = (
            study.judge(records, JUDGE, jobs=2),
            study.compare_gauges(records, JUDGE, jobs=2),
        )
    assert alone == together and len(alone[0][0]) == 3 and len(alone[1]) == 1


@pytest.mark.nightly  # by day: above, and for processes a small sweep in tests/study/test_sweep.py
def test_other_processes_find_the_same(
    done: tuple[study.StudyResult, Path], tmp_path: Path
) -> None:
    result, _ = done
    other = run(TINY, tmp_path, engine=lambda: LocalEngine(jobs=2), jobs=2)
    assert other.records == result.records
    assert [e.to_dict() for e in other.judged] == [e.to_dict() for e in result.judged]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    settings = TINY.changed(measures=("norms",), label_noise=(0.0,), alone=0)
    run(
        settings, tmp_path, progress=lambda phase, done, total, _: told.append((phase, done, total))
    )
    assert [entry for entry in told if entry[0] == "cells"] == [
        ("cells", k, 4) for k in (1, 2, 3, 4)
    ]
    assert {"training", "measures"} <= {phase for phase, _, _ in told}


# -- judging made-up networks ---------------------------------------------------------------------


def made_up(measures: dict[str, object], *, count: int = 64) -> list[NetworkRecord]:
    """Networks whose gap is 1, 2, 3, ... errors of a thousand; measures by functions of it."""
    records = []
    for place in range(count):
        axes = dict.fromkeys(AXES, 1) | {
            "width": 2 ** (place % 2), "depth": place // 2 % 4, "examples": 100 * (1 + place // 8),
        }  # fmt: skip
        values = {name: function(place) for name, function in measures.items()}  # type: ignore[operator]
        records.append(
            NetworkRecord(
                key=str(place), hyperparameters=axes, repetition=0, stopped="loss", epochs=1,
                steps=1, train_loss=0.1, train_errors=0, test_loss=0.1 + place,
                test_errors=place, test_examples=1000, measures=values,
            )
        )  # fmt: skip
    return records


def number(value: float) -> dict[str, float | None]:
    finite = math.isfinite(value)
    return {"number": value if finite else None, "log10": None}


JUDGE = TINY.changed(per_root_n=False, beyond=0.0)


def test_margins_count_downward_and_planted_measures_are_found_out() -> None:
    records = made_up(
        {
            "spectral-sum": lambda place: number(place),
            "margin-10": lambda place: number(-place),
            "frobenius-sum": lambda place: number(-place),
            "path-norm-1": lambda place: {"undefined": "no paths"},
        }
    )
    judged, refused = study.judge(records, JUDGE)
    found = {entry.name: entry for entry in judged}
    assert found["spectral-sum"].tau.value == pytest.approx(1.0)
    assert found["margin-10"].tau.value == pytest.approx(1.0)
    assert found["frobenius-sum"].verdict == "inverted"
    assert found["spectral-sum"].loss_tau.value == pytest.approx(1.0)
    assert refused == {"path-norm-1": "undefined for 64 of 64 networks: no paths"}


def test_values_beyond_floats_are_ordered_by_their_logarithms() -> None:
    def huge(place: int) -> dict[str, float | None]:
        log = 300.0 + place
        return {"number": 10.0**log if log < 308 else None, "log10": log}

    records = made_up({"spectral-product": huge})
    column = study.oriented("spectral-product", records, per_root_n=False)
    assert (np.diff(column) > 0).all()
    judged, _ = study.judge(records, JUDGE)
    assert judged[0].tau.value == pytest.approx(1.0)


def test_networks_for_which_a_measure_is_undefined_are_left_out_for_it() -> None:
    records = made_up(
        {"spectral-sum": lambda place: {"undefined": "x"} if place % 5 == 0 else number(place)}
    )
    judged, refused = study.judge(records, JUDGE)
    found = {entry.name: entry for entry in judged}
    assert not refused
    assert found["spectral-sum"].networks == 51
    assert found["spectral-sum"].tau.value == pytest.approx(1.0)
    assert found[study.CHANCE].networks == 64


def test_measures_without_n_are_divided_by_its_root() -> None:
    records = made_up({"spectral-sum": lambda place: number(3.0), "margin-10": lambda _: number(1)})
    plain = study.oriented("spectral-sum", records, per_root_n=False)
    assert (plain == 3.0).all()
    roots = np.sqrt([float(entry.hyperparameters["examples"]) for entry in records])
    assert study.oriented("spectral-sum", records, per_root_n=True) == pytest.approx(3.0 / roots)
    assert study.oriented("margin-10", records, per_root_n=True) == pytest.approx(-roots)
    for name in ("gonon-gap", "occam-bound", "kl-certificate", "rademacher-frobenius"):
        assert study.knows_examples(name)
    for name in ("spectral-sum", "parameter-count", "kl", "fisher-rao", "vc-dimension"):
        assert not study.knows_examples(name)


def test_a_better_gauge_is_told_from_a_worse_one() -> None:
    records = made_up(
        {
            "spectral-sum": lambda place: number(place % 7),
            "balanced-spectral-sum": lambda place: number(place),
            "kl": lambda place: number(place),
            "rescaled-kl": lambda place: number(-place),
            "frobenius-sum": lambda place: number(place),
            "balanced-frobenius-sum": lambda place: number(2 * place),
            "sharpness-trace": lambda place: number(place),
            "sharpness-balanced": lambda place: {"undefined": "none"},
        }
    )
    found = {entry.given: entry for entry in study.compare_gauges(records, JUDGE)}
    assert set(found) == {"spectral-sum", "kl", "frobenius-sum"}
    assert found["spectral-sum"].verdict == "better"
    assert found["kl"].verdict == "worse"
    assert found["kl"].tau.value == found["kl"].granulated.value == pytest.approx(-2.0)
    assert found["frobenius-sum"].verdict == "no difference"
    result = study.StudyResult(JUDGE, tuple(records), (), {}, Times(), tuple(found.values()))
    (table,) = gauges_tables(result)
    assert table.rows[0][:3] == ("frobenius-sum", "balanced-frobenius-sum", "no difference")


def test_too_few_networks_are_no_study() -> None:
    records = [entry.model_copy(update={"stopped": "epochs"}) for entry in made_up({}, count=10)]
    with pytest.raises(BadInput, match="only 0 of 10 networks reached"):
        study.judge(records, JUDGE)
    same = {"hyperparameters": dict.fromkeys(AXES, 1)}
    alike = [entry.model_copy(update=same) for entry in made_up({})]
    with pytest.raises(BadInput, match="the same hyper-parameters"):
        study.judge(alike, JUDGE)


def test_the_time_of_one_after_the_other_is_by_steps() -> None:
    times = Times(
        networks=100, steps=10_000, seconds=20.0, alone_networks=2, alone_steps=50,
        alone_seconds=1.0,
    )  # fmt: skip
    assert times.per_minute == pytest.approx(300.0)
    assert times.per_minute_alone == pytest.approx(60 * 100 / 200)
    assert times.speedup == pytest.approx(10.0)
    assert Times().speedup is None


# -- pages ----------------------------------------------------------------------------------------


def test_pages_say_it_in_words_and_warn(tmp_path: Path) -> None:
    records = made_up(
        {
            "spectral-sum": lambda place: number(place),
            "frobenius-sum": lambda place: number(-place),
            "path-norm-1": lambda place: {"undefined": "<b>no paths</b>"},
        }
    )
    records[3] = records[3].model_copy(update={"stopped": "epochs", "measures": {}})
    judged, refused = study.judge(records, JUDGE)
    result = study.StudyResult(JUDGE, tuple(records), judged, refused, Times())
    paths = write_pages(study.STUDY, result, tmp_path, command="")
    html = paths["report.html"].read_text(encoding="utf-8")
    assert "Warning: larger goes with a smaller gap" in html
    assert "<b>no paths" not in html
    assert "&lt;b&gt;no paths" in html
    assert "Left out because they did not get there: 1" in html
    assert html.count("<svg") == 3
    table = paths["table.md"].read_text(encoding="utf-8")
    assert table.index("spectral-sum") < table.index("frobenius-sum")
    assert "1 predict the gap beyond chance and are inverted for no" in lead(result)
    record = json.loads(paths["results.json"].read_text(encoding="utf-8"))
    assert record["left_out"] == 1
    assert record["left_out_by"]["width"] == {"2": 1}
    chance = replace(result, judged=tuple(e for e in judged if e.name == CHANCE))
    write_pages(study.STUDY, chance, tmp_path, command="")
    assert lead(chance) == "No measure is defined for enough networks to be judged."


def test_the_section_of_the_results_page(done: tuple[study.StudyResult, Path]) -> None:
    place = ROOT / "benchmarks" / "show_measures_study.py"
    found = importlib.util.spec_from_file_location("show_measures_study", place)
    assert found is not None and found.loader is not None
    shown = importlib.util.module_from_spec(found)
    found.loader.exec_module(shown)
    record = json.loads(json.dumps(done[0].to_dict()))
    text = shown.section({"measures-study": record})
    assert "32 perceptrons on digits (width, dropout, label noise, examples varied)" in text
    assert f"`{study.CHANCE}`" in text
    # Absolute times are told of a GPU only.
    assert " s, " not in text
    assert "### On convolutional networks" not in text
    record["times"] |= {"device": "cuda"}
    assert "32 networks trained in" in shown.section({"measures-study": record})
    both = shown.section({"measures-study": record, "measures-study-cnn": record})
    _, _, own = both.partition("### On convolutional networks")
    assert "32 networks of the 32 of the grid" in own
    # The same study twice: every measure stands beside itself, and the orders agree wholly.
    assert "Kendall's τ = +1.00, by granulated τ with +1.00" in own
    assert all(f"| `{entry['name']}` |" in own for entry in record["measures"])
    assert all(f"| `{entry['best']}` |" in own for entry in record["rescaled"])
