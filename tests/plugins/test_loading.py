"""Each mistake of a plugin is one sentence; what works of it, and of other plugins, is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnbench.plugins.calling import undisturbed
from attnbench.plugins.load import load
from attnbench.plugins.registry import Registry, load_registry, load_wanted
from attnbench.plugins.sources import installed, named
from attnbench.types.errors import BadInput

Install = Callable[..., Path]
Write = Callable[[str], Path]

HEAD = """
from attnbench import *
def rule(name):
    return Rule(name, "q·k", "a test", reference=print, bind=print, parameters=print)
def backend(name, **more):
    return Backend(**{"name": name, "summary": "a test", "prepare": print, **more})
class Evil(str):
    __hash__ = str.__hash__
    def __eq__(self, other):
        raise ValueError("compared")
    def __repr__(self):
        raise ValueError("shown")
"""
BACKENDS = "@hookimpl\ndef attnbench_backends():\n    "
RULES = "@hookimpl\ndef attnbench_rules():\n    "
MINI = f"{BACKENDS}yield backend('mini')\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(text: str) -> Path:
        path = tmp_path / "mini.py"
        path.write_text(text)
        return path

    return file


def both(install: Install, first: str, second: str) -> Registry:
    install("mini_a", HEAD + first, distribution="attnbench-a")
    install("mini_b", HEAD + second, distribution="attnbench-b", version="2.0")
    return load_registry(source for source in installed() if source.name.startswith("mini_"))


YIELD = "let it yield records, or return a list of them"
UNUSABLE = "attnbench_backends gave a Backend that can't be used: "
LONG = f"the name '{'x' * 64}'…: 10000000 characters; 64 are"


@pytest.mark.parametrize(
    ("text", "words", "rules", "backends"),
    [
        (RULES + "return [rule('one'), rule('two')]\n" + MINI, "", "one two", "mini"),
        ("raise ValueError('no such\\n  instruction')",
         "cannot be imported: ValueError: no such instruction", "", ""),
        ("def (", "cannot be imported: SyntaxError: invalid syntax (mini.py, line 13)", "", ""),
        ("class E(BaseException): pass\nraise E('base')", "cannot be imported: E: base", "", ""),
        (RULES + "yield rule('kept'); raise OSError('half way')\n" + MINI,
         "attnbench_rules raised OSError: half way", "kept", "mini"),
        (RULES + "yield 3; yield rule('kept')", "attnbench_rules gave 3, which is not a Rule", "kept", ""),
        (RULES + "return None\n" + MINI, f"attnbench_rules gave None: {YIELD}", "", "mini"),
        (RULES + "yield rule('x'); yield rule('x')", "brings a rule 'x' twice; this one is ignored", "x", ""),
        (BACKENDS + "yield backend('x', dtypes=(Evil('x'),))",
         f"{UNUSABLE}testing it raised ValueError: comp", "", ""),
        (BACKENDS + "yield backend('x' * 10**7)",
         f"{UNUSABLE}{LONG}", "", ""),
        (MINI + "@hookimpl\ndef zzz():\n    return []\n",
         "unknown hook 'zzz'; there are attnbench_rules, attnbench_backends, ", "", "mini"),
        (MINI.replace("()", "(config, more)", 1)
         + "@hookimpl\ndef attnbench_rules(*spare, default=3, **other):\n    yield rule('kept')\n",
         "attnbench_backends() must take no arguments, but declares config, more", "kept", ""),
        ("@hookimpl(specname='attnbench_rules')\ndef mine():\n    yield rule('mine')\n"
         "@hookimpl(optionalhook=True)\ndef attnbench_of_tomorrow():\n    return []\n", "", "mine", ""),
    ],
)  # fmt: skip
def test_what_a_plugin_gives(
    write: Write, text: str, words: str, rules: list[str], backends: list[str]
) -> None:
    source = named(str(write(HEAD + text)))
    registry = load_registry([source])
    assert " ".join(registry.rules) == rules
    assert " ".join(registry.backends) == backends
    assert bool(registry.faults) is bool(words)
    for fault in registry.faults[:1]:
        assert fault.startswith(f"{source}: {words}")
        assert len(fault) < 800


def test_the_time_to_load_excludes_other_threads(write: Write) -> None:
    text = """
import threading, time
def spend():
    while time.thread_time() < 0.3:
        pass
other = threading.Thread(target=spend)
other.start()
other.join()
"""
    assert 0 < load(named(str(write(HEAD + text + MINI)))).cpu_s < 0.15


def test_ctrl_c_while_a_plugin_loads_ends_the_command(write: Write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(named(str(write("raise KeyboardInterrupt"))))


def test_clashes_name_both_plugins_and_the_first_is_used(install: Install) -> None:
    text = f"""{MINI}
@hookimpl
def attnbench_verdict_rules():
    yield VerdictRule("mini", "a test", decide=print)
@hookimpl
def attnbench_metrics():
    yield Metric("one", "a test", "J", value=print)
@hookimpl
def attnbench_reporters():
    yield Reporter("one", "a test", render=print)
@hookimpl
def attnbench_environment_facts():
    yield EnvironmentFact("one", "a test", read=print)
"""
    registry = both(install, text, text.replace('Metric("one"', 'Metric("two"'))
    for entries in (registry.metrics, registry.reporters, registry.environment_facts, registry.verdict_rules):
        assert [entry.source.distribution for entry in entries.values()] == ["attnbench-a"]
    names = ("backend 'mini'", "verdict rule 'mini'", "metric with the head 'J'", "reporter 'one'")
    assert registry.faults == tuple(
        f"attnbench-b 2.0 (mini_b): brings {article} {name}, as attnbench-a 1.0 (mini_a) does; "
        "this one is ignored"
        for article, name in (*(("a", name) for name in names), ("an", "environment fact 'one'"))
    )
    for word, sentence in (
        ("oen", "no format 'oen'; did you mean 'one'?"),
        ("jsn", "no format 'jsn'; did you mean 'json'?"),
        ("zzz", "no format 'zzz'; there are table, json, csv, markdown, one."),
    ):
        with pytest.raises(BadInput) as wrong:
            registry.reporter(word)
        assert str(wrong.value).startswith(sentence)


def test_an_unknown_name_mentions_the_plugin_that_failed(install: Install) -> None:
    registry = both(install, "raise ValueError('boom')", MINI)
    fault = "attnbench-a 1.0 (mini_a): cannot be imported: ValueError: boom"
    assert registry.faults == (fault,)
    assert registry.backends["mini"].source.distribution == "attnbench-b"
    with pytest.raises(BadInput) as wrong:
        registry.backend("fancy")
    assert str(wrong.value) == f"no backend 'fancy'; there is mini. A plugin failed to load: {fault}."


def test_prints_past_python_stay_off_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with undisturbed():
        os.write(1, b"raw ")
        subprocess.run(["echo", "child"], check=True)
        print("python")
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert sorted(err.split()) == ["child", "python", "raw"]


def test_a_plugin_may_change_the_working_folder_for_itself_alone(write: Write) -> None:
    before = Path.cwd()
    path = write(f"import os\nos.chdir('/'){HEAD}{BACKENDS}os.chdir('/'); yield backend('mine')")
    assert "mine" in load_wanted([str(path)]).backends
    assert Path.cwd() == before


def test_a_crash_while_loading_names_the_hook_on_stderr(write: Write) -> None:
    plugin = write(f"{HEAD}{BACKENDS}import ctypes; ctypes.string_at(0)")
    command = [sys.executable, "-m", "attnbench", "plugins", "--plugin", str(plugin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count("in attnbench_backends") == 1
