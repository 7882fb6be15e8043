"""Backends that do everything a backend must not: test data for the runner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Prepare = Callable[[Setup], Call]

GIB = 1024**3


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def after(act: Callable[[Tensor], Any]) -> Prepare:
    """Compute the right output, then do something to it or to the process."""
    return lambda setup: lambda q, k, v: act(right(q, k, v))


def segfault(output: Tensor) -> Tensor:
    ctypes.string_at(0)
    return output


def exit_at_once(output: Tensor) -> Tensor:
    os._exit(0)


def exit_politely(output: Tensor) -> Tensor:
    sys.exit(0)


def loop_for_ever(output: Tensor) -> Tensor:
    while True:
        pass


def allocate_without_end(output: Tensor) -> Tensor:
    import torch

    kept = []
    while True:
        kept.append(torch.ones(GIB // 16))


def kill_itself(output: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return output


def raise_error(output: Tensor) -> Tensor:
    raise ValueError("first line\nsecond line")


def to_nan(output: Tensor) -> Tensor:
    output[..., 0] = float("nan")
    return output


def print_rubbish(output: Tensor) -> Tensor:
    print('{"kind": "record", "status": "ok"}')
    sys.stderr.write("rubbish on stderr\n")
    os.write(1, b"rubbish below Python\n" * 100)
    return output


def wrong_shape(output: Tensor) -> Tensor:
    return output[..., :-1]


def no_tensor(output: Tensor) -> list[float]:
    return output.tolist()  # type: ignore[no-any-return]


def zeros(output: Tensor) -> Tensor:
    return output * 0


def close_every_line(output: Tensor) -> Tensor:
    os.closerange(3, 256)
    time.sleep(3600)
    return output


def leave_a_child(output: Tensor) -> Tensor:
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
    return output


def crash_and_leave_a_group(output: Tensor) -> Tensor:
    """Crash while a child runs that killing the group of this process would miss."""
    if os.fork() == 0:
        os.setpgid(0, 0)
        time.sleep(3600)
    time.sleep(0.1)
    os.abort()


def timed() -> bool:
    """Whether the call is made in a turn. A backend could tell by other signs than this one."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "take_slots":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def only_when_timed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Right while it is checked and warmed up, wrong where it is timed."""
    return right(q, k, v) * (1.5 if timed() else 1)


def leave_a_child_when_timed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Where nobody counts the processes."""
    return leave_a_child(right(q, k, v)) if timed() else right(q, k, v)


def take_64_mib(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Right, but in need of 64 MiB while it computes."""
    import torch

    needed = torch.ones(64 * 1024**2, dtype=torch.uint8)
    output = right(q, k, v)
    del needed
    return output


def change_inputs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Leave the answer where the values were, and give it back from there."""
    output = right(q, k, v)
    v.copy_(output)
    return output


def slow_the_clock(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Where it is timed, let the worker's clock run at a hundredth of its speed."""
    import attnbench.timing.sample as sample

    if timed():
        sample.perf_counter_ns = lambda: time.perf_counter_ns() // 100  # type: ignore[assignment]
    return right(q, k, v)


def spoil_shared_memory(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Write zeros over every piece of shared memory that this process can reach, the inputs of others."""
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            if "memfd:attnbench" in str(Path(f"/proc/self/fd/{fd}").readlink()):
                os.pwrite(fd, bytes(4096), 0)
    return right(q, k, v)


def leave_a_daemon(setup: Setup) -> Call:
    """Start a process of its own session, and end the one between."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    os.waitpid(child, 0)
    return right


def fail_to_prepare(setup: Setup) -> Call:
    raise RuntimeError("no such instruction set")


def recorded(name: str) -> Call:
    """Leave a file named for each process that prepared a backend, for tests of what outlives what."""
    folder = os.environ.get("BROKEN_PIDS")
    if folder:
        (Path(folder) / f"{name}-{os.getpid()}").touch()
    return right


def record_process(setup: Setup) -> Call:
    return recorded("record_process")


def record_process_too(setup: Setup) -> Call:
    return recorded("record_process_too")


def remember_by_address(setup: Setup) -> Call:
    """Answer from memory where the same storage comes again, whatever is in it."""
    answers: dict[int, Tensor] = {}

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.data_ptr() not in answers:
            answers[q.data_ptr()] = right(q, k, v)
        return answers[q.data_ptr()].clone()

    return call


def remember_when_timed(setup: Setup) -> Call:
    """The same, but only where it is timed."""
    remembering = remember_by_address(setup)
    return lambda q, k, v: (remembering if timed() else right)(q, k, v)


def compute_every_eighth(setup: Setup) -> Call:
    """Where it is timed, give each answer eight times."""
    kept, calls = [], [0]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        calls[0] += 1
        if not kept or not timed() or calls[0] % 8 == 0:
            kept[:] = [right(q, k, v)]
        return kept[0].clone()

    return call


def keep_weights(setup: Setup) -> Call:
    """Where it is timed, take the weights from before and only multiply them with the values that come."""
    kept = []

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not timed():
            return right(q, k, v)
        if not kept:
            kept.append((q @ k.transpose(-1, -2)).softmax(-1))
        return kept[0] @ v

    return call


def remember_by_value(setup: Setup) -> Call:
    """Compute once for the same values: always right, and faster than any machine can compute."""
    import torch

    seen: list[Tensor] = []
    answer: list[Tensor] = []

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not seen or not all(torch.equal(old, new) for old, new in zip(seen, (q, k, v), strict=True)):
            seen[:] = [x.clone() for x in (q, k, v)]
            answer[:] = [right(q, k, v)]
        return answer[0]

    return call


AFTER_A_CALL = (
    segfault, exit_at_once, exit_politely, loop_for_ever, allocate_without_end, kill_itself, raise_error,
    to_nan, print_rubbish, wrong_shape, no_tensor, zeros, close_every_line,
    leave_a_child, crash_and_leave_a_group,
)  # fmt: skip
IN_CALLS = (
    only_when_timed, leave_a_child_when_timed, take_64_mib, change_inputs, slow_the_clock,
    spoil_shared_memory,
)  # fmt: skip
IN_PREPARATION = (
    leave_a_daemon, fail_to_prepare, record_process, record_process_too, remember_by_address,
    remember_when_timed, compute_every_eighth, keep_weights, remember_by_value,
)  # fmt: skip


def always(call: Call) -> Prepare:
    return lambda setup: call


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    prepares = {act.__name__: after(act) for act in AFTER_A_CALL}
    prepares |= {call.__name__: always(call) for call in IN_CALLS}
    prepares |= {prepare.__name__: prepare for prepare in IN_PREPARATION}
    for name, prepare in prepares.items():
        yield Backend(name=name, summary=f"{name}, on purpose", prepare=prepare, rules=("dot",))
    yield Backend(
        name="needs_what_is_not_there", summary="needs a module that nobody has", prepare=always(right),
        rules=("dot",), requires=("no_such_module_anywhere",),
    )  # fmt: skip
    yield Backend(
        name="supports_nothing", summary="refuses every case in words", prepare=always(right),
        rules=("dot",), supports=lambda case, rule: "only on Sundays",
    )  # fmt: skip
    yield Backend(
        name="can_not_be_forked", summary="right, but says its process can't be forked",
        prepare=always(right), rules=("dot",), forkable=False,
    )  # fmt: skip
