"""Readable ids of cases, which parse back to the same case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attnbench.types.batch import batch_text, begins_batch, parse_batch
from attnbench.types.case import CACHE_MODES, DTYPES, NICKNAMES, ORDERS, PASSES, Case, Layer
from attnbench.types.device import CPU, CUDA, DEVICES
from attnbench.types.encoding import known_encodings, names_encoding, parse_encoding
from attnbench.types.errors import BadCase
from attnbench.types.mask import mask_names, mask_text, parse_mask
from attnbench.types.operation import known_operations, operation_named
from attnbench.types.storage import known_storages, storage_named
from attnbench.types.words import unknown_name

FORM = "operation/rule/B1-H8-Lq128-Lk128-D64/mask/dtype/device/pass"
SIZES = ("B", "H", "Hkv", "L", "Lq", "Lk", "D", "Dv", "E")
LAYER_FLAGS = ("bias", "cross", "noout")
_CHOICES = {"dtype": DTYPES, "device": tuple(DEVICES), "pass_": PASSES, "cache": CACHE_MODES}
_COUNTED = ("threads", "seed")
_CONSTANT = re.compile(r"([A-Za-z0-9_.-]+)=(-?[0-9]{1,18}(?:\.[0-9]{1,24})?(?:e[+-]?[0-9]{1,3})?)")
_PROBABILITY = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,24})?(e-?[0-9]{1,3})?")
_SIZE = re.compile(r"([A-Za-z]+)(.*)", re.DOTALL)
# More digits are no number for Python.
_WHOLE = re.compile(r"-?[0-9]{1,4000}")
# A minus sign before a digit belongs to the number, so that -8 is refused as a number.
_BETWEEN_SIZES = re.compile(r"-(?!\d)")


def case_id(case: Case) -> str:
    """Return the canonical id of a case; :func:`parse_case` is its inverse."""
    segments = [
        case.operation,
        rule_word(case.rule, dict(case.constants)),
        "-".join(_size_words(case)),
        mask_text(case.mask),
        case.dtype,
        case.device,
        case.pass_,
    ]
    if case.storage != "dense":
        segments.append(storage_word(case.storage, dict(case.sizes)))
    if names_encoding(case):
        segments.append(f"kv={case.kv}")
    segments += case.returns
    if case.dropout:
        segments.append(f"dropout{float(case.dropout)!r}")
    if case.layout != "own":
        segments.append(case.layout)
    if case.cache != "hot":
        segments.append(case.cache)
    if case.threads != 1:
        segments.append(f"threads{case.threads}")
    if case.seed != 0:
        segments.append(f"seed{case.seed}")
    return "/".join(segments)


def rule_word(rule: str, constants: Mapping[str, float]) -> str:
    """Return a rule with its constants as ids have it, ``softcap@c=50,scale=0.1``."""
    # Adding 0 turns -0 into 0, which is the same number.
    words = [f"{name}={repr(float(constants[name]) + 0.0).removesuffix('.0')}" for name in sorted(constants)]
    return rule + ("@" + ",".join(words) if words else "")


def storage_word(storage: str, sizes: Mapping[str, int]) -> str:
    """Return a storage with its sizes as ids have it, ``paged:32``, or ``paged:page=32,slots=64``."""
    if not sizes:
        return storage
    if len(storage_named(storage).sizes) == 1:
        return f"{storage}:{next(iter(sizes.values()))}"
    return f"{storage}:" + ",".join(f"{name}={sizes[name]}" for name in sorted(sizes))


_DEFAULTS = ("none", "float32", CPU.name, "forward")


def short_id(case: Case) -> str:
    """Return the case's id without defaults, as ``scaled_dot/H4-L64-D32/causal``.

    With ``attention/`` before it, or as it is for other operations, it is an id of the same case.
    """
    operation, rule, sizes, *rest = case_id(case).split("/")
    sizes = sizes.removeprefix("B1-")
    if case.Lq == case.Lk:
        sizes = re.sub(r"Lq(\d+)-Lk\d+", r"L\1", sizes)
    words = [word for place, word in enumerate(rest) if _DEFAULTS[place : place + 1] != (word,)]
    return "/".join([*([operation] if operation != "attention" else []), rule, sizes, *words])


def given_id(case: Case) -> str:
    """Return the shortest id of a case that commands take, as ``attention/scaled_dot/H4-L64-D32/causal``."""
    short = short_id(case)
    return short if case.operation != "attention" else f"{case.operation}/{short}"


def meant_id(text: str) -> str:
    """Return the id that a name of a table or of a line means; "" where it means none."""
    words = f"attention/{'/'.join(text.split())}"
    try:
        return given_id(parse_case(words))
    except BadCase:
        return ""


def _size_words(case: Case) -> list[str]:
    words = [case.batch or f"B{case.B}", f"H{case.H}"]
    if case.Hkv != case.H:
        words.append(f"Hkv{case.Hkv}")
    words += ([] if case.batch else [f"Lq{case.Lq}", f"Lk{case.Lk}"]) + [f"D{case.D}"]
    if case.Dv != case.D:
        words.append(f"Dv{case.Dv}")
    if case.layer is not None:
        flags = zip(LAYER_FLAGS, (case.layer.bias, case.layer.cross, not case.layer.out), strict=True)
        words += [f"E{case.layer.E}", *(flag for flag, on in flags if on)]
    return words + [f"{name}{value}" for name, value in case.operation_sizes]


@lru_cache(maxsize=1024)
def parse_case(text: str) -> Case:
    """Parse the id of a case. Results are cached, since processes parse the same few ids often.

    Raises:
        BadCase: one sentence restates the id and says what is wrong and what is allowed.
    """
    operation, *rest = text.strip().split("/")
    try:
        if operation not in known_operations() and operation != "attention" and (meant := meant_id(text)):
            raise BadCase(f"an id begins with its operation; did you mean {meant!r}?")
        operation_named(operation)
        if len(rest) < 2 or not rest[0]:
            raise BadCase(f"an id has the form {FORM}")
        rule, sizes, *trailing = rest
        fields = _parse_sizes(sizes, operation) | _parse_trailing(trailing, operation)
        return build_case(operation=operation, rule=rule, **fields)
    except BadCase as failure:
        raise BadCase(f"case {text!r}: {failure}") from failure


def build_case(*, operation: str = "attention", rule: str, **fields: Any) -> Case:
    """Make a case from the fields of ids and suite files, with defaults filled in.

    rule: with its constants, as in an id. Sizes are named as there (``L`` for both lengths, E, bias, cross,
    out; those of the operation). Others are a :class:`Mask` as ``mask``, and dtype, device, pass_, dropout,
    layout, cache, threads, seed; batch, storage with its sizes as in an id, kv, and returns.

    Raises:
        BadCase: a size is missing or contradicts another, or the case can't exist.
    """
    fields |= storage_fields(fields)
    length = fields.pop("L", None)
    if length is not None:
        for name in ("Lq", "Lk"):
            if name in fields:
                raise BadCase(f"L sets both Lq and Lk: leave out L or {name}")
            fields[name] = length
    for name in ("H", "Lq", "D"):
        if name not in fields:
            meaning, example = _SIZE_MEANING[name]
            raise BadCase(f"the size {name} is missing ({meaning}): add it, {example}")
    if "dtype" in fields:
        fields["dtype"] = NICKNAMES.get(fields["dtype"], fields["dtype"])
    fields.setdefault("B", 1)
    fields.setdefault("Hkv", fields["H"])
    fields.setdefault("Lk", fields["Lq"])
    fields.setdefault("Dv", fields["D"])
    if "kv" in fields:
        fields["kv"] = parse_encoding(fields["kv"])
    layer = {name: fields.pop(name) for name in ("E", "bias", "cross", "out") if name in fields}
    if layer and "E" not in layer:
        raise BadCase(f"{next(iter(layer))} belongs to multihead, which needs a model width E")
    rule, constants = parse_rule(rule)
    sizes = {size.name: size.default for size in operation_named(operation).sizes}
    for name in {size.name for one in known_operations().values() for size in one.sizes} & {*fields}:
        if name not in sizes:
            raise BadCase(f"the operation {operation} has no size {name!r}")
    chosen = sorted((name, fields.pop(name)) for name in sizes if name in fields)
    fields["operation_sizes"] = tuple(pair for pair in chosen if pair[1] != sizes[pair[0]])
    return Case(
        operation=operation,
        rule=rule,
        constants=constants,
        layer=Layer(**layer) if layer else None,
        **fields,
    )


def storage_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return batch, its lengths, storage and sizes as a case has them, of fields that give any.

    Raises:
        BadCase: a word is not a batch or a storage, or lengths are given beside a batch.
    """
    found: dict[str, Any] = {}
    if "storage" in fields:
        found["storage"], sizes = parse_storage(fields["storage"])
        found["sizes"] = tuple(fields.get("sizes", sizes))
    if fields.get("batch"):
        for name in ("B", "L", "Lq", "Lk"):
            if name in fields:
                raise BadCase(f"the batch {fields['batch']} sets B, Lq and Lk: leave out {name}")
        lengths = parse_batch(fields["batch"])
        found["batch"] = batch_text(lengths)
        found["B"], found["Lq"] = len(lengths), max(queries for queries, _ in lengths)
        found["Lk"] = max(keys for _, keys in lengths)
    return found


