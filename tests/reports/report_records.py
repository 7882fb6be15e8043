"""Records that stand for a run: every status, every verdict, and numbers whose text is known."""

from __future__ import annotations

from typing import Any

from attnbench.reports.judged import judge
from attnbench.types.record import Accuracy, Record

GQA = "attention/scaled_dot/B2-H8-Hkv2-Lq128-Lk128-D64/causal/float32/cpu/forward"
LAYER = "multihead/additive/B1-H4-Lq64-Lk64-D64-E256-bias/none/bfloat16/cpu/forward"


def accuracy(scale: float = 1.0, rows: int = 256) -> Accuracy:
    return Accuracy(
        rms_error=1.5e-7 * scale,
        max_error=1.1e-6 * scale,
        reference_rms=1.5e-7,
        reference_max=1.0e-6,
        rms_limit=4e-7,
        max_limit=6e-6,
        rows=rows,
        rows_of=256,
        draws=4,
    )


def ok(backend: str, ms: float, *, off: float = 0.004, scale: float = 1.0, **fields: Any) -> Record:
    """A right record, timed against an ``eager`` of 0.5 ms; ``off``: how far off its ratio's ends are."""
    ratio = ms / 0.5
    compared: dict[str, Any] = {
        "ratio_low": ratio * (1 - off),
        "ratio_high": ratio * (1 + off),
        "ratio_confidence": 0.9609375,
        "p_value": 0.00390625,
        "pairs": 180,
        "pairs_left_out": 4,
    }
    said = {
        "case": GQA,
        "rule": "scaled_dot",
        "backend": backend,
        "status": "ok",
        "median_ms": ms,
        "low_ms": 0.98 * ms,
        "high_ms": 1.02 * ms,
        "confidence": 0.9609375,
        "ratio": ratio,
        "baseline": "eager",
        "delta": 0.02,
        "best": "sdpa_flash",
        "ratio_to_best": ms / 0.0213,
        "ratio_to_best_low": ms / 0.0213 * (1 - off),
        "ratio_to_best_high": ms / 0.0213 * (1 + off),
        "accuracy": accuracy(scale),
        "tflops": 0.05 / ms,
        "gbps": 1.2 / ms,
        "limit_share": 0.0164 / ms,
        "peak_extra_bytes": int(2**20 * ms * 8),
        "faults_per_call": 0.0,
        "prepare_ms": 3.25,
        "first_call_ms": 12.0,
        "repetitions": 9,
        "timed_calls": 1600,
        "verified_calls": 9,
    }
    return Record(**(said | ({} if backend == "eager" else compared) | fields))


def failed(backend: str, status: str, reason: str, **fields: object) -> Record:
    return Record(case=GQA, rule="scaled_dot", backend=backend, status=status, reason=reason, **fields)


RUN = [
    ok("eager", 0.5),
    ok("nn_multihead_attention", 48.06, off=0.0007),
    ok("sdpa_flash", 0.0213, scale=0.31),
    ok("compiled", 0.5012, off=0.0012, p_value=0.1796875),
    ok("flex", 0.513, off=0.03, p_value=0.0390625),
    failed(
        "chunked", "mismatch", "rms error 3.2e-01 is 2.1e+06 times the plain reference's, and 2 are allowed",
        accuracy=accuracy(2e6),
    ),
    failed(
        "bmm", "suspect", "faster than the limit measured on this machine", median_ms=0.00213, low_ms=0.0019,
        high_ms=0.0024,
    ),
    failed("numpy", "unsupported", "computes in float64 and float32, not bfloat16"),
    failed("per_head_loop", "unsupported", "computes multihead, not attention"),
    failed("fused_multihead", "unsupported", "computes multihead, not attention"),
    failed("sdpa_cudnn", "unavailable", "runs on cuda only"),
    failed("mine", "out_of_memory", "needs about 65 GiB and 6 GiB is free"),
    failed("theirs", "crashed", "ended by signal 11 (segmentation fault) in its first call"),
    failed("slow", "timeout", "no answer within 120 s"),
    failed("odd", "error", "ValueError: first line second line [0]"),
    ok("eager", 1.0, case=LAYER, rule="additive", ratio=1.0, best="eager", ratio_to_best=1.0),
]  # fmt: skip

JUDGED = judge(RUN)
