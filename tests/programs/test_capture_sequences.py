"""Captured calls on sequences of unlike lengths, and of recurrences."""

from __future__ import annotations

import importlib.util
import sys
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import attnbench
from attnbench.cases.ids import short_id


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(functions)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def words(calls: attnbench.programs.capture.Capture) -> dict[str, float]:
    return {short_id(one.case): one.count for one in calls.captured.cases}


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
    causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, block_table=None, seqused_k=None,
):  # fmt: skip
    """Has the arguments of flash-attn's function."""
    return q[..., :1].expand(*q.shape[:-1], v.shape[-1]) * 1


def ends(*lengths: int) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def test_packed_calls_become_cases_of_their_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    library = module(monkeypatch, "flash_attn", flash_attn_varlen_func=flash_attn_varlen_func)
    q, k = torch.ones(9, 4, 8, requires_grad=True), torch.ones(30, 2, 8)
    pages, table = torch.ones(6, 16, 2, 8), torch.zeros(2, 3, dtype=torch.int32)
    with attnbench.capture() as calls:
        packed = (q, k, k, ends(5, 0, 4), ends(5, 16, 9), 5, 16)
        for _ in range(3):
            library.flash_attn_varlen_func(*packed, causal=True).sum().backward()
        library.flash_attn_varlen_func(*packed, window_size=(6, 0), softcap=30.0)
        library.flash_attn_varlen_func(*packed, alibi_slopes=torch.ones(4))
        library.flash_attn_varlen_func(
            q[:2], pages, pages, ends(1, 1), None, 1, 40, causal=True, block_table=table,
            seqused_k=torch.tensor([40, 7]),
        )  # fmt: skip
        library.flash_attn_varlen_func(
            q[:2], pages, pages, ends(1, 1), None, 1, 50, block_table=table, seqused_k=torch.tensor([7, 50])
        )
    assert words(calls) == {
        "scaled_dot/q5_q0s16_q4s9-H4-Hkv2-D8/causal:lower_right/both/packed": 3,
        "softcap@c=30/q5_q0s16_q4s9-H4-Hkv2-D8/reach:6,0/packed": 1,
        "scaled_dot/q1s40_q1s7-H4-Hkv2-D8/paged": 1,
    }
    unread = "1 call: not classified: flash_attn_varlen_func: "
    assert calls.captured.notes[0] == unread + "it is given alibi_slopes"
    short = "the block table has 3 pages a sequence; sequence 1 needs 4 for 50 keys in pages of 16"
    assert unread + short in calls.captured.notes
    assert "baseline" not in calls.captured.toml()


def test_torchs_packed_function_becomes_cases_by_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("torch.nn.attention.varlen")

    def stand_in(query, *args, **kwargs):
        return query * 1

    # The function itself runs on CUDA only.
    stand_in.__signature__ = signature(library.varlen_attn)
    monkeypatch.setattr(library, "varlen_attn", stand_in)
    q, k, pages = torch.ones(9, 4, 8), torch.ones(30, 2, 8), torch.ones(6, 16, 2, 8)
    table = torch.zeros(2, 3, dtype=torch.int32)
    with attnbench.capture() as calls:
        packed = (q, k, k, ends(5, 0, 4), ends(5, 16, 9), 5, 16)
        library.varlen_attn(*packed, window_size=(-1, 0), enable_gqa=True)
        library.varlen_attn(*packed, window_size=(6, 0), scale=0.25, enable_gqa=True)
        library.varlen_attn(
            q[:2], pages, pages, ends(1, 1), None, 1, 40, enable_gqa=True,
            seqused_k=torch.tensor([40, 7]), block_table=table,
        )  # fmt: skip
    assert words(calls) == {
        "scaled_dot/q5_q0s16_q4s9-H4-Hkv2-D8/causal:lower_right/packed": 1,
        "scaled_dot@scale=0.25/q5_q0s16_q4s9-H4-Hkv2-D8/reach:6,0/packed": 1,
        "scaled_dot/q1s40_q1s7-H4-Hkv2-D8/paged": 1,
    }
    assert calls.captured.notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["paged|eager", "sdpa"])
