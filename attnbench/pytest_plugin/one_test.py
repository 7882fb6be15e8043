"""The life of one test: its verdict first, its backend prepared, its outputs compared when it ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import pytest

from attnbench.pytest_plugin import PAIR
from attnbench.pytest_plugin.court import court_of
from attnbench.pytest_plugin.extra_info import ExtraInfo
from attnbench.pytest_plugin.pairs import Pair, registry_of
from attnbench.pytest_plugin.prepared import OtherInputs, Prepared, compare, prepared, surroundings
from attnbench.pytest_plugin.rounds import watch_rounds
from attnbench.pytest_plugin.short_id import short_id
from attnbench.pytest_plugin.watched import CheckedBackend
from attnbench.runner.link import VerifierFailed, WorkerFailed
from attnbench.runner.machine import check_threads
from attnbench.types.errors import AttnbenchError
from attnbench.types.status import MEANING, Status
from attnbench.types.words import one_line
from attnbench.worker.failures import classify
from attnbench.worker.outputs import WrongOutput
from attnbench.worker.prepared import NotPrepared


class _Refused(Exception):  # noqa: N818
    """Nothing is going to be timed: the status and the reason that a record would have."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason


@dataclass(frozen=True)
class _Ready:
    """A test whose backend is prepared."""

    told: ExtraInfo
    made: Prepared


_STATE = pytest.StashKey["_Ready | str"]()
"""Of a test: ready, or the sentence with which it fails."""


def backend_of(pair: Pair, item: pytest.Item, benchmark: Any) -> Iterator[CheckedBackend]:
    """What the fixture gives, and what comes after it.

    A backend that declines the case is skipped. What is wrong before anything is timed fails the test, but
    in its place and not in the fixture's, where it would count as an error of the test's making.
    """
    told = ExtraInfo(pair, benchmark)
    try:
        yield from _given(pair, item, benchmark, told)
    except _Refused as refused:
        _leave_unused(benchmark)
        sentence = told.end(refused.status, refused.reason)
        if MEANING[refused.status].declined:
            pytest.skip(sentence)
        item.stash[_STATE] = sentence
        yield cast("CheckedBackend", _Stand(sentence))


def around_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the test; then compare what it has computed."""
    state = item.stash.get(_STATE, None)
    if state is None:
        return (yield)
    if isinstance(state, str):
        pytest.fail(state, pytrace=False)
    told, made = state.told, state.made
    try:
        result = yield
    except WrongOutput as wrong:
        pytest.fail(told.end("mismatch", str(wrong)), pytrace=False)
    except BaseException as failure:
        told.end("error", f"the test did not come to its end: {one_line(failure)}")
        raise
    calls = made.watched.last().number
    if not calls:
        told.end("error", "the test has not called it")
        return result
    try:
        made.renew_now()
        problem, verified = compare(made)
    except WrongOutput as wrong:
        problem, verified = str(wrong), 0
    except (OtherInputs, VerifierFailed) as failure:
        pytest.fail(told.end("error", str(failure)), pytrace=False)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        pytest.fail(told.end(*classify(failure, "the call after the test")), pytrace=False)
    if problem:
        pytest.fail(told.end("mismatch", problem), pytrace=False)
    told.right(calls, verified)
    return result


def _given(pair: Pair, item: pytest.Item, benchmark: Any, told: ExtraInfo) -> Iterator[CheckedBackend]:
    config = item.config
    registry = registry_of(config)
    assert pair.backend is not None
    try:
        check_threads(pair.case.threads)
        court = court_of(config, registry)
        record = court.record(pair.case, pair.backend, _judged_along(item, pair))
        told.judged(record)
        if record.status != "ok":
            raise _Refused(record.status, record.reason)
        brief = court.opened(pair.case)
    except (AttnbenchError, VerifierFailed) as failure:
        raise _Refused("error", str(failure)) from failure
    except WorkerFailed as failure:
        raise _Refused("error", f"the plain reference failed: {failure.reason}") from failure
    told.counted(brief.flops, brief.bytes_moved)
    with surroundings(pair.case):
        try:
            made = prepared(brief, pair.case, registry.backends[pair.backend])
        except NotPrepared as refusal:
            if isinstance(refusal.__cause__, KeyboardInterrupt):
                # A worker has none: Ctrl-C is for the process of the tests.
                raise refusal.__cause__ from None
            raise _Refused(refusal.status, _here(refusal.reason)) from refusal
        except WrongOutput as wrong:
            raise _Refused("mismatch", _here(str(wrong))) from wrong
        except Exception as failure:
            status, reason = classify(failure, "the call")
            raise _Refused(status, _here(reason)) from failure
        if benchmark is not None:
            watch_rounds(benchmark, made.watched, made.renew)
            benchmark.group = benchmark.group or short_id(pair.case)
        item.stash[_STATE] = _Ready(told, made)
        call: Any = made.watched.call
        call.backend, call.case, call.inputs = pair.backend, pair.case, made.held.inputs
        yield call
    # What it holds goes with it, not with the session.
    del item.stash[_STATE]


def _here(reason: str) -> str:
    return f"in the process of the tests: {reason}"


def _judged_along(item: pytest.Item, pair: Pair) -> tuple[str, ...]:
    """Backends that the session is going to ask for on the same case: one check is for all of them.

    Of a process of pytest-xdist nobody knows which tests it's going to be given.
    """
    if hasattr(item.config, "workerinput"):
        return ()
    found: dict[str, None] = {}
    for other in item.session.items:
        theirs = _pair_of(other)
        if theirs is not None and theirs.backend is not None and theirs.case == pair.case:
            found[theirs.backend] = None
    return tuple(found)


def _pair_of(item: pytest.Item) -> Pair | None:
    if "attnbench_backend" not in getattr(item, "fixturenames", ()) or item.get_closest_marker("skip"):
        return None
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(PAIR)


def _leave_unused(benchmark: Any) -> None:
    """Have the fixture used on nothing and nothing stored: left unused it warns."""
    if benchmark is not None:
        benchmark.disabled = True
        benchmark(lambda: None)


class _Stand:
    """In the place of a backend that can't be given: whoever uses it is told why."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __call__(self, *inputs: Any) -> NoReturn:
        """Fail."""
        pytest.fail(self._sentence, pytrace=False)

    def __getattr__(self, name: str) -> NoReturn:
        pytest.fail(self._sentence, pytrace=False)
