"""The lines of a run file: the manifest, samples, repetitions, records with their accuracy.

They are msgspec structs, because files hold them; the field ``kind`` says which line it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from attnbench.types.status import Check, Status

ON_VARIANT = "on the variant case"
"""Before the id of such a case at the end of a reason; :attr:`Record.failed_case` has the id alone."""


class Accuracy(Struct, frozen=True):
    """The check in numbers, pooled over draws.

    rms_error, max_error: of the output against the oracle. reference_rms, reference_max: the same of the
    plain reference in the dtype of the case. rms_limit, max_limit: the largest errors that are allowed. rows:
    the query rows that were compared, of ``rows_of``; fewer where solving all would cost too much. draws: the
    number of independent inputs.
    """

    rms_error: float
    max_error: float
    reference_rms: float
    reference_max: float
    rms_limit: float
    max_limit: float
    rows: int
    rows_of: int
    draws: int

    @property
    def error_budget(self) -> float:
        """RMS error over the plain reference's RMS error; 0 where both are exact."""
        return _ratio(self.rms_error, self.reference_rms)

    @property
    def max_error_budget(self) -> float:
        """Largest error over the plain reference's largest error; 0 where both are exact."""
        return _ratio(self.max_error, self.reference_max)


class DropoutNumbers(Struct, frozen=True):
    """The check of dropout in numbers.

    calls: the number of outputs. rows: the rows (of a batch element, a head and a query) in which dropout can
    be seen, of ``rows_of`` compared. scale: of the mean of the outputs over the oracle's answer. p: the
    probability that would give the variance between calls; p_least, p_most: those that would give its limits.
    """

    calls: int
    rows: int
    rows_of: int
    scale: float
    p: float
    p_least: float
    p_most: float


def _ratio(part: float, whole: float) -> float:
    if whole == 0:
        return 0.0 if part == 0 else float("inf")
    return part / whole


FORMAT_VERSION = 2

# Decoding checks these limits, so a damaged line is refused when it is read.
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

DeviceMode = Literal["", "batch", "launches", "cold"]
"""How a device runs the calls of a sample: replayed back to back, launched back to back, or each alone after
the cache was overwritten. "" on the CPU, where the case decides."""


BatchInvariant = Literal["", "yes", "one thread", "no"]
"""``yes`` if a sequence of a batch has the same bits alone as in company; "" where it was not asked."""


class SegmentSamples(Struct, frozen=True, omit_defaults=True):
    """The samples of one backend in one segment of a repetition, one for each of its slots.

    segment: the number of the segment; inputs are refreshed between two. slots: the places of its samples in
    the segment's order of slots, ascending. calls: back-to-back calls in each sample; wall_ns[i] / calls is
    the time per call of sample i. wall_ns, cpu_ns (of the thread), switches (involuntary), faults (minor):
    one number for each sample, read outside the timed window.
    others_cpu_ns: CPU time of the process's other threads, from before its first turn until after its last.
    refreshed_ns: the time of the one call that was the first on inputs refreshed within the segment, 0 where
    unknown.

    For a device: mode; host_ns, the time that the thread took to launch, of which it had a core for cpu_ns;
    clock_mhz at the end of each sample, 0 where unknown; default_clock_mhz, the clock when nothing slows the
    device down.
    """

    segment: int
    slots: list[int]
    calls: int
    wall_ns: list[int]
    cpu_ns: list[int]
    switches: list[int]
    faults: list[int]
    others_cpu_ns: int = 0
    refreshed_ns: int = 0
    mode: DeviceMode = ""
    host_ns: list[int] = field(default_factory=list)
    clock_mhz: list[int] = field(default_factory=list)
    default_clock_mhz: int = 0


class CheckResult(Struct, frozen=True):
    """What the check of a candidate found."""

    accuracy: Accuracy | None
    """As in a record, like ``parts``, ``dropout``, ``ran``, ``kernel_of``, ``arithmetic``,
    ``batch_invariant``, ``encoding_error``, ``dtype_error`` and ``kv_bytes`` below."""
    prepare_ms: float
    """Loading and preparation."""
    first_call_ms: float
    """The first call, with compilation and allocation."""
    warmup_ms: list[float]
    """The trace of the warm-up, per call; empty where nothing is timed."""
    fresh: bool
    """Whether each repetition gets a fresh process; otherwise it is replaced every few repetitions."""
    notes: list[str] = field(default_factory=list)
    anew: bool = False
    """Whether a fresh process prepares the backend anew; otherwise it is a fork of one that has."""
    ran: list[str] = field(default_factory=list)
    kernel_of: str = ""
    parts: dict[str, Accuracy] = field(default_factory=dict)
    dropout: DropoutNumbers | None = None
    arithmetic: str = ""
    inexact: str = ""
    """Why its outputs are not as exact as the dtype allows; "" if they are, or if the backend declares its
    arithmetic."""
    batch_invariant: BatchInvariant = ""
    encoding_error: float | None = None
    dtype_error: float | None = None
    kv_bytes: float | None = None
    code: dict[str, str] = field(default_factory=dict)
    """Of each module that came with the plugins, digits of the SHA-256 of its file; attnbench's own are in
    the manifest."""