@pytest.mark.filterwarnings("ignore")
def test_continuous_batching_of_transformers_becomes_packed_cases(attention: str) -> None:
    transformers = pytest.importorskip("transformers", "5.24")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, vocab_size=64, max_position_embeddings=256, pad_token_id=0, eos_token_id=63,
    )  # fmt: skip
    # With random weights one of the first tokens may be the end of its sequence.
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    model.set_attn_implementation(attention)
    once = transformers.GenerationConfig(max_new_tokens=2, do_sample=False, eos_token_id=63, pad_token_id=0)
    # Its own cache is as large as most of the free memory.
    small = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
    inputs = [[1, 2, 3, 4, 5], [6, 7, 8]]
    with attnbench.capture() as calls:
        model.generate_batch(inputs=inputs, generation_config=once, continuous_batching_config=small)
        model(torch.ones(1, 5, dtype=torch.long))
    found = {case.partition("/threads")[0]: count for case, count in words(calls).items()}
    assert found.pop("scaled_dot/q3_q5-H4-Hkv2-D8/causal:lower_right/packed") == 2
    assert found.pop("scaled_dot/q1s4_q1s6-H4-Hkv2-D8/packed") == 2
    # A call without lengths is one of torch's function, as ever.
    assert not any("packed" in case for case in found)
    assert (attention == "sdpa") == bool(found)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensors_become_packed_cases() -> None:
    sequences = [torch.ones(length, 4, 8) for length in (5, 9)]
    jagged = torch.nested.nested_tensor(sequences, layout=torch.jagged).transpose(1, 2)
    with attnbench.capture() as calls:
        torch.nn.functional.scaled_dot_product_attention(jagged, jagged, jagged)
    assert words(calls) == {"scaled_dot/q5_q9-H4-D8/packed": 1}


def torch_chunk_gated_delta_rule(
    query, key, value, g, beta, chunk_size=64, initial_state=None, use_qk_l2norm_in_kernel=False, **kwargs
):
    """Has the arguments of transformers' function."""
    return value * 1, initial_state


def recurrent_kimi_delta_attention(query, key, value, g, beta, initial_state, output_final_state, **kwargs):
    """Has the arguments of transformers' function."""
    return value * 1, initial_state


def mamba2_chunk_scan(hidden_states, dt, A, B, C, chunk_size, D=None, **kwargs):
    """Has the arguments of transformers' function."""
    return hidden_states * 1


def mamba_selective_scan(hidden_states, dt, A, B, C, D=None, z=None, **kwargs):
    """Has the arguments of transformers' function."""
    return hidden_states * 1


def test_recurrences_of_transformers_become_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = (
        torch_chunk_gated_delta_rule, recurrent_kimi_delta_attention, mamba2_chunk_scan, mamba_selective_scan
    )  # fmt: skip
    own = module(
        monkeypatch, "transformers.models.any.modeling_any", **{one.__name__: one for one in functions}
    )
    q, v, g = torch.ones(2, 70, 2, 8), torch.ones(2, 70, 4, 12, requires_grad=True), torch.ones(2, 70, 4)
    with attnbench.capture() as calls:
        out, _ = own.torch_chunk_gated_delta_rule(q, q, v, g=g, beta=g, use_qk_l2norm_in_kernel=True)
        out.sum().backward()
        own.torch_chunk_gated_delta_rule(q[:1], q[:1], v[:1], g=g, beta=g, cu_seqlens=ends(30, 40))
        own.recurrent_kimi_delta_attention(q[:, :1], q[:, :1], v[:, :1, :2], g, g, None, True)
        own.mamba2_chunk_scan(v, g, g, q, q, chunk_size=64)
        x, keys = torch.ones(2, 96, 70), torch.ones(2, 16, 70)
        own.mamba_selective_scan(x, x, torch.ones(96, 16), keys, keys, delta_softplus=True)
    assert words(calls) == {
        "recurrent/gated_delta/B2-H4-Hkv2-L70-D8-Dv12/both": 1,
        "recurrent/gated_delta/q30_q40-H4-Hkv2-D8-Dv12/packed": 1,
        "recurrent/gated_delta_channels/B2-H2-L1-D8-Dv12": 1,
        "recurrent/gated/B2-H4-Hkv2-L70-D8-Dv12": 1,
        "recurrent/selective/B2-H1-L70-D16-Dv96": 1,
    }
    assert calls.captured.notes == ()


def test_the_names_are_those_of_transformers() -> None:
    """A reader of a name that no module has reads nothing."""
    pytest.importorskip("transformers")
    from attnbench.programs.begin import functions_in

    found = set()
    for model in ("qwen3_next", "kimi_linear", "mamba2", "mamba"):
        name = f"transformers.models.{model}.modeling_{model}"
        spec = importlib.util.find_spec(name)
        text = Path(str(getattr(spec, "origin", ""))).read_text()
        found |= {function for function in functions_in(name) if f"\ndef {function}(" in text}
    assert found == set(functions_in("transformers.models.any.modeling_any"))
