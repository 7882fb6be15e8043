"""Twelve faulty attention kernels for batches, packed and paged, to measure how many of them a search finds.

Usage: python tests/benchmarks/search_score.py --kernels batch_mutants

As a plugin the file brings a right kernel, ``batch_mutants_right``, and one backend for each fault. A faulty
kernel is right except where two or three properties of a sequence hold together. The backend
``mutants_watched`` is right too. It appends the name of each fault that a call would show to the file that
``ATTNBENCH_MUTANTS_FIRED`` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup, hookimpl
from attnbench.kit.masks import additive_mask
from attnbench.kit.problems import problem_setups
from attnbench.types.batch import parse_batch
from attnbench.types.case import PASSES
from attnbench.types.problem import is_empty
from attnbench.types.storage import sizes_of

if TYPE_CHECKING:
    from torch import Tensor

FIRED = "ATTNBENCH_MUTANTS_FIRED"
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence in a call.

    whole: the case. setup: of the sequence by itself. q: (Lq, H, D), as the caller's rows. k, v: (Lk, Hkv,
    ·). cache: k and v as the caller stores them. table: the pages of the sequence, with its tail; None where
    keys are packed. others: all sequences of the call, by their lengths.
    """

    whole: Case
    setup: Setup
    number: int
    q: Tensor
    k: Tensor
    v: Tensor
    cache: tuple[Tensor, Tensor]
    table: Tensor | None

    @property
    def case(self) -> Case:
        """The sequence as a dense case."""
        return self.setup.case

    @property
    def others(self) -> tuple[tuple[int, int], ...]:
        """The lengths of all sequences."""
        return parse_batch(self.whole.batch)

    @property
    def page(self) -> int:
        """The keys in a page; 0 where keys are packed."""
        return sizes_of(self.whole)["page"] if self.table is not None else 0


# The right kernel, in steps.


