"""mamba_chunk_scan: Mamba-2's scan in chunks, of mamba-ssm. Dao and Gu 2024, Transformers are SSMs.

Checked against ``mamba_chunk_scan_combined`` of mamba-ssm 2.3.2.post1,
``mamba_ssm.ops.triton.ssd_combined``:

- x is (B, L, H, P), dt (B, L, H), A (H,), B and C (B, L, G, N): x · dt are values, B keys, C queries, dt ·
  A decays in the logarithm. One group of B and C serves H / G heads. Nothing is scaled, so C is.
- ``initial_states`` and the final states are (B, H, P, N), the features of values first, these in float32.
- ``cu_seqlens`` gives the last states of packed sequences, but there is one initial state for all. So
  packed sequences, each with a state of its own, are not given.
- dt multiplies x and A. So dt is -g, A is -1 and x is v / dt, which is timed; where g is 0, dt is 2^-40.
  Without decays dt is 1 and A is 0. v / dt is too large for float16.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.types.backend import Backend, Setup
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.steps import in_steps

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

CHUNK = 256
"""Steps at once, the default of the layer Mamba2."""
LEAST = 2.0**-40


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    function: Callable[..., Any] = mamba_chunk_scan_combined
    return function


def prepare(setup: Setup) -> Callable[..., Any]:
    """Return the function of the inputs of a case."""
    import torch

    case, function = setup.case, library_function()
    scale, device = case.D**-0.5, case.device
    rates = torch.full((case.H,), -1.0 if setup.rule.name == "gated" else 0.0, device=device)
    ones = torch.ones((case.B, case.Lq, case.H), device=device)

    def call(steps: dict[str, Tensor], state: Tensor, starts: None, slots: None) -> tuple[Tensor, Tensor]:
        q, k, v = (steps[name] for name in "qkv")
        dt = -steps["decay"].clamp(max=-LEAST) if "decay" in steps else ones
        x = (v / dt[..., None]).to(v.dtype) if "decay" in steps else v
        out, after = function(
            x, dt, rates, k, q * scale, CHUNK, initial_states=state.mT.contiguous(), return_final_states=True
        )
        return out, after.mT

    return in_steps(setup, call)


def supports(case: Case, rule: Rule) -> str | None:
    """Decline decays in half precision."""
    if rule.name == "gated" and case.dtype != "float32":
        return f"x is v / dt, which {case.dtype} would round: mamba-ssm is asked for decays in float32 alone"
    return None


def available(device: str) -> str | None:
    """Ask for a device, and for the arguments."""
    return needs_gpu("mamba-ssm") or cannot_call(library_function, "initial_states", "return_final_states")


MAMBA_CHUNK_SCAN = Backend(
    name="mamba_chunk_scan",
    summary="Mamba-2's scan in chunks, of the package mamba-ssm",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("recurrent",),
    rules=("linear", "gated"),
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cuda",),
    requires=("mamba_ssm",),
    forkable=False,
    # Triton tunes its kernels when they are first called.
    compiles=True,
    quadratic_copies=0,
)
