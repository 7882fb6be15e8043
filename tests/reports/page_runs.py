"""Runs made by hand for pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from run_files import manifest_of

from attnbench.reports.run import Run
from attnbench.types.record import Accuracy, PluginLine, Record

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\u202e…" + "long" * 60
"""A name as bad as names come."""
SURE, DOUBTFUL = 0.01, 0.3


def case(length: int, *, rule: str = "scaled_dot", device: str = "cpu") -> str:
    return f"attention/{rule}/B1-H4-Lq{length}-Lk{length}-D64/none/float32/{device}/forward"


def failed(text: str, backend: str, status: str, reason: str, **fields: Any) -> Record:
    return Record(text, text.split("/")[1], backend, status, reason, **fields)  # type: ignore[arg-type]


def timed(text: str, backend: str, ms: float, best: tuple[str, float], eager_ms: float, off: float) -> Record:
    """A record with a time; ``off`` is half the width of its intervals, as a share."""
    ratio = ms / eager_ms
    baseline = backend == "eager"
    return Record(
        text, text.split("/")[1], backend, "ok", median_ms=ms, low_ms=ms * (1 - off), high_ms=ms * (1 + off),
        baseline="eager", delta=0.02, ratio=ratio, ratio_low=None if baseline else ratio * (1 - off),
        ratio_high=None if baseline else ratio * (1 + off), p_value=None if baseline else 0.0005,
        repetitions=12, best=best[0], ratio_to_best=ms / best[1], tflops=0.1 / ms, gbps=10 / ms,
        limit_share=0.2 / ms, peak_extra_bytes=int(2**20 * ms),
        accuracy=Accuracy(1e-7, 1e-6, 1e-7, 1e-6, 3e-7, 5e-6, 256, 256, 4),
    )  # fmt: skip


def run_of(
    times: Mapping[str, Mapping[str, float]],
    *others: Record,
    name: str = "made.jsonl",
    cpu: str = "A made machine",
    started: str = "2026-01-02T03:04:05+00:00",
    facts: Mapping[str, Any] = MappingProxyType({}),
    off: float = SURE,
    finished: bool = True,
    **manifest: Any,
) -> Run:
    """A run in which each backend of each case takes so many ms; ``others`` are records without a time."""
    records = [
        timed(text, backend, ms, min(those.items(), key=lambda one: one[1]), those.get("eager", ms), off)
        for text, those in times.items()
        for backend, ms in those.items()
    ]
    records += others
    made = manifest_of(
        run_id=name, started=started, command=["attnbench", "run", "made", "--repetitions", "12"],
        cases=list(dict.fromkeys(record.case for record in records)),
        backends=list(dict.fromkeys(record.backend for record in records)),
        protocol={"repetitions": 12, "baseline": "eager", "memory_limit_bytes": 2**31},
        plugins=[PluginLine("backends", "attnbench", "0.1.0")],
        environment={"cpu": cpu, "torch": "2.13.0", "governor": None} | dict(facts), **manifest,
    )  # fmt: skip
    path = Path(name)
    return Run(
        (path,), (made,), (tuple(records),), () if finished else (path,),
        times=(tuple(repetitions(times, off)),),
    )  # fmt: skip


def repetitions(
    times: Mapping[str, Mapping[str, float]], off: float
) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Twelve repetitions around the times; every second backend is slow where the others are quick."""
    for text, those in times.items():
        for i in range(12):
            share = off * (2 * i - 11) / 11
            yield (
                text,
                i,
                {
                    name: 1e6 * ms * (1 + (share if place % 2 else -share))
                    for place, (name, ms) in enumerate(those.items())
                },
            )


def together(*runs: Run) -> Run:
    """Several runs as one."""
    return Run(
        tuple(path for run in runs for path in run.paths),
        tuple(manifest for run in runs for manifest in run.manifests),
        tuple(records for run in runs for records in run.by_file),
        tuple(path for run in runs for path in run.unfinished),
        times=tuple(times for run in runs for times in run.times),
    )


LENGTHS = (128, 256, 512)
TIMES = {
    case(n): {"eager": n**2 / 1e4, "quick": n**2 / 3e4, "twin": n**2 / 1e4, "slow": n**2 / 3e3}
    for n in LENGTHS
}
FAILED = (
    failed(case(128), "wrong", "mismatch", "rms error 3.2e-01 is 2.1e+06 times the plain reference's"),
    failed(case(256), "wrong", "mismatch", "rms error 3.3e-01 is 2.2e+06 times the plain reference's"),
    failed(case(128), "theirs", "crashed", "ended by signal 11 (segmentation fault) in its first call"),
    failed(case(128), "odd", "suspect", "213 ns a call is 40 times as fast as this machine", median_ms=0.001),
    failed(case(128), "sdpa_cudnn", "unavailable", "runs on cuda only"),
)
WHOLE = run_of(TIMES, *FAILED)
"""A run with every chart and outcomes of many kinds."""


def hostile_run() -> Run:
    """A run whose names, reasons and facts try to become markup, script or keys of JavaScript's objects."""
    names = {"eager": 1.0, HOSTILE: 2.0, "constructor": 3.0, "__proto__": 4.0}
    reason = failed(case(128), "theirs", "error", HOSTILE, notes=[HOSTILE])
    return run_of(dict.fromkeys(map(case, LENGTHS), names), reason, cpu=HOSTILE)


def large_run(cases: int, backends: int) -> Run:
    names = ["eager", *(f"backend_{place}" for place in range(1, backends))]
    return run_of(
        {
            case(2 + i, rule="dot" if i % 2 else "scaled_dot"): {
                name: (2 + i) ** 1.9 / 1e3 * (1 + 0.1 * place) for place, name in enumerate(names)
            }
            for i in range(cases)
        }
    )
