"""The bytes and operations that a case needs, known before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable

from attnbench.cases.layouts import taken_layout
from attnbench.masks import kept_pairs, kept_rows, mask_heads
from attnbench.types.backend import Backend
from attnbench.types.case import Case, Pass, projection_shapes, rule_parameter_shapes
from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.operation import Shape, operation_of
from attnbench.types.problem import call_inputs, call_outputs, encoded_specs, problems_of, stored_inputs
from attnbench.types.rule import Rule
from attnbench.types.storage import storage_of

POOL_CACHES = 4
"""The size of a pool of inputs in last-level caches.

Where a cache of size C replaces lines at random, a round through a pool of P finds the share h of its lines
there, h = exp(-(1 - h)·P/C): 63 % at P = 1.25·C, 20 % at 2·C, 2 % at 4·C.
"""

PADDED_TO_BYTES = 64
_TENSOR_BYTES = 256
"""The rough number of bytes that a call touches in a tensor besides its values."""


def parameter_elements(case: Case, rule: Rule) -> int:
    """Count the elements of all parameters: those of the rule and the projections."""
    shapes = (*rule_parameter_shapes(case, rule).values(), *projection_shapes(case, rule).values())
    return _elements(shapes)


def activation_elements(case: Case, rule: Rule) -> int:
    """Count the elements of the inputs; x of self-attention and the context of cross-attention count once."""
    return _elements(shape for shape, _ in _inputs(case, rule))


def output_elements(case: Case) -> int:
    """Count the elements of all outputs of a call."""
    return _elements(spec.shape for spec in call_outputs(case))


def pool_copies(tensor_bytes: Iterable[int], cache_bytes: int) -> int:
    """Return how many copies of tensors exceed four caches together, with one more in use: 2 or more."""
    each = sum(_padded(size) + _TENSOR_BYTES for size in tensor_bytes)
    return max(2, POOL_CACHES * cache_bytes // each + 1)


def cache_to_fill(case: Case, cache_bytes: int) -> int:
    """Return how many bytes of inputs fill a cache with what calls touch of them, not unused pages."""
    return int(cache_bytes / storage_of(case).used(case))


def pool_bytes(case: Case, rule: Rule, cache_bytes: int) -> int:
    """Return the bytes of the pool in which inputs rotate; 0 where they do not.

    Inputs rotate on the CPU only; on a CUDA device the cache is overwritten instead.
    """
    if case.cache != "rotating" or not case.on_host:
        return 0
    sizes = [math.prod(shape) * item_bytes for shape, item_bytes in _inputs(case, rule)]
    return pool_copies(sizes, cache_to_fill(case, cache_bytes)) * sum(
        _padded(size) + _TENSOR_BYTES for size in sizes
    )


def pools_of(case: Case, backends: Iterable[Backend]) -> int:
    """Count the pools of a case: one for each layout that its backends take, one for each that converts."""
    backends = tuple(backends)
    layouts = {taken_layout(case, backend) for backend in backends if not backend.converts}
    return len(layouts) + sum(bool(backend.converts) for backend in backends)


def held_bytes(case: Case, rule: Rule) -> int:
    """Return the bytes of inputs, parameters, output and explicit mask, which every process of a backend
    holds.

    With gradients, also those of the gradients of inputs, parameters and output.
    """
    elements = activation_elements(case, rule) + parameter_elements(case, rule) + output_elements(case)
    if case.pass_ != "forward":
        elements *= 2
    if case.layer is not None:
        elements += case.B * (case.Lq * case.H + case.Lk * case.Hkv) * (case.D + case.Dv)
    return elements * case.item_bytes + _mask_bytes(case)


def quadratic_bytes(case: Case, rule: Rule, backend: Backend) -> int:
    """Return the bytes of the (query, key) arrays that a backend holds at once."""
    return _quadratic_copies(case, backend) * all_pairs(case) * rule.score_elements(case) * case.item_bytes


def _quadratic_copies(case: Case, backend: Backend) -> int:
    """Return the number of arrays by pair; a backward pass has weights, their gradient and that of scores:
    3."""
    copies = backend.quadratic_copies
    return copies if case.pass_ == "forward" or copies == 0 else max(3, copies + 1)


def too_large(
    case: Case, rule: Rule, backend: Backend, free_bytes: int, pools: int = 0, pool_bytes: int = 0
) -> str | None:
    """Return why a case does not fit into ``free_bytes`` with this backend, in words; None where it fits.

    pools: how many, of so many bytes each, the inputs of all backends rotate in.
    """
    quadratic = quadratic_bytes(case, rule, backend)
    needed = held_bytes(case, rule) + quadratic + pools * pool_bytes
    if needed <= free_bytes:
        return None
    reason = f"needs about {human_bytes(needed)} and {human_bytes(free_bytes)} is free"
    if 2 * pools * pool_bytes > needed:
        through, free = human_bytes(pool_bytes), f"and {human_bytes(free_bytes)} is free"
        if pools == 1:
            return f"inputs rotate through {through} {free}: free memory, or measure with --cache hot"
        return (
            f"inputs rotate through {pools} pools of {through}, one for each layout that backends take, "
            f"{free}: name backends of one layout with --backend"
        )
    if 2 * quadratic < needed:
        return reason
    width = rule.score_elements(case)
    lengths = ("sum of Lq·Lk",) if case.batch else (case.Lq, case.Lk)
    shape = (*(() if case.batch else (case.B,)), case.H, *lengths) + ((width,) if width > 1 else ())
    copies = _quadratic_copies(case, backend)
    arrays = "1 array" if copies == 1 else f"{copies} arrays"
    return f"{reason}: it holds {arrays} of {shape} in {case.dtype}, {human_bytes(quadratic)}"


def human_bytes(count: float) -> str:
    """Write a number of bytes with three digits and a unit: 512 B, 4.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.0f} PiB" if count >= 999.5 else f"{count:.3g} PiB"


