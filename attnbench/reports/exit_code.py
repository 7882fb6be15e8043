"""What a command that ran cases exits with."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attnbench.types.record import Record, Status

_FAILED: frozenset[Status] = frozenset({"crashed", "timeout", "out_of_memory", "error"})


def exit_code(records: Iterable[Record], named: Collection[str] = ()) -> int:
    """0 where all is fine, 1 where a check failed, 3 where something could not be measured.

    A wrong output outranks the rest. ``unsupported``, ``unavailable`` and ``suspect`` are fine, but for a
    backend in ``named``, one that the user asked for by name: it must be ``ok`` on some case.
    """
    records = tuple(records)
    statuses = {record.status for record in records}
    if "mismatch" in statuses:
        return 1
    present = {record.backend for record in records}
    ok = {record.backend for record in records if record.status == "ok"}
    return 3 if statuses & _FAILED or (set(named) & present) - ok else 0
