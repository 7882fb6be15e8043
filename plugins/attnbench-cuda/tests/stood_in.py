"""A plugin: each backend of attnbench-cuda on the CPU, with a stand-in for its library; and with mistakes.

A mistake is made in the arguments on their way to the library, as if our call had it, or in what it gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

from attnbench_cuda import BACKENDS, hub

from attnbench import Backend, hookimpl

sys.path.insert(0, str(Path(__file__).parent))
from library_modules import Result

RIGHT = "stood_in"
RULES = ("simple_gla", "delta_rule", "gated_delta_rule", "kda", "rwkv7")
CALLS = {
    "flash_attn": ("flash_attn_2",),
    "flash_attn_3": ("flash_attn_3",),
    "flash_attn_4": ("flash_attn_4",),
    "kernels_flash_attn3": ("flash_attn_3",),
    "flashinfer_prefill": ("flashinfer",),
    "xformers_attention": ("xformers",),
    "transformer_engine": ("transformer_engine",),
    "sageattention": ("sageattention",),
    "flash_attn_varlen": ("flash_attn_2_varlen",),
    "flash_attn_kvcache": ("flash_attn_2_kvcache",),
    "flash_attn_3_varlen": ("flash_attn_3_varlen", "flash_attn_3_kvcache"),
    "flash_attn_4_varlen": ("flash_attn_4_varlen",),
    "flash_attn_4_paged": ("flash_attn_4_varlen",),
    "flashinfer_ragged": ("flashinfer_ragged",),
    "flashinfer_paged": ("flashinfer_paged",),
    "flashinfer_decode": ("flashinfer_decode",),
    "xformers_varlen": ("xformers",),
    "xformers_paged": ("xformers",),
    "fla_chunks": tuple(f"chunk_{name}" for name in RULES),
    "fla_steps": tuple(f"fused_recurrent_{name}" for name in RULES),
    "flashinfer_gated_delta": ("flashinfer_gated_delta",),
    "mamba_chunk_scan": ("mamba_chunk_scan",),
}
"""The stand-ins that each backend calls."""


def without(*names: str):
    """Leave arguments out, so that their defaults are taken."""
    return lambda args, named: (args, {name: value for name, value in named.items() if name not in names})


def window(name: str, of):
    """Change both ends of a window, unless it is the whole."""

    def change(args: tuple[Any, ...], named: dict[str, Any]):
        ends = named.get(name)
        if ends is None or set(ends) <= {None, -1}:
            return args, named
        return args, named | {name: of(*ends)}

    return change


def exchanged_axes(args: tuple[Any, ...], named: dict[str, Any]):
    """Heads before positions."""
    return tuple(x.transpose(1, 2) for x in args), named


def exchanged_k_and_v(args: tuple[Any, ...], named: dict[str, Any]):
    q, k, v = args
    return (q, v, k), named


def set_to(**values: Any):
    return lambda args, named: (args, named | values)


def wider_left(args: tuple[Any, ...], named: dict[str, Any]):
    return args, named | {"window_left": named.get("window_left", -1) + 1}


def other_alignment(args: tuple[Any, ...], named: dict[str, Any]):
    kinds = {"causal": "causal_bottom_right", "causal_bottom_right": "causal"}
    kind = named["attn_mask_type"]
    return args, named | {"attn_mask_type": kinds.get(kind, kind)}


def another_mask(args: tuple[Any, ...], named: dict[str, Any]):
    """A causal mask of the upper left in place of any other causal one."""
    from stand_ins import OWN

    mask = named["attn_bias"]
    return args, named | ({"attn_bias": OWN[0]()} if isinstance(mask, OWN[1:]) else {})


def longer_window(args: tuple[Any, ...], named: dict[str, Any]):
    from stand_ins import OWN

    mask = named["attn_bias"]
    return args, named | ({"attn_bias": OWN[2](mask.left + 2)} if isinstance(mask, OWN[2]) else {})


def big_end_first(args: tuple[Any, ...], named: dict[str, Any]):
    return args, {}


def other_pages(name: str):
    """Each row of a table begins with its second page."""

    def change(args: tuple[Any, ...], named: dict[str, Any]):
        table = named.get(name)
        return args, named if table is None else named | {name: table.roll(1, 1).contiguous()}

    return change


def rolled(place: int):
    """Another order of the numbers in one argument."""
    return lambda args, named: ((*args[:place], args[place].roll(1), *args[place + 1 :]), named)


def shorter(place: int):
    """One key less in the last page of each sequence that has two there."""

    def change(args: tuple[Any, ...], named: dict[str, Any]):
        return (*args[:place], (args[place] - 1).clamp(min=1), *args[place + 1 :]), named

    return change


def mask_with(**changed: Any):
    """Change a mask of sequences. changed: functions of the fields' values."""

    def change(args: tuple[Any, ...], named: dict[str, Any]):
        mask = named["attn_bias"]
        values = {name: of(getattr(mask, name)) for name, of in changed.items()}
        return args, named | {"attn_bias": replace(mask, **values)}

    return change


