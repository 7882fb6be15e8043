"""One test: check its backend, prepare it, compare its last output, and store the result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import pytest

from attnbench import __version__
from attnbench.cases.ids import case_id, short_id
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.shared_memory import anonymous_file, mapped
from attnbench.plugins.registry import Entry
from attnbench.pytest_plugin import FAILURES, PAIR
from attnbench.pytest_plugin.pairs import Pair, registry_of
from attnbench.pytest_plugin.session_verifier import SessionVerifier
from attnbench.pytest_plugin.thread_pools import limited_pools, too_many_threads, used_so_far
from attnbench.runner.context import CaseContext
from attnbench.runner.machine import check_threads
from attnbench.runner.processes import HelperLost, VerifierFailed, WorkerFailed
from attnbench.runner.repetitions import draw_places
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import AttnbenchError, BadInput, MeasuringFailed
from attnbench.types.record import Record
from attnbench.types.status import MEANING, Status
from attnbench.types.words import one_line
from attnbench.worker.answers import stored_answer, written
from attnbench.worker.failures import NotPrepared, Refused, WrongOutput, classify
from attnbench.worker.prepared import prepare

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERS = ("error_budget", "max_error_budget", "rms_error", "max_error", "rms_limit", "max_limit")
_OUTPUTS = ("the last output of the test", "the output of a call after the inputs changed in place")


class CheckedBackend:
    """The fixture ``attnbench_backend``: call it without arguments, or with its own ``inputs``.

    backend: its name. case: what it computes. inputs: tensors in the backend's layout. calls: how often
    the test called it. A call returns the output, and gradients where the case asks for them. attnbench
    compares the last output when the test ends, so clone an output before you change it.

    Raises:
        Refused: it can't be prepared and called in this process.
    """

    def __init__(
        self, case: Case, entry: Entry[Backend], context: CaseContext, verifier: SessionVerifier
    ) -> None:
        self.backend, self.case, self.context = entry.name, case, context
        self._verifier = verifier
        self.calls = 0
        self._last_output: Any = None
        self._places = draw_places(context, 2, refreshing=False)
        with context.refreshed(self._places) as blocks:
            first, self._changed = (mapped(block.fd, block.arrays) for block in blocks)
        request = m.Prepare(
            case=context.case,
            backend=entry.name,
            backend_source=entry.source,
            rule_source=context.opening.rule_source,
            parameters=context.parameters.arrays,
            memory_limit_bytes=None,
            operation_source=context.opening.operation_source,
            storage_source=context.opening.storage_source,
            encoding_source=context.opening.encoding_source,
        )
        try:
            with warnings.catch_warnings():
                # Imports and compilers warn here, and the tests may turn warnings into errors.
                warnings.simplefilter("ignore")
                held, _ = prepare(request, mapped(context.parameters.fd, context.parameters.arrays))
                self._held = held.with_inputs(first, fresh=True)
                assert self._held.inputs is not None
                self.inputs: tuple[Tensor, ...] = self._held.inputs
                self._kernel = self._held.call if case.on_host else _synchronised(self._held.call)
                self._kernel(*self.inputs)
        except NotPrepared as failure:
            if isinstance(failure.__cause__, KeyboardInterrupt):
                raise failure.__cause__ from None
            raise Refused(failure.status, f"in the process of the tests: {failure.reason}") from failure
        except Exception as failure:
            status, reason = classify(failure, "the call")
            raise Refused(status, f"in the process of the tests: {reason}") from failure

    def __call__(self, *inputs: Tensor) -> Any:
        """Compute the output.

        Raises:
            BadInput: the arguments are not ``inputs``.
        """
        if inputs and [*map(id, inputs)] != [*map(id, self.inputs)]:
            raise BadInput(
                "the test passed its own tensors, so the output cannot be verified: call attnbench_backend "
                "without arguments, or with attnbench_backend.inputs"
            )
        self.calls += 1
        self._last_output = output = self._kernel(*self.inputs)
        return output

    def verify(self) -> None:
        """Compare the last output, and that of a call on other values in the same memory.

        Raises:
            Refused: one of them is wrong, or can't be compared.
        """
        fd, end = anonymous_file(), 0
        outputs: list[rm.TimedOutput] = []
        try:
            for place in self._places:
                if outputs:
                    self._held.write(self._changed)
                    self._last_output = self._kernel(*self.inputs)
                parts, end = written(fd, end, stored_answer(self._held, self._last_output), self.case.dtype)
                outputs.append(rm.TimedOutput(place.draw, place.change, parts))
            scored = self._verifier.timed_score(tuple(outputs), fd, self.context)
        except WrongOutput as wrong:
            raise Refused("mismatch", f"in {_OUTPUTS[len(outputs)]}: {wrong}") from wrong
        except (VerifierFailed, HelperLost, WorkerFailed, MeasuringFailed) as failure:
            raise Refused("unjudged", str(failure)) from failure
        except Exception as failure:
            raise Refused(*classify(failure, "the call after the test")) from failure
        finally:
            os.close(fd)
        if scored.problem:
            raise Refused("mismatch", f"in {_OUTPUTS[scored.place]}: {scored.problem}")


@dataclass
class _TestRun:
    """A test from its fixture to its end.

    name: as pytest has it. failures: of the session. failure: the sentence that the test fails with instead
    of running.
    """

    pair: Pair
    benchmark: Any
    name: str
    failures: list[dict[str, str]]
    backend: CheckedBackend | None = None
    failure: str = ""
    extra_info: dict[str, Any] = field(default_factory=dict)

    def end(self, status: Status, reason: str = "", verified_calls: int = 0) -> str:
        """Store how the test ended with its benchmark, and return it as a sentence."""
        self.extra_info |= {"status": status, "reason": reason, "verified_calls": verified_calls}
        if self.benchmark is not None:
            self.benchmark.extra_info.update(self.extra_info)
            if not (MEANING[status].timed or MEANING[status].declined):
                case, backend = self.pair.case, str(self.pair.backend)
                cell = {"case": case_id(case), "rule": case.rule, "backend": backend}
                self.failures.append({"name": self.name, **cell, "status": status, "reason": reason})
        return f"{self.pair.backend} on {case_id(self.pair.case)}: {status}: {reason}"


_RUN = pytest.StashKey[_TestRun]()


def prepared_backend(
    pair: Pair, item: pytest.Item, benchmark: Any, verifier: SessionVerifier
) -> Iterator[CheckedBackend | None]:
    """Check and prepare the backend, and yield it. An unsupported or unavailable one skips the test.

    Any other refusal fails the test in :func:`around_call`: a failure in a fixture would count as an error.
    """
    failures = item.config.stash.setdefault(FAILURES, [])
    run = item.stash[_RUN] = _TestRun(pair, benchmark, item.nodeid, failures)
    threads = pair.case.threads
    with _torch_as_in_a_worker(pair.case), limited_pools(threads):
        try:
            _prepare(run, item, verifier)
        except Refused as refused:
            run.failure = run.end(refused.status, refused.reason)
            if benchmark is not None:
                # pytest-benchmark warns if its fixture was not used. Disabled, it stores nothing.
                benchmark.disabled = True
                benchmark(lambda: None)
            if MEANING[refused.status].declined:
                pytest.skip(run.failure)
        # Once more, for the libraries that the preparation loaded.
        with limited_pools(threads):
            yield run.backend
    # The item lives as long as the session; the tensors need not.
    del item.stash[_RUN]


def around_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the test, then verify its backend's output."""
    run = item.stash.get(_RUN, None)
    if run is None:
        # The project has a fixture of its own by this name.
        return (yield)
    if run.backend is None:
        pytest.fail(run.failure, pytrace=False)
    case, before = run.backend.case, used_so_far()
    try:
        result = yield
    except BaseException as failure:
        run.extra_info["calls"] = run.backend.calls
        run.end("error", f"the test did not finish: {one_line(failure)}")
        raise
    after = used_so_far()
    run.extra_info["calls"] = run.backend.calls
    if not run.backend.calls:
        run.end("error", "the test did not call the backend")
        return result
    try:
        run.backend.verify()
    except Refused as refused:
        pytest.fail(run.end(refused.status, refused.reason), pytrace=False)
    run.extra_info |= _rates(run.benchmark, run.backend.context)
    # A device's driver has threads of its own.
    doubt = too_many_threads(before, after, case.threads) if case.on_host else ""
    if doubt and run.benchmark is not None:
        item.warn(pytest.PytestWarning(run.end("suspect", doubt, len(_OUTPUTS))))
    else:
        run.end("ok", verified_calls=len(_OUTPUTS))
    return result


