"""The kernels compile for GPUs, by ``compile_kernels.py``: a process without the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parent / "compile_kernels.py"


def compiled(tmp_path: Path, *words: str) -> str:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    # Triton's own parser is deprecated in Python 3.13.
    strict = ("-W", "error", "-W", "default::DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *strict, str(COMMAND), *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_forward_kernel_compiles_under_the_name_of_its_blocks(tmp_path: Path) -> None:
    (line,) = compiled(tmp_path, "90", "attention/scaled_dot/H2-L256-D64/causal/float16").splitlines()
    assert line.startswith("triton_forward_128x64_4w_3s attention/scaled_dot/H2-L256-D64/causal/float16: ")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["features", "all"])
@pytest.mark.parametrize("architecture", ["80", "90"])
def test_all_kernels_compile_and_fit_shared_memory(tmp_path: Path, architecture: str, which: str) -> None:
    found = compiled(tmp_path, architecture, which)
    for kernel in ("forward", "decode", "merge", "backward_q", "backward_kv"):
        assert f"triton_{kernel}" in found
