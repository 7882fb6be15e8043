"""Whatever a plugin does wrong is one exact sentence, and what works of it and of others is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnbench.plugins.load import Loaded, load
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source, Suite
from attnbench.types.rule import Rule

Install = Callable[..., Path]

RULE = """
from attnbench import Rule, hookimpl
def rule(name):
    return Rule(name, "q·k", "a test", reference=print, bind=print, parameters=print)
"""
BACKEND = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("mini", "a test", prepare=print)
"""

VERDICT = """
from attnbench import VerdictRule, hookimpl
@hookimpl
def attnbench_verdict_rules():
    yield VerdictRule("mini", "a test", decide=lambda contender, baseline: "unclear")
"""


def source_of(module: str) -> Source:
    return next(source for source in installed() if source.name == module)


def loaded(install: Install, text: str) -> Loaded:
    install("mini_plugin", text)
    return load(source_of("mini_plugin"))


def test_a_good_plugin_brings_its_records_and_no_fault(install: Install) -> None:
    text = f"{RULE}\n@hookimpl\ndef attnbench_rules():\n    return [rule('one'), rule('two')]\n{BACKEND}"
    plugin = loaded(install, text)
    assert [rule.name for rule in plugin.of(Rule)] == ["one", "two"]
    assert [backend.name for backend in plugin.of(Backend)] == ["mini"]
    assert plugin.of(Suite) == ()
    assert plugin.faults == ()


def test_its_time_is_without_that_of_other_threads(install: Install) -> None:
    text = """
import threading, time
spent_s = 0.0
def spend():
    global spent_s
    while spent_s < 0.3:
        spent_s = time.thread_time()
other = threading.Thread(target=spend)
other.start()
other.join()
"""
    plugin = loaded(install, text + BACKEND)
    assert sys.modules["mini_plugin"].spent_s >= 0.3
    assert 0 < plugin.cpu_s < 0.15


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('no such\\n  instruction')", "ValueError: no such instruction"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise RuntimeError", "RuntimeError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("def (", "SyntaxError: invalid syntax (mini_plugin.py, line 1)"),
        ("class E(BaseException): pass\nraise E('base')", "E: base"),
    ],
)
def test_what_does_not_import_is_said(install: Install, text: str, words: str) -> None:
    assert loaded(install, text).faults == (
        f"attnbench-mini_plugin 1.0 (mini_plugin): does not import: {words}",
    )


def test_a_module_that_is_not_there_is_said(install: Install) -> None:
    install("mini_plugin", "", value="mini_nowhere")
    assert load(source_of("mini_plugin")).faults == (
        "attnbench-mini_plugin 1.0 (mini_nowhere): does not import: "
        "ModuleNotFoundError: No module named 'mini_nowhere'",
    )


YIELD = "let it yield records, or return a list of them"
HOOKS = [
    ("yield rule('kept'); raise OSError('half way')", "attnbench_rules raised OSError: half way", ["kept"]),
    ("yield rule('kept'); raise SystemExit(1)", "attnbench_rules raised SystemExit: 1", ["kept"]),
    ("yield 3; yield rule('kept')", "attnbench_rules gave 3, which is no Rule", ["kept"]),
    ("return None", f"attnbench_rules gave None: {YIELD}", []),
    (
        "return rule('lost')",
        f"attnbench_rules gave a Rule: {YIELD}",
        [],
    ),
    ("return 1 / 0", "attnbench_rules raised ZeroDivisionError: division by zero", []),
]


@pytest.mark.parametrize(("body", "words", "kept"), HOOKS)
def test_a_hook_that_fails_is_said_and_what_came_before_is_kept(
    install: Install, body: str, words: str, kept: list[str]
) -> None:
    plugin = loaded(install, f"{RULE}\n@hookimpl\ndef attnbench_rules():\n    {body}\n{BACKEND}")
    assert plugin.faults == (f"attnbench-mini_plugin 1.0 (mini_plugin): {words}",)
    assert [rule.name for rule in plugin.of(Rule)] == kept
    assert [backend.name for backend in plugin.of(Backend)] == ["mini"]


def test_a_plugin_may_bring_verdict_rules(install: Install) -> None:
    registry = both(install, VERDICT, VERDICT)
    assert list(registry.verdict_rules) == ["mini"]
    assert registry.verdict_rules["mini"].record.decide([], []) == "unclear"
    assert registry.faults == (
        "attnbench-b 2.0 (mini_b): brings a verdict rule 'mini', as attnbench-a 1.0 (mini_a) does; "
        "the first is used",
    )


