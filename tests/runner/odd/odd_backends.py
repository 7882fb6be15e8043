"""Backends that misbehave in one of their slots, or tell of them, and some that fail one kind of check.

The former compute the right output. What they do besides they do only while slots are taken, not while they
are checked and warmed up.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench import Case, Rule

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]

CALLED_OFF = 1 << 32
NAP_NS = 300_000_000
MIB = 1024**2


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def called_from(function: str) -> bool:
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def taking_slots() -> bool:
    return called_from("take_slots")


def within(function: str, act: Callable[[], object]) -> Callable[[Setup], Call]:
    """Acts before each call that this function of attnbench makes."""

    def prepare(setup: Setup) -> Call:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if called_from(function):
                act()
            return right(q, k, v)

        return call

    return prepare


def in_slot(number: int, act: Callable[[], object]) -> Callable[[Setup], Call]:
    """Acts after its call of this number among those it makes in slots, from 1."""

    def prepare(setup: Setup) -> Call:
        made = count(1)

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            output = right(q, k, v)
            if taking_slots() and next(made) == number:
                act()
            return output

        return call

    return prepare


def exit_at_once() -> None:
    os._exit(3)


def exit_politely() -> None:
    sys.exit(4)


def raise_an_error() -> None:
    raise ValueError("not today")


def kill_its_server() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    hang()


def kills_its_server(setup: Setup) -> Call:
    """In every call, also in those of its check."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kill_its_server()
        return q

    return call


def its_server() -> psutil.Process:
    """Its parent may be a prepared worker instead, with the same command line."""
    named = [each for each in psutil.Process().parents() if "attnbench.worker.server" in each.cmdline()]
    return named[-1]


def stop_its_server() -> None:
    its_server().suspend()


def stop_its_siblings() -> None:
    for other in its_server().children(recursive=True):
        if other.pid != os.getpid():
            other.suspend()


def stop_the_verifiers() -> None:
    for other in its_server().parent().children():
        if "attnbench.verifier.process" in other.cmdline():
            other.suspend()


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    while True:
        signal.pause()


def tell_rubbish() -> None:
    for fd in range(3, 64):
        try:
            line = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with line:
            line.send(b"\xff rubbish")


def close_everything() -> None:
    os.closerange(3, 256)


def kill_the_victim() -> None:
    """Kills the process that a file names, then stays in its slot until the segment is called off."""
    os.kill(int(Path(os.environ["ODD_VICTIM"]).read_text()), signal.SIGKILL)
    while not any(held >= CALLED_OFF for held in batons_here()):
        pass


