"""``os._exit`` while a plugin loads ends no command; elsewhere it is what it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from attnbench.plugins.staying import staying

IMPORT = "import os; os._exit(0)"
HOOK = """
import os
from attnbench import hookimpl
@hookimpl
def attnbench_backends():
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [(IMPORT, "does not import: SystemExit: os._exit(0)"), (HOOK, "raised SystemExit: os._exit(0)")],
)
def test_a_command_says_so_and_does_not_end_as_if_all_were_well(
    tmp_path: Path, text: str, words: str
) -> None:
    plugin = tmp_path / "leaving.py"
    plugin.write_text(text)
    command = [sys.executable, "-m", "attnbench", "plugins", "--plugin", str(plugin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_forks_and_those_who_keep_it_end_as_they_want() -> None:
    before = os._exit
    with staying():
        kept = os._exit
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(SystemExit):
            os._exit(0)
    assert os._exit is before
    child = os.fork()
    if child == 0:
        kept(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8


def test_another_thread_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "_exit", asked.append)
    with staying():
        thread = threading.Thread(target=os._exit, args=(9,))
        thread.start()
        thread.join()
    assert asked == [9]


def test_what_a_plugin_puts_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", os._exit)
    with staying():
        os._exit = print  # type: ignore[assignment]  # whatever it likes
    assert os._exit is print
