"""Global state left changed: switches of torch, environment, random numbers, threads, children, memory.

Each but the one that keeps memory changes it in its first call alone: a check of a later call finds nothing.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.types.backend import Setup
from attnbench_selftest.mutants.mutant import Mutant, around_call
from attnbench_selftest.mutants.where import anywhere, forward

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


_started: list[subprocess.Popen[bytes]] = []
"""Kept, since a child whose object is gone is a warning of its own."""
_modes: list[Any] = []
"""Kept, since a mode ends with its object."""


def _threads() -> None:
    import torch

    torch.set_num_threads(torch.get_num_threads() + 1)


def _dtype() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def _precision() -> None:
    import torch

    torch.set_float32_matmul_precision("medium")


def _deterministic() -> None:
    import torch

    torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled(), warn_only=True)


def _grad_mode() -> None:
    import torch

    torch.set_grad_enabled(not torch.is_grad_enabled())


def _no_gradients() -> None:
    import torch

    torch.set_grad_enabled(False)


def _inference_mode() -> None:
    import torch

    mode = torch.inference_mode()
    mode.__enter__()
    _modes.append(mode)


def _default_device() -> None:
    import torch

    torch.set_default_device("meta")


def _denormals() -> None:
    import torch

    torch.set_flush_denormal(True)


def _seed() -> None:
    import torch

    torch.manual_seed(20)


def _draws() -> None:
    import torch

    torch.rand(1)


def _seed_of_python() -> None:
    import random

    random.seed(20)


def _seed_of_numpy() -> None:
    import numpy as np

    np.random.seed(20)


def _environment() -> None:
    os.environ["OMP_NUM_THREADS"] = "64"


def _thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def _child() -> None:
    _started.append(subprocess.Popen(["sleep", "60"]))


def _keeps_memory(setup: Setup, call: Call) -> Call:
    import torch

    kept: list[Tensor] = []

    def keeping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept.append(torch.ones(1 << 20, dtype=torch.uint8, device=setup.case.device))
        return call(q, k, v)

    return keeping


def _once(change: Callable[[], None]) -> Callable[[Setup, Call], Call]:
    def around(setup: Setup, call: Call) -> Call:
        done = False

        def changing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal done
            out = call(q, k, v)
            if not done:
                done = True
                change()
            return out

        return changing

    return around


def _always(change: Callable[[], None]) -> Callable[[Setup, Call], Call]:
    def around(setup: Setup, call: Call) -> Call:
        def changing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = call(q, k, v)
            change()
            return out

        return changing

    return around


CHANGES: dict[str, tuple[str, Callable[[], None]]] = {
    "changes_threads": ("torch has one thread more afterwards", _threads),
    "changes_default_dtype": ("float64 is torch's default dtype afterwards", _dtype),
    "changes_matmul_precision": ("float32 products may be rounded afterwards", _precision),
    "changes_deterministic_flag": ("torch's deterministic flag is the other afterwards", _deterministic),
    "changes_grad_mode": ("gradients are on where they were off, and off where they were on", _grad_mode),
    "changes_default_device": ("new tensors are on no device afterwards", _default_device),
    "changes_denormals": ("denormal numbers are 0 afterwards", _denormals),
    "seeds_torch": ("torch's random numbers begin anew", _seed),
    "draws_from_torch": ("torch's random numbers are one further", _draws),
    "seeds_python": ("Python's random numbers begin anew", _seed_of_python),
    "seeds_numpy": ("NumPy's random numbers begin anew", _seed_of_numpy),
    "changes_environment": ("OMP_NUM_THREADS is 64 afterwards", _environment),
    "leaves_a_thread": ("a thread that waits for ever", _thread),
    "leaves_a_child": ("a child process that sleeps", _child),
}

MODES: dict[str, tuple[str, Callable[[], None]]] = {
    "switches_gradients_off": ("gradients are off after every call", _no_gradients),
    "leaves_inference_mode_on": ("inference mode is on after every call", _inference_mode),
}

MUTANTS: tuple[Mutant, ...] = (
    *(
        around_call(name, words, _once(change), "state", anywhere)
        for name, (words, change) in CHANGES.items()
    ),
    *(around_call(name, words, _always(change), "state", forward) for name, (words, change) in MODES.items()),
    around_call("keeps_memory", "every call keeps a MiB", _keeps_memory, "state", anywhere),
)
