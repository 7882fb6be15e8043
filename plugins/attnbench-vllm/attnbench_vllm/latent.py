"""Decode with a latent head by ``mla_decode_kvcache``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup
from attnbench.kit.scores import form_of
from attnbench.types.batch import parse_batch
from attnbench.types.storage import sizes_of
from attnbench_vllm.library import absent, operators

if TYPE_CHECKING:
    from torch import Tensor

D, DV, PAGE = 576, 512, 16
"""The features of DeepSeek's latent head, and the page, that the kernel is built for."""


def prepare(setup: Setup) -> Callable[..., Any]:
    """Return the operator as a function of q, the latent cache, lengths and the table."""
    dot, library, width = setup.scoring.dot, operators(), setup.case.Dv
    assert dot is not None
    scale = dot.scale

    def call(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor) -> Tensor:
        out = q.new_empty(*q.shape[:2], width)
        library.mla_decode_kvcache(out, q, kv[:, :, 0], scale, block_table, seqused_k)
        return out

    return call


def supports(case: Case, rule: Rule) -> str | None:
    """Return the reason why the operator can't compute a case, or None."""
    form, page = form_of(case, rule), sizes_of(case)["page"]
    if (case.D, case.Dv) != (D, DV):
        return f"takes a latent head of D{D} and Dv{DV} alone"
    if form.bias is not None or form.sink is not None:
        return f"adds nothing to scores and sums, as {rule.name} does"
    if form.dot is None or form.dot.cap is not None or form.dot.map_q or form.dot.map_k:
        return f"takes scaled products of queries and keys alone, not {rule.name}"
    if page != PAGE:
        return f"takes pages of {PAGE} keys, not {page}"
    lengths = parse_batch(case.batch)
    if any(queries != 1 for queries, _ in lengths):
        return "decodes one query of each sequence"
    if case.mask.is_none or (case.mask.is_only_causal and case.mask.causal == "lower_right"):
        return None
    return "takes no mask, or causal:lower_right, which drops no key of one query"


VLLM_MLA_DECODE = Backend(
    name="vllm_mla_decode",
    summary="vLLM's decode with a latent head, its kernel for CPUs",
    prepare=prepare,
    supports=supports,
    available=absent,
    rules=("scaled_dot",),
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cpu",),
    storages=("paged",),
    encodings=("latent",),
    needs_dot_form=True,
    needs_contiguous=True,
    quadratic_copies=0,
)
