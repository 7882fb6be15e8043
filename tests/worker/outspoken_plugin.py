"""Backends that show in their output what a test wants to know of their worker, and backends that meddle.

The latter compute the right thing and do one thing each to what they must leave alone.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import locale
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbench import Backend, Setup, hookimpl

Call = Callable[[Tensor, Tensor, Tensor], Any]

HELD_BYTES = 96 * 1024**2


def counts_calls(setup: Setup) -> Call:
    """The output is full of the number of calls so far, this one included.

    Here and below, the call outside of inference mode, which looks at gradients, does not count.
    """
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
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


# Meddling

WORK_S = 0.03


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def honest(setup: Setup) -> Call:
    return right


# What they do to inputs


def puts_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q.mul_(2)
    q.div_(2)
    return right(q, k, v)


def flips_a_zero(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """0 becomes -0, which is equal to it."""
    output = right(q, k, v)
    v.view(-1)[0] = -v.view(-1)[0]
    return output


def writes_behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ctypes.memset(k.data_ptr() + k.nbytes, 0, 8)
    return right(q, k, v)


def reads_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One element before its values, weighed with nothing."""
    before = (ctypes.c_float * 1).from_address(v.data_ptr() - 4)
    return right(q, k, v) + 0 * torch.frombuffer(before, dtype=torch.float32)


# What they give back


