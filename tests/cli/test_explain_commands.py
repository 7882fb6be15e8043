"""``attnbench explain`` and ``attnbench compare-rules``, beyond their transcripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

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

def short(q, k, parameters, positions):
    return {"q": q[:1]}

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
    yield rule("misshapen", inner=short)
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
        (
            "explain projections --example five-tokens",
            "projections is an example: leave out --example",
        ),
        ("explain five-tokens --rule dto", "no rule 'dto'; did you mean 'dot'?"),
        ("explain masks --heads 2 --weighted", "masks has its own numbers: leave out --heads and --weighted"),
        ("explain gqa --sentence word", "gqa has its own numbers: leave out --sentence"),
        ("explain gqa --tokens t.csv --sentence word", "leave out --tokens and --sentence"),
        ("explain five-tokens --sentence word", "five-tokens is an example: leave out --sentence"),
        (
            "explain dot --example projections --tokens t.csv",
            "the example projections has its own inputs: leave out --tokens",
        ),
        ("explain dot --heatmap x.svg --picture x.svg", "--heatmap and --picture both write 'x.svg'"),
        ("explain --rule masks", "no rule 'masks'"),
        (
            "explain dot --rule scaled_dot",
            "dot, which is a rule already: give one",
        ),
        ("explain multihead --example projections", "give tokens alone"),
        ("explain bmm --heatmap x.svg", "there are no weights to draw: --picture draws every step"),
        ("compare-rules dot --gain 1e308", "'1e308': give a number above 0, up to 1e+100"),
    ],
)
def test_wrong_input_is_a_sentence(invoke: Invoke, words: str, sentence: str) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_png_without_its_package_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = invoke("explain", "dot", "--heatmap", str(tmp_path / "x.png"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'attnbench[html]'" in result.stderr
    assert invoke("explain", "dot", "--heatmap", str(tmp_path / "x.svg")).exit_code == 0
    assert invoke("compare-rules", "dot", "--width", "4", "--plot", str(tmp_path / "y.svg")).exit_code == 0


def test_pictures_are_drawn(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason=".png needs vl-convert-python")
    tokens, weights, plot = tmp_path / "t.csv", tmp_path / "weights.png", tmp_path / "rules.png"
    # Labels that no font has must not end the process.
    tokens.write_text(f"\x1b[31m,1,2\n{'a' * 100},3,4\n")
    result = invoke("explain", "dot", "--tokens", str(tokens), "--picture", str(weights))
    # The picture has every step, so the terminal has only its name.
    assert (result.exit_code, result.stdout, f"drawn in {weights}" in result.stderr) == (0, "", True)
    assert invoke("compare-rules", "dot", "--width", "4", "--plot", str(plot)).exit_code == 0
    for path in (weights, plot):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("topic", ["multihead", "masks", "precision", "bmm", "saturation", "concatenate"])
def test_every_lesson_has_a_picture_of_its_steps(invoke: Invoke, tmp_path: Path, topic: str) -> None:
    picture = tmp_path / "x.svg"
    rows = json.loads(invoke("explain", topic, "--picture", str(picture), "--format", "json").stdout)
    texts = [node.text or "" for node in ElementTree.parse(picture).iter() if node.tag.endswith("text")]
    assert all(any(text.startswith(f"{row['name']} (") for text in texts) for row in rows)


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ("multihead", "scaled_dot on the example multihead"),
        ("masks", "masks: "),
        ("five-tokens --rule additive", "additive on the example five-tokens"),
        ("--rule general --mask causal", "general on the example five-tokens"),
        ("--sentence a", "scaled_dot on the words of --sentence"),
        ("--example multihead", "scaled_dot on the example multihead"),
        ("--seed 1", "scaled_dot on the example five-tokens"),
    ],
)
def test_topics_and_options_choose_the_rule_and_the_inputs(invoke: Invoke, words: str, topic: str) -> None:
    assert invoke("explain", *words.split()).stdout.startswith(topic)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("explain Scaled-Dot", "no topic 'Scaled-Dot': look at scaled_dot"),
        ("explain multi-head", "no topic 'multi-head': look at multihead"),
        ("explain bahdanau", "no topic 'bahdanau': look at additive"),
        ("explain Linear", "no topic 'Linear': look at linear"),
        ("explain grouped-query-attention", "no topic 'grouped-query-attention': look at gqa"),
        ("explain window", "no topic 'window': look at masks"),
        # Words of their summaries, all of which must be there.
        ("explain grouped", "no topic 'grouped': look at gqa"),
        ("explain batched-product", "no topic 'batched-product': look at bmm"),
        ("explain grouped-zebras", "no topic 'grouped-zebras'; there are "),
        ("explain zzz", "no topic 'zzz'; there are additive, "),
        ("explain gated_delta", "no topic 'gated_delta': look at delta"),
        ("compare-rules Luong", "no rule 'Luong'; there are additive, "),
    ],
)
def test_an_unknown_topic_is_answered_with_the_nearest_or_all(
    invoke: Invoke, words: str, sentence: str
) -> None:
    result = invoke(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


def test_topics_are_listed_for_programs_too(invoke: Invoke) -> None:
    rows = json.loads(invoke("explain", "--format", "json").stdout)
    assert "lessons" in {row["kind"] for row in rows if row["topic"] == "masks"}


def test_a_rule_may_print(invoke: Invoke, plugin: str) -> None:
    for words in (("explain", "loud"), ("compare-rules", "loud", "--width", "4", "--gain", "1")):
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
@pytest.mark.parametrize("command", ["explain", "compare-rules"])
def test_a_rule_that_fails_is_named(invoke: Invoke, plugin: str, command: str, name: str, words: str) -> None:
    result = invoke(command, name, "-p", plugin)
    assert result.exit_code == 3
    assert result.stderr.startswith("attnbench: plugin others.py ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_inner_steps_of_a_wrong_shape_are_the_rules_fault(invoke: Invoke, plugin: str) -> None:
    result = invoke("explain", "misshapen", "-p", plugin)
    assert (result.exit_code, "the rule misshapen raised ValueError" in result.stderr) == (3, True)


def test_a_rule_that_fails_leaves_the_others(invoke: Invoke, plugin: str) -> None:
    result = invoke("compare-rules", "-p", plugin, "--width", "4", "--gain", "1", "--format", "json")
    names = {row["rule"] for row in json.loads(result.stdout)}
    assert {"dot", "loud", "dropping", "cubic"} < names
    assert not names & {"raising", "leaving", "shapeless", "odd"}
    assert result.stderr.count("attnbench: plugin others.py ") == 3


def test_a_rule_that_supports_none_of_the_widths(invoke: Invoke, plugin: str) -> None:
    result = invoke("compare-rules", "odd", "-p", plugin)
    assert result.exit_code == 2
    assert "odd supports none of the widths 4, 16, 64, 256 with 32 keys" in result.stderr
    assert invoke("compare-rules", "odd", "-p", plugin, "--width", "5", "--width", "64").exit_code == 0


def test_parameters_of_three_axes_are_shown(invoke: Invoke, plugin: str) -> None:
    assert (
        "t (2×3×4): a parameter of cubic, in whose formula q and k are columns\n"
        in invoke("explain", "cubic", "-p", plugin).stdout
    )
    steps = json.loads(invoke("explain", "cubic", "-p", plugin, "--format", "json").stdout)
    (shape,) = (step["shape"] for step in steps if step["name"] == "t")
    assert shape == [2, 3, 4]
