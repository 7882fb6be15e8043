"""The fields of published configs that decide about attention, written from the models' published facts."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

MLA = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
YARN_V3 = {"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}}
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"


def config(
    model_type: str, width: int, layers: int, heads: int, kv: int | None = None, **more: Any
) -> Config:
    """A config with the names that most have."""
    fields = {"model_type": model_type, "hidden_size": width, "num_hidden_layers": layers}
    fields |= {"torch_dtype": "bfloat16"}
    return (
        fields | {"num_attention_heads": heads} | ({} if kv is None else {"num_key_value_heads": kv}) | more
    )


NEMOTRON_H = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}
NEMOTRON_H_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
KIMI = [4, 8, 12, 16, 20, 24, 27]
NAS_WITHOUT = {6, 7, 11, *range(42, 52), *range(53, 71)}
"""The blocks of Nemotron-Super without attention."""
ZAMBA = [6, *range(11, 78, 6)]

PUBLISHED: dict[str, Config] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024},
    "bert-base": config("bert", 768, 12, 12, max_position_embeddings=512, vocab_size=30522),
    "vit-b16": config("vit", 768, 12, 12, image_size=224, patch_size=16),
    "whisper-large-v3": {
        "model_type": "whisper", "torch_dtype": "float16",
        "is_encoder_decoder": True, "d_model": 1280, "encoder_layers": 32,
        "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
        "num_hidden_layers": 32, "max_source_positions": 1500, "max_target_positions": 448,
    },
    "llama-3.1-8b": config("llama", 4096, 32, 32, 8, max_position_embeddings=131072, torch_dtype="bfloat16"),
    "llama-3.1-70b": config("llama", 8192, 80, 64, 8, max_position_embeddings=131072),
    "llama-4-scout": {
        "model_type": "llama4",
        "text_config": config(
            "llama4_text", 5120, 48, 40, 8, head_dim=128, attention_chunk_size=8192, no_rope_layers=[],
            use_qk_norm=True, attn_temperature_tuning=4, floor_scale=8192, attn_scale=0.1,
            max_position_embeddings=10485760,
        ),
        "vision_config": config("llama4_vision_model", 1408, 34, 16, image_size=336, patch_size=14),
    },
    "qwen2.5-7b": config(
        "qwen2", 3584, 28, 28, 4, use_sliding_window=False, sliding_window=131072, max_window_layers=28
    ),
    "qwen3-8b": config("qwen3", 4096, 36, 32, 8, head_dim=128, use_sliding_window=False, sliding_window=None),
    "qwen3-32b": config("qwen3", 5120, 64, 64, 8, head_dim=128, sliding_window=None),
    "mistral-7b-v0.1": config("mistral", 4096, 32, 32, 8, sliding_window=4096),
    "mistral-7b-v0.2": config("mistral", 4096, 32, 32, 8, sliding_window=None),
    "gemma-2-9b": config(
        "gemma2", 3584, 42, 16, 8, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0, max_position_embeddings=8192,
    ),
    "gemma-2-27b": config(
        "gemma2", 4608, 46, 32, 16, head_dim=128, sliding_window=4096, query_pre_attn_scalar=144,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0, max_position_embeddings=8192,
    ),
    "gemma-3-4b": {  # its heads are left to the defaults of transformers
        "model_type": "gemma3",
        "text_config": {
            "torch_dtype": "bfloat16", "model_type": "gemma3_text",
            "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024,
        },
    },
    "gemma-3-27b": {
        "model_type": "gemma3",
        "text_config": config(
            "gemma3_text", 5376, 62, 32, 16, head_dim=128, query_pre_attn_scalar=168, sliding_window=1024
        ),
    },
    "gemma-3-27b, with its images": {
        "model_type": "gemma3", "mm_tokens_per_image": 256,
        "text_config": config(
            "gemma3_text", 5376, 62, 32, 16, head_dim=128, query_pre_attn_scalar=168, sliding_window=1024
        ),
        "vision_config": config(
            "siglip_vision_model", 1152, 27, 16, image_size=896, patch_size=14, vision_use_head=False
        ),
    },
    "gpt-oss-20b": config(
        "gpt_oss", 2880, 24, 64, 8, head_dim=64, sliding_window=128, attention_bias=True,
        layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "gpt-oss-120b": config("gpt_oss", 2880, 36, 64, 8, head_dim=64, sliding_window=128, attention_bias=True),
    "deepseek-v3": config("deepseek_v3", 7168, 61, 128, 128, **MLA, **YARN_V3),
    "deepseek-v3.2": config(
        "deepseek_v32", 7168, 61, 128, 128, **MLA, **YARN_V3, index_topk=2048, index_head_dim=128,
        index_n_heads=64,
    ),
    "kimi-k2": config(
        "kimi_k2", 7168, 61, 64, 64, **MLA,
        rope_scaling={"type": "yarn", "factor": 32, "mscale_all_dim": 1.0},
    ),
    "longcat-flash": {
        "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
        **MLA, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    },
    "phi-3-mini-4k": config("phi3", 3072, 32, 32, 32, sliding_window=2047, max_position_embeddings=4096),
    "phi-4": config("phi3", 5120, 40, 40, 10, sliding_window=None, max_position_embeddings=16384),
    "falcon-7b": config(
        "falcon", 4544, 32, 71, alibi=False, multi_query=True, new_decoder_architecture=False, num_kv_heads=71
    ),
    "falcon-40b": config("falcon", 8192, 60, 128, alibi=False, new_decoder_architecture=True, num_kv_heads=8),
    "falcon-40b, as first published": {
        "model_type": "RefinedWeb", "torch_dtype": "bfloat16",
        "hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8,
        "alibi": False,
    },
    "falcon-7b, as first published": {
        "model_type": "RefinedWebModel", "torch_dtype": "bfloat16", "hidden_size": 4544, "n_layer": 32,
        "n_head": 71, "multi_query": True, "alibi": False,
    },
    "qwen3-next-80b": config(
        "qwen3_next", 2048, 48, 16, 2, head_dim=256, full_attention_interval=4, max_position_embeddings=262144
    ),
    "qwen3.5-9b": {  # as the example of its class in transformers says, whose defaults these are
        "model_type": "qwen3_5",
        "text_config": config(
            "qwen3_5_text", 4096, 32, 16, 4, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=32,
            linear_key_head_dim=128, linear_value_head_dim=128, max_position_embeddings=32768,
            layer_types=[*["linear_attention"] * 3, "full_attention"] * 8,
        ),
    },
    "granite-4.0-h-small": config(  # sizes of its model card; 1/128 as of Granites with such heads
        "granitemoehybrid", 4096, 40, 32, 8, attention_multiplier=0.0078125, mamba_n_heads=128,
        mamba_d_state=128, mamba_d_head=64, mamba_n_groups=1, mamba_expand=2,
        layer_types=["attention" if place % 10 == 5 else "mamba" for place in range(40)],
    ),
    "falcon-h1-7b": config(  # the table of transformers' page on the type; the groups of its class
        "falcon_h1", 3072, 44, 12, 2, head_dim=128, mamba_d_ssm=3072, mamba_n_heads=24, mamba_d_head=128,
        mamba_d_state=256, mamba_n_groups=1,
    ),
    "zamba2-7b": config(
        "zamba2", 3584, 81, 32, 32, attention_head_dim=224, hybrid_layer_ids=ZAMBA, n_mamba_heads=112,
        mamba_d_state=64, mamba_expand=2, mamba_ngroups=2, mamba_headdim=64,
        layers_block_type=["hybrid" if place in ZAMBA else "mamba" for place in range(81)],
    ),
    "mpt-7b": {
        "model_type": "mpt", "torch_dtype": "bfloat16",
        "d_model": 4096, "n_heads": 32, "n_layers": 32, "max_seq_len": 2048,
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "softmax_scale": None, "prefix_lm": False},
    },
    "dbrx": {
        "model_type": "dbrx", "torch_dtype": "bfloat16",
        "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "attn_config": {"model_type": "", "clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    },
    "glm-4.5": config("glm4_moe", 5120, 92, 96, 8, head_dim=128, attention_bias=True, use_qk_norm=True),
    "ernie-4.5-21b": config("ernie4_5_moe", 2560, 28, 20, 4, head_dim=128),
    "nemotron-super-49b": config(
        "nemotron-nas", 8192, 80, 64, num_key_value_heads=None, max_position_embeddings=131072,
        block_configs=[
            {
                "attention": {
                    "n_heads_in_group": None if place in NAS_WITHOUT else 8, "no_op": place in NAS_WITHOUT,
                    "num_sink_tokens": None, "replace_with_linear": False, "sparsify": None,
                    "unshifted_sink": False, "use_prefill_window_in_sink_attention": False,
                    "window_length": None,
                },
                "ffn": {"ffn_mult": 5.25, "no_op": False, "replace_with_linear": False, "sparsify": None},
            }
            for place in range(80)
        ],
    ),
    "mimo-7b": config("mimo", 4096, 36, 32, 8, head_dim=128, sliding_window=32768, use_sliding_window=False),
    "nemotron-3-nano": config(
        "nemotron_3", 2688, 52, 32, 2, head_dim=128, hybrid_override_pattern=NANO, mamba_num_heads=64,
        mamba_head_dim=64, ssm_state_size=128, n_groups=8,
    ),
    "granite-3.0-8b": config("granite", 4096, 40, 32, 8, attention_multiplier=0.0078125),
    "bloom-7b1": {
        "model_type": "bloom", "torch_dtype": "float16", "n_embed": 4096, "num_attention_heads": 32,
        "n_layer": 30,
    },
    "t5-base": {
        "model_type": "t5", "is_encoder_decoder": True, "d_model": 768, "d_kv": 64, "num_heads": 12,
        "num_layers": 12, "num_decoder_layers": 12, "n_positions": 512,
    },
    "umt5-small": {
        "model_type": "umt5", "is_encoder_decoder": True, "d_model": 512, "d_kv": 64, "num_heads": 6,
        "num_layers": 8, "num_decoder_layers": 8,
    },
    **{
        f"long-t5-{name}": {
            "model_type": "longt5", "is_encoder_decoder": True, "d_model": 768, "d_kv": 64, "num_heads": 12,
            "num_layers": 12, "num_decoder_layers": 12, "n_positions": 4096, "local_radius": 127,
            "encoder_attention_type": type_, "global_block_size": 16,
        }
        for name, type_ in (("local-base", "local"), ("tglobal-base", "transient-global"))
    },
    "t5gemma-2b-2b": {
        "model_type": "t5gemma", "is_encoder_decoder": True, "torch_dtype": "bfloat16",
        **dict.fromkeys(
            ("encoder", "decoder"),
            config(
                "t5_gemma_module", 2304, 26, 8, 4, head_dim=256, sliding_window=4096,
                attn_logit_softcapping=50.0, query_pre_attn_scalar=256, max_position_embeddings=8192,
            ),
        ),
    },
    "gemma-4-e2b, ten of its layers": {
        "model_type": "gemma4",
        "text_config": config(
            "gemma4_text", 1536, 10, 8, 1, head_dim=256, global_head_dim=512, sliding_window=512,
            layer_types=[*["sliding_attention"] * 4, "full_attention"] * 2,
        ),
    },
    "chatglm2-6b": {
        "model_type": "chatglm", "torch_dtype": "float16",
        "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28,
        "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128, "seq_length": 32768,
    },
    "roberta-base": config("roberta", 768, 12, 12, max_position_embeddings=514),
    "bart-large": {
        "model_type": "bart", "is_encoder_decoder": True, "d_model": 1024, "encoder_layers": 12,
        "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "num_hidden_layers": 12, "max_position_embeddings": 1024,
    },
    "mamba-130m": {
        "model_type": "mamba", "torch_dtype": "float32",
        "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16,
        "intermediate_size": 1536, "time_step_rank": 48,
    },
    "mamba-codestral-7b": {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128,
        "head_dim": 64, "state_size": 128, "n_groups": 8, "expand": 2, "torch_dtype": "bfloat16",
    },
    "falcon-mamba-7b": {
        "model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16,
        "intermediate_size": 8192, "time_step_rank": 256, "torch_dtype": "bfloat16",
    },
    "mimo-v2-flash": config(
        "mimo_v2_flash", 4096, 48, 64, 4, head_dim=192, v_head_dim=128, sliding_window=128,
        hybrid_layer_pattern=[0, *[1] * 4, 0, *[1, 1, 1, 1, 1, 0] * 7], swa_num_attention_heads=64,
        swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, attention_chunk_size=128,
        add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
    ),
    "step-3.5-flash": config(
        "step3p5", 4096, 45, 64, head_dim=128, num_attention_groups=8, sliding_window=512,
        layer_types=["full_attention", *["sliding_attention"] * 3] * 12, num_nextn_predict_layers=3,
        attention_other_setting={
            "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
            "head_dim": 128,
        },
    ),
    "gemma-3n-e4b": config(
        "gemma3n_text", 2048, 35, 8, 2, head_dim=256, sliding_window=512,
        layer_types=[*["sliding_attention"] * 4, "full_attention"] * 7, max_position_embeddings=32768,
    ),
    "jamba-v0.1": config("jamba", 4096, 32, 32, 8, attn_layer_period=8, attn_layer_offset=4),
    "minimax-text-01": config(
        "minimax_text_01", 6144, 80, 64, 8, head_dim=128, attn_type_list=[*[0] * 7, 1] * 10
    ),
    "kimi-linear-48b": config(
        "kimi_linear", 2304, 27, 32, **MLA | {"q_lora_rank": None},
        linear_attn_config={
            "full_attn_layers": KIMI, "kda_layers": [i for i in range(1, 28) if i not in KIMI],
            "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        },
    ),
    "lfm2-1.2b": config("lfm2", 2048, 16, 32, 8, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
    "modernbert-base": config(
        "modernbert", 768, 22, 12, local_attention=128, global_attn_every_n_layers=3,
        max_position_embeddings=8192,
    ),
    "dinov2-base, with registers": config(
        "dinov2_with_registers", 768, 12, 12, image_size=518, patch_size=14, num_register_tokens=4
    ),
    "dinov3-vits16, at 512": config(
        "dinov3_vit", 384, 12, 6, image_size=512, patch_size=16, num_register_tokens=4
    ),
    "siglip-so400m": config("siglip_vision_model", 1152, 27, 16, image_size=384, patch_size=14),
    "siglip2-base, naflex": config("siglip2_vision_model", 768, 12, 12, num_patches=256, patch_size=16),
    "exaone-4-32b": config(
        "exaone4", 5120, 64, 40, 8, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG",
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 16, max_position_embeddings=131072,
    ),
    "embedding-gemma-300m": config(
        "gemma3_text", 768, 24, 3, 1, head_dim=256, sliding_window=512, use_bidirectional_attention=True,
        max_position_embeddings=2048,
    ),
    "glm-5": config(
        "glm_moe_dsa", 6144, 78, 64, 64, q_lora_rank=2048, kv_lora_rank=512, qk_nope_head_dim=192,
        qk_rope_head_dim=64, v_head_dim=256, index_topk=2048, index_head_dim=128, index_n_heads=32,
        layer_types=["indexed_attention"] * 78, max_position_embeddings=202752,
    ),
    "gemma-4-unified": {
        "model_type": "gemma4_unified",
        "text_config": config(
            "gemma4_unified_text", 2304, 30, 8, 4, head_dim=256, sliding_window=1024,
            layer_types=[*["sliding_attention"] * 5, "full_attention"] * 5,
            per_layer_config={f"{place:02}": {"head_dim": 512} for place in range(5, 30, 6)},
            use_bidirectional_attention="vision", max_position_embeddings=262144,
        ),
    },
    "nemotron-h-8b": {
        "model_type": "nemotron_h", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
        "layers_block_type": [NEMOTRON_H[letter] for letter in NEMOTRON_H_8B],
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    },
    "recurrent-gemma-2b": config(
        "recurrent_gemma", 2560, 26, 10, 1, head_dim=256,
        block_types=["recurrent", "recurrent", "attention"],
    ),
}  # fmt: skip

GROUND_TRUTH = "vLLM's ground truth"
CONFIG = "published config"
FACTS: dict[str, tuple[str, tuple[tuple[int, int, int, int, int], ...]]] = {
    "mpt-7b": (GROUND_TRUTH, ((32, 32, 32, 128, 128),)),
    "mimo-7b": (GROUND_TRUTH, ((36, 32, 8, 128, 128),)),
    "nemotron-super-49b": (CONFIG, ((49, 64, 8, 128, 128),)),
    # transformers repeats its key/value heads before it calls torch's function.
    "falcon-40b": (GROUND_TRUTH, ((60, 128, 8, 64, 64),)),
    "falcon-7b, as first published": (GROUND_TRUTH, ((32, 71, 1, 64, 64),)),
    "falcon-40b, as first published": (GROUND_TRUTH, ((60, 128, 8, 64, 64),)),
    "bloom-7b1": (CONFIG, ((30, 32, 32, 128, 128),)),
    "chatglm2-6b": (CONFIG, ((28, 32, 2, 128, 128),)),
    "minimax-text-01": (CONFIG, ((10, 64, 8, 128, 128), (70, 64, 64, 128, 128))),
}
"""Where transformers does not build a type: the source, and how many layers have which H, Hkv, D, Dv."""
