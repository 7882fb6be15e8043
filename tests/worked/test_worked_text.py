"""Steps as text: numbers that are never cut, labels that take more columns than characters."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from attnbench.worked.steps import WEIGHTS, Step
from attnbench.worked.text import heatmap, number, numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e100, "1.0e+100"), (-2.5e12, "-2.5e+12"), (999999999999.5, "999999999999.5000"), (-0.0, "0.0000"),
     (6e-6, "6.0e-06"), (-np.inf, "-inf")],
)  # fmt: skip
def test_a_number(value: float, text: str) -> None:
    assert number(value) == text


def test_no_number_and_no_label_is_cut_where_few_columns_fit() -> None:
    step = Step("q", "X", np.full((2, 6), 1 / 3), ("first", "second"), head=0)
    lines = numbers(step, width=40, colour=False, digits=17).splitlines()
    assert lines[0] == "  first   …  0.3333333333333333  0.3333333333333333"


def test_labels_of_wide_characters_stand_in_line() -> None:
    labels = ("😀😀", "日本語のとても長いラベル", "cat")
    lines = heatmap([Step(WEIGHTS, "", np.eye(3), labels, labels, head=0)], 80).splitlines()[:3]
    assert len({cell_len(line) for line in lines}) == 1
    assert max(map(cell_len, lines)) <= 2 + 16 + 1 + 6 + 1


def test_a_heatmap_uses_the_width_that_short_labels_leave() -> None:
    labels = tuple(f"x{i}" for i in range(1, 8))
    shown = heatmap([Step(WEIGHTS, "", np.eye(7), labels, labels, head=0)], 30)
    assert "the first" not in shown
    assert "the first 7×3" in heatmap([Step(WEIGHTS, "", np.eye(7), labels, labels, head=0)], 10)


def test_heads_stand_side_by_side_on_one_scale_as_many_as_fit() -> None:
    heads = [Step(WEIGHTS, "", np.array([[share, 0.0]]), ("q",), ("a", "b"), head=h)
             for h, share in enumerate((0.5, 0.25, 0.5))]  # fmt: skip
    assert heatmap(heads, 80).splitlines() == [
        "weights of 3 heads side by side",
        "    head 1 head 2 head 3",
        "  q ██  |  ▒▒  |  ██  |",
        "    queries down, keys across; 0 |  ░░▒▒▓▓██| 0.5",
    ]
    assert heatmap(heads, 20).splitlines()[3:5] == ["    head 3", "  q ██  |"]
    assert heatmap(heads, 12) == ""
