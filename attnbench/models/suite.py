"""The suite of a model: its layers at the lengths of prefill, chunked prefill and decode, as TOML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from attnbench.cases.ids import build_case, parse_storage
from attnbench.cases.suites import TORCHS, parse_suite
from attnbench.cases.work import human_bytes
from attnbench.models.layers import LayerKind, Model, Stage, rule_of, shard
from attnbench.models.recurrences import UNSAID
from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.case import LARGEST, Case
from attnbench.types.encoding import DTYPE
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.extensions import Suite
from attnbench.types.words import count_of

_OF_TORCH = {"scaled_dot", "dot", "t5_bias"}
"""The rules that torch's function computes."""

_LITTLE = 0.1
"""Keys and values that are a smaller part of the weights say that attention is a small part of a decode."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Lengths:
    """The lengths that a suite has, in tokens.

    prefill: all tokens at once. chunked: some queries after others, as pairs of Lq and Lk. decode: keys for
    one query. batch: how many sequences are decoded, or encoded, together.

    caches: how a decode, or the step with sequences of unlike lengths, holds keys and values, as ``kv=`` in
    ids.

    sequences: instead of all these, one step with sequences of unlike lengths, as ids write a batch; "" for
    none. storage: where their numbers lie, as in ids.
    """

    prefill: tuple[int, ...] = (512, 2048, 8192)
    chunked: tuple[tuple[int, int], ...] = ((512, 4096), (4, 8192))
    decode: tuple[int, ...] = (1024, 8192, 32768)
    batch: tuple[int, ...] = (1,)
    caches: tuple[str, ...] = (DTYPE.name,)
    sequences: str = ""
    storage: str = "packed"


@dataclass(frozen=True)
class ModelSuite:
    """A suite as TOML. cases: how many. notes: in words, what was assumed, shortened or left out."""

    text: str
    cases: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Call:
    """A call of attention. what: in words. stage: of a model. batch: the sizes to try."""

    what: str
    stage: Stage
    Lq: int
    Lk: int
    batch: tuple[int, ...] = (1,)


def model_suite(
    model: Model, lengths: Lengths = Lengths(), tp: int = 1, threads: Sequence[int] = ()
) -> ModelSuite:
    """Return the suite of a model, in the heads that one of ``tp`` devices computes.

    threads: each case has one of each number; empty leaves them out. The counts of a stage are those of one
    step of it, a mean over its lengths and batches.

    Raises:
        BadInput: the heads can't be divided among the devices, no layer can be said as a case, or a batch
            has more keys than the model has positions.
    """
    if lengths.sequences:
        parse_storage(lengths.storage)
        longest = max(keys for _, keys in parse_batch(lengths.sequences))
        if longest > (model.limit or LARGEST):
            raise BadInput(
                f"the batch {lengths.sequences} has a sequence of {longest} keys, and the model has "
                f"{model.limit} positions"
            )
    notes = list(model.notes)
    parts: list[tuple[str, str]] = []
    left_out: dict[str, list[str]] = {}
    absent: list[LayerKind] = []
    there: set[str] = set()
    rules, special = set(), False
    for kind in (shard(kind, tp) for kind in model.layers):
        times = count_of(kind.count, "time")
        rule, missing = rule_of(kind)
        entries: list[str] = []
        caches, unheld = _caches(kind, rule, model.dtype, lengths.caches) if not missing else ((), [])
        notes += [f"{_name(kind)}: {words}" for words in unheld]
        unsaid = [" and ".join(missing)] if missing else []
        if not missing and lengths.sequences:
            entries, unsaid = _step(kind, rule, lengths, caches)
        elif not missing:
            calls = list(_calls(kind, lengths, model.limit))
            entries = _entries(kind, rule, calls, caches)
            there |= {call.stage for call in calls}
        if unsaid:
            absent.append(kind)
        for words in unsaid:
            left_out.setdefault(f"no case yet has {words}", []).append(f"{_name(kind)} ({times})")
        if entries:
            rules.add(rule.split("@")[0])
            special |= kind.latent or bool(kind.selection)
            head = f"# {_name(kind)}: {times} in a pass of the model\n"
            parts.append((_name(kind), head + "\n".join(entries)))
    for name, number in model.others:
        why = UNSAID.get(name, "this is not softmax attention")
        left_out.setdefault(why, []).append(f"{name} ({count_of(number, 'layer')})")
    for name, number in model.unknown:
        why = "attnbench does not know this kind of layer"
        left_out.setdefault(why, []).append(f"{name} ({count_of(number, 'layer')})")
    missed = [f"{' and '.join(heads)}: {words}" for words, heads in left_out.items()]
    if not parts:
        stages = _unique(f"--{stage}" for kind in model.layers for stage in kind.stages)
        without = f"no lengths are given, give some in {' or '.join(stages)}"
        raise BadInput(f"no layer of this model can be a case: {'; '.join(missed) or without}")
    notes += [f"left out: {words}" for words in missed]
    lacks = [
        *_absent(absent, there or {*LayerKind.stages}),
        *(_layers(number, name) for name, number in (*model.others, *model.unknown)),
    ]
    asked = [
        call.Lq if kind.keys else call.Lk
        for kind in model.layers
        if not kind.tokens and not lengths.sequences
        for call in _calls(kind, lengths, None)
    ]
    if asked and model.limit is None:
        notes.append("the config does not say how many positions the model has: no length is shortened")
    elif model.limit is not None and max(asked, default=0) > model.limit:
        notes.append(f"lengths above {model.limit}, the most positions of the model, became {model.limit}")
    # Only attention in the dtype, to all keys of a mask, has torch's function to compare with.
    of_torch = not special and lengths.caches == Lengths.caches
    of_torch &= rules <= _OF_TORCH and not lengths.sequences
    share = f", one of {tp} devices" if tp > 1 else ""
    summary = f"{model.type}{share}: {', '.join(_unique(name for name, _ in parts))}"
    lines = [
        "# Written by attnbench suite from-config.",
        *(f"# {note}" for note in notes),
        f"summary = {json.dumps(summary, ensure_ascii=False)}",
        *([f"baseline = {json.dumps(TORCHS)}"] if of_torch else []),
        *([f"without = {json.dumps(lacks, ensure_ascii=False)}"] if lacks else []),
        "",
    ]
    defaults = [] if model.dtype in (None, "float32") else [f'dtype = "{model.dtype}"']
    numbers = _unique(threads)
    defaults += [f"threads = {numbers[0] if len(numbers) == 1 else numbers}"] if numbers else []
    if defaults:
        lines += ["[defaults]", *defaults, ""]
    text = "\n".join([*lines, *(part for _, part in parts)])
    return ModelSuite(text, len(parse_suite(text, model.type).cases), tuple(notes))


def little_words(model: Model, suite: Suite, tp: int = 1) -> str:
    """Say that attention is a small part of a decode, or of the longest prompt, where that is known; else "".

    suite: that of the model, in the heads of one of ``tp`` devices.
    """
    if suite.counts is None or suite.stages is None or suite.without:
        return ""
    counted: dict[str, list[tuple[Case, float]]] = {}
    for case, count, stage in zip(suite.cases, suite.counts, suite.stages, strict=True):
        # Cases of other numbers of threads are the same step once more.
        if case.operation == "attention" and case.kv == DTYPE.name and case.threads == suite.cases[0].threads:
            counted.setdefault(stage, []).append((case, count))
    weights, found = model.weights / tp, []
    if "decode" in counted:
        keys_bytes = sum(
            count * case.B * case.Hkv * case.Lk * (case.D + case.Dv) * case.item_bytes
            for case, count in counted["decode"]
        )
        weights_bytes = weights * suite.cases[0].item_bytes
        if keys_bytes <= _LITTLE * weights_bytes:
            found.append(
                f"a step of the decode reads about {human_bytes(keys_bytes)} of keys and values, and over "
                f"{human_bytes(weights_bytes)} of weights"
            )
    if "prefill" in counted:
        lengths = {case.Lq for case, _ in counted["prefill"]}
        longest = max(lengths)
        # A count is a mean over the lengths. A causal mask keeps half of the pairs, and others fewer.
        products = sum(
            count * len(lengths) * longest**2 / (2 if case.mask.words else 1) * case.H * (case.D + case.Dv)
            for case, count in counted["prefill"]
            if case.Lq == longest
        )
        if products <= _LITTLE * weights * longest:
            share = products / (products + weights * longest)
            found.append(
                f"attention makes about {share:.1%} of the products of a prompt of {longest:,} tokens"
            )
    if not found:
        return ""
    advice = "a choice of attention saves a small part (attnbench capture measures how much it is)"
    return f"{'; '.join(found)}: {advice}"


def with_octaves(lengths: Lengths, limit: int | None) -> Lengths:
    """Return lengths with half of each number of keys that a decode has, of which none exceeds the limit.

    A cache grows, and a choice holds between two measured lengths.
    """
    decode = [keys for n in lengths.decode for keys in (min(n, limit or n) // 2, n) if keys]
    return replace(lengths, decode=tuple(_unique(decode)))


def _absent(kinds: Iterable[LayerKind], there: Collection[str]) -> Iterator[str]:
    """Yield the layers without a case that some stages of a suite compute, and which ones if not all do."""
    for kind in kinds:
        stages = [stage for stage in kind.stages if stage in there]
        if stages:
            where = "" if len(stages) == len(there) else f" of {' and '.join(stages)}"
            yield _layers(kind.count, kind.name) + where


def _layers(number: int, name: str) -> str:
    return count_of(number, f"{name} layer")


def _name(kind: LayerKind) -> str:
    keys = kind.window or kind.chunk or kind.keys
    return kind.name + (f" of {keys} keys" if keys else "")


def _calls(kind: LayerKind, lengths: Lengths, limit: int | None) -> Iterator[_Call]:
    """Yield the calls of a kind at these lengths, each once; none is longer than the model can be."""
    cross, most = kind.keys, limit or LARGEST
    for stage in kind.stages:
        if stage in ("image", "audio"):
            if kind.tokens and lengths.prefill:
                whole = "one image" if stage == "image" else "one piece of sound"
                yield _Call(whole, stage, kind.tokens, cross or kind.tokens)
        elif stage == "prompt with an image":
            for n in _unique(min(n, most) for n in lengths.prefill):
                yield _Call("a prompt that begins with an image", stage, n, n)
        elif stage == "prefill":
            text = kind.causal or (cross and not kind.tokens)
            whole, batch = ("prefill", (1,)) if text else ("all tokens", lengths.batch)
            for n in _unique(kind.tokens or min(n, most) for n in lengths.prefill):
                yield _Call(whole, stage, n, cross or n, batch)
        elif stage == "chunked":
            for Lq, Lk in _unique((Lq, min(Lk, most)) for Lq, Lk in lengths.chunked):
                if Lq < Lk:
                    yield _Call(f"{Lq} tokens after {Lk - Lq} others", stage, Lq, Lk)
        else:
            for n in _unique(cross or min(n, most) for n in lengths.decode):
                yield _Call("decode", stage, 1, n, lengths.batch)


def _caches(
    kind: LayerKind, rule: str, dtype: str | None, words: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the ways to hold the cache of a kind, and in words which of those asked for can't hold it."""
    if kind.update or "decode" not in kind.stages:
        return Lengths.caches, []
    if kind.latent or kind.selection:
        what, held_too = ("its latent head", "latent") if kind.latent else (kind.selection, DTYPE.name)
        others = [word for word in words if word not in (DTYPE.name, held_too)]
        return Lengths.caches, [f"{what} has no case with kv={word}" for word in others]
    held, unheld = [], []
    fields: dict[str, Any] = {"Lq": 1, "Lk": 1, "dtype": dtype or "float32"} | _sizes(kind)
    for word in words:
        try:
            build_case(rule=rule, kv=word, **fields)
        except BadCase as failure:
            unheld.append(f"left out: {failure}")
        else:
            held.append(word)
    return tuple(held), unheld


