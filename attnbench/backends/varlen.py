"""varlen: torch's function for sequences of unlike lengths, packed or with keys in pages; on CUDA only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attnbench.backends.sdpa import refuse_cap
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES, Case
from attnbench.types.mask import Mask
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

MOST_FEATURES = 256


class Varlen:
    """The prepared function."""

    def __init__(self, setup: Setup) -> None:
        case, dot = setup.case, setup.scoring.dot
        assert dot is not None
        self.case, self.scale = case, dot.scale
        self.lse = "lse" in case.returns
        before, after = case.mask.band.before, case.mask.band.after
        self.window_size = (-1 if before is None else before, -1 if after is None else after)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *plan: Tensor) -> Any:
        """Attend, (T, H, D); with the log-sum-exp (T, H) where the case asks for it.

        plan: where queries begin, and where keys begin if they are packed; else their numbers and the table.
        """
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        starts, *keys = plan
        paged = len(keys) > 1
        found = varlen_attn(
            q,
            k,
            v,
            starts,
            None if paged else keys[0],
            self.case.Lq,
            self.case.Lk,
            return_aux=AuxRequest(lse=True) if self.lse else None,
            scale=self.scale,
            window_size=self.window_size,
            enable_gqa=self.case.group > 1,
            seqused_k=keys[0] if paged else None,
            block_table=keys[1] if paged else None,
        )
        if not self.lse:
            return found
        out, lse = found
        # torch 2.13 returns (H, T), where its text says (T, H).
        return out, lse.T.contiguous()


def absent(device: str) -> str | None:
    """Return why this torch can't call the function, or None."""
    if device == "cpu":
        return "torch's varlen_attn runs on CUDA only"
    if find_spec("torch.nn.attention.varlen") is None:
        import torch

        return f"torch {torch.__version__} has no varlen_attn"
    return None


def supports(case: Case, rule: Rule) -> str | None:
    """Return the reason why the function can't compute a case, or None."""
    form, mask = form_of(case, rule), case.mask
    if form.bias is not None or form.sink is not None:
        return f"adds nothing to scores, as {rule.name} does"
    if form.dot is not None and (form.dot.map_q is not None or form.dot.map_k is not None):
        return f"maps no queries and keys, as {rule.name} does"
    before = mask.band.before
    if mask not in (Mask(), Mask(causal="lower_right", window=None if before is None else before + 1)):
        return "takes no mask, or causal:lower_right with or without a window"
    if case.Dv != case.D or case.D > MOST_FEATURES:
        return f"D and Dv must be equal and at most {MOST_FEATURES}; here they are {case.D} and {case.Dv}"
    return refuse_cap(case, rule)


VARLEN = Backend(
    name="varlen",
    summary="torch's varlen_attn of packed sequences, or with keys in pages, on CUDA",
    prepare=Varlen,
    supports=supports,
    available=absent,
    devices=("cuda",),
    dtypes=("bfloat16", "float16"),
    passes=PASSES,
    storages=("packed", "paged"),
    returns=("lse",),
    needs_dot_form=True,
    needs_contiguous=True,
    quadratic_copies=0,
)
