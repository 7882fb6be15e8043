"""The modules that the backends import, made of stand-ins; also with one of them changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import batch_stand_ins
import recurrent_stand_ins
import stand_ins
from stand_ins import OWN, get_kernel, module

Change = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]

STOOD_IN = stand_ins.FUNCTIONS | batch_stand_ins.FUNCTIONS | recurrent_stand_ins.FUNCTIONS
"""The stand-ins by name."""
WRAPPERS = ("flashinfer_ragged", "flashinfer_paged", "flashinfer_decode")
FUNCTIONS = (
    {name: made for name, made in STOOD_IN.items() if name not in WRAPPERS and "Mask" not in name}
    | {
        f"{name}.{method}": getattr(STOOD_IN[name], method)
        for name in WRAPPERS
        for method in ("__init__", "plan", "run")
    }
    | {f"{kind.__name__}.from_seqlens": kind.from_seqlens for kind in batch_stand_ins.SEQUENCES[:2]}
)
"""All functions and methods that have a published signature."""
RECURRENT = ("simple_gla", "delta_rule", "gated_delta_rule", "kda", "rwkv7")


@dataclass(frozen=True)
class Result:
    """A change of what a function gives, in place of what it is given."""

    of: Callable[[Any], Any]


def modules(changes: Mapping[str, Change | Result] | None = None) -> dict[str, ModuleType]:
    """Every module that the backends import, by name.

    changes: by the name of a function, what becomes of its arguments or of its result. Arguments of a wrapper
    are those of ``plan``, its result is that of ``run``.
    """
    by = {name: _changed(made, (changes or {}).get(name)) for name, made in STOOD_IN.items()}
    kinds = (*OWN, *batch_stand_ins.SEQUENCES)
    masks = module("xformers.ops.fmha.attn_bias", **{kind.__name__: kind for kind in kinds})

    def own_get_kernel(*args: Any, **named: Any) -> ModuleType:
        get_kernel(*args, **named)
        return module("flash_attn3", flash_attn_func=by["flash_attn_3"])

    of_rules = {
        f"fla.ops.{name}": {f"{how}_{name}": by[f"{how}_{name}"] for how in ("chunk", "fused_recurrent")}
        for name in RECURRENT
    }
    content: dict[str, dict[str, Any]] = {
        "flash_attn": {
            "flash_attn_func": by["flash_attn_2"],
            "flash_attn_varlen_func": by["flash_attn_2_varlen"],
            "flash_attn_with_kvcache": by["flash_attn_2_kvcache"],
        },
        "flash_attn.cute": {
            "flash_attn_func": by["flash_attn_4"],
            "flash_attn_varlen_func": by["flash_attn_4_varlen"],
        },
        "flash_attn_interface": {
            "flash_attn_func": by["flash_attn_3"],
            "flash_attn_varlen_func": by["flash_attn_3_varlen"],
            "flash_attn_with_kvcache": by["flash_attn_3_kvcache"],
        },
        "kernels": {"get_kernel": own_get_kernel},
        "flashinfer": {
            "single_prefill_with_kv_cache": by["flashinfer"],
            "packbits": by["packbits"],
            "BatchPrefillWithRaggedKVCacheWrapper": by["flashinfer_ragged"],
            "BatchPrefillWithPagedKVCacheWrapper": by["flashinfer_paged"],
            "BatchDecodeWithPagedKVCacheWrapper": by["flashinfer_decode"],
            "chunk_gated_delta_rule": by["flashinfer_gated_delta"],
        },
        "xformers.ops": {"memory_efficient_attention": by["xformers"]},
        "xformers.ops.fmha": {"attn_bias": masks},
        "xformers.ops.fmha.attn_bias": masks.__dict__,
        "transformer_engine.pytorch": {"DotProductAttention": by["transformer_engine"]},
        "sageattention": {"sageattn": by["sageattention"]},
        "mamba_ssm.ops.triton.ssd_combined": {"mamba_chunk_scan_combined": by["mamba_chunk_scan"]},
        **of_rules,
    }
    return {name: module(name, **inside) for name, inside in content.items()}


def _changed(made: Any, change: Change | Result | None) -> Any:
    if change is None:
        return made
    if not isinstance(made, type) or not issubclass(made, batch_stand_ins.Wrapper):
        return _wrapped(made, change)
    method = "run" if isinstance(change, Result) else "plan"
    return type(made.__name__, (made,), {method: _wrapped(getattr(made, method), change)})


def _wrapped(function: Callable[..., Any], change: Change | Result) -> Callable[..., Any]:
    def called(*args: Any, **named: Any) -> Any:
        if isinstance(change, Result):
            return change.of(function(*args, **named))
        args, named = change(args, dict(named))
        return function(*args, **named)

    return called


def install(changes: Mapping[str, Change | Result] | None = None) -> None:
    """Put the stand-ins where the backends import the libraries from."""
    sys.modules.update(modules(changes))
