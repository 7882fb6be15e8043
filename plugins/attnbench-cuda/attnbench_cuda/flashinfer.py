"""FlashInfer: one request, packed requests, pages, the gated delta rule. Ye et al. 2025, FlashInfer.

flashinfer_prefill is checked against ``flashinfer.single_prefill_with_kv_cache`` of 0.7.2.post1 and 0.7.4:

- q is (Lq, H, D), k and v are (Lk, Hkv, D) in the layout NHD. Its Hopper kernels have D = 64, 128 or 256.
- ``causal`` is aligned to the lower right. ``window_left`` keys before a query's own are seen, -1 for all;
  there is no window to the right.
- A mask of one's own (Lq, Lk), True = keep, replaces ``causal``. It is packed to bits in every call unless
  the bits are given: least significant bit first, rows one after the other.
- ``logits_soft_cap`` None or 0 is no cap. The result is the output alone unless ``return_lse`` is asked
  for.
- Its page names no gradients, and doesn't say what a row without a key gives: such rows are set to 0.

flashinfer_ragged, flashinfer_paged and flashinfer_decode are checked against
``BatchPrefillWithRaggedKVCacheWrapper``, ``BatchPrefillWithPagedKVCacheWrapper`` and
``BatchDecodeWithPagedKVCacheWrapper`` of 0.7.4:

- q is (T, H, D); k and v are (S, Hkv, D), or a pair of caches (pages, page, Hkv, D) in the layout NHD.
  Pages are told by ``indptr`` (N + 1,), ``indices`` and ``last_page_len`` (N,) from 1 to a page, all int32,
  so each sequence has a key. ``plan`` takes them before a call. With ``use_cuda_graph`` it writes them into
  buffers of ours.
- Masks, cap and heads are those above; masks of one's own are not given. Decode takes one query of each
  sequence.
- The log-sum-exp is (T, H), with ``lse_base="ln"`` natural. Decode gives base 2; it is multiplied by ln 2,
  which is timed. Nothing says what a row without a key gives, so such cases are declined.
- The workspace is 128 MiB, the size that its page recommends, and zero at first.

flashinfer_gated_delta is checked against ``flashinfer.chunk_gated_delta_rule`` of 0.7.4:

- q, k (T, Hkv, 128) and v (T, H, 128) are contiguous and in half precision; one head of q and k serves H /
  Hkv heads of v. ``g`` with ``gate_domain="log"`` and ``beta`` (T, H) are in float32. ``cu_seqlens`` are
  int32 or int64.
- States are (N, H, Dv, D), the features of values first, in float32. With ``state_indices`` both are pools,
  of which a call writes the slots that are named. They are turned before and after, which is timed.

"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from math import log
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import empty_rows, keep_mask
from attnbench.kit.problems import flashinfer_tables
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.mask import ANY_MASK
from attnbench.types.storage import sizes_of
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import BAND_MASKS, band_of, lengths_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import refuse_maps
from attnbench_cuda.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

HEADS = (64, 128, 256)
WORKSPACE_BYTES = 128 << 20
TENSOR_CORES = 4
"""From so many query heads a key head on, decode runs on tensor cores, as vLLM lets it."""
STATE = 128
"""Features of a head of the gated delta rule."""
RAGGED, PAGED, DECODE = (
    f"Batch{of}KVCacheWrapper" for of in ("PrefillWithRagged", "PrefillWithPaged", "DecodeWithPaged")
)


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of the kernel besides q, k and v."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    told: dict[str, Any] = {"kv_layout": "NHD", "sm_scale": dot.scale, "logits_soft_cap": dot.cap}
    band = band_of(case)
    if isinstance(band, str) or (band.before is not None and band.after != 0):
        keep = keep_mask(case, case.device)
        return told if keep is None else told | {"packed_custom_mask": _packed(keep[0, 0])}
    window = {} if band.before is None else {"window_left": band.before}
    return told | {"causal": band.after == 0} | window


def library_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Import the library's kernel, and the function that packs its masks."""
    from flashinfer import packbits, single_prefill_with_kv_cache

    return single_prefill_with_kv_cache, packbits


