"""Answers of calls as stored parts, and the log of outputs of timed calls."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from attnbench.ipc.messages import ArraySpec, Kept, KeptOutput
from attnbench.ipc.shared_memory import Stored, anonymous_file, mapped, write
from attnbench.types.operation import TensorSpec
from attnbench.types.problem import call_inputs, call_outputs
from attnbench.worker.failures import WrongOutput
from attnbench.worker.outputs import as_stored, stored_output

if TYPE_CHECKING:
    from attnbench.worker.prepared import PreparedBackend


def output_of(prepared: PreparedBackend, answer: Any) -> Any:
    """Return the output in an answer; None if the case has gradients alone."""
    if prepared.case.pass_ == "forward":
        return answer
    if prepared.case.pass_ != "both":
        return None
    count = len(outputs_of(prepared))
    return answer[0] if count == 1 else answer[:count]


def outputs_by_name(prepared: PreparedBackend, output: Any) -> dict[str, Any]:
    """Return the outputs of a call by name; several outputs are a tuple.

    Raises:
        WrongOutput: it is not a tuple of the expected length.
    """
    names = [spec.name for spec in outputs_of(prepared)]
    if len(names) == 1:
        return {names[0]: output}
    if not isinstance(output, tuple) or len(output) != len(names):
        given = f"{len(output)} values" if isinstance(output, tuple) else f"a {type(output).__name__}"
        raise WrongOutput(f"the call gives {given}; a tuple of {', '.join(names)} is asked for")
    return dict(zip(names, output, strict=True))


def outputs_of(prepared: PreparedBackend) -> tuple[TensorSpec, ...]:
    """Return the tensors that a call of the backend returns."""
    return call_outputs(prepared.case, prepared.storage)


def output_sizes(prepared: PreparedBackend) -> tuple[int, ...]:
    """Return the bytes of each tensor that a call of the backend returns."""
    return tuple(prod(spec.shape) * spec.item_bytes(prepared.case) for spec in outputs_of(prepared))


def output_words(name: str, outputs: Collection[object]) -> str:
    """Return one of these outputs in words: one of several is named."""
    return f"the output {name!r}" if len(outputs) > 1 else "the output"


def stored_answer(prepared: PreparedBackend, answer: Any) -> dict[str, Stored]:
    """Return the parts of an answer by name, in BHLD: outputs, and gradients by their inputs or parameters.

    Raises:
        WrongOutput: one of them is not as the case requires.
    """
    case, layout = prepared.case, prepared.layout
    if prepared.passed is None:
        outputs = outputs_by_name(prepared, answer)
        return {
            spec.name: stored_output(
                outputs[spec.name], case, spec.shape, layout, spec.kind, output_words(spec.name, outputs)
            )
            for spec in outputs_of(prepared)
        }
    parts: dict[str, Stored] = {}
    specs = {spec.name: spec for spec in outputs_of(prepared)}
    for name, part in zip(prepared.passed.names, answer, strict=True):
        if name in specs:
            spec = specs[name]
            what = output_words(name, specs)
            parts[name] = stored_output(part, case, spec.shape, layout, spec.kind, what)
        else:
            parts[name] = _stored_gradient(prepared, name, part)
    return parts


def written(fd: int, at: int, parts: Mapping[str, Stored], dtype: str) -> tuple[tuple[ArraySpec, ...], int]:
    """Write arrays into a descriptor from the offset ``at`` on; return their places and the aligned end."""
    specs = []
    for name, data in parts.items():
        # Numbers of bfloat16 are stored as integers.
        kind = dtype if data.dtype.itemsize == 2 else data.dtype.name
        specs.append(ArraySpec(name, kind, tuple(data.shape), at))
        at = write(fd, at, data)
    return tuple(specs), at


def _stored_gradient(prepared: PreparedBackend, name: str, gradient: Any) -> Stored:
    """Return a gradient as it is stored. torch made it, so it may be a view or expanded."""
    import torch

    case = prepared.case
    inputs = {spec.tensor: spec for spec in call_inputs(case, prepared.rule, prepared.storage)}
    spec = inputs.get(name)
    dtype = case.dtype if spec is None else spec.dtype(case)
    if gradient.dtype != getattr(torch, dtype):
        raise WrongOutput(f"the gradient of {name} has dtype {gradient.dtype}; {dtype} is asked for")
    if name in ("q", "k", "v") and prepared.layout == "BLHD":
        gradient = gradient.transpose(1, 2)
    shape = tuple(gradient.shape)
    if spec is not None and case.layer is None and shape != spec.shape:
        raise WrongOutput(f"the gradient of {name} has shape {shape}; {spec.shape} is asked for")
    return as_stored(gradient, case)


@cache
def _memcmp() -> Any:
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    return compare


def _same_bits(a: Stored, b: Stored) -> bool:
    """Compare without a temporary array: this happens beside timed calls."""
    return a.shape == b.shape and _memcmp()(a.ctypes.data, b.ctypes.data, a.nbytes) == 0


@dataclass(frozen=True)
class TimedCall:
    """A timed call: its output, its place, and whether the segment refreshed inputs before it."""

    output: Any
    segment: int
    slot: int
    call: int
    refreshed: bool


class OutputLog:
    """Outputs in memory of their own, not of the heap that calls allocate from.

    unlike: answers that had other bits than the first on the same inputs.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Begin an empty log, with memory of its own."""
        self._fd = -1
        self._size = 0
        self._kept: list[KeptOutput] = []
        self._firsts: dict[tuple[int, bool], dict[str, Stored]] = {}
        self._repeated = 0
        self.unlike = 0

    def keep(self, prepared: PreparedBackend, timed: TimedCall) -> None:
        """Copy the output of a call into the log.

        Raises:
            WrongOutput: it is not as the case requires.
        """
        parts = stored_answer(prepared, timed.output)
        if self._fd < 0:
            self._fd = anonymous_file()
        specs, self._size = written(self._fd, self._size, parts, prepared.case.dtype)
        self._kept.append(KeptOutput(timed.segment, timed.slot, timed.call, timed.refreshed, specs))

    def see(self, prepared: PreparedBackend, timed: TimedCall) -> None:
        """Keep an output, unless it has the bits of the first that came here for the same inputs.

        It is then as right as that one, which the verifier compares; this costs far less than keeping it.

        Raises:
            WrongOutput: it is not as the case requires.
        """
        inputs = timed.segment, timed.refreshed
        first = self._firsts.get(inputs)
        if first is not None:
            parts = stored_answer(prepared, timed.output)
            if all(_same_bits(parts[name], array) for name, array in first.items()):
                self._repeated += 1
                return
            self.unlike += 1
        self.keep(prepared, timed)
        if first is None:
            self._firsts[inputs] = mapped(self._fd, self._kept[-1].parts)

    def ends_with(self, timed: TimedCall) -> bool:
        """Return whether the last output in the log is that of this call."""
        last = [(kept.segment, kept.slot, kept.call) for kept in self._kept[-1:]]
        return last == [(timed.segment, timed.slot, timed.call)]

    def handed_over(self) -> tuple[Kept, tuple[int, ...]]:
        """Return the log and its descriptor, and empty the log."""
        kept = Kept(tuple(self._kept), self._repeated)
        fds = (self._fd,) if self._fd >= 0 else ()
        self._begin()
        return kept, fds
