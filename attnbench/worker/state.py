"""State that a call must not change: torch's switches, the environment, random numbers, threads, children.

A call that leaves a switch changed alters what later calls compute, or how fast. Work that goes on after a
call returned is not in its time.
"""

from __future__ import annotations

import contextlib
import gc
import locale
import os
import pickle
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attnbench.cases.work import human_bytes
from attnbench.ipc.process import children_of, state_of
from attnbench.timing.memory import growth_per_call, resident_bytes
from attnbench.types.device import DEVICES
from attnbench.worker.failures import WrongOutput

T = TypeVar("T")
State = dict[str, Any]
"""Values of switches by name."""
Switch = tuple[Callable[[], Any], Callable[[Any], object]]
"""How one switch is read, and how it is set."""

SDPA, ENVIRONMENT = "the kernels that SDPA may use", "the environment"
RANDOM = ("torch's random numbers", "Python's random numbers", "NumPy's random numbers")

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
_OF_TORCH = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "CUDA_MODULE_LOADING")
"""Environment variables that torch sets for itself: its compiler when it first compiles, and before 2.11 also
CUDA when it is first used."""


@cache
def switches() -> dict[str, Switch]:
    """Return every switch by name. The order matters: setting the matmul precision also sets TF32."""
    import torch

    return {
        "the number of threads": (torch.get_num_threads, torch.set_num_threads),
        "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        # Any default device, even the CPU, is a mode that every function of torch then goes through.
        "the default device": (torch.get_default_device, lambda _: torch.set_default_device(None)),
        "the precision of float32 matmuls": (
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        ),
        **{path: _attribute(torch, path) for path in _TORCH_ATTRIBUTES},
        "the mode of deterministic algorithms": (
            torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
        ),
        "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        # A denormal product becomes zero where they are flushed.
        "the flushing of denormals": (
            lambda: float(np.finfo(np.float64).smallest_normal) * 0.5 == 0.0, torch.set_flush_denormal
        ),
        SDPA: (_sdpa_kernels, _allow_sdpa_kernels),
        ENVIRONMENT: (_environment, _set_environment),
        "the cores of its thread": (
            lambda: sorted(os.sched_getaffinity(0)), lambda cores: os.sched_setaffinity(0, cores)
        ),
        "the niceness": (
            lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda nice: os.setpriority(os.PRIO_PROCESS, 0, nice)
        ),
        "the umask": (_umask, lambda mask: os.umask(int(mask, 8))),
        "the working folder": (os.getcwd, os.chdir),
        "the locale": (
            lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)
        ),
        "whether garbage is collected": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        "the thresholds of the garbage collector": (
            gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)
        ),
        RANDOM[0]: (
            lambda: torch.get_rng_state().numpy().tobytes(),
            lambda bits: torch.set_rng_state(torch.frombuffer(bytearray(bits), dtype=torch.uint8)),
        ),
        RANDOM[1]: (random.getstate, random.setstate),
        RANDOM[2]: (
            lambda: pickle.dumps(np.random.get_state()),
            lambda pickled: np.random.set_state(pickle.loads(pickled)),
        ),
    }  # fmt: skip


def read_state() -> State:
    """Return the value of every switch now."""
    return {name: _read(read) for name, (read, _) in switches().items()}


def put_back(before: State, leave: Collection[str] = ()) -> list[str]:
    """Restore every changed switch whose name is not in ``leave``; return descriptions of the changes."""
    after = read_state()
    changed = [name for name in before if before[name] != after[name] and name not in leave]
    for name in changed:
        # torch refuses some.
        with contextlib.suppress(Exception):
            switches()[name][1](before[name])
    return [_description(name, before[name], after[name]) for name in changed]


@contextlib.contextmanager
def nothing_changed(doing: str, *, draws: bool = False) -> Iterator[None]:
    """Check that the code inside leaves every switch alone, and restore what it changed.

    draws: allow it to draw random numbers. These are not restored, since the next call must draw others.

    Raises:
        WrongOutput: something changed while ``doing`` ("the call").
    """
    before = read_state()
    yield
    changed = put_back(before, RANDOM if draws else ())
    if changed:
        raise WrongOutput(f"{doing} {'; '.join(changed)}", "state")


