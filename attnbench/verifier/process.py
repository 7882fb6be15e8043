"""The verifier: it makes inputs, solves them in float64 and compares outputs, without torch and backends.

Started by the parent as ``python -m attnbench.verifier.process DESCRIPTOR PARENT``.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback

import msgspec

from attnbench.cases.ids import parse_case
from attnbench.cases.work import bytes_of_problems, flops_of_problems, kv_bytes
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.channel import Channel, close_all
from attnbench.ipc.names import WEIGHTS, parameter_names
from attnbench.ipc.process import die_with_parent, leave_terminal, set_import_path, silence
from attnbench.ipc.shared_memory import pack, unpack
from attnbench.masks import kept_pairs
from attnbench.plugins.code import FirstStamps, attnbench_code
from attnbench.plugins.load import load
from attnbench.types.encoding import Encoding, is_encoded, make_encodings_known
from attnbench.types.extensions import Source
from attnbench.types.operation import Operation, make_known
from attnbench.types.problem import is_empty, problems_of
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.types.storage import Storage, make_storages_known
from attnbench.types.words import one_line
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.cache_error import CacheError, cache_error
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer
from attnbench.verifier.dropout import DropoutVerifier

Opened = CaseVerifier | BatchVerifier
Line = Channel[rm.VerifierReply, rm.VerifierRequest]


def main(argv: list[str]) -> None:
    """Serve on the descriptor until the line closes."""
    descriptor, parent = (int(word) for word in argv)
    die_with_parent(parent)
    leave_terminal()
    set_import_path()
    silence()
    line: Line = Channel(socket.socket(fileno=descriptor), rm.VerifierRequest)  # type: ignore[arg-type]
    opened: Opened | None = None
    opening: rm.OpenCase | None = None
    code = FirstStamps()
    code.watch()
    while True:
        try:
            request, fds = line.receive()
        except (ConnectionError, msgspec.DecodeError):
            os._exit(0)
        out: tuple[int, ...] = ()
        reply: rm.VerifierReply
        try:
            if isinstance(request, rm.OpenCase):
                opened, opening = None, request
                opened = _open(request)
                reply, out = _opened(opened, request, code)
            else:
                assert opened is not None
                reply, out = _answer(opened, request, fds)
        except BaseException as failure:
            reply = _failure(failure, opening)
        line.send(reply, out)
        close_all([*fds, *out])


def _failure(failure: BaseException, opening: rm.OpenCase | None) -> rm.RequestFailed:
    """Say what failed: a rule or an operation if a frame of its plugin is in the traceback, else only how."""
    owners: dict[str, str] = {}
    if opening is not None:
        operation, rule = opening.case.split("/")[:2]
        if opening.operation_source is not None:
            owners[_package(opening.operation_source.module)] = f"the operation {operation!r}"
        owners[_package(opening.rule_source.module)] = f"the rule {rule.partition('@')[0]!r}"
        owners.pop("attnbench", None)
    for frame, _ in traceback.walk_tb(failure.__traceback__):
        owner = owners.get(_package(frame.f_globals.get("__name__", "")))
        if owner is not None:
            return rm.RequestFailed(f" in {owner}: {one_line(failure)}", "reference")
    return rm.RequestFailed(f": {one_line(failure)}")


def _package(module: str) -> str:
    return module.partition(".")[0]


def _open(request: rm.OpenCase) -> Opened:
    if request.operation_source is not None:
        make_known(load(request.operation_source).of(Operation))
    if request.storage_source is not None:
        make_storages_known(load(request.storage_source).of(Storage))
    if request.encoding_source is not None:
        make_encodings_known(load(request.encoding_source).of(Encoding))
    case = parse_case(request.case)
    rule = _load_rule(request.rule_source, case.rule)
    if case.batch:
        return BatchVerifier(request, rule)
    kind = DropoutVerifier if case.dropout else CaseVerifier
    return kind(request, rule)


def _opened(
    opened: Opened, request: rm.OpenCase, code: FirstStamps
) -> tuple[rm.VerifierReply, tuple[int, ...]]:
    case, rule = opened.case, opened.rule
    brought = (
        request.operation_source, request.storage_source, request.encoding_source, request.rule_source
    )  # fmt: skip
    sources = [source for source in brought if source is not None]
    fd, specs = pack(parameter_names(opened.parameters.rule, opened.parameters.projections), case.dtype)
    # A variant case has no timed draws.
    timed = request.timed_draws > 0
    error = error_of_cache(opened) if timed and is_encoded(case) else None
    reply = rm.CaseOpened(
        parameters=specs,
        stress_inputs=opened.stress_inputs,
        pairs=sum(map(kept_pairs, problems_of(case))),
        flops=float(flops_of_problems(case, rule)),
        bytes_moved=float(bytes_of_problems(case, rule)),
        attnbench=attnbench_code(),
        modules=code.of(sources),
        calls=opened.calls if isinstance(opened, DropoutVerifier) else 0,
        encoding_error=None if error is None else error.encoded,
        dtype_error=None if error is None else error.dtype,
        kv_bytes=kv_bytes(case, rule) if timed else None,
    )
    return reply, (fd,)


def error_of_cache(opened: Opened) -> CacheError:
    """Return what the encoding of an open case changes in its exact output."""
    every = opened.problems if isinstance(opened, BatchVerifier) else (opened,)
    there = ((one.case, one.judging.solve, one.ordinary) for one in every if not is_empty(one.case))
    return cache_error(there, opened.rule)


def _answer(
    opened: Opened, request: rm.VerifierRequest, fds: list[int]
) -> tuple[rm.VerifierReply, tuple[int, ...]]:
    match request:
        case rm.GetDraw():
            if isinstance(opened, BatchVerifier) and request.chosen:
                arrays = opened.arrays_of(request.index, request.chosen)
            elif isinstance(opened, BatchVerifier):
                arrays = opened.arrays(request.index, request.change, apart=request.apart)
            else:
                arrays = opened.arrays(
                    request.index, request.change, nudged=request.nudged, apart=request.apart
                )
            fd, specs = pack(arrays, opened.case.dtype)
            return rm.Arrays(specs), (fd,)
        case rm.Score():
            return _score(opened, request, fds[0]), ()
        case rm.ScoreTimed():
            return _score_timed(opened, request, fds[0]), ()
        case rm.Judge():
            return opened.judge(request.who, request.left_out, request.arithmetic), ()
        case rm.TryTrivialAnswers():
            if isinstance(opened, BatchVerifier):
                return rm.Tried(opened.passing_trivial_answer()), ()
            unseen = isinstance(opened, DropoutVerifier) and opened.unseen()
            return rm.Tried(passing_trivial_answer(opened), unseen), ()
    raise TypeError(f"no such request: {type(request).__name__}")


def _score(opened: Opened, request: rm.Score, fd: int) -> rm.Scored:
    """Compare answers on one draw, or take exact gradients."""
    problem = ""
    check: Check = ""
    for specs in request.outputs:
        parts = unpack(fd, specs)
        if request.what == "exact":
            opened.expect(request.index, parts)
        elif isinstance(opened, BatchVerifier):
            problem, check = opened.score(request.who, request.index, parts), "not_finite"
        elif request.what == "weights":
            problem, check = opened.score_weights(request.who, request.index, parts[WEIGHTS]), "weights"
        elif request.what in ("before", "nudged"):
            opened.score_nudged(request.who, request.index, parts, nudged=request.what == "nudged")
        elif request.what == "calls" and isinstance(opened, DropoutVerifier):
            opened.tally(request.who, request.index, parts)
        else:
            problem = opened.score(request.who, request.index, parts)
            check = "dropout" if opened.case.dropout else "not_finite"
    return rm.Scored(problem, check=check if problem else "")


def _score_timed(opened: Opened, request: rm.ScoreTimed, fd: int) -> rm.Scored:
    """Compare outputs of timed calls one by one, then all of them together."""
    opened.begin_timed()
    for place, each in enumerate(request.outputs):
        parts = unpack(fd, each.parts)
        problem = opened.score_timed(each.index, each.change, parts, request.arithmetic)
        if problem:
            return rm.Scored(problem, place, "timed_values")
    problem = opened.end_timed()
    if problem:
        return rm.Scored(problem, len(request.outputs) - 1, "timed_values")
    return rm.Scored("")


def _load_rule(source: Source, name: str) -> Rule:
    loaded = load(source)
    for rule in loaded.of(Rule):
        if rule.name == name:
            return rule
    raise ValueError("; ".join(loaded.faults) or f"{loaded.source} brings no rule {name!r} here")


if __name__ == "__main__":
    main(sys.argv[1:])
