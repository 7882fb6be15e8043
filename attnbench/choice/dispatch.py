"""A function with the signature of torch's own, which calls the chosen backend where one was proved."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import parse_case, short_id
from attnbench.cases.layouts import lies_as
from attnbench.choice.held import entries_by_threads
from attnbench.choice.table import Choice, Table, differences, kind_of, machine_of, not_servable, read_table
from attnbench.plugins.registry import Registry, load_and_tell
from attnbench.programs.classify import ClassifiedMask, MaskReader
from attnbench.programs.facts import call_of, layout_between, sizes_of
from attnbench.programs.suite import case_of
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.errors import BadCase, BadFile, BadInput
from attnbench.types.mask import Mask
from attnbench.worker.layouts import laying_out

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

_Rows = dict[object, list[tuple[Case, Choice]]]
"""The choices with their cases, by what :func:`_shape_of` says."""

_PACKAGE = Path(__file__).parents[1]
_LOG = logging.getLogger("attnbench")
_LOG.setLevel(logging.INFO)

_KINDS_LEFT = _ONE_QUERY, _MORE_QUERIES = " of one query", ""
"""A program has prompts and a decode: each hears of its first call that is left."""
_REPEATED = (
    "; fewer heads of keys were measured: a program that repeats its heads can pass them as they are, "
    "with enable_gqa=True"
)
_MOST_SHAPES = 4096
"""Prepared calls are kept for so many shapes; then all are prepared anew."""


@dataclass(frozen=True)
class _Found:
    """The way to compute a call. call: None for torch's function. why: a sentence.

    strides: of q, k and v, for which it was found; None if nothing was proved for any.
    """

    call: Call | None
    why: str
    strides: tuple[tuple[int, ...], ...] | None = None


def load(path: str | Path, *, force: bool = False) -> Callable[..., Any]:
    """Return a function with the signature of torch's ``scaled_dot_product_attention``.

    Where a backend was proved to be faster it computes the call; torch's function does everywhere else: with
    dropout, autocast, a mask that differs, compiled code, or shapes and strides outside of the table. The
    meaning of a call never changes. With ``explain=True`` it computes nothing and says in a sentence what it
    would call.

    What the choice serves in this process is logged once, by the logger ``attnbench``: its entries for each
    number of threads, again when the threads of torch change, and the first call that it serves and the first
    that it leaves. A program without logging has it on stderr. If no entry fits, a warning says so.

    path: a file of ``attnbench choose``. force: use it on another machine, or with other versions.

    Raises:
        BadFile: it is not such a file.
        BadInput: it was made on another machine or with other versions, or its plugins are not here.
    """
    import torch

    table = read_table(Path(path))
    registry = load_and_tell()
    facts, plugins = machine_of(registry)
    unlike = differences(table.facts | table.plugins, facts | plugins)
    if unlike and not force:
        words = f"the choice {str(path)!r} was made elsewhere: {unlike}"
        raise BadInput(f"{words}; force=True uses it all the same")
    for choice in table.choices:
        registry.backend(choice.backend)
        try:
            refused = not_servable(parse_case(choice.case), registry)
        except BadCase as failure:
            raise BadFile(f"{str(path)!r} is not a choice of attnbench: {failure}") from failure
        if refused:
            raise BadFile(f"{str(path)!r} is not a choice of attnbench: {choice.case!r}: {refused}")
    dispatch = _Dispatch(table, registry)
    dispatch.notice_threads(torch.get_num_threads())
    return _attention(dispatch)


def _attention(dispatch: _Dispatch) -> Callable[..., Any]:
    """Return the function. It is a plain one, so that a copy of a model that holds it shares it."""
    from torch import Tensor, get_num_threads, is_grad_enabled
    from torch._C import _get_tracing_state, _is_any_autocast_enabled
    from torch._C._functorch import peek_interpreter_stack
    from torch.autograd import forward_ad
    from torch.compiler import is_compiling
    from torch.nn.functional import scaled_dot_product_attention as default

    known, reads_masks = dispatch.known, dispatch.reader is not None

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        explain: bool = False,
    ) -> Any:  # fmt: skip
        """Compute attention; see :func:`load`."""
        if is_compiling():
            if explain:
                return _COMPILED.why
            return default(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        found: _Found = _DEFAULT
        same: Any = None
        if (
            not (dropout_p or _is_any_autocast_enabled())
            and type(query) is type(key) is type(value) is Tensor
            and peek_interpreter_stack() is None
            and _get_tracing_state() is None
            and forward_ad._current_level < 0
            and (attn_mask is None or (reads_masks and not is_causal))
        ):
            graph = is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
            word = "causal" if is_causal else "none" if attn_mask is None else None
            try:
                same = (
                    query.shape, key.shape, value.shape, query.dtype, query.device, scale, enable_gqa, graph,
                    word, get_num_threads(),
                )  # fmt: skip
                found = known[same]
            except KeyError:
                found = dispatch.find(same, query, key, value, scale, enable_gqa, graph, word)
            except RuntimeError:
                pass  # A nested tensor has no shape.
            if found is _READ:
                word = dispatch.word_of(attn_mask, query, key)
                same = same, word
                found = known.get(same) or dispatch.find(
                    same, query, key, value, scale, enable_gqa, graph, word
                )
        if found.strides is not None:
            strides = query.stride(), key.stride(), value.stride()
            if found.strides != strides:
                same = same, strides
                found = known.get(same) or dispatch.find(
                    same, query, key, value, scale, enable_gqa, graph, word
                )
        if explain:
            if found is _DEFAULT:
                return _why_left(query, key, value, attn_mask, dropout_p, is_causal)
            return found.why
        if found.call is not None:
            if dispatch.served_none:
                dispatch.tell_served(found.why)
            try:
                return found.call(query, key, value)
            except Exception as failure:
                known[same] = _failed(found.why, failure)
        elif len(dispatch.left) < len(_KINDS_LEFT):
            kind = _kind_left(query)
            if kind not in dispatch.left:
                why = found.why
                if found is _DEFAULT:
                    why = _why_left(query, key, value, attn_mask, dropout_p, is_causal)
                dispatch.tell_left(kind, why)
        if scale is None and not enable_gqa:  # torch takes 0.2 µs to read names.
            return default(query, key, value, attn_mask, dropout_p, is_causal)
        return default(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return scaled_dot_product_attention


class _Dispatch:
    """The steps from a new call to what computes it: its case, the choice for that, and the prepared call.

    known: what was found, by what calls have in common. reader: of masks; None if no case of the table has a
    mask that torch's function takes as a tensor. served_none: no call was served yet. left: the kinds of
    calls of which one was left to torch's function.
    """

    def __init__(self, table: Table, registry: Registry) -> None:
        self.registry = registry
        self.known: dict[object, _Found] = {}
        self.served_none = True
        # Of a table without an entry one warning says it all.
        self.left: set[str] = set() if table.choices else set(_KINDS_LEFT)
        self._noticed: set[int] = set()
        self._measured_threads = table.threads
        self._stays: dict[object, list[Case]] = {}
        for case in map(parse_case, table.stays):
            self._stays.setdefault(_shape_of(case), []).append(case)
        self._rows: _Rows = {}
        for choice in table.choices:
            first = parse_case(choice.case)
            self._rows.setdefault(_shape_of(first), []).append((first, choice))
        for near in self._rows.values():
            # Of both, what was measured with cold inputs is nearer to a program of many layers.
            near.sort(key=lambda entry: entry[0].cache == "hot")
        self._no_decode = all(first.Lq > 1 for near in self._rows.values() for first, _ in near)
        without = (Mask(), Mask(causal="upper_left"))
        tensors = any(first.mask not in without for near in self._rows.values() for first, _ in near)
        self.reader = MaskReader() if tensors else None

    def notice_threads(self, threads: int) -> None:
        """Say once for each number of threads what the table has for it."""
        if threads in self._noticed:
            return
        self._noticed.add(threads)
        entries = [entry for near in self._rows.values() for entry in near]
        words, remedy = entries_by_threads(entries, threads, self._measured_threads)
        if remedy:
            _warn(f"the choice, by threads of torch: {words}; {remedy}")
        else:
            _say(f"the choice, by threads of torch: {words}")

    def tell_served(self, why: str) -> None:
        """Say what serves a call, the first that is served."""
        self.served_none = False
        _say(f"the first call that the choice serves: {why}")

    def tell_left(self, kind: str, why: str) -> None:
        """Say why a call is left to torch's function, the first of its kind that is."""
        self.left.add(kind)
        _say(f"the first call{kind} that the choice leaves: {why}")

    def word_of(self, mask: Tensor | None, query: Tensor, key: Tensor) -> str:
        """Return the word of a mask; a word that is in no table if nobody knows its numbers, now or later."""
        import torch

        if type(mask) is not torch.Tensor or mask.requires_grad or mask.is_inference() or self.reader is None:
            return "float"
        if mask.is_cuda and torch.cuda.is_current_stream_capturing():
            return "float"
        B, H, Lq, _ = query.shape
        return self.reader.words(mask, B, H, Lq, key.shape[2]).mask

    def find(
        self, same: object, query: Tensor, key: Tensor, value: Tensor, scale: float | None, gqa: bool,
        graph: bool, word: str | None,
    ) -> _Found:  # fmt: skip
        """Return what computes a call, and keep it for all that have ``same`` in common.

        graph: whether gradients are needed. word: of the mask; None if it isn't read yet.
        """
        import torch

        if torch._C._len_torch_dispatch_stack():  # Tensors that are prepared now may hold no numbers.
            return _DEFAULT
        if query.is_cuda and torch.cuda.is_current_stream_capturing():
            # Preparing may wait for the device, which would end the capture.
            return _CAPTURING
        self.notice_threads(torch.get_num_threads())
        if len(self.known) >= _MOST_SHAPES:
            self.known.clear()
        # Each step of a decode has a new length, and is told of once.
        if self._no_decode and _ONE_QUERY in self.left and _kind_left(query) == _ONE_QUERY:
            self.known[same] = _NO_DECODE
            return _NO_DECODE
        try:
            found = self._choose(query, key, value, scale, gqa, graph, word)
        except Exception as failure:
            found = _failed("preparing the choice", failure)
        self.known[same] = found
        return found

    def _choose(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float | None, gqa: bool, graph: bool,
        word: str | None,
    ) -> _Found:  # fmt: skip
        try:
            case = _case(query, key, value, scale, gqa, graph, word or "none")
        except BadCase as failure:
            return _torchs(str(failure))
        near = self._rows.get(_shape_of(case), [])
        alike = [(first, one) for first, one in near if first.Lk <= case.Lk <= max(first.Lk, one.upto)]
        if alike and word is None:
            return _READ
        alike = [(first, choice) for first, choice in alike if first.mask == case.mask]
        lies = layout_between(query, key, value)
        strides = query.stride(), key.stride(), value.stride()
        if not alike and word is not None and lies and (measured := self._measured(case)):
            why = f"nothing was proved to be faster for {short_id(case)}, {measured}"
            return _torchs(why, strides)
        if not alike:
            why = f"no entry is for {short_id(case)}"
            why += ", whose mask was not read" if word is None else ""
            why += self._nearest(case, unread=word is None)
            if self._has_fewer_heads(case):
                why += _REPEATED
            elif lies not in ("", "BHLD"):
                why += f"; `attnbench run --layout {lies}` measures it as its inputs lie"
            return _torchs(why)
        choice = next((one for first, one in alike if lies and self._lie_as(first, one, case)), None)
        if choice is None:
            has = " and ".join(sorted({self._layout(first, one) for first, one in alike}))
            why = f"nothing was proved for {short_id(case)} with strides {strides}"
            why += f"; the table has inputs in {has}"
            if lies:
                why += f", `attnbench run --layout {lies}` measures this layout"
            return _torchs(why, strides)
        return self._prepare(case, choice, scale, strides)

    def _has_fewer_heads(self, case: Case) -> bool:
        """Return whether a case was measured that differs in fewer heads of keys and values alone."""
        fewer = (replace(case, Hkv=count) for count in range(1, case.Hkv) if case.H % count == 0)
        return any(_shape_of(one) in shapes for one in fewer for shapes in (self._rows, self._stays))

    def _measured(self, case: Case) -> str:
        """Say that a case was measured as its inputs lie, or one shorter and one longer, and torch's function
        stays; "" where that is not so."""
        keys = [
            one.Lk
            for one in self._stays.get(_shape_of(case), [])
            if one.mask == case.mask and lies_as(case, "BHLD" if one.layout == "own" else one.layout)
        ]
        if case.Lk in keys:
            return "which was measured"
        less, more = [n for n in keys if n < case.Lk], [n for n in keys if n > case.Lk]
        if not less or not more or case.Lq not in (1, case.Lk):
            return ""
        return f"between {max(less)} and {min(more)} keys, which were measured"

    def _nearest(self, case: Case, *, unread: bool) -> str:
        """Return the entry that differs least from a case, and in what, or that there is none.

        unread: whether nobody knows the mask of the case.
        """
        unknown = ("layout", "cache", "mask") if unread else ("layout", "cache")

        def apart(first: Case, choice: Choice) -> list[str]:
            if first.Lk <= case.Lk <= choice.upto:
                first = replace(first, Lk=case.Lk, Lq=case.Lk if first.Lq == first.Lk else first.Lq)
            names = [each.name for each in fields(case) if each.name not in unknown]
            return [name.rstrip("_") for name in names if getattr(first, name) != getattr(case, name)]

        entries = [entry for near in self._rows.values() for entry in near]
        if not entries:
            return "; the table has no entry"
        first, choice = min(entries, key=lambda entry: len(apart(*entry)))
        upto = f" up to Lk {choice.upto}" if choice.upto else ""
        return f"; the nearest entry, {short_id(first)}{upto}, differs in {', '.join(apart(first, choice))}"

    def _layout(self, first: Case, choice: Choice) -> str:
        return self.registry.backend(choice.backend).layout if first.layout == "own" else first.layout

    def _lie_as(self, first: Case, choice: Choice, case: Case) -> bool:
        """Return whether the inputs of a case lie as those measured: copies may take what is gained."""
        return lies_as(case, self._layout(first, choice))

    def _prepare(
        self, case: Case, choice: Choice, scale: float | None, strides: tuple[tuple[int, ...], ...]
    ) -> _Found:
        backend, rule = self.registry.backend(choice.backend), self.registry.rule(case.rule)
        refused = backend.available(case.device) or backend.supports(case, rule)
        if refused is not None:
            return _torchs(f"{choice.backend}: {refused}")
        words = (
            f"{choice.backend} for {short_id(case)}: torch's function takes {choice.gain:.2f} times as long"
        )
        if case.constants and scale is not None:  # A case has seven digits of it.
            case = replace(case, constants=(("scale", float(scale)),))
        # Preparing a kernel of torch's own function leaves torch no other one in all of the process.
        before = _kernels()
        try:
            prepared = backend.prepare(Setup(case, rule, rule.bind(case, {}), {}, {}))
            own = _kernels()
        finally:
            _set_kernels(before)
        # The output lies as it did while it was timed, and as torch's: programs may take a view of it.
        served = laying_out(prepared, case, backend.layout)
        if own != before:
            served = _with_kernels(served, own)
        return _Found(_heads_inside(served) if backend.layout == "BLHD" else served, words, strides)


