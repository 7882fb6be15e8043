"""What a command that ran cases exits with."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attnbench.types.record import Record, Status

_FAILED: frozenset[Status] = frozenset({"crashed", "timeout", "out_of_memory", "error"})
_EXCUSED: frozenset[Status] = frozenset({"unsupported", "unavailable", "suspect"})


def exit_code(records: Iterable[Record], named: Collection[str] = ()) -> int:
    """0 where all is fine, 1 where a check failed, 3 where something could not be measured.

    A wrong output outranks the rest. ``unsupported``, ``unavailable`` and ``suspect`` are fine unless their
    backend is one of ``named``, those that the user asked for by name.
    """
    code = 0
    for record in records:
        if record.status == "mismatch":
            return 1
        if record.status in _FAILED or (record.status in _EXCUSED and record.backend in named):
            code = 3
    return code
