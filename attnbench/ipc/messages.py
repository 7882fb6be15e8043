"""Requests of the parent to preloaded servers and workers, and their answers."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from attnbench.ipc import channel
from attnbench.plugins.code import Stamp
from attnbench.timing.warmup import IN_CHECKS, Limits
from attnbench.types.backend import Layout
from attnbench.types.case import Dtype
from attnbench.types.device import ATTACHED
from attnbench.types.extensions import Source
from attnbench.types.record import MachineScale, SegmentSamples
from attnbench.types.status import Check, Status


class ArraySpec(Struct, frozen=True):
    """One array in a shared block of memory. dtype: a name; bfloat16 is stored as its bits."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Fork(Struct, frozen=True, tag=True):
    """Fork; the new process serves on the descriptor of this message. Answer: :class:`Forked`.

    timed: the fork of a prepared worker, which stays in its process group. cpus: the cores it may run on.
    keeps_memory: whether freed memory stays with it, or is returned at once; None leaves that to chance.
    backward: its forks compute gradients, for which torch imports a good deal.
    """

    timed: bool
    cpus: tuple[int, ...]
    keeps_memory: bool | None = None
    backward: bool = False


class Reap(Struct, frozen=True, tag=True):
    """Wait for a forked process that has ended or was killed. Answer: :class:`Reaped`."""

    pid: int


class Facts(Struct, frozen=True, tag=True):
    """Ask for the version of torch and the devices. Answer: :class:`TorchFacts`."""


class Wait(Struct, frozen=True, tag=True):
    """Answer once torch is loaded. Answer: :class:`Done`."""


class ImportFrom(Struct, frozen=True, tag=True):
    """Import plugins from where a side of a live comparison has them. Answer: :class:`Done`.

    paths: the first folders of the import path. not_from: the folder of the user's tree, from which nothing
    may be imported; "" if that is allowed.
    """

    paths: tuple[str, ...]
    not_from: str


class Prepare(Struct, frozen=True, tag=True):
    """Import the plugins and prepare a backend for a case. Answer: :class:`Prepared` or :class:`Failed`.

    Parameters come in the descriptor. backend_source: None for the plain reference. operation_source,
    storage_source, encoding_source: None for those of attnbench's own. memory_limit_bytes: how much it may
    allocate beyond what it holds now.
    """

    case: str
    backend: str
    backend_source: Source | None
    rule_source: Source
    parameters: tuple[ArraySpec, ...]
    memory_limit_bytes: int | None
    operation_source: Source | None = None
    storage_source: Source | None = None
    encoding_source: Source | None = None


class Activations(Struct, frozen=True, tag=True):
    """Take the inputs in the descriptor for the next calls. Answer: :class:`Done`.

    fresh: into new tensors, after a junk allocation of junk_bytes that shifts their addresses; otherwise over
    the inputs before. guarded: between bands of NaN, for checked calls. delivery: ``strided`` for views with
    other strides, ``sliced`` for slices of one tensor, ``transposed`` for keys whose features lie further
    apart than positions, ``graded`` for inputs that require gradients, ``two_graphs`` for the second backward
    pass of a graph beside another, ``dropped`` for NaN and infinity in keys and values that the mask drops,
    "" for inputs as they are timed. Inputs that
    are guarded or delivered in another way than those before also go into new tensors. A backend without
    gradients of such a case answers ``graded`` with an ``unsupported`` :class:`Failed`.
    """

    arrays: tuple[ArraySpec, ...]
    fresh: bool = False
    junk_bytes: int = 0
    guarded: bool = False
    delivery: str = ""


class FillPool(Struct, frozen=True, tag=True):
    """Fill a descriptor with copies of a case's inputs, through which calls rotate. Answer: :class:`Done`.

    It needs no :class:`Prepare`. The other descriptor has the arrays. layout: of heads, as backends take
    them.
    """

    case: str
    layout: Layout
    arrays: tuple[ArraySpec, ...]
    operation_source: Source | None = None
    storage_source: Source | None = None
    encoding_source: Source | None = None


class UsePool(Struct, frozen=True, tag=True):
    """Let timed calls rotate through the copies in the descriptor. Answer: :class:`Done`.

    They are those of the inputs that come next, and must keep these values. What a call writes to them stays
    in its process.
    """


class Compute(Struct, frozen=True, tag=True):
    """Compute on the inputs. Answer: :class:`Outputs` with the arrays in a descriptor.

    what: ``outputs`` of ``count`` calls; the attention ``weights`` of a case of ``attention``. The plain
    reference also computes ``exact`` gradients in float64.
    """

    what: Literal["outputs", "weights", "exact"] = "outputs"
    count: int = 1


class WarmUp(Struct, frozen=True, tag=True):
    """Call until the time settles; see ``timing.warmup``. Answer: :class:`Warmed`.

    reserve: make one more call first, and make the memory ready that it needed. start: the place in the order
    of the pool where calls begin, where inputs rotate.
    """

    limits: Limits = IN_CHECKS
    reserve: bool = False
    start: int = 0


class TakeSlots(Struct, frozen=True, tag=True):
    """Take one sample in each of these slots of a segment, waiting for the handoff before each.

    Descriptors: its own eventfd, those of the workers that it passes the handoff to, and the memory of
    ``refreshed``. slots: the places of its slots in the segment. successors: for each slot the number of the
    descriptor that is written afterwards; 0 for its own, -1 for none. calls: in each sample. warm_calls:
    before it, untimed. refreshed: inputs that replace the present ones at a random call; empty to keep those.
    starts: for each slot the place in the order of a shared pool where its calls begin; empty without one.
    Answer: :class:`SlotsTaken`.
    """

    segment: int
    slots: tuple[int, ...]
    successors: tuple[int, ...]
    calls: int
    warm_calls: int
    refreshed: tuple[ArraySpec, ...] = ()
    starts: tuple[int, ...] = ()


