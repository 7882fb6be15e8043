"""A plugin whose supports() hangs while the kit asks it: stderr says at which line, and Ctrl-C ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from attnbench.cli import attnbench, check_plugins

HANGING = """
import time
from attnbench import Backend, hookimpl
def supports(case, rule):
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


def test_the_line_at_which_it_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_plugins, "HANGS_S", 0.05)
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    result = CliRunner().invoke(attnbench, ["check", "--plugin", str(file)], prog_name="attnbench")
    assert result.exit_code == 130
    told = capfd.readouterr().err
    assert "hanging.py" in told
    assert "in supports" in told