def _case(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, gqa: bool, graph: bool, word: str
) -> Case:
    """Return the case of a call; raises BadCase where none can say it."""
    fits = (
        query.dim() == key.dim() == value.dim() == 4
        and query.shape[0] == key.shape[0]
        and key.shape[:3] == value.shape[:3]
        and (gqa or query.shape[1] == key.shape[1])
        and query.dtype == key.dtype == value.dtype
        and isinstance(scale, int | float | None)
    )
    if not fits:
        raise BadCase("the inputs have no four axes, or differ in batch, heads, lengths or dtype")
    sizes, layout = sizes_of(query, key, value), layout_between(query, key, value)
    call = call_of("attention", query, sizes, layout, ClassifiedMask(word), scale, 0.0)
    if call is None:
        raise BadCase("the inputs hold no numbers")
    return replace(case_of(call), pass_="both" if graph else "forward")


def _torchs(why: str, strides: tuple[tuple[int, ...], ...] | None = None) -> _Found:
    return _Found(None, f"torch's function: {why}", strides)


_DEFAULT = _torchs("the call is of a kind that no table has")
_COMPILED = _torchs("the table has no compiled code")
_CAPTURING = _torchs("this shape was not called before a CUDA graph was captured")
_NO_DECODE = _torchs("the table has no entry of one query")
_READ = _Found(None, "the mask decides")


