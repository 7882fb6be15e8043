"""Readable ids of cases, which parse back to the same case."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from attnbench.types.case import CACHE_MODES, DEVICES, DTYPES, LARGEST, PASSES, Case, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import MASK_WORDS, mask_text, parse_mask
from attnbench.types.operation import operation_named
from attnbench.types.words import unknown_name

FORM = "operation/rule/B1-H8-Lq128-Lk128-D64/mask/dtype/device/pass"
SIZES = ("B", "H", "Hkv", "L", "Lq", "Lk", "D", "Dv", "E")
LAYER_FLAGS = ("bias", "cross", "noout")
_CHOICES = {"dtype": DTYPES, "device": DEVICES, "pass_": PASSES, "cache": CACHE_MODES}
_COUNTED = ("threads", "seed")
_PROBABILITY = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,24})?(e-?[0-9]{1,3})?")
_SIZE = re.compile(r"([A-Za-z]+)(.*)", re.DOTALL)
_WHOLE = re.compile(r"-?[0-9]{1,18}")
# A minus sign before a digit belongs to the number, so that -8 is refused as a number.
_BETWEEN_SIZES = re.compile(r"-(?!\d)")


def case_id(case: Case) -> str:
    """Return the canonical id of a case; :func:`parse_case` is its inverse."""
    segments = [
        case.operation,
        case.rule,
        "-".join(_size_words(case)),
        mask_text(case.mask),
        case.dtype,
        case.device,
        case.pass_,
    ]
    if case.dropout:
        segments.append(f"dropout{float(case.dropout)!r}")
    if case.cache != "hot":
        segments.append(case.cache)
    if case.threads != 1:
        segments.append(f"threads{case.threads}")
    if case.seed != 0:
        segments.append(f"seed{case.seed}")
    return "/".join(segments)


def _size_words(case: Case) -> list[str]:
    words = [f"B{case.B}", f"H{case.H}"]
    if case.Hkv != case.H:
        words.append(f"Hkv{case.Hkv}")
    words += [f"Lq{case.Lq}", f"Lk{case.Lk}", f"D{case.D}"]
    if case.Dv != case.D:
        words.append(f"Dv{case.Dv}")
    if case.layer is not None:
        flags = zip(LAYER_FLAGS, (case.layer.bias, case.layer.cross, not case.layer.out), strict=True)
        words += [f"E{case.layer.E}", *(flag for flag, on in flags if on)]
    return words


@lru_cache(maxsize=1024)
def parse_case(text: str) -> Case:
    """Parse the id of a case. Results are cached, since processes parse the same few ids often.

    Raises:
        BadCase: one sentence restates the id and says what is wrong and what is allowed.
    """
    operation, *rest = text.strip().split("/")
    try:
        operation_named(operation)
        if len(rest) < 2 or not rest[0]:
            raise BadCase(f"an id has the form {FORM}")
        rule, sizes, *trailing = rest
        return build_case(operation=operation, rule=rule, **_parse_sizes(sizes), **_parse_trailing(trailing))
    except BadCase as failure:
        raise BadCase(f"case {text!r}: {failure}") from failure


def build_case(*, operation: str = "attention", rule: str, **fields: Any) -> Case:
    """Make a case from the fields of ids and suite files, with defaults filled in.

    Sizes are named as in an id (``L`` for both lengths, E, bias, cross, out). Others are a :class:`Mask` as
    ``mask``, and dtype, device, pass_, dropout, cache, threads, seed.

    Raises:
        BadCase: a size is missing or contradicts another, or the case can't exist.
    """
    length = fields.pop("L", None)
    if length is not None:
        for name in ("Lq", "Lk"):
            if name in fields:
                raise BadCase(f"L and {name}: L sets both Lq and Lk: give one or the other")
            fields[name] = length
    for name in ("H", "Lq", "D"):
        if name not in fields:
            raise BadCase(f"the size {name} is missing: {', '.join(_SIZE_MEANING[name])}")
    fields.setdefault("B", 1)
    fields.setdefault("Hkv", fields["H"])
    fields.setdefault("Lk", fields["Lq"])
    fields.setdefault("Dv", fields["D"])
    layer = {name: fields.pop(name) for name in ("E", "bias", "cross", "out") if name in fields}
    if layer and "E" not in layer:
        raise BadCase(f"{next(iter(layer))} belongs to multihead, which needs a model width E")
    return Case(operation=operation, rule=rule, layer=Layer(**layer) if layer else None, **fields)


_SIZE_MEANING = {
    "H": ("how many query heads there are", "as H8"),
    "Lq": ("how many queries there are", "as Lq128, or L128 for queries and keys alike"),
    "D": ("how many features a head has", "as D64"),
}


def _parse_sizes(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in _BETWEEN_SIZES.split(text):
        flag = "out" if word == "noout" else word
        if word in LAYER_FLAGS:
            name, value = flag, word != "noout"
        else:
            name, value = _parse_size(word, text)
        if name in found:
            raise BadCase(f"sizes {text!r}: {word!r} gives {name} a second time")
        found[name] = value
    return found


def _parse_size(word: str, text: str) -> tuple[str, int]:
    match = _SIZE.fullmatch(word)
    name, value = match.groups() if match else (word, "")
    if name not in SIZES:
        raise BadCase(f"sizes {text!r}: {unknown_name('size', name, (*SIZES, *LAYER_FLAGS))}")
    if not _WHOLE.fullmatch(value):
        if value.isascii() and value.isdigit():
            raise BadCase(f"{name} = {value}: sizes are {LARGEST} or less")
        raise BadCase(f"sizes {text!r}: {value!r} is not a whole number for {name}; write it as in '{name}8'")
    return name, int(value)


def _parse_trailing(segments: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for segment in segments:
        name, value = _parse_segment(segment)
        if name in found:
            raise BadCase(f"{segment!r} gives {name.rstrip('_')} a second time")
        found[name] = value
    return found


def _parse_segment(segment: str) -> tuple[str, Any]:
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
    if segment.replace("+", ":").split(":")[0] in MASK_WORDS:
        return "mask", parse_mask(segment)
    others = ("dropout0.1", "threads2", "seed7")
    known = [*MASK_WORDS, *(word for choices in _CHOICES.values() for word in choices), *others]
    raise BadCase(unknown_name("mask, dtype, device or pass", segment, known))
