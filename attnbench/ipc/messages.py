"""What the parent says to servers, templates and children, and what they answer."""

from __future__ import annotations

from msgspec import Struct

from attnbench.types.case import Dtype
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.record import Block, MachineScale, Status


class ArraySpec(Struct, frozen=True):
    """One array inside a shared block of memory. dtype is the case's word or that of integers; bfloat16
    is stored as its bits."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Fork(Struct, frozen=True, tag=True):
    """Fork; the child serves on the descriptor that comes with this. Answer: :class:`Forked`.

    child: whether it is a child that will be timed (keeps what is prepared), not a new template.
    cpus: cores it may run on.
    """

    child: bool
    cpus: tuple[int, ...]
    pin_allocator: bool = False


class Reap(Struct, frozen=True, tag=True):
    """Wait for a forked process that has ended or was killed. Answer: :class:`Ended`."""

    pid: int


class Facts(Struct, frozen=True, tag=True):
    """Ask what the loaded torch is and which devices there are. Answer: :class:`TorchFacts`."""


class Preload(Struct, frozen=True, tag=True):
    """Import these plugins, so that they are there in every fork. Answer: :class:`Done`, whatever is wrong
    with them: that is told by who prepares one of their backends."""

    sources: tuple[Source, ...]


class Prepare(Struct, frozen=True, tag=True):
    """Load one backend and prepare it for a case. Parameters come in the descriptor.

    backend_source: None for the plain reference. Answer: :class:`Prepared` or :class:`Failed`.
    operation_source: None for one of attnbench's own operations.
    memory_limit_bytes: what it may allocate beyond what it holds now.
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


class ComputeWeights(Struct, frozen=True, tag=True):
    """Compute the attention weights of the inputs. Answer: :class:`Output` with the part ``weights``.

    Of a backend that declares some, or of the plain reference, in a case of ``attention``.
    """


class Compute(Struct, frozen=True, tag=True):
    """Make one call. Answer: :class:`Output` with the output in a descriptor."""


class ComputeMany(Struct, frozen=True, tag=True):
    """Make so many calls on the inputs held. Answer: :class:`Outputs` with all outputs in a descriptor."""

    count: int


class ExactGradients(Struct, frozen=True, tag=True):
    """Of the plain reference's process: its gradients in float64, on the inputs that it holds.

    Answer: :class:`Output`, with what :func:`attnbench.worker.calls.exact_gradients` gives.
    """


class ComputeInTurn(Struct, frozen=True, tag=True):
    """Of the plain reference's process: its output by sums in turn (:mod:`attnbench.check.reference`).

    Answer: :class:`Output`.
    """

    backwards: bool


class WarmUp(Struct, frozen=True, tag=True):
    """Call until the time settles; see ``timing.warmup``. Answer: :class:`Warmed`.

    reserve: have memory at hand for what calls need, after one call more that tells how much that is.
    """

    most_calls: int = 20
    most_s: float = 0.15
    least_s: float = 0.0
    calm_s: float = 0.0
    reserve: bool = False


class TakeTurns(Struct, frozen=True, tag=True):
    """Take one sample in each of these turns of a stretch, waiting for the baton before each.

    Descriptors: an eventfd of its own, those it passes the baton to, and the memory of ``renewed``. turns:
    the places of its turns in the stretch. successors: for each, which descriptor is written afterwards; 0 is
    its own, -1 nobody's. calls: in each sample. warm_calls: before it, untimed. renewed: inputs to go on with
    from a call on that is drawn at random when it comes; nothing where inputs stay as they are.
    Answer: :class:`TurnsTaken`.
    """

    stretch: int
    turns: tuple[int, ...]
    successors: tuple[int, ...]
    calls: int
    warm_calls: int
    renewed: tuple[ArraySpec, ...] = ()


class TimedOutputs(Struct, frozen=True, tag=True):
    """Hand over the outputs of timed calls kept so far, and that of the last. Answer: :class:`Kept`."""


class MeasureMemory(Struct, frozen=True, tag=True):
    """Measure the peak extra memory of one call. Answer: :class:`PeakMemory`."""


class TraceCall(Struct, frozen=True, tag=True):
    """Tell what one call runs; see ``worker.trace``. Answer: :class:`Traced`."""


class MeasureScale(Struct, frozen=True, tag=True):
    """Measure what the machine can do; needs no :class:`Prepare`. Answer: :class:`ScaleMeasured`.

    working_set_bytes: what a call of the case reads and writes.
    """

    dtype: Dtype
    device: str
    working_set_bytes: int


Request = (
    Fork | Reap | Preload | Facts | Prepare | Activations | Compute | ComputeMany | ComputeWeights
    | ExactGradients | ComputeInTurn | WarmUp | TakeTurns | TimedOutputs | MeasureMemory | TraceCall
    | MeasureScale
)  # fmt: skip


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


class Output(Struct, frozen=True, tag=True):
    """One answer: the output as ``out``, gradients by what they are of. ns: the time of the call, rough."""

    parts: tuple[ArraySpec, ...]
    ns: int


class Outputs(Struct, frozen=True, tag=True):
    """The answers of several calls, in order, each by its parts."""

    outputs: tuple[tuple[ArraySpec, ...], ...]


class KeptOutput(Struct, frozen=True):
    """The output of one timed call: which call (from 0) of the sample of which turn, in which stretch.

    renewed: whether on the inputs that came within the stretch.
    """

    stretch: int
    turn: int
    call: int
    renewed: bool
    parts: tuple[ArraySpec, ...]


class Kept(Struct, frozen=True, tag=True):
    """Outputs of timed calls, in the descriptor; each is handed over once.

    checking_ns: what writing inputs and keeping outputs has taken, within turns.
    """

    outputs: tuple[KeptOutput, ...]
    checking_ns: int


class Warmed(Struct, frozen=True, tag=True):
    """The trace of the warm-up, ns per call; settled says whether it ended by evidence."""

    trace_ns: tuple[int, ...]
    settled: bool


class TurnsTaken(Struct, frozen=True, tag=True):
    """The samples of all turns; of fewer where the stretch was called off.

    received_ns, passed_ns: when each turn began and ended, by the clock that all processes share.
    process_cpu_ns, thread_cpu_ns: CPU time from before the first turn until after the last, of all threads of
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
    """What one call ran, names with counts; problem: what of it could not be told, "" where all could."""

    ran: tuple[str, ...]
    problem: str = ""


class ScaleMeasured(Struct, frozen=True, tag=True):
    """What the machine could do just now."""

    scale: MachineScale


Reply = (
    Done | Failed | Forked | Ended | TorchFacts | Prepared | Output | Outputs | Kept | Warmed
    | TurnsTaken | PeakMemory | Traced | ScaleMeasured
)  # fmt: skip