class TimedOutputs(Struct, frozen=True, tag=True):
    """Hand over the logged outputs of timed calls, and the last output. Answer: :class:`Kept`."""


class MeasureMemory(Struct, frozen=True, tag=True):
    """Check that memory does not grow with every call. Answer: :class:`PeakMemory`.

    peak: whether to measure the peak extra memory of one call too.
    """

    peak: bool


class TraceCall(Struct, frozen=True, tag=True):
    """List the operations of one call; see ``worker.trace``. Answer: :class:`Traced`."""


class MeasureScale(Struct, frozen=True, tag=True):
    """Measure the speed of the machine; needs no :class:`Prepare`. Answer: :class:`ScaleMeasured`.

    working_set_bytes: the bytes that a call of the case reads and writes.
    """

    dtype: Dtype
    device: str
    working_set_bytes: int


class ReportCode(Struct, frozen=True, tag=True):
    """Report the code that is loaded of these plugins. Answer: :class:`Code`."""

    sources: tuple[Source, ...]


Request = (
    Fork | Reap | Wait | ImportFrom | Facts | Prepare | ReportCode | Activations | Compute | WarmUp
    | TakeSlots | TimedOutputs | MeasureMemory | TraceCall | MeasureScale | FillPool | UsePool
)  # fmt: skip


_DOING: dict[type[Request], str] = {
    Prepare: "preparation",
    Activations: "copying inputs",
    FillPool: "filling the pool of inputs",
    UsePool: "mapping the pool of inputs",
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
    """The request was done."""


class Failed(Struct, frozen=True, tag=True):
    """The request failed. The record gets the status, the reason and the failed check.

    trace: the traceback of the exception of a plugin's code; "" for none.
    """

    status: Status
    reason: str
    check: Check = ""
    trace: str = ""


class Forked(Struct, frozen=True, tag=True):
    """The process was forked; the descriptor is of the file that gets its prints.

    attnbench: the code of attnbench that it runs.
    """

    pid: int
    attnbench: Stamp


class Reaped(Struct, frozen=True, tag=True):
    """The exit code of a process, or minus the signal that killed it."""

    code: int


class Cards(Struct, frozen=True):
    """The devices of a kind that torch finds: names, and of each what tells it from others of its name.

    free_bytes: of the memory of the current one; 0 where it is not known.
    """

    names: tuple[str, ...]
    details: tuple[str, ...]
    free_bytes: int


class TorchFacts(Struct, frozen=True, tag=True):
    """The version and flags of torch, and the devices that it finds, by kind."""

    torch: str
    flags: dict[str, str]
    cards: dict[str, Cards]

    def free_bytes(self, device: str) -> int:
        """Return the free bytes of a device; 0 where they are not known, as on the host."""
        return self.cards[device].free_bytes if device in self.cards else 0

    def card_facts(self) -> dict[str, list[str]]:
        """Return the facts of a run that name its devices."""
        facts = {}
        for device in ATTACHED:
            cards = self.cards.get(device.name)
            facts[device.names_fact] = list(cards.names) if cards else []
            if cards and cards.details:
                facts[device.details_fact] = list(cards.details)
        return facts


class Prepared(Struct, frozen=True, tag=True):
    """The backend is prepared.

    ns: the time of importing and preparing. notes: changes that were put back.
    """

    ns: int
    notes: tuple[str, ...] = ()


class Code(Struct, frozen=True, tag=True):
    """The modules that came with the plugins, as :func:`attnbench.plugins.code.stamps` returns them."""

    modules: dict[str, Stamp]


class Outputs(Struct, frozen=True, tag=True):
    """The answers in order, each by parts: the output as ``out``, gradients by the names of their inputs.

    ns: the rough time of the last call; 0 if none was timed.
    """

    outputs: tuple[tuple[ArraySpec, ...], ...]
    ns: int = 0


class KeptOutput(Struct, frozen=True):
    """The output of one timed call: its segment, slot and number in the sample, from 0.

    refreshed: it was computed on the inputs that came within the segment.
    """

    segment: int
    slot: int
    call: int
    refreshed: bool
    parts: tuple[ArraySpec, ...]


class Kept(Struct, frozen=True, tag=True):
    """Outputs of timed calls, in the descriptor; each is handed over once.

    repeated: further outputs, with the bits of one of these.
    """

    outputs: tuple[KeptOutput, ...]
    repeated: int = 0


class Warmed(Struct, frozen=True, tag=True):
    """The ns of each call of the warm-up."""

    trace_ns: tuple[int, ...]


class SlotsTaken(Struct, frozen=True, tag=True):
    """The samples of all slots; of fewer if the segment was called off.

    received_ns, passed_ns: the begin and end of each slot, by the clock that all processes share.
    """

    samples: SegmentSamples
    received_ns: list[int]
    passed_ns: list[int]


class PeakMemory(Struct, frozen=True, tag=True):
    """Peak extra bytes of one call, with its output; None if not asked for, or this system can't tell."""

    bytes: int | None


class Traced(Struct, frozen=True, tag=True):
    """The operations of one call, names with counts. problem: which names are unknown and why, or ""."""

    ran: tuple[str, ...]
    problem: str = ""


class ScaleMeasured(Struct, frozen=True, tag=True):
    """The measured speed of the machine."""

    scale: MachineScale


Reply = (
    Done | Failed | Forked | Reaped | TorchFacts | Prepared | Code | Outputs | Kept | Warmed | SlotsTaken
    | PeakMemory | Traced | ScaleMeasured
)  # fmt: skip

MEANING = 1
"""Raise this number when the meaning of a message or the command line of a server changes without a field."""


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
