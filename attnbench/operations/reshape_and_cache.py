"""reshape_and_cache: new tokens into the slots of a paged cache, as serving engines write them.

Of the sizes of a case, B counts pages of the cache, Lk the slots of a page, and Lq the new tokens. A call
gets ``key`` (Lq, Hkv, D) and ``value`` (Lq, Hkv, Dv) in the dtype, the cache, scales that were found before,
and ``slot_mapping`` (Lq,) int64: the slot page · Lk + place of each token, -1 for one that is not written. It
returns the cache as it is afterwards; a slot that no token names keeps its bits. ``latent`` has no ``value``.

The cache lies as the storage ``paged`` has it: codes (pages, page, Hkv, ·), and scales of the grains
``token`` and ``block32``, (pages, page, Hkv, ·), which are found for each token. Scales of the grains
``tensor``, ``head`` and ``channel``, (1), (Hkv) and (Hkv, ·), and their zero points are inputs: numbers
beyond the largest code are written as the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench.operations.quantise import (
    refuses_queries,
    specials,
    spread_numbers,
    writer_flops,
    written_as,
)
from attnbench.types.encoding import encoding_of, names_encoding
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.operation import Arrays

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]

UNWRITTEN = 4
"""One in so many tokens has the slot -1."""
BEYOND = 0.5
"""Scales that are given stand for the largest number times this, so that some numbers lie beyond."""


@dataclass(frozen=True)
class CacheSpecs:
    """The tensors of a cache: those with a place for each token, and those that tokens share."""

    tokens: tuple[TensorSpec, ...]
    """Of the encoding for the new tokens as one sequence, (1, Hkv, Lq, ·)."""
    cached: tuple[TensorSpec, ...]
    """The same in pages, (pages, page, Hkv, ·)."""
    given: tuple[TensorSpec, ...]
    """Scales and zero points, without an axis of batch elements."""


def numbers_specs(case: Case) -> tuple[TensorSpec, ...]:
    """Return k and v of the new tokens as one sequence, as encodings take them."""
    return (
        TensorSpec("k", (1, case.Hkv, case.Lq, case.D), axes="bgjd"),
        TensorSpec("v", (1, case.Hkv, case.Lq, case.Dv), axes="bgje"),
    )


def cache_specs(case: Case) -> CacheSpecs:
    """Return the tensors of a case's cache."""
    every = encoding_of(case).tensors(case, numbers_specs(case))
    tokens = tuple(spec for spec in every if "j" in spec.axes)
    cached = (
        replace(spec, shape=(case.B, case.Lk, case.Hkv, *spec.shape[3:]), axes=f"bjg{spec.axes[3:]}")
        for spec in tokens
    )
    given = (
        replace(spec, shape=spec.shape[1:] or (1,), axes=spec.axes[1:]) if "b" in spec.axes else spec
        for spec in every
        if "j" not in spec.axes
    )
    return CacheSpecs(tokens, tuple(cached), tuple(given))


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    specs = cache_specs(case)
    fresh = (
        TensorSpec("key", (case.Lq, case.Hkv, case.D), axes="igd"),
        TensorSpec("value", (case.Lq, case.Hkv, case.Dv), axes="ige"),
    )
    slots = TensorSpec("slot_mapping", (case.Lq,), "int64", axes="i")
    return (*(fresh[:1] if encoding_of(case).shared else fresh), *specs.cached, *specs.given, slots)


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return cache_specs(case).cached


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    """Draw tokens of many sizes, any slots for them, and a cache full of other codes."""
    import numpy as np

    specs = cache_specs(case)
    drawn: dict[str, Any] = {
        spec.name: spread_numbers(spec.shape, stream(spec.name))
        for spec in _inputs(case, rule)
        if spec.name in ("key", "value")
    }
    for spec in specs.cached:
        rng = stream(f"cache {spec.name}")
        if spec.is_floating:
            numbers = rng.standard_normal(spec.shape)
            drawn[spec.name] = numbers.astype(np.float32) if spec.kind == "float32" else numbers
        else:
            bounds = np.iinfo(spec.kind)
            drawn[spec.name] = rng.integers(bounds.min, bounds.max, spec.shape, spec.kind, endpoint=True)
    drawn |= _given_scales(case, drawn)
    slots = stream("slots").permutation(case.B * case.Lk)[: case.Lq]
    skipped = stream("skipped").random(case.Lq) < 1 / UNWRITTEN
    drawn["slot_mapping"] = np.where(skipped, -1, slots).astype(np.int64)
    return drawn


def _given_scales(case: Case, drawn: Named) -> dict[str, Any]:
    """Return scales and zero points of the drawn tokens, made smaller, as those of other tokens are."""
    specs = cache_specs(case)
    if not specs.given:
        return {}
    every = encoding_of(case).tensors(case, numbers_specs(case))
    found = dict(zip((spec.name for spec in every), _encoded(case, drawn), strict=True))
    given: dict[str, Any] = {}
    for spec in specs.given:
        array = found[spec.name].reshape(spec.shape)
        given[spec.name] = array * array.dtype.type(BEYOND) if spec.kind == "float32" else array
    return given


