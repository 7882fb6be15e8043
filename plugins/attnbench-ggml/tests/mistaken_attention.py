"""ggml_flash_attn with one mistake in the call of the library, each a backend: a plugin for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench_ggml import attention
from attnbench_ggml.graph import Graph

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

Numbers = tuple[float, float, float]


def _telling(change: Callable[[Setup, Numbers], Numbers]) -> Callable[[Setup], Any]:
    """Return a preparation that tells the operator another scale, slopes or cap."""

    def prepare(setup: Setup) -> Any:
        class Mistaken(Graph):
            def operate(self, operator: str, tensors: Any, numbers: Any) -> None:
                super().operate(operator, tensors, change(setup, tuple(numbers)))

        return _with(Mistaken, setup)

    return prepare


def _reading(change: Callable[[list[Tensor]], list[Tensor]]) -> Callable[[Setup], Any]:
    """Return a preparation after which calls read other memory: q, k, v, the mask, the sinks."""

    def prepare(setup: Setup) -> Any:
        class Mistaken(Graph):
            def compute(self, tensors: Any) -> Tensor:
                return super().compute(change(list(tensors)))

        return _with(Mistaken, setup)

    return prepare


def _with(graph: type[Graph], setup: Setup) -> Any:
    right, attention.Graph = attention.Graph, graph
    try:
        return attention.prepare(setup)
    finally:
        attention.Graph = right


def _nibbles_swapped(tensors: list[Tensor]) -> list[Tensor]:
    def swapped(x: Tensor) -> Tensor:
        blocks = x.clone().view(-1, 18)
        blocks[:, 2:] = (blocks[:, 2:] >> 4) | (blocks[:, 2:] << 4)
        return blocks.view(x.shape)

    return [tensors[0], *(swapped(x) for x in tensors[1:3]), *tensors[3:]]


def _scale_of_the_neighbour(tensors: list[Tensor]) -> list[Tensor]:
    def moved(x: Tensor) -> Tensor:
        blocks = x.clone().view(-1, 34)
        blocks[:, :2] = blocks[:, :2].roll(1, 0)
        return blocks.view(x.shape)

    return [tensors[0], *(moved(x) for x in tensors[1:3]), *tensors[3:]]


MISTAKES: dict[str, tuple[Callable[[Setup], Any], dict[str, Any]]] = {
    "scale_of_the_width": (
        _telling(lambda setup, told: (setup.case.D**-0.5, *told[1:])), {"encodings": ("latent",)},
    ),
    "slopes_of_half": (
        _telling(lambda setup, told: (told[0], told[1] / 2, told[2])), {"rules": ("alibi",)},
    ),
    "no_cap": (_telling(lambda setup, told: (told[0], told[1], 0.0)), {"rules": ("softcap",)}),
    "nibbles_swapped": (_reading(_nibbles_swapped), {"encodings": ("q4_0",)}),
    "scale_of_the_neighbour": (_reading(_scale_of_the_neighbour), {"encodings": ("q8_0",)}),
    "values_are_keys": (
        _reading(lambda read: [read[0], read[1], read[1], *read[3:]]), {"encodings": ("q8_0",)},
    ),
    "values_behind_the_rotated": (
        _reading(lambda read: [*read[:2], read[1][..., 64:], *read[3:]]), {"encodings": ("latent",)},
    ),
    "sinks_left_out": (_reading(lambda read: [*read[:-1], read[-1] * 0 - 1e9]), {"rules": ("sinks",)}),
}  # fmt: skip
"""Each with what it declares, so that it runs the cases alone that can show it."""


def _asked(declared: dict[str, Any]) -> Backend:
    """Return the backend that has the mistake: with a declared arithmetic where keys are blocks."""
    blocks = set(declared.get("encodings", ())) & {*attention.GGML_FLASH_ATTN_BLOCKS.encodings}
    return attention.GGML_FLASH_ATTN_BLOCKS if blocks else attention.GGML_FLASH_ATTN


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring each mistake."""
    return [
        replace(_asked(declared), name=name, prepare=prepare, **declared)
        for name, (prepare, declared) in MISTAKES.items()
    ]
