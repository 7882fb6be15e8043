from __future__ import annotations

from collections.abc import Callable

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
        "--plugin", "-p",
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


def test_the_version(invoke: Callable[..., Result]) -> None:
    from attnbench import __version__

    assert invoke("--version").stdout == f"attnbench {__version__}\n"


def test_without_a_command_help_is_shown_and_it_is_wrong_usage(invoke: Callable[..., Result]) -> None:
    result = invoke()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Commands:" in result.stderr
