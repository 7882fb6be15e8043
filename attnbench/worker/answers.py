"""Answers of calls part by part, as they are stored, and the log of outputs of timed calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.ipc.messages import ArraySpec, Kept, KeptOutput
from attnbench.ipc.names import OUT
from attnbench.ipc.shared_memory import Stored, anonymous_file
from attnbench.kit.dtypes import case_dtype
from attnbench.types.case import Case, activation_shapes, output_shape
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.worker.outputs import WrongOutput, as_stored, stored_output

if TYPE_CHECKING:
    from attnbench.worker.prepared import Held


_ALIGN_BYTES = 64


def output_of(held: Held, answer: Any) -> Any:
    """The output in an answer; None where a case asks for gradients alone."""
    if held.case.pass_ == "forward":
        return answer
    return answer[0] if held.case.pass_ == "both" else None


def outputs_by_name(held: Held, output: Any) -> dict[str, Any]:
    """The outputs of a call; where there are several it gives a tuple of them.

    Raises:
        WrongOutput: it isn't a tuple of so many.
    """
    names = [spec.name for spec in outputs_of(held.case)]
    if len(names) == 1:
        return {names[0]: output}
    if not isinstance(output, tuple) or len(output) != len(names):
        given = f"{len(output)} values" if isinstance(output, tuple) else f"a {type(output).__name__}"
        raise WrongOutput(f"the call gives {given}; a tuple of {', '.join(names)} is asked for")
    return dict(zip(names, output, strict=True))


def outputs_of(case: Case) -> tuple[TensorSpec, ...]:
    """The outputs of the case's operation."""
    return operation_of(case).outputs(case)


def stored_answer(held: Held, answer: Any) -> dict[str, Stored]:
    """The parts of an answer by name, in BHLD: the output as ``out``, gradients by what they are of.

    Raises:
        WrongOutput: one of them isn't what the case asks for.
    """
    case, layout = held.case, held.layout
    if held.passed is None:
        outputs = outputs_by_name(held, answer)
        return {
            spec.name: stored_output(outputs[spec.name], case, spec.shape, layout)
            for spec in outputs_of(case)
        }
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
    if name in ("q", "k", "v") and held.layout == "BLHD":
        gradient = gradient.transpose(1, 2)
    expected = dict(zip(("q", "k", "v"), activation_shapes(case, held.rule), strict=True)).get(name)
    shape = tuple(gradient.shape)
    if expected is not None and case.layer is None and shape != expected:
        raise WrongOutput(f"the gradient of {name} has shape {shape}; {expected} is asked for")
    return as_stored(gradient, case)


class Evidence:
    """Outputs in memory of their own, not of the heap that calls allocate from."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0
        self._kept: list[KeptOutput] = []
        self._checking_ns = 0

    def keep(self, held: Held, answer: Any, stretch: int, turn: int, call: int, *, renewed: bool) -> None:
        """Write an answer down as it is now.

        Raises:
            WrongOutput: it isn't what the case asks for.
        """
        start = perf_counter_ns()
        parts = stored_answer(held, answer)
        if self._fd < 0:
            self._fd = anonymous_file()
        specs, self._size = written(self._fd, self._size, parts, held.case.dtype)
        self._kept.append(KeptOutput(stretch, turn, call, renewed, specs))
        self._checking_ns += perf_counter_ns() - start

    def ends_with(self, stretch: int, turn: int, call: int) -> bool:
        """Whether the answer kept last is that of this call."""
        kept = self._kept[-1] if self._kept else None
        return kept is not None and (kept.stretch, kept.turn, kept.call) == (stretch, turn, call)

    def spent(self, ns: int) -> None:
        """Count what else checking has taken within turns."""
        self._checking_ns += ns

    def handed_over(self) -> tuple[Kept, tuple[int, ...]]:
        """All that was kept, and its descriptor; from now on nothing is."""
        kept, fds = Kept(tuple(self._kept), self._checking_ns), (self._fd,) if self._fd >= 0 else ()
        self.__init__()  # type: ignore[misc]
        return kept, fds
