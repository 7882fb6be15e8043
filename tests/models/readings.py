"""The layers that attnbench reads from a config, in the words that a forward pass is noted in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from published import PUBLISHED

from attnbench.models.config import describe
from attnbench.models.layers import LayerKind, Model, rule_of
from attnbench.models.recurrences import CROSS
from attnbench.models.suite import model_suite
from attnbench.types.errors import BadInput

SCALED_BEFORE = ("opt", "qwen2_audio_encoder", "voxtral_encoder", "whisper")
"""Types that multiply their queries by the scale before they call attention, so that a function sees 1."""


@dataclass(frozen=True)
class Layer:
    """What a layer computes.

    scale: with four digits, as cases have it. mask: in words. biased: a learned number is added for each
    pair. tokens: how many queries there always are; 0 for as many as the text has. rule: of a recurrence,
    whose heads are those of v, then those of k; ``select`` of an indexer; or the name of a layer that no
    rule says.
    """

    H: int = 0
    Hkv: int = 0
    D: int = 0
    Dv: int = 0
    scale: str = ""
    mask: str = ""
    softcap: float | None = None
    sinks: bool = False
    biased: bool = False
    tokens: int = 0
    rule: str = ""


def layers_of(model: Model, *, text_only: bool = False) -> Counter[Layer]:
    """Return the layers of a model as one forward pass of many tokens computes them.

    text_only: no encoder of images or sound, and of an encoder and its decoder the self-attention of the
    latter.
    """
    kinds = [kind for kind in model.layers if not _again(kind)]
    if text_only:
        kinds = [kind for kind in kinds if not {"image", "audio"} & set(kind.stages)]
        kinds = [kind for kind in kinds if kind.name == "decoder"] or kinds
    layers: Counter[Layer] = Counter()
    for kind in kinds:
        layers[_layer(kind, model.type)] += kind.count
    for name, number in (*model.others, *model.unknown):
        if name == CROSS:  # Nothing computes it in a pass without another model.
            continue
        layers[Layer(rule=name)] += number
    return layers


def _again(kind: LayerKind) -> bool:
    """Return whether a kind is layers of another once more: as a decode has them, or with chosen keys."""
    return kind.latent


def _layer(kind: LayerKind, type_: str) -> Layer:
    sizes = kind.H, kind.Hkv, kind.D, kind.Dv
    if kind.selection:
        return Layer(*sizes, rule=kind.selection)
    if kind.update:
        return Layer(*sizes, rule=kind.update)
    mask = "cross" if kind.keys or kind.source else "causal" if kind.causal else "none"
    if kind.window and not kind.source:
        later = kind.behind is not None and f", {kind.window} later"
        mask += f" window {kind.window if kind.behind is None else kind.behind + 1}{later or ''}"
    if kind.summaries:
        mask += f" summaries {kind.summaries}"
    if kind.chunk:
        mask += f" chunk {kind.chunk}"
    scale = "1" if type_ in SCALED_BEFORE else f"{kind.scale:.4g}"
    return Layer(
        *sizes,
        scale,
        mask,
        kind.softcap,
        sinks=kind.sinks,
        biased=kind.buckets is not None,
        tokens=kind.tokens or 0,
    )


def parts_of(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the configs of the text and of each encoder of a published config, or itself."""
    parts = [fields[name] for name in ("text_config", "vision_config", "audio_config") if name in fields]
    for part in parts or [fields]:
        # A number there says how many tokens; a newer class asks whether there is any.
        yield {name: bool(v) if name == "attn_temperature_tuning" else v for name, v in part.items()}


def expected_of(row: Mapping[str, Any], model: Model) -> tuple[Counter[Layer], Counter[Layer]]:
    """Return the layers that a row of docs/measured/models.json expects, and those of the model it is of.

    Published facts say heads and their sizes alone, so the rest is left out of both.
    """
    expected: Counter[Layer] = Counter()
    for one in row["expected"]:
        expected[Layer(**{name: value for name, value in one.items() if name != "count"})] += one["count"]
    layers = layers_of(model)
    if row["expected_from"].startswith("transformers"):
        return expected, layers
    sizes: Counter[Layer] = Counter()
    for layer, count in layers.items():
        sizes[Layer(layer.H, layer.Hkv, layer.D, layer.Dv)] += count
    return expected, sizes


def told(name: str) -> dict[str, Any]:
    """Return what attnbench says of a published model: its layers, the cases of them, and the rest."""
    model = describe(PUBLISHED[name])
    kinds: Counter[str] = Counter()
    for kind in model.layers:
        kinds[kind.name] += 0 if _again(kind) else kind.count
    said, left_out = _said(model)
    return {
        "type": model.type,
        "kinds": dict(+kinds),
        "said": said,
        "of": sum(layers_of(model).values()),
        "left_out": left_out,
        "assumed": list(model.notes),
    }


def _said(model: Model) -> tuple[int, list[str]]:
    """Return how many layers are cases, and in words which are left out of the suite."""
    number = sum(kind.count for kind in model.layers if not _again(kind) and not rule_of(kind)[1])
    try:
        notes = model_suite(model).notes
    except BadInput as failure:
        return 0, [str(failure)]
    return number, [note.removeprefix("left out: ") for note in notes if note.startswith("left out")]
