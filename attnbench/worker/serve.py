"""The loop of a worker: take a request, do it, answer; until the line closes."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import random
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

import msgspec
import numpy as np

from attnbench.inputs.kinds import GRADED
from attnbench.ipc import messages as m
from attnbench.ipc.channel import Channel, close_all
from attnbench.ipc.process import (
    adopt_orphans,
    be_first_to_go,
    children_of,
    descendants,
    die_with_parent,
    import_from,
    kill_all,
    kill_group,
    limit_memory,
    print_to,
)
from attnbench.ipc.shared_memory import anonymous_file, mapped
from attnbench.plugins.code import attnbench_code
from attnbench.timing.allocator import pin_allocator, reserve, return_freed_memory, room_bytes
from attnbench.timing.cards import card_details, card_names
from attnbench.timing.memory import peak_extra_bytes
from attnbench.timing.scale import measure_scale
from attnbench.timing.warmup import warm_up
from attnbench.types.device import ATTACHED
from attnbench.types.words import clean
from attnbench.worker.calls import check_held_output, computed
from attnbench.worker.failures import failed
from attnbench.worker.prepared import CODE, PreparedBackend, case_of, fill_pool, prepare
from attnbench.worker.slots import take_slots
from attnbench.worker.state import (
    Past,
    check_growth,
    no_process_left,
    nothing_changed,
    put_back_after_preparation,
    read_state,
)
from attnbench.worker.trace import what_ran


def torch_facts() -> m.TorchFacts:
    """Return version, flags and devices. Never in a server: asking for names may make a context."""
    import torch

    cards = {}
    for device in ATTACHED:
        if names := card_names(device.name):
            free_bytes = 0
            # Runs on the CPU go on where other programs fill the device.
            with contextlib.suppress(RuntimeError):
                free_bytes = torch.get_device_module(device.name).mem_get_info()[0]
            cards[device.name] = m.Cards(names, card_details(device.name), free_bytes)
    flags = {
        "threads": str(torch.get_num_threads()),
        "interop_threads": str(torch.get_num_interop_threads()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "build": " ".join(torch.__config__.show().split()),
    }
    return m.TorchFacts(str(torch.__version__), flags, cards)


def seed_from_system() -> None:
    """Seed the random numbers of torch on every device, of NumPy and of Python from the system."""
    import torch

    torch.seed()
    np.random.seed()
    random.seed()


Line = Channel[m.Reply, m.Request]

_ENDING_S = 1.0

_FOR_GRADIENTS = "torch.fx.experimental.symbolic_shapes"

_shift: list[bytearray] = []
"""Blocks of each size, as many as chance says, so that a plugin lies elsewhere in each worker.

