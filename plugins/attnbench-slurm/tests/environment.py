"""A backend that writes down below which processes it is prepared, with which environment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor


def prepare(setup: Setup) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Append a line, and compute as ``bmm`` does. A case with 24 keys waits until the gate is there."""
    import torch

    above = [process.pid for process in psutil.Process().parents()]
    line = {"environment": dict(os.environ), "above": above, "Lk": setup.case.Lk}
    with Path(os.environ["WRITTEN"]).open("a") as file:
        file.write(json.dumps(line) + "\n")
    while setup.case.Lk == 24 and "GATE" in os.environ and not Path(os.environ["GATE"]).exists():
        time.sleep(0.05)
    return lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v


# Its forecast is so long that each case is a unit.
READS = Backend("reads", "Reads its environment.", prepare, rules=("dot",), compiles=True)


@hookimpl
def attnbench_backends() -> tuple[Backend, ...]:
    return (READS,)