def _entries(kind: LayerKind, rule: str, calls: Iterable[_Call], caches: tuple[str, ...]) -> list[str]:
    """Return the entries of the suite for these calls. caches: of a decode."""
    calls = list(calls)
    steps = Counter(call.stage for call in calls)
    counted: dict[tuple[str, Stage, tuple[int, ...], str, int, int], float] = {}
    # A recurrent layer computes a prefill of 512 tokens and 512 tokens after others alike, and a full layer
    # of Gemma 4 prompts with an image and without, but a case has one stage: a seed tells them apart.
    stages: dict[tuple[int, int, str], list[Stage]] = {}
    for call in calls:
        if not _computes(kind, call.Lk):
            continue
        Lk, mask = _keys_and_mask(kind, call)
        one = call.what, call.stage, call.batch, mask, call.Lq, Lk
        counted[one] = counted.get(one, 0) + kind.count / steps[call.stage] / len(call.batch)
    grouped: dict[tuple[str, Stage, tuple[int, ...], str, float, int], list[tuple[int, int]]] = {}
    for (what, stage, batch, mask, Lq, Lk), count in counted.items():
        before = stages.setdefault((Lq, Lk, mask), [])
        if stage not in before:
            before.append(stage)
        seed = before.index(stage)
        grouped.setdefault((what, stage, batch, mask, count, seed), []).append((Lq, Lk))
    return [_toml(kind, rule, *group, pairs, caches) for group, pairs in grouped.items()]


