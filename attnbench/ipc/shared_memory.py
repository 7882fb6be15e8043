"""Arrays in anonymous shared memory, so that nothing is left behind however a process ends."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.ipc.messages import ArraySpec

Stored = NDArray[Any]

_STORAGE = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16,
    "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64, "bool": np.bool_,
}  # fmt: skip
_ALIGN_BYTES = 64


def anonymous_file() -> int:
    """Return a descriptor of memory without a name."""
    return os.memfd_create("attnbench", os.MFD_CLOEXEC)


def write(fd: int, at: int, array: Stored) -> int:
    """Write an array into a descriptor from the offset ``at`` on; return the aligned end.

    An empty array has a place of its own too, since arrays of one place are one array.
    """
    least = at + 1
    remaining = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    while remaining:
        count = os.pwrite(fd, remaining, at)
        remaining, at = remaining[count:], at + count
    return -(-max(at, least) // _ALIGN_BYTES) * _ALIGN_BYTES


def pack(arrays: Mapping[str, Stored], dtype: str) -> tuple[int, tuple[ArraySpec, ...]]:
    """Copy storage arrays into anonymous memory; return a descriptor to read it by, and the layout.

    dtype: that of the case, which all arrays have except integers and booleans. One array under several names
    is stored once, and read as one array.
    """
    fd, end = anonymous_file(), 0
    specs: list[ArraySpec] = []
    placed: dict[int, int] = {}
    for name, array in arrays.items():
        if id(array) not in placed:
            placed[id(array)] = end
            end = write(fd, end, array)
        kind = dtype if array.dtype == _STORAGE[dtype] else array.dtype.name
        specs.append(ArraySpec(name, kind, tuple(array.shape), placed[id(array)]))
    # One worker must not change the inputs of another. A seal against writing does as much, but the kernel
    # refuses it now and then, while pages are in use.
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    return read_only, tuple(specs)


def unpack(fd: int, specs: Iterable[ArraySpec]) -> dict[str, Stored]:
    """Return copies of the arrays in the descriptor, which stays open; equal offsets give one array.

    Raises:
        ValueError: the memory is smaller than the layout says, or has an unknown dtype.
    """
    views = mapped(fd, specs)
    copies = {id(view): view.copy() for view in views.values()}
    return {name: copies[id(view)] for name, view in views.items()}


def mapped(fd: int, specs: Iterable[ArraySpec]) -> dict[str, Stored]:
    """Return the arrays as :func:`unpack`, without a copy, from memory that :func:`pack` has filled.

    Writes to the arrays stay in this process. The memory is freed with the last array.
    """
    specs = tuple(specs)
    if not specs:
        return {}
    memory = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    by_offset: dict[int, Stored] = {}
    for spec in specs:
        if spec.offset not in by_offset:
            if spec.dtype not in _STORAGE:
                raise ValueError(f"no storage for {spec.dtype!r}")
            count = int(np.prod(spec.shape, dtype=np.int64))
            kind = _STORAGE[spec.dtype]
            # The place of an empty array may lie behind the end of the memory.
            view: Stored = np.frombuffer(memory, kind, count, spec.offset) if count else np.empty(0, kind)
            by_offset[spec.offset] = view.reshape(spec.shape)
    return {spec.name: by_offset[spec.offset] for spec in specs}
