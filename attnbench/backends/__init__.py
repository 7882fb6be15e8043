"""The backends that come with attnbench: a plugin like any other. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.backends.bmm import BMM
from attnbench.backends.chunked import CHUNKED
from attnbench.backends.compiled import COMPILED
from attnbench.backends.eager import EAGER
from attnbench.backends.flex import FLEX
from attnbench.backends.fused_additive import FUSED_ADDITIVE
from attnbench.backends.fused_multihead import FUSED_MULTIHEAD
from attnbench.backends.nn_multihead_attention import NN_MULTIHEAD_ATTENTION
from attnbench.backends.numpy import NUMPY
from attnbench.backends.per_head_loop import PER_HEAD_LOOP
from attnbench.backends.sdpa_cudnn import SDPA_CUDNN
from attnbench.backends.sdpa_efficient import SDPA_EFFICIENT
from attnbench.backends.sdpa_flash import SDPA_FLASH
from attnbench.backends.sdpa_math import SDPA_MATH
from attnbench.backends.weighted_sum import WEIGHTED_SUM
from attnbench.hookspecs import hookimpl
from attnbench.types.backend import Backend


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """The baseline first; of torch's kernels first the one most people mean."""
    return (
        EAGER,
        SDPA_FLASH,
        SDPA_MATH,
        SDPA_EFFICIENT,
        SDPA_CUDNN,
        BMM,
        WEIGHTED_SUM,
        PER_HEAD_LOOP,
        FUSED_MULTIHEAD,
        NN_MULTIHEAD_ATTENTION,
        CHUNKED,
        FUSED_ADDITIVE,
        FLEX,
        COMPILED,
        NUMPY,
    )
