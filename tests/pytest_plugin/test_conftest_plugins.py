"""A project's ``conftest.py`` is a plugin of its session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_process import InProcess

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
def collected(in_process: InProcess) -> Collect:
    return Collect(in_process)


class Collect:
    """Collects tests in a session in this process."""

    def __init__(self, in_process: InProcess) -> None:
        self.pytester, self._in_process = in_process.pytester, in_process

    def __call__(self, *words: str) -> pytest.RunResult:
        return self._in_process("-q", "--collect-only", *words)


def test_a_test_runs_for_the_backend_of_the_conftest(collected: Collect) -> None:
    collected.pytester.makeconftest(IMPORT + BACKEND.format(name="ours"))
    collected.pytester.makepyfile(MARKED.format(case=CASE, backends=["ours", "eager"]))
    result = collected()
    assert result.ret == 0, result.stdout.str()
    lines = result.stdout.str()
    assert "test_it[scaled_dot/H2-L16-D8-ours]" in lines
    assert "test_it[scaled_dot/H2-L16-D8-eager]" in lines


def test_the_command_line_has_its_backend(collected: Collect) -> None:
    collected.pytester.makeconftest(IMPORT + BACKEND.format(name="ours"))
    result = collected("--attnbench-case", CASE, "--attnbench-backend", "ours")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["attnbench::test_*ours]"])


def test_each_folder_can_have_one(collected: Collect) -> None:
    collected.pytester.makeconftest(IMPORT + BACKEND.format(name="of_all"))
    folder = collected.pytester.mkpydir("inner")
    (folder / "conftest.py").write_text(IMPORT + BACKEND.format(name="of_inner"))
    (folder / "test_inner.py").write_text(MARKED.format(case=CASE, backends=["of_all", "of_inner"]))
    result = collected()
    assert result.ret == 0, result.stdout.str()
    assert result.stdout.str().count("inner/test_inner.py::test_it[") == 2


def test_one_without_hooks_is_not_a_plugin(collected: Collect) -> None:
    collected.pytester.makeconftest(IMPORT + "def attnbench_backend(): raise AssertionError('no hook')\n")
    collected.pytester.makepyfile(MARKED.format(case=CASE, backends=["eager"]))
    assert collected().ret == 0


@pytest.mark.parametrize(
    ("conftest", "sentence"),
    [
        (
            BACKEND.format(name="ours").replace("yield", "1 / 0\n    yield"),
            "plugin conftest.py * (conftest_*): attnbench_backends raised ZeroDivisionError: *",
        ),
        (
            BACKEND.format(name="ours").replace("attnbench_backends", "attnbench_backend"),
            "plugin conftest.py * (conftest_*): *unknown hook 'attnbench_backend'*",
        ),
        (
            BACKEND.format(name="ours").replace("@hookimpl", ""),
            "plugin conftest.py * (conftest_*): attnbench_backends is not marked as a hook: put *",
        ),
        (
            BACKEND.format(name="eager"),
            "plugin conftest.py * (conftest_*): brings a backend 'eager', as attnbench * "
            "(attnbench.backends) does; the first is used",
        ),
    ],
)
def test_its_mistakes_are_one_sentence(collected: Collect, conftest: str, sentence: str) -> None:
    collected.pytester.makeconftest(IMPORT + conftest)
    collected.pytester.makepyfile(MARKED.format(case=CASE, backends=["eager"]))
    result = collected()
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"the marker attnbench of test_it: {sentence}"])
    assert "Traceback" not in result.stdout.str()


def test_it_is_imported_once(collected: Collect) -> None:
    count = "from pathlib import Path\nwith Path('count').open('a') as file: file.write('x')\n"
    collected.pytester.makeconftest(count + IMPORT + BACKEND.format(name="ours"))
    collected.pytester.makepyfile(MARKED.format(case=CASE, backends=["ours"]))
    assert collected().ret == 0
    assert (collected.pytester.path / "count").read_text() == "x"


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
