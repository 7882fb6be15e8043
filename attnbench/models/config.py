"""The ``config.json`` of a model, as Hugging Face publishes it, read for its attention."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from math import isclose, log, sqrt
from pathlib import Path
from re import search
from typing import Any

from attnbench.models.families import (
    DECODERS,
    ENCODERS,
    FAMILIES,
    HARMLESS,
    KINDS,
    MATTERS,
    RECURRENT,
    WORDS,
    ModelFamily,
)  # fmt: skip
from attnbench.models.fields import Fields, first_of, needed, positive, same
from attnbench.models.layers import LayerKind, Model
from attnbench.models.recurrences import UNSAID, recurrence
from attnbench.types.case import DTYPES
from attnbench.types.errors import BadFile
from attnbench.types.files import parse_json, read_text
from attnbench.types.words import clean

_MOST_LAYERS = 10_000
_TEXT = ("text_config", "language_config", "llm_config", "thinker_config")
_OTHER_PARTS = ("vision_config", "audio_config")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")
_HEADS_OF_T5 = "num_heads"
"""Beside d_kv. Alone it may count the heads of a layer without attention, as in Mamba 2."""
_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
    "kv_n_heads",
)  # fmt: skip
_WIDTH = ("hidden_size", "n_embd", "n_embed", "d_model")
_HEAD_DIM = ("attention_head_dim", "head_dim", "hidden_size_per_head", "d_kv")
_LAYERS = ("num_layers", "num_hidden_layers", "n_layer", "n_layers", "decoder_layers")
_LIMITS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions",
)  # fmt: skip
_SOFTMAX = ("full", "sliding", "chunked", "indexed", "compressed")
_WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size", "local_attention")
_NAMED = ("layer_types", "layers_block_type", "hybrid_override_pattern")
_CODED = {
    "hybrid_layer_pattern": ("full", "sliding"),  # MiMo-V2
    "attn_type_list": ("linear_attention", "full"),  # MiniMax
}
"""Lists of numbers, with the words of 0 and 1."""
_PLACES = {
    "hybrid_layer_ids": (0, "full", "mamba"),  # Zamba 2
    "full_attn_idxs": (0, "full", "conv"),  # LFM2
    "attn_layer_indices": (0, "full", "mamba"),  # Bamba
    "full_attn_layers": (1, "full", "linear_attention"),  # Kimi Linear
    "cross_attention_layers": (0, "cross", "full"),  # Llama 3.2 Vision
}
"""Lists of layers, with the number of the first layer, their word and that of the others."""


class _Noting(dict[str, Any]):
    """Fields that note which of them were asked for."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field."""
        self.asked.add(name)
        return super().get(name, default)


def read_model(path: Path) -> Model:
    """Read the attention of a model from its config.

    Raises:
        BadFile: one sentence: it can't be read, is not JSON, has no attention heads, or contradicts itself.
    """
    name = f"the config {str(path)!r}"
    try:
        config = parse_json(read_text(path))
    except OSError as failure:
        raise BadFile(f"can't read {name}: {failure.strerror}") from failure
    except ValueError as failure:
        raise BadFile(f"{name} can't be read as JSON: {clean(str(failure))}") from failure
    try:
        return describe(config)
    except BadFile as failure:
        raise BadFile(f"{name}: {failure}") from failure


