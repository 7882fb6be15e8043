"""What ``attnbench rules`` prints and draws."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from syrupy.assertion import SnapshotAssertion

from attnbench.rules import attnbench_rules
from attnbench.worked.behaviour import behaviour_spec, behaviours

Invoke = Callable[..., Result]


def test_two_rules_at_two_widths(invoke: Invoke, snapshot: SnapshotAssertion) -> None:
    result = invoke("rules", "dot", "scaled_dot", "--width", "4", "--width", "64")
    assert result.exit_code == 0
    assert result.stdout == snapshot


def test_rows_for_machines_are_alike_and_none_stands_there_twice(invoke: Invoke) -> None:
    rows = json.loads(invoke("rules", "dot", "--format", "json").stdout)
    assert len(rows) == 4 + 4 - 1
    assert {row["D"] for row in rows} == {4, 16, 64, 256}
    read = list(csv.DictReader(io.StringIO(invoke("rules", "dot", "--format", "csv").stdout)))
    assert [float(row["entropy"]) for row in read] == [row["entropy"] for row in rows]


def test_every_rule_that_is_loaded_is_there(invoke: Invoke) -> None:
    out = invoke("rules", "--width", "8", "--gain", "1", "--keys", "4").stdout
    listed = [row["name"] for row in json.loads(invoke("list", "rules", "--format", "json").stdout)]
    assert all(f"\n{name} " in out for name in listed)
    assert max(map(len, out.splitlines())) <= 80


def test_gains_and_costs_are_shown_at_one_width(invoke: Invoke) -> None:
    out = invoke("rules", "dot", "--width", "256", "--width", "4", "--gain", "1").stdout
    assert "queries times a gain, D=256\n" in out
    assert "what scores cost at D=256\n" in out
    assert "gain, D=4\n" not in out


def test_ticks_of_a_plot_stand_where_its_points_are() -> None:
    (row,) = behaviours([next(iter(attnbench_rules()))], (12,))
    spec = behaviour_spec([row], [row])
    x = [part["spec"]["encoding"]["x"] for part in spec["vconcat"]]
    assert [(one["title"], one["axis"]["values"]) for one in x] == [
        ("D", [12]),
        ("queries times a gain, D=12", [1]),
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dott"], "no rule 'dott'; did you mean 'dot'?"),
        (["dot", "--width", "9999"], "9999 features: 1 to 1024 are needed"),
        (["dot", "--keys", "9999"], "9999 keys: 2 to 1024 are needed"),
        (["dot", "--gain", "0"], "0"),
        (["dot", "--gain", "1e308"], "a gain of 1e+308: one above 0 and up to 1e+100 is needed"),
        (["dot", "--plot", "x.bmp"], "'x.bmp': pictures end in .png or .svg"),
    ],
)
def test_what_can_not_be_compared_is_a_sentence(invoke: Invoke, words: list[str], sentence: str) -> None:
    result = invoke("rules", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_plot_is_a_picture(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    file = tmp_path / "rules.svg"
    result = invoke("rules", "dot", "scaled_dot", "--width", "4", "--width", "64", "--plot", str(file))
    assert result.exit_code == 0
    text = file.read_text()
    assert text.startswith("<svg")
    assert "scaled_dot" in text
