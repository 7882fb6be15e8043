"""Call what plugins bring, guarded: a failure becomes words, and prints stay off stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attnbench.types.words import clean, one_line

TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""The variable of the environment that has imports and calls of hooks told on stderr."""


@contextmanager
def traced(what: str) -> Iterator[None]:
    """Tell what is done and how many milliseconds it took, where that is asked for."""
    if not os.environ.get(TRACE):
        yield
        return
    start, ended = time.perf_counter(), "raised"
    try:
        yield
        ended = "done"
    finally:
        ms = 1e3 * (time.perf_counter() - start)
        print(f"attnbench: trace: {what}: {ended} after {ms:.1f} ms", file=sys.stderr)  # noqa: T201


T = TypeVar("T")

STRICT = "ATTNBENCH_STRICT_PLUGINS"
"""The variable of the environment that has a plugin's failure raised where it happens."""


class Raised(Exception):  # noqa: N818
    """A plugin's function raised; the text says what, on one line."""


def strict() -> bool:
    """Whether a plugin's failure is to be raised where it happens."""
    return bool(os.environ.get(STRICT))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is done meanwhile, nothing is on stdout that wasn't, and relative paths mean what they did.

    What is printed goes to stderr: by Python, by libraries, and by processes that are started. What a library
    in C keeps in a buffer of its own comes out later, and where it likes.
    """
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as after:
        # The folder itself and not its name, which may lead elsewhere by then.
        with contextlib.suppress(OSError):
            folder = os.open(".", os.O_RDONLY)
            after.callback(os.close, folder)
            after.callback(os.fchdir, folder)
        _flush()
        # Where there is no stdout, or no stderr, there is nothing to mix up.
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


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of a plugin.

    Raises:
        Raised: for whatever it raises (``SystemExit`` included), but for Ctrl-C; with
            ``ATTNBENCH_STRICT_PLUGINS`` that itself is raised.
    """
    try:
        with undisturbed():
            return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if strict():
            raise
        raise Raised(one_line(failure)) from failure


def tell(fault: str) -> None:
    """Say on stderr what a plugin did wrong; the command or the run goes on."""
    print(f"attnbench: plugin {clean(fault)}", file=sys.stderr)  # noqa: T201
