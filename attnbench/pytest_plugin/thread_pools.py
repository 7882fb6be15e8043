"""The threads of libraries in the process of the tests, which variables no longer reach.

A worker starts with ``OMP_NUM_THREADS`` and its like. Here NumPy and others are loaded before attnbench knows
the case, so their own functions set the number.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnbench.cases.memory import PROC, read

_OPENBLAS = tuple(
    (f"{start}openblas_get_num_threads{end}", f"{start}openblas_set_num_threads{end}")
    for start in ("", "scipy_")
    for end in ("", "_", "64_", "_64_", "_64")
)
_FUNCTIONS = {
    "openblas": _OPENBLAS,
    "blis": (("bli_thread_get_num_threads", "bli_thread_set_num_threads"),),
    "mkl_rt": (("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),),
    "omp": (("omp_get_max_threads", "omp_set_num_threads"),),
}
"""By a part of the name of a library's file: names of the functions that read and set its threads."""

_OTHERS_SHARE = 0.2
_OTHERS_S = 0.02
"""Beside the threads of the case, others may use this share of a test's CPU time, plus these seconds."""


def _pools() -> Iterator[tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer]]:
    """Yield the functions that read and set the threads of each known library in this process."""
    lines = read(PROC / "self" / "maps").splitlines()
    files = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "/" in line and ".so" in line)
    for file in files:
        known = [pairs for part, pairs in _FUNCTIONS.items() if part in Path(file).name.lower()]
        if not known:
            continue
        try:
            library = ctypes.CDLL(file, mode=os.RTLD_NOLOAD)
        except OSError:
            # Its file was removed since, or it is mapped without being loaded.
            continue
        for names in known[0]:
            if hasattr(library, names[0]) and hasattr(library, names[1]):
                yield library[names[0]], library[names[1]]
                break


@contextmanager
def limited_pools(threads: int) -> Iterator[None]:
    """Give ``threads`` threads to each BLAS and OpenMP that is loaded now; restore their numbers."""
    before = [(set_number, int(get_number())) for get_number, set_number in _pools()]
    for set_number, _ in before:
        set_number(threads)
    try:
        yield
    finally:
        for set_number, number in before:
            set_number(number)


@dataclass(frozen=True)
class Used:
    """Seconds so far: of the clock, and of CPU time of this thread and of all others."""

    wall_s: float
    own_s: float
    others_s: float


def used_so_far() -> Used:
    """Return the time that this process has used."""
    own = time.thread_time()
    return Used(time.perf_counter(), own, time.process_time() - own)


def too_many_threads(before: Used, after: Used, threads: int) -> str:
    """Say that more threads than a case has worked between two moments; "" otherwise."""
    wall, own = after.wall_s - before.wall_s, after.own_s - before.own_s
    others = after.others_s - before.others_s
    if others <= (threads - 1) * wall + _OTHERS_SHARE * own + _OTHERS_S:
        return ""
    allowed = "1 thread" if threads == 1 else f"{threads} threads"
    return (
        f"more threads worked than the case allows ({allowed}; others used {others:.2g} s of CPU time, "
        f"the test's own {own:.2g} s), so the time is not that of the case: set the variable of the library "
        "before pytest starts, or use attnbench run"
    )
