"""``attnbench new``: the names of a plugin, the files of its package, a folder that is whole or absent."""

from __future__ import annotations

import ast
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from attnbench import __version__
from attnbench.cases.ids import parse_case
from attnbench.cli import attnbench
from attnbench.plugins.kinds import NAME
from attnbench.plugins.registry import load_wanted
from attnbench.runner.case import refusal
from attnbench.starter.package import COMPARED, Names, names_of, package
from attnbench.types.errors import BadInput

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "plugins" / "attnbench-example"
MADE = {"__pycache__", ".pytest_cache", ".benchmarks", ".hypothesis", "results", "dist"}
"""Folders that working with a package leaves in it."""


def in_files(folder: Path) -> dict[str, str]:
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path): (folder / path).read_text() for path in inside if not MADE & {*path.parts}}


def test_the_example_is_what_is_written_for_its_name() -> None:
    """If it is not: remove it, and run ``attnbench new example --into plugins``."""
    assert in_files(EXAMPLE) == package(names_of("example"))


@pytest.mark.parametrize("word", ["my-kernel", "4bit", "class"])
def test_files_are_valid(word: str) -> None:
    names = names_of(word)
    files = package(names)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == names.distribution
    assert project["entry-points"]["attnbench"] == {names.backend: names.module}
    assert __version__.startswith(project["dependencies"][0].removeprefix("attnbench>="))
    for path, text in files.items():
        assert "$" not in path
        assert text == "" or text.endswith("\n")
        if path.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("example", Names("attnbench-example", "attnbench_example", "example")),
        ("My__.Kernel", Names("attnbench-my-kernel", "attnbench_my_kernel", "my_kernel")),
        ("attnbench_example", Names("attnbench-example", "attnbench_example", "example")),
        ("attnbench-attnbench-x", Names("attnbench-attnbench-x", "attnbench_attnbench_x", "attnbench_x")),
        ("4bit", Names("attnbench-4bit", "attnbench_4bit", "4bit")),
        ("k" * 60, Names(f"attnbench-{'k' * 60}", f"attnbench_{'k' * 60}", "k" * 60)),
    ],
)
def test_a_word_is_three_names(word: str, names: Names) -> None:
    assert names_of(word) == names


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("attnbench-", "name 'attnbench-': use letters a to z"),
        ("\u212aernel", "name '\u212aernel': use letters a to z"),  # the Kelvin sign, whose lower case is k
        ("\u017fum", "name '\u017fum': use letters a to z"),  # the long s
        ("k" * 61, f"name '{'k' * 61}': 61 characters; 60 are the most"),
    ],
)
def test_an_impossible_name_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        names_of(word)
    assert str(wrong.value).startswith(sentence)


@given(st.text(st.sampled_from("aZ09-_.é /\n"), max_size=12))
def test_every_accepted_word_makes_valid_names(word: str) -> None:
    try:
        names = names_of(word)
    except BadInput:
        return
    assert re.fullmatch(r"attnbench-[a-z0-9]+(-[a-z0-9]+)*", names.distribution)
    assert names.module.isidentifier()
    assert NAME.fullmatch(names.backend)
    assert names_of(names.distribution) == names
    assert names_of(names.backend) == names or names.backend.startswith("attnbench_")


def new(*words: str) -> Result:
    return CliRunner().invoke(attnbench, ["new", *words], prog_name="attnbench")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_into_another_folder_whose_name_needs_quotes(folder: Path) -> None:
    (folder / "my plugins").mkdir()
    result = new("one", "--into", "my plugins")
    assert shlex.split(result.stdout.splitlines()[1]) == ["cd", "my plugins/attnbench-one"]
    assert (folder / "my plugins" / "attnbench-one" / "pyproject.toml").exists()


def test_a_repository_is_begun_where_there_is_none(folder: Path) -> None:
    assert new("one").stdout.splitlines()[-2].startswith("git init ")
    (folder / ".git").mkdir()
    assert "git init" not in new("two").stdout


@pytest.mark.slow
def test_the_comparison_in_ci_has_only_cases_that_the_written_kernel_takes(folder: Path) -> None:
    assert new("one").exit_code == 0
    file = "attnbench-one/src/attnbench_one/__init__.py"
    registry, steps = load_wanted([file]), (folder / "attnbench-one/.github/workflows/ci.yml").read_text()
    for text in COMPARED:
        case = parse_case(text)
        assert refusal(registry.backend("one"), case, registry.rule(case.rule), devices=()) is None
        assert text.rpartition("/")[0] in steps
    # A prefill of 256 queries still has several blocks, and its exact answer is there 16 times as soon.
    checked = [text.replace("-L1024-", "-L256-") for text in COMPARED]
    words = ["check", *checked, "--plugin", file, "--backend", "one", "--format", "csv"]
    done = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("facts", "source"),
    [
        (None, ""),
        (
            '{"url": "file:///home/me/my%20attnbench", "dir_info": {"editable": true}}',
            "/home/me/my attnbench",
        ),
        (
            '{"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}',
            "git+https://example.org/a.git@12ab",
        ),
        ('{"url": "https://example.org/a.whl", "archive_info": {}}', "https://example.org/a.whl"),
        ("no JSON", ""),
    ],
)
def test_where_attnbench_came_from_no_index_its_wheel_is_made_for_ci(
    folder: Path, monkeypatch: pytest.MonkeyPatch, facts: str | None, source: str
) -> None:
    installed = SimpleNamespace(read_text=lambda name: facts if name == "direct_url.json" else None)
    monkeypatch.setattr("attnbench.starter.package.distribution", lambda name: installed)
    lines = new("one").stdout.splitlines()
    wheel = f"pip wheel --no-deps --wheel-dir wheels {shlex.quote(source)}"
    assert lines[2:-4] == [*([wheel] if source else []), "pip install -e '.[test]'"]
    assert "PIP_FIND_LINKS: wheels" in (folder / "attnbench-one" / ".github/workflows/ci.yml").read_text()


@pytest.mark.parametrize("kind", ["empty folder", "file", "dangling link"])
def test_an_existing_name_is_not_changed(folder: Path, kind: str) -> None:
    there = folder / "attnbench-one"
    if kind == "file":
        there.write_text("mine")
    elif kind == "dangling link":
        there.symlink_to("nowhere")
    else:
        there.mkdir()
    before = files_in(folder), names_in(folder)
    result = new("one")
    assert result.exit_code == 2
    assert result.stderr == (
        "attnbench: 'attnbench-one' exists already and is not changed; choose another name or --into\n"
    )
    assert (files_in(folder), names_in(folder)) == before
    assert result.stdout == ""


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    """A limit on the size of files stands in for it: half of the first file is written."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "attnbench", "new", "one"], preexec_fn=limited,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == "attnbench: File too large\n"
    assert names_in(folder) == []


def test_a_folder_that_appears_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        target.mkdir()
        (target / "theirs").write_text("theirs")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert new("one").exit_code == 3
    assert files_in(folder) == {"attnbench-one/theirs": "theirs"}
