"""compiled: torch.compile of ``eager``; and torch.compile's settings, which ``flex`` shares."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.kit.attention import attention
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.layer import for_operation
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench.types.problem import call_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

PRECOMPILED_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
"""An environment variable of torch; set it to 1 where one process compiles many cases."""


def no_compiler(device: str) -> str | None:
    """Return why torch.compile can't compile for a device on this machine, or None."""
    if device == "cuda":
        return None if find_spec("triton") else "torch.compile on CUDA needs triton, which is not installed"
    # Here, since every worker imports this file, and few compile.
    import sysconfig

    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler, and none was found; install g++ or set CXX"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "torch.compile needs Python's C headers (Python.h), and they are not installed"
    return None


def configure() -> None:
    """Set up the compiler for a process that compiles one case and is then forked."""
    import torch._dynamo
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    # A pool of compilers has threads and children, which a fork does not inherit.
    set_if_known(inductor, "compile_threads", 1)
    # Otherwise torch compiles a program to test the CPU's vector instructions: seconds for the same code.
    set_if_known(inductor.cpp, "vec_isa_ok", True)
    # Precompiled headers take ten seconds and 150 MB and save three seconds a kernel; a case has one or two.
    if PRECOMPILED_HEADERS not in os.environ:
        set_if_known(inductor, "cpp_cache_precompile_headers", False)
    # Otherwise a compiled backward may overwrite what the forward saved, and can then run only once.
    set_if_known(functorch, "donated_buffer", False)
    # Cases that this process compiled before would count towards Dynamo's limit of recompilations.
    torch._dynamo.reset()


def set_if_known(settings: Any, name: str, value: object) -> None:
    """Change a setting of torch, or leave it alone where this version of torch has none of that name.

    settings: one of torch's modules of settings, which refuse a name that they don't know.
    """
    if hasattr(settings, name):
        setattr(settings, name, value)


def compile_now(call: Call, setup: Setup) -> Call:
    """Call the function once on zeros of the case's shapes, so that preparation compiles it.

    Where the case has a backward pass, that runs as well: torch compiles it when it first runs.
    """
    import torch

    inputs = example_inputs(setup)
    if setup.case.pass_ == "forward":
        call(*inputs)
        return call
    distinct = {id(x): x.requires_grad_() for x in inputs}
    leaves = (*distinct.values(), *setup.parameters)
    out = call(*inputs)
    torch.autograd.grad(out, leaves, torch.zeros_like(out))
    return call


def example_inputs(setup: Setup) -> tuple[Tensor, ...]:
    """Make zeros in the shapes of the case; one source is one tensor, since Dynamo compiles for that."""
    import torch

    case = setup.case
    specs = call_inputs(case, setup.rule)
    made = {
        spec.tensor: torch.zeros(spec.shape, dtype=case_dtype(case), device=case.device) for spec in specs
    }
    return tuple(made[spec.tensor] for spec in specs)


def prepare(setup: Setup) -> Call:
    """Compile the function of ``eager``, with the layer around it, for the case's shapes."""
    import torch

    configure()
    # The compiler fuses scaled scores into the softmax; scaled queries would need a kernel of their own.
    function = for_operation(attention(setup, scale_queries=False), setup)
    # With its pattern matcher on, the compiler would replace ``eager`` by scaled_dot_product_attention.
    compiled: Call = torch.compile(
        function, fullgraph=True, dynamic=False, options={"pattern_matcher": False}
    )
    return compile_now(compiled, setup)


COMPILED = Backend(
    name="compiled",
    summary="torch.compile of eager, kept from being rewritten to SDPA",
    prepare=prepare,
    available=no_compiler,
    operations=("attention", "multihead"),
    passes=PASSES,
    compiles=True,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
