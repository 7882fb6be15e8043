"""The exceptions of attnbench, and the exit status with which each ends a command.

AttnbenchError              anything this package raises on purpose
├── BadInput                the input of the user can't be used (exit 2)
│   ├── BadCase             a case that can't exist: sizes, masks, dtypes
│   └── BadFile             a file that can't be read in its format
├── MeasuringFailed         attnbench itself could not go on (exit 3)
├── PluginFailed            a plugin failed where nothing can replace it (exit 3)
└── Interrupted             the user ended a run with Ctrl-C (exit 130)
"""

from __future__ import annotations

from pathlib import Path


def go_on_words(path: Path, *, live: bool, command: str = "") -> str:
    """Return in words what can be done about a run that ended too early.

    live: a live comparison, whose sides no longer exist, so that it can't be resumed. command: to name in the
    words, where the run's command is not clear from the context.
    """
    return "compare again" if live else f"continue with {command and f'{command} '}--resume {path}"


class AttnbenchError(Exception):
    """Base of all errors raised on purpose; its text is one sentence for the user."""

    exit_code = 3


class BadInput(AttnbenchError):  # noqa: N818
    """The input of the user can't be used; the text restates it and says what is allowed."""

    exit_code = 2


class BadCase(BadInput):
    """A case can't exist: impossible sizes, an unknown dtype, a contradictory mask."""


class BadFile(BadInput):
    """A file is missing, damaged, of a newer format, or of another program."""


class MeasuringFailed(AttnbenchError):  # noqa: N818
    """attnbench could not go on: a process did not start, a disk is full."""


class PluginFailed(AttnbenchError):  # noqa: N818
    """A plugin failed where nothing can replace it: for example a reporter raised."""


class Interrupted(AttnbenchError):  # noqa: N818
    """The user ended a run with Ctrl-C. path: its file, with what was measured. live: see
    :func:`go_on_words`."""

    exit_code = 130

    def __init__(self, path: Path, *, live: bool = False) -> None:
        kept = f"what was measured is in {path}; " if live else ""
        super().__init__(f"interrupted; {kept}{go_on_words(path, live=live)}")
        self.path = path
