from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import Result

from attnbench.cli import attnbench
from attnbench.plugins.commands import PluginCommands


def all_commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        within = click.Context(found, info_name=name, parent=context)
        yield within.command_path, found
        if isinstance(found, click.Group):
            yield from all_commands(found, within)


def own_commands() -> dict[str, click.Command]:
    context = click.Context(attnbench, info_name="attnbench")
    context.meta["attnbench.commands"] = PluginCommands({})
    return dict(all_commands(attnbench, context))


OURS = own_commands()


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
