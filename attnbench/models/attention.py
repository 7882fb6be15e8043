"""What an attention layer computes: heads, their sizes, scale, window and the rest, from the fields."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from math import log, prod, sqrt

from attnbench.models.families import ModelFamily
from attnbench.models.fields import Fields, first_of, needed, positive, same
from attnbench.models.layers import OF_T5, LayerKind
from attnbench.types.errors import BadFile

_HEADS = ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")
_HEADS_OF_T5 = "num_heads"
"""Beside d_kv. Alone it may count the heads of a layer without attention, as in Mamba 2."""
_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
    "kv_n_heads",
)  # fmt: skip
WIDTH = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
HEAD_DIM = ("attention_head_dim", "head_dim", "hidden_size_per_head", "d_kv")
LAYERS = ("num_layers", "num_hidden_layers", "n_layer", "n_layers", "decoder_layers")
LIMITS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions",
)  # fmt: skip
LONGEST_SOURCE = 8192
"""The most tokens of a source that no field fixes: with more, a decoder would read little else."""
SOURCE = 512
"""The tokens of a source of which nothing says even the most: T5 has no longest, and learned on so many."""
WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size", "local_attention")


def attention_kind(word: str, fields: Fields, family: ModelFamily) -> LayerKind:
    """Return a kind of self-attention. word: one of those of softmax attention."""
    D = _head_dim(fields, family)
    cap = fields.get("attn_logit_softcapping")
    alibi = bool(fields.get("alibi"))
    beyond = [*family.beyond, *(family.slopes if alibi else ())]
    for name, meaning in (
        ("scale_attn_by_inverse_layer_idx", "another scale in each layer"),
        ("prefix_lm", "a prefix whose tokens all see each other"),
        ("compress_ratios", "compressed keys"),
    ):
        if fields.get(name):
            beyond.append(meaning)
    if word == "compressed":
        beyond.append("compressed keys beside those of a window")
    positions = fields.get("position_embedding_type")
    if positions in ("relative_key", "relative_key_query", "alibi") and not alibi:
        beyond.append(f"positions that change the scores ({positions})")
    if alibi and (slowest := first_of(fields, "alibi_bias_max") or 8) != 8:
        beyond.append(f"ALiBi slopes down to 2^-{slowest}")
    window = needed(fields, *WINDOW) if word in ("sliding", "compressed") else None
    summaries = behind = None
    if window and family.encoder:
        behind = (window - 1) // 2 if family.uneven and window % 2 == 0 else None
        # The token itself beside those on either side: half of them, or all.
        window = window // (1 if family.each_side else 2) + 1
    elif family.encoder and (radius := first_of(fields, "local_radius")):  # LongT5
        window = radius + 1
        if fields.get("encoder_attention_type") == "transient-global":
            summaries = needed(fields, "global_block_size")
    sink = f"add_{'swa' if word == 'sliding' else 'full'}_attention_sink_bias"  # MiMo-V2
    encoder = "sliding encoder" if window else "encoder"
    return LayerKind(
        name=encoder if family.encoder else f"{word} attention",
        H=heads_of(fields),
        Hkv=_kv_heads(fields),
        D=D,
        Dv=first_of(fields, "v_head_dim") or D,
        scale=_scale(D, fields, family),
        causal=not family.encoder,
        padded=family.encoder,
        window=window,
        chunk=needed(fields, "attention_chunk_size") if word == "chunked" else None,
        summaries=summaries,
        behind=behind,
        softcap=None if cap is None else positive("attn_logit_softcapping", cap),
        indexed=needed(fields, "index_topk") if word == "indexed" else None,
        sinks=family.sinks or bool(fields.get(sink)),
        alibi=alibi,
        buckets=_buckets(fields) if family.biased else None,
        stages=("prefill",) if family.encoder else LayerKind.stages,
        beyond=tuple(beyond),
    )


def latent_kinds(word: str, fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the two forms of latent attention (DeepSeek-V2, section 2.1): of many tokens, and of a decode.

    A prefill expands the latent keys to all heads. A decode multiplies the expansion into the query, and all
    heads share the latent key; its first features are the value. YaRN multiplies the scale by the square of
    0.1·mscale_all_dim·ln(factor) + 1.
    """
    nope, rope = needed(fields, "qk_nope_head_dim"), needed(fields, "qk_rope_head_dim")
    rank = needed(fields, "kv_lora_rank")
    own: Fields = {"attention_head_dim": nope + rope, **dict.fromkeys(_KV_HEADS)}
    kind = attention_kind(word, ChainMap(own, fields), family)
    scale = kind.scale
    stretched = fields.get("rope_parameters") or fields.get("rope_scaling")
    if isinstance(stretched, dict) and _is_stretched(stretched) and stretched.get("mscale_all_dim"):
        factor, mscale = (positive(name, stretched.get(name)) for name in ("factor", "mscale_all_dim"))
        scale *= (0.1 * mscale * log(max(factor, 1)) + 1) ** 2
    latent = "latent attention" if word in ("full", "indexed") else f"latent {kind.name}"
    expanded = replace(kind, name=f"expanded {latent}", scale=scale, stages=("prefill", "chunked"))
    return expanded, replace(
        expanded, name=f"absorbed {latent}", Hkv=1, D=rank + rope, Dv=rank, latent=True, stages=("decode",)
    )