def check_modes(call: Callable[..., object], inputs: Sequence[Any]) -> None:
    """Check that gradients are still on after a call where they were on before.

    Forward passes run without gradients, where switching them off changes nothing. So this makes a call
    outside of torch's inference mode. A backend that can't run there proves nothing.

    Raises:
        WrongOutput: code after the call would get no gradients.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        # One tensor that is given twice stays one.
        copies = {id(x): x.clone() for x in inputs}
        with contextlib.suppress(Exception):
            call(*(copies[id(x)] for x in inputs))
        off, inference = not torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    if off or inference:
        left = "torch's inference mode on" if inference else "gradients switched off (torch.set_grad_enabled)"
        raise WrongOutput(f"the call leaves {left}: later code gets no gradients", "state")


def check_growth(call: Callable[[], object], device: str) -> None:
    """Check that a process that makes more calls needs no more memory. On a device its memory counts.

    Raises:
        WrongOutput: memory stays with every call, which a run of thousands of calls would not survive.
    """
    import torch

    on_host = DEVICES[device].on_host
    held = resident_bytes if on_host else torch.get_device_module(device).memory_allocated
    kept = growth_per_call(call, held)
    if kept:
        raise WrongOutput(f"every call keeps {human_bytes(kept)} of memory", "leaks")


def put_back_after_preparation(before: State) -> list[str]:
    """Restore what preparation changed for other code, and return notes for the record.

    A backend may choose SDPA's kernels for its own calls.
    """
    return [f"preparation {change}; put back" for change in put_back(before, (SDPA, *RANDOM))]


def _description(name: str, before: Any, after: Any) -> str:
    if name in RANDOM:
        return f"drew from {name}"
    if isinstance(before, dict):
        variables = sorted(each for each in before | after if before.get(each) != after.get(each))
        return f"changed {name}: {', '.join(variables)}"
    return f"changed {name} from {before} to {after}"


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as failure:
        # torch's old TF32 switches raise once the new ones are set. That is a change too.
        return f"unreadable ({type(failure).__name__})"


def _attribute(torch: Any, path: str) -> Switch:
    owner, _, name = path.removeprefix("torch.").rpartition(".")
    return (
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


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_TORCH)}


def _set_environment(before: dict[str, str]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _umask() -> str:
    # Python reads it only by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


_TASKS = Path("/proc/self/task")
_LOOKS, _LOOK_S = 500, 0.001
"""A busy machine delays the last step of a thread that was joined, so its end is waited for."""

OTHERS_SHARE, OTHERS_LEAST_NS = 0.2, 1_000_000
"""In a case of one thread, other threads may use this share of a call's CPU time, plus these ns. Wall time
would not do: a busy machine stretches it."""
IDLE_SHARE, IDLE_LEAST_NS = 0.5, 5_000_000
"""Between two calls other threads may use this share of the CPU time of the call before, or these ns."""
CONFIRMING_CALLS = 3
"""A backend is refused for work on other threads only if each of these further calls shows it too."""
REST_S, REST_AT_MOST_S = 0.05, 1.0
"""Other threads rest if none was runnable for so long; they are waited for at most so long."""


@dataclass(frozen=True)
class Activity:
    """Ids of the running threads and children, and the CPU time of this thread and of all others so far."""

    threads: frozenset[int]
    children: frozenset[int]
    own_ns: int
    others_ns: int


@dataclass(frozen=True)
class Past:
    """The checked calls of this process so far: their number, and when the last one returned, its times.

    cpu_ns: CPU time of the last call, of all threads. others_ns: CPU time that other threads had used then.
    """

    calls: int = 0
    cpu_ns: int = 0
    others_ns: int = 0


def with_call(past: Past, before: Activity) -> Past:
    """Return the past with the call that has just returned."""
    own, others = _used()
    return Past(past.calls + 1, own - before.own_ns + others - before.others_ns, others)


def read_activity() -> Activity:
    """Return the activity now."""
    threads = frozenset(map(int, os.listdir(_TASKS)))  # noqa: PTH208
    return Activity(threads, children_of(os.getpid()), *_used())


def check_idle(past: Past, call: Callable[[], object]) -> None:
    """Check that other threads rest after a call: what they compute then is in no call's time.

    Threads of a pool spin for a while, and on a busy machine they finish late what preparation or the first
    call began. Both end. So work after one call is only a suspicion, and further calls are observed.
    call: makes a call like those before.

    Raises:
        WrongOutput: other threads worked after the call before, and after every further call.
    """
    used = _used()[1] - past.others_ns
    if not past.calls or used <= _most_after(past.cpu_ns):
        return
    seen = _confirmed(call, lambda seen: seen.after_ns > _most_after(seen.spent_ns))
    if seen is not None:
        raise WrongOutput(
            f"other threads kept working after the call before: {seen.after_ns / 1e6:.1f} ms of CPU time, "
            f"after a call of {seen.spent_ns / 1e6:.1f} ms",
            "activity",
        )


@dataclass(frozen=True)
class Observed:
    """CPU time of one call in ns: of the calling thread, of others meanwhile, of others until they rest."""

    own_ns: int
    others_ns: int
    after_ns: int

    @property
    def spent_ns(self) -> int:
        """The CPU time of all threads during the call."""
        return self.own_ns + self.others_ns


def _confirmed(call: Callable[[], object], suspect: Callable[[Observed], bool]) -> Observed | None:
    """Make further calls; return the last if each of them is suspect, else None."""
    for _ in range(CONFIRMING_CALLS):
        seen = _observed(call)
        if not suspect(seen):
            return None
    return seen


def _observed(call: Callable[[], object]) -> Observed:
    """Make a call while other threads rest, and wait until they rest again."""
    _wait_for_rest()
    own, others = _used()
    call()
    own_after, others_after = _used()
    _wait_for_rest()
    return Observed(own_after - own, others_after - others, _used()[1] - others_after)


def _wait_for_rest() -> None:
    """Wait until no other thread has been runnable for some time; give up after a longer one."""
    give_up = time.monotonic() + REST_AT_MOST_S
    resting_from = time.monotonic()
    while (now := time.monotonic()) < min(give_up, resting_from + REST_S):
        time.sleep(_LOOK_S)
        if _others_run():
            resting_from = now


def _others_run() -> bool:
    """Return whether another thread runs or waits for a core, where CPU time would not show it."""
    own = str(threading.get_native_id())
    return any(state_of(task) in "RD" for task in _TASKS.iterdir() if task.name != own)


def _most_after(cpu_ns: int) -> float:
    return max(IDLE_LEAST_NS, IDLE_SHARE * cpu_ns)


def _most_beside(spent_ns: int) -> float:
    return OTHERS_SHARE * spent_ns + OTHERS_LEAST_NS


def check_company(before: Activity, past: Past, threads: int, call: Callable[[], object] | None) -> None:
    """Check what a call that has just returned left running, and what it computed on other threads.

    A child that the call started may have ended by now. Libraries start thread pools and compilers at the
    first call of a process, so that call may leave threads, unless Python started them and the case allows
    one thread; and it may compute on other threads. What threads finish late from before the call looks like
    work of the call, so a suspicion is confirmed as in :func:`check_idle`. past: before the call. threads:
    how many the case allows. call: makes another call like it; None on a device, where threads of its driver
    and of autograd work for every call.

    Raises:
        WrongOutput: it left a process or a thread, or computed on threads that the case does not allow.
    """
    own, others = _used()
    used = others - before.others_ns
    spent = own - before.own_ns + used
    if left := _stays(lambda: _left_running(before, read_activity(), past, threads)):
        raise WrongOutput(f"the call left {left}", "activity")
    if call is None or not past.calls or threads != 1 or used <= _most_beside(spent):
        return
    seen = _confirmed(call, lambda seen: seen.others_ns > _most_beside(seen.spent_ns))
    if seen is not None:
        raise WrongOutput(
            f"the call computes on other threads: {seen.others_ns / 1e6:.1f} ms of its "
            f"{seen.spent_ns / 1e6:.1f} ms of CPU time, with one thread allowed",
            "activity",
        )


def _stays(look: Callable[[], T]) -> T:
    """Look until there is nothing; return what is there at last."""
    for _ in range(_LOOKS):
        found = look()
        if not found:
            break
        time.sleep(_LOOK_S)
    return found


def _left_running(before: Activity, now: Activity, past: Past, threads: int) -> str:
    """Describe what a call started and left running against the rules; "" for nothing."""
    if now.children - before.children:
        return "a process running that it started"
    new = now.threads - before.threads
    if not past.calls:
        # Python does not know threads of a library's pool, or as dummies where they run its code.
        known = [each for each in threading.enumerate() if not isinstance(each, threading._DummyThread)]
        started = {each.native_id for each in known}
        new &= started if threads == 1 else frozenset()
    if not new:
        return ""
    return f"{f'{len(new)} threads' if len(new) > 1 else 'a thread'} running"


def _used() -> tuple[int, int]:
    """Return the CPU time of the calling thread and of all others."""
    own = time.thread_time_ns()
    return own, time.process_time_ns() - own


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """Check that no process runs that timed calls started; raises :class:`WrongOutput`."""
    before = children_of(os.getpid())
    yield
    if _stays(lambda: children_of(os.getpid()) - before):
        raise WrongOutput("a timed call left a process running that it started", "activity")
