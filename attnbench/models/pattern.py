"""Which kind of layer stands at which place of a model, and the fields that a layer has for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnbench.models.attention import LAYERS, WINDOW, divided, heads_of
from attnbench.models.families import WORDS
from attnbench.models.fields import Fields, first_of, needed
from attnbench.types.errors import BadFile
from attnbench.types.words import clean

_MOST_LAYERS = 10_000
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

_UNREAD = ("window_length", "num_sink_tokens", "sparsify")
"""Fields of a block of Nemotron-NAS that no published file sets."""

_INDEXERS = {"full": "full", "F": "full", "shared": "shared", "S": "shared"}


def each_layer(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield for each layer its word ("" if it mixes no tokens) and the fields that it has for itself."""
    blocks = fields.get("block_configs")
    if isinstance(blocks, list):  # of Nemotron-NAS
        H = heads_of(fields)
        for block in blocks:
            attention = block.get("attention") if isinstance(block, dict) else None
            attention = attention if isinstance(attention, dict) else {}
            group = None if attention.get("replace_with_linear") else first_of(attention, "n_heads_in_group")
            special = next((f"attention with {name}" for name in _UNREAD if attention.get(name)), "full")
            yield ("", {}) if group is None else (special, {"num_key_value_heads": divided(H, H // group)})
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
        if H := first_of(fields, "num_sliding_attention_heads"):  # Step-3.5 as transformers 5 writes it
            own["num_attention_heads"] = H
    if word == "full":  # Gemma 4
        if D := first_of(fields, "global_head_dim"):
            own["head_dim"] = D
        if fields.get("attention_k_eq_v") and (Hkv := first_of(fields, "num_global_key_value_heads")):
            own["num_key_value_heads"] = Hkv
    if word == "indexed":
        own["indexer_type"] = _indexer(fields, place)
    heads = fields.get("num_attention_heads_per_layer")  # Laguna
    if isinstance(heads, list) and place < len(heads):
        own["num_attention_heads"] = heads[place]
    by_place = fields.get("per_layer_config")  # Gemma 4 unified: "05" is layer 5
    if isinstance(by_place, dict):
        for name, changed in by_place.items():
            if name.isdecimal() and int(name) == place and isinstance(changed, dict):
                own |= changed
    return own


def _indexer(fields: Fields, place: int) -> str:
    """Return ``full`` for an indexed layer with an indexer, ``shared`` for one that uses another's choice.

    From transformers' ``configuration_glm_moe_dsa.py``.
    """
    for name in ("indexer_types", "index_topk_pattern"):
        given = fields.get(name)
        if isinstance(given, list | str) and given:
            word = str(given[place]) if place < len(given) else ""
            if word not in _INDEXERS:
                raise BadFile(f"{name} = {clean(given)}: give full or shared for each layer")
            return _INDEXERS[word]
    offset = fields.get("index_skip_topk_offset")
    after = place + 1 - (offset if isinstance(offset, int) else 2)
    return "shared" if max(after, 0) % (first_of(fields, "index_topk_freq") or 1) else "full"


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
    number = first_of(fields, *LAYERS)
    if number is None and isinstance(given, list | str):
        number = len(given)  # Nemotron-H as transformers 5 writes it
    if number is None:
        raise BadFile(f"it has no {' or '.join(LAYERS)}")
    if number > _MOST_LAYERS:
        raise BadFile(f"it has {number} layers: {_MOST_LAYERS} at most")
    if name is not None:
        return _listed(name, given, number, first_of(fields, "num_nextn_predict_layers") or 0)
    places = range(number)
    repeated = fields.get("block_types")
    if isinstance(repeated, list) and repeated and all(isinstance(word, str) for word in repeated):
        words = {**WORDS, "attention": "sliding" if first_of(fields, *WINDOW) else "full"}  # RecurrentGemma
        return [words.get(word := repeated[i % len(repeated)], clean(word)) for i in places]
    for listed, (start, word, rest) in _PLACES.items():
        found = fields.get(listed)
        if found is None and listed == "attn_layer_indices" and listed in fields:
            found = []  # of Bamba, where null is no attention
        if isinstance(found, list):
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
    if not first_of(fields, *WINDOW) or fields.get("use_sliding_window") is False:
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
