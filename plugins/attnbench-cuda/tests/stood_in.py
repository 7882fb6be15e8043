"""A plugin: each backend of attnbench-cuda on the CPU, with a stand-in for its library; and with mistakes.

A mistake is made in the arguments on their way to the library, as if our call had it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench_cuda import BACKENDS

from attnbench import Backend, hookimpl

sys.path.insert(0, str(Path(__file__).parent))

RIGHT = "stood_in"
CALLS = {
    "flash_attn": "flash_attn_2",
    "flash_attn_3": "flash_attn_3",
    "flash_attn_4": "flash_attn_4",
    "kernels_flash_attn3": "flash_attn_3",
    "flashinfer_prefill": "flashinfer",
    "xformers_attention": "xformers",
    "transformer_engine": "transformer_engine",
    "sageattention": "sageattention",
}
"""The stand-in that each backend calls."""


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


FLASH = {
    "no_scale": without("softmax_scale"),
    "not_causal": without("causal"),
    "no_window": without("window_size"),
    "short_window": window("window_size", lambda left, right: (left - 1, right)),
    "no_cap": without("softcap"),
    "exchanged_axes": exchanged_axes,
    "exchanged_k_and_v": exchanged_k_and_v,
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
        from stand_ins import install

        called = "packbits" if mistake == "big_end_first" else CALLS[backend.name]
        install({called: MISTAKES[backend.name][mistake]} if mistake else None)
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
