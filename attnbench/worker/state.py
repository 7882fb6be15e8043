"""Switches of the process that a call must leave alone: settings of torch, the environment, random numbers.

A call that leaves a switch changed alters what later calls compute, or how fast.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from attnbench.worker.outputs import WrongOutput

State = dict[str, Any]
"""Values of switches by name."""

_TORCH_ATTRIBUTES = (
    "torch.backends.cuda.matmul.allow_tf32",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "torch.backends.cudnn.allow_tf32",
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
    "torch.backends.mkldnn.enabled",
    "torch.backends.mkldnn.matmul.fp32_precision",
)
_SDPA_KERNELS = ("flash", "math", "mem_efficient", "cudnn")
_OF_COMPILERS = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")
"""Environment variables that torch's compiler sets for itself when it first compiles."""


@dataclass(frozen=True)
class Switch:
    """How one switch is read and set.

    kind: ``own`` for a switch of torch that preparation may set for the backend's own calls.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    kind: Literal["torch", "own", "process", "random"] = "torch"


@cache
def switches() -> dict[str, Switch]:
    """Return every switch by name. The order matters: setting the matmul precision also sets TF32."""
    import torch

    return {
        "the number of threads": Switch(torch.get_num_threads, torch.set_num_threads),
        "the default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype),
        # Any default device, even the CPU, is a mode that every function of torch then goes through.
        "the default device": Switch(torch.get_default_device, lambda _: torch.set_default_device(None)),
        "the precision of float32 matmuls": Switch(
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        ),
        **{path: _attribute(torch, path) for path in _TORCH_ATTRIBUTES},
        "the mode of deterministic algorithms": Switch(
            torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
        ),
        "the grad mode": Switch(torch.is_grad_enabled, torch.set_grad_enabled),
        "the flushing of denormals": Switch(_flushes_denormals, torch.set_flush_denormal),
        "the kernels that SDPA may use": Switch(_sdpa_kernels, _allow_sdpa_kernels, "own"),
        "the environment": Switch(_environment, _set_environment, "process"),
        "torch's random numbers": Switch(
            lambda: torch.get_rng_state().numpy().tobytes(),
            lambda bits: torch.set_rng_state(torch.frombuffer(bytearray(bits), dtype=torch.uint8)),
            "random",
        ),
        "Python's random numbers": Switch(random.getstate, random.setstate, "random"),
        "NumPy's random numbers": Switch(
            lambda: pickle.dumps(np.random.get_state()),
            lambda pickled: np.random.set_state(pickle.loads(pickled)),
            "random",
        ),
    }


@cache
def state_at_start() -> State:
    """Return the state at the first call of this function: when a server starts."""
    return read_state()


def read_state() -> State:
    """Return the value of every switch now."""
    return {name: _read(switch) for name, switch in switches().items()}


def changes(before: State, after: State, *, leave: Collection[str] = ()) -> dict[str, str]:
    """Return the switches that changed, by name, with a description; without those of the kinds ``leave``."""
    return {
        name: _description(name, before[name], after[name])
        for name, switch in switches().items()
        if before[name] != after[name] and switch.kind not in leave
    }


def restore(before: State, names: Collection[str]) -> None:
    """Set these switches back to their values in ``before`` where torch allows it."""
    for name in names:
        with contextlib.suppress(Exception):
            switches()[name].write(before[name])


@contextlib.contextmanager
def nothing_changed(who: str, *, draws: bool = False) -> Iterator[None]:
    """Check that the code inside leaves every switch alone, and restore what it changed.

    draws: whether it may draw random numbers. These are not restored, since the next call must draw others.

    Raises:
        WrongOutput: ``who`` ("the call") changed something.
    """
    before = read_state()
    yield
    changed = changes(before, read_state(), leave=("random",) if draws else ())
    if changed:
        restore(before, changed)
        raise WrongOutput(f"{who} {'; '.join(changed.values())}", "state")


def put_back_after_preparation() -> tuple[str, ...]:
    """Restore what preparation changed for other code, and return notes for the record."""
    changed = changes(state_at_start(), read_state(), leave=("own", "random"))
    restore(state_at_start(), changed)
    return tuple(f"preparation {description}; put back" for description in changed.values())


def _description(name: str, before: Any, after: Any) -> str:
    if switches()[name].kind == "random":
        return f"drew from {name}"
    if isinstance(before, dict):
        variables = sorted(each for each in before | after if before.get(each) != after.get(each))
        return f"changed {name}: {', '.join(variables)}"
    return f"changed {name} from {before} to {after}"


def _read(switch: Switch) -> Any:
    try:
        return switch.read()
    except Exception as failure:
        # torch's old TF32 switches raise once the new ones are set. That is a change too.
        return f"unreadable ({type(failure).__name__})"


def _attribute(torch: Any, path: str) -> Switch:
    owner, _, name = path.removeprefix("torch.").rpartition(".")
    return Switch(
        lambda: getattr(attrgetter(owner)(torch), name),
        lambda value: setattr(attrgetter(owner)(torch), name, value),
    )


def _sdpa_kernels() -> tuple[str, ...]:
    from torch.backends import cuda

    return tuple(name for name in _SDPA_KERNELS if getattr(cuda, f"{name}_sdp_enabled")())


def _allow_sdpa_kernels(names: Collection[str]) -> None:
    from torch.backends import cuda

    for name in _SDPA_KERNELS:
        getattr(cuda, f"enable_{name}_sdp")(name in names)


def _flushes_denormals() -> bool:
    """Return whether a product that is denormal becomes zero."""
    return float(np.finfo(np.float64).smallest_normal) * 0.5 == 0.0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_COMPILERS)}


def _set_environment(before: dict[str, str]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