def indexed_kinds(kinds: tuple[LayerKind, ...], fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the kinds of indexed layers with those of more keys: attention to those chosen, and the indexer.

    Latent attention to chosen keys is absorbed in a prefill too, as in FlashMLA's sparse kernels. The indexer
    is that of DeepSeek-V3.2: its heads share one key. Some layers have none, and use the choice of the last
    one that has.
    """
    last = kinds[-1]
    stages = LayerKind.stages
    name = f"{last.name} to chosen keys"
    chosen = replace(last, name=name, selection="selected", stages=stages)
    if pooled := first_of(fields, "index_kpool"):
        chosen = replace(chosen, beyond=(*chosen.beyond, f"keys chosen in groups of {pooled}"))
    if fields.get("indexer_type") == "shared":
        return *kinds, chosen
    D = needed(fields, "index_head_dim")
    indexer = replace(
        chosen, name="indexer", H=needed(fields, "index_n_heads"), Hkv=1, D=D, Dv=D, scale=D**-0.5,
        softcap=None, sinks=False, alibi=False, latent=False, selection="select",
    )  # fmt: skip
    return *kinds, chosen, indexer


def _is_stretched(positions: Fields) -> bool:
    return (positions.get("rope_type") or positions.get("type") or "default") != "default"


def encoder_decoder_kinds(fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the kinds of an encoder, of a decoder, and of its attention to the encoder."""
    if isinstance(fields.get("decoder"), dict):  # MusicGen
        raise BadFile("its encoder and decoder have configs of their own: give each in a file of its own")
    heads = ("num_heads", "num_attention_heads")
    layers = ("num_layers", "num_hidden_layers")
    tokens = first_of(fields, "max_source_positions")
    keys = tokens or first_of(fields, *LIMITS) or SOURCE
    parts = {}
    for name, own, numbers in (
        ("encoder", "encoder_attention_heads", ("encoder_layers", *layers)),
        ("decoder", "decoder_attention_heads", ("decoder_layers", "num_decoder_layers", *layers)),
    ):
        H = needed(fields, own, *heads)
        alone: Fields = {"num_attention_heads": H, "decoder_attention_heads": H, **dict.fromkeys(_KV_HEADS)}
        kind = attention_kind("full", ChainMap(alone, fields), replace(family, encoder=name == "encoder"))
        parts[name] = replace(kind, name=name, count=needed(fields, *numbers))
    encoder = replace(parts["encoder"], padded=tokens is None, tokens=tokens)
    return encoder, parts["decoder"], cross_kind(parts["decoder"], keys)


def cross_kind(decoder: LayerKind, keys: int) -> LayerKind:
    """Return the attention to so many tokens of an encoder, in the heads that a decoder has for itself."""
    return replace(
        decoder, name="cross-attention", causal=False, window=None, chunk=None, keys=keys, buckets=None,
        beyond=(), stages=("prefill", "decode"),
    )  # fmt: skip


def audio_kind(fields: Fields, family: ModelFamily) -> LayerKind:
    """Return the kind of an encoder of sound, whose length is always the same."""
    H = needed(fields, "encoder_attention_heads", "num_attention_heads")
    alone: Fields = {"num_attention_heads": H}
    kind = attention_kind("full", ChainMap(alone, fields), replace(family, encoder=True))
    tokens = needed(fields, "max_source_positions")
    return replace(kind, padded=False, tokens=tokens, count=needed(fields, "encoder_layers", *LAYERS))


def image_kinds(fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the kinds of an encoder of images: tokens of patches, of the class, and registers."""
    patches = first_of(fields, "num_patches")
    if patches is None:
        sides = zip(_sides(fields, "image_size"), _sides(fields, "patch_size"), strict=True)
        patches = prod(image // patch for image, patch in sides)
    tokens = patches + family.class_tokens + (first_of(fields, "num_register_tokens") or 0)
    kind = attention_kind("full", fields, replace(family, encoder=True))
    # So many patches are the most of an image; smaller ones are padded.
    padded = bool(fields.get("num_patches"))
    encoder = replace(kind, padded=padded, tokens=tokens, count=needed(fields, *LAYERS))
    if not (family.pooled and fields.get("vision_use_head")):
        return (encoder,)
    return encoder, replace(encoder, name="pooling head", tokens=1, keys=tokens, count=1)


def _sides(fields: Fields, name: str) -> tuple[int, int]:
    """Return the two sides of a square, or of a pair."""
    pair = fields.get(name)
    if isinstance(pair, list) and len(pair) == 2:
        return needed({name: pair[0]}, name), needed({name: pair[1]}, name)
    return (side := needed(fields, name)), side


def heads_of(fields: Fields) -> int:
    """Return the number of query heads; raises BadFile without any."""
    H = same(fields, *_HEADS)
    if H is None and first_of(fields, "d_kv"):
        H = first_of(fields, _HEADS_OF_T5)
    if H is None:
        raise BadFile(f"it has no attention heads: none of {', '.join(_HEADS)}, {_HEADS_OF_T5} with d_kv")
    return H


def _kv_heads(fields: Fields) -> int:
    H = heads_of(fields)
    if fields.get("multi_query") and not fields.get("new_decoder_architecture"):
        return 1  # Falcon and GPT BigCode, whatever the other fields say
    names = [
        n for n in _KV_HEADS if n != "multi_query_group_num" or fields.get("multi_query_attention", True)
    ]
    return divided(H, same(fields, *names) or H)


def _buckets(fields: Fields) -> tuple[int, int]:
    buckets, distance = OF_T5
    return (
        first_of(fields, "relative_attention_num_buckets") or buckets,
        first_of(fields, "relative_attention_max_distance") or distance,
    )


def divided(H: int, Hkv: int) -> int:
    """Return the key/value heads, if they share the query heads evenly."""
    if Hkv < 1 or H % Hkv:
        raise BadFile(f"its {H} query heads can't be shared evenly among {Hkv} key/value heads")
    return Hkv


def _head_dim(fields: Fields, family: ModelFamily) -> int:
    given = first_of(fields, *HEAD_DIM)
    if given is not None:
        return given
    H, width = heads_of(fields), family.width * needed(fields, *WIDTH)
    if width % H:
        raise BadFile(f"it has no head_dim, and its width of {width} is not a multiple of its {H} heads")
    return width // H


def _scale(D: int, fields: Fields, family: ModelFamily) -> float:
    if (scalar := fields.get("query_pre_attn_scalar")) is not None:  # Gemma
        return 1 / sqrt(positive("query_pre_attn_scalar", scalar))
    for name in ("attention_multiplier", "softmax_scale"):  # Granite, MPT
        if (scale := fields.get(name)) is not None:
            return positive(name, scale)
    if fields.get("scale_attn_weights") is False:  # GPT-2
        return 1.0
    return family.scale or (D / family.width) ** -0.5
