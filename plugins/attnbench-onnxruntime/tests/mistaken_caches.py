"""onnxruntime_gqa_codes with a mistake in how the cache is given, each a backend: a plugin for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench_onnxruntime.group_query_attention import ONNXRUNTIME_GQA_CODES, Attention

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Cache = dict[str, Tensor]


def _converting(change: Callable[[Cache, Cache], Cache]) -> Callable[[Setup], Attention]:
    """Return a preparation that holds another cache. change: of the case's tensors and of the right ones."""

    class Mistaken(Attention):
        def convert(self, cache: Mapping[str, Tensor]) -> Cache:
            return change(dict(cache), super().convert(cache))

    return Mistaken


MISTAKES = {
    "codes_in_twos_complement": lambda case, right: right | {name: case[name] for name in ("k", "v")},
    "nibbles_swapped": lambda case, right: (
        right | {name: (right[name] >> 4) | (right[name] << 4) for name in ("k", "v")}
    ),
    "scales_exchanged": lambda case, right: (
        right | {"k_scale": right["v_scale"], "v_scale": right["k_scale"]}
    ),
    "scales_of_the_next_head": lambda case, right: right | {"v_scale": right["v_scale"].roll(1, 1)},
    "scales_squared": lambda case, right: right | {"k_scale": right["k_scale"] ** 2},
    "scales_left_out": lambda case, right: right | {"v_scale": right["v_scale"] * 0 + 1},
}


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring each mistake, with codes of 4 bits."""
    return [
        replace(ONNXRUNTIME_GQA_CODES, name=name, prepare=_converting(change), encodings=("int4",))
        for name, change in MISTAKES.items()
    ]
