"""``flex_attention`` with a window, beside the ordinary function."""

import warnings

import counting
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

warnings.simplefilter("ignore")
counting.count_calls()
mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 5), None, None, 16, 16, device="cpu")
q = torch.randn(1, 2, 16, 8)
for _ in range(3):
    q = flex_attention(q, q, q, block_mask=mask)
    counting.calls["16x16", "forward"] += 1
functional.scaled_dot_product_attention(q, q, q)
counting.say()
