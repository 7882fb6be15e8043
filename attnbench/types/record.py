"""What a run records: the manifest, samples, repetitions, records with their accuracy.

These are msgspec structs because they are the lines of the run file, each told apart by ``kind``.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from attnbench.types.checks import Check
from attnbench.types.status import Status


class Accuracy(Struct, frozen=True):
    """The check in numbers, pooled over draws.

    rms_error, max_error: of the output against the oracle. reference_rms, reference_max: the same of
    the plain computation in the case's dtype. rms_limit, max_limit: what was allowed. rows: query rows
    compared, of how many (all unless the oracle would have cost too much). draws: independent inputs.
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

    calls: outputs looked at. rows, rows_of: rows (of a batch element, a head and a query) that tell
    something, of how many compared; 0 where nothing is dropped that could be seen. scale: of the mean of the
    outputs over the oracle's answer. spread: variance between calls over what p gives, and least and most
    that were allowed. p: that of which the spread would be; p_least, p_most: those of which the limits would
    be.
    """

    calls: int
    rows: int
    rows_of: int
    scale: float
    spread: float
    spread_least: float
    spread_most: float
    p: float
    p_least: float
    p_most: float


def _ratio(part: float, whole: float) -> float:
    if whole == 0:
        return 0.0 if part == 0 else float("inf")
    return part / whole


FORMAT_VERSION = 1

DeviceMode = Literal["", "batch", "launches", "cold"]
"""What a sample of a device is: calls replayed back to back, or launched back to back, or each alone with an
overwritten cache. "" on the CPU, where the case says it all."""


class Block(Struct, frozen=True, omit_defaults=True):
    """The samples of one backend in one stretch of a set, a sample for each of its turns.

    stretch: which part of its set; inputs are renewed between two. turns: the places of its samples in the
    stretch's order of turns, ascending. calls: back-to-back calls in each sample; wall_ns[i] / calls is the
    time per call of sample i. wall_ns, cpu_ns (of the thread), switches (involuntary), faults (minor): one
    number a sample, read outside the timed window. asked_ns: how long each turn took by the clocks of the
    processes before and after it (the parent's at the ends), of several in a row an equal share of what they
    took less what the process waited for its core; 0 where they did not tell. others_cpu_ns: CPU time of the
    process's other threads, from before its first turn until after its last. renewed_ns: of the one call that
    was the first on inputs written anew within the stretch, 0 where it isn't known.
    Of a device alone: mode; host_ns, what the thread took to launch, and cpu_ns what of that it had a core;
    clock_mhz at the end of each sample, 0 where it wasn't told; default_clock_mhz, what the device runs at
    when nothing slows it down.
    """

    stretch: int
    turns: list[int]
    calls: int
    wall_ns: list[int]
    cpu_ns: list[int]
    switches: list[int]
    faults: list[int]
    asked_ns: list[int]
    others_cpu_ns: int = 0
    renewed_ns: int = 0
    mode: DeviceMode = ""
    host_ns: list[int] = field(default_factory=list)
    clock_mhz: list[int] = field(default_factory=list)
    default_clock_mhz: int = 0


class CandidatePlan(Struct, frozen=True):
    """What the check of a candidate found, and how it is going to be measured.

    calls in each sample, samples (turns) in each block, warm_calls before each sample, sets it takes part in
    (the first so many): fixed before measuring, from the budget. prepare_ms: loading and preparation;
    first_call_ms: the first call, compilation and allocation included; warmup_ms: the trace of the
    warm-up, per call.
    fresh: whether each set gets a fresh process of it; otherwise it's started anew every few sets. anew:
    whether that process prepares it anew; otherwise it's a fork of one that has.
    accuracy, ran, kernel_of, parts, dropout: as in a record.
    """

    calls: int
    samples: int
    warm_calls: int
    sets: int
    accuracy: Accuracy | None
    prepare_ms: float
    first_call_ms: float
    warmup_ms: list[float]
    fresh: bool
    notes: list[str] = field(default_factory=list)
    anew: bool = False
    ran: list[str] = field(default_factory=list)
    kernel_of: str = ""
    parts: dict[str, Accuracy] = field(default_factory=dict)
    dropout: DropoutNumbers | None = None


class CaseLine(Struct, frozen=True, tag="case", tag_field="kind"):
    """A case whose contenders are checked and planned.

    draw_entropy: what seeds the timed inputs, from the operating system. pairs: kept (query, key) pairs.
    """

    case: str
    stretches: int
    draw_entropy: int
    pairs: int
    flops: float
    bytes_moved: float
    contenders: dict[str, CandidatePlan]


class Failure(Struct, frozen=True, omit_defaults=True):
    """Why a contender dropped out while it was measured. failed_check: as in a record."""

    status: Status
    reason: str
    failed_check: Check = ""


class MachineScale(Struct, frozen=True):
    """What the machine could do while a set was measured, in a process of its own on the measured core.

    gemm_ns: the time of each product of two square matrices, by their side n (2n³ operations).
    copy_bytes: read and written by one copy, the case's own working set; copy_ns: the time of each.
    empty_ns: per call of a function that does nothing, one number a sample. copy_call_ns: of a copy of one
    element, which is what calling a copy takes. convolution_ns: the time of each convolution of
    convolution_flops operations; none where the products are as fast.
    """

    gemm_ns: dict[int, list[int]]
    copy_bytes: int
    copy_ns: list[int]
    empty_ns: list[float]
    copy_call_ns: list[float] = field(default_factory=list)
    convolution_flops: int = 0
    convolution_ns: list[int] = field(default_factory=list)


class SetLine(Struct, frozen=True, tag="set", tag_field="kind"):
    """One fresh child process for each contender and all that was measured with them.

    order: contenders in the order they were started. draws: which of the case's secret inputs they
    computed on, one after the other: two in each stretch, where inputs are renewed within, else one; changes:
    for each, what seeds the composition of laws that it came after. scale: the machine's, None where it was
    not measured. warmup_ns: by backend, the trace of its warm-up per call. blocks: by backend, in the order
    measured. verified: backends whose outputs of timed calls were compared with the oracle and right;
    verified_calls: how many of each. checking_s: what that took, writing inputs and waiting for it included.
    failed: those that dropped out, wrong outputs included.
    """

    case: str
    index: int
    draws: list[int]
    order: list[str]
    warmup_ns: dict[str, list[int]]
    blocks: dict[str, list[Block]]
    verified: list[str]
    failed: dict[str, Failure]
    scale: MachineScale | None = None
    changes: list[int] = field(default_factory=list)
    verified_calls: dict[str, int] = field(default_factory=dict)
    checking_s: float = 0.0


class Record(Struct, frozen=True, tag="record", tag_field="kind"):
    """The outcome of one backend on one case. A timing stands only on ``ok`` (and ``suspect``).

    case: its id. reason: why the status isn't ``ok``, in words. median_ms: median over sets of the
    set's median time per call; low_ms, high_ms: its interval at ``confidence``. ratio: time over the
    baseline's, the median over sets of the median of paired ratios; ratio_low, ratio_high: its interval at
    ``ratio_confidence``. Intervals are exact, from order statistics over sets, at the least confidence of
    0.95 or more that these sets allow; None where they allow none. p_value: of the sign test that the ratio
    is 1. delta: the least effect that counts in a verdict. pairs: those the ratio stands on; pairs_left_out:
    those left out because either side was preempted. best: the fastest backend of the case;
    ratio_to_best: as ratio.
    tflops, gbps: from exact counts. limit_share: the time that the machine, as measured in this run, needs at
    least, over the time taken. peak_extra_bytes: of one call. faults_per_call: minor page faults while timed.
    prepare_ms: loading and preparation; first_call_ms: the first call, compilation and allocation included.
    timed_calls: calls inside timed samples. verified_calls: outputs of those compared with the oracle.
    notes: what a reader should know, in words. accuracy: of the output, or of the gradient that is farthest
    off; parts: of the output and each gradient, where there are several. dropout: what takes the place of
    both in a case with dropout. failed_on: families of inputs on which the check failed, those of the case
    beside it as ``near:FAMILY``; ``dropout`` where outputs are not those of dropout. failed_check: the check
    that failed, see :mod:`attnbench.types.checks`. failed_case: the id of the case beside it that shows the
    failure, "" where it is the case itself.
    ran: what one call ran, in order: torch's operations that compute and kernels of a device, with counts
    (``bmm x2``). kernel_of: the other backend whose kernel is among them, "" where there is none.
    """

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    median_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    confidence: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ratio_confidence: float | None = None
    p_value: float | None = None
    baseline: str | None = None
    delta: float | None = None
    pairs: int = 0
    pairs_left_out: int = 0
    best: str | None = None
    ratio_to_best: float | None = None
    accuracy: Accuracy | None = None
    tflops: float | None = None
    gbps: float | None = None
    limit_share: float | None = None
    peak_extra_bytes: int | None = None
    faults_per_call: float | None = None
    prepare_ms: float | None = None
    first_call_ms: float | None = None
    warmup_ms: list[float] = field(default_factory=list)
    sets: int = 0
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


class PluginLine(Struct, frozen=True):
    """A loaded plugin: its name, distribution and version."""

    name: str
    distribution: str
    version: str


class Manifest(Struct, frozen=True, tag="manifest", tag_field="kind"):
    """The first line of a run file.

    format: version of this format. command: argv. cases, backends: what was asked for, in order.
    named: backends that were asked for by name. protocol: every dial of the measurement.
    environment: facts of the machine and its software. sides: of a live comparison, what each of its two
    sides is; backends are then called after them.
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


class EndLine(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line of a run that went to its end. phases_s: where its wall time went.

    load_average: of the machine then, over 1, 5 and 15 minutes; its own work is part of it.
    """

    finished: str
    wall_s: float
    phases_s: dict[str, float]
    load_average: list[float] = field(default_factory=list)


Line = Manifest | CaseLine | SetLine | Record | EndLine
