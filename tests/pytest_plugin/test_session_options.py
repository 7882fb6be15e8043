"""A suite on the command line, without a written test; and what a session that does not use it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

import attnbench.pytest_plugin
from attnbench.results.pytest_benchmark import read_pytest_benchmark

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

CASE = "attention/dot/H2-L16-D8"
NAMED = ("--attnbench-case", CASE, "--attnbench-backend", "bmm", "--attnbench-backend", "honest")
MINE = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("mine", "a test", lambda setup: None, rules=("scaled_dot",))
"""
QUICK = ("--benchmark-max-time=0.02", "--benchmark-json=out.json")


def listed(result: pytest.RunResult) -> list[str]:
    return [line for line in result.stdout.lines if line.startswith("attnbench::")]


def test_cases_and_backends_become_tests(in_process: Any) -> None:
    result = in_process(*NAMED, "--benchmark-only", *QUICK, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["attnbench::test_attention?dot/H2-L16-D8-honest? PASSED*"])
    stored = json.loads(Path("out.json").read_text())["benchmarks"]
    assert [each["extra_info"]["status"] for each in stored] == ["ok", "ok"]


def test_a_test_that_failed_stands_in_the_file_with_its_status(in_process: Any) -> None:
    in_process.pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.attnbench({CASE!r}, backends=["bmm", "wrong_from_the_start"])
        def test_speed(benchmark, attnbench_backend):
            benchmark(attnbench_backend)

        @pytest.mark.attnbench({CASE!r}, backends=["honest"])
        def test_raises(benchmark, attnbench_backend):
            benchmark(lambda: [][attnbench_backend() is None])
        """
    )
    in_process(*QUICK).assert_outcomes(passed=1, failed=2)
    read = read_pytest_benchmark(Path("out.json"))
    assert {cell.backend: cell.status for cell in read.cells} == {
        "bmm": "ok", "wrong_from_the_start": "mismatch", "honest": "error",
    }  # fmt: skip
    assert (read.origin, read.problems) == ("pytest-benchmark", ())
    wrong = next(cell for cell in read.cells if cell.status == "mismatch")
    assert (wrong.case, wrong.rule) == (read.cells[0].case, "dot")
    assert "error" in wrong.reason


def test_they_run_beside_written_tests_and_can_be_selected(in_process: Any) -> None:
    in_process.pytester.makepyfile("def test_mine(): pass")
    result = in_process(*NAMED, "-k", "bmm", *QUICK)
    result.assert_outcomes(passed=1, deselected=2)
    in_process(*NAMED, "--benchmark-skip").assert_outcomes(passed=1, skipped=2)


def test_without_pytest_benchmark_everything_is_checked(in_process: Any) -> None:
    result = in_process("--attnbench-case", CASE, "-p", "no:benchmark", "-v", "-k", "bmm or from_the_start")
    result.assert_outcomes(passed=1, failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["attnbench::test_right*bmm? PASSED*"])


def test_a_suite_by_its_rules_and_threads(in_process: Any) -> None:
    words = ("--attnbench-suite", "smoke", "--attnbench-rule", "dot", "--attnbench-threads", "2")
    lines = listed(in_process(*words, "--collect-only", "-q"))
    assert "attnbench::test_attention[dot/B2-H4-L128-D64/padding/threads2-eager]" in lines
    assert all("[dot/B2-H4-L128-D64/padding/threads2-" in line for line in lines)


def test_cases_meant_for_checking_are_not_timed(in_process: Any) -> None:
    words = ("--attnbench-suite", "edges", "--attnbench-case", CASE, "--attnbench-backend", "bmm")
    lines = listed(in_process(*words, "--collect-only", "-q"))
    timed = [line for line in lines if line.startswith("attnbench::test_attention[")]
    assert timed == ["attnbench::test_attention[dot/H2-L16-D8-bmm]"]
    assert len(lines) > 100


def test_a_named_backend_that_passes_nowhere_fails_the_session(in_process: Any) -> None:
    case = ("--attnbench-case", f"{CASE}/causal", "--benchmark-disable")
    both = in_process(*case, "--attnbench-backend", "eager", "--attnbench-backend", "fused_multihead")
    both.assert_outcomes(passed=1, skipped=1)
    assert both.ret == pytest.ExitCode.TESTS_FAILED
    both.stdout.fnmatch_lines(
        ["attnbench: fused_multihead passed in no test: unsupported: computes multihead, not attention"]
    )
    Path("mine.py").write_text(MINE)
    brought = in_process(*case, "--attnbench-plugin", "mine.py", "-k", "eager or mine")
    assert brought.ret == pytest.ExitCode.TESTS_FAILED
    brought.stdout.fnmatch_lines(["attnbench: mine passed in no test: *computes scaled_dot, not dot"])
    unnamed = in_process(*case, "-k", "eager or sdpa_cudnn")
    assert (unnamed.ret, unnamed.parseoutcomes()["skipped"]) == (0, 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--attnbench-backend", "bmm"), "ERROR: --attnbench-backend needs --attnbench-suite or"),
        (("--attnbench-threads", "0"), "ERROR: --attnbench-threads needs --attnbench-suite or"),
        (("--attnbench-suite", "smok"), "ERROR: no suite 'smok'; did you mean 'smoke'?"),
        (("--attnbench-case", "x/y"), "ERROR: case 'x/y': no operation 'x'*"),
        (("--attnbench-case", CASE, "--attnbench-backend", "emm"), "ERROR: no backend 'emm'; did you mean*"),
    ],
)
def test_an_impossible_option_is_one_sentence(in_process: Any, words: tuple[str, ...], sentence: str) -> None:
    result = in_process(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence + "*"])
    assert "Traceback" not in result.stderr.str()


def test_the_options_are_in_the_help(in_process: Any) -> None:
    in_process("--help").stdout.fnmatch_lines(
        ["attnbench: attention backends, checked and timed:", "*--attnbench-suite=SUITE"]
    )


@pytest.mark.slow
def test_a_session_with_xdist_leaves_no_process(tmp_path: Path, plugin_words: list[str]) -> None:
    words = ["-n", "1", *plugin_words, *NAMED[:4], "-W", "error", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path, env=os.environ | {"ATTNBENCH_TEST_MARK": tmp_path.name},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if has_mark(path, tmp_path.name)]
    assert left == []


def has_mark(environ: Path, word: str) -> bool:
    try:
        return word.encode() in environ.read_bytes()
    except OSError:
        return False


ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "pandas", "scipy", "msgspec", "rich", "click")
CONFTEST = """
import json, sys
def pytest_unconfigure(config):
    names = [name for name in sys.modules if name.partition(".")[0] in KINDS]
    (config.rootpath / "imported.json").write_text(json.dumps(sorted(names)))
