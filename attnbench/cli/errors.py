"""Every way in which a command can fail, as one line on stderr and an exit status."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from attnbench.cli.output import loudness, say
from attnbench.plugins.calling import strict
from attnbench.types.errors import AttnbenchError
from attnbench.types.words import one_line

TRACEBACK = "ATTNBENCH_TRACEBACK"
"""The environment variable that shows the traceback of an unexpected failure."""


class Failure(click.ClickException):
    """A failure that ends a command with one line on stderr and its own exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """Print the line."""
        say(f"attnbench: {' '.join(self.message.split())}", err=True)


@contextmanager
def one_line_errors(culprit: Callable[[], str]) -> Iterator[None]:
    """Turn every exception into a :class:`Failure`. culprit: names the plugin whose command runs, or ""."""
    try:
        yield
    except click.UsageError as wrong:
        if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
            raise
        message = wrong.format_message()
        message += "" if message.endswith((".", "?", "?)")) else "."
        message += "" if wrong.ctx is None else f" Try {wrong.ctx.command_path} --help."
        raise Failure(message, 2) from wrong
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except AttnbenchError as failure:
        raise Failure(str(failure), failure.exit_code) from failure
    except KeyboardInterrupt as failure:
        raise Failure("interrupted", 130) from failure
    except OSError as failure:
        if failure.errno == errno.EPIPE:
            # The reader of stdout went away (attnbench list cases | head). End quietly, as if by the signal:
            # click would exit with 1, which stands for a failed check.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            raise click.exceptions.Exit(128 + signal.SIGPIPE) from failure
        if failure.errno in (errno.EMFILE, errno.ENFILE):
            raise Failure("too few file descriptors: allow more, as by ulimit -n 1024", 2) from failure
        where = f" {str(failure.filename)!r}" if failure.filename is not None else ""
        raise Failure(f"{failure.strerror or failure}{where}", 3) from failure
    except Exception as failure:
        # A mistake of ours, or of a plugin's code in this process: never status 1, a failed check.
        if os.environ.get(TRACEBACK) or strict():
            raise
        if loudness() == "verbose":
            import traceback

            say(traceback.format_exc(), err=True, nl=False)
        hint = f"(set {TRACEBACK}=1 to see where)"
        raise Failure(f"{culprit()}unexpected {one_line(failure)} {hint}", 3) from failure