def batons_here() -> Iterator[int]:
    """What the eventfds of this process hold."""
    for path in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        yield from (int(line.split()[1], 16) for line in lines if line.startswith("eventfd-count:"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once() -> None:
    """As if somebody had killed this process by hand."""
    notes = Path(os.environ["ODD_NOTES"]) / "timed"
    if not notes.exists():
        notes.touch()
        die()


def dies_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    notes = Path(os.environ["ODD_NOTES"]) / "checked"
    if not notes.exists():
        notes.touch()
        die()
    return right(q, k, v)


def work_for_long() -> None:
    end = time.thread_time_ns() + NAP_NS
    while time.thread_time_ns() < end:
        pass


def tell_where_it_runs() -> None:
    """A file for each process, in the folder that a variable names."""
    said = {"cpus": sorted(os.sched_getaffinity(0)), "nice": os.getpriority(os.PRIO_PROCESS, 0)}
    (Path(os.environ["ODD_NOTES"]) / str(os.getpid())).write_text(json.dumps(said))


def takes_8_mib(setup: Setup) -> Call:
    """64 times in every call, and gives them back, which glibc keeps once it has seen that."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for _ in range(64):
            held = b"1" * (8 * MIB)  # Written: a page counts when it is touched.
            del held
        return right(q, k, v)

    return call


def keeps_its_answer(setup: Setup) -> Call:
    """And gives it again where all of its inputs are as they were: never wrong."""
    import torch

    kept: list[tuple[Tensor, ...]] = []

    def call(*inputs: Tensor) -> Tensor:
        if not kept or not all(map(torch.equal, inputs, kept[0])):
            kept[:] = [(*(x.clone() for x in inputs), right(*inputs))]
        return kept[0][-1].clone()

    return call


def calls_flash(setup: Setup) -> Call:
    """Somebody else's kernel under a name of its own."""
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    return lambda q, k, v: sdpa(q, k, v, scale=1.0)


def bend(clock: Callable[[Callable[[], int]], Callable[[], int]]) -> Callable[[], None]:
    """Put another clock into all that tell the time of a slot, once; ``clock`` makes it of the true one."""
    import attnbench.timing.sample as sample
    import attnbench.worker.slots as slots

    bent: list[int] = []

    def act() -> None:
        if not bent:
            bent.append(os.getpid())
            other = clock(time.perf_counter_ns)
            sample.perf_counter_ns = slots.perf_counter_ns = other  # type: ignore[assignment]

    return act


def hundredth(true: Callable[[], int]) -> Callable[[], int]:
    return lambda: true() // 100


def double(true: Callable[[], int]) -> Callable[[], int]:
    return lambda: 2 * true()


# Wrong where one kind of check looks: at other lengths, around inputs, in gradients

KNOWN = (16, 16)
"""Lengths of queries and keys that these backends were written for."""


def halves_elsewhere(setup: Setup) -> Call:
    factor = 1.0 if (setup.case.Lq, setup.case.Lk) == KNOWN else 0.5
    return lambda q, k, v: factor * right(q, k, v)


def raises_elsewhere(setup: Setup) -> Call:
    if (setup.case.Lq, setup.case.Lk) != KNOWN:
        raise ValueError("not written for this")
    return right


def elsewhere_in_words(case: Case, rule: Rule) -> str | None:
    return None if (case.Lq, case.Lk) == KNOWN else "knows other lengths"


def reads_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """64 numbers before its values, weighed with nothing; nowhere but in a guard are all of them NaN."""
    import torch

    before = torch.frombuffer((ctypes.c_float * 64).from_address(v.data_ptr() - 256), dtype=torch.float32)
    return right(q, k, v) + 0 * before.nansum() / before.isfinite().any()


def with_gradient(x: Tensor, times: float) -> Tensor:
    """The same numbers, to which another gradient comes."""
    return x.detach() + times * (x - x.detach())


def wrong_dk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, with_gradient(k, 1.01), v)


def wrong_dv_when_timed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, k, with_gradient(v, 0.5) if taking_slots() else v)


def forgets_k(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, k.detach(), v)


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    third = (os.abort, exit_at_once, exit_politely, raise_an_error, hang, tell_rubbish, close_everything,
             kill_the_victim, kill_its_server, die, die_once)  # fmt: skip
    prepares = {f"third_{act.__name__}": in_slot(3, act) for act in third}
    stop = (stop_its_server, stop_its_siblings, stop_the_verifiers, stop_itself)
    prepares |= {f"checked_{act.__name__}": within("computed", act) for act in stop}
    every = (work_for_long, tell_where_it_runs, *stop)
    prepares |= {f"every_{act.__name__}": within("take_slots", act) for act in every}
    prepares |= {f"clock_{each.__name__}": within("take_slots", bend(each)) for each in (hundredth, double)}
    prepares |= {f"traced_{act.__name__}": within("recorded", act) for act in (exit_at_once, raise_an_error)}
    own = (takes_8_mib, calls_flash, kills_its_server, keeps_its_answer, halves_elsewhere, raises_elsewhere)
    prepares |= {each.__name__: each for each in own}
    for number in "12":
        prepares[f"honest{number}"] = lambda setup: right
    for name, prepare in prepares.items():
        yield Backend(name=name, summary=f"{name}, on purpose", prepare=prepare, rules=("dot",))
    yield Backend(
        "refuses_elsewhere", "says that it can do one pair of lengths", prepare=halves_elsewhere,
        rules=("dot",), supports=elsewhere_in_words,
    )  # fmt: skip
    for call in (reads_before, wrong_dk, wrong_dv_when_timed, forgets_k, dies_once):
        yield Backend(
            call.__name__, f"{call.__name__}, on purpose", prepare=lambda setup, call=call: call,
            rules=("dot",), passes=("forward", "backward", "both"),
        )  # fmt: skip
