"""A project's ``conftest.py`` is a plugin of its session."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

DOCUMENT = Path(__file__).parents[2] / "docs" / "plugins.md"
CASE = "attention/scaled_dot/H2-L16-D8"
IMPORT = "from attnbench import Backend, Suite, Case, hookimpl\n"
BACKEND = """
def prepare(setup):
    return lambda q, k, v: q

@hookimpl
def attnbench_backends():
    yield Backend({name!r}, "a test", prepare=prepare)
"""
MARKED = """
import pytest

@pytest.mark.attnbench({case!r}, backends={backends!r})
def test_it(attnbench_backend): attnbench_backend()
"""


@pytest.fixture
def collected(in_process: Any) -> Callable[..., pytest.RunResult]:
    """Collects the tests of a session with this ``conftest.py``, and these tests."""

    def collect(conftest: str, tests: str = "", *words: str) -> pytest.RunResult:
        in_process.pytester.makeconftest(conftest)
        if tests:
            in_process.pytester.makepyfile(tests)
        return in_process("-q", "--collect-only", *words)

    return collect


def test_tests_and_the_command_line_have_the_backend_of_the_conftest(
    collected: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    """Also of a folder within; and each ``conftest.py`` is imported once."""
    count = "from pathlib import Path\nwith Path('count').open('a') as file: file.write('x')\n"
    folder = pytester.mkpydir("inner")
    (folder / "conftest.py").write_text(IMPORT + BACKEND.format(name="of_inner"))
    (folder / "test_inner.py").write_text(MARKED.format(case=CASE, backends=["ours", "of_inner"]))
    named = ("--attnbench-case", CASE, "--attnbench-backend", "ours")
    mine = MARKED.format(case=CASE, backends=["ours", "eager"])
    result = collected(count + IMPORT + BACKEND.format(name="ours"), mine, *named)
    assert result.ret == 0, result.stdout.str()
    lines = result.stdout.str()
    assert "test_it[scaled_dot/H2-L16-D8-ours]" in lines
    assert "test_it[scaled_dot/H2-L16-D8-eager]" in lines
    assert "attnbench::test_attention[scaled_dot/H2-L16-D8-ours]" in lines
    assert lines.count("inner/test_inner.py::test_it[") == 2
    assert Path("count").read_text() == "x"


def test_one_without_hooks_is_not_a_plugin(collected: Callable[..., pytest.RunResult]) -> None:
    hookless = IMPORT + "def attnbench_backend(): raise AssertionError('no hook')\n"
    assert collected(hookless, MARKED.format(case=CASE, backends=["eager"])).ret == 0


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("yield", "1 / 0\n    yield", "raised ZeroDivisionError: *"),
        ("@hookimpl", "", "is not marked as a hook: put *"),
    ],
)
def test_its_mistakes_are_one_sentence(
    collected: Callable[..., pytest.RunResult], right: str, wrong: str, sentence: str
) -> None:
    conftest = IMPORT + BACKEND.format(name="ours").replace(right, wrong)
    result = collected(conftest, MARKED.format(case=CASE, backends=["eager"]))
    assert result.ret != 0
    where = "the marker attnbench of test_it: plugin conftest.py * (conftest_*): attnbench_backends"
    result.stdout.fnmatch_lines([f"{where} {sentence}"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.slow
def test_the_project_of_the_document_is_checked(pytester: pytest.Pytester, plugin_words: list[str]) -> None:
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    shown = dict(blocks)
    right = shown["conftest.py"]
    assert "return lambda q, k, v: sdpa(q, k, v)" in right
    (pytester.path / "test_ours.py").write_text(shown["test_ours.py"])
    for code, outcome in (
        (right, {"passed": 1}),
        (right.replace("sdpa(q, k, v)", "sdpa(q, k, v) * 1.01"), {"failed": 1}),
    ):
        pytester.makeconftest(code)
        result = pytester.runpytest_subprocess(*plugin_words, "-p", "no:xdist", "-W", "error")
        result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(["*ours on *: mismatch: *"])
