"""Backends that write down where they are prepared, and with which environment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from attnbench import Backend, Case, Mask, Rule, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

LOG, GATE = "ATTNBENCH_WATCHING_LOG", "ATTNBENCH_WATCHING_GATE"
"""A file to write to, and one without which :data:`WAITING` waits."""

LONGEST_WAIT_S = 100


def write_down(setup: Setup) -> None:
    """Append a line with the processes above this one, the nearest first."""
    line = {
        "threads": setup.case.threads,
        "above": [process.pid for process in psutil.Process().parents()],
        "environment": dict(os.environ),
        "seen_at": time.monotonic(),
    }
    with Path(os.environ[LOG]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def prepare(setup: Setup) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Write a line, and compute as ``bmm`` does."""
    import torch

    write_down(setup)
    scale = setup.constants["scale"]
    return lambda q, k, v: torch.softmax(q @ k.mT * scale, -1) @ v


def wait_and_prepare(setup: Setup) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Prepare, but a case with two threads not before the gate is open."""
    call = prepare(setup)
    deadline = time.monotonic() + LONGEST_WAIT_S
    while setup.case.threads == 2 and not Path(os.environ[GATE]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return call


def supports(case: Case, rule: Rule) -> str | None:
    return None if case.mask == Mask() else "no masks"


# Its forecast is so long that each case is a unit.
DEAR = Backend(
    "dear", "Declares to compile.", prepare, supports=supports, rules=("scaled_dot",), compiles=True
)
WAITING = Backend("waiting", "Waits at the gate.", wait_and_prepare, supports=supports, rules=("scaled_dot",))


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    yield from (DEAR, WAITING)
