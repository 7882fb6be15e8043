"""Selected keys in torch: the plain reference of ``selected``, and pieces for backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.problems import problem_setups, ranges
from attnbench.kit.reference import row_chunks, row_scores, row_weights, wide_dtype
from attnbench.types.backend import Setup
from attnbench.types.problem import call_outputs, is_empty, problems_of, stored_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case

    Make = Callable[[Setup], Callable[..., Tensor]]


def prepare(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and indices that scores all keys and drops those that are not chosen."""
    import torch

    case, rule, wide = setup.case, setup.rule, wide_dtype(setup)

    def call(q: Tensor, k: Tensor, v: Tensor, indices: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(case.group, dim=1) for x in (k, v))
        found = []
        for rows in row_chunks(setup):
            keys = k[:, :, rows] if rule.pairs_keys else k
            scores = row_scores(setup, q[:, :, rows], keys).to(wide)
            chosen = chosen_keys(case, indices[:, :, rows]).repeat_interleave(case.group, dim=1)
            weights = row_weights(setup, scores.masked_fill(~chosen, -torch.inf), rows, False)
            found.append(weights.to(q.dtype) @ v)
        return torch.cat(found, dim=2)

    return call


def chosen_keys(case: Case, indices: Tensor) -> Tensor:
    """Return which keys indices (B, Hkv, R, top) name: bool (B, Hkv, R, Lk)."""
    import torch

    block = case.size("block")
    blocks = -(-case.Lk // block)
    named = torch.zeros(*indices.shape[:-1], blocks + 1, dtype=torch.bool, device=indices.device)
    # Unused places name one block more, which is then left out.
    named.scatter_(-1, indices.long().masked_fill(indices < 0, blocks), True)
    return named[..., :-1].repeat_interleave(block, dim=-1)[..., : case.Lk]


def key_places(case: Case, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the chosen keys, (B, Hkv, R, top · block), and which of them are keys.

    Those that are not have the place 0.
    """
    import torch

    block = case.size("block")
    within = torch.arange(block, device=indices.device)
    places = (indices.long()[..., None] * block + within).flatten(-2)
    valid = (indices >= 0).repeat_interleave(block, dim=-1) & (places < case.Lk)
    return places.masked_fill(~valid, 0), valid


class Sequences:
    """A prepared function of packed sequences, or of queries packed and keys in pages: one after the other.

    make: prepares the function of equal sequences, which has one output. nothing: what that holds where a
    sequence has no queries or no keys.
    """

    def __init__(self, setup: Setup, make: Make, nothing: float) -> None:
        self.case, self.nothing = setup.case, nothing
        self.calls = [None if is_empty(one.case) else make(one) for one in problem_setups(setup)]
        stored = stored_inputs(problems_of(self.case)[0], setup.rule)
        self.of_keys = ["j" in spec.axes for spec in stored]
        self.queries: list[slice] = []
        self.keys: list[Callable[[Tensor], Tensor]] = []

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read where the queries and the keys of each sequence lie."""
        self.queries = ranges(ahead["cu_seqlens_q"])
        if "block_table" in ahead:
            pairs = zip(ahead["block_table"].long(), ahead["seqused_k"].tolist(), strict=True)
            self.keys = [_in_pages(*pair) for pair in pairs]
        else:
            self.keys = [_in_range(keys) for keys in ranges(ahead["cu_seqlens_k"])]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of all sequences."""
        import torch

        (spec,) = call_outputs(self.case)
        dtype = case_dtype(self.case) if spec.kind == "float" else getattr(torch, spec.kind)
        out = torch.full(spec.shape, self.nothing, dtype=dtype, device=inputs[0].device)
        for rows, keys, call in zip(self.queries, self.keys, self.calls, strict=True):
            if call is not None:
                own = zip(inputs, self.of_keys, strict=False)
                taken = (keys(x) if of_keys else x[rows] for x, of_keys in own)
                out[rows] = call(*(x.transpose(0, 1)[None] for x in taken))[0].transpose(0, 1)
        return out


def _in_range(keys: slice) -> Callable[[Tensor], Tensor]:
    return lambda x: x[keys]


def _in_pages(pages: Tensor, length: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x[pages[: -(-length // x.shape[1])]].flatten(0, 1)[:length]
