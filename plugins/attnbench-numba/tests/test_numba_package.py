from __future__ import annotations

import subprocess
import sys

from attnbench_numba import NUMBA_ADDITIVE, NUMBA_TILED, attnbench_backends


def test_what_it_brings() -> None:
    assert tuple(attnbench_backends()) == (NUMBA_TILED, NUMBA_ADDITIVE)
    assert {backend.requires for backend in attnbench_backends()} == {("numba",)}


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, attnbench_numba; print(sorted({'numba', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
