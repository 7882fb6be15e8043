"""The protocol: constants of every run, and the rule which timed processes are forked anew."""

from __future__ import annotations

from attnbench.types.backend import Backend
from attnbench.types.case import Case

LAUNCHES = 3
"""Preloaded servers; the repetitions of a run take turns among them."""
SEGMENTS = 2
"""Parts of a repetition; inputs are refreshed between them."""
SAMPLE_S = 0.0004
"""The time that one sample should last."""
WARM_S = 0.0002
"""The time of the untimed calls before a sample."""
ORACLE_FLOPS = 4e9
"""Above this cost of one draw in float64, the oracle computes a sample of the query rows."""
TIMED_DRAWS = 3
"""Secret draws that timed calls compute on."""

PROTOCOL: dict[str, int | float | bool] = {
    "launches": LAUNCHES,
    "segments": SEGMENTS,
    "sample_s": SAMPLE_S,
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
"""The part of a run's manifest that no option changes.

All candidates run on the same core (pinned). They are preferred there to other processes if the system allows
it (put_first). They start in random order (shuffled). Their slots are in balanced random order (balanced),
one after the other (lockstep). Inputs are refreshed while calls are timed, and outputs compared (verified).
"""


def can_be_forked(backend: Backend, case: Case) -> bool:
    """Return whether a backend may be forked once it is prepared for a case.

    A fork can't use a context of the CUDA driver, so never on a device. A fork has only the thread that
    forked, and libraries would wait for the others, so never with several threads. A backend may also forbid
    it. Instead of such a fork, a new worker comes from the server, which has loaded torch and done no work.
    """
    return backend.forkable and case.on_host and case.threads == 1


LONG_WORKERS = 3
"""Times that a candidate that can't be forked is started anew over a case."""


def kept_over(repetitions: int) -> int:
    """Return the number of consecutive repetitions for which such a candidate keeps its process."""
    return max(1, -(-repetitions // LONG_WORKERS))