def _why_left(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool
) -> str:
    """Return why a call is of a kind that no table has."""
    import torch

    inputs = (query, key, value)
    reasons = {
        "dropout": bool(dropout_p),
        "autocast": torch._C._is_any_autocast_enabled(),
        "subclass of Tensor": any(type(one) is not torch.Tensor for one in inputs),
        "nested tensors": any(one.is_nested for one in inputs),
        "mask with is_causal": is_causal and attn_mask is not None,
        "mask tensor": attn_mask is not None,
    }
    named = [words for words, holds in reasons.items() if holds]
    return _torchs(f"the table has no {' and no '.join(named) or 'torch.func, trace or mode'}").why


def _kind_left(query: Tensor) -> str:
    alone = not query.is_nested and query.dim() > 1 and query.shape[-2] == 1
    return _ONE_QUERY if alone else _MORE_QUERIES


def _say(words: str) -> None:
    """Log a sentence; print it where the program has set up no logging, which would drop it."""
    if _LOG.hasHandlers():
        _LOG.info(words)
    elif _LOG.isEnabledFor(logging.INFO):
        print(f"attnbench: {words}", file=sys.stderr)  # noqa: T201


def _failed(what: str, failure: Exception) -> _Found:
    found = _torchs(f"{what} failed: {type(failure).__name__}: {failure}")
    _warn(found.why)
    return found


