"""The ``config.json`` of a model, as Hugging Face publishes it, read for its attention."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from math import isclose
from pathlib import Path
from re import search
from typing import Any

from attnbench.models.attention import (
    HEAD_DIM,
    LAYERS,
    LIMITS,
    LONGEST_SOURCE,
    SOURCE,
    WIDTH,
    attention_kind,
    audio_kind,
    cross_kind,
    encoder_decoder_kinds,
    heads_of,
    image_kinds,
    indexed_kinds,
    latent_kinds,
)
from attnbench.models.families import (
    DECODERS,
    DIFFERENTIAL,
    ENCODERS,
    FAMILIES,
    GATED,
    HARMLESS,
    KINDS,
    MATTERS,
    MERGED,
    RECURRENT,
    SEES_IMAGES_WHOLE,
    SEES_PROMPTS_WHOLE,
    ModelFamily,
)
from attnbench.models.fields import Fields, first_of
from attnbench.models.layers import LayerKind, Model, Stage
from attnbench.models.pattern import each_layer
from attnbench.models.recurrences import CROSS, UNSAID, recurrence
from attnbench.types.case import DTYPES
from attnbench.types.errors import BadFile
from attnbench.types.files import parse_json, read_text
from attnbench.types.words import clean

_TEXT = ("text_config", "language_config", "llm_config", "thinker_config")
_TOWERS: Mapping[str, Stage] = {"vision_config": "image", "audio_config": "audio"}
"""Parts beside the text, and the stage that computes each."""
_INNER = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size")
"""The features inside an MLP."""
_SOFTMAX = ("full", "sliding", "chunked", "indexed", "compressed")


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
    """Return the attention that a config describes, with its encoders of images and sound; raises BadFile."""
    if not isinstance(config, dict):
        raise BadFile("it is not an object: give the config.json of a model")
    part: Mapping[str, Any] = config
    towers, outside, unread = [], dict(config), list(_unread_parts(config))
    while inner := next((part[name] for name in _TEXT if isinstance(part.get(name), dict)), None):
        towers += [(name, part[name]) for name in _TOWERS if isinstance(part.get(name), dict)]
        outside, part = outside | dict(part), inner
        unread += _unread_parts(part)
    # Qwen2.5-VL, as first published, has the fields of the text beside the config of its images.
    towers += [(name, part[name]) for name in _TOWERS if isinstance(part.get(name), dict)]
    encoder, decoder = part.get("encoder"), part.get("decoder")
    if isinstance(encoder, dict) and isinstance(decoder, dict):
        text = next((encoder[name] for name in _TEXT if isinstance(encoder.get(name), dict)), encoder)
        if text is not encoder:
            towers += [(name, encoder[name]) for name in _TOWERS if isinstance(encoder.get(name), dict)]
        model = _encoder_and_decoder(text, decoder, config)
    else:
        model = _described(part, config)
    model = _with_prompts(model, part, outside)
    for name, tower in towers:
        model = _with_tower(model, name, tower)
    notes = (f"{clean(name)} is left out: attnbench does not read this part" for name in unread)
    return replace(model, notes=(*model.notes, *notes))


def _unread_parts(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts with layers of their own that nothing here reads, as the talker of Qwen2.5-Omni."""
    read, counts = (*_TEXT, *_TOWERS, "encoder", "decoder"), (*LAYERS, "encoder_layers", "depth")
    for name, inner in part.items():
        if name not in read and isinstance(inner, dict) and any(inner.get(count) for count in counts):
            yield name


def _encoder_and_decoder(
    encoder: Mapping[str, Any], decoder: Mapping[str, Any], config: Mapping[str, Any]
) -> Model:
    """Return a model whose encoder and decoder have configs of their own, as T5Gemma, and meet in
    cross-attention or, as T5Gemma 2, in one softmax. config: all of it."""
    reads = _described({**encoder, "use_bidirectional_attention": True}, config)
    writes = _described({**decoder, "is_decoder": True, "add_cross_attention": False}, config)
    notes = [*reads.notes, *writes.notes]
    keys = next((kind.tokens for kind in reads.layers if kind.tokens), None)
    if keys is None:
        keys = min(reads.limit or SOURCE, LONGEST_SOURCE)
        notes.append(_source_of(keys))
    cross: Counter[LayerKind] = Counter()
    if decoder.get("model_type") in MERGED:
        merged = (replace(kind, source=keys, beyond=()) for kind in writes.layers)
        writes = replace(writes, layers=tuple(merged))
    for kind in writes.layers if decoder.get("model_type") not in MERGED else ():
        cross[replace(cross_kind(kind, keys), count=1)] += kind.count
    return replace(
        writes,
        type=clean(config.get("model_type") or "unknown"),
        layers=(
            *reads.layers,
            *(replace(kind, name=f"decoder {kind.name}") for kind in writes.layers),
            *(replace(kind, count=number) for kind, number in cross.items()),
        ),
        others=(*reads.others, *writes.others),
        unknown=(*reads.unknown, *writes.unknown),
        limit=min((limit for limit in (reads.limit, writes.limit) if limit), default=None),
        notes=tuple(dict.fromkeys(notes)),
    )


