"""Facts of model types beyond the fields of their configs.

Sources: transformers, ``configuration_*.py`` and ``modeling_*.py`` of each type; vLLM,
``transformers_utils/model_arch_config_convertor.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Family:
    """The facts of a model type that its configs leave out.

    defaults: fields with the values they have where a config leaves them out. encoder: all tokens see each
    other. sinks: the weights hold a sink for each head. scale: of the dot products, if neither a field nor D
    gives it. width: the width of the attention over that of the model; with more than 1, the scale is that of
    D / width. per_layer: attentions in a layer. reserved: positions that no token can have. class_tokens: of
    a vision model, the tokens beside those of the image. beyond: in words, what else its self-attention
    computes; slopes: the same, of ALiBi.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    encoder: bool = False
    sinks: bool = False
    scale: float | None = None
    width: int = 1
    per_layer: int = 1
    reserved: int = 0
    class_tokens: int = 1
    beyond: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()


_FALCON = Family({"max_position_embeddings": 2048}, slopes=("ALiBi slopes that are divided by √D",))
_QWEN = Family({"use_sliding_window": False, "max_window_layers": 28})
_GEMMA_3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
    "query_pre_attn_scalar": 256, "sliding_window_pattern": 6, "max_position_embeddings": 131072,
}  # fmt: skip
_GEMMA_2 = _GEMMA_3 | {
    "attn_logit_softcapping": 50.0, "sliding_window_pattern": 2, "max_position_embeddings": 8192,
}  # fmt: skip

_PLAIN = (
    "chatglm", "cohere", "dbrx", "deepseek_v2", "deepseek_v3", "deepseek_v32", "ernie4_5", "ernie4_5_moe",
    "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "granite",
    "granitemoe", "internlm2", "kimi_k2", "llama", "mixtral", "mpt", "nemotron", "nemotron_3", "nemotron_h",
    "nemotron-nas", "olmo", "olmo2", "opt", "phi", "phi3", "stablelm", "starcoder2",
)  # fmt: skip
"""Types whose configs say everything."""

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_PLAIN, Family()),
    **dict.fromkeys(("bert", "electra"), Family(encoder=True)),
    **dict.fromkeys(("roberta", "xlm-roberta"), Family(encoder=True, reserved=2)),
    **dict.fromkeys(("vit", "clip_vision_model"), Family(encoder=True)),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mimo"), _QWEN),
    "siglip_vision_model": Family(encoder=True, class_tokens=0),
    "deit": Family(encoder=True, class_tokens=2),
    "whisper": Family({"max_source_positions": 1500, "max_target_positions": 448}),
    "bart": Family(),
    **dict.fromkeys(
        ("t5", "mt5", "umt5"),
        Family(
            {"is_encoder_decoder": True},
            encoder=True,
            scale=1.0,
            beyond=("a learned bias for each distance of positions",),
        ),
    ),
    "bloom": Family({"alibi": True}),
    "cohere2": Family({"sliding_window": 4096, "sliding_window_pattern": 4}),
    **dict.fromkeys(("RefinedWeb", "RefinedWebModel"), _FALCON),
    "falcon": replace(_FALCON, defaults={**_FALCON.defaults, "multi_query": True}),
    "gemma": Family({"head_dim": 256}),
    "gemma2": Family(_GEMMA_2),
    "gemma3_text": Family(_GEMMA_3),
    "gemma4_text": Family(
        _GEMMA_3 | {"sliding_window": 512, "global_head_dim": 512, "query_pre_attn_scalar": None}, scale=1.0
    ),
    "gpt_oss": Family({"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2}, sinks=True),
    "llama4_text": Family({"head_dim": 128, "attention_chunk_size": 8192, "no_rope_layer_interval": 4}),
    "longcat_flash": Family(per_layer=2),
    "mistral": Family({"sliding_window": 4096}),
    "qwen3_next": Family({"head_dim": 256, "full_attention_interval": 4}),
    "zamba2": Family(width=2),
}
"""By ``model_type``."""