def _packed(keep: Tensor) -> Tensor:
    _, packbits = library_functions()
    bits: Tensor = packbits(keep.contiguous().view(-1), bitorder="little")
    return bits


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    single_prefill_with_kv_cache, _ = library_functions()
    told, empty = arguments(setup), empty_rows(setup.case, setup.case.device)
    # (1, 1, Lq, 1) to (Lq, 1, 1)
    rows = None if empty is None else empty[0, 0, :, :, None]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = single_prefill_with_kv_cache(q[0], k[0], v[0], **told)
        return (out if rows is None else out.masked_fill(rows, 0)).unsqueeze(0)

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Ask for a device, and for the arguments of both functions."""
    named = ("kv_layout", "sm_scale", "logits_soft_cap", "packed_custom_mask", "causal", "window_left")
    return (
        needs_gpu("flashinfer")
        or cannot_call(lambda: library_functions()[0], *named)
        or cannot_call(lambda: library_functions()[1], "bitorder")
    )


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse all but one sequence, heads of 64, 128 or 256 features, and masks that add nothing."""
    form = form_of(case, rule)
    if case.B != 1:
        return f"FlashInfer's kernel for one request takes one sequence; here B = {case.B}"
    if case.D not in HEADS or case.Dv != case.D:
        return f"FlashInfer has kernels for D = Dv = 64, 128 or 256; here D = {case.D} and Dv = {case.Dv}"
    if case.mask.adds:
        return "FlashInfer's kernel for one request adds no numbers to the scores"
    if form.bias is not None or form.sink is not None:
        what = "bias" if form.sink is None else "sink"
        return f"FlashInfer's kernel for one request takes no {what} of a rule's own"
    return None


FLASHINFER_PREFILL = Backend(
    name="flashinfer_prefill",
    summary="FlashInfer's prefill of one request",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    layout="BLHD",
    requires=("flashinfer",),
    forkable=False,
    # Its kernels are compiled for a case's dtype and head when they are first called.
    compiles=True,
    quadratic_copies=0,
    masks=(ANY_MASK,),
)


class Wrapper:
    """The prepared function of a batch, by one of the library's wrappers."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.case, self.lse, self.decode = setup.case, "lse" in setup.case.returns, name == DECODE
        self.paged = name != RAGGED
        self.told = plan_arguments(setup) | ({} if self.decode else {"causal": the_band(setup.case).causal})
        self.wrapper = _library(name)()(self._workspace(), "NHD", use_cuda_graph=True, **self._buffers())

    def _workspace(self) -> Tensor:
        import torch

        return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.case.device)

    def _buffers(self) -> dict[str, Any]:
        import torch

        sequences = self.case.B
        numbers = partial(torch.zeros, dtype=torch.int32, device=self.case.device)
        suffix = "buffer" if self.decode else "buf"
        queries = {} if self.decode else {"qo_indptr_buf": numbers(sequences + 1)}
        if not self.paged:
            return queries | {"kv_indptr_buf": numbers(sequences + 1)}
        page = sizes_of(self.case)["page"]
        pages = sum(-(-keys // page) for _, keys in lengths_of(self.case))
        return (
            queries
            | {
                f"paged_kv_indptr_{suffix}": numbers(sequences + 1),
                f"paged_kv_indices_{suffix}": numbers(pages),
                f"paged_kv_last_page_len_{suffix}": numbers(sequences),
            }
            | ({"use_tensor_cores": self.case.group >= TENSOR_CORES} if self.decode else {})
        )

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Let the library plan the batch."""
        case = self.case
        places = [] if self.decode else [ahead["cu_seqlens_q"]]
        sizes = [case.H, case.Hkv, case.D]
        if self.paged:
            sizes.append(sizes_of(case)["page"])
            places += flashinfer_tables(ahead["block_table"], ahead["seqused_k"], sizes[-1])
        else:
            places.append(ahead["cu_seqlens_k"])
        self.wrapper.plan(*places, *sizes, **self.told)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend, (T, H, D)."""
        keys = ((k, v),) if self.paged else (k, v)
        if not self.lse:
            return self.wrapper.run(q, *keys)
        if not self.decode:
            return self.wrapper.run(q, *keys, return_lse=True, lse_base="ln")
        out, lse = self.wrapper.run(q, *keys, return_lse=True)
        return out, lse * log(2)


def plan_arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``plan`` besides sizes and places, but for ``causal``."""
    dot, band = setup.scoring.dot, the_band(setup.case)
    assert dot is not None
    return {
        "sm_scale": dot.scale,
        "logits_soft_cap": dot.cap,
        "window_left": -1 if band.before is None else band.before,
        "q_data_type": case_dtype(setup.case),
    }


def _library(name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module("flashinfer"), name)


