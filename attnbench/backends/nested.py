"""nested: packed sequences as torch's jagged tensors, and torch's own attention of them.

On a CPU torch computes them one after the other, without masks and without groups of heads.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnbench.backends.sdpa import refuse_cap
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.batch import parse_batch
from attnbench.types.case import PASSES, Case
from attnbench.types.mask import Mask
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor


class Nested:
    """The prepared function."""

    def __init__(self, setup: Setup) -> None:
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        dot = setup.scoring.dot
        assert dot is not None
        self.group, self.scale = setup.case.group, dot.scale
        with warnings.catch_warnings():
            # The first call warns that these tensors are a prototype.
            warnings.simplefilter("ignore", UserWarning)
            one = jagged(torch.zeros(1, 1, 1), torch.tensor([0, 1]))
            sdpa(one, one, one)

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read where the queries and the keys of each sequence begin."""
        self.queries, self.keys = (ahead[f"cu_seqlens_{of}"].long() for of in "qk")

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Attend from each sequence to its own keys."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        # A jagged tensor raises where its values were made in another mode than the present one.
        with torch.inference_mode(q.is_inference()):
            if self.group > 1:
                k, v = (x.repeat_interleave(self.group, dim=1) for x in (k, v))
            inputs = jagged(q, self.queries), jagged(k, self.keys), jagged(v, self.keys)
            found: Tensor = sdpa(*inputs, scale=self.scale).transpose(1, 2).values()
            return found.contiguous()


def jagged(x: Tensor, starts: Tensor) -> Tensor:
    """Return packed tokens (T, H, D) as a jagged tensor (N, H, j, D), which shares their memory."""
    import torch

    made: Tensor = torch.nested.nested_tensor_from_jagged(x, starts)
    return made.transpose(1, 2)


def _supports(case: Case, rule: Rule) -> str | None:
    form = form_of(case, rule)
    if form.bias is not None or form.sink is not None:
        return f"adds nothing to scores, as {rule.name} does"
    if form.dot is not None and (form.dot.map_q is not None or form.dot.map_k is not None):
        return f"maps no queries and keys, as {rule.name} does"
    # The last token sees all others.
    decodes = case.Lq == 1 and case.mask == Mask(causal="lower_right")
    if not case.mask.is_none and not decodes:
        return "torch's jagged tensors take no mask"
    if any(0 in lengths for lengths in parse_batch(case.batch)):
        # torch 2.13 raises in some of these batches.
        return "torch's jagged tensors take no sequence without queries or keys"
    return refuse_cap(case, rule)


NESTED = Backend(
    name="nested",
    summary="torch's jagged tensors of packed sequences, torch SDPA without a mask",
    prepare=Nested,
    supports=_supports,
    passes=PASSES,
    storages=("packed",),
    needs_dot_form=True,
    needs_contiguous=True,
)
