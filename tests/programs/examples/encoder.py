"""``nn.TransformerEncoder``, with padding while it learns, and without gradients at the end."""

import counting
import torch
from torch import nn

counting.count_calls()
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
for _ in range(3):
    padded = torch.arange(12) >= torch.tensor([[9], [12]])
    model(torch.randn(2, 12, 32), src_key_padding_mask=padded).mean().backward()
model.eval()
with torch.no_grad():
    model(torch.randn(2, 10, 32))
counting.say()