def available_wrapper(name: str, device: str) -> str | None:
    """Ask besides for a wrapper whose functions take what is given."""
    load = _library(name)
    asked = ("return_lse",) if name == DECODE else ("return_lse", "lse_base")
    return (
        needs_gpu("flashinfer")
        or cannot_call(load, "float_workspace_buffer", "kv_layout", "use_cuda_graph")
        or cannot_call(lambda: load().run, *asked)
    )


def supports_batch(case: Case, rule: Rule) -> str | None:
    """Heads of 64, 128 or 256 features, causal masks and windows to the left, and no row without a key."""
    form, band = form_of(case, rule), band_of(case)
    if isinstance(band, str):
        return f"FlashInfer's kernels for batches, as they are called here, {band}"
    if band.after:
        return "FlashInfer's kernels for batches have no window to the right"
    if case.D not in HEADS or case.Dv != case.D:
        return f"FlashInfer has kernels for D = Dv = 64, 128 or 256; here D = {case.D} and Dv = {case.Dv}"
    if form.bias is not None or form.sink is not None:
        what = "bias" if form.sink is None else "sink"
        return f"FlashInfer's kernels for batches are given no {what} here"
    if any(keys == 0 for _, keys in lengths_of(case)) and case.storage == "paged":
        return "FlashInfer can't write a sequence without keys: last_page_len is from 1 to a page"
    if band.leaves_rows_empty(case):
        return "FlashInfer doesn't say what a query without a key gives"
    return refuse_maps(case, rule, "FlashInfer")


def supports_decode(case: Case, rule: Rule) -> str | None:
    """Decline besides all but one query of each sequence."""
    if {queries for queries, _ in lengths_of(case)} != {1}:
        return "FlashInfer's decode takes one query of each sequence"
    return supports_batch(case, rule)


def _batch(
    name: str, wrapper: str, summary: str, supports: Callable[[Case, Rule], str | None], storage: str
) -> Backend:
    return replace(
        FLASHINFER_PREFILL,
        name=name,
        summary=summary,
        prepare=partial(Wrapper, wrapper),
        supports=supports,
        available=partial(available_wrapper, wrapper),
        operations=("attention",),
        storages=(storage,),
        returns=("lse",),
        layout="BHLD",
        masks=BAND_MASKS,
    )


FLASHINFER_RAGGED = _batch(
    "flashinfer_ragged", RAGGED, "FlashInfer's prefill of packed requests", supports_batch, "packed"
)
FLASHINFER_PAGED = _batch(
    "flashinfer_paged",
    PAGED,
    "FlashInfer's prefill with keys in pages",
    supports_batch,
    "paged",
)
FLASHINFER_DECODE = _batch(
    "flashinfer_decode", DECODE, "FlashInfer's decode with keys in pages", supports_decode, "paged"
)


def prepare_delta(setup: Setup) -> Call:
    """Return chunk_gated_delta_rule as a function of the inputs of a case."""
    function = _library("chunk_gated_delta_rule")()
    scale = setup.case.D**-0.5

    def call(
        steps: dict[str, Tensor], state: Tensor, starts: Tensor, slots: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        named = {name: x[0].contiguous() for name, x in steps.items()}
        before = state.mT.contiguous()
        out, after = function(
            named["q"], named["k"], named["v"], g=named.get("decay"), beta=named["beta"].float(), scale=scale,
            initial_state=before, output_final_state=True, cu_seqlens=starts, output_state=before.clone(),
            state_indices=slots, gate_domain="log",
        )  # fmt: skip
        return out[None], after.mT

    return in_steps(setup, call, packs=True)


def supports_delta(case: Case, rule: Rule) -> str | None:
    """Heads of 128 features."""
    if (case.D, case.Dv) != (STATE, STATE):
        return f"FlashInfer's gated delta rule has D = Dv = {STATE}; here D = {case.D} and Dv = {case.Dv}"
    return None


def available_delta(device: str) -> str | None:
    """Ask for a device, and for the arguments."""
    return needs_gpu("flashinfer") or cannot_call(
        _library("chunk_gated_delta_rule"),
        "g",
        "beta",
        "initial_state",
        "output_state",
        "state_indices",
        "gate_domain",
    )


FLASHINFER_GATED_DELTA = Backend(
    name="flashinfer_gated_delta",
    summary="FlashInfer's gated delta rule in chunks",
    prepare=prepare_delta,
    supports=supports_delta,
    available=available_delta,
    operations=("recurrent",),
    rules=("delta", "gated_delta"),
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    storages=("dense", "packed", "pooled"),
    requires=("flashinfer",),
    forkable=False,
    compiles=True,
    quadratic_copies=0,
)
