"""The protocol: what is alike in every run, and which timed processes are forked anew."""

from __future__ import annotations

from attnbench.types.backend import Backend
from attnbench.types.case import Case

LAUNCHES = 3
"""Preloaded servers that the sets of a run take turns with."""
STRETCHES = 2
"""Parts of a set, between which inputs are renewed."""
TURN_S = 0.0004
"""The time that one sample should last."""
WARM_S = 0.0002
"""The time of the untimed calls before a sample."""
ORACLE_FLOPS = 4e9
"""Above this cost of one draw in float64, the oracle computes a sample of the query rows."""
TIMED_DRAWS = 3
"""Secret draws that timed calls compute on."""

PROTOCOL: dict[str, int | float | bool] = {
    "launches": LAUNCHES,
    "stretches": STRETCHES,
    "turn_s": TURN_S,
    "warm_s": WARM_S,
    "oracle_flops": ORACLE_FLOPS,
    "timed_draws": TIMED_DRAWS,
    "pinned": True,
    "put_first": True,
    "shuffled": True,
    "balanced": True,
    "lockstep": True,
    "verified": True,
}
"""What the manifest of a run states beside its options.

All candidates run on the same core (pinned). They are preferred there to other processes if the system allows
it (put_first). They start in random order (shuffled). Their turns are in balanced random order (balanced),
one after the other (lockstep). Inputs are renewed while calls are timed, and outputs compared (verified).
"""


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
