"""The base class of tests in a session of its own, and the command line."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch  # here, since pytester has those modules imported anew that are first imported in its tests
from click.testing import CliRunner

from attnbench.cli import attnbench
from attnbench.testing import BackendConformance, NotConforming, check_backend

pytest_plugins = ("pytester",)

TESTS = """
from attnbench.testing import BackendConformance, NotConforming, check_backend
class TestMine(BackendConformance):
    backend = {backend!r}
    large = False
class TestAbsent(BackendConformance):
    backend = "sdpa_cudnn"
"""

ONE_CASE = """
from attnbench import Backend, hookimpl
def prepare(setup):
    return lambda q, k, v: (q @ k.mT).softmax(-1) @ v
def supports(case, rule):
    if (case.B, case.Lq, case.D, case.Dv, case.group) == (2, 17, 16, 16, 1) and case.mask.is_none:
        return None
    return "is for one case"
@hookimpl
def attnbench_backends():
    yield Backend("one_case", "a test", prepare, supports, rules=("scaled_dot",), dtypes=("float32",))
"""


@pytest.fixture
def one_case(tmp_path: Path) -> Path:
    file = tmp_path / "one_case.py"
    file.write_text(ONE_CASE)
    return file


class Unknown(BackendConformance):
    backend = "no_such_kernel"


class Unsaid(BackendConformance):
    pass


def test_a_test_for_each_case(
    pytester: pytest.Pytester, not_in_xdist: None, plugin_words: list[str], one_case: Path
) -> None:
    pytester.makepyfile(test_mine=TESTS.format(backend=str(one_case)))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", "-rs", *plugin_words)
    result.assert_outcomes(passed=2, failed=1, skipped=0 if torch.cuda.is_available() else 3)
    result.stdout.fnmatch_lines(
        [
            "*TestMine::test_what_it_declares PASSED*",
            "*TestMine::test_case?attention/scaled_dot/B2-H*-Lq17-Lk65-D16/none/float32/cpu/forward? FAILED*",
            "*TestMine::test_answers_stay_the_same PASSED*",
            "problem: wrong answers: RMS error *",
            "*“not divided by √D”: multiply the products by setup.scoring.dot.scale.",
            "SKIPPED*this machine has no CUDA device",
        ]
    )


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (Unknown, r"Unknown: no backend 'no_such_kernel'.* Name a file as my_kernel\.py\."),
        (Unsaid, "Unsaid: it names no backend: add backend = 'name'"),
    ],
)
def test_one_that_can_not_be_found_says_why(tests: type[BackendConformance], words: str) -> None:
    asked: Any = SimpleNamespace(fixturenames=["conformance_case"])
    with pytest.raises(pytest.fail.Exception, match=words):
        tests().pytest_generate_tests(asked)


def test_a_backend_of_no_plugin_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ONE_CASE.replace("@hookimpl\ndef attnbench_backends():\n    yield Backend", "MINE = Backend")
    (tmp_path / "kernel_of_no_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("kernel_of_no_plugin").MINE
    with pytest.raises(NotConforming, match=r"multiply the products by setup\.scoring\.dot\.scale") as caught:
        check_backend(mine, large=False)
    assert caught.value.report.counts[0].judged == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="it can run here")
def test_what_can_not_run_here_is_no_success() -> None:
    with pytest.raises(
        NotConforming, match="nothing was checked, since it can't run here: this machine has no"
    ):
        check_backend("sdpa_cudnn")


def test_the_command_says_the_same(one_case: Path, tmp_path: Path) -> None:
    words = ["check", "--plugin", str(one_case), "--out", str(tmp_path / "run.jsonl")]
    result = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert result.exit_code == 1
    assert result.stdout.startswith("one_case: 0 of 1 cases right; supports() declined ")
    assert "“not divided by √D”: multiply the products by setup.scoring.dot.scale." in result.stdout
    again = f"one of these cases again: attnbench check CASE --backend one_case --plugin {one_case}"
    assert again in result.stdout
    assert f"stored in {tmp_path / 'run.jsonl'}" in result.stderr


def test_the_command_on_what_brings_nothing(tmp_path: Path) -> None:
    file = tmp_path / "nothing.py"
    file.write_text("from attnbench import hookimpl\n@hookimpl\ndef attnbench_backends():\n    return []\n")
    result = CliRunner().invoke(attnbench, ["check", "--plugin", str(file)], prog_name="attnbench")
    assert result.exit_code == 2
    assert "brings no backend and no rule: add a function attnbench_backends()" in result.stderr
