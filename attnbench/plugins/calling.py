"""Calls of a plugin's functions: failures become words, and what they print stays off stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attnbench.types.words import clean, one_line

TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""The environment variable that prints imports and calls of hooks on stderr, with their times."""

STRICT = "ATTNBENCH_STRICT_PLUGINS"
"""The environment variable that lets exceptions of plugins through."""

T = TypeVar("T")


@contextmanager
def traced(what: str) -> Iterator[None]:
    """Where TRACE is set, print an action, its milliseconds and the traceback of a failure on stderr."""
    start, ended = time.perf_counter(), "raised"
    try:
        yield
        ended = "done"
    except (Exception, SystemExit):
        if os.environ.get(TRACE):
            traceback.print_exc()
        raise
    finally:
        ms = 1e3 * (time.perf_counter() - start)
        if os.environ.get(TRACE):
            print(f"attnbench: trace: {what}: {ended} after {ms:.1f} ms", file=sys.stderr)  # noqa: T201


class Raised(Exception):  # noqa: N818
    """A plugin's function raised an exception; the text describes it on one line."""


def strict() -> bool:
    """Return whether exceptions of plugins are let through."""
    return bool(os.environ.get(STRICT))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep stdout and the working folder as they are, whatever is called inside.

    Prints of Python, of libraries and of child processes go to stderr. A C library that buffers its output
    may print it later, and elsewhere.
    """
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as after:
        # A descriptor of the folder, because its name may lead elsewhere afterwards.
        with contextlib.suppress(OSError):
            folder = os.open(".", os.O_RDONLY)
            after.callback(os.close, folder)
            after.callback(os.fchdir, folder)
        _flush()
        # A closed stdout or stderr needs no protection.
        with contextlib.suppress(OSError):
            kept = os.dup(1)
            after.callback(os.close, kept)
            os.dup2(2, 1)
            after.callback(os.dup2, kept, 1)
            after.callback(_flush)
        yield


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.__stdout__.flush()  # type: ignore[union-attr]


def call(function: Callable[..., T], *args: Any) -> T:
    """Call a function of a plugin.

    Raises:
        Raised: it raised anything but ``KeyboardInterrupt``, ``SystemExit`` included. With
            ``ATTNBENCH_STRICT_PLUGINS`` its own exception is raised.
    """
    try:
        with undisturbed():
            return function(*args)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if strict():
            raise
        raise Raised(one_line(failure)) from failure


def tell(fault: str) -> None:
    """Print a plugin's mistake on stderr; the command or the run goes on."""
    print(f"attnbench: plugin {clean(fault)}", file=sys.stderr)  # noqa: T201