class CandidatePlan(CheckResult, frozen=True, kw_only=True):
    """What the check of a candidate found, and how it is measured: fixed before, from the budget."""

    calls: int
    """In each sample."""
    samples: int
    """In each segment, one a slot."""
    warm_calls: int
    """Untimed, before each sample."""
    repetitions: int
    """Those that it takes part in, from the first on."""
    segments: int = 2
    """Of a repetition, likewise from the first on."""


class CaseLine(Struct, frozen=True, tag="case", tag_field="kind"):
    """A case whose candidates are checked and planned.

    draw_entropy: the seed of the timed inputs, from the operating system. pairs: kept (query, key) pairs.
    """

    case: str
    segments: int
    draw_entropy: int
    pairs: int
    flops: float
    bytes_moved: float
    candidates: dict[str, CandidatePlan]


class Failure(Struct, frozen=True, omit_defaults=True):
    """The reason why a candidate dropped out while it was measured. failed_check: as in a record."""

    status: Status
    reason: str
    failed_check: Check = ""


class MachineScale(Struct, frozen=True):
    """The speed of the machine during a repetition, measured by a process of its own on the measured core.

    gemm_ns: the time of each product of two square matrices, by their side n (2n³ operations). copy_bytes:
    the bytes that one copy of the case's working set reads and writes; copy_ns: the time of each. empty_ns:
    per call of a function that does nothing, one number for each sample. copy_call_ns: the same for a copy of
    one element, which is the cost of calling a copy. convolution_ns: the time of each convolution of
    convolution_flops operations; empty where products are as fast. far_copy_ns: the time of each copy that no
    core has room for in its own caches; empty on devices.
    """

    gemm_ns: dict[int, list[int]]
    copy_bytes: int
    copy_ns: list[int]
    empty_ns: list[float]
    copy_call_ns: list[float] = field(default_factory=list)
    convolution_flops: int = 0
    convolution_ns: list[int] = field(default_factory=list)
    far_copy_ns: list[int] = field(default_factory=list)


class RepetitionLine(Struct, frozen=True, tag="repetition", tag_field="kind"):
    """One repetition: a fresh process for each candidate, and all that was measured with them.

    order: candidates in the order in which they were started. draws: the secret inputs of the case, in order:
    two in each segment where inputs are refreshed within it, else one. transforms: for each, the seed of the
    transform that it follows. scale: the machine's, None where it was not measured. warmup_ns: by backend,
    the trace of its warm-up per call. samples: by backend, of each segment. verified: backends whose
    timed outputs were compared with the oracle and are right; verified_calls: the number of outputs of each.
    failed: candidates that dropped out, also because of wrong outputs.
    """

    case: str
    index: Annotated[int, Meta(ge=0)]
    draws: list[int]
    order: list[str]
    warmup_ns: dict[str, list[int]]
    samples: dict[str, list[SegmentSamples]]
    verified: list[str]
    failed: dict[str, Failure]
    scale: MachineScale | None = None
    transforms: list[int] = field(default_factory=list)
    verified_calls: dict[str, int] = field(default_factory=dict)