def wider(ends: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    left, right = ends
    return None if left is None else left + 1, right


def zeros(name: str):
    """Begin without what was before."""
    return lambda args, named: (args, named | {name: named[name] * 0})


def unscaled_queries(args: tuple[Any, ...], named: dict[str, Any]):
    x, dt, A, B, C, *more = args
    return (x, dt, A, B, C * C.shape[-1] ** 0.5, *more), named


BASE_2 = Result(lambda found: (found[0], found[1] / log(2), *found[2:]) if type(found) is tuple else found)
TURNED_STATE = Result(lambda found: (found[0], found[1].mT.contiguous()))
FLASH = {
    "no_scale": without("softmax_scale"),
    "not_causal": without("causal"),
    "no_window": without("window_size"),
    "short_window": window("window_size", lambda left, right: (left - 1, right)),
    "no_cap": without("softcap"),
    "exchanged_axes": exchanged_axes,
    "exchanged_k_and_v": exchanged_k_and_v,
}
VARLEN = {name: FLASH[name] for name in ("no_scale", "not_causal", "short_window")} | {"base_2": BASE_2}
WRAPPED = {
    "no_scale": without("sm_scale"),
    "not_causal": without("causal"),
    "wider_left": wider_left,
    "base_2": BASE_2,
}
MISTAKES: dict[str, dict[str, Any]] = {
    "flash_attn": FLASH | {"no_slopes": without("alibi_slopes")},
    "flash_attn_3": FLASH,
    "flash_attn_4": FLASH | {"no_sink": without("learnable_sink")},
    "kernels_flash_attn3": {"not_causal": FLASH["not_causal"]},
    "flashinfer_prefill": {
        "no_scale": without("sm_scale"),
        "not_causal": without("causal"),
        "wider_left": wider_left,
        "no_cap": without("logits_soft_cap"),
        "no_mask": without("packed_custom_mask"),
        "big_end_first": big_end_first,
        "exchanged_k_and_v": exchanged_k_and_v,
    },
    "xformers_attention": {
        "no_scale": without("scale"),
        "no_bias": without("attn_bias"),
        "another_mask": another_mask,
        "longer_window": longer_window,
        "exchanged_k_and_v": exchanged_k_and_v,
    },
    "transformer_engine": {
        "no_scale": without("softmax_scale"),
        "other_alignment": other_alignment,
        "not_causal": set_to(attn_mask_type="no_mask"),
        "no_window": without("window_size"),
        "short_window": window("window_size", lambda left, right: (left - 1, right)),
        "no_cap": without("softcap"),
        "positions_first": without("qkv_format"),
    },
    "flash_attn_varlen": VARLEN | {"other_pages": other_pages("block_table")},
    "flash_attn_kvcache": {
        "short_window": FLASH["short_window"],
        "base_2": BASE_2,
        "other_pages": other_pages("block_table"),
    },
    "flash_attn_3_varlen": VARLEN | {"other_pages": other_pages("page_table")},
    "flash_attn_4_varlen": VARLEN | {"no_sink": without("learnable_sink")},
    "flash_attn_4_paged": {"other_pages": other_pages("page_table")},
    "flashinfer_ragged": WRAPPED,
    "flashinfer_paged": WRAPPED | {"other_pages": rolled(3), "shorter": shorter(4)},
    "flashinfer_decode": {
        "base_2": BASE_2,
        "wider_left": wider_left,
        "other_pages": rolled(2),
        "shorter": shorter(3),
    },
    "xformers_varlen": {
        "no_scale": without("scale"),
        "not_causal": mask_with(window=lambda ends: (None, None)),
        "longer_window": mask_with(window=wider),
    },
    "xformers_paged": {"other_pages": mask_with(block_tables=lambda table: table.roll(1, 1))},
    "fla_chunks": {"turned_state": TURNED_STATE, "no_state": zeros("initial_state")},
    "fla_steps": {"turned_state": TURNED_STATE, "no_scale": set_to(scale=1.0)},
    "flashinfer_gated_delta": {
        "turned_state": TURNED_STATE,
        "linear_decay": without("gate_domain"),
        "no_state": zeros("initial_state"),
    },
    "mamba_chunk_scan": {
        "turned_state": TURNED_STATE,
        "no_state": zeros("initial_states"),
        "unscaled": unscaled_queries,
    },
    "sageattention": {
        "no_scale": without("sm_scale"),
        "not_causal": without("is_causal"),
        "heads_first": without("tensor_layout"),
        "exchanged_k_and_v": exchanged_k_and_v,
    },
}


def stood_in(backend: Backend, mistake: str = "") -> Backend:
    """Return the backend as one of the CPU that needs no library."""

    def prepare(setup):
        from library_modules import install

        hub.cached.cache_clear()
        called = ("packbits",) if mistake == "big_end_first" else CALLS[backend.name]
        install(dict.fromkeys(called, MISTAKES[backend.name][mistake]) if mistake else None)
        return backend.prepare(setup)

    return replace(
        backend, name=f"{backend.name}_{mistake or RIGHT}", prepare=prepare, available=lambda device: None,
        devices=("cpu",), requires=(), compiles=False,
    )  # fmt: skip


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring each as it is, and with each mistake."""
    for backend in BACKENDS:
        yield stood_in(backend)
        for mistake in MISTAKES[backend.name]:
            yield stood_in(backend, mistake)
