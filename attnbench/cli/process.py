"""What the process of a command does before anything else."""

from __future__ import annotations

import os
import signal
import sys


def open_missing_streams() -> None:
    """Open on nothing what whoever started us has closed: to write there is no failure."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


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
