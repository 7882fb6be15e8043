"""What docs/pytest.md shows works, word for word."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytest.md"
NAMES = {point.value for point in entry_points(group="pytest11")}
PLUGIN = [] if "attnbench.pytest_plugin" in NAMES else ["-p", "attnbench.pytest_plugin"]
QUIET = ["-p", "no:xdist", "-p", "no:cacheprovider", "--strict-markers"]


def shell_lines() -> list[str]:
    lines = DOCUMENT.read_text().replace("\\\n", "").splitlines()
    return [line.strip() for line in lines if line.startswith("    pytest ")]


@pytest.mark.slow
def test_the_tests_of_the_document_pass(pytester: pytest.Pytester) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    pytester.makepyfile(code)
    result = pytester.runpytest_subprocess(*PLUGIN, *QUIET, "--benchmark-max-time=0.02", "-W", "error", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_speed?scaled_dot/H2-L32-D16-sdpa_flash? PASSED*"])


@pytest.mark.parametrize("line", shell_lines())
def test_the_lines_of_the_document_make_tests(line: str, pytester: pytest.Pytester) -> None:
    words = shlex.split(line)[1:]
    result = pytester.runpytest_subprocess(*PLUGIN, *QUIET, *words, "--collect-only", "-q")
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(["attnbench::test_attention*sdpa_flash?"])


def test_there_are_lines_to_look_at() -> None:
    assert len(shell_lines()) == 2
