"""Arrays on their way to another process: nobody who gets them can change them for others."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from attnbench.ipc.shared_memory import mapped, pack, unpack


def test_packed_arrays_are_read_and_never_written() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    fd, specs = pack({"q": array, "again": array}, "float32")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(fd, b"1234", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    mine = mapped(fd, specs)
    mine["q"][0, 0] = 7
    assert mine["again"][0, 0] == 7
    np.testing.assert_array_equal(unpack(fd, specs)["q"], array)
    os.close(fd)