def describe(config: object) -> Model:
    """Return the attention that a config describes; raises BadFile."""
    if not isinstance(config, dict):
        raise BadFile("it is not an object: give the config.json of a model")
    part, notes = config, []
    while inner := next((part[name] for name in _TEXT if isinstance(part.get(name), dict)), None):
        notes += [
            f"{name} is left out: to describe it, give it in a file of its own"
            for name in _OTHER_PARTS
            if isinstance(part.get(name), dict)
        ]
        part = inner
    type_ = clean(part.get("model_type") or config.get("model_type") or "")
    known = FAMILIES.get(type_)
    family = known or ModelFamily()
    fields = _Noting({**family.defaults, **part})
    if isinstance(inner := fields.get("attn_config"), dict):  # of MPT and DBRX
        fields.update(inner)
    if isinstance(inner := fields.get("linear_attn_config"), dict):  # of Kimi Linear
        fields.setdefault("full_attn_layers", inner.get("full_attn_layers"))
        for name in ("num_heads", "head_dim"):
            if inner.get(name):
                fields[f"linear_{name}"] = inner[name]
    names = config.get("architectures")
    names = " ".join(name for name in names if isinstance(name, str)) if isinstance(names, list) else ""
    if known is None and search(ENCODERS, names) and not search(DECODERS, names):
        family = replace(family, encoder=True)
    if fields.get("use_bidirectional_attention") not in (None, False, "vision"):
        family = replace(family, encoder=True)
    notes += [f"{name} = 0 is ignored" for name in (*_HEAD_DIM, *_LIMITS) if fields.get(name) == 0]
    if family.encoder and fields.get("is_decoder"):  # BERT and its kin then hide later tokens
        family = replace(family, encoder=False)
        if fields.get("add_cross_attention"):
            notes.append("add_cross_attention: attention to another model's tokens is left out")
    others: dict[str, int] = {}
    if fields.get("is_encoder_decoder"):
        layers = _encoder_decoder(fields, family)
        if not fields.get("max_source_positions"):
            notes.append(
                f"no field fixes the length of the source: cross-attention has {layers[-1].keys} keys, "
                "whatever --prefill says"
            )
    elif (
        fields.get("patch_size")
        and (fields.get("image_size") or fields.get("num_patches"))
        and not fields.get("vocab_size")
    ):
        layers = (_of_images(fields, family),)
    else:
        layers, others = _text_layers(fields, family)
    if number := others.pop("cross", 0):
        notes.append(f"left out: attention to another model's tokens ({number} layers)")
    if known is None:
        notes.append(_assumed(type_, fields, layers, others))
    rope = fields.get("qk_rope_head_dim")
    if rope and rope == fields.get("qk_nope_head_dim"):
        notes.append(
            f"qk_rope_head_dim = qk_nope_head_dim = {rope}: some versions of transformers write this by "
            "mistake; compare it with the published file"
        )
    if rank := first_of(fields, "kv_lora_rank"):
        notes.append(
            f"the values of a latent decode are the first {rank} features of its keys, in the same memory; "
            "a case has them apart"
        )
    notes += _not_read(fields, part)
    limits = [limit for name in _LIMITS if (limit := first_of(fields, name))]
    dtype = next((word for c in (part, config) for n in ("dtype", "torch_dtype") if (word := c.get(n))), None)
    if dtype not in DTYPES:
        said = f"no case can have the dtype {clean(repr(dtype))}" if dtype else "the config names no dtype"
        notes.append(f"{said}: the cases have float32")
    known_words = {*RECURRENT, *UNSAID}
    return Model(
        type=type_ or "unknown",
        layers=layers,
        others=tuple(other for other in others.items() if other[0] in known_words),
        unknown=tuple(other for other in others.items() if other[0] not in known_words),
        limit=min(limits) - family.reserved if limits else None,
        dtype=dtype if dtype in DTYPES else None,
        notes=tuple(notes),
    )


