"""A decoder of transformers with random weights: it learns, then writes with a cache."""

import counting
import torch
from transformers import MistralConfig, MistralForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
counting.count_calls()
config = MistralConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=8,
    num_key_value_heads=2, sliding_window=16, max_position_embeddings=128,
)  # fmt: skip
model = MistralForCausalLM(config)
tokens = torch.randint(1, 64, (2, 40))
for _ in range(2):
    model(tokens, labels=tokens).loss.backward()
model.eval()
model.generate(tokens[:, :24], max_new_tokens=4, do_sample=False, pad_token_id=0)
counting.say()
