"""Constants of the protocol: which timed processes are forked anew, and how long others are kept."""

from __future__ import annotations

from attnbench.types.backend import Backend
from attnbench.types.case import Case


def can_be_forked(backend: Backend, case: Case) -> bool:
    """Whether a backend may be forked once it's prepared for a case.

    Never on a device: a fork of a process that has a context of the CUDA driver can't use it. Nor with
    several threads: a fork has only the one that forked, and libraries wait for the others. Nor where the
    backend says so itself. New templates take the place of what can't be forked; they come from the server,
    which has torch loaded and nothing else: no context and no work done.
    """
    return backend.forkable and case.device == "cpu" and case.threads == 1


LONG_WORKERS = 3
"""How many times a contender that can't be forked is started anew over a case."""


def kept_over(sets: int) -> int:
    """Over how many sets one after the other such a contender keeps its process."""
    return max(1, -(-sets // LONG_WORKERS))
