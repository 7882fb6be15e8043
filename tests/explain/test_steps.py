"""Steps as text, Markdown, JSON and CSV, and as pictures."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.cells import cell_len

from attnbench.explained.picture import colours, svg
from attnbench.explained.steps import Step, number, steps_markdown, steps_rows, steps_text
from attnbench.types.errors import BadInput


def weights_of(*heads: np.ndarray, labels: tuple[str, ...]) -> Step:
    blocks = tuple(f"head {head}" for head in range(1, len(heads) + 1))
    columns = labels if len(labels) == heads[0].shape[1] else ()
    return Step("weights", "w", np.stack(heads), labels, columns, blocks, "shades")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e100, "1.0000e+100"), (-2.5e12, "-2.5000e+12"), (999999999999.5, "999999999999.5000"),
     (-0.0, "0.0000"),
     (6e-6, "~0.0000"), (-6e-6, "~0.0000"), (-np.inf, "-inf"), (np.nan, ""), (0.00005001, "0.0001")],
)  # fmt: skip
def test_a_number(value: float, text: str) -> None:
    assert number(value, 4) == text


def test_large_numbers_have_the_digits_asked_for() -> None:
    step = Step("s", "t", np.array([[1234567890123456.0, 2.0]]))
    assert "1.2345679e+15" in steps_text([step], digits=7)


def test_no_number_and_no_label_is_cut_where_few_columns_fit() -> None:
    step = Step("q", "X", np.full((2, 6), 1 / 3), ("first", "second"))
    (line,) = steps_text([step], width=60, digits=17).splitlines()[1:2]
    assert line == "  first   0.3333333333333333  …  0.3333333333333333"


def test_the_middle_of_a_long_array_is_left_out() -> None:
    step = Step("q", "X", np.arange(40.0)[:, None], tuple(f"x{i}" for i in range(40)))
    lines = steps_text([step], rows=5).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["x0", "x1", "x2", "…", "x39"]
    assert len(steps_text([step], rows=40).splitlines()) == 41


def test_labels_of_wide_characters_stand_in_line() -> None:
    labels = ("😀😀", "日本語のとても長いラベル", "cat")
    lines = steps_text([weights_of(np.eye(3), labels=labels)], width=100).splitlines()[3:6]
    assert len({cell_len(line) for line in lines}) == 1


def test_shades_have_names_of_columns_and_stand_all_beside_or_all_beneath() -> None:
    narrow, wide = (
        weights_of(np.eye(2), labels=("a", "bcd")),
        weights_of(*[np.eye(3)] * 4, labels=("x", "y", "z")),
    )
    lines = steps_text([narrow], width=80).splitlines()
    assert lines[2:] == [
        "       a  bcd       a   bcd",
        "  a    1    0   a   ████    |",
        "  bcd  0    1   bcd     ████|",
        "                    0 |  ░░▒▒▓▓██| 1",
    ]
    beneath = steps_text([narrow, wide], width=80).splitlines()
    assert beneath[:8] == [
        "weights (1×2×2): w",
        "  head 1",
        "       a  bcd",
        "  a    1    0",
        "  bcd  0    1",
        "",
        "  head 1",
        "      a   bcd",
    ]


def test_shades_are_cut_to_the_width() -> None:
    weights = weights_of(np.eye(50), labels=tuple(f"x{i}" for i in range(1, 51)))
    assert "the first 50×27" in steps_text([weights], width=61)
    assert max(map(cell_len, steps_text([weights], width=200).splitlines())) <= 200


def test_markdown_is_a_heading_a_sentence_and_a_table() -> None:
    step = Step("a|b", "<b>", np.array([[0.5, 1]]), ("r|",), ("k1", "k2"))
    assert steps_markdown([step]) == (
        "### a|b (1×2)\n\n&lt;b>\n\n|  | k1 | k2 |\n| --- | ---: | ---: |\n| r\\| | 0.5 | 1.0 |\n"
    )


def test_programs_get_every_number_and_no_infinity() -> None:
    step = Step("s", "t", np.array([[[1.0, -np.inf]], [[2.0, 3.0]]]), ("r",), (), ("A", "B"))
    (row,) = json.loads(json.dumps(steps_rows([step]), allow_nan=False))
    assert (row["shape"], row["values"]) == ([2, 1, 2], [[[1.0, "-inf"]], [[2.0, 3.0]]])


# As a picture


def test_a_picture_is_well_formed_whatever_labels_say() -> None:
    hostile = ('"</text><script>', "\x1b[31m&amp;")
    tree = ElementTree.fromstring(svg([weights_of(np.eye(2), labels=hostile)], "title\x1b"))
    texts = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert "title\\x1b" in texts
    assert '"</text><script>' in texts
    assert not [node for node in tree.iter() if node.tag.endswith("script")]


def test_larger_is_darker_and_a_dropped_key_has_no_number() -> None:
    text = svg([weights_of(np.array([[0.1, 0.0]]), np.array([[0.3, 0.2]]), labels=("q",))], "t")
    fills = re.findall(r'fill="rgb\((\d+), (\d+), (\d+)\)"', text)
    light = [sum(map(int, rgb)) for rgb in fills]
    assert sorted(light) == [light[2], light[3], light[0], light[1]]
    assert light[1] == 3 * 255
    assert ">0.0<" not in text
    assert ">0.3<" in text


def luminance(rgb: str) -> float:
    """The relative luminance of WCAG 2.1."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", rgb)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_number_in_every_cell_can_be_read() -> None:
    for share in np.linspace(0, 1, 101):
        fill, ink = colours(float(share))
        dark, light = sorted((luminance(fill), 0.0 if ink == "black" else 1.0))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, share


def test_lines_have_a_point_for_each_number() -> None:
    step = Step("s", "t", np.array([[0.1, np.nan], [0.2, 0.3]]), ("a", "b"), ("4", "64"), drawn="lines")
    assert svg([step], "t").count("<circle") == 3


def test_a_picture_of_many_tokens_is_no_larger_than_a_screen() -> None:
    text = svg([weights_of(np.eye(256), labels=tuple(f"x{i}" for i in range(256)))], "t")
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)"', text)[:2])
    assert max(width, height) < 1200
    labels = re.findall(r">(x\d+)</text>", text)
    assert 50 < len(labels) < 200
    with pytest.raises(BadInput, match="at most 131072"):
        svg([weights_of(*[np.eye(256)] * 3, labels=("x",))], "t")
    with pytest.raises(BadInput, match="no weights to draw"):
        svg([], "t")
