"""A suite on the command line, with no test written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.pytest_plugin.court import Court

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

CASE = "attention/dot/H2-L16-D8"
NAMED = ("--attnbench-case", CASE, "--attnbench-backend", "bmm", "--attnbench-backend", "honest")
QUICK = ("--benchmark-max-time=0.02", "--benchmark-json=out.json")


@pytest.fixture
def run(one_court: Court, pytester: pytest.Pytester, plugin_words: list[str]):
    def session(*words: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*plugin_words, "-p", "no:xdist", "-p", "no:cacheprovider", *words)

    return session


def test_cases_and_backends_become_items(run, pytester: pytest.Pytester) -> None:
    result = run(*NAMED, "--benchmark-only", *QUICK, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["attnbench::test_attention?dot/H2-L16-D8-honest? PASSED*"])
    stored = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert [each["extra_info"]["status"] for each in stored] == ["ok", "ok"]


def test_they_are_added_to_those_written_and_chosen_among_as_they_are(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = run(*NAMED, "-k", "bmm", *QUICK)
    result.assert_outcomes(passed=1, deselected=2)
    result = run(*NAMED, "--benchmark-skip", "-rs")
    result.assert_outcomes(passed=1, skipped=2)


def test_without_pytest_benchmark_all_is_checked(run) -> None:
    result = run(*NAMED, "-p", "no:benchmark", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["attnbench::test_right*bmm? PASSED*"])


def test_a_wrong_backend_fails(run) -> None:
    result = run("--attnbench-case", CASE, "--attnbench-backend", "wrong_from_the_start")
    result.assert_outcomes(failed=1)


def test_a_suite_by_its_rules_and_threads(run) -> None:
    words = ("--attnbench-suite", "smoke", "--attnbench-rule", "dot", "--attnbench-threads", "2")
    result = run(*words, "--collect-only", "-q")
    lines = [line for line in result.stdout.lines if line.startswith("attnbench::")]
    assert "attnbench::test_attention[dot/B2-H4-L128-D64/padding/threads2-eager]" in lines
    assert all("[dot/B2-H4-L128-D64/padding/threads2-" in line for line in lines)


def test_cases_for_checking_alone_are_not_timed(run) -> None:
    words = ("--attnbench-suite", "edges", "--attnbench-case", CASE, "--attnbench-backend", "bmm")
    result = run(*words, "--collect-only", "-q")
    lines = [line for line in result.stdout.lines if line.startswith("attnbench::")]
    timed = [line for line in lines if line.startswith("attnbench::test_attention[")]
    assert timed == ["attnbench::test_attention[dot/H2-L16-D8-bmm]"]
    assert len(lines) == 107


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--attnbench-backend", "bmm"), "ERROR: --attnbench-backend chooses among what"),
        (("--attnbench-threads", "0"), "ERROR: --attnbench-threads chooses among what"),
        (("--attnbench-suite", "smok"), "ERROR: no suite 'smok'; did you mean 'smoke'?"),
        (("--attnbench-suite", "no.toml"), "ERROR: *no.toml*"),
        (("--attnbench-case", "x/y"), "ERROR: case 'x/y': no operation 'x'*"),
        (("--attnbench-case", CASE, "--attnbench-backend", "emm"), "ERROR: no backend 'emm'; did you mean*"),
        (("--attnbench-case", CASE, "--attnbench-rule", "cosine"), "ERROR: no selected case has the rule*"),
        (
            ("--attnbench-case", CASE, "--attnbench-threads", "-3"),
            "ERROR: *threads = -3: sizes are 1 or more*",
        ),
        (("--attnbench-case", CASE, "--attnbench-threads", "0"), "ERROR: *threads = 0: sizes are 1 or more*"),
    ],
)
def test_what_can_t_be_is_one_sentence(run, words: tuple[str, ...], sentence: str) -> None:
    result = run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    # fnmatch takes brackets for sets of letters; there are none here.
    result.stderr.fnmatch_lines([sentence + "*"])
    assert "Traceback" not in result.stderr.str()


def test_the_options_are_in_the_help(run) -> None:
    result = run("--help")
    result.stdout.fnmatch_lines(
        ["attnbench: attention backends, checked and timed:", "*--attnbench-suite=SUITE"]
    )


@pytest.mark.slow
def test_a_real_session_in_processes_of_its_own(tmp_path: Path, plugin_words: list[str]) -> None:
    """With pytest-xdist, whose processes each convene their court, and no process left in the end."""
    words = ["-n", "1", *plugin_words, *NAMED[:4], "-W", "error", "-v", "-p", "no:cacheprovider"]
    mark = {"ATTNBENCH_TEST_MARK": tmp_path.name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path, env=os.environ | mark, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert "1 passed" in done.stdout
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if marked_by(path, tmp_path.name)]
    assert left == []


def marked_by(environ: Path, word: str) -> bool:
    try:
        return word.encode() in environ.read_bytes()
    except OSError:
        return False