def parse_storage(word: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the name of a storage and its sizes but the default ones, the inverse of :func:`storage_word`.

    Raises:
        BadCase: there is no such storage, or it has no such size.
    """
    name, colon, text = word.partition(":")
    sizes = {size.name: size.default for size in storage_named(name).sizes}
    found: dict[str, int] = {}
    for part in text.split(",") if colon else ():
        key, equals, number = part.partition("=")
        if not equals and len(sizes) == 1:
            key, number = next(iter(sizes)), part
        if key not in sizes or not _WHOLE.fullmatch(number):
            example = storage_word(name, sizes)
            how = f"write it as {example}" if sizes else f"{name} has no sizes"
            raise BadCase(f"storage {word!r}: {part!r} is not a size: {how}")
        if key in found:
            raise BadCase(f"storage {word!r}: {part!r} gives {key} a second time")
        found[key] = int(number)
    return name, tuple(sorted((key, value) for key, value in found.items() if value != sizes[key]))


def parse_rule(word: str) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the name of a rule and its constants, the inverse of :func:`rule_word`; raises BadCase."""
    rule, at, text = word.partition("@")
    found: dict[str, float] = {}
    for part in text.split(",") if at else ():
        match = _CONSTANT.fullmatch(part)
        if match is None:
            raise BadCase(f"rule {word!r}: write constants as in 'softcap@c=50', not {part!r}")
        if match[1] in found:
            raise BadCase(f"rule {word!r}: {part!r} gives {match[1]} a second time")
        found[match[1]] = float(match[2])
    return rule, tuple(sorted(found.items()))


_SIZE_MEANING = {
    "H": ("query heads", "as H8, or H = 8 in a file"),
    "Lq": ("queries", "as Lq128, or L128 for queries and keys alike; L = 128 in a file"),
    "D": ("features of a head", "as D64, or D = 64 in a file"),
}


def _parse_sizes(text: str, operation: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = (*SIZES, *(size.name for size in operation_named(operation).sizes))
    for word in _BETWEEN_SIZES.split(text):
        if begins_batch(word):
            if "batch" in found:
                raise BadCase(f"sizes {text!r}: {word!r} is a second batch")
            found["batch"] = word
            continue
        flag = "out" if word == "noout" else word
        if word in LAYER_FLAGS:
            name, value = flag, word != "noout"
        else:
            name, value = _parse_size(word, text, known)
        if name in found:
            raise BadCase(f"sizes {text!r}: {word!r} gives {name} a second time")
        found[name] = value
    return found


def _parse_size(word: str, text: str, known: tuple[str, ...]) -> tuple[str, int]:
    match = _SIZE.fullmatch(word)
    name, value = match.groups() if match else (word, "")
    if name not in known:
        raise BadCase(f"sizes {text!r}: {unknown_name('size', name, (*known, *LAYER_FLAGS))}")
    if not _WHOLE.fullmatch(value):
        raise BadCase(f"sizes {text!r}: {value!r} is not a whole number for {name}; write it as in '{name}8'")
    return name, int(value)


def _parse_trailing(segments: list[str], operation: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for segment in segments:
        name, value = _parse_segment(segment, operation)
        if name == "returns":
            if value[0] in found.get(name, ()):
                raise BadCase(f"{segment!r} asks for this output a second time")
            found[name] = tuple(sorted((*found.get(name, ()), *value)))
            continue
        if name in found:
            raise BadCase(f"{segment!r} gives {name.rstrip('_')} a second time")
        found[name] = value
    return found


def _parse_segment(segment: str, operation: str) -> tuple[str, Any]:
    segment = NICKNAMES.get(segment, segment)
    for name, choices in _CHOICES.items():
        if segment in choices:
            return name, segment
    for name in _COUNTED:
        number = segment.removeprefix(name)
        if number != segment and _WHOLE.fullmatch(number):
            return name, int(number)
    share = segment.removeprefix("dropout")
    if share != segment and _PROBABILITY.fullmatch(share):
        return "dropout", float(share)
    if segment == "own" or segment.split("_")[0] in ORDERS:
        return "layout", segment
    if segment.replace("+", ":").split(":")[0] in mask_names():
        return "mask", parse_mask(segment)
    if segment.split(":")[0] in known_storages():
        return "storage", segment
    if segment.startswith("kv="):
        return "kv", segment.removeprefix("kv=")
    if segment in operation_named(operation).returns:
        return "returns", (segment,)
    if segment == "gpu":
        raise BadCase(f"no device 'gpu'; did you mean '{CUDA.name}'?")
    others = ("dropout0.1", "threads2", "seed7")
    known = [*mask_names(), *known_storages(), *operation_named(operation).returns]
    known += [f"kv={name}" for name in known_encodings()]
    known += [*(word for choices in _CHOICES.values() for word in choices), *ORDERS, *others]
    raise BadCase(unknown_name("mask, dtype, device or pass", segment, known))
