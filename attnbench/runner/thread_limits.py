"""Telling every library a worker may load how many threads it has, by the environment it starts with."""

from __future__ import annotations

_VARIABLES = (
    "OMP_NUM_THREADS",  # OpenMP: torch, scikit-learn, most compiled kernels
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",  # numpy's wheels
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",  # Accelerate on macOS
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",  # libraries written in Rust
    "PJRT_NPROC",  # JAX: the size of the CPU client's pool
    "NPROC",  # the same in older ones
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def thread_environment(threads: int) -> dict[str, str]:
    """The variables that give libraries ``threads`` threads.

    Some take it by no variable at all (ONNX Runtime and OpenVINO: an option of the session): there it's for
    the plugin, which finds the number in ``case.threads``.
    """
    return dict.fromkeys(_VARIABLES, str(threads))
