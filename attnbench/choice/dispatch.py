"""A function with the signature of torch's own, which calls the chosen backend where one was proved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import parse_case, short_id
from attnbench.cases.layouts import lies_as
from attnbench.choice.table import Choice, Table, differences, kind_of, machine_of, not_servable, read_table
from attnbench.plugins.registry import Registry, load_and_tell
from attnbench.programs.classify import MaskReader, Words
from attnbench.programs.suite import case_of
from attnbench.programs.watch import call_of, layout_between, sizes_of
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

    path: a file of ``attnbench choose``. force: use it on another machine, or with other versions.

    Raises:
        BadFile: it is not such a file.
        BadInput: it was made on another machine or with other versions, or its plugins are not here.
    """
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
    return _attention(table, registry)


def _attention(table: Table, registry: Registry) -> Callable[..., Any]:
    import torch
    from torch import Tensor, is_grad_enabled
    from torch._C import _get_tracing_state, _is_any_autocast_enabled, _len_torch_dispatch_stack
    from torch._C._functorch import peek_interpreter_stack
    from torch.autograd import forward_ad
    from torch.compiler import is_compiling
    from torch.nn.functional import scaled_dot_product_attention as default

    rows: _Rows = {}
    for choice in table.choices:
        first = parse_case(choice.case)
        rows.setdefault(_shape_of(first), []).append((first, choice))
    # torch's function takes all other masks as tensors.
    without = (Mask(), Mask(causal="upper_left"))
    tensors = any(first.mask not in without for near in rows.values() for first, _ in near)
    reader = MaskReader() if tensors else None
    known: dict[object, _Found] = {}

    def find(same: object, *call: Any) -> _Found:
        if _len_torch_dispatch_stack():  # Tensors that are prepared now may hold no numbers.
            return _DEFAULT
        if call[0].is_cuda and torch.cuda.is_current_stream_capturing():
            # Preparing may wait for the device, which would end the capture.
            return _CAPTURING
        if len(known) >= _MOST_SHAPES:
            known.clear()
        try:
            known[same] = _find(rows, registry, *call)
        except Exception as failure:
            known[same] = _failed("preparing the choice", failure)
        return known[same]

    def word_of(mask: Tensor, query: Tensor, key: Tensor) -> str:
        """Return the word of a mask; a word that is in no table if nobody knows its numbers, now or later."""
        if type(mask) is not Tensor or mask.requires_grad or mask.is_inference() or reader is None:
            return "float"
        if mask.is_cuda and torch.cuda.is_current_stream_capturing():
            return "float"
        B, H, Lq, _ = query.shape
        return reader.words(mask, B, H, Lq, key.shape[2]).mask

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        explain: bool = False,
    ) -> Any:  # fmt: skip
        """Compute attention; see :func:`load`."""
        found: _Found = _DEFAULT
        same: Any = None
        if (
            not (is_compiling() or dropout_p or _is_any_autocast_enabled())
            and type(query) is type(key) is type(value) is Tensor
            and peek_interpreter_stack() is None
            and _get_tracing_state() is None
            and forward_ad._current_level < 0
            and (attn_mask is None or not (reader is None or is_causal))
        ):
            graph = is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
            word = "causal" if is_causal else "none" if attn_mask is None else None
            try:
                same = (
                    query.shape, key.shape, value.shape, query.dtype, query.device, scale, enable_gqa, graph,
                    word,
                )  # fmt: skip
                found = known[same]
            except KeyError:
                found = find(same, query, key, value, scale, enable_gqa, graph, word)
            except RuntimeError:
                pass  # A nested tensor has no shape.
            if found is _READ and attn_mask is not None:
                word = word_of(attn_mask, query, key)
                same = same, word
                found = known.get(same) or find(same, query, key, value, scale, enable_gqa, graph, word)
        if found.strides is not None:
            strides = query.stride(), key.stride(), value.stride()
            if found.strides != strides:
                same = same, strides
                found = known.get(same) or find(same, query, key, value, scale, enable_gqa, graph, word)
        if explain:
            return found.why
        if found.call is not None:
            try:
                return found.call(query, key, value)
            except Exception as failure:
                known[same] = _failed(found.why, failure)
        if scale is None and not enable_gqa:  # torch takes 0.2 µs to read names.
            return default(query, key, value, attn_mask, dropout_p, is_causal)
        return default(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return scaled_dot_product_attention


def _torchs(why: str, strides: tuple[tuple[int, ...], ...] | None = None) -> _Found:
    return _Found(None, f"torch's function: {why}", strides)


_DEFAULT = _torchs("dropout, autocast, compiled code, torch.func or a mask are not in the table")
_CAPTURING = _torchs("this shape was not called before a CUDA graph was captured")
_READ = _Found(None, "the mask decides")


def _failed(what: str, failure: Exception) -> _Found:
    found = _torchs(f"{what} failed: {type(failure).__name__}: {failure}")
    warnings.warn(f"attnbench: {found.why}", stacklevel=3)
    return found


def _shape_of(case: Case) -> object:
    """Return what cases have in common that differ in masks, layouts and ranges of lengths alone."""
    return kind_of(replace(case, layout="own", mask=Mask()))


def _find(
    rows: _Rows, registry: Registry, query: Tensor, key: Tensor, value: Tensor, scale: float | None,
    gqa: bool, graph: bool, word: str | None,
) -> _Found:  # fmt: skip
    """Find and prepare what computes calls of these shapes. word: of the mask; None if it isn't read yet."""
    fits = (
        query.dim() == key.dim() == value.dim() == 4
        and query.shape[0] == key.shape[0]
        and key.shape[:3] == value.shape[:3]
        and (gqa or query.shape[1] == key.shape[1])
        and query.dtype == key.dtype == value.dtype
        and isinstance(scale, int | float | None)
    )
    if not fits:
        return _torchs("the inputs have no four axes, or differ in batch, heads, lengths or dtype")
    try:
        sizes, layout = sizes_of(query, key, value), layout_between(query, key, value)
        call = call_of("attention", query, sizes, layout, Words(word or "none"), scale, 0.0)
        if call is None:
            return _torchs("the inputs hold no numbers")
        case = replace(case_of(call), pass_="both" if graph else "forward")
    except BadCase as failure:
        return _torchs(str(failure))
    near = rows.get(_shape_of(case), [])
    alike = [(first, one) for first, one in near if first.Lk <= case.Lk <= max(first.Lk, one.upto)]
    if alike and word is None:
        return _READ
    alike = [(first, choice) for first, choice in alike if first.mask == case.mask]
    if not alike:
        return _torchs(f"nothing was proved for {short_id(case)}")
    strides = query.stride(), key.stride(), value.stride()
    choice = next((one for first, one in alike if layout and _lie_as(first, one, case, registry)), None)
    if choice is None:
        return _torchs(f"nothing was proved for {short_id(case)} with strides {strides}", strides)
    backend, rule = registry.backend(choice.backend), registry.rule(case.rule)
    refused = backend.available(case.device) or backend.supports(case, rule)
    if refused is not None:
        return _torchs(f"{choice.backend}: {refused}")
    words = f"{choice.backend} for {short_id(case)}: torch's function takes {choice.gain:.2f} times as long"
    if case.constants and scale is not None:  # A case has seven digits of it.
        case = replace(case, constants=(("scale", float(scale)),))
    prepared = backend.prepare(Setup(case, rule, rule.bind(case, {}), {}, {}))
    # The output lies as it did while it was timed, and as torch's: programs may take a view of it.
    served = laying_out(prepared, case, backend.layout)
    return _Found(_heads_inside(served) if backend.layout == "BLHD" else served, words, strides)


def _lie_as(first: Case, choice: Choice, case: Case, registry: Registry) -> bool:
    """Return whether the inputs of a case lie as those that were measured: copies may take what is gained."""
    own = registry.backend(choice.backend).layout
    return lies_as(case, own if first.layout == "own" else first.layout)


def _heads_inside(call: Call) -> Call:
    """Return a call (B, H, L, D) of one that takes and returns (B, L, H, D)."""
    return lambda *inputs: call(*(one.transpose(1, 2) for one in inputs)).transpose(1, 2)
