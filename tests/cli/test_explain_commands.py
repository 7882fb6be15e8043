"""``attnbench explain`` and ``attnbench rules``, beyond their transcripts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]

PLUGIN = """
from attnbench import Parameter, Rule, hookimpl

def plain(q, k, parameters, positions):
    return q @ k.T

def loud(q, k, parameters, positions):
    print("noise")
    return q @ k.T

def raising(q, k, parameters, positions):
    raise RuntimeError("no idea")

def leaving(q, k, parameters, positions):
    raise SystemExit(3)

def dropping(q, k, parameters, positions):
    scores = q @ k.T
    scores[:, 0] = -float("inf")
    return scores

def cube(case):
    yield Parameter("t", (2, 3, 4), lambda rng, H, shape: rng.standard_normal((H, *shape)))

def rule(name, reference=plain, **more):
    return Rule(name=name, formula="f", source="s", reference=reference, bind=lambda c, p: None, **more)

@hookimpl
def attnbench_rules():
    yield rule("loud", loud)
    yield rule("raising", raising)
    yield rule("leaving", leaving)
    yield rule("odd", supports=lambda case: "even D" if case.D % 2 == 0 else None)
    yield rule("dropping", dropping)
    yield rule("cubic", parameters=lambda case: tuple(cube(case)))
    yield rule("shapeless", lambda q, k, parameters, positions: q)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "others.py"
    file.write_text(PLUGIN)
    return str(file)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("explain dot --heads 2", "3 features can't be cut into 2 heads of equal width"),
        ("explain dot --mask padding:9", "padding"),
        ("explain dot --example concatenate", "dot needs a key for each value: 1 key, 32 values"),
        ("explain dot --heatmap /proc/x.svg", "can't write '/proc/x.svg': "),
        ("rules dot --keys 9999", "9999 keys: give 2 to 1024"),
        ("rules dot --gain 1e308", "a gain of 1e+308: give one above 0 and up to 1e+100"),
    ],
)
def test_wrong_input_is_a_sentence(invoke: Invoke, words: str, sentence: str) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_picture_without_its_package_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = invoke("explain", "dot", "--heatmap", str(tmp_path / "x.png"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'attnbench[html]'" in result.stderr


def test_pictures_are_drawn(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="pictures need vl-convert-python")
    tokens, weights, plot = tmp_path / "t.json", tmp_path / "weights.svg", tmp_path / "rules.png"
    # Labels that no font has must not end the process.
    tokens.write_text(json.dumps({"tokens": [[1, 2], [3, 4]], "labels": ["\x1b[31m", "a" * 100]}))
    result = invoke("explain", "dot", "--tokens", str(tokens), "--heatmap", str(weights))
    assert (result.exit_code, f"drawn in {weights}" in result.stderr) == (0, True)
    text = weights.read_text(encoding="utf-8")
    assert "\\x1b[31m" in text
    assert "a" * 15 + "…" in text
    assert invoke("rules", "dot", "--width", "4", "--plot", str(plot)).exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_rows_for_programs_are_alike_and_unique(invoke: Invoke) -> None:
    rows = json.loads(invoke("rules", "dot", "--format", "json").stdout)
    assert len(rows) == 4 + 4 - 1
    assert {row["D"] for row in rows} == {4, 16, 64, 256}
    read = list(csv.DictReader(io.StringIO(invoke("rules", "dot", "--format", "csv").stdout)))
    assert [float(row["entropy"]) for row in read] == [row["entropy"] for row in rows]


def test_a_rule_may_print(invoke: Invoke, plugin: str) -> None:
    for words in (("explain", "loud"), ("rules", "loud", "--width", "4", "--gain", "1")):
        result = invoke(*words, "-p", plugin, "--format", "json")
        assert json.loads(result.stdout)
        assert "noise" in result.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "the rule raising raised RuntimeError: no idea"),
        ("leaving", "the rule leaving raised SystemExit: 3"),
        ("shapeless", "the reference of the rule shapeless returned scores of shape"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "rules"])
def test_a_rule_that_fails_is_named(invoke: Invoke, plugin: str, command: str, name: str, words: str) -> None:
    result = invoke(command, name, "-p", plugin)
    assert result.exit_code == 3
    assert result.stderr.startswith("attnbench: plugin others.py ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_rule_that_fails_leaves_the_others(invoke: Invoke, plugin: str) -> None:
    result = invoke("rules", "-p", plugin, "--width", "4", "--gain", "1", "--format", "json")
    names = {row["rule"] for row in json.loads(result.stdout)}
    assert {"dot", "loud", "dropping", "cubic"} < names
    assert not names & {"raising", "leaving", "shapeless", "odd"}
    assert result.stderr.count("attnbench: plugin others.py ") == 3


def test_a_rule_that_supports_none_of_the_widths(invoke: Invoke, plugin: str) -> None:
    result = invoke("rules", "odd", "-p", plugin)
    assert result.exit_code == 2
    assert "odd supports none of the widths 4, 16, 64, 256 with 32 keys" in result.stderr
    assert invoke("rules", "odd", "-p", plugin, "--width", "5", "--width", "64").exit_code == 0


def test_parameters_of_three_axes_are_shown(invoke: Invoke, plugin: str) -> None:
    assert "t (2×3×4): a parameter of cubic\n" in invoke("explain", "cubic", "-p", plugin).stdout
    lines = invoke("explain", "cubic", "-p", plugin, "--format", "csv").stdout.splitlines()
    at = [line.rpartition(",")[0] for line in lines if line.startswith("t,")]
    assert len(set(at)) == len(at) == 24