def _computes(kind: LayerKind, keys: int) -> bool:
    """Return whether a kind computes so many keys: with a selection only more than it chooses."""
    return kind.indexed is None or (keys > kind.indexed) == bool(kind.selection)


def _step(
    kind: LayerKind, rule: str, lengths: Lengths, caches: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Return the entry of a step with sequences of unlike lengths, or in words what no case can say."""
    sequences = tuple(one for one in parse_batch(lengths.sequences) if _computes(kind, one[1]))
    # Of the two forms of latent attention, a decode has one and all else the other.
    if kind.latent and not kind.selection:
        sequences = tuple(one for one in sequences if one[0] == 1)
    elif kind.causal and "decode" not in kind.stages:
        sequences = tuple(one for one in sequences if one[0] > 1)
    if not sequences:
        return [], []
    if kind.update:
        steps = batch_text(tuple((queries, queries) for queries, _ in sequences))
        fields = _operation(kind) | {"rule": rule, "batch": steps, "storage": "packed"} | _sizes(kind)
        return [_entry("sequences of unlike lengths", fields | {"count": kind.count})], []
    longest = max(keys for _, keys in sequences)
    if kind.summaries or kind.source:
        return [], [f"a batch whose first keys are {'summaries' if kind.summaries else 'of an encoder'}"]
    if kind.keys or kind.tokens:
        return [], ["a batch whose keys or queries are always as many"]
    # A query that is alone is the last token, which sees all others.
    words = ["causal:lower_right"] if kind.causal and any(queries > 1 for queries, _ in sequences) else []
    chunked = [f"chunked:{kind.chunk}"] if kind.chunk is not None and kind.chunk < longest else []
    if found := chunked or _window(kind, longest):
        words = [*(["causal:lower_right"] if kind.causal else []), *found]
    fields = _operation(kind) | {"rule": rule, "batch": batch_text(sequences), "storage": lengths.storage}
    fields |= _sizes(kind)
    fields |= {"kv": "latent"} if kind.latent else {}
    fields |= {"mask": "+".join(words)} if words else {}
    fields |= _held(caches)
    return [_entry("sequences of unlike lengths", fields | {"count": kind.count})], []


def _keys_and_mask(kind: LayerKind, call: _Call) -> tuple[int, str]:
    """Return how many keys any query sees, and the mask over them.

    The queries are the last of the Lk positions. A recurrent layer has a state in place of the
    others. Keys that no query sees are left out, as caches of sliding layers do. A mask that hides nothing is
    left out as well.
    """
    Lq, Lk = call.Lq, call.Lk
    if kind.update:
        return Lq, "none"
    words: list[str] = []
    if not kind.causal:
        summaries = Lk // kind.summaries if kind.summaries else 0
        words += _window(kind, Lk)
        words += [f"first:{summaries}"] if summaries and words else []
        Lk += summaries
        words += ["padding"] if kind.padded else []
        return Lk, "+".join(words) or "none"
    if kind.chunk is not None:
        Lk -= (Lk - Lq) // kind.chunk * kind.chunk
        words += [f"chunked:{kind.chunk}"] if Lk > kind.chunk else []
    if kind.window is not None:
        Lk = min(Lk, Lq + kind.window - 1)
        words += _window(kind, Lk) if Lq > 1 else []
    if kind.image is not None and call.stage == "prompt with an image":
        words += [f"image:0,{min(kind.image, Lk)}"]
    if kind.source:
        words += [f"first:{kind.source}"] if words else []
        Lk += kind.source
    if Lq > 1:
        words.insert(0, "causal" if Lq == Lk else "causal:lower_right")
    return Lk, "+".join(words) or "none"


def _window(kind: LayerKind, keys: int) -> list[str]:
    """Return the word of a window, in a list that is empty where none of so many keys is outside."""
    if kind.window is None or kind.window >= keys:
        return []
    return [f"window:{kind.window}" if kind.behind is None else f"reach:{kind.behind},{kind.window - 1}"]


def _toml(
    kind: LayerKind,
    rule: str,
    what: str,
    stage: Stage,
    batch: tuple[int, ...],
    mask: str,
    count: float,
    seed: int,
    pairs: list[tuple[int, int]],
    caches: tuple[str, ...],
) -> str:
    """Return an entry. Of its pairs of lengths all are equal, or one side is the same in all."""
    queries, keys = (_unique(side) for side in zip(*pairs, strict=True))
    fields = _operation(kind) | {"rule": rule}
    if batch != (1,):
        fields["B"] = list(batch)
    fields |= _heads(kind)
    fields |= {"L": queries} if queries == keys else {"Lq": queries, "Lk": keys}
    fields |= _features(kind)
    if kind.latent:
        fields["kv"] = "latent"
    if mask != "none":
        fields["mask"] = mask
    fields |= _held(caches) if stage == "decode" else {}
    if seed:
        fields["seed"] = seed
    fields["count"] = int(count) if count == int(count) else float(f"{count:.6g}")
    fields["stage"] = stage
    return _entry(what, fields)


def _operation(kind: LayerKind) -> dict[str, object]:
    """Return the operation that computes a kind, unless it is attention, with its own size."""
    if kind.update:
        return {"operation": "recurrent"}
    return {"operation": kind.selection, "top": kind.indexed} if kind.selection else {}


def _heads(kind: LayerKind) -> dict[str, object]:
    found: dict[str, object] = {"H": kind.H}
    return found if kind.Hkv == kind.H else found | {"Hkv": kind.Hkv}


def _features(kind: LayerKind) -> dict[str, object]:
    found: dict[str, object] = {"D": kind.D}
    return found if kind.Dv == kind.D else found | {"Dv": kind.Dv}


def _held(caches: tuple[str, ...]) -> dict[str, object]:
    return {} if caches == Lengths.caches else {"kv": list(caches)}


def _sizes(kind: LayerKind) -> dict[str, object]:
    return _heads(kind) | _features(kind)


def _entry(what: str, fields: Mapping[str, object]) -> str:
    """Return an entry of a suite as TOML. what: in words, for a comment."""
    lines = [f"{name} = {_value(value)}" for name, value in fields.items()]
    return "\n".join([f"[[cases]] # {what}", *lines, ""])


def _value(value: object) -> str:
    """Return a value as TOML; a list of one as its only value."""
    return json.dumps(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _unique(values: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(values))
