"""The number of threads of the libraries that are loaded in this process, for a while."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PREFIXES, _SUFFIXES = ("", "scipy_"), ("", "64_", "_64")


@contextmanager
def threads_set(threads: int) -> Iterator[None]:
    """torch and every OpenBLAS (NumPy's and SciPy's) use so many threads; as before at the end."""
    import torch

    of_torch, of_blas = torch.get_num_threads(), [(each, each.get()) for each in open_blas()]
    try:
        torch.set_num_threads(threads)
        for library, _ in of_blas:
            library.set(threads)
        yield
    finally:
        torch.set_num_threads(of_torch)
        for library, before in of_blas:
            library.set(before)


class OpenBlas:
    """One that is loaded, by its two functions."""

    def __init__(self, get: Any, set_: Any) -> None:
        self._get, self._set = get, set_

    def get(self) -> int:
        """Its number of threads."""
        return int(self._get())

    def set(self, threads: int) -> None:
        """Change it."""
        self._set(ctypes.c_int(threads))


def open_blas() -> list[OpenBlas]:
    """All that are loaded in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line.rpartition("/")[2]})
    return [found for path in paths if (found := _opened(path)) is not None]


def _opened(path: str) -> OpenBlas | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            get = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            set_ = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if get is not None and set_ is not None:
                return OpenBlas(get, set_)
    return None