class Record(Struct, frozen=True, tag="record", tag_field="kind"):
    """The outcome of one backend on one case. A timing stands only on ``ok``, ``inaccurate`` and
    ``suspect``.

    case: its id. reason: why the status is not ``ok``, in words. median_ms: the median over repetitions of
    their median time per call; low_ms, high_ms: its interval at ``confidence``. ratio: time over the
    baseline's, the median over repetitions of the median of paired ratios; ratio_low, ratio_high: its
    interval at ``ratio_confidence``, see :mod:`attnbench.stats.tests`; None for two or fewer. p_value:
    that the ratio is 1. delta: the least effect that counts in a verdict. pairs: the pairs behind
    the ratio; pairs_left_out: those left out because one side was preempted. best: the fastest backend of the
    case; ratio_to_best, with its ends, confidence and p-value: as ratio, against that backend.

    tflops, gbps: from exact counts; in decode gbps counts stored keys and values alone. limit_share: the
    least time that the machine needs, as measured in this run, over the time taken. copy_share: gbps over
    that of a copy of the inputs, as measured in this run.
    batch_invariant: whether each sequence of a batch has the same bits alone and in other company, with one
    and two threads; "one thread" if so with one alone, "" where it was not asked. encoding_error: of a case
    with encoded keys and values, how far their exact answer is from that of the numbers that were drawn, RMS
    over RMS; no kernel can be blamed for it. dtype_error: the same for these numbers in the dtype of the
    case. kv_bytes: what keys and values take for each key, with scales; None where an operation has none of
    its own. peak_extra_bytes: of
    one call. faults_per_call: minor page faults while timed.
    prepare_ms: loading and preparation. first_call_ms: the first call with compilation and allocation.
    timed_calls: calls in timed samples. verified_calls: the outputs of these that were compared with the
    oracle. notes: what a reader should know, in words.

    accuracy: of the output, or of the gradient that is farthest off; parts: of the output and each gradient,
    where there are several. dropout: in place of both in a case with dropout. failed_on: the inputs on which
    the check failed, by name, ``variant:NAME`` for those of the variant case, ``dropout`` where outputs do
    not have the moments of dropout. failed_check: the check that failed, see :mod:`attnbench.types.status`.
    failed_case: the id of the variant case that shows the failure, "" where it is the case itself. ran: the
    operations of torch and the kernels of a device that one call ran, in order, with counts (``bmm x2``).
    kernel_of: another backend whose kernel is among them, or "". arithmetic: the arithmetic that its outputs
    are as exact as (:mod:`attnbench.types.arithmetic`), where that is coarser than the dtype; else "".
    """

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    median_ms: Positive | None = None
    low_ms: Positive | None = None
    high_ms: Positive | None = None
    confidence: Share | None = None
    ratio: Positive | None = None
    ratio_low: Positive | None = None
    ratio_high: Positive | None = None
    ratio_confidence: Share | None = None
    p_value: Share | None = None
    baseline: str | None = None
    delta: Share | None = None
    pairs: int = 0
    pairs_left_out: int = 0
    best: str | None = None
    ratio_to_best: Positive | None = None
    ratio_to_best_low: Positive | None = None
    ratio_to_best_high: Positive | None = None
    ratio_to_best_confidence: Share | None = None
    ratio_to_best_p_value: Share | None = None
    accuracy: Accuracy | None = None
    tflops: float | None = None
    gbps: float | None = None
    limit_share: float | None = None
    copy_share: float | None = None
    batch_invariant: BatchInvariant = ""
    encoding_error: float | None = None
    dtype_error: float | None = None
    kv_bytes: float | None = None
    peak_extra_bytes: Annotated[int, Meta(ge=0)] | None = None
    faults_per_call: float | None = None
    prepare_ms: float | None = None
    first_call_ms: float | None = None
    warmup_ms: list[float] = field(default_factory=list)
    repetitions: int = 0
    timed_calls: int = 0
    verified_calls: int = 0
    notes: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    kernel_of: str = ""
    parts: dict[str, Accuracy] = field(default_factory=dict)
    failed_on: list[str] = field(default_factory=list)
    failed_check: Check = ""
    failed_case: str = ""
    dropout: DropoutNumbers | None = None
    arithmetic: str = ""

    @property
    def passed(self) -> bool:
        """True if no check failed: ``ok``, or ``inaccurate`` as the backend declares."""
        return self.status == "ok" or (self.status == "inaccurate" and not self.failed_check)


class PluginLine(Struct, frozen=True):
    """A loaded plugin: its name, distribution and version.

    code: digits of a digest of the Python files of its package; "" for a plugin that is a file, whose version
    has them.
    """

    name: str
    distribution: str
    version: str
    code: str = ""


class Shard(Struct, frozen=True):
    """The part of a selection that a run measures: shard ``number`` of ``of``, from 1 on.

    Both are 0 for cases that ``--case`` chose. cases: the ids of the whole selection.
    """

    number: Annotated[int, Meta(ge=0)]
    of: Annotated[int, Meta(ge=0)]
    cases: list[str]

    def __str__(self) -> str:
        """As on the command line."""
        return f"{self.number}/{self.of}" if self.of else "of chosen cases"


class Manifest(Struct, frozen=True, tag="manifest", tag_field="kind"):
    """The first line of a run file.

    format: the version of this format. command: argv. cases, backends: as requested, in order. named:
    backends that were requested by name. not_asked: installed backends that this left out. protocol: every
    setting of the measurement. environment: facts of the machine and its software. sides: the two sides of a
    live comparison, by which backends are then named. counts: by the id of a case, its calls in one step of a
    model, where somebody counted; stages: of these counts, where they are not to be summed; without: in
    words, what such a step computes beside its cases; share: the part of a program's time that the counted
    calls took, where it was recorded. shard: None if the run is of all selected cases.
    continues: the id of the run before it in the file, whose cases without all records it measures; unlike:
    the facts that differ from that run's, in words. inputs: the version of what is drawn for its cases.
    """

    format: int
    run_id: str
    started: str
    attnbench: str
    command: list[str]
    cases: list[str]
    backends: list[str]
    named: list[str]
    compiled_on: list[str] | None
    protocol: dict[str, Any]
    plugins: list[PluginLine]
    environment: dict[str, Any]
    sides: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    stages: dict[str, str] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    share: float | None = None
    shard: Shard | None = None
    continues: str = ""
    unlike: list[str] = field(default_factory=list)
    inputs: int = 1
    not_asked: list[str] = field(default_factory=list)


class EndLine(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line of a run that was completed.

    phases_s: the wall time of each phase. load_average: of the machine at the end, over 1, 5 and 15 minutes;
    the run's own work is part of it.
    """

    finished: str
    wall_s: float
    phases_s: dict[str, float]
    load_average: list[float] = field(default_factory=list)


Line = Manifest | CaseLine | RepetitionLine | Record | EndLine
