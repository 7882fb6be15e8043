"""The loop of a worker: take a request, do it, answer; until the line closes."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec
import numpy as np

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import GRADED
from attnbench.ipc import messages as m
from attnbench.ipc.channel import Channel, ChannelClosed, close_all
from attnbench.ipc.messages import MeasureScale, ScaleMeasured, TorchFacts
from attnbench.ipc.process import be_first_to_go, die_with_parent, kill_group, limit_memory
from attnbench.ipc.shared_memory import mapped
from attnbench.timing.allocator import pin_allocator, reserve, room_bytes
from attnbench.timing.memory import cuda_peak_extra_bytes, peak_extra_bytes
from attnbench.timing.scale import measure_scale
from attnbench.timing.warmup import warm_up
from attnbench.types.words import clean
from attnbench.worker.calls import check_held_output, computed, draws
from attnbench.worker.failures import check_of, classify
from attnbench.worker.outputs import WrongOutput
from attnbench.worker.prepared import NotPrepared, PreparedBackend, loaded_here, prepare
from attnbench.worker.slots import take_slots
from attnbench.worker.state import nothing_changed, put_back_after_preparation, state_at_start
from attnbench.worker.trace import what_ran


def torch_facts() -> TorchFacts:
    """Version, flags and CUDA devices. To ask for their names may make a CUDA context: never in a server."""
    import torch

    devices: tuple[str, ...] = ()
    if torch.version.cuda is not None:
        devices = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    flags = {
        "threads": str(torch.get_num_threads()),
        "interop_threads": str(torch.get_num_interop_threads()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "build": " ".join(torch.__config__.show().split()),
    }
    return TorchFacts(str(torch.__version__), devices, flags)


def scale_measured(request: MeasureScale) -> ScaleMeasured:
    """Measure on the cores this process may use, with as many threads as its torch has."""
    return ScaleMeasured(measure_scale(request.dtype, request.device, request.working_set_bytes))


def seed_from_system() -> None:
    """Seed torch on every device, NumPy's and Python's random numbers from the operating system."""
    import torch

    torch.seed()
    np.random.seed()
    random.seed()


Line = Channel[m.Reply, m.Request]

_ENDING_S = 1.0


def serve(sock: socket.socket) -> None:
    """Serve until the other end closes. A fork goes on serving on its own line.

    A fork begins with the backend that its prepared worker has prepared.
    """
    line: Line = Channel(sock, m.Request)  # type: ignore[arg-type]
    prepared: PreparedBackend | None = None
    forked: set[int] = set()
    frozen, is_server = False, True
    # The switches as they are before any plugin is loaded.
    state_at_start()
    while True:
        try:
            request, fds = line.receive()
        except (ChannelClosed, msgspec.DecodeError):
            break
        try:
            if isinstance(request, m.Fork):
                prepared = prepared and prepared.without_pool()
                if not frozen:
                    # Once: what is there now is left alone by collections, here and in what is forked.
                    gc.collect()
                    gc.freeze()
                    frozen = True
                pid = _fork(request)
                if pid == 0:
                    line.close()
                    line = Channel(socket.socket(fileno=fds.pop()), m.Request)  # type: ignore[arg-type]
                    forked, frozen, is_server = set(), False, False
                    if prepared is not None and draws(prepared.case):
                        seed_from_system()
                else:
                    forked.add(pid)
                    line.send(m.Forked(pid))
            elif isinstance(request, m.Reap):
                line.send(m.Ended(_reap(request.pid)))
                forked.discard(request.pid)
            else:
                prepared, reply, out = _answer(request, fds, prepared)
                line.send(reply, out)
                close_all(list(out))
        except ChannelClosed:
            break
        finally:
            close_all(fds)
    if is_server:
        _let_end(forked)
    for pid in forked:
        kill_group(pid)
    os._exit(0)


def _answer(
    request: m.Request, fds: list[int], prepared: PreparedBackend | None
) -> tuple[PreparedBackend | None, m.Reply, tuple[int, ...]]:
    """Do one request; return what is held from now on, the answer, and descriptors to go with it."""
    try:
        with _graphs(request, prepared):
            prepared, reply, out = _answer_in_mode(request, fds, prepared)
        if isinstance(reply, m.Prepared):
            # Compared with what was before, so not in a mode of this case's own.
            reply = m.Prepared(reply.ns, tuple(map(clean, put_back_after_preparation())))
        if isinstance(request, m.Activations) and request.delivery == GRADED:
            # Prepared anew for them; what that changes was told the first time.
            put_back_after_preparation()
        return prepared, reply, out
    except NotPrepared as refusal:
        return prepared, m.Failed(refusal.status, clean(refusal.reason), refusal.check), ()
    except WrongOutput as wrong:
        return prepared, m.Failed("mismatch", clean(str(wrong)), wrong.check), ()
    except BaseException as failure:
        calls = m.Compute | m.WarmUp | m.TakeSlots | m.TraceCall
        doing = "the call" if isinstance(request, calls) else m.doing(type(request))
        if isinstance(request, m.Compute) and request.what == "weights":
            doing = "computing the weights"
        return prepared, m.Failed(*classify(failure, doing), check_of(failure)), ()


@contextlib.contextmanager
def _graphs(request: m.Request, prepared: PreparedBackend | None) -> Iterator[None]:
    """With graphs, where a case or its inputs ask for gradients: servers are in a mode that makes none."""
    forward = prepared is None or (prepared.case.pass_ == "forward" and prepared.delivery != GRADED)
    if isinstance(request, m.Activations) and prepared is not None:
        forward = prepared.case.pass_ == "forward" and request.delivery != GRADED
    if isinstance(request, m.Prepare):
        forward = parse_case(request.case).pass_ == "forward"
    if forward:
        yield
        return
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
            return prepared, scale_measured(request), ()
        case m.Preload():
            for source in request.sources:
                loaded_here(source)
            return prepared, m.Done(), ()
        case m.Prepare():
            be_first_to_go()
            if request.memory_limit_bytes is not None:
                limit_memory(request.memory_limit_bytes)
            if draws(parse_case(request.case)):
                seed_from_system()
            prepared, ns = prepare(request, mapped(fds[0], request.parameters))
            return prepared, m.Prepared(ns), ()
    if prepared is None:
        return None, m.Failed("error", f"{type(request).__name__} before Prepare"), ()
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
    if prepared.inputs is None:
        return prepared, m.Failed("error", f"{type(request).__name__} before Activations"), ()
    inputs = prepared.inputs
    match request:
        case m.Compute():
            prepared, outputs, fd = computed(prepared, request)
            return prepared, outputs, (fd,)
        case m.WarmUp():
            prepared, timer = prepared.with_timer()
            first_ns = []
            if request.reserve and prepared.case.device == "cpu":
                first = timer(prepared.call, *inputs, 1)[0]
                first_ns = [first.wall_ns]
                reserve(room_bytes(first.faults, inputs[0].nbytes))
            trace, settled = warm_up(
                lambda: timer(prepared.call, *inputs, 1)[0],
                request.most_calls,
                request.most_s,
                request.least_s,
                request.calm_s,
            )
            return prepared, m.Warmed((*first_ns, *trace), settled), ()
        case m.TakeSlots():
            prepared, timer = prepared.with_timer()
            with nothing_changed("a timed call", draws=draws(prepared.case)):
                taken, last = take_slots(request, fds, prepared, timer, prepared.output_log)
            return replace(prepared, last=last), taken, ()
        case m.TimedOutputs():
            prepared = _written_down(prepared)
            return prepared, *prepared.output_log.handed_over()
        case m.MeasureMemory():
            peak = cuda_peak_extra_bytes if prepared.case.device == "cuda" else peak_extra_bytes
            return prepared, m.PeakMemory(peak(lambda: prepared.call(*inputs))), ()
        case m.TraceCall():
            return prepared, m.Traced(*what_ran(lambda: prepared.call(*inputs), prepared.case.device)), ()
        case _:
            return prepared, m.Failed("error", f"no such request: {type(request).__name__}"), ()


def _written_down(prepared: PreparedBackend) -> PreparedBackend:
    """The same with the output of the last timed call among the evidence."""
    last = prepared.last
    if last is None:
        return prepared
    check_held_output(prepared, last.output)
    # The first call on new inputs may have been the last of all.
    if not prepared.output_log.ends_with(last.segment, last.slot, last.call):
        where = last.segment, last.slot, last.call
        prepared.output_log.keep(prepared, last.output, *where, refreshed=last.refreshed)
    return replace(prepared, last=None)


def _fork(request: m.Fork) -> int:
    """Fork; in the new process, give it a life tied to this one and the cores it may use."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent(parent)
        if not request.timed:
            os.setsid()
        os.sched_setaffinity(0, request.cpus)
        if request.pin_allocator:
            pin_allocator()
    return pid


def _reap(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status)


def _let_end(forked: Iterable[int]) -> None:
    """Wait a little for processes that end by themselves, since their lines are closed as this one's is.

    Each may have forked others, whose groups it alone knows and kills when it ends.
    """
    end = time.monotonic() + _ENDING_S
    for pid in forked:
        with contextlib.suppress(ChildProcessError):
            # It stays a zombie: its number, which is that of its group, can't become another's.
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() > end:
                    return
                time.sleep(0.002)
