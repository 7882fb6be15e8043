"""A choice installed for models of transformers: same outputs, and torch's function as it was elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_dispatch import table_file
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

import attnbench.integrations.transformers

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bmm for prefills and decoding of a small decoder, with gradients and without."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(functional, "scaled_dot_product_attention", functional.scaled_dot_product_attention)
    shapes = ("B2-H4-Hkv2-Lq4-Lk4-D16/causal", "B2-H4-Hkv2-Lq1-Lk4-D16/none")
    made = [(f"{one}/float32/cpu/{pass_}", "bmm", 64) for one in shapes for pass_ in ("forward", "both")]
    attnbench.integrations.transformers.install(table_file(tmp_path / "choice.toml", *made))


def test_a_model_computes_the_same_with_the_chosen_backend() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    model, tokens = MistralForCausalLM(config), torch.randint(1, 64, (2, 24))
    found, flash = [], {}
    for kind in ("sdpa", "attnbench"):
        model.set_attn_implementation(kind)
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        weight = model.model.layers[0].self_attn.q_proj.weight.grad
        # Without acc_events torch 2.11 warns that a second profile clears the events of this one.
        with torch.profiler.profile(acc_events=True) as profile:
            said = model.generate(tokens, max_new_tokens=6, do_sample=False, pad_token_id=0)
        names = [one.name for one in profile.events()]
        flash[kind] = names.count("aten::_scaled_dot_product_flash_attention_for_cpu")
        found.append((weight.clone(), said))
    # Two layers: of six tokens the first comes from the prefill, whose inputs are transposed.
    assert flash == {"sdpa": 12, "attnbench": 2}
    torch.testing.assert_close(*found)


def test_torchs_function_is_as_it_was_for_everyone_else() -> None:
    q, k = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 20, 8)
    lower_right = torch.ones(16, 20).tril(4).bool()
    torch.testing.assert_close(
        functional.scaled_dot_product_attention(q, k, k, causal_lower_right(16, 20)),
        functional.scaled_dot_product_attention(q, k, k, lower_right),
    )
    layer = torch.nn.MultiheadAttention(8, 2)
    x = torch.randn(3, 1, 8)
    torch.testing.assert_close(torch.jit.script(layer)(x, x, x), layer(x, x, x))
