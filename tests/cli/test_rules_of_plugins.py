"""Rules that a plugin brings, worked and compared: right ones as ours, wrong ones told and left out."""

from __future__ import annotations

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


def test_what_a_rule_prints_is_no_part_of_the_data(invoke: Invoke, plugin: str) -> None:
    for words in (("explain", "loud"), ("rules", "loud", "--width", "4", "--gain", "1")):
        result = invoke(*words, "-p", plugin, "--format", "json")
        assert json.loads(result.stdout)
        assert "noise" in result.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "the rule raising raised RuntimeError: no idea"),
        ("leaving", "the rule leaving raised SystemExit: 3"),
        ("shapeless", "the reference of the rule shapeless gives scores of shape"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "rules"])
def test_a_rule_asked_for_that_fails(
    invoke: Invoke, plugin: str, command: str, name: str, words: str
) -> None:
    result = invoke(command, name, "-p", plugin)
    assert result.exit_code == 3
    assert result.stderr.startswith("attnbench: plugin others.py ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_rule_that_fails_takes_no_other_with_it(invoke: Invoke, plugin: str) -> None:
    result = invoke("rules", "-p", plugin, "--width", "4", "--gain", "1", "--format", "json")
    names = {row["rule"] for row in json.loads(result.stdout)}
    assert {"dot", "loud", "dropping", "cubic"} < names
    assert not names & {"raising", "leaving", "shapeless", "odd"}
    assert result.stderr.count("attnbench: plugin others.py ") == 3


def test_a_rule_that_can_have_none_of_the_widths(invoke: Invoke, plugin: str) -> None:
    result = invoke("rules", "odd", "-p", plugin)
    assert result.exit_code == 2
    assert "32 keys at these widths: not supported by odd" in result.stderr
    assert invoke("rules", "odd", "-p", plugin, "--width", "5", "--width", "64").exit_code == 0


def test_parameters_of_three_axes_are_shown(invoke: Invoke, plugin: str) -> None:
    assert "t (2×3×4): a parameter of cubic\n" in invoke("explain", "cubic", "-p", plugin).stdout
    lines = invoke("explain", "cubic", "-p", plugin, "--format", "csv").stdout.splitlines()
    at = [line.rpartition(",")[0] for line in lines if line.startswith("t,")]
    assert len(set(at)) == len(at) == 24
