"""Streams and signals of the process of a command, prepared before anything else."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import Any

_PARENT = "ATTNBENCH_PARENT"
"""As :data:`attnbench.ipc.process.PARENT`, without importing it for ``--help``."""


def prepare_process() -> None:
    """Prepare streams and signals, and have crashes in a plugin's code print where they happened."""
    import faulthandler

    if _PARENT in os.environ:
        from attnbench.ipc.process import end_with

        end_with(os.environ)
    _open_missing_streams()
    write_what_stdout_can()
    told = sys.stderr
    raw = io.BufferedWriter(_Forgiving(told.fileno(), "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, told.encoding, told.errors, line_buffering=True)
    # A terminated command ends as by Ctrl-C: it says how to go on, and leaves no process behind.
    for ending in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, signal.default_int_handler)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that the parent process closed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def write_what_stdout_can() -> None:
    """Write "?" for what the encoding of the locale lacks, instead of failing at the first such character."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


class _Forgiving(io.FileIO):
    """A file to which writing always succeeds.

    A command goes on where stderr can't be written, because of a full disk or a reader that went away. Its
    data and its exit status stay the same.
    """

    def write(self, data: Any, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(data) or 0
        return len(data)
