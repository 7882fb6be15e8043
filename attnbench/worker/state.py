"""What all code of a process shares: settings of torch, the environment, where random numbers come from.

A call that leaves another setting behind changes what whoever comes next computes, or how fast.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from attnbench.worker.hooks import hooks
from attnbench.worker.outputs import WrongOutput

_OF_COMPILERS = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")
"""Variables that torch's compiler sets for itself, where and when it first compiles."""


@dataclass(frozen=True)
class Switch:
    """One thing that is shared, by its name in words.

    write: puts an earlier value back; None where nothing can.
    own: whether preparation may set it for the backend's own calls: it then stays as it is.
    is_random: where random numbers come from; the values are not for reading. of_torch: whether it's torch's.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object] | None
    own: bool = False
    is_random: bool = False
    of_torch: bool = False


@dataclass(frozen=True)
class GlobalState:
    """The values of all :func:`switches`, in their order."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """One switch that has other values than before."""

    switch: Switch
    before: Any
    after: Any

    @property
    def words(self) -> str:
        """What was done, after "the call"."""
        name, before, after = self.switch.name, self.before, self.after
        if self.switch.is_random:
            return f"drew from {name}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changed = sorted(key for key in {**before, **after} if before.get(key) != after.get(key))
            key = changed[0]
            if key not in before:
                return f"set {name} {key} to {after[key]!r}"
            if key not in after:
                return f"removed {name} {key}"
            return f"changed {name} {key} from {before[key]!r} to {after[key]!r}"
        return f"changed {name} from {_told(before)} to {_told(after)}"


@cache
def switches() -> tuple[Switch, ...]:
    """All of them, with torch's functions as they are when this is first asked: before plugins are loaded."""
    of_torch = (replace(each, of_torch=True) for each in _of_torch())
    return (*of_torch, *_of_the_process(), *_of_random_numbers())


@cache
def state_at_start() -> GlobalState:
    """The state when this is first asked: at the start of a server."""
    return read_state()


def read_state() -> GlobalState:
    """The state now."""
    return GlobalState(tuple(_read(switch) for switch in switches()))


def changes(before: GlobalState, after: GlobalState) -> list[Change]:
    """What is another value than before."""
    return [
        Change(switch, old, new)
        for switch, old, new in zip(switches(), before.values, after.values, strict=True)
        if old != new
    ]


def restore(found: list[Change]) -> None:
    """Put the values from before back, of whatever lets itself be put back."""
    for change in found:
        if change.switch.write is not None:
            with contextlib.suppress(Exception):
                change.switch.write(change.before)


@contextlib.contextmanager
def nothing_changed(who: str, *, draws: bool = False) -> Iterator[None]:
    """What goes on inside must leave the state alone.

    draws: whether it may draw random numbers; what it drew is then not put back, since the next call must
    draw others.

    Raises:
        WrongOutput: ``who`` ("the call") changed something. It is as before again, where that can be.
    """
    before = read_state()
    yield
    found = [each for each in changes(before, read_state()) if not (draws and each.switch.is_random)]
    if found:
        restore(found)
        raise WrongOutput(f"{who} {'; '.join(change.words for change in found)}", "state")


def put_back_after_preparation() -> tuple[str, ...]:
    """Undo what preparation changed for others than itself; gives what that was, in words for the record."""
    found = [
        each
        for each in changes(state_at_start(), read_state())
        if not (each.switch.own or each.switch.is_random)
    ]
    restore(found)
    return tuple(
        f"preparation {change.words}; put back" if change.switch.write else f"preparation {change.words}"
        for change in found
    )


def _told(value: object) -> str:
    """A value in words; a function by its name alone: where it lies in memory tells nobody anything."""
    return str(getattr(value, "__qualname__", value))


def _read(switch: Switch) -> Any:
    try:
        return switch.read()
    except Exception as failure:
        # Such as torch's old switches of TF32 once its new ones were used: that is a change too.
        return f"nothing readable ({type(failure).__name__})"


