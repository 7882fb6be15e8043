"""Answers of calls: the output, or the gradients, part by part, as they are stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.kit.dtypes import case_dtype
from attnbench.types.shapes import activation_shapes, output_shape
from attnbench.worker.messages import ArraySpec
from attnbench.worker.names import OUT
from attnbench.worker.outputs import WrongOutput
from attnbench.worker.shared import Stored
from attnbench.worker.tensors import as_stored, stored_output

if TYPE_CHECKING:
    from attnbench.worker.held import Held

_ALIGN_BYTES = 64


def output_of(held: Held, answer: Any) -> Any:
    """The output in an answer; None where a case asks for gradients alone."""
    if held.case.pass_ == "forward":
        return answer
    return answer[0] if held.case.pass_ == "both" else None


def stored_answer(held: Held, answer: Any) -> dict[str, Stored]:
    """The parts of an answer by name, in BHLD: the output as ``out``, gradients by what they are of.

    Raises:
        WrongOutput: one of them isn't what the case asks for.
    """
    case, layout = held.case, held.backend.layout
    if held.passed is None:
        return {OUT: stored_output(answer, case, output_shape(case), layout)}
    parts: dict[str, Stored] = {}
    for name, part in zip(held.passed.names, answer, strict=True):
        if name == OUT:
            parts[name] = stored_output(part, case, output_shape(case), layout)
        else:
            parts[name] = _stored_gradient(held, name, part)
    return parts


def written(fd: int, at: int, parts: Mapping[str, Stored], dtype: str) -> tuple[tuple[ArraySpec, ...], int]:
    """Write arrays into a descriptor from a place on; gives where they are, and the end, aligned."""
    specs = []
    for name, data in parts.items():
        specs.append(ArraySpec(name, dtype, tuple(data.shape), at))
        remaining = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        while remaining:
            count = os.pwrite(fd, remaining, at)
            remaining, at = remaining[count:], at + count
        at = -(-at // _ALIGN_BYTES) * _ALIGN_BYTES
    return tuple(specs), at


def _stored_gradient(held: Held, name: str, gradient: Any) -> Stored:
    """A gradient, which may be a view or expanded: it's torch that made it, not the backend."""
    case = held.case
    if gradient.dtype != case_dtype(case):
        raise WrongOutput(f"the gradient of {name} has dtype {gradient.dtype}; {case.dtype} is asked for")
    if name in ("q", "k", "v") and held.backend.layout == "BLHD":
        gradient = gradient.transpose(1, 2)
    expected = dict(zip(("q", "k", "v"), activation_shapes(case, held.rule), strict=True)).get(name)
    shape = tuple(gradient.shape)
    if expected is not None and case.layer is None and shape != expected:
        raise WrongOutput(f"the gradient of {name} has shape {shape}; {expected} is asked for")
    return as_stored(gradient, case)
