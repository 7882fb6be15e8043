"""Plugins that are broken, slow to import, clashing, mistyped or raising: the exact line, and no harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from attnbench.plugins import registry

Invoke = Callable[..., Result]
Add = Callable[..., None]
WHO = "attnbench: plugin attnbench-t 1.0 (mini_told): "

HEAD = "from attnbench import Backend, Metric, Reporter, Rule, hookimpl\n@hookimpl\n"
CLASH = HEAD + "def attnbench_backends():\n    yield Backend('eager', 'a test', prepare=print)\n"
MISTYPED = HEAD + "def attnbench_metric():\n    return []\n"
NOTHING = HEAD + "def attnbench_metrics():\n    return []\n"
ARGUMENT = HEAD + "def attnbench_reporters(config):\n    return []\n"
RAISING = HEAD + "def attnbench_environment_facts():\n    raise OSError('no such sensor')\n"
WRONG = HEAD + "def attnbench_metrics():\n    yield 'price'\n"


def told(invoke: Invoke, add_distribution: Add, text: str) -> str:
    """What stands on stderr with such a plugin; the data on stdout are as without it."""
    before = invoke("list", "rules", "--format", "json")
    add_distribution("attnbench-t", {"mini_told.py": text}, plugin="mini_told")
    result = invoke("list", "rules", "--format", "json")
    assert before.stderr == ""
    assert (result.exit_code, result.stdout) == (0, before.stdout)
    return result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("def (", "SyntaxError: invalid syntax (mini_told.py, line 1)"),
    ],
)
def test_a_broken_one(invoke: Invoke, add_distribution: Add, text: str, words: str) -> None:
    assert told(invoke, add_distribution, text) == f"{WHO}does not import: {words}\n"


def test_one_that_is_slow_to_import(
    invoke: Invoke, add_distribution: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_distribution("attnbench-t", {"mini_told.py": NOTHING}, plugin="mini_told")
    assert invoke("list", "suites").stderr == ""
    loaded = registry.load

    def slowly(source: registry.Source, **said: bool) -> registry.Loaded:
        # The time is said and not spent: what is measured is the processor's, of this process.
        cpu_s = 2.25 if source.module == "mini_told" else 0.0
        return registry.replace(loaded(source, **said), cpu_s=cpu_s)

    monkeypatch.setattr(registry, "load", slowly)
    assert invoke("list", "suites").stderr == (
        f"{WHO}takes 2.2 s to load in every command: import heavy libraries where they are used, "
        "in a backend inside prepare\n"
    )


def test_one_that_clashes(invoke: Invoke, add_distribution: Add) -> None:
    assert told(invoke, add_distribution, CLASH) == (
        f"{WHO}brings a backend 'eager', as attnbench 0.1.0 (attnbench.backends) does; the first is used\n"
    )


def test_one_with_a_hook_that_does_not_exist(invoke: Invoke, add_distribution: Add) -> None:
    assert told(invoke, add_distribution, MISTYPED) == (
        f"{WHO}unknown hook 'attnbench_metric'; did you mean 'attnbench_metrics'?\n"
    )


def test_one_with_an_argument_too_many(invoke: Invoke, add_distribution: Add) -> None:
    said = told(invoke, add_distribution, ARGUMENT)
    assert said == f"{WHO}attnbench_reporters() must take no arguments, but declares config\n"


def test_one_whose_hook_raises(invoke: Invoke, add_distribution: Add) -> None:
    assert told(invoke, add_distribution, RAISING) == (
        f"{WHO}attnbench_environment_facts raised OSError: no such sensor\n"
    )


def test_one_that_gives_what_is_no_record(invoke: Invoke, add_distribution: Add) -> None:
    assert told(invoke, add_distribution, WRONG) == (
        f"{WHO}attnbench_metrics gave 'price', which is not a Metric\n"
    )
