"""Memory in huge pages: nothing changes but what a fork costs, and it does no harm where there are none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from attnbench.worker.server import HUGE_BYTES, collapse_memory


def huge_kib() -> int:
    """What of this process's anonymous memory is in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def test_memory_is_collapsed_and_keeps_its_values() -> None:
    held = np.arange(4 * HUGE_BYTES, dtype=np.uint32)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # In a fork, so that no other test runs on huge pages.
        collapsed = collapse_memory()
        kept = bool((held == np.arange(4 * HUGE_BYTES, dtype=np.uint32)).all())
        os.write(writer, f"{collapsed} {int(kept)} {huge_kib()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    collapsed, kept, kib = (int(word) for word in os.read(reader, 100).split())
    os.close(reader)
    os.close(writer)
    assert kept == 1
    if collapsed == 0:
        pytest.skip("this kernel does not collapse memory on demand")
    # 32 MiB of the array, at the very least all but its ends.
    assert collapsed >= 14
    assert kib * 1024 >= 14 * HUGE_BYTES
