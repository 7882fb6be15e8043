"""A compiled layer."""

import counting
import torch
from torch.nn import functional

counting.count_calls()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.project(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


model = torch.compile(Layer())
for _ in range(3):
    model(torch.randn(2, 20, 32)).mean().backward()
counting.say()