def _inputs(case: Case, rule: Rule) -> list[tuple[Shape, int]]:
    """Return the shape and the bytes of an element of each input, each tensor once."""
    specs = {spec.tensor: spec for spec in call_inputs(case, rule)}
    return [(spec.shape, spec.item_bytes(case)) for spec in specs.values()]


def all_pairs(case: Case) -> int:
    """Count the (query, key) pairs of all problems over all heads, whatever the mask keeps."""
    return sum(problem.B * case.H * problem.Lq * problem.Lk for problem in problems_of(case))


def _padded(size: int) -> int:
    return -(-size // PADDED_TO_BYTES) * PADDED_TO_BYTES


def _mask_bytes(case: Case) -> int:
    by_head = all_pairs(case) // case.H
    return case.mask.table_bytes(case.item_bytes) * by_head * mask_heads(case)


def _elements(shapes: Iterable[Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes)


FLOP_CONVENTION = (
    "FLOPs: forward 2·P·(D + Dv), P the exact number of kept (query, key) pairs over batches and heads; "
    "rules without a dot-product form count their own operations per pair; multihead adds its projections; "
    "softmax isn't counted; backward counts 2.5 times forward"
)

PASS_FACTOR: dict[Pass, float] = {"forward": 1.0, "backward": 2.5, "both": 3.5}
"""Backward computes five products for two in forward: Dao, FlashAttention-2 (2023), section 4.1."""


def flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of one call, by :data:`FLOP_CONVENTION`.

    pairs: kept (query, key) pairs, summed over batches and heads.
    """
    return operation_of(case).flops(case, rule, pairs) * PASS_FACTOR[case.pass_]


def bytes_moved(case: Case, rule: Rule, kept: tuple[int, int] | None = None) -> int:
    """Count the least bytes that a call moves: inputs and parameters read once, the output written once.

    kept: queries that keep a key, and keys that some query keeps, over all batch elements. In ``attention``
    the others need not be read; a layer reads all of its inputs. None: all are read. Masks do not count.
    Backward reads inputs, parameters and the gradient of the output, and writes the gradients of inputs and
    parameters.
    """
    every = _input_bytes(case, rule) + parameter_elements(case, rule) * case.item_bytes
    read = every - (0 if kept is None else _unread_bytes(case, rule, *kept))
    written = sum(math.prod(spec.shape) * spec.item_bytes(case) for spec in call_outputs(case))
    forward, backward = read + written, read + written + every
    by_pass = {"forward": forward, "backward": backward, "both": forward + backward}
    return by_pass[case.pass_]


def flops_of_problems(case: Case, rule: Rule) -> float:
    """Count the operations of one call over all problems of a case, with the pairs that their masks keep."""
    return sum(flops(problem, rule, kept_pairs(problem)) for problem in problems_of(case))


def bytes_of_problems(case: Case, rule: Rule) -> int:
    """Count the least bytes that one call moves over all problems of a case, as :func:`bytes_moved` counts.

    Parameters count once. Where a storage counts what a call touches, that stands for the inputs. Tensors
    that say where numbers lie are read too.
    """
    problems, storage = problems_of(case), storage_of(case)
    moved = sum(bytes_moved(problem, rule, kept_rows(problem)) for problem in problems)
    again = {"forward": 1, "backward": 2, "both": 3}[case.pass_]
    moved -= (len(problems) - 1) * again * parameter_elements(case, rule) * case.item_bytes
    if storage.touched is not None:
        moved += storage.touched(case, rule) - sum(_read(problem, rule) for problem in problems)
    return moved + sum(math.prod(spec.shape) * spec.item_bytes(case) for spec in storage.planned(case))


def kv_bytes(case: Case, rule: Rule) -> float | None:
    """Count the bytes that keys and values take for each key, with scales; None where there are none.

    A scale that tokens share counts in shares. Unused slots of a storage do not count.
    """
    keys = sum(problem.B * problem.Lk for problem in problems_of(case))
    if not operation_of(case).encoded or keys == 0:
        return None
    encoding = encoding_of(case)
    held = (
        math.prod(spec.shape) * spec.item_bytes(case)
        for problem in problems_of(case)
        for spec in encoding.tensors(problem, encoded_specs(problem, rule))
    )
    return sum(held) / keys


def decode_bytes(case: Case, kv_bytes: float | None) -> float | None:
    """Count the bytes of stored keys and values that one call of decode reads; None of another step.

    Decode is a forward pass in which no sequence has more than one query. Keys that no query keeps do not
    count, as those before a window. kv_bytes: as of :func:`kv_bytes`.
    """
    if kv_bytes is None or case.pass_ != "forward" or case.Lq > 1:
        return None
    return kv_bytes * sum(kept_rows(problem)[1] for problem in problems_of(case))


def _read(problem: Case, rule: Rule) -> int:
    """Count the bytes of inputs of a problem that kept pairs read."""
    return _input_bytes(problem, rule) - _unread_bytes(problem, rule, *kept_rows(problem))


def _unread_bytes(case: Case, rule: Rule, queries: int, keys: int) -> int:
    """Count the bytes of inputs that no kept pair reads, where so many queries and keys are kept."""
    unread, every = operation_of(case).unread, case.B * case.Lk
    if not is_encoded(case) or every == 0:
        return unread(case, rule, queries, keys) * case.item_bytes
    # Codes and scales of a token are not read with it: as large a share of them as of the operation's own.
    of_keys = unread(case, rule, case.B * case.Lq, keys)
    own = _elements(spec.shape for spec in encoded_specs(case, rule) if "j" in spec.axes)
    by_token = sum(
        math.prod(spec.shape) * spec.item_bytes(case)
        for spec in stored_inputs(case, rule)
        if "j" in spec.axes
    )
    return (unread(case, rule, queries, keys) - of_keys) * case.item_bytes + by_token * of_keys // own


def _input_bytes(case: Case, rule: Rule) -> int:
    return sum(math.prod(shape) * item_bytes for shape, item_bytes in _inputs(case, rule))
