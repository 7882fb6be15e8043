"""Calling what plugins bring, guarded: a failure becomes words, and what is printed stays off stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from attnbench.types.words import one_line

T = TypeVar("T")

STRICT = "ATTNBENCH_STRICT_PLUGINS"
"""The variable of the environment that has a plugin's failure raised where it happens."""


class Raised(Exception):  # noqa: N818
    """A plugin's function raised; the text says what, on one line."""


def strict() -> bool:
    """Whether a plugin's failure is to be raised where it happens."""
    return bool(os.environ.get(STRICT))


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of a plugin.

    Raises:
        Raised: for whatever it raises (``SystemExit`` included), but for Ctrl-C; with
            ``ATTNBENCH_STRICT_PLUGINS`` that itself is raised.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if strict():
            raise
        raise Raised(one_line(failure)) from failure


def tell(fault: str) -> None:
    """Say on stderr what a plugin did wrong; the command or the run goes on."""
    print(f"attnbench: plugin {fault}", file=sys.stderr)  # noqa: T201
