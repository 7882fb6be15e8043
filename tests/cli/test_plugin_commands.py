"""Commands of plugins: listed without importing them, imported when used, and no failure but one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import Result

from attnbench.cli import attnbench

Invoke = Callable[..., Result]
Add = Callable[..., Path]

TREND = """
import click
@click.command()
@click.option("--boom", is_flag=True)
@click.argument("files", nargs=-1)
def main(boom, files):
    "Draw a trend."
    if boom:
        raise ValueError("boom")
    click.echo(f"drawn {len(files)}")
@click.group()
def group():
    "Several."
group.add_command(main, "inner")
number = 3
"""
BOMB = "raise AssertionError('imported')"


def section(result: Result) -> list[str]:
    """The lines of help that tell of commands of plugins."""
    assert result.exit_code == 0, result.stderr
    told = result.stdout.partition("Commands of plugins:\n")[2].partition("\n\n")[0]
    return [" ".join(line.split()) for line in told.splitlines()]


def test_help_has_a_line_for_each_and_imports_none(invoke: Invoke, add_distribution: Add) -> None:
    add_distribution(
        "attnbench-b", {"mini_bomb.py": BOMB}, commands={"later": "mini_bomb:main", "early": "mini_bomb:x"},
        summary="Draws trends of runs.",
    )  # fmt: skip
    add_distribution("attnbench-a", {}, commands={"other": "mini_nowhere:main"}, summary="")
    add_distribution("attnbench-c", {}, commands={"long": "mini_nowhere:main"}, summary="word " * 60)
    *shown, long = section(invoke("--help"))
    assert shown == [
        "other attnbench-a 1.0",
        "early attnbench-b 1.0: Draws trends of runs.",
        "later attnbench-b 1.0: Draws trends of runs.",
    ]
    assert long.startswith("long attnbench-c 1.0: word word")
    assert long.endswith(" …")
    assert "mini_bomb" not in sys.modules


def test_one_is_used_like_any_other(invoke: Invoke, add_distribution: Add) -> None:
    add_distribution(
        "attnbench-t", {"mini_trend.py": TREND},
        commands={"trend": "mini_trend:main [extra]", "Many": "mini_trend:group"},
    )  # fmt: skip
    assert invoke("trend", "a", "b").stdout == "drawn 2\n"
    assert invoke("Many", "inner").stdout == "drawn 0\n"
    assert invoke("trend", "--help").stdout.startswith("Usage: attnbench trend [OPTIONS] [FILES]...\n")


BROKEN = {
    "no_module": (
        "mini_nowhere:main",
        "cannot be imported: ModuleNotFoundError: No module named 'mini_nowhere'",
    ),
    "no_attribute": (
        "mini_trend:nothing",
        "cannot be imported: AttributeError: module 'mini_trend' has no attribute 'nothing'",
    ),
    "number": ("mini_trend:number", "3 is not a click command"),
    "exits": ("mini_exits:main", "cannot be imported: SystemExit: 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_one_line_with_its_distribution(
    invoke: Invoke, add_distribution: Add, name: str
) -> None:
    place, words = BROKEN[name]
    files = {"mini_trend.py": TREND, "mini_exits.py": "print('said')\nraise SystemExit(3)"}
    add_distribution("attnbench-t", files, commands={name: place})
    result = invoke(name, "--help")
    said = "said\n" if name == "exits" else ""
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"{said}attnbench: plugin attnbench-t 1.0 ({place}): {words}\n"


def test_one_that_raises_is_one_line_with_its_distribution(invoke: Invoke, add_distribution: Add) -> None:
    add_distribution("attnbench-t", {"mini_trend.py": TREND}, commands={"trend": "mini_trend:main"})
    result = invoke("trend", "--boom")
    assert result.exit_code == 3
    assert result.stderr == (
        "attnbench: plugin attnbench-t 1.0 (mini_trend:main): unexpected ValueError: boom "
        "(set ATTNBENCH_TRACEBACK=1 to see where)\n"
    )
    # Versions of click have other quotation marks.
    (line,) = invoke("trend", "--bom").stderr.replace("'", "").splitlines()
    assert line.startswith("attnbench: No such option")
    assert line.endswith("Did you mean --boom? Try attnbench trend --help.")


def test_a_name_that_is_nearly_one_is_told(invoke: Invoke, add_distribution: Add) -> None:
    add_distribution("attnbench-t", {}, commands={"trend": "mini_trend:main"})
    result = invoke("trned")
    assert result.exit_code == 2
    assert result.stderr == "attnbench: no command 'trned'; did you mean 'trend'? Try attnbench --help.\n"


def test_clashes_are_told_and_our_own_is_used(invoke: Invoke, add_distribution: Add) -> None:
    add_distribution("attnbench-b", {}, commands={"merge": "mini_b:main", "trend": "mini_b:main"})
    add_distribution("attnbench-a", {}, commands={"trend": "mini_a:main", "a b": "mini_a:main"})
    result = invoke("--help")
    assert section(result) == ["trend attnbench-a 1.0: A test"]
    told = [
        "attnbench-a 1.0 (mini_a:main): the command 'a b': use letters, digits, '_', '.' and '-', "
        "and begin with a letter or digit",
        "attnbench-b 1.0 (mini_b:main): attnbench itself has a command 'merge', which is used",
        "attnbench-b 1.0 (mini_b:main): brings a command 'trend', as attnbench-a 1.0 (mini_a:main) does; "
        "this one is ignored",
    ]
    assert result.stderr.splitlines() == [f"attnbench: plugin {line}" for line in told]
    assert invoke("merge", "--help").stdout.startswith("Usage: attnbench merge")
    assert invoke("merge", "--help").stderr == ""
    listed = invoke("plugins", "--format", "json")
    assert listed.stderr == result.stderr


def test_the_choice_of_plugins_holds_for_commands(
    invoke: Invoke, add_distribution: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_distribution("attnbench-a", {}, commands={"one": "mini_a:main", "two": "mini_a:main"})
    for words, names in (("attnbench-a", ["one", "two"]), ("two", ["two"]), ("", [])):
        monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", words)
        assert [line.split()[0] for line in section(invoke("--help"))] == names
        assert invoke("list", "suites").stderr == ""


def test_metadata_that_can_not_be_read_brings_nothing(
    invoke: Invoke, add_distribution: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = add_distribution("attnbench-a", {}, commands={"one": "mini_a:main"})
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "one")
    (info / "METADATA").unlink()
    assert section(invoke("--help")) == ["one attnbench_a-1.0 unknown"]
    (info / "entry_points.txt").write_bytes(b"attnbench.commands \xff\n= [\n")
    assert "Commands of plugins" not in invoke("--help").stdout


def test_the_shell_completes_them_and_their_options(add_distribution: Add) -> None:
    def completed(*words: str) -> list[str]:
        shell = BashComplete(attnbench, {}, "attnbench", "_ATTNBENCH_COMPLETE")
        return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]

    add_distribution(
        "attnbench-t", {"mini_trend.py": TREND, "mini_bomb.py": BOMB},
        commands={"trend": "mini_trend:main", "tbomb": "mini_bomb:main"},
    )  # fmt: skip
    assert completed("t") == ["tbomb", "trend"]
    assert "mini_bomb" not in sys.modules
    assert completed("trend", "--b") == ["--boom"]
    assert completed("tbomb", "--b") == []
