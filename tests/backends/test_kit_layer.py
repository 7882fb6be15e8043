"""The layer around the heads."""

from __future__ import annotations

import pytest
import torch
from solved import solved

from attnbench.kit.layer import around, for_operation, merge_heads, split_heads


def test_heads_are_split_as_views_and_merged_back() -> None:
    x = torch.arange(2 * 3 * 8.0).view(2, 3, 8)
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    assert heads.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert heads[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    assert torch.equal(merge_heads(heads), x)


@pytest.mark.parametrize(
    "sizes", ["E6-bias", "E6", "E6-noout", "E6-bias-noout", "E6-cross"], ids=lambda sizes: str(sizes)
)
@pytest.mark.parametrize("rule", ["dot", "concat_linear"])
def test_what_the_heads_give_is_merged_and_mapped(rule: str, sizes: str) -> None:
    case = solved(f"multihead/{rule}/B2-H4-Hkv2-L3-D2-Dv5-{sizes}/none/float64")
    p = case.setup.projections
    seen: list[tuple[torch.Tensor, ...]] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen.append((q, k, v))
        return v.repeat_interleave(2, dim=1)

    x, keys, values = case.inputs
    out = around(attend, case.setup)(x, keys, values)
    (q, k, v), zero = seen[0], torch.zeros((), dtype=torch.float64)
    assert (q.shape, k.shape, v.shape) == ((2, 4, 3, 2), (2, 2, 3, 2), (2, 2, 3, 5))
    # Row h·D + d of w_q makes feature d of head h.
    torch.testing.assert_close(q[0, 1, 2, 1], x[0, 2] @ p["w_q"][3] + p.get("b_q", zero.expand(8))[3])
    torch.testing.assert_close(v[1, 1, 0, 4], values[1, 0] @ p["w_v"][9] + p.get("b_v", zero.expand(10))[9])
    torch.testing.assert_close(k[1, 0, 1, 1], keys[1, 1] @ p["w_k"][1] + p.get("b_k", zero.expand(4))[1])
    merged = torch.cat([v[:, h // 2] for h in range(4)], dim=-1)
    if "noout" in sizes:
        assert torch.equal(out, merged)
        return
    if rule == "concat_linear":
        merged = torch.cat([*(q[:, h] for h in range(4)), merged], dim=-1)
    torch.testing.assert_close(out, merged @ p["w_o"].T + p.get("b_o", zero))


def test_attention_gets_no_layer() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v

    assert for_operation(attend, solved("attention/dot/H1-L3-D2/none/float32").setup) is attend
    assert for_operation(attend, solved("multihead/dot/H1-L3-D2-E2/none/float32").setup) is not attend
