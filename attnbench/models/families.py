"""Facts of model types beyond the fields of their configs.

Sources: transformers, ``configuration_*.py`` and ``modeling_*.py`` of each type; vLLM,
``transformers_utils/model_arch_config_convertor.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

WORDS = {
    **dict.fromkeys(("full_attention", "attention", "hybrid", "*"), "full"),
    **dict.fromkeys(("sliding_attention", "hybrid_sliding"), "sliding"),
    "chunked_attention": "chunked",
    "indexed_attention": "indexed",
    **dict.fromkeys(("compressed_sparse_attention", "heavily_compressed_attention"), "compressed"),
    "M": "mamba",
    **dict.fromkeys(("mlp", "moe", "-", "E"), ""),
}
"""The words of configs for kinds of layers; "" for those that mix no tokens."""

RECURRENT = (
    "mamba", "mamba2", "linear_attention", "gated_delta_net", "kda", "recurrent", "rglru", "conv", "ssm",
)  # fmt: skip
"""Words for layers that mix tokens without softmax attention; words that stand nowhere here are unknown."""

ENCODERS = "Bert|ForMasked|Vision(Model|Transformer)|ViT|Dino|ForImageClassification"
DECODERS = "ForCausalLM|LMHead|Decoder|ForConditionalGeneration"
"""Patterns in the names of architectures of unknown types."""

SEES_IMAGES_WHOLE = ("gemma3",)
"""Types of models of text and images in which all tokens of an image see each other in every layer."""

SEES_PROMPTS_WHOLE = ("paligemma",)
"""Types in which all tokens of a prompt see each other."""

MATTERS = "head|attn|attention|window|swa|sink|local|global|layer_|pattern|scale|softcap|register|index_"
"""A pattern in the names of fields that may change attention."""

HARMLESS = (
    "*_bias", "*dropout*", "*_pdrop", "*_prob", "*layer_norm*", "*layernorm*", "*_init*", "*init_*", "*_eps",
    "*norm_*", "lm_head*", "router_*", "route_*", "routed_*", "moe_*", "mlp_*", "expert_*", "*_experts",
    "shared_expert*", "interleave_moe*", "linear_*", "mamba_*", "n_mamba_heads", "time_step*", "rescale_*",
    "scale_emb*", "embedding_scale", "scale_depth", "logit_scale", "final_logit*", "logits_*",
    "*_per_layer_*",
    "hidden_size_per_layer_*", "altup_*", "activation_*", "*softmax_in_fp32", "scale_attention_softmax*",
    "attention_in_multiplier", "attention_out_multiplier", "attention_value_scale", "attention_hidden_size",
    "full_attn_alpha_factor", "full_attn_beta_factor", "layer_rope_theta", "use_attention_gate",
    "use_head_wise_attn_gate", "use_qk_norm", "parallel_attn", "hc_*", "swiglu_*", "attn_temperature_tuning",
    "attn_scale", "floor_scale", "index_head_dim", "index_n_heads", "num_local_experts", "*_dim_head",
    "head_dim", "qk_head_dim", "v_head_dim", "num_key_value_heads", "num_kv_heads", "layer_scale*",
    "layerscale*", "embeddings_scale*", "expand_*", "use_flash_attn*",
    "_flash_attn*", "_attn_implementation*", "attn_implementation",
    "num_nextn_predict_layers", "max_source_positions", "decoder_attention_heads",
    "encoder_attention_heads", "cross_attention_hidden_size", "qkv_*", "global_block_size",
    "scale_decoder_outputs", "*_rescale", "mtp_*",
)  # fmt: skip
"""Fields, as patterns, that MATTERS finds though they change nothing, or only where other fields say so."""

KINDS = (
    "layer_types", "sliding_window*", "_sliding_window_pattern", "use_sliding_window", "max_window_layers",
    "attention_chunk_size", "no_rope_layer*", "full_attn_idxs", "attn_layer_*", "global_attn_every_n_layers",
    "hybrid_layer_*", "cross_attention_layers", "layer_group_size", "local_attention", "attn_type_list",
    "add_cross_attention", "prefix_dense_sliding_window_pattern", "attention_window_size", "swa_*",
    "loop_layer_*",
)  # fmt: skip
"""Fields, as patterns, that say the kinds of layers: where one is read, the others count for nothing."""


@dataclass(frozen=True)
class ModelFamily:
    """The facts of a model type that its configs leave out.

    defaults: fields with the values they have where a config leaves them out. encoder: all tokens see each
    other. each_side: an encoder's window counts the keys of one side, not of both; uneven: one of an even
    number has one later key more than earlier ones.
    sinks: the weights hold a sink for each head. scale: of the dot products, if neither a field nor D
    gives it. biased: T5's bias is added to the scores. width: the width of the attention over
    that of the model; with more than 1, the scale is that of D / width. per_layer: attentions in a layer.
    reserved: positions that no token can have. class_tokens: of a vision model, the tokens beside those of
    the image; pooled: at last one query sees them all, unless ``vision_use_head`` is false. beyond: in words,
    what else its self-attention computes; slopes: the same, of ALiBi. recurrent: no layer computes attention.
    beside: the word of the recurrent layer that each of its attention layers has beside it, or behind it; ""
    for none.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    encoder: bool = False
    each_side: bool = False
    uneven: bool = False
    sinks: bool = False
    scale: float | None = None
    biased: bool = False
    width: int = 1
    per_layer: int = 1
    reserved: int = 0
    class_tokens: int = 1
    pooled: bool = False
    beyond: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()
    recurrent: bool = False
    beside: str = ""


