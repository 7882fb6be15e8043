from __future__ import annotations

import subprocess
import sys

from attnbench_jax import JAX_DOT_PRODUCT_ATTENTION, JAX_TILED, attnbench_backends


def test_what_it_brings() -> None:
    assert tuple(attnbench_backends()) == (JAX_DOT_PRODUCT_ATTENTION, JAX_TILED)
    for backend in attnbench_backends():
        assert backend.requires == ("jax", "jaxlib")
        assert not backend.forkable
        assert backend.layout == "BLHD"


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, attnbench_jax; print(sorted({'jax', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
