"""A backend that says how many threads its process has once the libraries in it have worked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]


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


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    yield Backend("counts_threads", "counts threads", counts_threads)
