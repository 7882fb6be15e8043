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


def test_it_says_what_it_works_on(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("1,2\n3,4\n")
    said = [
        invoke("explain", "dot", *words).stdout.splitlines()[0]
        for words in ([], ["--sentence", "a b", "--seed", "3"], ["--tokens", str(tmp_path / "mine.csv")])
    ]
    assert said == [
        "dot on the example self-attention: three tokens of three features",
        "dot on the words of --sentence, with random tokens (--seed 3)",
        f"dot on the file {str(tmp_path / 'mine.csv')!r}",
    ]


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
        (
            ["dot", "--example", "five-tokens", "--sentence", "a b"],
            "--example can't be combined with --tokens or --sentence: it has its own inputs",
        ),
        (["dot", "--sentence", "  "], "--sentence has no words"),
        (["dot", "--heads", "2"], "3 features can't be cut into 2 heads of equal width"),
        (["dot", "--heatmap", "x.gif"], "'x.gif': pictures end in .png or .svg"),
        (["dot", "--heatmap", "no/such/folder/x.png"], "no file can be written there"),
        (["dot", "--mask", "padding:9"], "padding"),
        (["dot", "--digits", "18"], "'18': a whole number of 1 to 17 is needed"),
        (
            ["projections"],
            "'projections' is an example, not a rule: attnbench explain dot",
        ),
        (["dot", "--example", "concatenate"], "dot needs a key for each value: 1 key, 32 values"),
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


def test_labels_that_no_font_has_end_no_process(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    tokens = tmp_path / "t.json"
    tokens.write_text(json.dumps({"tokens": [[1, 2], [3, 4]], "labels": ["\x1b[31m", "a" * 100]}))
    file = tmp_path / "weights.svg"
    assert invoke("explain", "dot", "--tokens", str(tokens), "--heatmap", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")
    assert "\\x1b[31m" in text
    assert "a" * 15 + "…" in text


def test_the_darkest_is_the_largest_of_all_heads_and_what_is_dropped_has_no_number() -> None:
    import numpy as np

    heads = [Step("weights", "", np.array([[share, 0.0]]), ("q",), ("a", "b"), head=h)
             for h, share in enumerate((0.1, 0.3))]  # fmt: skip
    spec = heatmap_spec(heads, "title\x1b")
    cells, text = spec["spec"]["layer"]
    assert cells["encoding"]["color"]["scale"]["domain"] == [0, 0.15, 0.3]
    assert text["encoding"]["text"]["condition"] == {"test": "datum.weight === 0", "value": ""}
    assert spec["title"] == "title\\x1b"


def test_a_picture_of_many_tokens_is_no_larger_than_a_screen_and_of_too_many_cells_none(
    invoke: Invoke, tmp_path: Path
) -> None:
    import numpy as np

    labels = tuple(f"x{i}" for i in range(256))
    many = Step("weights", "", np.eye(256), labels, labels, head=0)
    spec = heatmap_spec([many], "t")
    assert spec["width"] == {"step": 3}
    assert spec["layer"][0]["encoding"]["y"]["axis"]["values"] == list(range(0, 256, 5))
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    file, words = tmp_path / "x.png", " ".join(labels)
    result = invoke("explain", "dot", "--sentence", words, "--heads", "3", "--heatmap", str(file))
    assert result.exit_code == 2
    assert "a heatmap of 3 heads of 256×256 weights: at most 131072 cells can be drawn" in result.stderr
    assert (result.stdout, file.exists()) == ("", False)


def test_a_picture_that_can_not_be_written_is_a_sentence(invoke: Invoke) -> None:
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    result = invoke("explain", "dot", "--heatmap", "/proc/no-file-can-be-here.svg")
    assert result.exit_code == 2
    assert "'/proc/no-file-can-be-here.svg': " in result.stderr


def test_a_picture_without_its_package_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = invoke("explain", "dot", "--heatmap", str(tmp_path / "x.png"))
    assert result.exit_code == 2
    assert "pip install 'attnbench[html]'" in result.stderr
