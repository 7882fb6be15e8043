"""Calls of a plugin's functions: failures become words, and what they print stays off stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from attnbench.types.errors import PluginFailed
from attnbench.types.words import clean, one_line

TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""The environment variable that prints imports and calls of hooks on stderr, with their times."""

STRICT = "ATTNBENCH_STRICT_PLUGINS"
"""The environment variable that lets exceptions of plugins through."""

T = TypeVar("T")


@contextmanager
def traced(what: str) -> Iterator[None]:
    """Where TRACE is set, print on stderr the action, its milliseconds, and the traceback of what it raises.

    Raises:
        PluginFailed: the code inside called ``os._exit``.
    """
    start, ended = time.perf_counter(), "raised"
    try:
        yield
        ended = "done"
    except Exited as end:
        raise PluginFailed(f"plugin {what}: {end}") from end
    except (Exception, SystemExit):
        if os.environ.get(TRACE):
            traceback.print_exc()
        raise
    finally:
        ms = 1e3 * (time.perf_counter() - start)
        if os.environ.get(TRACE):
            print(f"attnbench: trace: {what}: {ended} after {ms:.1f} ms", file=sys.stderr)  # noqa: T201


class Exited(SystemExit):
    """A plugin called ``os._exit`` in attnbench's own process."""


class Raised(Exception):  # noqa: N818
    """A plugin's function raised an exception; the text describes it on one line."""


def strict() -> bool:
    """Return whether exceptions of plugins are let through."""
    return bool(os.environ.get(STRICT))


@contextlib.contextmanager
def intact() -> Iterator[list[str]]:
    """Put back what other code in this process needs, and yield a list that afterwards says what was gone."""
    path, limit, gone = [*sys.path], sys.getrecursionlimit(), list[str]()
    try:
        yield gone
    finally:
        if sys.getrecursionlimit() < limit:
            sys.setrecursionlimit(limit)
            gone.append("lowers the recursion limit, which was put back")
        if not isinstance(sys.path, list) or any(folder not in sys.path for folder in path):
            sys.path = path
            gone.append("takes folders off sys.path, which were put back")


def _not_ending() -> Callable[[int], NoReturn]:
    """Return a function for ``os._exit`` that ends forks of this process, but not this process."""
    real, pid = os._exit, os.getpid()

    def ending(status: int) -> NoReturn:
        if os.getpid() != pid:
            real(status)
        raise Exited(f"called os._exit({status!r}), which would end the command without a word")

    return ending


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep stdout, the working folder and what :func:`intact` guards as they are, whatever is called inside.

    Prints of Python, of libraries and of child processes go to stderr. A C library that buffers its output
    may print it later, and elsewhere.
    """
    with intact(), contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as after:
        after.callback(setattr, os, "_exit", os._exit)
        os._exit = _not_ending()  # type: ignore[assignment]
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
        Exited: it called ``os._exit``; call this within :func:`traced`, which names it.
    """
    try:
        with undisturbed():
            return function(*args)
    except (KeyboardInterrupt, Exited):
        raise
    except BaseException as failure:
        if strict():
            raise
        raise Raised(one_line(failure)) from failure


def tell(fault: str) -> None:
    """Print a plugin's mistake on stderr; the command or the run goes on."""
    print(f"attnbench: plugin {clean(fault)}", file=sys.stderr)  # noqa: T201
