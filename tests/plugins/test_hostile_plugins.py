"""Plugins that would harm whoever loads them: each is a sentence, and what the others bring is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.plugins.calling import undisturbed
from attnbench.plugins.registry import load_registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.types.errors import BadInput

HEAD = """
from attnbench import Backend, hookimpl
def backend(name, **more):
    return Backend(**{"name": name, "summary": "a test", "prepare": print, **more})
class Evil(str):
    __hash__ = str.__hash__
    def __eq__(self, other):
        raise ValueError("compared")
    def __repr__(self):
        raise ValueError("shown")
@hookimpl
def attnbench_backends():
"""


def write(folder: Path, body: str) -> str:
    file = folder / "hostile.py"
    file.write_text(f"{HEAD}    {body}\n")
    return str(file)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("yield backend(Evil('x'))", "can't be used: looking at it raised ValueError: shown"),
        (
            "yield backend('x', dtypes=(Evil('x'),))",
            "can't be used: looking at it raised ValueError: comp",
        ),
        ("yield backend('x' * 10**7)", f"can't be used: the name '{'x' * 64}'…: 10000000 characters; 64 are"),
        ("yield backend('x', summary='two\\nlines')", "summary = 'two\\nlines': one line of at most 600 "),
        ("yield backend('x', summary='\\x1b[31mred')", "summary = '\\x1b[31mred': one line of at most"),
        ("yield backend('x', dtypes=('y' * 10**7,))", "yyyy…"),
        ("while True: yield 'x'", "gave 'x', which is no Backend"),
        ("return (backend(f'x{i}') for i in iter(int, 1))", "brings a backend 'x0' twice"),
        ("return backend('x')", "gave a Backend: let it yield records, or return a list of them"),
        ("pass", "gave None: let it yield records, or return a list of them"),
        ("yield backend('x'); yield backend('x')", "brings a backend 'x' twice; the first is used"),
    ],
)
def test_what_a_hook_gives(tmp_path: Path, body: str, words: str) -> None:
    source = named(write(tmp_path, body))
    registry = load_registry([source])
    assert any(words in fault for fault in registry.faults)
    assert all(fault.startswith(f"{source}: ") and len(fault) < 800 for fault in registry.faults)


def test_a_hook_that_never_ends_is_left_after_a_thousand_records(tmp_path: Path) -> None:
    word = write(tmp_path, "number = 0\n    while True: number += 1; yield backend(f'x{number}')")
    registry = load_registry([named(word)])
    assert list(registry.backends) == [f"x{number}" for number in range(1, 1001)]
    assert registry.faults[0].endswith("attnbench_backends gave more than 1000 records; these are used")


def test_a_hook_that_was_not_marked_is_told_to_its_author(tmp_path: Path) -> None:
    word = write(tmp_path, "return []")
    file = Path(word)
    file.write_text(file.read_text().replace("@hookimpl", ""))
    with pytest.raises(BadInput, match=r"attnbench_backends is no hook yet: put @attnbench\.hookimpl"):
        load_wanted([word])
    file.write_text("")
    with pytest.raises(BadInput, match=r"has no hooks: write one, as attnbench_backends, with"):
        load_wanted([word])


@pytest.mark.parametrize("module", ["json", "attnbench.cli.run"])
def test_a_module_that_is_no_plugin(module: str) -> None:
    with pytest.raises(BadInput, match="has no hooks"):
        load_wanted([module])


def test_words_that_nearly_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini_kernel_here.py").touch()
    (tmp_path / "mini_x.pyc").touch()
    (tmp_path / "package").mkdir()
    os.mkfifo("pipe.py")
    for word, words in (
        (
            "mini_kernel_here",
            "no plugin 'mini_kernel_here' that can be imported; did you mean the file 'mini_kernel_here.py'?",
        ),
        ("mini_x.pyc", "no plugin 'mini_x.pyc' that can be imported; did you mean the file './mini_x.pyc'?"),
        ("./package", "no plugin 'package': that is no file; name its file, or the module that it is"),
        ("pipe.py", "no plugin 'pipe.py': that is no file; name a file"),
        ("/dev/zero", "no plugin '/dev/zero': that is no file; name a file"),
    ):
        with pytest.raises(BadInput) as wrong:
            named(word)
        assert str(wrong.value) == words


def test_a_file_may_be_called_anything_and_paints_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31m\n.py"
    file.write_text(HEAD + "    yield backend('mine')")
    assert load_wanted([str(file)]).backends["mine"].source.distribution == r"\x1b[31m .py"


def test_what_is_printed_past_python_stays_undisturbed(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with undisturbed():
        os.write(1, b"raw ")
        subprocess.run(["echo", "child"], check=True)
        print("python")
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert sorted(err.split()) == ["child", "python", "raw"]


def test_where_a_plugin_goes_nobody_follows(tmp_path: Path) -> None:
    before = Path.cwd()
    word = write(tmp_path, "os.chdir('/'); yield backend('mine')")
    Path(word).write_text(f"import os\nos.chdir('/'){Path(word).read_text()}")
    assert "mine" in load_wanted([word]).backends
    assert Path.cwd() == before


def test_the_place_of_a_crash_stands_on_stderr(tmp_path: Path) -> None:
    word = write(tmp_path, "import ctypes; ctypes.string_at(0)")
    command = [sys.executable, "-m", "attnbench", "list", "backends", "--plugin", word]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGSEGV
    assert "hostile.py" in ended.stderr
    assert "in attnbench_backends" in ended.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os._exit(0)", "does not import: SystemExit: os._exit(0)"),
        (f"import os{HEAD}    os._exit(0)", "raised SystemExit: os._exit(0)"),
        # A child that the plugin forks ends as usual.
        (f"import os\nif not os.fork(): os._exit(0)\nos.wait(){HEAD}    pass", "gave None"),
    ],
)
def test_os_exit_while_a_plugin_loads_does_not_end_the_command(tmp_path: Path, text: str, words: str) -> None:
    plugin = tmp_path / "leaving.py"
    plugin.write_text(text)
    command = [sys.executable, "-m", "attnbench", "plugins", "--plugin", str(plugin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count(words) == 1