def heads(one: Sequence) -> list[int]:
    """Return the key/value head of each query head."""
    return [h // one.case.group for h in range(one.case.H)]


def read(one: Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v of a sequence as rows."""
    return one.q, one.k, one.v


def bias(one: Sequence) -> Tensor | float:
    """Return what the rule adds to scores."""
    added = one.setup.scoring.bias
    return 0.0 if added is None else added(slice(0, one.case.Lq), slice(0, one.case.Lk)).float()


def masked(one: Sequence, scores: Tensor) -> Tensor:
    """Add the mask to scores, (H, Lq, Lk)."""
    return plus_mask(scores, one.case)


def plus_mask(scores: Tensor, case: Case) -> Tensor:
    """Add the mask of a case to scores, (H, Lq, Lk)."""
    import torch

    added = additive_mask(case, torch.float32, "cpu")
    return scores if added is None else scores + added[0]


def capped(one: Sequence, scores: Tensor) -> Tensor:
    """Apply the soft cap of the rule, if it has one."""
    dot = one.setup.scoring.dot
    assert dot is not None
    return scores if dot.cap is None else dot.cap * (scores / dot.cap).tanh()


def finished(one: Sequence, scores: Tensor) -> Tensor:
    """Apply the cap, then what is added."""
    return masked(one, capped(one, scores) + bias(one))


def log_sum(one: Sequence, scores: Tensor) -> Tensor:
    """Return the logarithm of the sums, (H, Lq)."""
    return scores.logsumexp(-1)


def finished_lse(one: Sequence, lse: Tensor) -> Tensor:
    """Return the logarithms as they are returned."""
    return lse


@dataclass(frozen=True)
class Steps:
    """A kernel: what is computed of a sequence, step by step. A fault replaces steps."""

    heads: Callable[[Sequence], list[int]] = heads
    read: Callable[[Sequence], tuple[Tensor, Tensor, Tensor]] = read
    finished: Callable[[Sequence, Tensor], Tensor] = finished
    lse: Callable[[Sequence, Tensor], Tensor] = finished_lse


RIGHT = Steps()


@dataclass(frozen=True)
class Property:
    """What must hold of a sequence, in words and as a test."""

    words: str
    holds: Callable[[Sequence], Any]


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault.

    summary: what it does wrong. properties: those of a sequence that must all hold. fault: the steps then.
    """

    name: str
    summary: str
    properties: tuple[Property, ...]
    fault: Steps

    def when(self, one: Sequence) -> bool:
        """Return whether the fault applies to a sequence."""
        return all(each.holds(one) for each in self.properties)


def attend(one: Sequence, steps: Steps) -> tuple[Tensor, Tensor]:
    """Return the output of a sequence, (Lq, H, Dv), and its logarithms, (Lq, H)."""
    import torch

    q, k, v = steps.read(one)
    case, at = one.case, steps.heads(one)
    if is_empty(case):
        out, lse = q.new_zeros(len(q), case.H, case.Dv), torch.full((case.H, len(q)), -torch.inf)
        return out, steps.lse(one, lse).T
    dot = one.setup.scoring.dot
    assert dot is not None
    queries, keys, values = (x.float().transpose(0, 1) for x in (q, k[:, at], v[:, at]))
    scores = steps.finished(one, queries @ keys.mT * dot.scale)
    empty = scores.isneginf().all(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    out = (weights @ values).transpose(0, 1).to(one.q.dtype)
    return out, steps.lse(one, scores.detach().logsumexp(-1)).T


class Kernel:
    """The prepared function."""

    def __init__(self, setup: Setup, mutant: Mutant | None = None, watched: bool = False) -> None:
        self.setup, self.mutant, self.watched = setup, mutant, watched
        self.alone = problem_setups(setup)

    def sequences(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Iterator[Sequence]:
        """Cut the sequences of a call apart."""
        case, queries, keys = self.setup.case, 0, 0
        for number, setup in enumerate(self.alone):
            Lq, Lk = setup.case.Lq, setup.case.Lk
            if case.storage == "packed":
                table, own = None, (k[keys : keys + Lk], v[keys : keys + Lk])
            else:
                page, table = k.shape[1], places[2][number].long()
                first, second = (x[table[: -(-Lk // page)]].flatten(0, 1)[:Lk] for x in (k, v))
                own = first, second
            yield Sequence(case, setup, number, q[queries : queries + Lq], *own, (k, v), table)
            queries, keys = queries + Lq, keys + Lk

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend from each sequence to its own keys."""
        import torch

        found = []
        for one in self.sequences(q, k, v, *places):
            wrong = self.mutant is not None and self.mutant.when(one)
            found.append(attend(one, self.mutant.fault if self.mutant is not None and wrong else RIGHT))
            if self.watched:
                tell(one)
        out, lse = (torch.cat(parts) for parts in zip(*found, strict=True))
        return (out, lse.contiguous()) if self.setup.case.returns else out


def tell(one: Sequence) -> None:
    """Write down the faults that a sequence would show."""
    path = os.environ.get(FIRED)
    names = [mutant.name for mutant in MUTANTS if mutant.when(one)]
    if path and names:
        with Path(path).open("a") as file:
            file.write("".join(f"{name}\n" for name in names))


# The faults.


def window_from_first_key(one: Sequence, scores: Tensor) -> Tensor:
    """Count the window from the first key, as if there were as many keys as queries."""
    import torch

    window = one.case.mask.window
    assert window is not None
    rest = replace(one.case, mask=one.case.mask.without("window"))
    off = (torch.arange(one.case.Lq)[:, None] - torch.arange(one.case.Lk)).abs() >= window
    return plus_mask(capped(one, scores) + bias(one), rest).masked_fill(off, -torch.inf)


def as_longest(one: Sequence) -> int:
    """Return by how much a diagonal moves that is aligned by the longest sequence."""
    return (one.whole.Lk - one.whole.Lq) - (one.case.Lk - one.case.Lq)


def bias_by_longest(one: Sequence, scores: Tensor) -> Tensor:
    """Take the distances of ALiBi from the alignment of the longest sequence."""
    import torch

    slope = one.setup.rule_parameters["slope"].float()
    at = torch.arange(one.case.Lq)[:, None] + one.case.query_offset + as_longest(one)
    distance = (at - torch.arange(one.case.Lk)).abs()
    return masked(one, scores - slope[:, None, None] * distance)


def causal_by_longest(one: Sequence, scores: Tensor) -> Tensor:
    """Align the causal mask by the longest sequence."""
    import torch

    rest = replace(one.case, mask=one.case.mask.without("causal"))
    at = torch.arange(one.case.Lq)[:, None] + one.whole.Lk - one.whole.Lq
    return plus_mask(capped(one, scores) + bias(one), rest).masked_fill(
        torch.arange(one.case.Lk) > at, -torch.inf
    )


def cap_after_mask(one: Sequence, scores: Tensor) -> Tensor:
    """Apply the soft cap after the mask, which then drops nothing."""
    return capped(one, masked(one, scores))


def slot_behind(one: Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Overwrite the last key by the slot behind it: the first of the next entry of the table."""
    import torch

    assert one.table is not None
    entry = one.table[one.case.Lk // one.page].clamp(min=0)
    k, v = (
        torch.cat([x[:-1], stored[entry][:1]]) for x, stored in zip((one.k, one.v), one.cache, strict=True)
    )
    return one.q, k, v


def last_block_lost(one: Sequence, scores: Tensor) -> Tensor:
    """Leave out the last block of 64 keys where it holds one."""
    import torch

    scores = finished(one, scores)
    return torch.cat([scores[..., :-1], torch.full_like(scores[..., -1:], -torch.inf)], -1)


def narrow(one: Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Read as many features of values as keys have."""
    kept = one.v[..., : one.case.D]
    return one.q, one.k, one.v.new_zeros(one.v.shape).index_copy(2, _first(kept), kept)


def _first(x: Tensor) -> Tensor:
    import torch

    return torch.arange(x.shape[-1])


def q_as_contiguous(one: Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Read queries as if their rows lay beside each other."""
    _, H, D = one.q.shape
    return one.q.as_strided(one.q.shape, (H * D, D, 1)), one.k, one.v


def keys_of_next(one: Sequence, scores: Tensor) -> Tensor:
    """Drop the first key, as one that counts sequences without queries."""
    import torch

    scores = finished(one, scores)
    return torch.cat([torch.full_like(scores[..., :1], -torch.inf), scores[..., 1:]], -1)


GROUPS = Property("keys shared by several heads", lambda one: one.case.group > 1)
UNLIKE = Property("another alignment than that of the longest sequence", lambda one: as_longest(one) != 0)
BFLOAT16 = Property("bfloat16", lambda one: one.case.dtype == "bfloat16")
LSE = Property("the output lse", lambda one: bool(one.whole.returns))
PAGED = Property("pages", lambda one: one.page > 0)


def _drops(one: Sequence) -> bool:
    import torch

    added = additive_mask(one.case, torch.float32, "cpu")
    return added is not None and bool(added.isneginf().any())


MUTANTS = (
    Mutant(
        "window_from_first_key",
        "the window counts from the first key",
        (
            Property("a window", lambda one: one.case.mask.window is not None),
            Property("fewer queries than keys", lambda one: 0 < one.case.Lq < one.case.Lk),
        ),
        Steps(finished=window_from_first_key),
    ),
    Mutant(
        "groups_of_single_slots",
        "query head h reads key head h modulo Hkv",
        (GROUPS, Property("pages of 1", lambda one: one.page == 1)),
        Steps(heads=lambda one: [h % one.case.Hkv for h in range(one.case.H)]),
    ),
    Mutant(
        "distances_by_longest",
        "ALiBi's distances are those of the longest sequence",
        (Property("alibi", lambda one: one.case.rule == "alibi"), UNLIKE),
        Steps(finished=bias_by_longest),
    ),
    Mutant(
        "cap_after_mask",
        "the soft cap comes after the mask",
        (
            Property("softcap", lambda one: one.case.rule == "softcap" and not is_empty(one.case)),
            Property("a mask that drops keys", _drops),
            BFLOAT16,
        ),
        Steps(finished=cap_after_mask),
    ),
    Mutant(
        "slot_behind_last",
        "the slot behind the last key is read in its place",
        (
            PAGED,
            GROUPS,
            Property("whole pages", lambda one: one.case.Lk > 0 and one.case.Lk % one.page == 0),
        ),
        Steps(read=slot_behind),
    ),
    Mutant(
        "lse_of_nothing",
        "lse is 0 where no key is",
        (LSE, Property("a sequence without keys", lambda one: one.case.Lk == 0 < one.case.Lq)),
        Steps(lse=lambda one, lse: lse.masked_fill(lse.isneginf(), 0)),
    ),
    Mutant(
        "lse_in_half",
        "lse is rounded to the dtype of the inputs",
        (LSE, Property("half precision", lambda one: one.case.dtype in HALVES)),
        Steps(lse=lambda one, lse: lse.to(one.q.dtype).float()),
    ),
    Mutant(
        "causal_by_longest",
        "the causal mask is aligned by the longest sequence",
        (
            Property("causal:lower_right", lambda one: one.case.mask.causal == "lower_right"),
            UNLIKE,
            BFLOAT16,
        ),
        Steps(finished=causal_by_longest),
    ),
    Mutant(
        "decoding_without_last_block",
        "the last block is left out where it holds one key",
        (
            Property("one query", lambda one: one.case.Lq == 1),
            Property("one key past a block of 64", lambda one: one.case.Lk > 64 and one.case.Lk % 64 == 1),
        ),
        Steps(finished=last_block_lost),
    ),
    Mutant(
        "values_as_wide_as_keys",
        "features of values beyond those of keys are 0",
        (
            Property("values wider than keys", lambda one: one.case.Dv > one.case.D),
            Property("pages smaller than 16", lambda one: 0 < one.page < 16),
        ),
        Steps(read=narrow),
    ),
    Mutant(
        "queries_as_contiguous",
        "rows of queries are read as if they lay beside each other",
        (Property("rows of q apart", lambda one: not one.q.is_contiguous()), GROUPS),
        Steps(read=q_as_contiguous),
    ),
    Mutant(
        "first_key_of_later_sequences",
        "the first key is lost behind a sequence without queries",
        (
            Property(
                "a sequence without queries before",
                lambda one: 0 in [queries for queries, _ in one.others[: one.number]],
            ),
            Property("pages larger than 16", lambda one: one.page > 16),
        ),
        Steps(finished=keys_of_next),
    ),
)


def takes(case: Case, rule: Rule) -> str | None:
    """Take every case that the declarations allow."""
    return None


def _backend(name: str, summary: str, **how: Any) -> Backend:
    return Backend(
        name=name,
        summary=summary,
        prepare=partial(Kernel, **how),
        supports=takes,
        rules=("scaled_dot", "alibi", "softcap"),
        dtypes=("float32", "bfloat16", "float16"),
        passes=PASSES,
        storages=("packed", "paged"),
        returns=("lse",),
        masks_by_head=True,
    )


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Bring the right kernels, and one for each fault."""
    yield _backend("batch_mutants_right", "right attention of packed and paged sequences")
    yield _backend("mutants_watched", "right too; tells which faults a call would show", watched=True)
    for mutant in MUTANTS:
        yield _backend(f"mutant_{mutant.name}", mutant.summary, mutant=mutant)
