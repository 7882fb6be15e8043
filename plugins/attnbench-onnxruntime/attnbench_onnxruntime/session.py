"""A model of one node, and a session that runs it on the memory of torch's tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from onnx import NodeProto, ValueInfoProto
    from onnxruntime import InferenceSession
    from torch import Tensor

    from attnbench.types.backend import Call

Shapes = Mapping[str, tuple[int, ...]]

NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
OPSET, CONTRIB = 23, "com.microsoft"
"""The first opset in which Attention is an operator; and the domain of ONNX Runtime's own operators."""


def model_of(
    node: NodeProto,
    inputs: Shapes,
    outputs: Shapes,
    dtype: torch.dtype,
    others: Mapping[str, torch.dtype] | None = None,
) -> bytes:
    """A model of one node whose shapes are all known, by name. others: of tensors that have another dtype."""
    from onnx import TensorProto, helper

    def info(name: str, shape: tuple[int, ...]) -> ValueInfoProto:
        kind = getattr(TensorProto, _onnx_name((others or {}).get(name, dtype)))
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        [node],
        "attention",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name, shape) for name, shape in outputs.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    # The oldest format of files that has this opset: onnx writes newer ones than onnxruntime reads.
    format_ = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=format_)
    content: bytes = model.SerializeToString()
    return content


def imported() -> ModuleType:
    """onnxruntime, told before it begins to send nothing home.

    Since 1.29 its wheels for Linux keep a thread and a database for that, from the import on. The variable
    is read there and then, and is as it was afterwards: a backend leaves the environment alone.
    """
    before = os.environ.get(NO_TELEMETRY)
    os.environ[NO_TELEMETRY] = "1"
    try:
        onnxruntime = import_module("onnxruntime")
    finally:
        if before is None:
            del os.environ[NO_TELEMETRY]
        else:
            os.environ[NO_TELEMETRY] = before
    onnxruntime.disable_telemetry_events()  # for one that somebody else had imported
    return onnxruntime


def open_session(model: bytes, threads: int) -> InferenceSession:
    """A session with as many threads as are asked for, the caller's among them, that wait without spinning.

    With one thread there is no pool at all.
    """
    onnxruntime = imported()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    session: InferenceSession = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return session


def bound(
    session: InferenceSession,
    inputs: Shapes,
    output: tuple[int, ...],
    dtype: torch.dtype,
    added: Tensor | None,
) -> Call:
    """The session as a function of contiguous q, k and v of the shapes given; nothing is copied.

    added: what is bound once, under that name: it is the same in every call.
    """
    import torch

    binding = session.io_binding()
    kind = numpy_type(dtype)
    shapes = tuple(inputs[name] for name in ("q", "k", "v"))
    if added is not None:
        binding.bind_input("added", "cpu", 0, kind, inputs["added"], added.data_ptr())

    def call(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = added) -> Tensor:
        # ``added`` is a default so that its memory lives as long as what reads it.
        out = torch.empty(output, dtype=dtype)
        for name, shape, x in zip(("q", "k", "v"), shapes, (q, k, v), strict=True):
            binding.bind_input(name, "cpu", 0, kind, shape, x.data_ptr())
        binding.bind_output("out", "cpu", 0, kind, output, out.data_ptr())
        session.run_with_iobinding(binding)
        return out

    return call


def bound_by_name(
    session: InferenceSession, inputs: Shapes, outputs: Shapes, dtype: torch.dtype
) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """The session as a function of contiguous tensors by name, that gives outputs by name."""
    import torch

    binding, kind = session.io_binding(), numpy_type(dtype)

    def call(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        made = {name: torch.empty(shape, dtype=dtype) for name, shape in outputs.items()}
        for name, shape in inputs.items():
            binding.bind_input(name, "cpu", 0, kind, shape, given[name].data_ptr())
        for name, shape in outputs.items():
            binding.bind_output(name, "cpu", 0, kind, shape, made[name].data_ptr())
        session.run_with_iobinding(binding)
        return made

    return call


def _onnx_name(dtype: torch.dtype) -> str:
    word = str(dtype).removeprefix("torch.")
    return {"float32": "FLOAT", "float16": "FLOAT16"}.get(word, word.upper())


def numpy_type(dtype: torch.dtype) -> type[Any]:
    """Return the dtype in NumPy's words, which bindings take."""
    import numpy as np

    kind: type[Any] = getattr(np, str(dtype).removeprefix("torch."))
    return kind
