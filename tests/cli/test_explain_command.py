"""What ``attnbench explain`` prints and draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from syrupy.assertion import SnapshotAssertion

from attnbench.worked.examples import EXAMPLES
from attnbench.worked.picture import heatmap_spec
from attnbench.worked.steps import Step

Invoke = Callable[..., Result]


def test_the_textbook_five_tokens(invoke: Invoke, snapshot: SnapshotAssertion) -> None:
    result = invoke("explain", "scaled_dot")
    assert result.exit_code == 0
    assert result.stdout == snapshot


def test_six_digits_of_the_projections(invoke: Invoke) -> None:
    out = invoke("explain", "dot", "--example", "projections", "--digits", "6").stdout
    assert "  x1  1.936621  6.683105  1.595068\n" in out
    assert "  x1  0.063379  0.468311  0.468311\n" in out


def test_a_sentence_with_heads_and_a_mask(invoke: Invoke, snapshot: SnapshotAssertion) -> None:
    result = invoke("explain", "sinks", "--sentence", "the cat sat", "--heads", "2", "--mask", "causal")
    assert result.stdout == snapshot


def test_json_has_every_number(invoke: Invoke) -> None:
    said = json.loads(invoke("explain", "scaled_dot", "--mask", "causal", "--format", "json").stdout)
    by_name = {step["name"]: step for step in said}
    assert by_name["scores"]["values"][0] == [1.0, 0.0, 0.5, 0.5, 0.75]
    assert by_name["masked scores"]["values"][0] == [1.0, "-inf", "-inf", "-inf", "-inf"]
    assert by_name["weights"]["shape"] == [5, 5]


def test_csv_has_a_line_a_number(invoke: Invoke) -> None:
    lines = invoke("explain", "scaled_dot", "--format", "csv").stdout.splitlines()
    assert lines[0] == "step,head,row,column,value"
    assert "scores,0,x1,x5,0.75" in lines


def test_the_examples_are_listed(invoke: Invoke) -> None:
    lines = invoke("explain", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scaled_doot"], "no rule 'scaled_doot'; did you mean 'scaled_dot'?"),
        (["dot", "--example", "x"], "no example 'x'; there are self-attention"),
        (["dot", "--example", "projections", "--heads", "3"], "--heads cuts tokens"),
        (["dot", "--example", "five-tokens", "--sentence", "a b"], "--example has inputs of its own"),
        (["dot", "--sentence", "  "], "--sentence has no words"),
        (["dot", "--heads", "2"], "3 features can't be cut into 2 heads of equal width"),
        (["dot", "--heatmap", "x.gif"], "'x.gif': pictures end in .png or .svg"),
        (["dot", "--heatmap", "no/such/folder/x.png"], "no file can be written there"),
        (["dot", "--mask", "padding:9"], "padding"),
    ],
)
def test_what_can_not_be_worked_is_a_sentence(invoke: Invoke, words: list[str], sentence: str) -> None:
    result = invoke("explain", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_heatmap_is_a_picture(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    file = tmp_path / "weights.png"
    result = invoke("explain", "scaled_dot", "--heatmap", str(file))
    assert result.exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert f"drawn in {file}" in result.stderr


def test_labels_of_a_picture_are_text() -> None:
    import numpy as np

    hostile = ("'];alert(1)//", '"</script>')
    step = Step("weights", "", np.eye(2), hostile, hostile, head=0)
    spec = json.dumps(heatmap_spec([step], "title"))
    labels = json.dumps(list(hostile))
    assert json.dumps(f"{labels}[datum.value]") in spec


def test_a_picture_without_its_package_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = invoke("explain", "dot", "--heatmap", str(tmp_path / "x.png"))
    assert result.exit_code == 2
    assert "pip install 'attnbench[html]'" in result.stderr
