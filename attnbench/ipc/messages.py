"""Requests of the parent to preloaded servers and workers, and their answers."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from attnbench.ipc import channel
from attnbench.types.case import Dtype
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.record import Block, MachineScale
from attnbench.types.status import Status


class ArraySpec(Struct, frozen=True):
    """One array inside a shared block of memory. dtype is the case's word or that of integers; bfloat16
    is stored as its bits."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Fork(Struct, frozen=True, tag=True):
    """Fork; the new process serves on the descriptor that comes with this. Answer: :class:`Forked`.

    timed: whether the fork is a worker that will be timed, not one in which a backend will be prepared.
    cpus: cores it may run on.
    """

    timed: bool
    cpus: tuple[int, ...]
    pin_allocator: bool = False


class Reap(Struct, frozen=True, tag=True):
    """Wait for a forked process that has ended or was killed. Answer: :class:`Ended`."""

    pid: int


class Facts(Struct, frozen=True, tag=True):
    """Ask for the version of torch and the devices. Answer: :class:`TorchFacts`."""


class Preload(Struct, frozen=True, tag=True):
    """Import these plugins, so that they are there in every fork. Answer: :class:`Done`, even if
    one does not import: the request that prepares one of its backends reports that."""

    sources: tuple[Source, ...]


class Prepare(Struct, frozen=True, tag=True):
    """Load one backend and prepare it for a case. Parameters come in the descriptor.

    backend_source: None for the plain reference. Answer: :class:`Prepared` or :class:`Failed`.
    operation_source: None for an operation of attnbench's own.
    memory_limit_bytes: how much it may allocate beyond what it holds now.
    """

    case: str
    backend: str
    backend_source: Source | None
    rule_source: Source
    parameters: tuple[ArraySpec, ...]
    memory_limit_bytes: int | None
    operation_source: Source | None = None


class Activations(Struct, frozen=True, tag=True):
    """Take these inputs (in the descriptor) for the calls to come. Answer: :class:`Done`.

    fresh: into new tensors, after a junk allocation of junk_bytes that shifts their addresses; otherwise
    into the storage of the inputs before. guarded: between bands of NaN, for calls that are checked.
    delivery: ``strided`` or ``graded``, see :mod:`attnbench.worker.prepared`; "" for inputs as they are
    timed. New tensors too where those before were guarded or delivered otherwise. A backend that says it
    can't have gradients of such a case answers ``graded`` with a :class:`Failed` that is ``unsupported``.
    """

    arrays: tuple[ArraySpec, ...]
    fresh: bool = False
    junk_bytes: int = 0
    guarded: bool = False
    delivery: str = ""


class Compute(Struct, frozen=True, tag=True):
    """Compute on the inputs. Answer: :class:`Outputs` with the arrays in a descriptor.

    what: ``outputs`` of ``count`` calls; the attention ``weights``, in a case of ``attention``. From the
    plain reference's process also its ``exact`` gradients in float64, and its output with features added
    ``in_turn`` or ``backwards`` (:mod:`attnbench.check.reference`).
    """

    what: Literal["outputs", "weights", "exact", "in_turn", "backwards"] = "outputs"
    count: int = 1


class WarmUp(Struct, frozen=True, tag=True):
    """Call until the time settles; see ``timing.warmup``. Answer: :class:`Warmed`.

    reserve: have memory at hand for what calls need, after one call more that tells how much that is.
    """

    most_calls: int = 20
    most_s: float = 0.15
    least_s: float = 0.0
    calm_s: float = 0.0
    reserve: bool = False


class TakeSlots(Struct, frozen=True, tag=True):
    """Take one sample in each of these slots of a segment, waiting for the handoff before each.

    Descriptors: its own eventfd, those it passes the handoff to, and the memory of ``refreshed``. slots:
    the places of its slots in the segment. successors: for each, which descriptor is written afterwards; 0 is
    its own, -1 nobody's. calls: in each sample. warm_calls: before it, untimed. refreshed: inputs to use
    from a call on that is drawn at random when it comes; nothing where inputs stay as they are.
    Answer: :class:`SlotsTaken`.
    """

    segment: int
    slots: tuple[int, ...]
    successors: tuple[int, ...]
    calls: int
    warm_calls: int
    refreshed: tuple[ArraySpec, ...] = ()


class TimedOutputs(Struct, frozen=True, tag=True):
    """Hand over the outputs of timed calls kept so far, and that of the last. Answer: :class:`Kept`."""


class MeasureMemory(Struct, frozen=True, tag=True):
    """Measure the peak extra memory of one call. Answer: :class:`PeakMemory`."""


class TraceCall(Struct, frozen=True, tag=True):
    """List the operations of one call; see ``worker.trace``. Answer: :class:`Traced`."""


