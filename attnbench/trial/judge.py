"""One point, judged in this process by the verifier's own draws, limits and verdict."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct

from attnbench.cases.ids import case_id
from attnbench.inputs.draw import Stored, store, widen
from attnbench.inputs.kinds import DELIVERIES, GRADED, NORMAL, SEARCHED, STRESS_INPUTS, TRANSPOSED, applies
from attnbench.inputs.symmetries import NO_CHANGE
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import PLAIN, parameter_names
from attnbench.runner.case import refusal
from attnbench.runner.outputs import NUDGED_ELEMENTS
from attnbench.trial.point import Point, Way, called_case
from attnbench.types.arithmetic import coarser
from attnbench.types.backend import Backend
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case, output_shape
from attnbench.types.errors import BadCase
from attnbench.types.extensions import Source
from attnbench.types.mask import Mask
from attnbench.types.operation import finest_dtype
from attnbench.types.problem import call_inputs, with_lengths
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.case import CaseVerifier
from attnbench.verifier.judging import in_turn
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import check_held_output, exact_gradients
from attnbench.worker.failures import NotPrepared, Refused, failed
from attnbench.worker.guards import check_bands, check_unchanged, keep
from attnbench.worker.layouts import seen_in_layout
from attnbench.worker.prepared import PreparedBackend, judges_rule, loaded_here, prepare

if TYPE_CHECKING:
    from torch import Tensor

ORACLE_FLOPS = 2e8
"""Rows are sampled where solving one draw costs more: the search has many cases, and little time for each."""
ROUNDS, ROUNDS_S = 1000, 0.1
"""The most calls beside those of another thread, and about how long they take. Threads meet by chance, so the
worst answer counts."""
MOST_DRAWS = 2
"""Draws of a kind. A run has up to 16 of small outputs, which shows smaller errors, and takes longer."""


ALL_DRAWS = 64
"""More than a run has of any kind."""
EQUAL_CALLS = 8


class TrialOutcome(Struct, frozen=True):
    """What came of a point. ``late``: it gave no answer in time. ``unjudged``: the judge failed, which says
    nothing of the backend.

    problem, check: as in a record; "" where it is right.
    """

    status: Literal["right", "declined", "wrong", "error", "late", "unjudged"]
    problem: str = ""
    check: str = ""


class _AskedCase(CaseVerifier):
    """A case of a point, or a problem of it: few draws, of its kind of values too.

    Its tensors repeat numbers where a way expands them.
    """

    def __init__(
        self,
        opening: rm.OpenCase,
        rule: Rule,
        problem: Case | None = None,
        *,
        values: str,
        way: Way,
        draws: int,
    ) -> None:
        super().__init__(opening, rule, problem)
        self.counts = {stress: min(count, draws) for stress, count in self.counts.items()}
        # A problem without keys or queries has no kinds.
        if values in _SEARCHED and self.counts and applies(self.case, rule, values):
            self.counts[values] = min(draws, MOST_DRAWS)
        self._check = in_turn(self.counts)
        self.alike = {name: _EXPANDED[word] for name, word in way.memory.items() if word in _EXPANDED}
        self.one_upstream = way.upstream == "expanded"

    def drawn_inputs(self, index: int) -> dict[str, Stored]:
        """Return the inputs of a draw, the same along the axes that are expanded."""
        inputs = super().drawn_inputs(index)
        for name, axis in self.alike.items():
            first = inputs[name].take([0], axis)
            inputs[name] = np.ascontiguousarray(np.broadcast_to(first, inputs[name].shape))
        return inputs

    def drawn_upstreams(self, index: int) -> dict[str, Stored]:
        """Return the gradients of outputs, each one number where they are expanded, as that of a sum."""
        drawn = super().drawn_upstreams(index)
        if not self.one_upstream:
            return drawn
        return {name: np.full_like(upstream, upstream.flat[0]) for name, upstream in drawn.items()}

    def is_right(self, index: int, parts: Mapping[str, Stored], arithmetic: str) -> bool:
        """Return whether an answer to a draw, of which the plain one is scored, would pass alone."""
        errors = self._errors(parts, self.draw(index), NO_CHANGE)
        verdicts = (
            self._verdict(self._part(name), [found], [index], [index], arithmetic)
            for name, found in errors.items()
        )
        return not any(problem for _, problem in verdicts)


class _AskedBatch(BatchVerifier):
    """The problems of a case with a batch."""

    problems: tuple[_AskedCase, ...]

    def is_right(self, index: int, parts: Mapping[str, Stored], arithmetic: str) -> bool:
        """Return whether an answer to a draw, of which the plain one is scored, would pass alone."""
        taken = self.taken("a backend", index, 0, parts)
        return all(
            one.is_right(index, own, arithmetic) for one, own in zip(self.problems, taken, strict=True)
        )


_SEARCHED = tuple(stress.name for stress in SEARCHED)
_EXPANDED = {"same_in_batch": 0, "same_in_heads": 1}


def judge(
    point: Point, backend: str, source: Source, rule_source: Source, draws: int = MOST_DRAWS
) -> TrialOutcome:
    """Judge a backend on a point. It may end this process, or never return. draws: the most of a kind.

    Raises:
        Exception: the judge failed, which says nothing of the backend.
    """
    try:
        return _Trial(point, backend, source, rule_source, draws).judged()
    except Refused as refusal:
        if MEANING[refusal.status].declined:
            return TrialOutcome("declined", refusal.reason)
        wrong = refusal.status == "mismatch"
        return TrialOutcome("wrong" if wrong else "error", refusal.reason, refusal.check)


def equal_calls(point: Point, backend: str, source: Source, rule_source: Source) -> int | None:
    """Return how many of :data:`EQUAL_CALLS` calls on the same inputs are wrong; None if none shows alone.

    The inputs are those that a newly prepared backend answers wrongly first; then it is prepared anew.

    Raises:
        Refused: a call raised. Exception: the judge failed.
    """
    index = _Trial(point, backend, source, rule_source, ALL_DRAWS).first_wrong()
    if index is None:
        return None
    return _Trial(point, backend, source, rule_source, ALL_DRAWS).wrong_equal_calls(index)


class _Trial:
    """A point with everything that is prepared for it."""

    def __init__(self, point: Point, backend: str, source: Source, rule_source: Source, draws: int) -> None:
        self.point, self.name = point, backend
        case = point.case
        rule = judges_rule(rule_source, case.rule)
        left_out = tuple(stress.name for stress in STRESS_INPUTS if stress.name not in (NORMAL, point.values))
        opening = rm.OpenCase(case_id(case), rule_source, 0, 0, ORACLE_FLOPS, left_out)
        asked = partial(_AskedCase, values=point.values, way=point.way, draws=draws)
        self.opened: _AskedCase | _AskedBatch = (
            _AskedBatch(opening, rule, asked) if case.batch else asked(opening, rule)
        )
        names = parameter_names(self.opened.parameters.rule, self.opened.parameters.projections)
        self.sources = source, rule_source
        _refuse_undeclared(point, backend, source, rule)
        with surroundings(replace(case, threads=1)):
            try:
                self.plain, _ = prepare(Prepare(case_id(case), "", None, rule_source, (), None), names)
            except NotPrepared as failure:
                raise RuntimeError(f"the plain reference failed: {failure.reason}") from failure
        with self._surroundings():
            own = case_id(called_case(case, point.way.autocast))
            named = {name: self._as_called(array) for name, array in names.items()}
            self.mine, _ = prepare(Prepare(own, backend, source, rule_source, (), None), named)
            if point.way.autocast:
                self.mine = replace(self.mine, call=under_autocast(self.mine.call, case))
            self.sibling = self._prepared_sibling()

    def _surroundings(self) -> Any:
        enabled = self.point.values == GRADED
        return surroundings(self.point.case, "enabled" if enabled else self.point.way.grad)

    def _as_called(self, array: Stored) -> Stored:
        """Return numbers of the case in the dtype in which the backend gets them."""
        dtype = self.point.case.dtype
        return store(widen(array, dtype), "float32") if self.point.way.autocast else array

    def _prepared_sibling(self) -> PreparedBackend | None:
        case = sibling(self.point)
        if case is None:
            return None
        source, rule_source = self.sources
        opening = rm.OpenCase(case_id(case), rule_source, 0, 0, ORACLE_FLOPS)
        opened = (BatchVerifier if case.batch else CaseVerifier)(opening, self.opened.rule)
        names = parameter_names(opened.parameters.rule, opened.parameters.projections)
        try:
            made, _ = prepare(Prepare(case_id(case), self.name, source, rule_source, (), None), names)
        except NotPrepared as refusal:
            if MEANING[refusal.status].declined:
                return None
            raise
        return made.with_inputs(opened.arrays(0, 0), fresh=True)

    def judged(self) -> TrialOutcome:
        """Make a call on each draw, and return the verdict on all."""
        opened = self.opened
        for index, stress in enumerate(opened.stress_inputs):
            plain = self._plain_answer(index)
            opened.score(PLAIN, index, plain)
            problem = opened.score(self.name, index, self._answer(index, stress, plain))
            if problem:
                return TrialOutcome("wrong", problem, "not_finite")
        judged = opened.judge(self.name, (), self._arithmetic)
        if judged.arithmetic:
            self._nudge()
            judged = opened.judge(self.name, (), self._arithmetic)
        if judged.problem and not judged.arithmetic:
            return TrialOutcome("wrong", judged.problem, judged.check)
        return TrialOutcome("right")

    @property
    def _arithmetic(self) -> str:
        declared = self.mine.backend.computes_in or ""
        return declared if coarser(declared, finest_dtype(self.point.case)) else ""

    def first_wrong(self) -> int | None:
        """Return the first draw that is answered wrongly, after those before it; None if there is none."""
        for index, stress in enumerate(self.opened.stress_inputs):
            plain = self._plain_answer(index)
            self.opened.score(PLAIN, index, plain)
            answer = self._answer(index, stress, plain)
            if stress == self.point.values and not self.opened.is_right(index, answer, self._arithmetic):
                return index
        return None

    def wrong_equal_calls(self, index: int) -> int:
        """Return how many calls on a draw are wrong, of a backend that has not been called before."""
        plain = self._plain_answer(index)
        self.opened.score(PLAIN, index, plain)
        stress = self.opened.stress_inputs[index]
        with self._surroundings():
            delivery = stress if stress in DELIVERIES else ""
            held = self.mine.with_inputs(self._arrays(index), fresh=True, delivery=delivery)
            mine = placed(held, self.point.way)
            wrong = 0
            for _ in range(EQUAL_CALLS):
                found = self._as_stored(stored_answer(mine, _called(mine.call, mine.inputs)))
                answer = self._completed(found, plain)
                wrong += not self.opened.is_right(index, answer, self._arithmetic)
        return wrong

    def _plain_answer(self, index: int) -> dict[str, Stored]:
        with surroundings(replace(self.point.case, threads=1)):
            arrays = self.opened.arrays(index, 0, apart=True)
            ready = self.plain.with_inputs(arrays, fresh=True)
            if ready.passed is not None:
                self.opened.expect(index, exact_gradients(ready))
            assert ready.inputs is not None
            parts = stored_answer(ready, ready.call(*ready.inputs))
            return {name: np.array(part) for name, part in parts.items()}

    def _answer(
        self, index: int, stress: str, plain: Mapping[str, Stored], *, nudged: bool = False
    ) -> dict[str, Stored]:
        """Return the backend's answer to a draw. plain: the answer that stands for gradients not asked for.

        Raises:
            Refused: the call raised, or its output is not one of the case.
        """
        way, delivery = self.point.way, stress if stress in DELIVERIES else ""
        arrays = self._arrays(index, nudged=nudged)
        with self._surroundings():
            # The first inputs are new, further ones are written over them, as in a run.
            fresh = index == 0 or bool(way.memory)
            self.mine = self.mine.with_inputs(arrays, fresh=fresh, guarded=not way.memory, delivery=delivery)
            mine = placed(self.mine, way)
            assert mine.inputs is not None
            if self.sibling is not None:
                _called(self.sibling.call, self.sibling.inputs)
            before = keep(mine.inputs)
            outside = delivery == TRANSPOSED or "features_outside" in way.memory.values()
            answer, found = None, list[dict[str, Stored]]()
            with self._other_thread(index) if way.at_once else nullcontext():
                until = monotonic() + ROUNDS_S
                while not found or (way.at_once and len(found) < ROUNDS and monotonic() < until):
                    answer = _called(mine.call, mine.inputs, may_refuse=outside)
                    found.append(self._as_stored(stored_answer(mine, answer)))
            check_unchanged(mine.inputs, before)
            check_bands(mine.buffers)
            if delivery != GRADED:
                check_held_output(mine, answer)
            return self._completed(max(found, key=lambda one: self._off(one, plain)), plain)

    def _completed(self, answer: Mapping[str, Stored], plain: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return an answer with the plain one's parts for those that a way doesn't ask for."""
        # Those of a batch lie apart; its ways ask for all parts.
        return {**({} if self.point.case.batch else plain), **answer}

    def _arrays(self, index: int, *, nudged: bool = False) -> dict[str, Stored]:
        """Return the inputs of a draw as the backend gets them; a tensor that serves twice stays one."""
        opened = self.opened
        if isinstance(opened, BatchVerifier):
            arrays = opened.arrays(index, 0)
        else:
            arrays = opened.arrays(index, 0, nudged=nudged)
        whole = {spec.name for spec in call_inputs(self.point.case, opened.rule) if not spec.is_floating}
        floats = [name for name in arrays if name not in whole]
        made = {id(arrays[name]): self._as_called(arrays[name]) for name in floats}
        return {name: made.get(id(array), array) for name, array in arrays.items()}

    def _as_stored(self, parts: Mapping[str, Stored]) -> dict[str, Stored]:
        """Copy parts, whose memory the next call may write, in the dtype of the case."""
        if not self.point.way.autocast:
            return {name: np.array(part) for name, part in parts.items()}
        return {name: store(part.astype(np.float64), self.point.case.dtype) for name, part in parts.items()}

    def _off(self, parts: Mapping[str, Stored], plain: Mapping[str, Stored]) -> float:
        """Return how far an answer is from the plain one; infinite where it is not finite."""
        dtype, most = self.point.case.dtype, 0.0
        for name in parts.keys() & plain.keys():
            with np.errstate(invalid="ignore"):
                off = np.abs(widen(parts[name], dtype) - widen(plain[name], dtype)).max(initial=0.0)
            most = max(most, float(off) if np.isfinite(off) else math.inf)
        return most

    @contextmanager
    def _other_thread(self, index: int) -> Iterator[None]:
        """Let another thread call the backend with other inputs meanwhile.

        Raises:
            Refused: one of these calls raised.
        """
        arrays = self._arrays((index + 1) % len(self.opened.stress_inputs))
        with self._surroundings():
            other = placed(self.mine.with_inputs(arrays, fresh=True), self.point.way)
        begun, over, refused = Event(), Event(), list[Refused]()

        def calls() -> None:
            try:
                with self._surroundings():
                    while not over.is_set():
                        _called(other.call, other.inputs)
                        begun.set()
            except Refused as refusal:
                refused.append(refusal)
            finally:
                begun.set()

        interval = sys.getswitchinterval()
        thread = Thread(target=calls)
        thread.start()
        begun.wait()
        # Python's threads take turns so seldom that short calls would never meet.
        sys.setswitchinterval(1e-5)
        try:
            yield
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(interval)
        if refused:
            raise refused[0]

    def _nudge(self) -> None:
        """Compare errors on ordinary draws with those on nudged ones, as a run does."""
        assert isinstance(self.opened, CaseVerifier), "no arithmetic is assumed in a batch"
        elements = prod(output_shape(self.point.case))
        ordinary = [at for at, stress in enumerate(self.opened.stress_inputs) if stress == NORMAL]
        for index in ordinary[: -(-NUDGED_ELEMENTS // elements)]:
            for nudged in (False, True):
                answer = self._answer(index, NORMAL, {}, nudged=nudged)
                self.opened.score_nudged(self.name, index, answer, nudged=nudged)


def _refuse_undeclared(point: Point, name: str, source: Source, rule: Rule) -> None:
    """Raise :class:`Refused` for a point outside of a backend's declarations, as a smaller one may be."""
    backend = next((one for one in loaded_here(source).of(Backend) if one.name == name), None)
    case, autocast = point.case, point.way.autocast
    if backend is None:
        # Preparation says so.
        return
    refused = refusal(backend, called_case(case, autocast), rule, devices=(case.device,))
    if refused is not None:
        raise Refused(*refused)
    if autocast and case.dtype not in backend.autocast:
        raise Refused("unsupported", f"declares no autocast in {case.dtype}")


def _called(call: Callable[..., Any], inputs: tuple[Any, ...] | None, *, may_refuse: bool = False) -> Any:
    """Call a backend. Raises :class:`Refused` for whatever it raises.

    may_refuse: whether an exception declines the case. Many kernels take any strides but that of features,
    and no declaration says so; they raise, which misleads nobody.
    """
    try:
        return call(*inputs or ())
    except BaseException as failure:
        what = failed(failure, "the call")
        if may_refuse and what.status == "error":
            raise Refused("unsupported", what.reason, what.check) from failure
        raise Refused(what.status, what.reason, what.check) from failure


def under_autocast(call: Callable[..., Any], case: Case) -> Callable[..., Any]:
    """Return a call under ``torch.autocast`` in the dtype of the case, of which outputs become float32."""
    import torch

    dtype: torch.dtype = getattr(torch, case.dtype)

    def widened(out: Any) -> Any:
        return out.float() if isinstance(out, torch.Tensor) and out.dtype == dtype else out

    def under(*inputs: Any) -> Any:
        with torch.autocast(case.device, dtype=dtype):
            out = call(*inputs)
        return tuple(map(widened, out)) if isinstance(out, tuple) else widened(out)

    return under


@contextmanager
def surroundings(case: Case, grad: str = "") -> Iterator[None]:
    """Set the threads of a case, and the mode of torch: that of a run, or the one that ``grad`` names."""
    import torch

    torch.set_num_threads(case.threads)
    plainly = case.pass_ == "forward" and not grad
    graphs = case.pass_ != "forward" or grad == "enabled"
    with torch.inference_mode(plainly), torch.set_grad_enabled(graphs):
        yield


def placed(mine: PreparedBackend, way: Way) -> PreparedBackend:
    """Return a backend whose inputs, and gradient of the output, lie as a way says."""
    one = way.grad if way.grad in ("q", "k", "v") else ""
    if mine.inputs is None or not (way.memory or way.upstream or one):
        return mine
    layout = mine.layout
    made = []
    # Behind q, k and v a batch has tensors that say where its sequences lie.
    for name, x in zip(("q", "k", "v"), mine.inputs[:3], strict=True):
        moved = seen_in_layout(
            in_memory(seen_in_layout(x.detach(), layout), way.memory.get(name, "")), layout
        )
        made.append(moved.requires_grad_(mine.passed is not None and one in ("", name)))
    inputs = (*made, *mine.inputs[3:])
    if mine.passed is None:
        return replace(mine, inputs=inputs, buffers=())
    upstream = seen_in_layout(in_memory(seen_in_layout(mine.passed.upstream, layout), way.upstream), layout)
    passed: Any = replace(mine.passed, upstreams=(upstream,), outputs={})
    if one:
        passed = _OneGradient(passed.call, upstream, one, inputs[("q", "k", "v").index(one)])
    else:
        passed.renew(inputs)
    return replace(mine, inputs=inputs, buffers=(), passed=passed, call=passed)


class _OneGradient:
    """A pass in which one input alone wants a gradient."""

    def __init__(self, call: Callable[..., Any], upstream: Tensor, name: str, wanted: Tensor) -> None:
        self.call, self.upstream, self.wanted = call, upstream, wanted
        self.names = ("out", name)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        from torch.autograd import grad

        out = self.call(*inputs)
        (found,) = grad(out, [self.wanted], self.upstream)
        return out.detach(), found


def in_memory(x: Tensor, word: str) -> Tensor:
    """Return a tensor with the same numbers, lying as a word of a way says.

    x: (B, H, L, D), or as a storage has it. A slice lies in longer memory along the axis before the features:
    of positions, in a storage of heads.
    """
    match word:
        case "offset":
            memory = x.new_zeros(x.numel() + 1)
            return memory[1:].view(x.shape).copy_(x)
        case "slice":
            *outer, length, D = x.shape
            return x.new_zeros(*outer, length + 3, D).narrow(-2, 1, length).copy_(x)
        case "features_outside" | "transposed":
            return x.mT.contiguous().mT
        case "same_in_batch":
            return x[:1].contiguous().expand(x.shape)
        case "same_in_heads":
            return x[:, :1].contiguous().expand(x.shape)
        case "expanded":
            return x.reshape(-1)[:1].clone().expand(x.shape)
    return x


def sibling(point: Point) -> Case | None:
    """Return the case that the backend computes before each call; None where the way names none."""
    case = point.case
    try:
        match point.way.before:
            case "larger":
                return _resized(case, lambda length: 2 * length)
            case "smaller":
                return _resized(case, lambda length: -(-length // 2))
            case "other_mask":
                other = Mask(causal="lower_right") if case.mask.is_none else Mask()
                return replace(case, mask=other)
    except BadCase:
        # An operation or a mask may not have such lengths.
        return None
    return None


def _resized(case: Case, change: Callable[[int], int]) -> Case:
    """Return a case with other numbers of queries and keys, of each sequence of a batch."""
    resized = replace(case, mask=case.mask.unlisted())
    if case.batch:
        return with_lengths(resized, [(change(q), change(k)) for q, k in parse_batch(case.batch)])
    return replace(resized, Lq=change(case.Lq), Lk=change(case.Lk))