def _of_torch() -> Iterator[Switch]:
    import torch
    from torch.backends import cuda, cudnn, mkldnn

    yield Switch("the number of threads", torch.get_num_threads, torch.set_num_threads)
    yield Switch("the number of threads between operations", torch.get_num_interop_threads, None)
    yield Switch("the default dtype", torch.get_default_dtype, torch.set_default_dtype)
    # A default device that is set at all is a mode which every function goes through.
    no_device = partial(torch.set_default_device, None)
    yield Switch("the default device", torch.get_default_device, lambda before: no_device())
    yield Switch("the number of torch's function modes", torch._C._len_torch_function_stack, None)
    yield Switch(
        "the precision of float32 matmuls",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    )
    for owner, where, names in (
        (cuda.matmul, "torch.backends.cuda.matmul", ("allow_tf32",)),
        (cudnn, "torch.backends.cudnn", ("allow_tf32", "enabled", "benchmark", "deterministic")),
    ):
        for name in names:
            yield _attribute(owner, where, name)
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        yield _attribute(cuda.matmul, "torch.backends.cuda.matmul", name)
    if hasattr(mkldnn, "matmul"):
        yield _attribute(mkldnn.matmul, "torch.backends.mkldnn.matmul", "fp32_precision")
    yield Switch("whether mkldnn is used", torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled)
    yield Switch(
        "the mode of deterministic algorithms",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    )
    yield Switch("autocast", partial(torch.is_autocast_enabled, "cpu"), _set_autocast("cpu"))
    yield Switch("autocast on CUDA", partial(torch.is_autocast_enabled, "cuda"), _set_autocast("cuda"))
    # In this order, since the inference mode sets the grad mode; so does the precision of matmuls TF32.
    yield Switch("the inference mode", torch.is_inference_mode_enabled, _enter_inference_mode)
    yield Switch("the grad mode", torch.is_grad_enabled, torch.set_grad_enabled)
    for kernel, read, write in (
        ("flash", cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        ("math", cuda.math_sdp_enabled, cuda.enable_math_sdp),
        ("memory-efficient", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        ("cuDNN", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    ):
        yield Switch(f"whether SDPA may use its {kernel} kernel", read, write, own=True)
    yield Switch("the flushing of denormals", _flushes_denormals, torch.set_flush_denormal)


def _of_the_process() -> Iterator[Switch]:
    yield Switch("the environment variable", _environment, _set_environment)
    yield Switch("the current directory", os.getcwd, os.chdir)
    yield Switch("NumPy's handling of errors", np.geterr, lambda before: np.seterr(**before))
    for hook in hooks():
        yield Switch(*hook)


def _of_random_numbers() -> Iterator[Switch]:
    import torch

    yield Switch(
        "torch's random numbers",
        lambda: torch.get_rng_state().numpy().tobytes(),
        lambda before: torch.set_rng_state(torch.frombuffer(bytearray(before), dtype=torch.uint8)),
        is_random=True,
    )
    yield Switch("Python's random numbers", random.getstate, random.setstate, is_random=True)
    yield Switch("NumPy's random numbers", _numpy_draws, _set_numpy_draws, is_random=True)
    yield Switch(
        "torch's random numbers on CUDA",
        _cuda_draws,
        _set_cuda_draws,
        is_random=True,
    )


def _attribute(owner: Any, where: str, name: str) -> Switch:
    return Switch(f"{where}.{name}", partial(getattr, owner, name), partial(setattr, owner, name))


def _set_autocast(device: str) -> Callable[[bool], None]:
    import torch

    return partial(torch.set_autocast_enabled, device)


_ENTERED: list[object] = []
"""A mode of inference lasts as long as what entered it."""


def _enter_inference_mode(mode: bool) -> None:
    import torch

    entered = torch.inference_mode(mode)
    entered.__enter__()
    _ENTERED.append(entered)


def _flushes_denormals() -> bool:
    """By a multiplication that has a denormal result."""
    smallest = np.finfo(np.float64).smallest_normal
    return float(smallest) * 0.5 == 0.0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_COMPILERS)}


def _set_environment(before: Mapping[str, str]) -> None:
    now = _environment()
    for name in now.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if now.get(name) != value:
            os.environ[name] = value


def _cuda_draws() -> bytes:
    import torch

    if torch.version.cuda is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return b""
    return torch.cuda.get_rng_state().numpy().tobytes()


def _set_cuda_draws(before: bytes) -> None:
    import torch

    if before:
        torch.cuda.set_rng_state(torch.frombuffer(bytearray(before), dtype=torch.uint8))


def _numpy_draws() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(keys).tobytes(), *rest


def _set_numpy_draws(before: tuple[Any, ...]) -> None:
    name, keys, *rest = before
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))