def gives_an_input(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v


def gives_memory_as_it_is(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.empty_like(v)


def gives_the_same_place(setup: Setup) -> Call:
    places: list[Tensor] = []

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not places:
            places.append(torch.empty_like(v))
        return places[0].copy_(right(q, k, v))

    return call


# What they write into a tensor that they are given


def fills(q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    return right(q, k, v) if out is None else out.copy_(right(q, k, v))


def ignores_out(q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    return right(q, k, v)


def adds_to_out(q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    return right(q, k, v) if out is None else out.add_(right(q, k, v))


def leaves_a_row(q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        return right(q, k, v)
    out[:, :, :-1] = right(q, k, v)[:, :, :-1]
    return out


def writes_behind_out(q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        return right(q, k, v)
    ctypes.memset(out.data_ptr() + out.nbytes, 0, 8)
    return out.copy_(right(q, k, v))


WRITES_OUT = fills, ignores_out, adds_to_out, leaves_a_row, writes_behind_out


# What they leave behind


def after(act: Callable[[], object]) -> Callable[[Setup], Call]:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = right(q, k, v)
        act()
        return output

    return lambda setup: call


def preparing(act: Callable[[], object]) -> Callable[[Setup], Call]:
    def prepare(setup: Setup) -> Call:
        act()
        return right

    return prepare


# Work of others


def leaves_a_process() -> None:
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)


def work(seconds: float) -> None:
    """On a core, letting others have the interpreter."""
    data = bytearray(1 << 20)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        zlib.crc32(data)


def works_on_a_thread() -> None:
    thread = threading.Thread(target=work, args=(WORK_S,))
    thread.start()
    thread.join()


@dataclass
class Worker:
    """A thread of a pool, that does as it's told and says when it is done."""

    told: threading.Semaphore
    done: threading.Event
    started: bool = False

    def tell(self) -> None:
        if not self.started:
            self.started = True
            # As libraries start theirs: Python knows nothing of it.
            _thread.start_new_thread(self.serve, ())
        self.told.release()

    def serve(self) -> None:
        while True:
            self.told.acquire()
            work(WORK_S)
            self.done.set()


def works_in_a_pool() -> Callable[[], None]:
    worker = Worker(threading.Semaphore(0), threading.Event())

    def act() -> None:
        worker.done.clear()
        worker.tell()
        worker.done.wait()

    return act


def runs_python_in_a_pool() -> Callable[[], None]:
    """As autograd runs code of a backward pass on a device: Python meets a thread that a library started."""
    met = threading.Event()

    def serve() -> None:
        threading.current_thread()
        met.set()
        threading.Event().wait()

    def act() -> None:
        if not met.is_set():
            _thread.start_new_thread(serve, ())
            met.wait()

    return act


def works_behind(setup: Setup) -> Call:
    """Its thread works when the call is over, and the next call waits until it has."""
    worker = Worker(threading.Semaphore(0), threading.Event())

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = right(q, k, v)
        worker.done.clear()
        worker.tell()
        return output

    return call


def starts_up_behind(setup: Setup) -> Call:
    """A pool's thread starts up when the first call is over, and rests from then on."""
    worker = Worker(threading.Semaphore(0), threading.Event())

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = right(q, k, v)
        if not worker.started:
            worker.tell()
        return output

    return call


def starts_up_late(setup: Setup) -> Call:
    """As a pool's thread that a busy machine lets run only while the second call runs."""
    worker, calls = Worker(threading.Semaphore(0), threading.Event()), 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 1:
            worker.started = True
            _thread.start_new_thread(worker.serve, ())
        if calls == 2:
            worker.tell()
            worker.done.wait()
        return right(q, k, v)

    return call


CALLS = (
    puts_back, flips_a_zero, writes_behind, reads_before, gives_an_input, gives_memory_as_it_is,
)  # fmt: skip
MODES: list[Any] = []
ACTS: dict[str, Callable[[], object]] = {
    "more_threads": lambda: torch.set_num_threads(2),
    "other_dtype": lambda: torch.set_default_dtype(torch.float64),
    "a_device": lambda: torch.set_default_device("meta"),
    "less_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "builds_graphs": lambda: torch.set_grad_enabled(True),
    "no_gradients": lambda: torch.set_grad_enabled(False),
    "inference_mode": lambda: MODES.append(torch.inference_mode()) or MODES[-1].__enter__(),
    "flushes_denormals": lambda: torch.set_flush_denormal(True),
    "allows_tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "no_flash": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "sets_a_variable": lambda: os.environ.update(MEDDLING="1"),
    "takes_a_core": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "is_nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, 19),
    "shares_files": lambda: os.umask(0),
    "goes_to_the_root": lambda: os.chdir("/"),
    "speaks_c": lambda: locale.setlocale(
        locale.LC_ALL, "C" if "UTF" in locale.setlocale(locale.LC_ALL) else "C.UTF-8"
    ),
    "keeps_garbage": gc.disable,
    "collects_often": lambda: gc.set_threshold(7),
    "draws_from_torch": lambda: torch.rand(1),
    "draws_from_numpy": np.random.rand,
    "random": random.random,
    "leaves_a_thread": lambda: threading.Thread(target=time.sleep, args=(3600,), daemon=True).start(),
    # Long before a check gives up, as a thread that was joined while the machine is busy.
    "leaves_a_thread_that_ends": lambda: threading.Thread(target=time.sleep, args=(0.05,)).start(),
    "waits_for_a_process": lambda: subprocess.run([sys.executable, "-S", "-c", ""], check=True),
    "leaves_a_process": leaves_a_process,
    "works_on_a_thread": works_on_a_thread,
}


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    give = partial(Backend, summary="a test", operations=("attention", "multihead"))
    yield give(name="works_in_a_pool", prepare=after(works_in_a_pool()))
    yield give(name="runs_python_in_a_pool", prepare=after(runs_python_in_a_pool()))
    for prepare in (
        honest, gives_the_same_place, works_behind, starts_up_behind, starts_up_late, counts_calls,
        counts_places, counts_threads, gives_values, tells_identity, tells_torch, holds_memory,
        raises_once_warm,
    ):  # fmt: skip
        yield give(name=prepare.__name__, prepare=prepare)
    for call in CALLS:
        yield give(name=call.__name__, prepare=lambda setup, call=call: call)
    for name, act in ACTS.items():
        yield give(name=name, prepare=after(act))
        yield give(name=f"prepares_{name}", prepare=preparing(act))
    for call in WRITES_OUT:
        yield give(name=call.__name__, prepare=lambda setup, call=call: call, writes_out=True)
    yield Backend("heads_last", "a test", heads_last, layout="BLHD")
    yield Backend("prepares_no_call", "a test", lambda setup: None)
    yield Backend("asks_in_vain", "a test", gives_values, supports=asks_in_vain)
    yield Backend("not_here", "a test", gives_values, available=lambda device: f"no kernel for {device}")