Its place changes its speed.
"""

_SIZES = range(8, 1024, 16)
"""One for each class of sizes that Python keeps apart, and larger ones."""


def serve(sock: socket.socket) -> None:
    """Serve until the other end closes. A fork serves on its own line, with the backend of its origin."""
    line: Line = Channel(sock, m.Request)  # type: ignore[arg-type]
    prepared: PreparedBackend | None = None
    forked: set[int] = set()
    frozen, is_server = False, True
    while True:
        try:
            request, fds = line.receive()
        except (ConnectionError, msgspec.DecodeError):
            break
        try:
            if isinstance(request, m.Fork):
                # A fork gets other inputs, so it has no use for the pool.
                prepared = prepared and replace(prepared, pool=None)
                if request.backward and _FOR_GRADIENTS not in sys.modules:
                    # torch imports it at the first gradient: 0.35 s and 35 MB in each worker.
                    import_module(_FOR_GRADIENTS)
                    frozen = False
                if not frozen:
                    # Once: collections leave the objects of now alone, here and in forks.
                    gc.collect()
                    gc.freeze()
                    frozen = True
                pid, prints = _fork(request)
                if pid == 0:
                    line.sock.close()
                    line = Channel(socket.socket(fileno=fds.pop()), m.Request)  # type: ignore[arg-type]
                    forked, frozen, is_server = set(), False, False
                    if prepared is not None:
                        # It has made no call in this process.
                        prepared = replace(prepared, past=Past())
                        if prepared.case.dropout:
                            seed_from_system()
                else:
                    forked.add(pid)
                    line.send(m.Forked(pid, attnbench_code()), (prints,))
                    os.close(prints)
            elif isinstance(request, m.Reap):
                line.send(m.Reaped(_reap(request.pid)))
                forked.discard(request.pid)
            else:
                prepared, reply, out = _answer(request, fds, prepared)
                line.send(reply, out)
                close_all(list(out))
        except ConnectionError:
            break
        finally:
            close_all(fds)
    if is_server:
        _let_end(forked)
    left = descendants(os.getpid())
    for pid in forked:
        kill_group(pid)
    kill_all(left)
    os._exit(0)


def _answer(
    request: m.Request, fds: list[int], prepared: PreparedBackend | None
) -> tuple[PreparedBackend | None, m.Reply, tuple[int, ...]]:
    """Do one request; return the backend from now on, the answer, and the descriptors that go with it."""
    try:
        # For inputs with gradients the backend is prepared anew.
        graded = isinstance(request, m.Activations) and request.delivery == GRADED
        before = read_state() if graded or isinstance(request, m.Prepare) else None
        children = frozenset() if before is None else children_of(os.getpid())
        with graphs() if _builds_graphs(request, prepared) else contextlib.nullcontext():
            prepared, reply, out = _answer_in_mode(request, fds, prepared)
        # Outside of that mode, because preparation did not change it.
        notes = () if before is None else put_back_after_preparation(before)
        if isinstance(reply, m.Prepared):
            if children_of(os.getpid()) - children:
                notes = [*notes, "preparation left a process running, which is ended with the worker"]
            reply = msgspec.structs.replace(reply, notes=tuple(map(clean, notes)))
        return prepared, reply, out
    except BaseException as failure:
        calls = m.Compute | m.WarmUp | m.TakeSlots | m.TraceCall
        doing = "the call" if isinstance(request, calls) else m.doing(type(request))
        if isinstance(request, m.Compute) and request.what == "weights":
            doing = "computing the weights"
        return prepared, failed(failure, doing), ()


def _builds_graphs(request: m.Request, prepared: PreparedBackend | None) -> bool:
    """Return whether a request needs graphs, which the mode of servers does not build."""
    if isinstance(request, m.Prepare):
        return case_of(request).pass_ != "forward"
    if prepared is None:
        return False
    delivery = request.delivery if isinstance(request, m.Activations) else prepared.delivery
    return prepared.case.pass_ != "forward" or delivery == GRADED


@contextlib.contextmanager
def graphs() -> Iterator[None]:
    """Build graphs inside."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield


def _answer_in_mode(
    request: m.Request, fds: list[int], prepared: PreparedBackend | None
) -> tuple[PreparedBackend | None, m.Reply, tuple[int, ...]]:
    match request:
        case m.Facts():
            return prepared, torch_facts(), ()
        case m.MeasureScale():
            scale = measure_scale(request.dtype, request.device, request.working_set_bytes)
            return prepared, m.ScaleMeasured(scale), ()
        case m.ImportFrom():
            import_from(request.paths, request.not_from)
            return prepared, m.Done(), ()
        case m.Wait():
            return prepared, m.Done(), ()
        case m.FillPool():
            fill_pool(request, fds[0], mapped(fds[1], request.arrays))
            return prepared, m.Done(), ()
        case m.ReportCode():
            return prepared, m.Code(CODE.of(request.sources)), ()
        case m.Prepare():
            be_first_to_go()
            if request.memory_limit_bytes is not None:
                limit_memory(request.memory_limit_bytes)
            if case_of(request).dropout:
                seed_from_system()
            _shift.extend(bytearray(size) for size in _SIZES for _ in range(secrets.randbelow(64)))
            prepared, reply = prepare(request, mapped(fds[0], request.parameters))
            return prepared, reply, ()
    assert prepared is not None
    return _answer_prepared(request, fds, prepared)


