"""A plugin that would end the process while it is loaded: without a word, and perhaps with status 0."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def staying() -> Iterator[None]:
    """Inside, ``os._exit`` of this thread raises :class:`SystemExit`, as ``sys.exit`` does.

    Forks and other threads end as they want, and so does whoever keeps the function for later. Code in C that
    ends the process can't be held up; nor can a signal, whose status isn't 0.
    """
    end, mine, inside = os._exit, (os.getpid(), threading.get_ident()), True

    def stay(status: int) -> NoReturn:
        if inside and (os.getpid(), threading.get_ident()) == mine:
            raise SystemExit(f"os._exit({status!r})")
        end(status)

    os._exit = stay
    try:
        yield
    finally:
        inside = False
        if os._exit is stay:
            os._exit = end
