"""Families whose configs say their attention in fields of their own, as published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from published import MLA, PUBLISHED, Config, config

from attnbench.cases.ids import case_id
from attnbench.cases.suites import parse_suite
from attnbench.masks import keep_rows
from attnbench.models.config import describe
from attnbench.models.layers import LayerKind, rule_of
from attnbench.models.suite import Lengths, model_suite
from attnbench.types.mask import mask_text, parse_mask

FULL, SLIDING = "full attention", "sliding attention"


def layers(fields: Config) -> dict[str, LayerKind]:
    """The kinds of layers by name."""
    return {kind.name: kind for kind in describe(fields).layers}


def unread(fields: Config) -> list[str]:
    """The notes about fields that were not read."""
    return [note for note in describe(fields).notes if note.startswith("not used, though")]


# Layers of one model with different heads


def test_sliding_layers_of_mimo_v2_have_more_key_heads_and_sinks() -> None:
    kinds = layers(
        config(
            "mimo_v2_flash", 4096, 48, 64, 4, head_dim=192, v_head_dim=128, sliding_window=128,
            hybrid_layer_pattern=[0, *[1] * 4, 0, *[1, 1, 1, 1, 1, 0] * 7], swa_num_attention_heads=64,
            swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, attention_chunk_size=128,
            add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
        )
    )  # fmt: skip
    assert {(k.name, k.count, k.Hkv, k.D, k.Dv, k.window, k.sinks) for k in kinds.values()} == {
        (FULL, 9, 4, 192, 128, None, False), (SLIDING, 39, 8, 192, 128, 128, True),
    }  # fmt: skip


def test_sliding_layers_of_step_3_5_have_more_heads_and_the_predicting_layers_are_not_counted() -> None:
    kinds = layers(
        config(
            "step3p5", 4096, 45, 64, head_dim=128, num_attention_groups=8, sliding_window=512,
            layer_types=["full_attention", *["sliding_attention"] * 3] * 12, num_nextn_predict_layers=3,
            attention_other_setting={
                "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
                "head_dim": 128,
            },
        )
    )  # fmt: skip
    assert {(k.name, k.count, k.H, k.Hkv) for k in kinds.values()} == {
        (FULL, 12, 64, 8),
        (SLIDING, 33, 96, 8),
    }


def test_full_layers_of_gemma_4_unified_have_larger_heads() -> None:
    kinds = layers(
        config(
            "gemma4_unified_text", 2304, 6, 8, 4, head_dim=256, sliding_window=1024,
            layer_types=[*["sliding_attention"] * 5, "full_attention"],
            per_layer_config={"05": {"head_dim": 512}}, use_bidirectional_attention="vision",
        )
    )  # fmt: skip
    assert {(k.name, k.count, k.D, k.scale) for k in kinds.values()} == {
        (SLIDING, 5, 256, 1),
        (FULL, 1, 512, 1),
    }


def test_blocks_of_nemotron_nas_differ_in_heads_and_some_have_no_attention() -> None:
    blocks = [
        {"n_heads_in_group": 8, "no_op": False}, {"n_heads_in_group": None, "no_op": True},
        {"n_heads_in_group": 16, "window_length": None}, {"n_heads_in_group": 8, "replace_with_linear": True},
        {"n_heads_in_group": 8, "window_length": 8192},
    ]  # fmt: skip
    model = describe(
        config("nemotron-nas", 8192, 5, 64, block_configs=[{"attention": block} for block in blocks])
    )
    assert [(kind.count, kind.Hkv) for kind in model.layers] == [(1, 8), (1, 4)]
    assert model.unknown == (("attention with window_length", 1),)


def test_an_encoder_of_longt5_sees_neighbours_and_a_summary_of_each_sixteen_tokens() -> None:
    tglobal = PUBLISHED["long-t5-tglobal-base"]
    kinds = layers(tglobal)
    assert [(kind.window, kind.summaries, kind.buckets) for kind in kinds.values()] == [
        (128, 16, (32, 128)), (None, None, (32, 128)), (None, None, None),
    ]  # fmt: skip
    assert shapes(tglobal) >= {("window:128+padding+first:64", 1088)}
    assert shapes(PUBLISHED["long-t5-local-base"]) >= {("window:128+padding", 1024)}
    # Query i stands at key 64 + i, sees the 64 summaries and its neighbours, and no more.
    made = parse_suite(model_suite(describe(tglobal), Lengths((1024,), (), (), (1,))).text, "its")
    (case,) = [case for case in made.cases if case.Lk == 1088]
    kept = keep_rows(replace(case, mask=case.mask.without(parse_mask("padding"))), np.array([500]))
    assert kept is not None
    tokens = np.flatnonzero(kept[0, 0, 0]) - 64
    np.testing.assert_array_equal(tokens, [*range(-64, 0), *range(500 - 127, 500 + 128)])
    assert any("a summary of each 16 tokens" in note for note in describe(tglobal).notes)


def test_layers_that_a_pass_runs_several_times_are_counted_so() -> None:
    kinds = layers(
        config(
            "dory", 2560, 8, 16, 4, head_dim=256, sliding_window=1024, n_input_layers=2, n_recurrent_layers=4,
            n_recurrent_loops=3, layer_types=["sliding_attention", "mlp", "full_attention", "mlp"] * 2,
        )
    )  # fmt: skip
    assert {(k.name, k.count) for k in kinds.values()} == {(SLIDING, 4), (FULL, 4)}


# Layers without softmax attention

HYBRIDS: list[tuple[Config, int, tuple[tuple[str, int], ...]]] = [
    (config("lfm2", 2048, 16, 32, 8, full_attn_idxs=[2, 5, 8, 10, 12, 14]), 6, (("short convolution", 10),)),
    (
        config(
            "recurrent_gemma", 2560, 26, 10, 1, head_dim=256,
            block_types=["recurrent", "recurrent", "attention"],
        ),
        8, (),
    ),
    (
        {
            "model_type": "nemotron_h", "hidden_size": 4096, "num_attention_heads": 32,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        },
        1, (("linear_attention", 1),),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "number", "others"), HYBRIDS, ids=lambda one: str(one)[16:30])
def test_attention_layers_of_hybrids_are_counted_and_the_others_named(
    fields: Config, number: int, others: tuple[tuple[str, int], ...]
) -> None:
    model = describe(fields)
    assert {kind.count for kind in model.layers if not kind.update} == {number}
    assert (model.others, model.unknown) == (others, ())
    assert not unread(fields)


def test_an_unknown_kind_of_layer_is_called_unknown() -> None:
    fields = config("llama", 64, 2, 4, layer_types=["full_attention", "resonant_attention"])
    model = describe(fields)
    assert (model.others, model.unknown) == ((), (("resonant_attention", 1),))
    notes = model_suite(model, Lengths((16,), (), (), (1,))).notes
    assert "left out: resonant_attention (1 layer): attnbench does not know this kind of layer" in notes


def test_attention_to_images_is_named_and_not_counted_as_self_attention() -> None:
    model = describe(config("mllama_text_model", 4096, 40, 32, 8, cross_attention_layers=[3, 8, 13]))
    assert ([kind.count for kind in model.layers], model.unknown) == ([37], ())
    assert model.others == (("cross-attention", 3),)


# Scales, patterns, both directions


def test_gemma_3n_does_not_scale() -> None:
    assert rule_of(layers(config("gemma3n_text", 2048, 35, 8, 2, head_dim=256))[FULL]) == ("dot", ())


def test_the_pattern_of_exaone_4_is_a_text() -> None:
    fields = config(
        "exaone4", 5120, 64, 40, 8, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG"
    )
    assert {name: kind.count for name, kind in layers(fields).items()} == {SLIDING: 48, FULL: 16}


def shapes(fields: Config, length: int = 1024) -> set[tuple[str, int]]:
    """The masks and lengths of the cases of one length."""
    made = model_suite(describe(fields), Lengths((length,), (), (), (1,)))
    return {(mask_text(case.mask), case.Lk) for case in parse_suite(made.text, "its").cases}


def test_modernbert_sees_both_sides_of_a_window_in_two_of_three_layers() -> None:
    fields = config("modernbert", 768, 22, 12, local_attention=128, global_attn_every_n_layers=3)
    assert {name: kind.count for name, kind in layers(fields).items()} == {
        "encoder": 8,
        "sliding encoder": 14,
    }
    assert shapes(fields) == {("padding", 1024), ("window:65+padding", 1024)}


def test_embedding_gemma_sees_both_directions() -> None:
    fields = config(
        "gemma3_text", 768, 24, 3, 1, head_dim=256, sliding_window=512, use_bidirectional_attention=True
    )
    assert {(k.window, k.causal) for k in layers(fields).values()} == {(257, False), (None, False)}


@pytest.mark.parametrize(
    ("architecture", "causal"),
    [("NewForMaskedLM", False), ("NomicBertModel", False), ("NewForCausalLM", True), ("NewModel", True)],
)
def test_an_unknown_encoder_is_not_assumed_causal(architecture: str, causal: bool) -> None:
    model = describe(config("new", 768, 12, 12, architectures=[architecture]))
    assert [kind.causal for kind in model.layers] == [causal]
    assert ("causal self-attention" in model.notes[0]) == causal


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        (
            config(
                "dinov2_with_registers", 768, 12, 12, image_size=518, patch_size=14, num_register_tokens=4
            ),
            1374,
        ),
        (config("dinov3_vit", 384, 12, 6, image_size=512, patch_size=16, num_register_tokens=4), 1029),
        (config("siglip2_vision_model", 768, 12, 12, num_patches=256, patch_size=16), 256),
        (config("internvl_vision", 1024, 24, 16, image_size=[448, 224], patch_size=[14, 14]), 513),
    ],
)
def test_images_have_registers_too(fields: Config, tokens: int) -> None:
    kind = describe(fields).layers[0]
    assert (kind.tokens, kind.causal) == (tokens, False)


# Keys that an indexer chooses

LONGER = (
    ("Lq8192-Lk8192", "causal"), ("Lq512-Lk4096", "causal:lower_right"), ("Lq1-Lk4096", "none"),
)  # fmt: skip


@pytest.mark.parametrize("named", [{}, {"layer_types": ["indexed_attention"] * 61}])
def test_an_indexed_layer_is_dense_up_to_the_keys_that_it_chooses(named: Config) -> None:
    sizes = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    model = describe(config("deepseek_v32", 7168, 61, 128, **MLA, **sizes, **named))
    made = model_suite(model, Lengths((2048, 8192), ((512, 4096),), (1024, 4096), (1,)))
    latent, own = "scaled_dot@scale=0.07216878", "bfloat16/cpu/forward"
    assert [case_id(case) for case in parse_suite(made.text, "").cases] == [
        f"attention/scaled_dot/B1-H128-Lq2048-Lk2048-D192-Dv128/causal/{own}",
        f"attention/{latent}/B1-H128-Hkv1-Lq1-Lk1024-D576-Dv512/none/{own}/kv=latent",
        *(
            f"selected/{latent}/B1-H128-Hkv1-{sizes}-D576-Dv512-top2048/{mask}/{own}/kv=latent"
            for sizes, mask in LONGER
        ),
        *(f"select/scaled_dot/B1-H64-Hkv1-{sizes}-D128-top2048/{mask}/{own}" for sizes, mask in LONGER),
    ]
    assert not [note for note in made.notes if "left out" in note]
    # A step has each sequence once; every device chooses by all heads of the indexer.
    step = model_suite(model, Lengths(sequences="2q1s1k_q512s4k_q1s8k"), tp=8)
    assert [(case.operation, case.H, case.kv, case.batch) for case in parse_suite(step.text, "").cases] == [
        ("attention", 16, "latent", "2q1s1k"), ("selected", 16, "latent", "q512s4k_q1s8k"),
        ("select", 64, "dtype", "q512s4k_q1s8k"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "indexers"),
    [
        ({}, 6),
        ({"indexer_types": ["full", "shared", "shared"] * 2}, 2),
        ({"index_topk_pattern": "FFSSFS"}, 3),
        # Layers 0, 1, 3 and 5.
        ({"index_topk_freq": 2}, 4),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 3),
    ],
)
def test_layers_that_share_a_choice_have_no_indexer(said: Config, indexers: int) -> None:
    sizes = {"index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128}
    model = describe(config("glm_moe_dsa", 6144, 6, 64, **MLA, **sizes, **said))
    counts = {kind.selection: kind.count for kind in model.layers if kind.selection}
    assert counts == {"selected": 6, "select": indexers}


# Fields that were not read


def test_fields_that_were_not_read_and_may_change_attention_are_named() -> None:
    odd = {
        "num_sink_tokens": 4, "head_gate_scale": 0.5, "use_swapped_attn": True, "window_ratio": [1, 2],
        "layer_norm_eps": 1e-5, "attention_bias": True, "some_attention": None, "local_flag": False,
        "rope_theta": 1e6, "hidden_act": "silu",
    }  # fmt: skip
    fields = config("llama", 4096, 32, 32) | odd
    assert unread(fields) == [
        "not used, though they may change attention: num_sink_tokens = 4, head_gate_scale = 0.5, "
        "use_swapped_attn = True, window_ratio = [1, 2]"
    ]


# Nested configs


def test_the_text_part_is_found_however_deep_it_lies() -> None:
    text = config("qwen2", 3584, 28, 28, 4)
    nested = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": text, "audio_config": {}}}
    nested["talker_config"] = config("qwen2", 896, 24, 12, 4)
    model = describe(nested)
    assert (model.type, model.layers) == ("qwen2", describe(text).layers)
    lengths = "no field says how many tokens it has, so its input decides"
    assert f"audio_config is left out: {lengths}" in model.notes
    assert "talker_config is left out: attnbench does not read this part" in model.notes
    assert describe({"model_type": "internvl_chat", "llm_config": text}).layers == model.layers
    # Qwen2.5-VL, as first published, has the fields of the text beside the config of its images.
    beside = describe(text | {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32, "patch_size": 14}})
    assert beside.layers == model.layers
    assert f"vision_config is left out: {lengths}" in beside.notes
