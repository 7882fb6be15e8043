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


_SLEEPING_SOON = {
    "GOMP_SPINCOUNT": "2000",  # torch's wheels; about 50 µs instead of about 8 ms
    "KMP_BLOCKTIME": "0",  # ms; the OpenMP of LLVM and Intel, 200 if nothing is said
    "OPENBLAS_THREAD_TIMEOUT": "17",  # 2**17 cycles, about 50 µs instead of about 100 ms
}


def sleep_environment() -> dict[str, str]:
    """The variables by which threads that have nothing to do sleep soon.

    Left alone they spin on, on the cores where the next contender takes its turn. They still spin from one
    operation of a call to the next.
    """
    return dict(_SLEEPING_SOON)


def thread_environment(threads: int) -> dict[str, str]:
    """The variables that give libraries ``threads`` threads.

    Some take it by no variable at all (ONNX Runtime and OpenVINO: an option of the session): there it's for
    the plugin, which finds the number in ``case.threads``.
    """
    return dict.fromkeys(_VARIABLES, str(threads))
