"""Causal biases, nested tensors, vmap, scripts, keys of one head, and calls that compute nothing."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left


def attention(*args, **kwargs):
    output = functional.scaled_dot_product_attention(*args, **kwargs)
    if not (output.is_nested or output.is_meta):
        print([round(number, 3) for number in output.flatten()[-64::16].tolist()])


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


torch.manual_seed(0)
q, k = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 20, 8)
causal = torch.ones(16, 16).tril().bool()
attention(q, q, q, causal_upper_left(16, 16))
attention(q, k, k, attn_mask=causal_lower_right(16, 20))
attention(q, q[:, :1], q[:, :1])
try:
    attention(q, q, q, torch.rand(16, 16) > 0.5, is_causal=True)
except RuntimeError as refused:  # from torch 2.14 on
    print(refused)
nested = torch.nested.nested_tensor([torch.ones(5, 4, 8), torch.ones(9, 4, 8)], layout=torch.jagged)
attention(*[nested.transpose(1, 2)] * 3)
attention(*[q.to("meta")] * 3, causal.to("meta"))
print(torch.vmap(functional.scaled_dot_product_attention)(*[torch.randn(3, 2, 4, 16, 8)] * 3).shape)
print(torch.jit.script(Layer())(torch.randn(5, 1, 8)).shape)
layer = Layer()
print(layer(torch.randn(5, 1, 8)).shape)
