"""A prepared backend in a worker: its plugin, its inputs, how they arrive, and its last output."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attnbench.cases.ids import parse_case
from attnbench.cases.layouts import lies_as, taken_layout
from attnbench.cases.work import cache_to_fill, output_elements
from attnbench.inputs.kinds import DROPPED, GRADED, SLICED, STRIDED, TRANSPOSED, TWO_GRAPHS
from attnbench.ipc.messages import FillPool, Prepare, Prepared
from attnbench.ipc.names import UPSTREAM, rule_key
from attnbench.ipc.shared_memory import Stored
from attnbench.kit.reference import PLAIN, PLAIN_APART
from attnbench.masks import kept_keys
from attnbench.plugins.code import FirstStamps
from attnbench.plugins.load import Loaded, load
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.timing.rotation import Pool, RotatingTimer, fill
from attnbench.timing.sample import Timer, timer_for
from attnbench.types.backend import Backend, Layout, Setup
from attnbench.types.case import Case, projection_shapes
from attnbench.types.encoding import Encoding, make_encodings_known, unencoded
from attnbench.types.errors import BadCase
from attnbench.types.extensions import Source
from attnbench.types.operation import Operation, TensorSpec, make_known, operation_of
from attnbench.types.problem import call_inputs, is_upstream
from attnbench.types.rule import Rule
from attnbench.types.status import Status
from attnbench.types.storage import APART, DENSE, Storage, make_storages_known, storage_of
from attnbench.types.words import clean
from attnbench.worker.answers import OutputLog, TimedCall
from attnbench.worker.failures import NotPrepared, classify, failed, no_answer
from attnbench.worker.gradients import GradientPass, passed, rebound, with_gradients
from attnbench.worker.guards import between_bands, side_by_side
from attnbench.worker.layouts import (
    features_outside,
    laid_out,
    laying_out,
    seen_in_layout,
    strides_apart,
    with_strides,
)
from attnbench.worker.outputs import as_tensor, to_tensors
from attnbench.worker.state import Past

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


T = TypeVar("T", Backend, Rule)

CODE = FirstStamps()
"""The plugin modules that this worker has loaded; its forks go on with them."""


@dataclass(frozen=True)
class PreparedBackend:
    """A backend that is prepared for a case, with its inputs.

    call: the function that is timed. passed: the same object in a case with gradients; it is made when inputs
    come. last: the last timed call, until it is in the log. pool: copies of the inputs, where they rotate and
    something was timed. shared: a descriptor of copies that processes share. buffers: the memory of guarded
    inputs, with the bands of NaN. past, earlier: the checked calls so far, and the outputs of the last few.
    delivery: how inputs came, see :class:`~attnbench.ipc.messages.Activations`. ordinary: while inputs have
    gradients, the backend as it was prepared for others. storage: how the tensors of a call hold the problems
    of the case. renew: of a backend that prepares from tensors known before a call. convert: of one that
    holds inputs in an order of its own.
    """

    setup: Setup
    backend: Backend
    call: Call
    passed: GradientPass | None = None
    inputs: tuple[Any, ...] | None = None
    last: TimedCall | None = field(default=None, repr=False)
    pool: Pool | None = field(default=None, repr=False)
    shared: int | None = None
    output_log: OutputLog = field(default_factory=OutputLog, repr=False)
    buffers: tuple[Any, ...] = field(default=(), repr=False)
    past: Past = field(default=Past(), repr=False)
    earlier: tuple[Any, ...] = field(default=(), repr=False)
    delivery: str = ""
    ordinary: PreparedBackend | None = field(default=None, repr=False)
    storage: Storage = DENSE
    renew: Callable[[dict[str, Any]], object] | None = field(default=None, repr=False)
    convert: Callable[[dict[str, Any]], object] | None = field(default=None, repr=False)

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
        return taken_layout(self.case, self.backend)

    @property
    def inputs_of_call(self) -> tuple[TensorSpec, ...]:
        """The tensors that a call takes, in the order of its arguments."""
        return call_inputs(self.case, self.rule, self.storage)

    def with_inputs(
        self, stored: Mapping[str, Stored], *, fresh: bool, guarded: bool = False, delivery: str = ""
    ) -> PreparedBackend:
        """Return the same backend with these inputs, in its layout and on its device.

        Unless ``fresh``, they are written over the inputs it has: a backend that remembers inputs by address
        takes them for the same. Nothing is allocated then, since the next call would find the freed memory.
        guarded: put bands of NaN around each. Inputs that are guarded or delivered in another way than those
        before are always fresh.

        Raises:
            NotPrepared: as unsupported, if inputs require gradients and the backend refuses them.
        """
        if delivery == GRADED and self.ordinary is None:
            return self._graded()._with_new_inputs(stored, guarded=guarded, delivery=delivery)
        if delivery != GRADED and self.ordinary is not None:
            ordinary = replace(self.ordinary, past=self.past)
            return ordinary._with_new_inputs(stored, guarded=guarded, delivery=delivery)
        alike = guarded == bool(self.buffers) and delivery == self.delivery != DROPPED
        if fresh or self.inputs is None or not alike:
            return self._with_new_inputs(stored, guarded=guarded, delivery=delivery)
        return self._written_over(stored)

    def _written_over(self, stored: Mapping[str, Stored]) -> PreparedBackend:
        """Return the same backend with these numbers in the memory of the inputs that it has."""
        self.write(stored)
        if self.pool is not None:
            self.pool.refresh()
        return replace(self, last=None)

    def _with_new_inputs(
        self, stored: Mapping[str, Stored], *, guarded: bool, delivery: str
    ) -> PreparedBackend:
        """Return the same backend with these inputs in memory of their own."""
        names = self._input_names(stored)
        tensors = self._converted(to_tensors(stored, self.case))
        if delivery == DROPPED:
            _fill_dropped(self.case, *tensors.values())
        if delivery == SLICED:
            inputs, buffers = self._side_by_side([tensors[name] for name in names], guarded=guarded)
        else:
            inputs, buffers = self._apart(names, tensors, guarded=guarded, delivery=delivery)
        prepared = replace(self, inputs=inputs, last=None, pool=None, buffers=buffers, delivery=delivery)
        if delivery == GRADED or self.case.pass_ != "forward":
            for x in inputs:
                if x.is_floating_point():
                    x.requires_grad_()
        prepared.tell_ahead(inputs)
        if self.case.pass_ == "forward":
            return prepared
        upstreams = [tensor for name, tensor in tensors.items() if name not in names]
        return prepared._with_pass(upstreams, second=delivery == TWO_GRAPHS)

    def _side_by_side(
        self, tensors: list[Tensor], *, guarded: bool
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return tensors as slices of one, and the memory with bands around them."""
        views, buffers = side_by_side(tensors, guarded=guarded, counted=not self.backend.compiles)
        return tuple(seen_in_layout(x, self.layout) for x in views), buffers

    def _apart(
        self, names: list[str], tensors: Mapping[str, Tensor], *, guarded: bool, delivery: str
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return tensors of which each has memory of its own, and that memory with bands around it."""
        # Two inputs may be one tensor, and stay so.
        laid = {id(tensors[name]): laid_out(name, tensors[name], self.case, self.layout) for name in names}
        if delivery == TRANSPOSED:
            k = tensors["k"]
            laid[id(k)] = seen_in_layout(with_strides(k, features_outside(k.shape)), self.layout)
        places = [id(tensors[name]) for name in names]
        buffers: tuple[Tensor, ...] = ()
        if guarded:
            banded = {at: self._banded(x, strided=delivery == STRIDED) for at, x in laid.items()}
            laid = {at: inside for at, (inside, _) in banded.items()}
            buffers = tuple(banded[at][1] for at in places)
        elif delivery == STRIDED:
            laid = {at: with_strides(x, strides_apart(x)) for at, x in laid.items()}
        return tuple(laid[at] for at in places), buffers

    def _banded(self, x: Tensor, *, strided: bool) -> tuple[Tensor, Tensor]:
        # Code that was compiled for tensors of inference mode would be compiled anew for others.
        strides = strides_apart(x) if strided else x.stride()
        return between_bands(x, strides, counted=not self.backend.compiles)

    def _graded(self) -> PreparedBackend:
        """Prepare the backend anew for inputs that require gradients.

        Tensors that torch's inference mode made can't be part of a graph.
        """
        try:
            both = replace(self.case, pass_="both")
        except BadCase as refused:
            # As a storage without gradients refuses it.
            raise NotPrepared("unsupported", str(refused)) from refused
        _decline("unsupported", "supports()", self.backend.supports(both, self.rule))
        setup = rebound(self.setup, lambda x: x.clone())
        bare = replace(self, inputs=None, last=None, pool=None, buffers=(), earlier=(), delivery="")
        try:
            made = _call_of(self.backend, setup)
        except BaseException as failure:
            raise _not_prepared(failure) from failure
        # Compilers may have worked on other threads, so the next call counts as the first.
        return replace(self, setup=setup, inputs=None, ordinary=bare, past=Past(), **made)

    def tell_ahead(self, inputs: Sequence[Any]) -> None:
        """Let the backend prepare from those of these inputs that are known before a call."""
        if self.renew is not None:
            specs = zip(self.inputs_of_call, inputs, strict=True)
            self.renew({spec.name: x for spec, x in specs if spec.ahead})

    def _converted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return inputs by name, with those that the backend converts as it holds them.

        Raises:
            NotPrepared: it returned other names than it got.
        """
        if self.convert is None:
            return tensors
        given = {name: tensors[name].to(self.case.device) for name in self.backend.converts}
        try:
            found = self.convert(given)
        except BaseException as failure:
            raise _not_prepared(failure) from failure
        if not isinstance(found, dict) or found.keys() != given.keys():
            raise NotPrepared(
                "error", f"convert() gave {clean(found)}: give a dictionary of {', '.join(given)}"
            )
        return tensors | found

    def _with_pass(self, upstreams: Sequence[Any], *, second: bool = False) -> PreparedBackend:
        """Return the same with the pass of the case as the call that is timed.

        second: let the call return what a second backward pass gives.
        """
        assert self.inputs is not None
        prepared = self.call if self.passed is None else self.passed.call
        laid = [laid_out(UPSTREAM, x, self.case, self.layout) for x in upstreams]
        made = passed(prepared, self.setup, *laid, storage=self.storage)
        made.renew(self.inputs)
        return replace(self, call=cast("Call", made.second if second else made), passed=made)

    def write(self, stored: Mapping[str, Stored], into: tuple[Any, ...] | None = None) -> None:
        """Write values over the inputs, or over ``into``, tensors like them. The pool stays as it is."""
        names = self._input_names(stored)
        inputs = into or self.inputs or ()
        found = self._converted({name: as_tensor(stored[name], self.case) for name in names})
        for old, name in zip(inputs, names, strict=True):
            self._copy(old, found[name])
        self.tell_ahead(inputs)
        if self.passed is not None and self.inputs is not None:
            others = [array for name, array in stored.items() if name not in names]
            for old, array in zip(self.passed.upstreams, others, strict=True):
                self._copy(old, as_tensor(array, self.case))
            self.passed.renew(self.inputs)

    def _input_names(self, stored: Mapping[str, Stored]) -> list[str]:
        """Return the names of inputs in the order of a call's arguments; gradients from above follow."""
        return [name for name in stored if not is_upstream(name)]

    def _copy(self, old: Any, new: Tensor) -> None:
        # Through ``data``: a graph must not contain the copy.
        old.data.copy_(seen_in_layout(new, self.layout))

    def with_timer(self) -> tuple[PreparedBackend, Timer]:
        """Return the same with the pool that its cache mode needs, and the timer. It must have inputs.

        The check and the measurement of memory need no pool, so it is not made with the inputs.
        """
        if self.case.cache != "rotating" or not self.case.on_host:
            # New values of inputs give a backward pass a new graph, with tensors in other memory.
            return self, timer_for(self.case.device, self.case.cache, self.case.pass_ != "backward")
        assert self.inputs is not None
        cache_bytes = cache_to_fill(self.case, last_level_cache_bytes(self.case.device))
        pool = self.pool or Pool(self.inputs, cache_bytes, self.shared)
        return replace(self, pool=pool), RotatingTimer(pool)


def _call_of(backend: Backend, setup: Setup) -> dict[str, Any]:
    """Prepare a backend; return its function, and what that does before calls, as fields of a backend."""
    call = backend.prepare(setup)
    if not callable(call):
        raise NotPrepared("error", f"prepare() gave {clean(call)}, where a function is needed")
    convert = getattr(call, "convert", None) if backend.converts else None
    if backend.converts and not callable(convert):
        asked = ", ".join(backend.converts)
        raise NotPrepared("error", f"declares that it converts {asked}: its function needs a method convert")
    laid = laying_out(call, setup.case, backend.layout)
    return {"call": laid, "renew": getattr(call, "renew", None), "convert": convert}


def _not_prepared(failure: BaseException) -> NotPrepared:
    what = failed(failure, "preparation")
    return NotPrepared(what.status, what.reason, what.check)


def prepare(request: Prepare, parameters: Mapping[str, Stored]) -> tuple[PreparedBackend, Prepared]:
    """Load the plugins and prepare the backend; return it, and the answer to the request.

    Raises:
        NotPrepared: with the status that the record will have.
    """
    start = time.perf_counter_ns()
    case = case_of(request)
    rule = brought(request.rule_source, Rule, case.rule)
    storage = storage_of(case)
    if request.backend_source is None:
        case = unencoded(case)
        backend = _plain(case)
        storage = APART if case.batch else storage
    else:
        backend = brought(request.backend_source, Backend, request.backend)
    _refuse(backend, case, rule)
    tensors = to_tensors(parameters, case)
    names = projection_shapes(case, rule)
    projections = {name: tensors[name] for name in names}
    own = {p.name: tensors[rule_key(p.name)] for p in rule.parameters(case)}
    try:
        setup = Setup(case, rule, rule.bind(case, own), own, projections)
        if case.pass_ != "forward":
            setup = with_gradients(setup)
        made = _call_of(backend, setup)
    except BaseException as failure:
        raise _not_prepared(failure) from failure
    prepared = PreparedBackend(setup, backend, storage=storage, **made)
    return prepared, Prepared(time.perf_counter_ns() - start)


def _plain(case: Case) -> Backend:
    """Return the plain reference: the operation's own if it has one, one for each sequence of a batch."""
    operation = operation_of(case)
    if case.batch:
        return PLAIN_APART
    if operation.heads is not None or operation.reference is None:
        return PLAIN
    return replace(PLAIN, prepare=operation.reference)


def _fill_dropped(case: Case, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Put NaN into keys, and infinity into values, that the mask drops for every query."""
    import torch

    dropped = torch.from_numpy(~kept_keys(case)).to(k.device)[..., None]
    k.masked_fill_(dropped, float("nan"))
    v.masked_fill_(dropped, float("inf"))


def missing_modules(backend: Backend) -> str:
    """Return in words which modules that a backend declares are not installed; "" if all are."""
    missing = [name for name in backend.requires if not _is_installed(name)]
    return f"needs {', '.join(missing)}, which is not installed" if missing else ""


def _is_installed(name: str) -> bool:
    """True if a module can be found. Neither it nor a package around it is imported."""
    package, *inner = name.split(".")
    spec = find_spec(package)
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return spec is not None


def _refuse(backend: Backend, case: Case, rule: Rule) -> None:
    if missing := missing_modules(backend):
        raise NotPrepared("unavailable", missing)
    asking = "available()"
    try:
        absent = backend.available(case.device)
        asking = "supports()"
        reason = backend.supports(case, rule)
    except BaseException as failure:
        raise NotPrepared(*classify(failure, asking), "supports") from failure
    _decline("unavailable", "available()", absent)
    _decline("unsupported", "supports()", reason)
    if backend.needs_contiguous and case.layout != "own" and not lies_as(case, backend.layout):
        raise NotPrepared("unsupported", f"takes contiguous inputs only, and not the layout {case.layout}")


def _decline(status: Status, asking: str, answer: str | None) -> None:
    """Raise :class:`NotPrepared` for a reason, and for an invalid answer."""
    if fault := no_answer(answer):
        raise NotPrepared("error", f"{asking} {fault}", "supports")
    if answer is not None:
        raise NotPrepared(status, clean(answer))


def fill_pool(request: FillPool, memory: int, stored: Mapping[str, Stored]) -> None:
    """Fill a descriptor with copies of inputs, as backends that take this layout have them."""
    case = case_of(request)
    tensors = to_tensors(stored, case)
    laid = {id(x): laid_out(name, x, case, request.layout) for name, x in tensors.items()}
    cache_bytes = cache_to_fill(case, last_level_cache_bytes(case.device))
    fill(memory, tuple(laid[id(x)] for x in tensors.values()), cache_bytes)


def case_of(request: Prepare | FillPool) -> Case:
    """Return the case of a request; what its id names is loaded first: operation, storage and encoding."""
    for source in (request.operation_source, request.storage_source, request.encoding_source):
        if source is not None:
            loaded_here(source)
    return parse_case(request.case)


@cache
def loaded_here(source: Source) -> Loaded:
    """Load a plugin, once in a process."""
    loaded = load(source)
    make_known(loaded.of(Operation))
    make_storages_known(loaded.of(Storage))
    make_encodings_known(loaded.of(Encoding))
    # Preparation may take long; somebody may save a file meanwhile.
    CODE.of([source])
    return loaded


def brought(source: Source, kind: type[T], name: str) -> T:
    """Return the record of a kind and a name that a plugin brings, loaded once in a process.

    Raises:
        NotPrepared: it brings none here.
    """
    loaded = loaded_here(source)
    for record in loaded.of(kind):
        if record.name == name:
            return record
    why = "; ".join(loaded.faults) or f"{loaded.source} brings no {name!r} here"
    raise NotPrepared("error", clean(why))


def judges_rule(source: Source, name: str) -> Rule:
    """Return the rule that a judge needs.

    Raises:
        LookupError: it is not there, which is the judge's failure and says nothing of a backend.
    """
    try:
        return brought(source, Rule, name)
    except NotPrepared as failure:
        raise LookupError(str(failure)) from failure
