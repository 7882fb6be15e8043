"""Stored runs made by hand for pages: with sets, so that leads and limits are worked out as from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from attnbench.compare.comparison import compare
from attnbench.compare.summary import summarise
from attnbench.runner.run_file import StoredRun
from attnbench.types.accuracy import Accuracy
from attnbench.types.record import (
    Block,
    CaseLine,
    EndLine,
    MachineScale,
    Manifest,
    PluginLine,
    Record,
    SetLine,
)
from attnbench.types.sides import baseline_of

SETS = 12
_SCALE = MachineScale({128: [40_000]}, 2**20, [60_000], [50.0], [500.0])
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\u202e…" + "long" * 60
"""A name as bad as names come."""


def case(length: int, *, rule: str = "scaled_dot", dtype: str = "float32") -> str:
    return f"attention/{rule}/B1-H4-Lq{length}-Lk{length}-D64/none/{dtype}/cpu/forward"


def around(ms: float, seed: int, noise: float = 0.004) -> list[int]:
    """A time for each set in ns, off by up to ``noise`` as a share."""
    rng = Random(seed)
    return [int(1e6 * ms * (1 + rng.uniform(-noise, noise))) for _ in range(SETS)]


def failed(text: str, backend: str, status: str, reason: str, **fields: Any) -> Record:
    return Record(text, text.split("/")[1], backend, status, reason, **fields)  # type: ignore[arg-type]


def run_of(
    times: Mapping[str, Mapping[str, Sequence[int]]],
    *others: Record,
    name: str = "made.jsonl",
    finished: bool = True,
    budgets: Mapping[str, float] | None = None,
    cpu: str = "A made machine",
    sides: Mapping[str, dict[str, Any]] | None = None,
) -> StoredRun:
    """A run in which each backend of each case took so many ns in each set; ``eager`` is the baseline, and of
    what is called after a side, itself on the base side.

    others: records without samples. budgets: error budgets by backend, 1 unless said.
    """
    sets = {text: _sets(text, those) for text, those in times.items()}
    records = [
        _record(text, backend, sets[text], (budgets or {}).get(backend, 1.0))
        for text, those in times.items()
        for backend in those
    ]
    records += others
    return StoredRun(
        path=Path(name),
        manifest=Manifest(
            format=1, run_id=name, started="2026-01-02T03:04:05+00:00", attnbench="0.1.0",
            command=["attnbench", "run"], cases=list(dict.fromkeys(record.case for record in records)),
            backends=list(dict.fromkeys(record.backend for record in records)), named=[], compiled_on=None,
            protocol={"sets": SETS, "baseline": "eager", "delta": 0.02, "memory_limit_bytes": 2**31},
            plugins=[PluginLine("backends", "attnbench", "0.1.0")],
            environment={"cpu": cpu, "libraries": {"torch": "2.13.0"}, "governor": None},
            sides=dict(sides or {}),
        ),
        cases=tuple(
            CaseLine(text, 1, 1, 100, 200.0 * _length(text) ** 2, 1e3 * _length(text), {}) for text in times
        ),
        sets=tuple(line for lines in sets.values() for line in lines),
        records=tuple(records),
        finished=EndLine("2026-01-02T03:05:05+00:00", 60.0, {}) if finished else None,
        torn=False,
        complete_bytes=0,
    )  # fmt: skip


def _length(text: str) -> int:
    return int(text.split("-Lq")[1].split("-")[0])


def _sets(text: str, times: Mapping[str, Sequence[int]]) -> list[SetLine]:
    return [
        SetLine(
            text, index, [0], list(times), {}, {name: [_block(ns[index])] for name, ns in times.items()}, [],
            {}, _SCALE,
        )
        for index in range(min(map(len, times.values())))
    ]  # fmt: skip


def _block(ns: int) -> Block:
    return Block(0, [0], 1, [ns], [ns], [0], [0], [0])


def _record(text: str, backend: str, sets: list[SetLine], budget: float) -> Record:
    timing, baseline = summarise(sets, backend), baseline_of(backend, "eager")
    assert timing is not None
    record = Record(
        text, text.split("/")[1], backend, "ok", median_ms=timing.median_ms, baseline=baseline, delta=0.02,
        low_ms=timing.interval and timing.interval.low, high_ms=timing.interval and timing.interval.high,
        sets=len(sets), accuracy=Accuracy(1e-7 * budget, 1e-6, 1e-7, 1e-6, 3e-7, 5e-6, 256, 256, 4),
        peak_extra_bytes=2**14 * _length(text), limit_share=0.25,
    )  # fmt: skip
    if backend == baseline:
        return replace(record, ratio=1.0)
    found = compare(sets, backend, baseline)
    if found is None:
        return record
    low = found.interval and found.interval.low
    high = found.interval and found.interval.high
    return replace(record, ratio=found.ratio, ratio_low=low, ratio_high=high, p_value=found.p_value)


LENGTHS = (128, 256, 512)
TIMES = {
    case(length): {
        "eager": around(length**2 / 1e5, 1),
        "quick": around(length**2 / 3e5, 2),
        "twin": around(length**2 / 1e5, 3),
        "vague": around(length**2 / 1e5, 4, noise=0.2),
    }
    for length in LENGTHS
}
LEVEL = {"eager": around(1.0, 5), "twin": around(1.0, 6), "slow": around(3.0, 7)}
UNSURE = {"eager": around(1.0, 8, noise=0.1), "quick": around(0.99, 9, noise=0.1)}
FAILED = (
    failed(case(128), "wrong", "mismatch", "rms error 3.2e-01 is 2.1e+06 times the plain reference's"),
    failed(case(256), "wrong", "mismatch", "rms error 3.2e-01 is 2.1e+06 times the plain reference's"),
    failed(case(128), "theirs", "crashed", "ended by signal 11 (segmentation fault) in its first call"),
    failed(case(128), "odd", "suspect", "213 ns a call is 40 times as fast as this machine", median_ms=0.001),
    failed(case(128), "numpy", "unsupported", "computes in float64"),
    failed(case(128), "sdpa_cudnn", "unavailable", "runs on cuda only"),
)
WHOLE = run_of(
    TIMES
    | {case(64, rule="dot"): LEVEL, case(96, rule="dot"): UNSURE}
    | {case(32, rule="dot"): {"eager": around(1, 9)}},
    *FAILED,
    budgets={"quick": 1.4, "twin": 0.5},
)  # fmt: skip
"""A run with a lead of every kind, and outcomes of every kind."""


def large_run(cases: int = 500, backends: int = 10) -> StoredRun:
    """Records, many of them, and the machine's limits, but no samples."""
    made = []
    for i in range(cases):
        text = case(2 + i, rule="scaled_dot" if i % 2 else "dot", dtype="float32" if i % 3 else "bfloat16")
        for j in range(backends):
            ms = (2 + i) ** 1.9 / 1e4 * (1 + 0.1 * j)
            name = f"backend_{j}" if j else "eager"
            made.append(
                Record(
                    text, text.split("/")[1], name, "ok", median_ms=ms, low_ms=0.98 * ms, high_ms=1.02 * ms,
                    baseline="eager", delta=0.02, ratio=1 + 0.1 * j, sets=SETS, limit_share=0.3,
                    ratio_low=None if not j else 0.99 + 0.1 * j, ratio_high=None if not j else 1.01 + 0.1 * j,
                    p_value=None if not j else 0.0005, tflops=0.1, gbps=1.0, peak_extra_bytes=2**20 * (i + 1),
                    accuracy=Accuracy(1e-7 * (1 + j % 3), 1e-6, 1e-7, 1e-6, 3e-7, 5e-6, 256, 256, 4),
                )
            )  # fmt: skip
    run = run_of({}, *made, name="large.jsonl")
    texts = run.manifest.cases
    return dataclasses.replace(
        run,
        cases=tuple(
            CaseLine(text, 1, 1, 100, 200.0 * _length(text) ** 2, 1e3 * _length(text), {}) for text in texts
        ),
        sets=tuple(SetLine(text, 0, [0], [], {}, {}, [], {}, _SCALE) for text in texts),
    )