_FALCON = ModelFamily({"max_position_embeddings": 2048}, slopes=("ALiBi slopes that are divided by √D",))
_QWEN = ModelFamily({"use_sliding_window": False, "max_window_layers": 28})
_GEMMA_3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
    "query_pre_attn_scalar": 256, "sliding_window_pattern": 6, "max_position_embeddings": 131072,
}  # fmt: skip
_GEMMA_2 = _GEMMA_3 | {
    "attn_logit_softcapping": 50.0, "sliding_window_pattern": 2, "max_position_embeddings": 8192,
}  # fmt: skip

_GATED_DELTA = {
    "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}  # fmt: skip

_MAMBA_1 = {"mamba_dt_rank": "auto", "mamba_d_state": 16, "mamba_expand": 2}

_MAMBA_2 = {
    "block_types": ["mamba"], "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "state_size": 128,
    "n_groups": 8,
}  # fmt: skip

_PLAIN = (
    "chatglm", "clip_text_model", "cohere", "dbrx", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "ernie4_5", "ernie4_5_moe", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt2", "gpt_bigcode",
    "gpt_neox", "gptj", "granite", "granitemoe", "internlm2", "kimi_k2", "llama", "mixtral", "mpt",
    "nemotron", "nemotron_3", "nemotron_h", "nemotron-nas", "olmo", "olmo2", "opt", "phi", "phi3",
    "stablelm", "starcoder2",
)  # fmt: skip
"""Types whose configs say everything."""

_ENCODERS = (
    "albert", "bert", "bert-generation", "distilbert", "electra", "ernie", "eurobert", "nomic_bert",
    "roc_bert", "siglip_text_model", "siglip2_text_model", "clip_vision_model", "dinov2",
    "dinov2_with_registers", "dinov3_vit", "internvl_vision", "llama4_vision_model", "vit",
    "qwen2_audio_encoder", "voxtral_encoder",
)  # fmt: skip
"""Types of encoders of text, images and sound whose configs say everything else."""

MERGED = ("t5gemma2_decoder",)
"""Types of decoders whose own keys and those of the encoder share one softmax."""

GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Types whose attention is multiplied by a gate of each feature."""
DIFFERENTIAL = ("diffllama",)
"""Types whose attention is the difference of two."""

FAMILIES: dict[str, ModelFamily] = {
    **dict.fromkeys(_PLAIN, ModelFamily()),
    **dict.fromkeys(_ENCODERS, ModelFamily(encoder=True)),
    **dict.fromkeys(
        (
            "camembert",
            "data2vec-text",
            "roberta",
            "roberta-prelayernorm",
            "xlm-roberta",
            "xlm-roberta-xl",
        ),
        ModelFamily(encoder=True, reserved=2),
    ),
    "modernbert": ModelFamily({"local_attention": 128, "global_attn_every_n_layers": 3}, encoder=True),
    **dict.fromkeys(
        ("siglip_vision_model", "siglip2_vision_model"),
        ModelFamily({"vision_use_head": True}, encoder=True, class_tokens=0, pooled=True),
    ),
    **dict.fromkeys(
        ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), _QWEN
    ),
    **dict.fromkeys(("qwen3", "qwen3_moe", "mimo"), _QWEN),
    "pixtral": ModelFamily(encoder=True, class_tokens=0),
    "deit": ModelFamily(encoder=True, class_tokens=2),
    "whisper": ModelFamily({"max_source_positions": 1500, "max_target_positions": 448}),
    **dict.fromkeys(("bart", "m2m_100", "marian", "mbart", "pegasus"), ModelFamily()),
    **dict.fromkeys(
        ("t5", "mt5", "switch_transformers", "umt5"),
        ModelFamily(
            {"is_encoder_decoder": True},
            encoder=True,
            scale=1.0,
            biased=True,
        ),
    ),
    "longt5": ModelFamily(
        {"is_encoder_decoder": True, "local_radius": 127, "global_block_size": 16},
        encoder=True,
        scale=1.0,
        biased=True,
    ),
    "bloom": ModelFamily({"alibi": True}),
    "cohere2": ModelFamily({"sliding_window": 4096, "sliding_window_pattern": 4}),
    **dict.fromkeys(("RefinedWeb", "RefinedWebModel"), _FALCON),
    "falcon": replace(_FALCON, defaults={**_FALCON.defaults, "multi_query": True}),
    "t5gemma2_text": ModelFamily(_GEMMA_3, uneven=True),
    "t5gemma2_decoder": ModelFamily(_GEMMA_3, beyond=("the keys of an encoder beside those of the decoder",)),
    "gemma": ModelFamily({"head_dim": 256}),
    "gemma2": ModelFamily(_GEMMA_2),
    "t5_gemma_module": ModelFamily(_GEMMA_2, each_side=True),
    "gemma3_text": ModelFamily(_GEMMA_3),
    "gemma4_text": ModelFamily(
        _GEMMA_3 | {"sliding_window": 512, "global_head_dim": 512, "query_pre_attn_scalar": None}, scale=1.0
    ),
    "gemma3n_text": ModelFamily(scale=1.0),
    "gemma4_unified_text": ModelFamily(scale=1.0),
    "diffllama": ModelFamily(per_layer=2),
    **dict.fromkeys(
        ("deepseek_v4", "flint", "granite_swa", "granitemoe_swa", "hy_v4"), ModelFamily(sinks=True)
    ),
    **dict.fromkeys(
        ("inkling_text", "inkling2_text", "inkling2_loop_text"),
        ModelFamily(beyond=("scores that depend on the distance of positions",)),
    ),
    "jamba": ModelFamily({"attn_layer_period": 8, "attn_layer_offset": 4} | _MAMBA_1),
    "mimo_v2_flash": ModelFamily({"swa_num_key_value_heads": 8, "add_swa_attention_sink_bias": True}),
    **dict.fromkeys(("minimax", "minimax_text_01"), ModelFamily()),
    "mamba2": ModelFamily(_MAMBA_2, recurrent=True),
    **dict.fromkeys(
        ("mamba", "falcon_mamba"),
        ModelFamily(
            {"block_types": ["mamba"], "time_step_rank": "auto", "state_size": 16, "expand": 2},
            recurrent=True,
        ),
    ),
    "rwkv7": ModelFamily({"block_types": ["rwkv7"]}, recurrent=True),
    "falcon_h1": ModelFamily(beside="mamba"),
    **dict.fromkeys(("bamba", "granitemoehybrid"), ModelFamily()),
    "recurrent_gemma": ModelFamily({"attention_window_size": 2048}),
    **dict.fromkeys(
        (
            "axk2",
            "dots3_note_text",
            "dory",
            "exaone4",
            "glm_moe_dsa",
            "lfm2",
            "mllama_text_model",
            "step3p5",
        ),
        ModelFamily(),
    ),
    "gpt_oss": ModelFamily({"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2}, sinks=True),
    "llama4_text": ModelFamily({"head_dim": 128, "attention_chunk_size": 8192, "no_rope_layer_interval": 4}),
    "kimi_linear": ModelFamily({"linear_num_heads": 32, "linear_head_dim": 128}),
    "longcat_flash": ModelFamily(per_layer=2),
    "mistral": ModelFamily({"sliding_window": 4096}),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        ModelFamily({"head_dim": 256, "full_attention_interval": 4} | _GATED_DELTA),
    ),
    "zamba": ModelFamily(_MAMBA_1 | {"n_mamba_heads": 2}, width=2, beside="mamba"),
    "zamba2": ModelFamily(
        {"n_mamba_heads": 8, "mamba_d_state": 64, "mamba_expand": 2, "mamba_ngroups": 1},
        width=2,
        beside="mamba",
    ),
}
"""By ``model_type``."""
