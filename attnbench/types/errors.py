"""What attnbench raises, and the exit status that each ends a command with.

AttnbenchError              anything this package raises on purpose
├── BadInput                the user's words can't be used (exit 2)
│   ├── BadCase             a case that can't exist: sizes, masks, dtypes
│   └── BadFile             a file that can't be read as what it should be
├── MeasuringFailed         the machinery itself could not go on (exit 3)
├── PluginFailed            a plugin failed where nothing else could do its work (exit 3)
└── Interrupted             the user ended a run by Ctrl-C (exit 130)
"""

from __future__ import annotations

from pathlib import Path


def go_on_words(path: Path, *, live: bool, command: str = "") -> str:
    """What is left to do about a run that ended too early, in words.

    live: it was a live comparison, whose sides are gone when it ends, so that nobody can go on with it.
    command: to be named, where the words stand apart from the run.
    """
    return "compare anew" if live else f"go on with {command and f'{command} '}--resume {path}"


class AttnbenchError(Exception):
    """Base of all errors raised on purpose; its text is one sentence for the user."""

    exit_code = 3


class BadInput(AttnbenchError):  # noqa: N818
    """The user's words can't be used; the text restates them and says what is allowed."""

    exit_code = 2


class BadCase(BadInput):
    """A case that can't exist: impossible sizes, an unknown dtype, a mask that contradicts itself."""


class BadFile(BadInput):
    """A file that is missing, torn, of a newer format, or not ours."""


class MeasuringFailed(AttnbenchError):  # noqa: N818
    """The machinery could not go on: a server that does not start, a disk that is full."""


class PluginFailed(AttnbenchError):  # noqa: N818
    """A plugin failed where nothing else could do its work: a reporter that raises."""


class Interrupted(AttnbenchError):  # noqa: N818
    """The user ended a run by Ctrl-C. path: its file, which holds what was measured. live: see
    :func:`go_on_words`.
    """

    exit_code = 130

    def __init__(self, path: Path, *, live: bool = False) -> None:
        kept = f"what was measured is in {path}; " if live else ""
        super().__init__(f"interrupted; {kept}{go_on_words(path, live=live)}")
        self.path = path