def _source_of(keys: int) -> str:
    return f"no field fixes the length of the source: it has {keys} tokens, whatever --prefill says"


def _with_tower(model: Model, name: str, tower: Mapping[str, Any]) -> Model:
    """Return a model with the layers of an encoder of one image, or of one piece of sound."""
    what = name.removesuffix("_config")
    if not any(tower.get(field) for field in ("image_size", "num_patches", "max_source_positions")):
        note = f"{name} is left out: no field says how many tokens it has, so its input decides"
        return replace(model, notes=(*model.notes, note))
    try:
        found = describe(tower)
    except BadFile as failure:
        return replace(model, notes=(*model.notes, f"{name} is left out: {failure}"))
    if any(kind.tokens is None for kind in found.layers) or not found.layers:
        note = f"{name} is left out: attnbench does not know the encoder {found.type!r}"
        return replace(model, notes=(*model.notes, note))
    stages: tuple[Stage, ...] = (_TOWERS[name],)
    kinds = (replace(kind, name=f"{what} {kind.name}", stages=stages) for kind in found.layers)
    notes = (f"{name}: {note}" for note in found.notes if "dtype" not in note)
    return replace(model, layers=(*model.layers, *kinds), notes=(*model.notes, *notes))


def _with_prompts(model: Model, part: Mapping[str, Any], outside: dict[str, Any]) -> Model:
    """Return a model with prompts in which tokens see later ones.

    part: the fields of the text. outside: those of the parts around it. In Gemma 3 the tokens of an image see
    each other in all layers, in Gemma 4 in sliding ones; in PaliGemma all tokens of a prompt do.
    """
    type_ = outside.get("model_type")
    if type_ in SEES_PROMPTS_WHOLE:
        kinds = []
        for kind in model.layers:
            whole = replace(kind, name=f"{kind.name} in a prompt", causal=False, window=None)
            kinds += [replace(whole, stages=("prefill",)), replace(kind, stages=("decode",))]
        note = "all tokens of a prompt see each other"
        return replace(model, layers=tuple(kinds), notes=(*model.notes, note))
    sliding_only = part.get("use_bidirectional_attention") == "vision"
    if not sliding_only and type_ not in SEES_IMAGES_WHOLE:
        return model
    note = f"the tokens of an image see each other{' in sliding layers' if sliding_only else ''}"
    tokens = first_of(outside, "mm_tokens_per_image", "vision_soft_tokens_per_image")
    if tokens is None:
        note += ", and no field says how many: no prompt has an image"
        return replace(model, notes=(*model.notes, note))
    images = tuple(
        replace(
            kind,
            image=tokens if kind.window or not sliding_only else None,
            stages=(*kind.stages, "prompt with an image"),
        )
        for kind in model.layers
    )
    note += f": in the stage 'prompt with an image' the first {tokens} do"
    return replace(model, layers=images, notes=(*model.notes, note))


