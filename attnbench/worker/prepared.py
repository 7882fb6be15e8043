"""A prepared backend in a worker: its inputs, how they arrive, and its last output."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attnbench.cases.ids import parse_case
from attnbench.cases.work import output_elements
from attnbench.check.gradients import Backward, Both, passed, with_gradients
from attnbench.check.reference import PLAIN
from attnbench.inputs.kinds import GRADED, STRIDED
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import UPSTREAM, rule_key
from attnbench.ipc.shared_memory import Stored
from attnbench.plugins.load import Loaded, load
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.timing.rotation import Pool, RotatingTimer
from attnbench.timing.sample import Timer, timer_for
from attnbench.types.backend import Backend, Layout, Setup
from attnbench.types.case import Case, projection_shapes
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.operation import Operation, make_known, operation_of
from attnbench.types.rule import Rule
from attnbench.types.status import Status
from attnbench.types.words import clean
from attnbench.worker.activity import NO_PAST, Past
from attnbench.worker.answers import OutputLog
from attnbench.worker.failures import check_of, classify, no_answer
from attnbench.worker.guards import between_bands
from attnbench.worker.outputs import as_tensor, in_layout, reach_of, seen_in_layout, to_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnbench.types.backend import Call


def strides_apart(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a ``strided`` input of this shape, in elements.

    (B, H, L, D) to those of half of (B, L, 2·H, D), and the same with the names exchanged; (B, L, E) to those
    of half of (B, L, 2·E).
    """
    if len(shape) == 3:
        _, length, width = shape
        return 2 * width * length, 2 * width, 1
    _, inner, outer, width = shape
    row = 2 * inner * width
    return outer * row, width, row, 1


def apart(tensor: Tensor) -> Tensor:
    """A copy with :func:`strides_apart`, and 0 between its elements."""
    strides = strides_apart(tensor.shape)
    memory = tensor.new_zeros(reach_of(tensor.shape, strides))
    return memory.as_strided(tensor.shape, strides).copy_(tensor)


T = TypeVar("T", Backend, Rule)


class NotPrepared(Exception):  # noqa: N818
    """Preparation ended with a status other than ok."""

    def __init__(self, status: Status, reason: str, check: Check = "") -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason
        self.check: Check = check


@dataclass(frozen=True)
class LastCall:
    """The last timed call: its output, where it was, and whether on inputs that came within the stretch."""

    output: Any
    segment: int
    slot: int
    call: int
    refreshed: bool


