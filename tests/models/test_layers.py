"""The attention of published models, held against their published facts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from published import MLA, PUBLISHED, YARN_V3, Config, config

from attnbench.models.config import describe
from attnbench.models.layers import LayerKind, rule_of, shard
from attnbench.types.errors import BadFile, BadInput

FULL, SLIDING = "full attention", "sliding attention"
EXPANDED, ABSORBED = "expanded latent attention", "absorbed latent attention"

LAYERS: dict[str, list[tuple[str, int, int, int, int, int]]] = {
    "gpt2": [(FULL, 12, 12, 12, 64, 64)],
    "bert-base": [("encoder", 12, 12, 12, 64, 64)],
    "roberta-base": [("encoder", 12, 12, 12, 64, 64)],
    "vit-b16": [("encoder", 12, 12, 12, 64, 64)],
    "whisper-large-v3": [
        ("encoder", 32, 20, 20, 64, 64), ("decoder", 32, 20, 20, 64, 64),
        ("cross-attention", 32, 20, 20, 64, 64),
    ],
    "llama-3.1-8b": [(FULL, 32, 32, 8, 128, 128)],
    "llama-3.1-70b": [(FULL, 80, 64, 8, 128, 128)],
    "llama-4-scout": [
        ("chunked attention", 36, 40, 8, 128, 128), (FULL, 12, 40, 8, 128, 128),
        ("vision encoder", 34, 16, 16, 88, 88),
    ],
    "qwen2.5-7b": [(FULL, 28, 28, 4, 128, 128)],
    "qwen3-8b": [(FULL, 36, 32, 8, 128, 128)],
    "qwen3-32b": [(FULL, 64, 64, 8, 128, 128)],
    "mistral-7b-v0.1": [(SLIDING, 32, 32, 8, 128, 128)],
    "mistral-7b-v0.2": [(FULL, 32, 32, 8, 128, 128)],
    "gemma-2-9b": [(SLIDING, 21, 16, 8, 256, 256), (FULL, 21, 16, 8, 256, 256)],
    "gemma-2-27b": [(SLIDING, 23, 32, 16, 128, 128), (FULL, 23, 32, 16, 128, 128)],
    "gemma-3-4b": [(SLIDING, 29, 8, 4, 256, 256), (FULL, 5, 8, 4, 256, 256)],
    "gemma-3-27b": [(SLIDING, 52, 32, 16, 128, 128), (FULL, 10, 32, 16, 128, 128)],
    "gpt-oss-20b": [(SLIDING, 12, 64, 8, 64, 64), (FULL, 12, 64, 8, 64, 64)],
    "gpt-oss-120b": [(SLIDING, 18, 64, 8, 64, 64), (FULL, 18, 64, 8, 64, 64)],
    "deepseek-v3": [(EXPANDED, 61, 128, 128, 192, 128), (ABSORBED, 61, 128, 1, 576, 512)],
    "deepseek-v3.2": [
        (EXPANDED, 61, 128, 128, 192, 128), (ABSORBED, 61, 128, 1, 576, 512),
        (f"{ABSORBED} to chosen keys", 61, 128, 1, 576, 512), ("indexer", 61, 64, 1, 128, 128),
    ],
    "kimi-k2": [(EXPANDED, 61, 64, 64, 192, 128), (ABSORBED, 61, 64, 1, 576, 512)],
    "longcat-flash": [(EXPANDED, 56, 64, 64, 192, 128), (ABSORBED, 56, 64, 1, 576, 512)],  # two in each layer
    "phi-3-mini-4k": [(SLIDING, 32, 32, 32, 96, 96)],
    "phi-4": [(FULL, 40, 40, 10, 128, 128)],
    "falcon-7b": [(FULL, 32, 71, 1, 64, 64)],
    "falcon-7b, as first published": [(FULL, 32, 71, 1, 64, 64)],
    "falcon-40b": [(FULL, 60, 128, 8, 64, 64)],
    "falcon-40b, as first published": [(FULL, 60, 128, 8, 64, 64)],
    "qwen3-next-80b": [(FULL, 12, 16, 2, 256, 256), ("gated delta net", 36, 32, 16, 128, 128)],
    "granite-4.0-h-small": [(FULL, 4, 32, 8, 128, 128), ("Mamba-2 scan", 36, 128, 1, 128, 64)],
    "falcon-h1-7b": [(FULL, 44, 12, 2, 128, 128), ("Mamba-2 scan", 44, 24, 1, 256, 128)],
    "zamba2-7b": [(FULL, 13, 32, 32, 224, 224), ("Mamba-2 scan", 81, 112, 2, 64, 64)],
    "mpt-7b": [(FULL, 32, 32, 32, 128, 128)],
    "dbrx": [(FULL, 40, 48, 8, 128, 128)],
    "glm-4.5": [(FULL, 92, 96, 8, 128, 128)],
    "ernie-4.5-21b": [(FULL, 28, 20, 4, 128, 128)],
    "nemotron-super-49b": [(FULL, 49, 64, 8, 128, 128)],
    "mimo-7b": [(FULL, 36, 32, 8, 128, 128)],
    "nemotron-3-nano": [(FULL, 6, 32, 2, 128, 128), ("Mamba-2 scan", 23, 64, 8, 128, 64)],
    "granite-3.0-8b": [(FULL, 40, 32, 8, 128, 128)],
    "bloom-7b1": [(FULL, 30, 32, 32, 128, 128)],
    "t5-base": [
        ("encoder", 12, 12, 12, 64, 64), ("decoder", 12, 12, 12, 64, 64),
        ("cross-attention", 12, 12, 12, 64, 64),
    ],
    "gemma-4-e2b, ten of its layers": [(SLIDING, 8, 8, 1, 256, 256), (FULL, 2, 8, 1, 512, 512)],
    "chatglm2-6b": [(FULL, 28, 32, 2, 128, 128)],
}  # fmt: skip


def kinds(name: str, **changed: object) -> dict[str, LayerKind]:
    """The kinds of layers of a published model by name; changed: other fields."""
    return {kind.name: kind for kind in describe(PUBLISHED[name] | changed).layers}


def only(fields: Config) -> LayerKind:
    """The only kind of layers of a config."""
    (kind,) = describe(fields).layers
    return kind


@pytest.mark.parametrize("name", LAYERS)
def test_heads_and_counts(name: str) -> None:
    found = [(k.name, k.count, k.H, k.Hkv, k.D, k.Dv) for k in describe(PUBLISHED[name]).layers]
    assert sorted(found) == sorted(LAYERS[name])


def test_windows_and_chunks() -> None:
    windows = {name: [k.window for k in describe(PUBLISHED[name]).layers if k.window] for name in LAYERS}
    assert {name: window for name, window in windows.items() if window} == {
        "mistral-7b-v0.1": [4096], "gemma-2-9b": [4096], "gemma-2-27b": [4096], "gemma-3-4b": [1024],
        "gemma-3-27b": [1024], "gpt-oss-20b": [128], "gpt-oss-120b": [128], "phi-3-mini-4k": [2047],
        "gemma-4-e2b, ten of its layers": [512],
    }  # fmt: skip
    chunks = {name: [k.chunk for k in describe(PUBLISHED[name]).layers if k.chunk] for name in LAYERS}
    assert {name: chunk for name, chunk in chunks.items() if chunk} == {"llama-4-scout": [8192]}


def test_rules_and_what_no_rule_says() -> None:
    said, missing = {}, {}
    for name in LAYERS:
        for kind in describe(PUBLISHED[name]).layers:
            rule, words = rule_of(kind)
            if words:
                missing.setdefault(name, set()).update(words)
            elif rule != "scaled_dot":
                said.setdefault(name, set()).add(rule)
    assert said == {
        "gpt-oss-20b": {"sinks"}, "gpt-oss-120b": {"sinks"}, "mpt-7b": {"alibi"}, "bloom-7b1": {"alibi"},
        "t5-base": {"t5_bias", "t5_bias@sides=1", "dot"}, "gemma-4-e2b, ten of its layers": {"dot"},
        "gemma-2-9b": {"softcap@c=50"},
        "gemma-2-27b": {"softcap@c=50,scale=0.08333333"}, "gemma-3-27b": {"scaled_dot@scale=0.07715167"},
        "granite-3.0-8b": {"scaled_dot@scale=0.0078125"},
        "zamba2-7b": {"scaled_dot@scale=0.09449112", "gated"},
        "qwen3-next-80b": {"gated_delta"}, "nemotron-3-nano": {"gated"}, "falcon-h1-7b": {"gated"},
        "granite-4.0-h-small": {"scaled_dot@scale=0.0078125", "gated"},
        # 0.1 · ln(40) + 1 = 1.368888; its square times 192^-½ is the scale of both forms of DeepSeek.
        "longcat-flash": {"scaled_dot@scale=0.07216878"}, "deepseek-v3": {"scaled_dot@scale=0.1352338"},
        "kimi-k2": {"scaled_dot@scale=0.1308608"}, "deepseek-v3.2": {"scaled_dot@scale=0.1352338"},
    }  # fmt: skip
    assert missing == {}


def test_features_of_two_rules_are_not_one_rule() -> None:
    both = replace(kinds("gpt-oss-20b")[FULL], softcap=30.0)
    assert rule_of(both)[1] == ("softcap and sinks in one rule",)


def test_traps_of_configs() -> None:
    # The config of the text may have another name, as in MOSS.
    inner = config("llama", 4096, 32, 32, 8)
    assert describe({"model_type": "moss", "language_config": inner}).layers == describe(inner).layers
    # no_rope_layers has a 1 for layers with rotary positions, which are the chunked ones.
    places = [1, 0, 1, 1]
    scout = config("llama4_text", 5120, 4, 40, 8, attention_chunk_size=8192, no_rope_layers=places)
    assert [(kind.chunk, kind.count) for kind in describe(scout).layers] == [(8192, 3), (None, 1)]
    with pytest.raises(BadFile, match="give a number for each of its 4 layers"):
        describe(scout | {"no_rope_layers": [1, 0]})
    # EXAONE's pattern is text, and its last layer is global whatever the text says.
    exaone = config(
        "exaone4", 5120, 7, 40, 8, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG"
    )
    assert [(kind.window, kind.count) for kind in describe(exaone).layers] == [(4096, 5), (None, 2)]
    assert [kind.window for kind in describe(exaone | {"sliding_window": None}).layers] == [None]
    # MPT has its heads under names of its own, and ALiBi and grouped heads in an object.
    mpt = PUBLISHED["mpt-7b"]
    (kind,) = describe(mpt).layers
    assert (kind.H, kind.Hkv, kind.D, kind.alibi) == (32, 32, 128, True)
    (plain,) = describe(mpt | {"attn_config": {"alibi": False, "kv_n_heads": 8}}).layers
    assert (plain.H, plain.Hkv, plain.alibi) == (32, 8, False)


def test_what_stands_beside_attention_is_said() -> None:
    assert any("gated_output computes both" in note for note in describe(PUBLISHED["qwen3-next-80b"]).notes)
    different = describe(config("diffllama", 2048, 16, 32, 8))
    assert any("differential computes both at once" in note for note in different.notes)


def test_layers_without_softmax_attention_are_counted() -> None:
    assert describe(PUBLISHED["lfm2-1.2b"]).others == (("short convolution", 10),)


def test_the_query_and_value_of_latent_attention_keep_their_scale_in_both_forms() -> None:
    plain = kinds("deepseek-v3", rope_scaling=None)
    assert rule_of(plain[EXPANDED]) == ("scaled_dot", ())
    assert plain[EXPANDED].stages == ("prefill", "chunked")
    assert plain[ABSORBED].stages == ("decode",)
    assert math.isclose(plain[ABSORBED].scale, 192**-0.5)


# Traps


def test_features_are_width_over_heads_unless_the_config_says_another_number() -> None:
    assert only(config("llama", 4096, 32, 32, head_dim=None)).D == 128
    assert only(config("plamo2", 4096, 32, 32, hidden_size_per_head=96)).D == 96


@pytest.mark.parametrize(
    ("name", "layers", "sliding"),
    [("gemma-2-9b", 3, 2), ("gemma-3-27b", 7, 6), ("gemma-3-27b", 5, 5), ("gpt-oss-120b", 3, 2)],
)
def test_a_pattern_begins_with_sliding_layers(name: str, layers: int, sliding: int) -> None:
    fields = PUBLISHED[name].get("text_config", PUBLISHED[name])
    found = {kind.name: kind.count for kind in describe(fields | {"num_hidden_layers": layers}).layers}
    assert found == {SLIDING: sliding} | ({FULL: layers - sliding} if layers > sliding else {})


@pytest.mark.parametrize("said", [{}, {"num_key_value_heads": None}, {"num_key_value_heads": 0}])
def test_key_heads_are_as_many_as_query_heads_unless_a_number_is_said(said: Config) -> None:
    assert only(config("llama", 4096, 32, 32) | said).Hkv == 32


def test_falcon_has_one_key_head_whatever_its_number_says() -> None:
    assert kinds("falcon-7b", num_kv_heads=71)[FULL].Hkv == 1
    assert kinds("falcon-40b", num_kv_heads=8, multi_query=True)[FULL].Hkv == 8
    assert kinds("falcon-40b", n_head_kv=8)[FULL].Hkv == 8
    with pytest.raises(BadFile, match="n_head_kv = 8 and num_kv_heads = 16 contradict each other"):
        kinds("falcon-40b", n_head_kv=8, num_kv_heads=16)


def test_the_slopes_of_falcon_are_not_those_of_the_rule() -> None:
    with_alibi = config("falcon", 2048, 24, 32, alibi=True, multi_query=False)
    assert rule_of(only(with_alibi)) == ("alibi", ("ALiBi slopes that are divided by √D",))


def test_slopes_of_other_head_counts_and_of_a_part_of_the_heads_are_named() -> None:
    bloom = kinds("bloom-7b1")[FULL]
    assert rule_of(shard(bloom, 1))[1] == ()
    assert rule_of(shard(bloom, 4))[1] == ("the ALiBi slopes of a part of the heads",)
    assert rule_of(only(config("bloom", 14336, 70, 112)))[1] == (
        "the ALiBi slopes of 112 heads (the rule has those of powers of two)",
    )
    steeper = PUBLISHED["mpt-7b"] | {"attn_config": {"alibi": True, "alibi_bias_max": 16}}
    assert rule_of(only(steeper))[1] == ("ALiBi slopes down to 2^-16",)


def test_a_window_counts_only_where_it_is_used() -> None:
    assert kinds("qwen2.5-7b", use_sliding_window=False)[FULL].count == 28
    used = kinds("qwen2.5-7b", use_sliding_window=True, max_window_layers=20)
    assert (used[FULL].count, used[SLIDING].count, used[SLIDING].window) == (20, 8, 131072)
    without_the_word = {k: v for k, v in PUBLISHED["qwen2.5-7b"].items() if k != "use_sliding_window"}
    assert only(without_the_word).name == FULL


def test_layer_types_win_over_every_other_field() -> None:
    listed = kinds(
        "mistral-7b-v0.1",
        layer_types=["full_attention"] * 30 + ["sliding_attention"] * 2,
        use_sliding_window=False,
    )
    assert (listed[FULL].count, listed[SLIDING].count) == (30, 2)
    by_hand = kinds("gpt-oss-20b", layer_types=None)
    assert by_hand == kinds("gpt-oss-20b")


def test_a_chunk_size_that_is_not_used_makes_no_chunks() -> None:
    model = describe(config("mimo_v2_flash", 4096, 48, 64, 4, attention_chunk_size=128, head_dim=192))
    assert [kind.chunk for kind in model.layers] == [None]
    # SmolLM3 leaves out rotary positions as Llama 4 does, but has no chunks.
    assert only(config("smollm3", 2048, 36, 16, 4, no_rope_layer_interval=4)).name == FULL


def test_the_soft_cap_of_the_output_is_not_one_of_attention() -> None:
    assert only(config("gemma", 3072, 28, 16, 16, head_dim=256, final_logit_softcapping=30.0)).softcap is None


def test_other_fields_that_change_the_weights_are_named() -> None:
    for fields, words in (
        ({"scale_attn_by_inverse_layer_idx": True}, "another scale in each layer"),
        ({"compress_ratios": [4, 8]}, "compressed keys"),
    ):
        assert rule_of(only(config("llama", 4096, 32, 32) | fields))[1] == (words,)
    assert rule_of(only(PUBLISHED["gpt2"] | {"scale_attn_weights": False})) == ("dot", ())


def test_latent_attention_needs_no_width() -> None:
    fields = config("deepseek_v2", 2048, 27, 20, **MLA)  # 2048 is not a multiple of 20
    assert {(kind.H, kind.Hkv, kind.D, kind.Dv) for kind in describe(fields).layers} == {
        (20, 20, 192, 128), (20, 1, 576, 512),
    }  # fmt: skip


def test_head_sizes_that_one_version_of_transformers_writes_wrongly_are_pointed_out() -> None:
    fields = config("deepseek_v3", 7168, 61, 128, **MLA | {"qk_rope_head_dim": 128}, **YARN_V3)
    assert describe(fields).notes[0].startswith("qk_rope_head_dim = qk_nope_head_dim = 128: ")


def test_biases_of_projections_and_scales_of_queries_are_no_part_of_attention() -> None:
    for name, field in (("gpt-oss-20b", "attention_bias"), ("llama-4-scout", "attn_temperature_tuning")):
        fields = PUBLISHED[name]
        text = fields.get("text_config", fields)
        assert text[field]
        off = describe(text | {field: False})
        assert (off.layers, off.notes) == (describe(text).layers, ())


def test_mscale_counts_only_where_positions_are_stretched() -> None:
    plain = {"rope_type": "default", "factor": 32, "mscale_all_dim": 1.0}
    assert math.isclose(kinds("kimi-k2", rope_scaling=plain)[EXPANDED].scale, 192**-0.5)
    stretched = kinds("kimi-k2", rope_scaling=plain | {"rope_type": "yarn"})
    assert stretched[EXPANDED].scale == kinds("kimi-k2")[EXPANDED].scale > 192**-0.5


def test_new_words_for_kinds_of_layers_are_read() -> None:
    words = ["hybrid", "hybrid_sliding", "compressed_sparse_attention", "heavily_compressed_attention"]
    model = describe(config("llama", 4096, 4, 32, layer_types=words, sliding_window=128))
    assert {kind.name: (kind.count, kind.window) for kind in model.layers} == {
        FULL: (1, None), SLIDING: (1, 128), "compressed attention": (2, 128),
    }  # fmt: skip
    compressed = next(kind for kind in model.layers if kind.name == "compressed attention")
    assert rule_of(compressed)[1] == ("compressed keys beside those of a window",)


# Types that are not known


def test_what_is_assumed_of_an_unknown_type_is_named() -> None:
    model = describe(config("brand_new", 4096, 32, 32, 8, sliding_window=1024))
    assert [(kind.name, kind.window) for kind in model.layers] == [(SLIDING, 1024)]
    assert model.notes == (
        "the model type 'brand_new' is unknown: assumed attention in every layer, no sinks, causal "
        "self-attention, a scale of 1/√D, no soft cap, no ALiBi, a window of 1024 in 32 layers",
    )
    nameless = describe({k: v for k, v in PUBLISHED["gpt2"].items() if k != "model_type"}).notes[0]
    assert nameless.startswith("the config has no model_type: assumed")
    assert nameless.endswith("no soft cap, no ALiBi, no window")
    assert describe(PUBLISHED["llama-3.1-8b"]).notes == ()


def test_fields_of_an_unknown_type_are_used() -> None:
    capped = only(config("brand_new", 4096, 32, 32, attn_logit_softcapping=30.0, query_pre_attn_scalar=64))
    assert (capped.softcap, capped.scale) == (30.0, 0.125)


# What an encoder may be besides


def test_positions_in_the_scores_of_an_encoder_are_named() -> None:
    bert = PUBLISHED["bert-base"]
    assert rule_of(only(bert | {"position_embedding_type": "absolute"}))[1] == ()
    for word in ("relative_key", "relative_key_query", "alibi"):
        assert rule_of(only(bert | {"position_embedding_type": word}))[1] == (
            f"positions that change the scores ({word})",
        )


def test_bert_as_a_decoder_is_causal() -> None:
    kind = only(PUBLISHED["bert-base"] | {"is_decoder": True})
    assert (kind.causal, kind.padded, kind.stages) == (True, False, ("prefill", "chunked", "decode"))
    crossed = describe(PUBLISHED["bert-base"] | {"is_decoder": True, "add_cross_attention": True})
    assert crossed.others == (("cross-attention", 12),)


# What a case can't have


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("float8_e4m3fn", "no case can have the dtype 'float8_e4m3fn'"),
        (7, "no case can have the dtype 7"),
        (None, "the config names no dtype"),
    ],
)
def test_a_dtype_that_becomes_float32_is_named(dtype: object, words: str) -> None:
    model = describe(config("llama", 4096, 32, 32) | {"torch_dtype": dtype})
    assert (model.dtype, model.notes) == (None, (f"{words}: the cases have float32",))


def test_falcon_has_the_positions_of_its_family() -> None:
    names = [name for name in LAYERS if name.startswith(("falcon-7b", "falcon-40b"))]
    assert {describe(PUBLISHED[name]).limit for name in names} == {2048}


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"head_dim": 0}, "head_dim = 0 is ignored"),
        ({"max_position_embeddings": 0}, "max_position_embeddings = 0 is ignored"),
    ],
)
def test_fields_that_are_ignored_are_named(changed: Config, note: str) -> None:
    assert describe(config("llama", 4096, 32, 32) | changed).notes == (note,)


# Several devices


def test_tensor_parallel_devices_share_query_heads_and_repeat_few_key_heads() -> None:
    def heads(name: str, tp: int) -> set[tuple[int, int]]:
        return {(k.H, k.Hkv) for k in (shard(kind, tp) for kind in describe(PUBLISHED[name]).layers)}

    assert heads("llama-3.1-70b", 4) == {(16, 2)}
    assert heads("llama-3.1-70b", 16) == {(4, 1)}
    assert heads("kimi-k2", 8) == {(8, 8), (8, 1)}
    for name, tp in (("falcon-7b", 2), ("phi-4", 4)):  # 71 query heads; 10 key/value heads
        with pytest.raises(BadInput, match=f"--tp {tp}: .* can't be divided among {tp} devices"):
            heads(name, tp)


# Bad input


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_attention_heads": None}, "it has no attention heads: none of num_attention_heads, n_head"),
        ({"layer_types": "full_attention"}, "the kinds of its layers are full_attention: give a name"),
        ({"num_attention_heads": "32"}, "num_attention_heads = '32': give a whole number above 0"),
        ({"num_attention_heads": -1}, "num_attention_heads = -1: give a whole number above 0"),
        ({"n_head": 16}, "num_attention_heads = 32 and n_head = 16 contradict each other"),
        ({"num_key_value_heads": 5}, "its 32 query heads can't be shared evenly among 5 key/value heads"),
        ({"hidden_size": 999}, "it has no head_dim, and its width of 999 is not a multiple of its 32 heads"),
        ({"hidden_size": None}, "it has no hidden_size or n_embd"),
        ({"num_hidden_layers": None}, "it has no num_layers or num_hidden_layers or"),
        ({"num_hidden_layers": 10**9}, "it has 1000000000 layers: 10000 at most"),
        ({"layer_types": ["full_attention"] * 3}, "it names the kinds of 3 layers, but has 32"),
        ({"layer_types": ["sliding_attention"] * 32}, "it has no sliding_window"),
        ({"layer_types": 32}, "the kinds of its layers are 32: give a name for each"),
        ({"layer_types": ["mlp"] * 32}, "none of its layers computes softmax attention, or a"),
        ({"attn_logit_softcapping": 0}, "attn_logit_softcapping = 0: give a number above 0"),
        ({"query_pre_attn_scalar": "x"}, "query_pre_attn_scalar = 'x': give a number above 0"),
        ({"kv_lora_rank": 512}, "it has no qk_nope_head_dim"),
        ({"is_encoder_decoder": True, "decoder": {}}, "its encoder and decoder have configs of their own"),
        (
            {"attention_chunk_size": 8, "no_rope_layer_interval": 4, "no_rope_layers": 3},
            "no_rope_layers = 3: give",
        ),
    ],
)
def test_configs_that_contradict_themselves(changed: Config, words: str) -> None:
    with pytest.raises(BadFile) as caught:
        describe(config("llama", 4096, 32, 32, 32) | changed)
    assert str(caught.value).startswith(words)


def test_a_config_like_that_of_t5() -> None:
    t5 = dict(PUBLISHED["t5-base"])
    assert isinstance(t5, dict)
    plain = describe(t5)
    # The field is left out where it has the value of its type.
    del t5["is_encoder_decoder"]
    assert describe(t5).layers == plain.layers
    encoder = describe(t5 | {"is_encoder_decoder": False})
    assert [(kind.name, kind.H, kind.D, kind.causal) for kind in encoder.layers] == [
        ("encoder", 12, 64, False)
    ]
    alike = describe(t5 | {"model_type": "mine"})
    assert [(kind.H, kind.D) for kind in alike.layers] == [(12, 64)]
    with pytest.raises(BadFile, match="it has no attention heads"):
        describe({"model_type": "mine", "hidden_size": 64, "num_heads": 4, "head_dim": 16})
