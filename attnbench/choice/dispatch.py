"""A function with the signature of torch's own, which calls the chosen backend where one was proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import parse_case, short_id
from attnbench.choice.table import Choice, Table, differences, kind_of, machine_of, read_table
from attnbench.plugins.registry import Registry, load_and_tell
from attnbench.programs.classify import MaskReader, Words
from attnbench.programs.suite import case_of
from attnbench.programs.watch import call_of, sizes_of
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.mask import Mask

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

_MOST_SHAPES = 4096
"""Prepared calls are kept for so many shapes; then all are prepared anew."""


@dataclass(frozen=True)
class _Found:
    """What computes a call. call: None for torch's function. why: a sentence."""

    call: Call | None
    why: str


def load(path: str | Path, *, force: bool = False) -> Callable[..., Any]:
    """Return a function with the signature of torch's ``scaled_dot_product_attention``.

    Where a backend was proved to be faster it computes the call; torch's function does everywhere else: with
    dropout, autocast, a mask that differs, compiled code, or shapes outside of the table. The meaning of a
    call never changes. With ``explain=True`` it computes nothing and says in a sentence what it would call.

    path: a file of ``attnbench choose``. force: use it on another machine, or with other versions.

    Raises:
        BadFile: it is not such a file.
        BadInput: it was made on another machine or with other versions, or its plugins are not here.
    """
    table = read_table(Path(path))
    registry = load_and_tell()
    unlike = differences(table.facts, table.plugins, *machine_of(registry))
    if unlike and not force:
        words = f"the choice {str(path)!r} was made elsewhere: {unlike}"
        raise BadInput(f"{words}; force=True uses it all the same")
    for choice in table.choices:
        registry.backend(choice.backend)
    return _attention(table, registry)


def _attention(table: Table, registry: Registry) -> Callable[..., Any]:
    from torch import is_autocast_enabled, is_grad_enabled
    from torch.compiler import is_compiling
    from torch.nn.functional import scaled_dot_product_attention as default

    rows = _rows(table)
    reader = MaskReader() if any(_needs_tensor(parse_case(one.case).mask) for one in table.choices) else None
    known: dict[object, _Found] = {}

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        explain: bool = False,
    ) -> Any:  # fmt: skip
        """Compute attention; see :func:`load`."""
        plain = not (
            dropout_p or is_compiling() or is_autocast_enabled("cuda" if query.is_cuda else "cpu")
            or (attn_mask is not None and reader is None)
        )  # fmt: skip
        found = _DEFAULT
        if plain:
            graph = is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
            mask = "causal" if is_causal else "none"
            if attn_mask is not None and reader is not None:
                B, H, Lq, _ = query.shape if query.dim() == 4 else (1, 1, *query.shape[-2:])
                mask = reader.words(attn_mask, B, H, Lq, key.shape[-2]).mask
            same = (
                query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype, query.device, mask,
                scale, enable_gqa, graph,
            )  # fmt: skip
            try:
                found = known[same]
            except KeyError:
                if len(known) >= _MOST_SHAPES:
                    known.clear()
                found = known[same] = _find(
                    rows, registry, (query, key, value), mask, scale, gqa=enable_gqa, graph=graph
                )
        if explain:
            return found.why
        if found.call is not None:
            return found.call(query, key, value)
        return default(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return scaled_dot_product_attention


_DEFAULT = _Found(None, "torch's function: dropout, autocast, compiled code or a mask are not in the table")

_Rows = dict[object, list[tuple[Case, Choice]]]


def _rows(table: Table) -> _Rows:
    rows: _Rows = {}
    for choice in table.choices:
        case = parse_case(choice.case)
        rows.setdefault(kind_of(case), []).append((case, choice))
    return rows


def _needs_tensor(mask: Mask) -> bool:
    """Whether torch's function takes this mask only as a tensor."""
    return mask not in (Mask(), Mask(causal="upper_left"))


def _find(
    rows: _Rows, registry: Registry, inputs: tuple[Tensor, Tensor, Tensor], mask: str, scale: float | None, *,
    gqa: bool, graph: bool,
) -> _Found:  # fmt: skip
    """Find and prepare what computes calls of these shapes."""
    query, key, value = inputs
    try:
        if any(one.dim() != 4 or one.shape[0] != query.shape[0] for one in inputs):
            return _Found(None, "torch's function: the inputs have no four axes of one batch")
        if not query.dtype == key.dtype == value.dtype:
            return _Found(None, "torch's function: the inputs differ in their dtypes")
        call = call_of("attention", query, sizes_of(query, key, value, gqa=gqa), Words(mask), scale, 0.0)
        if call is None:
            return _Found(None, "torch's function: the inputs hold no numbers")
        case = case_of(call)
    except BadCase as failure:
        return _Found(None, f"torch's function: {failure}")
    case = replace(case, pass_="both") if graph else case
    for first, choice in rows.get(kind_of(case), ()):
        if first.Lk <= case.Lk <= max(first.Lk, choice.upto):
            break
    else:
        return _Found(None, f"torch's function: nothing was proved for {short_id(case)}")
    backend, rule = registry.backend(choice.backend), registry.rule(case.rule)
    refused = backend.available(case.device) or backend.supports(case, rule)
    if refused is not None:
        return _Found(None, f"torch's function: {choice.backend}: {refused}")
    prepared = backend.prepare(Setup(case, rule, rule.bind(case, {}), {}, {}))
    words = f"{choice.backend} for {short_id(case)}: torch's function takes {choice.gain:.2f} times as long"
    return _Found(_in_layout(prepared, backend.layout, contiguous=backend.needs_contiguous), words)


def _in_layout(call: Call, layout: str, *, contiguous: bool) -> Call:
    if layout == "BHLD" and not contiguous:
        return call

    def laid_out(*inputs: Tensor) -> Tensor:
        if layout == "BLHD":
            inputs = tuple(one.transpose(1, 2) for one in inputs)
        if contiguous:
            inputs = tuple(one.contiguous() for one in inputs)
        output = call(*inputs)
        return output.transpose(1, 2) if layout == "BLHD" else output

    return laid_out
