"""What docs/plugins.md shows works, word for word; its commands are run by test_plugin_tutorial.py."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnbench import hookspecs
from attnbench.cli import attnbench
from attnbench.plugins.registry import load_wanted
from attnbench.starter.package import names_of, next_lines, package

DOCUMENT = Path(__file__).parents[2] / "docs" / "plugins.md"
TEXT = DOCUMENT.read_text()
COMMAND = "attnbench_shapes.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def files() -> dict[str, str]:
    """The blocks of Python, by the file that each begins with the name of."""
    return {re.match(r"# (\S+\.py)\n", block)[1]: block for block in blocks("python")}  # type: ignore[index]


PLUGINS = [name for name in files() if name != COMMAND and not name.startswith("test_")]


def test_every_hook_has_an_example() -> None:
    shown = {
        node.name
        for text in files().values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("attnbench_")
    }
    assert shown == {name for name in vars(hookspecs) if name.startswith("attnbench_")}


@pytest.mark.parametrize("name", PLUGINS)
def test_every_example_brings_what_it_shows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(files()[name])
    registry = load_wanted([str(tmp_path / name)])
    (source,) = (source for source in registry.plugins if source.distribution == name)
    kinds = [kind for kind in vars(registry).values() if isinstance(kind, dict)]
    assert any(entry.source == source for kind in kinds for entry in kind.values())


def test_the_first_file_has_fifteen_lines_and_is_that_of_the_readme() -> None:
    code = [line for line in files()["my_kernel.py"].splitlines()[1:] if line.strip()]
    assert len(code) <= 15
    assert (
        "\n".join(files()["my_kernel.py"].splitlines()[1:]) in (DOCUMENT.parents[1] / "README.md").read_text()
    )


def test_the_verdict_rule_of_the_document_decides(tmp_path: Path) -> None:
    (tmp_path / "tenth.py").write_text(files()["tenth.py"])
    decide = load_wanted([str(tmp_path / "tenth.py")]).verdict_rules["tenth"].record.decide
    base = [[100.0, 101.0], [99.0, 100.0]]
    said = [decide([[factor * ns for ns in times] for times in base], base) for factor in (0.8, 1.05, 1.2)]
    assert said == ["faster", "same", "slower"]


def test_the_command_of_the_document_is_one(site: Path) -> None:
    (site / COMMAND).write_text(files()[COMMAND])
    points = blocks("toml")[1].replace("[project.entry-points.", "[").replace('"', "")
    (site / "attnbench_mine-1.0.dist-info" / "entry_points.txt").write_text(points)
    told = CliRunner().invoke(attnbench, ["--help"], prog_name="attnbench")
    assert "shapes" in told.stdout.partition("Commands of plugins:")[2]
    words = ["shapes", "attention/dot/H4-Hkv2-L16-D8"]
    told = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert told.stdout == f"{4 * 16 * 8 + 2 * 16 * 16}\n"


def test_the_lines_of_the_package_are_those_that_new_prints() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    at = lines.index("attnbench new my-kernel")
    told = next_lines(names_of("my-kernel"), "attnbench-my-kernel")
    assert tuple(lines[at + 1 : at + 1 + len(told)]) == told


def test_the_tests_of_the_document_are_those_of_the_package() -> None:
    written = package(names_of("my-kernel"))["tests/test_my_kernel.py"]
    assert files()["test_my_kernel.py"] == f"# test_my_kernel.py\n{written}"


def test_the_entry_point_of_the_document_is_that_of_the_package() -> None:
    entry = blocks("toml")[0]
    assert entry in package(names_of("my-kernel"))["pyproject.toml"]


def test_the_variables_of_the_document_are_those_that_are_read() -> None:
    room = DOCUMENT.parents[1] / "attnbench" / "plugins"
    read = {
        name
        for path in room.glob("*.py")
        for name in re.findall(r'^[A-Z]+ = "(ATTN\w+)"$', path.read_text(), re.M)
    }
    assert {*re.findall(r"^\| `(ATTNBENCH_\w+)`", TEXT, re.MULTILINE)} == read


BACKEND = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("mine", "a test", prepare=print)
"""

FAULTY = {
    "raises when it is imported": "1 / 0",
    "ends the process": "raise SystemExit(3)",
    "imports what isn't there": "import not_there",
    "raises in a hook": BACKEND.replace("yield", "1 / 0\n    yield"),
    "has a hook without `@hookimpl`": BACKEND.replace("@hookimpl", ""),
    "has a hook that doesn't exist": BACKEND.replace("attnbench_backends", "attnbench_backend"),
    "forgets `yield`, or gives one record instead of a list": BACKEND.replace("yield", "return"),
    "gives something else than a record": BACKEND.replace(
        'Backend("mine", "a test", prepare=print)', '"mine"'
    ),
    "gives a record that can't be": BACKEND.replace("=print", '=print, dtypes=("float8",)'),
    "brings a name that is there": BACKEND.replace("mine", "eager"),
    "is slow to import": BACKEND
    + "import time\nend = time.process_time() + 1.3\nwhile time.process_time() < end: 1",
}


def guarded() -> dict[str, str]:
    table = TEXT.partition("| what it does | the line |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {what: line.strip("`") for what, line in rows}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place from which the distribution attnbench-mine is imported."""
    info = tmp_path / "attnbench_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attnbench-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[attnbench]\nmine = mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_all_that_is_guarded_is_tried() -> None:
    assert guarded().keys() == FAULTY.keys()


@pytest.mark.parametrize("what", FAULTY)
def test_what_is_wrong_is_told_by_the_line_of_the_document(what: str, site: Path) -> None:
    (site / "mine.py").write_text(FAULTY[what])
    told = CliRunner().invoke(attnbench, ["list", "backends"], prog_name="attnbench")
    assert told.exit_code == 0
    assert "sdpa_flash" in told.stdout
    pattern = guarded()[what].replace("…", "*")
    assert [line for line in told.stderr.splitlines() if fnmatchcase(line, pattern)], told.stderr
    assert len(told.stderr.splitlines()) == 1