def _prepare(run: _TestRun, item: pytest.Item, verifier: SessionVerifier) -> None:
    case, name = run.pair.case, run.pair.backend
    assert name is not None
    try:
        check_threads(case.threads)
        record = verifier.record(case, name, _backends_of_the_session(item, case))
        if record.status != "ok":
            raise Refused(record.status, record.reason)
        context = verifier.opened(case)
    except (VerifierFailed, HelperLost, MeasuringFailed) as failure:
        raise Refused("unjudged", str(failure)) from failure
    except AttnbenchError as failure:
        raise Refused("error", str(failure)) from failure
    except WorkerFailed as failure:
        raise Refused("unjudged", f"the plain reference failed: {failure.reason}") from failure
    run.backend = CheckedBackend(case, registry_of(item.config).backends[name], context, verifier)
    run.extra_info = _extra_info(case, record)
    if run.benchmark is not None:
        run.benchmark.group = run.benchmark.group or short_id(case)


def _backends_of_the_session(item: pytest.Item, case: Case) -> set[str]:
    """Return the backends that the session's tests need on the case, so that one check serves them all."""
    if hasattr(item.config, "workerinput"):
        # A worker of pytest-xdist runs only some of the items.
        return set()
    unskipped = (other for other in item.session.items if not other.get_closest_marker("skip"))
    pairs = [getattr(getattr(other, "callspec", None), "params", {}).get(PAIR) for other in unskipped]
    return {pair.backend for pair in pairs if pair and pair.backend and pair.case == case}


