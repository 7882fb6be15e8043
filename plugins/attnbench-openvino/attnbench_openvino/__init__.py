"""OpenVINO's ScaledDotProductAttention on its CPU device, as backends of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_openvino.backends import OPENVINO, OPENVINO_BF16, OPENVINO_BF16_HINT


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the backends, the one in float32 first."""
    return (OPENVINO, OPENVINO_BF16, OPENVINO_BF16_HINT)
