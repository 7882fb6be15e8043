"""A run of a model's decode with its cache held in several ways, made by hand."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs
from page_runs import run_of

from attnbench.reports.run import Run

DECODE = "attention/scaled_dot/B1-H8-Hkv2-Lq1-Lk{}-D64/none/bfloat16/cpu/forward"
BYTES = {"dtype": 512.0, "q8_0": 272.0, "int8:head": 256.0, "q4_0": 144.0, "int4:head": 128.0}
ERRORS = {"q8_0": 0.006, "int8:head": 0.012, "q4_0": 0.11, "int4:head": 0.2}
SLOWER = {"dtype": 1.0, "q8_0": 1.2, "int8:head": 1.5, "q4_0": 2.0, "int4:head": 2.5}
WORDS = ("dtype", "q8_0", "int8:head", "q4_0")
DTYPE_ERROR = 0.002


def held(keys: int, word: str) -> str:
    """The id of a decode whose cache is held in a way."""
    return DECODE.format(keys) + ("" if word == "dtype" else f"/kv={word}")


def cache_run(
    keys: tuple[int, ...] = (1024, 2048),
    *,
    words: tuple[str, ...] = WORDS,
    counts: bool = True,
    more: tuple[str, ...] = (),
) -> Run:
    """A decode of 32 layers at some lengths. Each cache has its fastest backend, and a slower one; more: of
    backends for encoded caches, each slower than the one before."""
    times = {
        held(n, word): (
            {"eager": n / 1e4, "sdpa_flash": n / 2e4}
            if word == "dtype"
            else {
                name: n / 2e4 * place * SLOWER[word]
                for place, name in enumerate(("dequantise_sdpa", "dequantise_blocks", *more), start=1)
            }
        )
        for n in keys
        for word in words
    }
    run = run_of(times)
    records = []
    for record in run.records:
        word = record.case.partition("/kv=")[2] or "dtype"
        coded = {} if word == "dtype" else {"encoding_error": ERRORS[word], "dtype_error": DTYPE_ERROR}
        records.append(structs.replace(record, kv_bytes=BYTES[word], **coded))
    of = {case: 32 / len(keys) for case in times} if counts else {}
    head = structs.replace(run.manifests[0], counts=of, stages=dict.fromkeys(of, "decode"))
    return replace(run, by_file=(tuple(records),), manifests=(head,))