def _described(part: Mapping[str, Any], config: Mapping[str, Any]) -> Model:
    """Return the attention of one part of a config. config: all of it."""
    notes: list[str] = []
    crosses = False
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
    notes += [f"{name} = 0 is ignored" for name in (*HEAD_DIM, *LIMITS) if fields.get(name) == 0]
    if family.encoder and fields.get("is_decoder"):  # BERT and its kin then hide later tokens
        family = replace(family, encoder=False)
        if fields.get("add_cross_attention"):
            crosses = True
    others: dict[str, int] = {}
    if fields.get("is_encoder_decoder"):
        layers = encoder_decoder_kinds(fields, family)
        if not fields.get("max_source_positions"):
            notes.append(_source_of(layers[-1].keys or SOURCE))
    elif fields.get("max_source_positions"):
        layers = (audio_kind(fields, family),)
    elif (
        fields.get("patch_size")
        and (fields.get("image_size") or fields.get("num_patches"))
        and not fields.get("vocab_size")
    ):
        layers = image_kinds(fields, family)
    else:
        layers, others = _text_layers(fields, family)
    if crosses:
        others[CROSS] = sum(kind.count for kind in layers)
    if known is None and layers:
        notes.append(_assumed(type_, fields, layers, others))
    if summed := next((kind.summaries for kind in layers if kind.summaries), None):
        notes.append(
            f"its encoder also sees a summary of each {summed} tokens: these are the first keys, whose bias "
            "counts tokens here and summaries in the model"
        )
    rope = fields.get("qk_rope_head_dim")
    if rope and rope == fields.get("qk_nope_head_dim"):
        notes.append(
            f"qk_rope_head_dim = qk_nope_head_dim = {rope}: some versions of transformers write this by "
            "mistake; compare it with the published file"
        )
    if topk := next((kind.indexed for kind in layers if kind.indexed), None):
        notes.append(
            f"of more than {topk} keys an indexer chooses {topk} for each query: cases of selected attend to "
            f"them, and cases of select choose; up to {topk} keys all are read, and no case has the choice"
        )
    if type_ in GATED or fields.get("attn_output_gate"):
        notes.append(
            "its attention is multiplied by σ(gate) before the projection: gated_output computes both, and "
            "these cases are attention alone"
        )
    if type_ in DIFFERENTIAL:
        notes.append(
            "its attention is the difference of two: differential computes both at once, and these cases are "
            "one of the two"
        )
    notes += _not_read(fields, part)
    limits = [limit for name in LIMITS if (limit := first_of(fields, name))]
    dtype = next((word for c in (part, config) for n in ("dtype", "torch_dtype") if (word := c.get(n))), None)
    if dtype not in DTYPES:
        said = f"no case can have the dtype {clean(repr(dtype))}" if dtype else "the config names no dtype"
        notes.append(f"{said}: the cases have float32")
    if any(kind.update == "rwkv7" for kind in layers):
        notes.append(
            "rwkv7: its heads are read from num_heads, head_dim and hidden_size, which is not verified"
        )
    known_words = {*RECURRENT, *UNSAID}
    return Model(
        type=type_ or "unknown",
        layers=layers,
        others=tuple(other for other in others.items() if other[0] in known_words),
        unknown=tuple(other for other in others.items() if other[0] not in known_words),
        limit=min(limits) - family.reserved if limits else None,
        dtype=dtype if dtype in DTYPES else None,
        notes=tuple(notes),
        weights=_weights({**config, **part}, layers),
    )


def _weights(part: Mapping[str, Any], layers: Sequence[LayerKind]) -> int:
    """Return how many weights a step of a decode reads at least, 0 where no field says it.

    Counted are the projections of its attention, and two matrices of an MLP where nothing speaks of experts:
    what the layers of every such model have.
    """

    def number(*names: str) -> int:
        return next((value for name in names if type(value := part.get(name)) is int and value > 0), 0)

    if part.get("quantization_config"):
        return 0  # Its weights are of other dtypes.
    width = number(*WIDTH)
    inner = 0 if any("expert" in name for name in part) else number(*_INNER)
    found = 0
    for kind in layers:
        if "decode" in kind.stages and not (kind.update or kind.selection or kind.latent):
            attention = kind.H * (kind.D + kind.Dv) + (0 if kind.keys else kind.Hkv * (kind.D + kind.Dv))
            found += kind.count * width * (attention + (0 if kind.keys else 2 * inner))
    return found


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
        heads_of(fields)  # Without any, that is the first thing to say.
    alike: dict[tuple[str, str], tuple[Fields, int]] = {}
    for word, own in each_layer(fields):
        _, number = alike.get((word, str(own)), (own, 0))
        alike[word, str(own)] = own, number + 1
    kinds: dict[LayerKind, int] = {}
    others: dict[str, int] = {}
    for (word, _), (own, number) in alike.items():
        its = ChainMap(own, fields)
        if word in _SOFTMAX:
            found = (
                latent_kinds(word, its, family)
                if fields.get("kv_lora_rank")
                else (attention_kind(word, its, family),)
            )
            for kind in indexed_kinds(found, its, family) if word == "indexed" else found:
                kinds[kind] = kinds.get(kind, 0) + number * family.per_layer
            word = family.beside
        if not word:
            continue
        recurs = recurrence(word, its)
        if isinstance(recurs, LayerKind):
            kinds[recurs] = kinds.get(recurs, 0) + number
        else:
            others[recurs] = others.get(recurs, 0) + number
    if not kinds and not others:
        raise BadFile("none of its layers computes softmax attention, or a recurrence of a rule")
    return tuple(replace(kind, count=number) for kind, number in kinds.items()), others


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
