"""ONNX Runtime's attention operators on its CPU provider, as backends of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_onnxruntime.attention import ONNXRUNTIME_ATTENTION
from attnbench_onnxruntime.group_query_attention import ONNXRUNTIME_GQA, ONNXRUNTIME_GQA_CODES
from attnbench_onnxruntime.linear_attention import ONNXRUNTIME_LINEAR
from attnbench_onnxruntime.multi_head_attention import ONNXRUNTIME_MHA


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring three operators for attention, one of them also with codes, and the recurrence."""
    return (
        ONNXRUNTIME_MHA,
        ONNXRUNTIME_ATTENTION,
        ONNXRUNTIME_GQA,
        ONNXRUNTIME_GQA_CODES,
        ONNXRUNTIME_LINEAR,
    )