def _numbers(case: Case, named: Named) -> list[Any]:
    """Return the new tokens as encodings take them, (1, Hkv, Lq, ·), in float64."""
    import numpy as np

    names = ("key", "value") if "value" in named else ("key", "key")
    return [np.asarray(named[name], np.float64).swapaxes(0, 1)[None] for name in names]


def _encoded(case: Case, named: Named) -> Any:
    return encoding_of(case).encode(case, numbers_specs(case), _numbers(case, named))


def _draw_special(case: Case, rule: Rule, stream: Stream, change: Any) -> dict[str, Any]:
    drawn = _draw(case, rule, lambda word: stream(f"special {word}"))
    for name in ("key", "value"):
        if name in drawn:
            change(case, drawn[name], stream(f"change {name}"))
    return drawn


def _all_skipped(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    """Draw tokens of which none is to be written but the last."""
    drawn = _draw(case, rule, lambda word: stream(f"skipped {word}"))
    drawn["slot_mapping"][:-1] = -1
    drawn["slot_mapping"][-1] = stream("last").integers(case.B * case.Lk)
    return drawn


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    kinds: dict[str, Callable[[Case, Rule, Stream], Named]] = {
        name: partial(_draw_special, change=change) for name, change in specials(case).items()
    }
    return kinds | {"one_written": _all_skipped}


def _solve(problem: Problem) -> Arrays:
    return _settle(
        problem, {spec.name: problem.inputs[spec.name] for spec in cache_specs(problem.case).cached}
    )


def _settle(problem: Problem, answer: Named) -> Arrays:
    """Return the cache after the call, with those right codes that are nearest to an answer's."""
    import numpy as np

    case, given = problem.case, problem.inputs
    specs = cache_specs(case)
    slots = np.asarray(given["slot_mapping"])
    named = slots >= 0
    tokens = _settled_tokens(problem, answer, np.where(named, slots, 0))
    after: dict[str, Any] = {}
    for spec, written in zip(specs.cached, tokens, strict=True):
        cache = np.array(given[spec.name], np.float64)
        flat = cache.reshape(case.B * case.Lk, *spec.shape[2:])
        flat[slots[named]] = np.asarray(written[0], np.float64).swapaxes(0, 1)[named]
        after[spec.name] = cache
    return after


def _settled_tokens(problem: Problem, answer: Named, slots: Any) -> list[Any]:
    """Return what the new tokens are in the cache, (1, Hkv, Lq, ·) each, nearest to what stands in slots."""
    import numpy as np

    case, given, encoding = problem.case, problem.inputs, encoding_of(problem.case)
    numbers = _numbers(case, given)
    if encoding.settle is None:
        return list(encoding.encode(case, numbers_specs(case), numbers))
    stands = {
        spec.name: np.asarray(answer[spec.name])
        .reshape(case.B * case.Lk, *spec.shape[2:])[slots]
        .swapaxes(0, 1)[None]
        for spec in cache_specs(case).cached
    }
    every = encoding.tensors(case, numbers_specs(case))
    stored = [stands[s.name] if s.name in stands else np.reshape(given[s.name], s.shape) for s in every]
    how = replace(written_as(case), given=len(stands) < len(every))
    settled = encoding.settle(case, numbers_specs(case), numbers, stored, how)
    return [array for spec, array in zip(every, settled, strict=True) if spec.name in stands]


def _trivial(problem: Problem) -> dict[str, dict[str, Any]]:
    """Return the cache as it was before."""
    import numpy as np

    before = {
        spec.name: np.asarray(problem.inputs[spec.name], np.float64)
        for spec in cache_specs(problem.case).cached
    }
    return {"the cache as it was": before}


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    if names_encoding(case) and encoding_of(case).settle is None and not encoding_of(case).shared:
        return f"nobody can say which codes of {case.kv} are right"
    if names_encoding(case) and encoding_of(case).runs(case):
        return f"a scale of {case.kv} follows from all keys of a page, and new tokens are some of them"
    if case.Lq > case.B * case.Lk:
        return (
            f"Lq = {case.Lq} new tokens need as many slots: "
            f"B{case.B} pages of Lk{case.Lk} slots have {case.B * case.Lk}"
        )
    return refuses_queries(case, "reshape_and_cache")


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    return writer_flops(case, case.Lq * case.Hkv * (case.D + case.Dv))


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.writers import reshape_and_cache

    return reshape_and_cache(setup)


RESHAPE_AND_CACHE = Operation(
    name="reshape_and_cache",
    summary="new tokens into the slots of a paged cache",
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    rounds=True,
    baseline="torch_to_pages",
    stress=_stress,
    trivial=_trivial,
    settle=_settle,
)
