"""Backends that show in their output what a test wants to know of their worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Any]

HELD_BYTES = 96 * 1024**2


def counts_calls(setup: Setup) -> Call:
    """The output is full of the number of calls so far, this one included.

    Here and below, the call outside of inference mode, which looks at gradients, does not count.
    """
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        nonlocal calls
        calls += torch.is_inference_mode_enabled()
        return q * 0 + calls

    return call


def gives_values(setup: Setup) -> Call:
    """v itself, seen through strides of its own."""
    return lambda q, k, v: v.transpose(-1, -2).contiguous().transpose(-1, -2)


def counts_places(setup: Setup) -> Call:
    """The output is full of the number of places in memory that inputs came from so far."""
    places: set[tuple[int, int, int]] = set()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        if torch.is_inference_mode_enabled():
            places.add((q.data_ptr(), k.data_ptr(), v.data_ptr()))
        return q * 0 + len(places)

    return call


def heads_last(setup: Setup) -> Call:
    """Attention by dot products on (B, L, H, D), refusing anything else."""
    case = setup.case

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert q.shape == (case.B, case.Lq, case.H, case.D)
        assert k.shape == (case.B, case.Lk, case.Hkv, case.D)
        assert q.is_contiguous()
        k, v = (x.repeat_interleave(case.group, dim=2) for x in (k, v))
        weights = (q.transpose(1, 2).double() @ k.permute(0, 2, 3, 1).double()).softmax(-1)
        return (weights @ v.transpose(1, 2).double()).transpose(1, 2).to(v.dtype)

    return call


def tells_identity(setup: Setup) -> Call:
    """1 where keys are the queries' very tensor, 2 where values are, 3 for both, 4 for keys and values."""
    return lambda a, b, c: a * 0 + (b is a) + 2 * (c is a) + 4 * (b is c and b is not a)


def tells_torch(setup: Setup) -> Call:
    """Threads, whether a graph could be built, and whether something is read from stdin."""
    import torch

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        said = [torch.get_num_threads(), int(torch.is_inference_mode_enabled()), len(sys.stdin.read())]
        return q * 0 + torch.tensor([*said, 0.0])

    return call


def holds_memory(setup: Setup) -> Call:
    """Holds 96 MiB for the length of a call."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        held = np.ones(HELD_BYTES, dtype=np.uint8)
        return q * int(held[0])

    return call


def raises_once_warm(setup: Setup) -> Call:
    """Fails at its third call."""
    counted = counts_calls(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = counted(q, k, v)
        if int(output.flatten()[0]) == 3:
            raise ArithmeticError("tired")
        return output

    return call


def counts_threads(setup: Setup) -> Call:
    """The first four numbers: threads of torch and between its operations, by its own word; then how many
    were started when torch worked, and how many more when numpy's BLAS did."""
    import torch

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at_first = tasks()
        torch.ones(600, 600) @ torch.ones(600, 600)
        torch.softmax(torch.ones(600, 600), -1)
        with_torch = tasks()
        np.ones((600, 600)) @ np.ones((600, 600))
        out = v * 0
        said = torch.get_num_threads(), torch.get_num_interop_threads()
        out.view(-1)[:4] = torch.tensor([*said, with_torch - at_first, tasks() - with_torch])
        return out

    return call


def tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def asks_in_vain(case: object, rule: object) -> str | None:
    raise LookupError("no idea")


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    both = ("attention", "multihead")
    for prepare in (
        counts_calls, gives_values, tells_identity, tells_torch, holds_memory, raises_once_warm,
        counts_places, counts_threads,
    ):  # fmt: skip
        yield Backend(prepare.__name__, "outspoken", prepare, operations=both)
    yield Backend("heads_last", "outspoken", heads_last, layout="BLHD")
    yield Backend("asks_in_vain", "outspoken", gives_values, supports=asks_in_vain)
    yield Backend("not_here", "outspoken", gives_values, available=lambda device: f"no kernel for {device}")
