"""What is shown of a backend whose call failed: its last prints, and with --verbose its traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]

BAD = """
import os
from attnbench import Backend, hookimpl

def prepare(setup):
    print("preparing")
    def call(q, k, v):
        print("in the call \\x1b[31m")
        raise ValueError("boom")
    return call

def dying(setup):
    os.write(1, b"about to die")
    os.abort()

def ending(setup):
    print("a library ends its process")
    os.kill(os.getpid(), 15)

@hookimpl
def attnbench_backends():
    for name, made in (("raises", prepare), ("dies", dying), ("ends", ending)):
        yield Backend(name, "a test", made, rules=("scaled_dot",), dtypes=("float32",))
"""
CASES = [f"attention/scaled_dot/H1-L{L}-D8" for L in (16, 17)]
WORDS = ("--plugin", "bad.py", "--backend", "raises", "--backend", "dies", "--backend", "ends")


@pytest.fixture(autouse=True)
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(BAD)


def test_the_last_prints_of_a_backend_that_failed_are_shown_once(invoke: Invoke) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    result = invoke("check", *CASES, *WORDS)
    assert result.exit_code == 3
    told = result.stderr
    # A child's flush order is its own: one backend before or after the other.
    assert told.count("raises printed, before it failed:\n  preparing\n  in the call \\x1b[31m\n") == 1
    assert told.count("dies printed, before it failed:\n  about to die\n") == 1
    assert told.count("ends printed, before it failed:\n  a library ends its process\n") == 1
    assert "Traceback" not in told
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.slow
def test_verbose_shows_the_traceback_of_a_kernel(invoke: Invoke) -> None:
    told = invoke("--verbose", "check", CASES[0], *WORDS[:4]).stderr
    assert 'in call\n    raise ValueError("boom")\nValueError: boom\n' in told
    assert "  in the call \\x1b[31m\n" in told


@pytest.mark.parametrize("hook", ["import nothing_there", "raise SystemExit(3)"])
def test_verbose_shows_the_traceback_of_a_plugin_that_fails_on_import(invoke: Invoke, hook: str) -> None:
    Path("bad.py").write_text(hook)
    result = invoke("--verbose", "list", "backends", "--plugin", "bad.py")
    assert result.exit_code == 2
    assert f"in <module>\n    {hook}\n" in result.stderr
    assert "Traceback" not in invoke("list", "backends", "--plugin", "bad.py").stderr


def test_a_strict_fault_is_no_failed_check(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_STRICT_PLUGINS", "1")
    Path("bad.py").write_text("import nothing_there")
    raised = invoke("list", "backends", "--plugin", "bad.py")
    assert raised.exit_code == 3
    assert "ModuleNotFoundError: No module named 'nothing_there'" in raised.stderr
    Path("bad.py").write_text("")
    assert invoke("list", "backends", "--plugin", "bad.py").exit_code == 2
