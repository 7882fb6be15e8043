"""ggml's C functions by ctypes: a graph of one operator that computes on the memory of torch's tensors.

Nothing here knows which operator it is. Tensors are numbers, or blocks of codes as ggml has them. A graph is
built once, in preparation; a call writes addresses into its tensors and computes. ggml ends the process where
a shape is wrong (``GGML_ASSERT``), so callers ask only what it takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS = {"torch.float32": 0, "torch.float16": 1, "torch.int32": 26, "torch.bfloat16": 30}
"""ggml's types of numbers, by torch's."""

BLOCKS = {"q4_0": (2, 18), "q5_1": (7, 24), "q8_0": (8, 34)}
"""ggml's types of blocks, and the bytes of one. A block has 32 numbers of a row."""
NUMBERS_OF_BLOCK = 32

_OBJECT_BYTES = 32
"""Of what a context holds before each tensor: an offset, a size, a pointer, and a type."""
_CONTEXT_BYTES = 1 << 20
"""A context holds tensors without their numbers, and one graph."""


class GgmlTensor(ctypes.Structure):
    """``struct ggml_tensor`` of ``ggml.h``. ne counts elements from the innermost axis, nb are bytes."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
        ("extra", c_void_p),
        ("padding", c_char * 8),
    )


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", ctypes.c_bool))


class _Plan(ctypes.Structure):
    _fields_ = (
        ("work_size", c_size_t),
        ("work_data", c_void_p),
        ("n_threads", c_int),
        ("threadpool", c_void_p),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("use_ref", ctypes.c_bool),
    )


Pointer = Any
"""A ctypes pointer to a :class:`GgmlTensor`."""


@cache
def libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Load ggml, once in a process, and return its functions for graphs and those that compute."""
    import libggml

    folder = Path(libggml.__path__[0]) / "lib64"
    base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
    base.ggml_init.restype, base.ggml_init.argtypes = c_void_p, [_InitParams]
    base.ggml_free.restype, base.ggml_free.argtypes = None, [c_void_p]
    base.ggml_new_tensor_4d.restype = POINTER(GgmlTensor)
    base.ggml_new_tensor_4d.argtypes = [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]
    base.ggml_new_graph.restype, base.ggml_new_graph.argtypes = c_void_p, [c_void_p]
    base.ggml_build_forward_expand.restype = None
    base.ggml_build_forward_expand.argtypes = [c_void_p, POINTER(GgmlTensor)]
    base.ggml_tensor_overhead.restype = c_size_t
    cpu.ggml_graph_plan.restype, cpu.ggml_graph_plan.argtypes = _Plan, [c_void_p, c_int, c_void_p]
    cpu.ggml_graph_compute.restype, cpu.ggml_graph_compute.argtypes = c_int, [c_void_p, POINTER(_Plan)]
    cpu.ggml_cpu_init.restype = None
    cpu.ggml_cpu_init()
    return base, cpu


def other_layout(device: str) -> str | None:
    """Return why this ggml can't be called from here, or None."""
    base, _ = libraries()
    held = base.ggml_tensor_overhead() - _OBJECT_BYTES
    if held != ctypes.sizeof(GgmlTensor):
        return f"this ggml has tensors of {held} bytes, where {ctypes.sizeof(GgmlTensor)} are known"
    return None


class Graph:
    """A graph of one operator.

    inputs: the tensors that it reads, in the order of :meth:`add`. output: the tensor that it writes.
    """

    def __init__(self) -> None:
        self._base, self._cpu = libraries()
        self._context = self._base.ggml_init(_InitParams(_CONTEXT_BYTES, None, True))
        self.inputs: list[Pointer] = []
        self.output: Pointer = None

    def add(self, like: Tensor, blocks: str = "") -> Pointer:
        """Add an input with the shape, the strides and the type of a tensor of up to four axes.

        blocks: the name of ggml's type where the tensor is bytes, its last axis the blocks of a row.
        """
        last = like.shape[-1]
        if blocks:
            kind, innermost = BLOCKS[blocks]
            last = last // innermost * NUMBERS_OF_BLOCK
        else:
            kind, innermost = NUMBERS[str(like.dtype)], like.stride(-1) * like.element_size()
        shape = (1,) * (4 - like.ndim) + (*like.shape[:-1], last)
        made = self._base.ggml_new_tensor_4d(self._context, kind, *reversed(shape))
        strides = (like.stride(0) * like.shape[0],) * (4 - like.ndim) + like.stride()[:-1]
        for axis, stride in enumerate(reversed(strides), start=1):
            made.contents.nb[axis] = stride * like.element_size()
        made.contents.nb[0] = innermost
        self.inputs.append(made)
        return made

    def operate(
        self, operator: str, tensors: Sequence[Pointer | None], numbers: Sequence[int | float]
    ) -> None:
        """Let an operator compute from inputs, None for one that is not given, and from numbers."""
        build = getattr(self._base, operator)
        kinds = [c_float if isinstance(number, float) else c_int64 for number in numbers]
        build.restype = POINTER(GgmlTensor)
        build.argtypes = [c_void_p, *[POINTER(GgmlTensor)] * len(tensors), *kinds]
        self.output = build(self._context, *tensors, *numbers)

    def give(self, function: str, tensor: Pointer) -> None:
        """Give the operator one more input by a function of its own."""
        give = getattr(self._base, function)
        give.restype, give.argtypes = None, [POINTER(GgmlTensor)] * 2
        give(self.output, tensor)

    def finish(self, threads: int) -> None:
        """Plan the operator's work in so many threads."""
        import torch

        self._graph = self._base.ggml_new_graph(self._context)
        self._base.ggml_build_forward_expand(self._graph, self.output)
        self._plan = self._cpu.ggml_graph_plan(self._graph, threads, None)
        self._work = torch.empty(max(1, self._plan.work_size), dtype=torch.uint8)
        self._plan.work_data = self._work.data_ptr()

    @property
    def output_elements(self) -> int:
        """The numbers that the operator writes."""
        count = 1
        for size in self.output.contents.ne:
            count *= size
        return count

    def compute(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return what the operator writes, in one axis; tensors lie as those that were added."""
        import torch

        out = torch.empty(self.output_elements, dtype=torch.float32)
        for made, tensor in zip(self.inputs, tensors, strict=True):
            made.contents.data = tensor.data_ptr()
        self.output.contents.data = out.data_ptr()
        status = self._cpu.ggml_graph_compute(self._graph, ctypes.byref(self._plan))
        if status:
            raise RuntimeError(f"ggml computes nothing: its status is {status}")
        return out

    def __del__(self) -> None:
        self._base.ggml_free(self._context)
