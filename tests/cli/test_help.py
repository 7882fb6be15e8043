from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import Result

from attnbench.cli import attnbench

SCRIPTED = {
    "run": {
        "--rule", "--backend", "--dtype", "--device", "--mask", "--budget", "--threads", "--seed", "--out",
        "--resume", "--format", "--sets", "--baseline", "--timeout", "--memory-limit",
        "--delta", "--allocator", "--plan", "--cache", "--trace", "--dropout", "--pass", "--benchmark-json",
        "--plugin", "-p",
    },
    "check": {
        "--rule", "--backend", "--dtype", "--device", "--mask", "--threads", "--seed", "--out", "--resume",
        "--format", "--timeout", "--memory-limit", "--cache", "--trace", "--dropout", "--pass",
        "--plan", "--plugin", "-p",
    },
    "report": {"--html", "--csv", "--markdown", "--format", "--trace", "--benchmark-json", "--plugin", "-p"},
    "history": {"--case", "--backend", "--format"},
    "merge": {"--out"},
    "plugins": {"--format", "--plugin", "-p"},
    "new": {"--into"},
}  # fmt: skip


def command(name: str) -> click.Command:
    context = click.Context(attnbench)
    found = attnbench.get_command(context, name)
    assert found is not None
    return found


def test_help_lists_every_command_and_the_exit_statuses(invoke: Callable[..., Result]) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    lines = result.stdout.split("Commands:\n")[1].splitlines()
    names = ["run", "check", "report", "compare", "history", "merge", "explain", "rules", "doctor"]
    assert [line.split()[0] for line in lines[: len(names)]] == names
    assert "130 ended by Ctrl-C" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "name",
    ["run", "check", "report", "compare", "history", "merge", "explain", "rules", "list", "plugins", "new"],
)
def test_every_listed_command_is_there_and_explains_itself(invoke: Callable[..., Result], name: str) -> None:
    assert command(name).name == name
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: attnbench {name}")


@pytest.mark.parametrize(("name", "options"), SCRIPTED.items())
def test_options_that_scripts_rely_on(name: str, options: set[str]) -> None:
    parameters = [p for p in command(name).params if isinstance(p, click.Option)]
    assert {option for p in parameters for option in p.opts} == options
    assert all(p.help for p in parameters)


def all_commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        within = click.Context(found, info_name=name, parent=context)
        yield within.command_path, found
        if isinstance(found, click.Group):
            yield from all_commands(found, within)


OURS = dict(all_commands(attnbench, click.Context(attnbench, info_name="attnbench")))


@pytest.mark.parametrize("path", OURS)
def test_every_help_has_an_example_that_the_command_takes(path: str) -> None:
    """An example is a line of a block that is not wrapped: options that aren't there can't stand in one."""
    blocks = (OURS[path].help or "").split("\b\n")[1:]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    examples = [line for line in lines if line.startswith("attnbench ")]
    assert any(line.startswith(path) for line in examples), examples
    for line in examples:
        words = shlex.split(line.partition("    ")[0].partition(">")[0])[1:]
        command: click.Command = attnbench
        context = click.Context(command, info_name="attnbench")
        while isinstance(command, click.Group):
            # Options of the group itself come before the name of the command.
            words = [word for i, word in enumerate(words) if i or not word.startswith("-")]
            name, found, words = command.resolve_command(context, words)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        command.make_context(command.name, words, parent=context.parent)


@pytest.mark.parametrize("path", ["attnbench", *OURS])
def test_no_help_is_wider_than_a_terminal(
    monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Result], path: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke(*path.split()[1:], "--help").stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_no_summary_of_a_command_is_cut(
    monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Result]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for group in ([], ["list"]):
        lines = invoke(*group, "--help").stdout.partition("Commands:\n")[2].splitlines()
        assert len(lines) > 3
        assert not [line for line in lines if line.endswith("...")]


def test_the_variables_of_the_environment_are_told(invoke: Callable[..., Result]) -> None:
    from attnbench.cli.group import TRACEBACK
    from attnbench.plugins.calling import STRICT, TRACE
    from attnbench.plugins.commands import CHOSEN
    from attnbench.plugins.sources import NAMED

    told = invoke("--help").stdout.partition("Environment:\n")[2]
    for name in (NAMED, CHOSEN, STRICT, TRACE, TRACEBACK, "NO_COLOR"):
        assert f"  {name} " in told


def test_the_version(invoke: Callable[..., Result]) -> None:
    from attnbench import __version__

    assert invoke("--version").stdout == f"attnbench {__version__}\n"


def test_without_a_command_help_is_shown_and_it_is_wrong_usage(invoke: Callable[..., Result]) -> None:
    result = invoke()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Commands:" in result.stderr
