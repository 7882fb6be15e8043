"""What the process of a command does before anything else."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any


def open_missing_streams() -> None:
    """Open on nothing what whoever started us has closed: to write there is no failure."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


_PLAIN = {
    "░": ".", "▒": ":", "▓": "+", "█": "#", "…": ".", "−": "-", "√": "sqrt ", "∞": "inf", "×": "x", "·": "*",
    "→": "->", "≥": ">=", "≤": "<=", "Σ": "sum of ", "±": "+-", "²": "^2", "ᵀ": "^T", "β": "beta",
}  # fmt: skip


def write_what_stdout_can() -> None:
    """Where the locale's encoding lacks what tables and heatmaps are made of, the likest of ASCII is written.

    It would be an error at the first such character otherwise. UTF-8 has all; a stream in ASCII is click's to
    replace by one in UTF-8.
    """
    import codecs

    def plain(failure: UnicodeError) -> tuple[str, int]:
        assert isinstance(failure, UnicodeEncodeError)
        lacking = failure.object[failure.start : failure.end]
        return "".join(_PLAIN.get(letter, "?") for letter in lacking), failure.end

    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper) or stdout.errors != "strict":
        return
    if codecs.lookup(stdout.encoding).name not in ("utf-8", "ascii"):
        codecs.register_error("attnbench.plain", plain)
        stdout.reconfigure(errors="attnbench.plain")


class _Forgiving(io.FileIO):
    """A file to which writing always succeeds, whatever becomes of it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def forgive_stderr() -> None:
    """Where stderr can't be written - a full disk, a reader that has gone away - the command goes on: what it
    measures and its exit status are as they would be.
    """
    told = sys.stderr
    raw = io.BufferedWriter(_Forgiving(told.fileno(), "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, told.encoding, told.errors, line_buffering=True)


def tell_of_crashes() -> None:
    """Where code of a plugin's crashes this process, the place stands on stderr and not nothing."""
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)


def end_like_ctrl_c() -> None:
    """A terminated command ends as by Ctrl-C: it says how to go on, and leaves no process behind."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, signal.default_int_handler)
