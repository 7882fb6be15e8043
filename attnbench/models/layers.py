"""The attention layers of a model, as values, and the rule that computes each kind of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose
from typing import Literal

from attnbench.cases.ids import rule_word
from attnbench.types.errors import BadInput

Stage = Literal["prefill", "chunked", "decode", "image", "audio", "prompt with an image"]

OF_T5 = (32, 128)
"""The buckets of T5, and the distance of the last one: those of the rule where a case says no others."""


@dataclass(frozen=True)
class LayerKind:
    """Layers of a model that compute attention alike.

    name: in comments and warnings. H, Hkv, D, Dv: as in a case. scale: multiplies the dot products. count:
    how often a pass of the model computes it.

    causal: a query sees no later key. window: with its own, the last keys that a query sees, and as many
    later ones unless it is causal. chunk: a query sees only keys of its own chunk of so many positions.
    summaries: the first keys are a summary of each so many tokens, which all queries see beside the window.
    source: so many keys of an encoder share a softmax with its own; all queries see them. behind: of an
    encoder's window, how many earlier keys, where these are not as many as the later ones.
    indexed: of more keys, an indexer chooses so many for each query. Up to so many a query sees all of them;
    such layers are kinds of their own, without a selection. selection: with more keys, the operation that
    computes these layers: ``selected`` attends to the chosen keys, ``select`` is the indexer.
    image: so many tokens of an image see each other, later ones too. padded: sentences of different lengths
    share a batch. softcap, sinks, alibi: as in the rules of these names. buckets: those of
    T5's bias, as (buckets, distance) of its rule. latent: one tensor holds keys and values.

    tokens: how many queries and keys there always are; None where the text decides. keys: of cross-attention,
    how many keys there are. stages: when it is computed.

    update: of a recurrent layer, the rule of ``recurrent`` that computes it; H then counts heads of v, and
    Hkv those of q and k. "" for attention.

    beyond: in words, what else it computes that no field here can say.
    """

    name: str
    H: int
    Hkv: int
    D: int
    Dv: int
    scale: float
    count: int = 1
    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    summaries: int | None = None
    source: int | None = None
    behind: int | None = None
    indexed: int | None = None
    selection: str = ""
    image: int | None = None
    padded: bool = False
    softcap: float | None = None
    sinks: bool = False
    alibi: bool = False
    buckets: tuple[int, int] | None = None
    latent: bool = False
    tokens: int | None = None
    keys: int | None = None
    stages: tuple[Stage, ...] = ("prefill", "chunked", "decode")
    update: str = ""
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """The attention of a model.

    type: its ``model_type``. layers: the kinds of its attention layers, and of its recurrent ones that a rule
    can say. others: layers of neither sort, by name, with their number; unknown: layers of a kind that
    attnbench doesn't know, in the same form. limit: the most positions. dtype: of its weights, where a case
    can have it. notes: in words, what was assumed or left out. weights: how many numbers the matrices of its
    layers have at least, of which each token takes a product; 0 where no field says it.
    """

    type: str
    layers: tuple[LayerKind, ...]
    others: tuple[tuple[str, int], ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()
    limit: int | None = None
    dtype: str | None = None
    notes: tuple[str, ...] = ()
    weights: int = 0


def rule_of(kind: LayerKind) -> tuple[str, tuple[str, ...]]:
    """Return the rule that computes the weights of these layers, with constants, and in words what it lacks.

    Only this function knows which layers a rule can say. A layer with such words must not become a case.
    Constants have seven digits, as float32 has, so that a kernel which knows its scale is right.
    """
    if kind.update:
        return kind.update, kind.beyond
    special = {
        "softcap": kind.softcap is not None, "sinks": kind.sinks, "alibi": kind.alibi,
        "t5_bias": kind.buckets is not None,
    }  # fmt: skip
    rules = [rule for rule, needed in special.items() if needed]
    missing = list(kind.beyond)
    if len(rules) > 1:
        missing.append(f"{' and '.join(rules)} in one rule")
    if kind.alibi and kind.H & (kind.H - 1):
        missing.append(f"the ALiBi slopes of {kind.H} heads (the rule has those of powers of two)")
    if not rules and isclose(kind.scale, 1):
        return "dot", tuple(missing)
    constants: dict[str, float] = {} if kind.softcap is None else {"c": kind.softcap}
    if kind.buckets:
        pairs = zip(("buckets", "distance"), kind.buckets, OF_T5, strict=True)
        constants |= {name: value for name, value, default in pairs if value != default}
        # A decode has no causal mask, from which the rule would know it.
        constants |= {"sides": 1} if kind.causal else {}
    elif kind.latent or not isclose(kind.scale, kind.D**-0.5):
        constants["scale"] = float(f"{kind.scale:.7g}")
    return rule_word((rules or ["scaled_dot"])[0], constants), tuple(missing)


def shard(kind: LayerKind, tp: int) -> LayerKind:
    """Return the part of the heads that one of ``tp`` devices computes; key/value heads are repeated if few.

    Each device chooses keys by all heads of an indexer. Channels of Mamba-1 are divided as heads are.

    Raises:
        BadInput: the heads can't be divided so.
    """
    if kind.selection == "select":
        return kind
    if kind.update == "selective" and kind.Dv % tp == 0:
        return replace(kind, Dv=kind.Dv // tp)
    if kind.H % tp or (kind.Hkv % tp and tp % kind.Hkv):
        raise BadInput(
            f"--tp {tp}: {kind.H} query and {kind.Hkv} key/value heads can't be divided among {tp} devices"
        )
    beyond = (
        (*kind.beyond, "the ALiBi slopes of a part of the heads") if kind.alibi and tp > 1 else kind.beyond
    )
    return replace(kind, H=kind.H // tp, Hkv=max(1, kind.Hkv // tp), beyond=beyond)