class MeasureScale(Struct, frozen=True, tag=True):
    """Measure the speed of the machine; needs no :class:`Prepare`. Answer: :class:`ScaleMeasured`.

    working_set_bytes: the bytes that a call of the case reads and writes.
    """

    dtype: Dtype
    device: str
    working_set_bytes: int


Request = (
    Fork | Reap | Preload | Facts | Prepare | Activations | Compute | WarmUp | TakeSlots | TimedOutputs
    | MeasureMemory | TraceCall | MeasureScale
)  # fmt: skip


_DOING: dict[type[Request], str] = {
    Prepare: "preparation",
    Activations: "copying inputs",
    Compute: "a checked call",
    WarmUp: "the warm-up",
    TakeSlots: "timed calls",
    TimedOutputs: "handing over outputs of timed calls",
    MeasureMemory: "the measurement of memory",
    TraceCall: "the tracing of a call",
    MeasureScale: "the measurement of the machine's speed",
}


def doing(request: type[Request]) -> str:
    """Return what a worker does for a request, in the words of a record."""
    return _DOING.get(request, request.__name__)


class Done(Struct, frozen=True, tag=True):
    """It was done."""


class Failed(Struct, frozen=True, tag=True):
    """It was not done. status, reason and the failed check are what the record will say."""

    status: Status
    reason: str
    check: Check = ""


class Forked(Struct, frozen=True, tag=True):
    """The process was forked."""

    pid: int


class Ended(Struct, frozen=True, tag=True):
    """How a process ended: its exit code, or minus the signal that killed it."""

    code: int


class TorchFacts(Struct, frozen=True, tag=True):
    """torch's version and flags, and the CUDA devices there are."""

    torch: str
    cuda_devices: tuple[str, ...]
    flags: dict[str, str]


class Prepared(Struct, frozen=True, tag=True):
    """The backend is prepared. ns: loading and preparation. notes: what it changed for others."""

    ns: int
    notes: tuple[str, ...] = ()


class Outputs(Struct, frozen=True, tag=True):
    """The answers, in order, each by its parts: the output as ``out``, gradients by what they are of.

    ns: the time of the last call, rough; 0 where none was timed.
    """

    outputs: tuple[tuple[ArraySpec, ...], ...]
    ns: int = 0


class KeptOutput(Struct, frozen=True):
    """The output of one timed call: which call (from 0) of the sample of which slot, in which segment.

    refreshed: whether on the inputs that came within the segment.
    """

    segment: int
    slot: int
    call: int
    refreshed: bool
    parts: tuple[ArraySpec, ...]


class Kept(Struct, frozen=True, tag=True):
    """Outputs of timed calls, in the descriptor; each is handed over once.

    checking_ns: what writing inputs and keeping outputs has taken, within slots.
    """

    outputs: tuple[KeptOutput, ...]
    checking_ns: int


class Warmed(Struct, frozen=True, tag=True):
    """The trace of the warm-up, ns per call; settled says whether it ended by evidence."""

    trace_ns: tuple[int, ...]
    settled: bool


class SlotsTaken(Struct, frozen=True, tag=True):
    """The samples of all slots; of fewer where the segment was called off.

    received_ns, passed_ns: when each slot began and ended, by the clock that all processes share.
    process_cpu_ns, thread_cpu_ns: CPU time from before the first slot until after the last, of all threads of
    the process and of the one that took them.
    """

    block: Block
    received_ns: list[int]
    passed_ns: list[int]
    process_cpu_ns: int = 0
    thread_cpu_ns: int = 0


class PeakMemory(Struct, frozen=True, tag=True):
    """Peak extra bytes of one call, its output included; None where this system can't tell."""

    bytes: int | None


class Traced(Struct, frozen=True, tag=True):
    """The operations of one call, names with counts. problem: which names are unknown and why, or ""."""

    ran: tuple[str, ...]
    problem: str = ""


class ScaleMeasured(Struct, frozen=True, tag=True):
    """The measured speed of the machine."""

    scale: MachineScale


Reply = (
    Done | Failed | Forked | Ended | TorchFacts | Prepared | Outputs | Kept | Warmed | SlotsTaken
    | PeakMemory | Traced | ScaleMeasured
)  # fmt: skip

MEANING = 1
"""Raise this number when the meaning of a message, or the command line of a server, changes but no field
does."""


def protocol_fingerprint() -> str:
    """Return twelve hexadecimal digits of the JSON schema of all messages: their fields, types and defaults.

    Docstrings, comments and the files that define a message make no difference.
    """
    kinds = get_args(Request) + get_args(Reply)
    _, schemas = msgspec.json.schema_components(kinds)
    for schema in schemas.values():
        schema.pop("description", None)
    limits = channel.LARGEST_MESSAGE_BYTES, channel.MOST_FDS
    spoken = json.dumps([MEANING, limits, schemas], sort_keys=True)
    return hashlib.sha256(spoken.encode()).hexdigest()[:12]
