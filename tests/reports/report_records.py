"""Records that stand for a run: every status, and numbers whose text is known."""

from __future__ import annotations

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


def ok(backend: str, ms: float, *, case: str = GQA, rule: str = "scaled_dot", scale: float = 1.0) -> Record:
    return Record(
        case=case,
        rule=rule,
        backend=backend,
        status="ok",
        median_ms=ms,
        low_ms=0.98 * ms,
        high_ms=1.02 * ms,
        ratio=ms / 0.5,
        baseline="eager",
        accuracy=accuracy(scale),
        tflops=0.05 / ms,
        gbps=1.2 / ms,
        peak_extra_bytes=int(2**20 * ms * 8),
        prepare_ms=3.25,
        first_call_ms=12.0,
        sets=8,
        timed_calls=1600,
        verified_calls=8,
    )


def failed(backend: str, status: str, reason: str, **fields: object) -> Record:
    return Record(case=GQA, rule="scaled_dot", backend=backend, status=status, reason=reason, **fields)


RUN = [
    ok("eager", 0.5),
    ok("nn_multihead_attention", 48.06),
    ok("sdpa_flash", 0.000213, scale=0.31),
    failed(
        "chunked", "mismatch", "rms error 3.2e-01 is 2.1e+06 times the plain reference's, and 2 are allowed",
        accuracy=accuracy(2e6),
    ),
    failed("bmm", "suspect", "faster than the limit measured on this machine", median_ms=0.0021),
    failed("numpy", "unsupported", "computes in float64 and float32, not bfloat16"),
    failed("per_head_loop", "unsupported", "computes multihead, not attention"),
    failed("fused_multihead", "unsupported", "computes multihead, not attention"),
    failed("sdpa_cudnn", "unavailable", "runs on cuda only"),
    failed("mine", "out_of_memory", "needs about 65 GiB and 6 GiB is free"),
    failed("theirs", "crashed", "ended by signal 11 (segmentation fault) in its first call"),
    failed("slow", "timeout", "no answer within 120 s"),
    failed("odd", "error", "ValueError: first line second line [0]"),
    ok("eager", 1.0, case=LAYER, rule="additive"),
]  # fmt: skip