@dataclass(frozen=True)
class PreparedBackend:
    """A prepared backend: what it was prepared for, the function that is timed, and its inputs.

    call: what is timed; passed: where the case asks for gradients, the same, made when inputs come, of what
    was prepared.
    pool: copies of the inputs, where they rotate and something has been timed. last: what was timed last,
    until it is written down. output_log: what was written down. parameters: what it was prepared with.
    buffers: of inputs between bands of NaN, bands included. past, earlier: of the calls that were checked,
    and the outputs of the last few of them. delivery: how the inputs came, see ``worker.delivery``. ordinary:
    the same for inputs that require no gradients, where these do.
    """

    setup: Setup
    backend: Backend
    call: Call
    passed: Both | Backward | None = None
    inputs: tuple[Any, ...] | None = None
    last: LastCall | None = field(default=None, repr=False)
    pool: Pool | None = field(default=None, repr=False)
    output_log: OutputLog = field(default_factory=OutputLog, repr=False)
    parameters: tuple[Any, ...] = field(default=(), repr=False)
    buffers: tuple[Any, ...] = field(default=(), repr=False)
    past: Past = field(default=NO_PAST, repr=False)
    earlier: tuple[Any, ...] = field(default=(), repr=False)
    delivery: str = ""
    ordinary: PreparedBackend | None = field(default=None, repr=False)

    @property
    def case(self) -> Case:
        """The case."""
        return self.setup.case

    @property
    def rule(self) -> Rule:
        """The rule of the case."""
        return self.setup.rule

    @property
    def output_bytes(self) -> int:
        """The bytes of all outputs of a call."""
        return output_elements(self.case) * self.case.item_bytes

    @property
    def layout(self) -> Layout:
        """The backend's layout of heads, if the operation has heads."""
        return "BHLD" if operation_of(self.case).heads is None else self.backend.layout

    def with_inputs(
        self, stored: Mapping[str, Stored], *, fresh: bool, guarded: bool = False, delivery: str = ""
    ) -> PreparedBackend:
        """The same backend with other inputs, in its layout, on its device.

        Where there are inputs and ``fresh`` isn't said, the new ones go into their storage: to a backend that
        remembers by address they look the same. No memory is asked for then, since what is given back would
        be found by the next call, in place of what it would have taken.

        guarded: between bands of NaN. delivery: see ``worker.delivery``. Where either was another before, the
        new ones are fresh.

        Raises:
            NotPrepared: as unsupported, where inputs require gradients and the backend can't have such.
        """
        given_count = len(_input_names(stored))
        wanted = len(operation_of(self.case).inputs(self.case, self.rule))
        if given_count != wanted:
            raise ValueError(f"{given_count} inputs where {wanted} are asked for")
        if (delivery == GRADED) != (self.ordinary is not None):
            other = self._graded() if delivery == GRADED else self._ungraded()
            return other.with_inputs(stored, fresh=True, guarded=guarded, delivery=delivery)
        alike = guarded == bool(self.buffers) and delivery == self.delivery
        if not fresh and self.inputs is not None and alike:
            return self._refreshed(stored)
        tensors = to_tensors(stored, self.case)
        laid = {id(t): in_layout(t, self.layout) for t in tensors.values()}
        given = [id(tensors[name]) for name in _input_names(stored)]
        buffers: tuple[Any, ...] = ()
        if guarded:
            # What was compiled on tensors of inference mode would be compiled anew for others.
            counted = not self.backend.compiles
            banded = {
                at: between_bands(
                    tensor,
                    counted=counted,
                    strides=strides_apart(tensor.shape) if delivery == STRIDED else None,
                )
                for at, tensor in laid.items()
            }
            laid = {at: inside for at, (inside, _) in banded.items()}
            buffers = tuple(banded[at][1] for at in given)
        elif delivery == STRIDED:
            laid = {at: apart(tensor) for at, tensor in laid.items()}
        inputs = tuple(laid[at] for at in given)
        prepared = replace(self, inputs=inputs, last=None, pool=None, buffers=buffers, delivery=delivery)
        if delivery == GRADED:
            for x in inputs:
                x.requires_grad_()
        return prepared if self.case.pass_ == "forward" else prepared._with_pass(tensors[UPSTREAM])

    def _graded(self) -> PreparedBackend:
        """The same for inputs that require gradients, prepared anew: outside of torch's inference mode.

        Tensors made inside of it can't be part of a graph.
        """
        both = replace(self.case, pass_="both")
        _decline("unsupported", "supports()", self.backend.supports(both, self.rule))
        given = self.setup
        own = {name: x.clone() for name, x in given.rule_parameters.items()}
        projections = {name: x.clone() for name, x in given.projections.items()}
        setup = Setup(given.case, given.rule, given.rule.bind(given.case, own), own, projections)
        try:
            call = self.backend.prepare(setup)
        except BaseException as failure:
            raise NotPrepared(*classify(failure, "preparation"), check_of(failure)) from failure
        parameters = (*own.values(), *projections.values())
        # Compilers may have worked on other threads, so the next call counts as the first.
        return replace(
            self, setup=setup, call=call, parameters=parameters, inputs=None, ordinary=self._without_inputs(),
            past=NO_PAST,
        )  # fmt: skip

    def _ungraded(self) -> PreparedBackend:
        assert self.ordinary is not None
        return replace(self.ordinary, past=self.past)

    def _without_inputs(self) -> PreparedBackend:
        return replace(self, inputs=None, last=None, pool=None, buffers=(), earlier=(), delivery="")

    def _with_pass(self, upstream: Any) -> PreparedBackend:
        """The same with inputs that gradients are asked of, and the pass as the call that is timed."""
        assert self.inputs is not None
        for x in self.inputs:
            x.requires_grad_()
        prepared = self.call if self.passed is None else self.passed.call
        made = passed(prepared, self.setup, in_layout(upstream, self.layout))
        made.renew(self.inputs)
        return replace(self, call=cast("Call", made), passed=made)

    def write(self, stored: Mapping[str, Stored], into: tuple[Any, ...] | None = None) -> None:
        """Write values over those of the inputs, or of others like them; the pool stays as it is."""
        for old, name in zip(into or self.inputs or (), _input_names(stored), strict=True):
            self._copy(old, stored[name])
        if self.passed is not None and self.inputs is not None:
            self._copy(self.passed.upstream, stored[UPSTREAM])
            self.passed.renew(self.inputs)

    def _copy(self, old: Any, stored: Stored) -> None:
        # Of its data: what gradients are asked of is not changed as part of a graph.
        old.data.copy_(seen_in_layout(as_tensor(stored, self.case), self.layout))

    def _refreshed(self, stored: Mapping[str, Stored]) -> PreparedBackend:
        self.write(stored)
        if self.pool is not None:
            self.pool.refresh()
        return replace(self, last=None)

    def with_timer(self) -> tuple[PreparedBackend, Timer]:
        """The same with what its cache mode needs, and the timer for it. It must have inputs.

        The pool is made here and not with the inputs: the check and the memory pass need none.
        """
        if self.case.cache != "rotating" or self.case.device != "cpu":
            return self, timer_for(self.case.device, self.case.cache)
        assert self.inputs is not None
        pool = self.pool or Pool(self.inputs, last_level_cache_bytes(self.case.device))
        return replace(self, pool=pool), RotatingTimer(pool)

    def without_pool(self) -> PreparedBackend:
        """The same without its pool, which a fork has no use for: it gets other inputs."""
        return replace(self, pool=None) if self.pool is not None else self