def _answer_prepared(
    request: m.Request, fds: list[int], prepared: PreparedBackend
) -> tuple[PreparedBackend, m.Reply, tuple[int, ...]]:
    if isinstance(request, m.Activations):
        prepared = _written_down(prepared)
        junk = bytearray(request.junk_bytes)
        prepared = prepared.with_inputs(
            mapped(fds[0], request.arrays),
            fresh=request.fresh,
            guarded=request.guarded,
            delivery=request.delivery,
        )
        del junk
        return prepared, m.Done(), ()
    if isinstance(request, m.UsePool):
        # The descriptors of a request are closed after it.
        return replace(prepared, pool=None, shared=os.dup(fds[0])), m.Done(), ()
    assert prepared.inputs is not None
    inputs = prepared.inputs
    match request:
        case m.Compute():
            prepared, outputs, fd = computed(prepared, request)
            return prepared, outputs, (fd,)
        case m.WarmUp():
            prepared, timer = prepared.with_timer()
            if prepared.pool is not None:
                prepared.pool.go_to(request.start)
            first_ns = []
            if request.reserve and prepared.case.on_host:
                first = timer(prepared.call, *inputs, 1)[0]
                first_ns = [first.wall_ns]
                reserve(room_bytes(first.faults, inputs[0].nbytes))
                if first.wall_ns > request.limits.calm_s * 1e9:
                    return prepared, m.Warmed((first.wall_ns,)), ()
            trace = warm_up(lambda: timer(prepared.call, *inputs, 1)[0], request.limits)
            return prepared, m.Warmed((*first_ns, *trace)), ()
        case m.TakeSlots():
            prepared, timer = prepared.with_timer()
            with no_process_left(), nothing_changed("a timed call", draws=bool(prepared.case.dropout)):
                taken, last = take_slots(request, fds, prepared, timer)
            return replace(prepared, last=last), taken, ()
        case m.TimedOutputs():
            prepared = _written_down(prepared)
            return prepared, *prepared.output_log.handed_over()
        case m.MeasureMemory():
            again = partial(prepared.call, *inputs)
            peak = peak_extra_bytes(again, prepared.case.device) if request.peak else None
            check_growth(again, prepared.case.device)
            return prepared, m.PeakMemory(peak), ()
        case m.TraceCall():
            return prepared, m.Traced(*what_ran(lambda: prepared.call(*inputs), prepared.case.device)), ()
    raise TypeError(f"no such request: {type(request).__name__}")


def _written_down(prepared: PreparedBackend) -> PreparedBackend:
    """Return the same with the output of the last timed call in the log."""
    last = prepared.last
    if last is None:
        return prepared
    check_held_output(prepared, last.output)
    # The first call on new inputs is in the log already; it may have been the last of all.
    if not prepared.output_log.ends_with(last):
        prepared.output_log.keep(prepared, last)
    return replace(prepared, last=None)


def _fork(request: m.Fork) -> tuple[int, int]:
    """Fork; the new process ends with this one, and runs on the cores of the request.

    Return its id, and the descriptor of the memory that gets its prints.
    """
    parent, prints = os.getpid(), anonymous_file()
    # The reader may cut off what is old.
    fcntl.fcntl(prints, fcntl.F_SETFL, os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        print_to(prints)
        os.close(prints)
        die_with_parent(parent)
        adopt_orphans()
        if not request.timed:
            os.setsid()
        os.sched_setaffinity(0, request.cpus)
        if request.keeps_memory:
            pin_allocator()
        elif request.keeps_memory is not None:
            # Otherwise chance decides whether a short run has the faults of a program.
            return_freed_memory()
        make_thread_pool()
    return pid, prints


def make_thread_pool() -> None:
    """Make torch's thread pool of this fork, while the fork has one thread.

    A fork has its origin's pool, whose threads it lacks. torch makes another where a thread next sets the
    number of threads, as those of autograd do when they start. If two do so at once, one finds no pool and
    the process ends: "Invalid thread pool!". torch's own hook comes too late where its origin has asked for
    the number of threads.
    """
    import torch

    torch.set_num_threads(torch.get_num_threads())


def _reap(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status)


def _let_end(forked: Iterable[int]) -> None:
    """Wait briefly for forks, which end by themselves: their lines are closed as this one's is.

    Each may have forked others; it alone knows their groups, and kills them when it ends.
    """
    end = time.monotonic() + _ENDING_S
    for pid in forked:
        with contextlib.suppress(ChildProcessError):
            # It stays a zombie, so that no other process gets its id, which is that of its group.
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() > end:
                    return
                time.sleep(0.002)