def _not_read(fields: _Noting, part: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for fields that were not read though they may change attention."""
    names = [
        f"{clean(name)} = {clean(str(value))[:40]}"
        for name, value in part.items()
        if name not in fields.asked
        and value
        and not isinstance(value, str)
        and search(MATTERS, name)
        and not any(fnmatch(name, pattern) for pattern in (*HARMLESS, *KINDS))
    ]
    if names:
        yield f"not used, though they may change attention: {', '.join(names)}"


def _text_layers(fields: Fields, family: ModelFamily) -> tuple[tuple[LayerKind, ...], dict[str, int]]:
    """Return the kinds of layers of a model of text, and the numbers of its other layers by their words."""
    if not family.recurrent:
        _heads(fields)  # Without any, that is the first thing to say.
    alike: dict[tuple[str, str], tuple[Fields, int]] = {}
    for word, own in _each_layer(fields):
        _, number = alike.get((word, str(own)), (own, 0))
        alike[word, str(own)] = own, number + 1
    kinds: dict[LayerKind, int] = {}
    others: dict[str, int] = {}
    for (word, _), (own, number) in alike.items():
        its = ChainMap(own, fields)
        if word in _SOFTMAX:
            found = _latent(word, its, family) if fields.get("kv_lora_rank") else (_kind(word, its, family),)
            for kind in found:
                kinds[kind] = kinds.get(kind, 0) + number * family.per_layer
            word = family.beside
        if not word:
            continue
        recurs = recurrence(word, its)
        if isinstance(recurs, LayerKind):
            kinds[recurs] = kinds.get(recurs, 0) + number
        else:
            others[recurs] = others.get(recurs, 0) + number
    if not kinds:
        if unknown := ", ".join(word for word in others if word not in {*RECURRENT, *UNSAID}):
            raise BadFile(f"attnbench does not know the kinds of its layers: {unknown}")
        named = "; ".join(f"{word}: {UNSAID[word]}" for word in others if word in UNSAID)
        raise BadFile(named or "none of its layers computes softmax attention, or a recurrence of a rule")
    return tuple(replace(kind, count=number) for kind, number in kinds.items()), others


def _kind(word: str, fields: Fields, family: ModelFamily) -> LayerKind:
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
    window = needed(fields, *_WINDOW) if word in ("sliding", "compressed") else None
    if window and family.encoder:  # half of them on either side, and the token itself
        window = window // 2 + 1
    sink = f"add_{'swa' if word == 'sliding' else 'full'}_attention_sink_bias"  # MiMo-V2
    encoder = "sliding encoder" if window else "encoder"
    return LayerKind(
        name=encoder if family.encoder else f"{word} attention",
        H=_heads(fields),
        Hkv=_kv_heads(fields),
        D=D,
        Dv=first_of(fields, "v_head_dim") or D,
        scale=_scale(D, fields, family),
        causal=not family.encoder,
        padded=family.encoder,
        window=window,
        chunk=needed(fields, "attention_chunk_size") if word == "chunked" else None,
        softcap=None if cap is None else positive("attn_logit_softcapping", cap),
        indexed=needed(fields, "index_topk") if word == "indexed" else None,
        sinks=family.sinks or bool(fields.get(sink)),
        alibi=alibi,
        stages=("prefill",) if family.encoder else LayerKind.stages,
        beyond=tuple(beyond),
    )


def _latent(word: str, fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the two forms of latent attention (DeepSeek-V2, section 2.1): of many tokens, and of a decode.

    A prefill expands the latent keys to all heads. A decode multiplies the expansion into the query, and all
    heads share the latent key; its first features are the value. YaRN multiplies the scale by the square of
    0.1·mscale_all_dim·ln(factor) + 1.
    """
    nope, rope = needed(fields, "qk_nope_head_dim"), needed(fields, "qk_rope_head_dim")
    rank = needed(fields, "kv_lora_rank")
    own: Fields = {"attention_head_dim": nope + rope, **dict.fromkeys(_KV_HEADS)}
    kind = _kind(word, ChainMap(own, fields), family)
    scale = kind.scale
    stretched = fields.get("rope_parameters") or fields.get("rope_scaling")
    if isinstance(stretched, dict) and stretched.get("mscale_all_dim"):
        factor, mscale = (positive(name, stretched.get(name)) for name in ("factor", "mscale_all_dim"))
        scale *= (0.1 * mscale * log(max(factor, 1)) + 1) ** 2
    latent = "latent attention" if word in ("full", "indexed") else f"latent {kind.name}"
    expanded = replace(kind, name=f"expanded {latent}", scale=scale, stages=("prefill", "chunked"))
    return expanded, replace(
        expanded, name=f"absorbed {latent}", Hkv=1, D=rank + rope, Dv=rank, stages=("decode",)
    )


def _encoder_decoder(fields: Fields, family: ModelFamily) -> tuple[LayerKind, ...]:
    """Return the kinds of an encoder, of a decoder, and of its attention to the encoder."""
    heads = ("num_heads", "num_attention_heads")
    layers = ("num_layers", "num_hidden_layers")
    tokens = first_of(fields, "max_source_positions")
    # Where nothing fixes the length of the source, it is the longest; T5 has no longest, and learned on 512.
    keys = tokens or first_of(fields, *_LIMITS) or 512
    # Of both parts one is an encoder, which is said below.
    family = replace(family, encoder=False)
    parts = {}
    for name, own, numbers in (
        ("encoder", "encoder_attention_heads", ("encoder_layers", *layers)),
        ("decoder", "decoder_attention_heads", ("decoder_layers", "num_decoder_layers", *layers)),
    ):
        H = needed(fields, own, *heads)
        alone: Fields = {"num_attention_heads": H, "decoder_attention_heads": H, **dict.fromkeys(_KV_HEADS)}
        kind = _kind("full", ChainMap(alone, fields), family)
        parts[name] = replace(kind, name=name, count=needed(fields, *numbers))
    decoder = parts["decoder"]
    encoder = replace(
        parts["encoder"], causal=False, padded=tokens is None, tokens=tokens, stages=("prefill",)
    )
    cross = replace(
        decoder, name="cross-attention", causal=False, keys=keys, stages=("prefill", "decode"), beyond=()
    )
    return encoder, decoder, cross


def _of_images(fields: Fields, family: ModelFamily) -> LayerKind:
    """Return the kind of an encoder of images: tokens of patches, of the class, and registers."""
    patches = first_of(fields, "num_patches")
    if patches is None:
        patches = (needed(fields, "image_size") // needed(fields, "patch_size")) ** 2
    tokens = patches + family.class_tokens + (first_of(fields, "num_register_tokens") or 0)
    kind = _kind("full", fields, replace(family, encoder=True))
    return replace(kind, padded=False, tokens=tokens, count=needed(fields, *_LAYERS))


def _each_layer(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield for each layer its word ("" if it mixes no tokens) and the fields that it has for itself."""
    blocks = fields.get("block_configs")
    if isinstance(blocks, list):  # of Nemotron-NAS
        H = _heads(fields)
        for block in blocks:
            attention = block.get("attention") if isinstance(block, dict) else None
            group = first_of(attention, "n_heads_in_group") if isinstance(attention, dict) else None
            yield ("", {}) if group is None else ("full", {"num_key_value_heads": _divided(H, H // group)})
        return
    words = _words(fields)
    places = list(range(len(words)))
    for first, last, times in _loops(fields):
        places[last:last] = places[first:last] * (times - 1)
        if len(places) > _MOST_LAYERS:
            raise BadFile(f"its loops make {len(places)} layers: {_MOST_LAYERS} at most")
    for place in places:
        yield words[place], _own(fields, words[place], place)


def _loops(fields: Fields) -> Iterator[tuple[int, int, int]]:
    """Yield the layers that a pass runs several times: the first, the one after the last, and how often."""
    if times := first_of(fields, "n_recurrent_loops"):  # Dory
        first = first_of(fields, "n_input_layers") or 0
        yield first, first + needed(fields, "n_recurrent_layers"), times
    if times := first_of(fields, "loop_num_passes"):  # Inkling 2
        yield first_of(fields, "loop_layer_index_start") or 0, needed(fields, "loop_layer_index_end"), times


def _own(fields: Fields, word: str, place: int) -> Fields:
    """Return the fields that a layer has for itself, by its word or its place."""
    own: dict[str, Any] = {}
    other = fields.get("attention_other_setting")
    if isinstance(other, dict) and WORDS.get(str(other.get("attention_type"))) == word:  # Step-3.5
        own |= other
    if word == "sliding":
        own |= {name[4:]: fields[name] for name in fields if name.startswith("swa_") and fields[name]}
    if word == "full":  # Gemma 4
        if D := first_of(fields, "global_head_dim"):
            own["head_dim"] = D
        if fields.get("attention_k_eq_v") and (Hkv := first_of(fields, "num_global_key_value_heads")):
            own["num_key_value_heads"] = Hkv
    heads = fields.get("num_attention_heads_per_layer")  # Laguna
    if isinstance(heads, list) and place < len(heads):
        own["num_attention_heads"] = heads[place]
    by_place = fields.get("per_layer_config")  # Gemma 4 unified: "05" is layer 5
    if isinstance(by_place, dict):
        for name, changed in by_place.items():
            if name.isdecimal() and int(name) == place and isinstance(changed, dict):
                own |= changed
    return own


def _words(fields: Fields) -> Sequence[str]:
    """Return for each layer its word; in models whose keys an indexer chooses, full layers are indexed."""
    words = _plain_words(fields)
    if first_of(fields, "index_topk") and "indexed" not in words:
        return ["indexed" if word == "full" else word for word in words]
    return words


def _plain_words(fields: Fields) -> Sequence[str]:
    """Return for each layer its word, by the first field that says it."""
    name = next((name for name in (*_NAMED, *_CODED) if fields.get(name)), None)
    given = None if name is None else fields[name]
    number = first_of(fields, *_LAYERS)
    if number is None and isinstance(given, list | str):
        number = len(given)  # Nemotron-H as transformers 5 writes it
    if number is None:
        raise BadFile(f"it has no {' or '.join(_LAYERS)}")
    if number > _MOST_LAYERS:
        raise BadFile(f"it has {number} layers: {_MOST_LAYERS} at most")
    if name is not None:
        return _listed(name, given, number, first_of(fields, "num_nextn_predict_layers") or 0)
    places = range(number)
    repeated = fields.get("block_types")
    if isinstance(repeated, list) and repeated and all(isinstance(word, str) for word in repeated):
        words = {**WORDS, "attention": "sliding" if first_of(fields, *_WINDOW) else "full"}  # RecurrentGemma
        return [words.get(word := repeated[i % len(repeated)], clean(word)) for i in places]
    for listed, (start, word, rest) in _PLACES.items():
        if isinstance(found := fields.get(listed), list):
            return [word if i + start in found else rest for i in places]
    if period := first_of(fields, "attn_layer_period"):  # Jamba
        offset = first_of(fields, "attn_layer_offset") or 0
        return ["full" if i % period == offset else "mamba" for i in places]
    if interval := first_of(fields, "full_attention_interval"):
        return ["linear_attention" if (i + 1) % interval else "full" for i in places]
    interval = first_of(fields, "no_rope_layer_interval")
    if interval and fields.get("attention_chunk_size"):  # Llama 4
        rotary = fields.get("no_rope_layers") or [(i + 1) % interval for i in places]
        if not isinstance(rotary, list) or len(rotary) != number:
            raise BadFile(f"no_rope_layers = {clean(rotary)}: give a number for each of its {number} layers")
        return ["chunked" if on else "full" for on in rotary]
    if not first_of(fields, *_WINDOW) or fields.get("use_sliding_window") is False:
        return ["full"] * number
    pattern = fields.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # EXAONE 4: LLLG, and the last layer is global
        return ["sliding" if pattern[i % len(pattern)] == "L" and i + 1 < number else "full" for i in places]
    if interval := first_of(fields, "sliding_window_pattern"):
        return ["sliding" if (i + 1) % interval else "full" for i in places]
    if interval := first_of(fields, "global_attn_every_n_layers"):  # ModernBERT
        return ["sliding" if i % interval else "full" for i in places]
    first = first_of(fields, "max_window_layers") if fields.get("use_sliding_window") else None
    return ["sliding" if i >= (first or 0) else "full" for i in places]


def _listed(name: str, given: Any, number: int, predicting: int) -> Sequence[str]:
    """Return the words of a list of kinds. predicting: how many layers it may name beyond the model's."""
    if name in _CODED:
        if not isinstance(given, list) or not all(kind in (0, 1) for kind in given):
            raise BadFile(f"{name} = {clean(given)}: give 0 or 1 for each layer")
        words = [_CODED[name][kind] for kind in given]
    else:
        letters = isinstance(given, str) and name == "hybrid_override_pattern"
        if not (letters or isinstance(given, list)) or not all(isinstance(word, str) for word in given):
            raise BadFile(f"the kinds of its layers are {clean(given)}: give a name for each")
        words = [WORDS.get(word, clean(word)) for word in given]
    if not number <= len(words) <= number + predicting:
        raise BadFile(f"it names the kinds of {len(words)} layers, but has {number}")
    return words[:number]


def _heads(fields: Fields) -> int:
    H = same(fields, *_HEADS)
    if H is None and first_of(fields, "d_kv"):
        H = first_of(fields, _HEADS_OF_T5)
    if H is None:
        raise BadFile(f"it has no attention heads: none of {', '.join(_HEADS)}, {_HEADS_OF_T5} with d_kv")
    return H


def _kv_heads(fields: Fields) -> int:
    H = _heads(fields)
    if fields.get("multi_query") and not fields.get("new_decoder_architecture"):
        return 1  # Falcon and GPT BigCode, whatever the other fields say
    names = [
        n for n in _KV_HEADS if n != "multi_query_group_num" or fields.get("multi_query_attention", True)
    ]
    return _divided(H, same(fields, *names) or H)


def _divided(H: int, Hkv: int) -> int:
    """Return the key/value heads, if they share the query heads evenly."""
    if Hkv < 1 or H % Hkv:
        raise BadFile(f"its {H} query heads can't be shared evenly among {Hkv} key/value heads")
    return Hkv


def _head_dim(fields: Fields, family: ModelFamily) -> int:
    given = first_of(fields, *_HEAD_DIM)
    if given is not None:
        return given
    H, width = _heads(fields), family.width * needed(fields, *_WIDTH)
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


def _assumed(type_: str, fields: Fields, layers: Sequence[LayerKind], others: Mapping[str, int]) -> str:
    """Return in words what the rules assume of a type that has no entry."""
    recurrent = any(kind.update for kind in layers)
    layers = [kind for kind in layers if not kind.update] or layers
    assumed = [] if others or recurrent else ["attention in every layer"]
    if not any(kind.sinks for kind in layers):
        assumed.append("no sinks")
    if not fields.get("is_encoder_decoder"):
        encoder = "one class token beside the image" if layers[0].tokens else "that tokens see later ones too"
        assumed.append("causal self-attention" if layers[0].causal else encoder)
    if all(isclose(kind.scale, kind.D**-0.5) for kind in layers):
        assumed.append("a scale of 1/√D")
    if all(kind.softcap is None for kind in layers):
        assumed.append("no soft cap")
    if not any(kind.alibi for kind in layers):
        assumed.append("no ALiBi")
    if not fields.get("layer_types"):
        window = max(kind.window or 0 for kind in layers)
        number = sum(kind.count for kind in layers if kind.window)
        assumed.append(f"a window of {window} in {number} layers" if window else "no window")
    what = f"the model type {type_!r} is unknown" if type_ else "the config has no model_type"
    return f"{what}: assumed {', '.join(assumed)}"
