"""Compare the attention that transformers computes with what attnbench reads from the same config.

Models are built without weights, on the meta device, and computed once (forward.py)::

    python tests/models/against_transformers.py [TYPE ...] [--differences]
    python tests/models/against_transformers.py --models [MODEL ...] [--differences] [--out FILE]

The first takes every type of causal language model that the installed transformers builds from its default
config, and reads the config as ``save_pretrained`` writes it. It prints a table of the outcomes. The second
takes the models of published.py, whose fields both sides read; where transformers does not build a type, the
published facts beside them are the expectation. --out writes what docs/measured/models.json holds;
with --told the expectations in that file stay, and what attnbench says of the models is written anew.
--differences prints both sides of what differs.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import transformers
from forward import built
from published import FACTS, PUBLISHED
from readings import Layer, expected_of, layers_of, parts_of, told
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from attnbench.models.config import describe
from attnbench.models.layers import rule_of
from attnbench.types.errors import BadInput

OTHERS = (
    "albert", "distilbert", "electra", "eurobert", "modernbert", "nomic_bert", "roberta", "xlm-roberta",
    "clip_text_model", "siglip_text_model", "clip_vision_model", "siglip_vision_model",
    "siglip2_vision_model", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit", "internvl_vision",
    "llama4_vision_model",
    "qwen2_audio_encoder", "voxtral_encoder", "whisper", "bart", "longt5", "m2m_100", "marian", "mbart",
    "mt5", "pegasus", "t5", "t5gemma", "t5gemma2", "umt5",
)  # fmt: skip
"""Types of encoders, of text, images and sound, and of encoders with a decoder."""

VERSION = f"transformers {transformers.__version__}"


@dataclass(frozen=True)
class Outcome:
    """A type or model. computed, read: how often either side has which layer. said: what attnbench says."""

    name: str
    computed: Counter[Layer]
    read: Counter[Layer]
    said: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both sides have the same layers."""
        return self.computed == self.read


def outcomes(types: Sequence[str] = ()) -> Iterator[Outcome]:
    """Yield the outcome of each type that can be compared."""
    causal = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    asked = [(type_, type_ in causal and type_ not in OTHERS) for type_ in types]
    for type_, of_text in asked or [*((one, True) for one in causal), *((one, False) for one in OTHERS)]:
        if (found := built(type_, {}, causal=of_text)) is None:
            continue
        try:
            model = describe(dict(found.fields))
            # A pass of tokens enters no encoder of images beside the text.
            text = (kind for kind in model.layers if not {"image", "audio"} & set(kind.stages))
            model = replace(model, layers=tuple(text))
        except BadInput as failure:
            yield Outcome(type_, found.layers, Counter(), (f"refused: {failure}",))
            continue
        said = list(model.notes)
        for kind in model.layers:
            said += [f"{kind.name}: no case yet has {words}" for words in rule_of(kind)[1]]
        yield Outcome(type_, found.layers, layers_of(model, text_only=of_text), tuple(said))


def model_rows(names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield what is said of each published model, and the layers that are expected of it."""
    for name in names or PUBLISHED:
        source, facts = FACTS.get(name, (VERSION, ()))
        layers = Counter({Layer(*sizes): count for count, *sizes in facts}) or _computed(PUBLISHED[name])
        expected = [{"count": count, **_told(layer)} for layer, count in sorted(layers.items(), key=str)]
        yield {"model": name, "expected_from": source, "expected": expected, **told(name)}


def _computed(fields: Mapping[str, Any]) -> Counter[Layer]:
    """Return the layers of a published config, its encoders of images and sound included; none unless all are
    built."""
    layers: Counter[Layer] = Counter()
    for part in parts_of(fields):
        own = dict(part)
        if (found := built(own.pop("model_type"), own)) is None:
            return Counter()
        layers += found.layers
    return layers


def _told(layer: Layer) -> dict[str, Any]:
    """Return the fields of a layer that are not as they are by default."""
    return {name: value for name, value in asdict(layer).items() if value != asdict(Layer())[name]}


def table(found: Sequence[Outcome]) -> str:
    """Return the outcomes as Markdown."""
    same = [one.name for one in found if one.same]
    lines = [
        f"{VERSION}: {len(same)} of {len(found)} types are the same.",
        "",
        "| types | attnbench says |",
        "|---|---|",
        f"| {', '.join(same)} | the same layers |",
    ]
    lines += [f"| {one.name} | {'; '.join(one.said) or 'nothing'} |" for one in found if not one.same]
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write the rows of models."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--told", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if given.models:
        if given.told:
            rows = [row | told(row["model"]) for row in json.loads(given.out.read_text())]
        else:
            rows = list(model_rows(given.names))
        if given.out:
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
        found = [
            Outcome(row["model"], *expected_of(row, describe(PUBLISHED[row["model"]])), tuple(row["assumed"]))
            for row in rows
        ]
    else:
        found = list(outcomes(given.names))
    print(table(found))
    for one in found:
        if given.differences and not one.same:
            print(f"\n{one.name}")
            for name, layers in (("computed", one.computed), ("read", one.read)):
                print(*(f"  {name}: {number} {layer}" for layer, number in layers.items()), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