def prepare(request: Prepare, parameters: Mapping[str, Stored]) -> tuple[PreparedBackend, int]:
    """Load the plugin and prepare the backend; return it and the nanoseconds that took.

    Raises:
        NotPrepared: with the status that the record will have.
    """
    if request.operation_source is not None:
        loaded_here(request.operation_source)
    case = parse_case(request.case)
    rule = _brought(request.rule_source, Rule, case.rule)
    start = time.perf_counter_ns()
    if request.backend_source is None:
        backend = _plain(case)
    else:
        backend = _brought(request.backend_source, Backend, request.backend)
    _refuse(backend, case, rule)
    tensors = to_tensors(parameters, case)
    names = projection_shapes(case, rule)
    projections = {name: tensors[name] for name in names}
    own = {p.name: tensors[rule_key(p.name)] for p in rule.parameters(case)}
    try:
        setup = Setup(case, rule, rule.bind(case, own), own, projections)
        if case.pass_ != "forward":
            setup = with_gradients(setup)
        call = backend.prepare(setup)
    except BaseException as failure:
        raise NotPrepared(*classify(failure, "preparation"), check_of(failure)) from failure
    prepared = PreparedBackend(setup, backend, call, parameters=tuple(tensors.values()))
    return prepared, time.perf_counter_ns() - start


def _plain(case: Case) -> Backend:
    """Return the plain reference: the operation's own if it has one."""
    operation = operation_of(case)
    if operation.heads is not None or operation.reference is None:
        return PLAIN
    return replace(PLAIN, prepare=operation.reference)


def _input_names(stored: Mapping[str, Stored]) -> list[str]:
    """Return the names of inputs in the order of a call's arguments."""
    return [name for name in stored if name != UPSTREAM]


def _refuse(backend: Backend, case: Case, rule: Rule) -> None:
    missing = [name for name in backend.requires if not _importable(name)]
    if missing:
        raise NotPrepared("unavailable", f"needs {', '.join(missing)}, which is not installed")
    asking = "available()"
    try:
        absent = backend.available(case.device)
        asking = "supports()"
        reason = backend.supports(case, rule)
    except BaseException as failure:
        raise NotPrepared(*classify(failure, asking), "supports") from failure
    _decline("unavailable", "available()", absent)
    _decline("unsupported", "supports()", reason)


def _decline(status: Status, asking: str, answer: str | None) -> None:
    """Raise :class:`NotPrepared` for a reason in words, and for what is no answer."""
    if fault := no_answer(answer):
        raise NotPrepared("error", f"{asking} {fault}", "supports")
    if answer is not None:
        raise NotPrepared(status, clean(answer))


@cache
def loaded_here(source: Source) -> Loaded:
    """Load a plugin, once in a process and its forks."""
    loaded = load(source)
    make_known(loaded.of(Operation))
    return loaded


def _brought(source: Source, kind: type[T], name: str) -> T:
    loaded = loaded_here(source)
    for record in loaded.of(kind):
        if record.name == name:
            return record
    why = "; ".join(loaded.faults) or f"{loaded.source} brings no {name!r} here"
    raise NotPrepared("error", clean(why))


def _importable(name: str) -> bool:
    """Return whether a module can be found, without importing it; a dotted name imports its parents."""
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
