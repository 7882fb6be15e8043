"""quantize_row_q8_0, quantize_row_q4_0 and quantize_row_q5_1: ggml's writers of blocks, from float32."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup
from attnbench.types.encoding import encoding_name
from attnbench_ggml.graph import BLOCKS, NUMBERS_OF_BLOCK, libraries, other_layout

if TYPE_CHECKING:
    from torch import Tensor


def prepare(setup: Setup) -> Callable[..., Any]:
    """Return ggml's function of rows as one of k and v."""
    import torch

    name = encoding_name(setup.case)
    _, size = BLOCKS[name]
    write = getattr(libraries()[1], f"quantize_row_{name}")
    write.restype, write.argtypes = None, [c_void_p, c_void_p, c_int64]

    def blocks(x: Tensor) -> Tensor:
        numbers = x.float().contiguous()
        written = torch.empty(*x.shape[:3], x.shape[3] // NUMBERS_OF_BLOCK * size, dtype=torch.uint8)
        write(numbers.data_ptr(), written.data_ptr(), numbers.numel())
        return written

    return lambda k, v: (blocks(k), blocks(v))


GGML_QUANTISE_ROW = Backend(
    name="ggml_quantise_row",
    summary="ggml's blocks of q8_0, q4_0 and q5_1 from float32",
    prepare=prepare,
    available=other_layout,
    operations=("quantise",),
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cpu",),
    encodings=("q8_0", "q4_0", "q5_1"),
    requires=("libggml",),
    needs_contiguous=True,
    quadratic_copies=0,
)