""".replace("KINDS", repr((*HEAVY, "attnbench")))
USED = """
import pytest
@pytest.mark.attnbench("attention/dot/H1-L4-D4")
def test_it(attnbench_case): assert attnbench_case.rule == 'dot'
"""


def imported(folder: Path, tests: str) -> list[str]:
    """Return the heavy modules and attnbench's own that a session without other plugins has imported."""
    (folder / "test_any.py").write_text(tests)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    words = ("-q", "-p", "no:cacheprovider", "-p", "attnbench.pytest_plugin")
    command = [sys.executable, "-m", "pytest", *words]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[str] = json.loads((folder / "imported.json").read_text())
    return found


def test_an_unused_plugin_imports_nothing(tmp_path: Path) -> None:
    assert imported(tmp_path, "def test_it(): pass\n") == ["attnbench", "attnbench.pytest_plugin"]


def test_collecting_cases_imports_no_torch(tmp_path: Path) -> None:
    found = imported(tmp_path, USED)
    assert {"attnbench.pytest_plugin.pairs", "attnbench.plugins.registry", "numpy"} <= set(found)
    assert "torch" not in found


def test_pytest_finds_it_by_the_entry_point_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert declared["entry-points"]["pytest11"] == {"attnbench": "attnbench.pytest_plugin"}
    assert any(word.startswith("pytest-benchmark") for word in declared["optional-dependencies"]["test"])
    assert not any(word.startswith("pytest") for word in declared["dependencies"])
    points = distribution("attnbench").entry_points.select(group="pytest11")
    # An installation that is older than the entry point has none.
    assert {point.name: point.value for point in points} in ({}, declared["entry-points"]["pytest11"])
    # pytest rewrites what has asserts; this has none, and is imported before pytest asks.
    assert "PYTEST_DONT_REWRITE" in (attnbench.pytest_plugin.__doc__ or "")
