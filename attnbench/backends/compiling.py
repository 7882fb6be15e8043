"""What the backends that compile share: whether there is a compiler, its settings, and when it runs."""

from __future__ import annotations

import os
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype
from attnbench.types.shapes import activation_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

PRECOMPILED_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
"""torch's own variable; 1 where many cases are compiled."""


def no_compiler(device: str) -> str | None:
    """Why torch.compile can't make code for a device on this machine, or None."""
    if device == "cuda":
        return None if find_spec("triton") else "torch.compile needs triton on CUDA, which is not installed"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler (g++, or the one CXX names), and there is none"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "torch.compile needs Python's C headers (Python.h), which are not installed"
    return None


def configure() -> None:
    """Settings of the compiler for a process that compiles one case and is then forked."""
    import torch._dynamo
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    # A pool of compilers would be threads and children that a fork doesn't have.
    inductor.compile_threads = 1
    # Otherwise a trial program is compiled to see whether the CPU's vectors work: seconds, the same code.
    inductor.cpp.vec_isa_ok = True
    # They take ten seconds and 150 MB to make, and save three seconds a kernel: a case has one or two.
    if PRECOMPILED_HEADERS not in os.environ:
        inductor.cpp_cache_precompile_headers = False
    # A compiled backward may otherwise write over what the forward saved, and then runs only once a forward.
    functorch.donated_buffer = False
    # Shapes of a case that was compiled before in this process would count towards Dynamo's limit.
    torch._dynamo.reset()


def compile_now(call: Call, setup: Setup) -> Call:
    """Call it once on zeros of the case's shapes, so that preparation compiles and not the first call.

    The backward as well, where the case has one: it is compiled when it first runs.
    """
    import torch

    inputs = example_inputs(setup)
    if setup.case.pass_ == "forward":
        call(*inputs)
        return call
    distinct = {id(x): x.requires_grad_() for x in inputs}
    leaves = (*distinct.values(), *setup.rule_parameters.values(), *setup.projections.values())
    out = call(*inputs)
    torch.autograd.grad(out, leaves, torch.zeros_like(out))
    return call


def example_inputs(setup: Setup) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros in the shapes of the case, one tensor where a case has one source: Dynamo tells these apart."""
    import torch

    case = setup.case
    shapes = activation_shapes(case, setup.rule)
    a, b, c = (torch.zeros(shape, dtype=case_dtype(case), device=case.device) for shape in shapes)
    if case.is_self_attention:
        return a, a, a
    if case.layer is not None and shapes[1] == shapes[2]:
        return a, b, b
    return a, b, c
