"""per_sequence: torch's own attention, of one packed sequence after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from attnbench.backends.sdpa import attention, attention_with_lse, refuse_cap
from attnbench.kit.dtypes import softmax_dtype
from attnbench.kit.problems import problem_setups, ranges
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench.types.problem import is_empty

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


class SequenceAttention:
    """Attention of each sequence by itself: of q (Lq, H, D), k and v (Lk, Hkv, ·) to (Lq, H, Dv).

    Where the case asks for it, also to the log-sum-exp, (Lq, H). The masks are prepared, since the case says
    how long sequences are.
    """

    def __init__(self, setup: Setup) -> None:
        self.heads, self.features = setup.case.H, setup.case.Dv
        self.lse = "lse" in setup.case.returns
        make, problems = attention_with_lse if self.lse else attention, problem_setups(setup)
        self.calls: list[Call | None] = [None if is_empty(one.case) else make(one) for one in problems]

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of a sequence: zeros, and -inf as log-sum-exp, where it has no key."""
        import torch

        call = self.calls[number]
        if call is None:
            out = q.new_zeros(len(q), self.heads, self.features)
            lse = q.new_full((len(q), self.heads), -torch.inf, dtype=softmax_dtype(q.dtype))
            return (out, lse) if self.lse else (out,)
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        found = call(q, k, v)
        parts = cast("tuple[Tensor, Tensor]", found) if self.lse else (found,)
        return tuple(part.squeeze(0).transpose(0, 1) for part in parts)


def joined(answers: Iterable[tuple[Tensor, ...]]) -> Tensor:
    """Return the outputs of all sequences together: a tensor, or a tuple of those that were asked for."""
    import torch

    whole = tuple(torch.cat(part) for part in zip(*answers, strict=True))
    return cast("Tensor", whole) if len(whole) > 1 else whole[0]


class PerSequence:
    """The prepared function."""

    def __init__(self, setup: Setup) -> None:
        self.sequences = SequenceAttention(setup)
        self.places: list[tuple[slice, slice]] = []

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read where the queries and the keys of each sequence lie."""
        queries, keys = (ranges(ahead[f"cu_seqlens_{of}"]) for of in "qk")
        self.places = list(zip(queries, keys, strict=True))

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Attend from each sequence to its own keys."""
        attend = self.sequences.attend
        return joined(attend(n, q[rows], k[keys], v[keys]) for n, (rows, keys) in enumerate(self.places))


PER_SEQUENCE = Backend(
    name="per_sequence",
    summary="torch SDPA of one packed sequence after the other",
    prepare=PerSequence,
    supports=refuse_cap,
    passes=PASSES,
    storages=("packed",),
    returns=("lse",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)
