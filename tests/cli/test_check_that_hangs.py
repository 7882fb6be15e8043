"""A plugin whose supports() hangs while the kit asks it: stderr says at which line, and Ctrl-C ends it."""

from __future__ import annotations

import faulthandler
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from attnbench.cli import attnbench
from attnbench.cli import check as check_plugins

HANGING = """
import faulthandler, time
from attnbench import Backend, hookimpl
def supports(case, rule):
    faulthandler.dump_traceback_later.go()
    for _ in range(3000):  # until something has been said, and at most half a minute
        time.sleep(0.01)
        if said():
            raise KeyboardInterrupt
def said():
    import os
    return os.fstat(2).st_size
@hookimpl
def attnbench_backends():
    yield Backend("hanging", "a test", prepare=print, supports=supports)
"""


class Later:
    """A clock that is set when it should be, and goes once ``supports`` hangs.

    Until then a busy machine takes as long as it takes, and another line would be told.
    """

    def __init__(self) -> None:
        self.real = faulthandler.dump_traceback_later

    def __call__(self, seconds: float, file: IO[str] | int) -> None:
        self.go = partial(self.real, seconds, file=file)


def test_the_line_at_which_it_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_plugins, "HANGS_S", 0.05)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", Later())
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    result = CliRunner().invoke(attnbench, ["check", "--plugin", str(file)], prog_name="attnbench")
    assert result.exit_code == 130
    told = capfd.readouterr().err
    assert "hanging.py" in told
    assert "in supports" in told