def _extra_info(case: Case, record: Record) -> dict[str, Any]:
    """Return the part of a benchmark's ``extra_info`` that the check knows."""
    numbers = {name: getattr(record.accuracy, name, nan) for name in _NUMBERS}
    optional = {"notes": list(record.notes), "kernel_of": record.kernel_of}
    return {
        "case": record.case,
        "rule": record.rule,
        "backend": record.backend,
        "dtype": case.dtype,
        "device": case.device,
        "threads": case.threads,
        "attnbench": __version__,
        **{name: number for name, number in numbers.items() if isfinite(number)},
        **{name: value for name, value in optional.items() if value},
    }


def _rates(benchmark: Any, context: CaseContext) -> dict[str, float]:
    """Return the rates at the median of the rounds, if there was timing."""
    stats = getattr(benchmark, "stats", None)
    if not stats or not stats["median"]:
        return {}
    return {
        "tflops": context.opened.flops / stats["median"] / 1e12,
        "gbps": context.opened.bytes_moved / stats["median"] / 1e9,
    }


@contextmanager
def _torch_as_in_a_worker(case: Case) -> Iterator[None]:
    """Give torch the case's threads and the mode of its pass; restore both, and the kernels of SDPA."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdp = SDPBackend
    kernels = [sdp.FLASH_ATTENTION, sdp.EFFICIENT_ATTENTION, sdp.MATH, sdp.CUDNN_ATTENTION]
    forward, threads = case.pass_ == "forward", torch.get_num_threads()
    torch.set_num_threads(case.threads)
    try:
        # Preparing a backend may forbid kernels of SDPA. Leaving this context allows them again.
        with sdpa_kernel(kernels), torch.inference_mode(forward), torch.set_grad_enabled(not forward):
            yield
    finally:
        torch.set_num_threads(threads)


def _synchronised(kernel: Any) -> Any:
    import torch

    def call(*inputs: Tensor) -> Any:
        output = kernel(*inputs)
        torch.cuda.synchronize()
        return output

    return call
