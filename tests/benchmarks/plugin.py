"""Print the cost of the pytest plugin: of a call of its fixture, and of a session that doesn't use it.

Usage: python tests/benchmarks/plugin.py    (with attnbench installed, so that pytest finds the plugin)
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import distributions
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

# Before any library starts its threads, as in a worker.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

PAIRS, SESSIONS = 100, 20
COMMAND = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]


def no_op(a: Any, b: Any, c: Any) -> None:
    """What a backend would be that does nothing."""


def loop_ns(call: Callable[[], Any], calls: int) -> float:
    """Per call."""
    times = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in times:
        call()
    return (time.perf_counter_ns() - start) / calls


def fixture_ns() -> None:
    """Print how much longer a call of the fixture takes than a bare one, in alternation."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from attnbench.pytest_plugin.checked_test import CheckedBackend

    torch.set_num_threads(1)
    with torch.inference_mode():
        for words, kernel, length, calls in (
            ("nothing", no_op, 1, 20_000),
            ("attention of 2 heads of 16 over 32", scaled_dot_product_attention, 32, 200),
            ("attention of 2 heads of 16 over 256", scaled_dot_product_attention, 256, 10),
        ):
            inputs = q, k, v = tuple(torch.randn(1, 2, length, 16) for _ in range(3))
            # As it is after its preparation.
            seen = CheckedBackend.__new__(CheckedBackend)
            seen.inputs, seen._kernel, seen.calls = inputs, kernel, 0
            pairs = []
            for _ in range(PAIRS):
                bare = loop_ns(lambda kernel=kernel, q=q, k=k, v=v: kernel(q, k, v), calls)
                pairs.append((bare, loop_ns(seen, calls)))
            differences = sorted(after - before for before, after in pairs)
            print(
                f"{words}: {median(bare for bare, _ in pairs):.0f} ns a call through a lambda; the fixture "
                f"{median(differences):+.0f} ns (middle half {differences[PAIRS // 4]:+.0f} to "
                f"{differences[3 * PAIRS // 4]:+.0f})"
            )


def session_ms(folder: Path, *words: str) -> float:
    """The CPU time of a session that collects one test, which others on the machine lengthen least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def import_us() -> float:
    """What the interpreter says that importing the plugin takes, attnbench's own module included, us."""
    command = [sys.executable, "-X", "importtime", "-c", "import pytest, attnbench.pytest_plugin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"(\d+) \|\s+attnbench(?:\.pytest_plugin)?$", done.stderr, re.MULTILINE)
    # The one is imported by the other, and counted with it.
    return max(map(float, found))


def listing_ms() -> tuple[int, float]:
    """How many files attnbench is installed with, and how long pytest takes to go through them.

    It does so for every distribution that brings a plugin, to know which modules have asserts to rewrite.
    """
    from _pytest.config import _iter_rewritable_modules

    (ours, *_) = (each for each in distributions() if each.name == "attnbench")
    times = []
    for _ in range(SESSIONS):
        begin = time.perf_counter()
        list(_iter_rewritable_modules([str(file) for file in ours.files or []]))
        times.append((time.perf_counter() - begin) * 1e3)
    return len(ours.files or []), median(times)


def main() -> None:
    """Measure and print."""
    fixture_ns()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "test_one.py").write_text("def test_one(): pass\n")
        pairs = [(session_ms(folder, "-p", "no:attnbench"), session_ms(folder)) for _ in range(SESSIONS)]
    differences = sorted(after - before for before, after in pairs)
    print(
        f"a session that doesn't use it, CPU time: {median(before for before, _ in pairs):.0f} ms without, "
        f"{median(differences):+.2f} ms with (middle half {differences[SESSIONS // 4]:+.2f} to "
        f"{differences[3 * SESSIONS // 4]:+.2f})"
    )
    imports = [import_us() / 1e3 for _ in range(SESSIONS)]
    files, took_ms = listing_ms()
    print(
        f"of that importing it {median(imports):.2f} ms (least {min(imports):.2f}), going through the "
        f"names of its {files} files {took_ms:.2f} ms"
    )


if __name__ == "__main__":
    main()
