"""compiled: torch.compile of ``eager``, kept from being turned into scaled_dot_product_attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.backends.compiling import compile_now, configure, no_compiler
from attnbench.kit.attention import attention
from attnbench.kit.layer import for_operation
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """The function of ``eager``, the layer around it included, compiled for the case's shapes."""
    import torch

    configure()
    # Scaled scores become part of the softmax's loop; scaled queries would be a kernel of their own.
    function = for_operation(attention(setup, scale_queries=False), setup)
    # With its pattern matcher on, the compiler finds the attention in ``eager`` and calls torch's own.
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
    dropout=True,
)
