"""Exit status 0 means that each backend that was named succeeded on at least one case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import attnbench
from attnbench.cases.select import Overrides
from attnbench.plugins.registry import load_wanted
from attnbench.reports.run import exit_code, without_success
from attnbench.testing.judge import plan
from attnbench.types.case import Case
from attnbench.types.mask import parse_mask
from attnbench.types.record import Record

Invoke = Callable[..., Result]

MINE = """
from attnbench import Backend, hookimpl
def prepare(setup):
    return lambda q, k, v: (q @ k.mT * setup.scoring.dot.scale).softmax(-1) @ v
def supports(case, rule):
    if case.mask.explicit or case.mask.causal or case.mask.padding or case.constants or case.group > 1:
        return "takes windows only"
@hookimpl
def attnbench_backends():
    yield Backend("mine", "a test", prepare, supports, rules=("scaled_dot",), dtypes=("float32", "float64"))
"""
CASE = "attention/scaled_dot/H1-L16-D8"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    return "mine.py"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--dtype", "float16"], "computes in float32 and float64, not float16"),
        (["--pass", "both"], "computes the forward pass, not both"),
        (["--rule", "dot"], "computes scaled_dot, not dot"),
        (["--mask", "bool:per_head"], "takes one mask for all heads; the case has bool:per_head"),
        (["--mask", "causal"], "most often: takes windows only"),
        (["--dropout", "0.1"], "drops no weights; the case has dropout 0.1"),
        (["--shard", "1/1000000"], "is in shard 1/1000000"),
    ],
)
def test_a_check_whose_options_leave_no_case_of_the_plugin(
    invoke: Invoke, mine: str, words: list[str], why: str
) -> None:
    result = invoke("check", "--plugin", mine, *words)
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("mine: nothing was checked: ")
    assert why in result.stdout
    assert not Path("results").exists()


def narrowed(**options: object) -> list[Case]:
    """The cases of the plugin in the current folder under options."""
    found = plan(load_wanted(["mine.py"]), ("mine",), options=Overrides(**options))  # type: ignore[arg-type]
    return [one.case for choice in found.choices.values() for one in choice.cases]


def test_options_narrow_the_cases_of_the_plugin(mine: str) -> None:
    cases = narrowed()
    assert {case.dtype for case in cases} == {"float32", "float64"}
    double = narrowed(dtypes=("float64",))
    assert {case.dtype for case in double} == {"float64"}
    windows = narrowed(masks=(parse_mask("window:9"), parse_mask("window:200"), parse_mask("causal")))
    assert {case.mask.window for case in windows} == {9, 200}
    assert len(windows) > 5
    others = narrowed(threads=2, seed=7, cache="rotating", layout="BLHD")
    assert {(case.threads, case.seed, case.cache, case.layout) for case in others} == {
        (2, 7, "rotating", "BLHD")
    }
    assert len(others) > len(cases) / 2
    ruled = narrowed(rules=("scaled_dot", "dot"))
    assert {case.rule for case in ruled} == {"scaled_dot"}


@pytest.mark.slow
def test_a_plugin_that_runs_on_no_selected_case(
    invoke: Invoke, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The others are checked too; those that compile would take most of the time.
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    sentence = "attnbench: mine succeeded on no case: unsupported: takes windows only"
    checked = invoke("check", f"{CASE}/causal", "--plugin", mine)
    assert checked.exit_code == 3, checked.output
    assert sentence in checked.stderr.splitlines()
    run = attnbench.load("results")
    assert run.exit_code == 3
    assert run.without_success == [sentence.removeprefix("attnbench: ")]


def test_a_shard_without_a_case_is_no_success_of_a_named_backend(invoke: Invoke, mine: str) -> None:
    shards = [invoke("check", CASE, "--plugin", mine, "--shard", f"{n}/3", "--plan") for n in (1, 2, 3)]
    assert sorted(one.exit_code for one in shards) == [0, 3, 3]
    empty = next(one for one in shards if one.exit_code)
    assert "0 of 1 case; nothing to run" in empty.stderr
    assert "attnbench: mine succeeded on no case: it had none to run" in empty.stderr
    assert [invoke("check", CASE, "--shard", f"{n}/3", "--plan").exit_code for n in (1, 2, 3)] == [0, 0, 0]


def test_a_suspect_time_is_no_success_of_a_named_backend() -> None:
    records = [Record(CASE, "scaled_dot", "mine", "suspect", "faster than the machine", failed_check="limit")]
    assert (exit_code(records), exit_code(records, ("mine",))) == (0, 3)
    assert without_success(records, ("mine",)) == [
        "mine succeeded on no case: suspect: faster than the machine"
    ]
    wrong = [*records, Record(CASE, "scaled_dot", "other", "mismatch", "RMS", failed_check="values")]
    assert exit_code([*wrong, Record(CASE, "scaled_dot", "third", "crashed", "died")], ("mine",)) == 1