def _warn(words: str) -> None:
    """Warn with the line of the program, whose calls come through several functions of attnbench."""
    frame, levels = inspect.currentframe(), 1
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frame, levels = frame.f_back, levels + 1
    warnings.warn(f"attnbench: {words}", stacklevel=levels)


def _shape_of(case: Case) -> object:
    """Return what cases have in common that differ in masks, layouts, caches and ranges of lengths alone.

    A call may find its inputs in the caches or not: nobody can see that. Of a scale four digits count, as
    many as suites of older versions have; a function is prepared with the scale of the call.
    """
    constants = tuple((name, float(f"{value:.4g}")) for name, value in case.constants)
    return kind_of(replace(case, layout="own", mask=Mask(), cache="hot", constants=constants))


def _kernels() -> tuple[bool, ...]:
    """Return which of its kernels torch's function may call: flash, math, memory-efficient, cuDNN."""
    import torch

    cuda: Any = torch.backends.cuda
    return (
        cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )  # fmt: skip


def _set_kernels(enabled: tuple[bool, ...]) -> None:
    import torch

    cuda: Any = torch.backends.cuda
    flash, math, efficient, cudnn = enabled
    cuda.enable_flash_sdp(flash)
    cuda.enable_math_sdp(math)
    cuda.enable_mem_efficient_sdp(efficient)
    cuda.enable_cudnn_sdp(cudnn)


def _with_kernels(call: Call, own: tuple[bool, ...]) -> Call:
    """Return a call that has these kernels of torch's function, and leaves those of the program."""

    def served(*inputs: Any) -> Any:
        before = _kernels()
        _set_kernels(own)
        try:
            return call(*inputs)
        finally:
            _set_kernels(before)

    return served


def _heads_inside(call: Call) -> Call:
    """Return a call (B, H, L, D) of one that takes and returns (B, L, H, D)."""
    return lambda *inputs: call(*(one.transpose(1, 2) for one in inputs)).transpose(1, 2)
