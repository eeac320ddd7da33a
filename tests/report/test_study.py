"""The page of a study, and the pictures on it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.report import plots
from nonvacuous.report.study import Figure, Section, StudyPage, Table, render, write_study

HOSTILE = "<script>alert(1)</script> $x_{$ &"


def pictures(name: str = "a") -> list[str]:
    series = [
        plots.Series(
            f"{name} {number}", [0.0, 0.5, 1.0], [0.1, 0.4, 0.9], [0, 0.3, 0.8], [0.2, 0.5, 1]
        )
        for number in range(8)
    ]
    return [
        plots.lines(series, title="Curves", x_label=name, y_label="y", level=(name, 0.9)),
        plots.lines(series[:1], title=name, x_label="x", y_label=name, log_y=True),
        plots.bars(
            [name, "b"],
            {name: [1.0, 2.0], "second": [3.0, 0.5]},
            low={name: [0.5, 1.5]},
            high={name: [1.5, 2.5]},
            title="Bars",
            x_label="x",
        ),
        plots.histogram({name: [1.0, 2.0, float("nan")], "none": []}, title="Hist", x_label="x"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", HOSTILE])
def test_pictures_are_svg_with_words_and_no_script(name):
    for picture in pictures(name):
        root = ElementTree.fromstring(picture)
        assert root.tag == "svg"
        assert root.find("title") is not None and root.find("desc") is not None
        assert not [entry for entry in root.iter() if entry.tag == "script"]
    assert pictures(name) == pictures(name)


@pytest.mark.slow
def test_ids_of_two_pictures_differ():
    ids = [
        {
            entry.attrib["id"]
            for entry in ElementTree.fromstring(picture).iter()
            if "id" in entry.attrib
        }
        for picture in pictures()
    ]
    for number, own in enumerate(ids):
        for other in ids[number + 1 :]:
            assert not own & other


@pytest.mark.slow
def test_the_page_escapes_what_it_is_given(tmp_path):
    page = StudyPage(
        title=HOSTILE,
        lead=HOSTILE,
        badges=(HOSTILE,),
        sections=(
            Section(
                HOSTILE,
                (HOSTILE,),
                (Figure(pictures()[0], HOSTILE),),
                (Table((HOSTILE, "n"), ((HOSTILE, "3"),), HOSTILE),),
            ),
        ),
        footer=(HOSTILE,),
    )
    text = write_study(page, tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9
    assert text == render(page)


def test_numbers_are_set_to_the_right():
    table = Table(("what", "value", "note"), (("a", "1.5", "x"), ("b", "-", "2")))
    assert [table.is_numeric(column) for column in range(3)] == [False, True, False]


def test_a_crooked_table_is_refused():
    with pytest.raises(BadInput, match="2 columns"):
        Table(("a", "b"), (("1",),))


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Cannot write"):
        write_study(StudyPage(title="t", lead="l"), tmp_path / "file" / "page.html")