def test_a_backend_where_a_rule_belongs_is_said(install: Install) -> None:
    text = BACKEND.replace("def attnbench_backends", "def attnbench_rules")
    (fault,) = loaded(install, text).faults
    assert "(mini_plugin): attnbench_rules gave Backend(name='mini'" in fault
    assert fault.endswith("which is no Rule")


def test_a_hook_name_that_does_not_exist_is_said_and_the_rest_is_kept(install: Install) -> None:
    plugin = loaded(install, f"{BACKEND}\n@hookimpl\ndef attnbench_backend():\n    return []\n")
    assert plugin.faults == (
        "attnbench-mini_plugin 1.0 (mini_plugin): unknown hook 'attnbench_backend'; did you mean "
        "'attnbench_backends'?",
    )
    assert [backend.name for backend in plugin.of(Backend)] == ["mini"]


def test_a_hook_with_an_argument_too_many_is_said(install: Install) -> None:
    text = f"{RULE}\n@hookimpl\ndef attnbench_backends(config, more):\n    return []\n"
    text += "@hookimpl\ndef attnbench_rules(*spare, default=3, **other):\n    yield rule('kept')\n"
    plugin = loaded(install, text)
    assert plugin.faults == (
        "attnbench-mini_plugin 1.0 (mini_plugin): attnbench_backends asks for config, more: hooks are given "
        "nothing",
    )
    assert [rule.name for rule in plugin.of(Rule)] == ["kept"]


def test_options_of_hook_implementations_are_pluggys(install: Install) -> None:
    text = f"{RULE}\n@hookimpl(specname='attnbench_rules')\ndef mine():\n    yield rule('mine')\n"
    text += "@hookimpl(optionalhook=True)\ndef attnbench_of_tomorrow():\n    return []\n"
    plugin = loaded(install, text)
    assert [rule.name for rule in plugin.of(Rule)] == ["mine"]
    assert plugin.faults == ()


def test_a_hook_like_none_is_told_what_there_is(install: Install) -> None:
    (fault,) = loaded(install, f"{RULE}\n@hookimpl\ndef zzz():\n    return []\n").faults
    assert "unknown hook 'zzz'; there are attnbench_rules, attnbench_backends, " in fault


def test_ctrl_c_while_a_plugin_loads_is_the_users(install: Install) -> None:
    with pytest.raises(KeyboardInterrupt):
        loaded(install, "raise KeyboardInterrupt")


def both(install: Install, first: str, second: str) -> Registry:
    install("mini_a", first, distribution="attnbench-a")
    install("mini_b", second, distribution="attnbench-b", version="2.0")
    return load_registry([source_of("mini_a"), source_of("mini_b")])


def test_a_plugin_that_fails_harms_no_other(install: Install) -> None:
    registry = both(install, "import sys; sys.exit(1)", BACKEND)
    assert list(registry.backends) == ["mini"]
    assert registry.backends["mini"].source.distribution == "attnbench-b"
    assert registry.faults == ("attnbench-a 1.0 (mini_a): does not import: SystemExit: 1",)


def test_a_name_that_two_bring_is_a_fault_naming_both_and_the_first_keeps_it(install: Install) -> None:
    registry = both(install, BACKEND, BACKEND)
    assert registry.faults == (
        "attnbench-b 2.0 (mini_b): brings a backend 'mini', as attnbench-a 1.0 (mini_a) does; "
        "the first is used",
    )
    assert registry.backends["mini"].source.distribution == "attnbench-a"


def test_a_name_that_one_plugin_brings_twice_is_a_fault_too(install: Install) -> None:
    text = f"{RULE}\n@hookimpl\ndef attnbench_rules():\n    return [rule('twice'), rule('twice')]\n"
    install("mini_a", text, distribution="attnbench-a")
    registry = load_registry([source_of("mini_a")])
    assert registry.faults == ("attnbench-a 1.0 (mini_a): brings a rule 'twice' twice; the first is used",)


def test_asking_for_what_failed_to_load_says_that_it_failed(install: Install) -> None:
    registry = both(install, "raise ValueError('boom')", BACKEND)
    with pytest.raises(BadInput) as caught:
        registry.backend("fancy")
    assert str(caught.value) == (
        "no backend 'fancy'; there are mini. "
        "A plugin failed to load: attnbench-a 1.0 (mini_a): does not import: ValueError: boom."
    )


def test_a_name_that_is_nearly_one_is_told(install: Install) -> None:
    registry = both(install, BACKEND, VERDICT)
    assert registry.backend("mini").name == "mini"
    with pytest.raises(BadInput) as caught:
        registry.backend("mniin")
    assert str(caught.value) == "no backend 'mniin'; did you mean 'mini'?"
