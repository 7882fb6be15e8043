"""Differences between the environments of two sides, and which of them keep times from being compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attnbench.types.compared import Difference, Measured
from attnbench.types.errors import BadInput

_MATTER = frozenset({
    "cpu", "gpu", "cuda_devices", "cpu_quota", "governor", "python", "torch", "numpy", "scipy", "triton",
    "cuda", "cudnn", "jax", "flash_attn", "xformers", "machine",
})  # fmt: skip
"""Facts that times depend on. Times also depend on torch's flags (``torch.NAME``)."""

_DIALS_LISTED = frozenset({
    "budget_s", "sets", "baseline", "delta", "timeout_s", "memory_limit_bytes", "oracle_flops", "timed_draws",
    "timed", "without", "min_rounds", "max_time", "min_time", "calibration_precision", "rounds", "iterations",
})  # fmt: skip
"""Settings that change how much is measured, or how it is reported. All others change what a time is."""

_UNTOLD = "not told"
_PROTOCOL = "protocol "
_LONGEST = 60


def differences(base: Sequence[Measured], new: Sequence[Measured]) -> tuple[Difference, ...]:
    """Every fact and setting that differs between runs of both sides, those that matter first.

    A side whose own runs differ shows all its values, joined by ``or``. Only the first two numbers of the
    Python version matter. Settings are compared among runs of one format. A fact that only one side states is
    listed.
    """
    found = _unlike([run.environment for run in base], [run.environment for run in new], _matters)
    before, after = (frozenset(run.origin for run in side) for side in (base, new))
    if before != after:
        found.append(Difference("measured by", _words(before), _words(after), matters=True))
    for origin in sorted({run.origin for run in base} & {run.origin for run in new}):
        dials = [[run.protocol for run in side if run.origin == origin] for side in (base, new)]
        found += _unlike(dials[0], dials[1], lambda name: name not in _DIALS_LISTED, _PROTOCOL)
    return tuple(sorted(found, key=lambda difference: not difference.matters))


def unlike_versions(base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Versions that differ between the sides of a live comparison, those that times depend on first.

    None of them keeps the sides from being compared: the version may be what the user compares.
    """
    found = [
        Difference(fact, _text(base.get(fact)), _text(new.get(fact)), matters=False)
        for fact in dict.fromkeys((*base, *new))
        if base.get(fact) != new.get(fact)
    ]
    return tuple(sorted(found, key=lambda difference: not _matters(difference.fact)))


def check_alike(found: Iterable[Difference]) -> None:
    """Raise :class:`BadInput` where any difference matters; the message names all that do."""
    words = [f"{d.fact} ({d.base} in base, {d.new} in new)" for d in found if d.matters]
    if words:
        raise BadInput(
            f"the sides were not measured alike, so their times can't be compared: {', '.join(words)}; "
            "--force compares them all the same, and says so"
        )


def untold(found: Iterable[Difference]) -> list[str]:
    """Warnings of facts and settings that matter and that only one side states."""
    return [
        f"{d.fact} is told by one side alone ({d.base} in base, {d.new} in new)"
        for d in found
        if (_matters(d.fact) or _is_dial(d.fact)) and _UNTOLD in (d.base, d.new)
    ]


def _matters(name: str) -> bool:
    return name in _MATTER or name.startswith("torch.")


def _is_dial(fact: str) -> bool:
    return fact.startswith(_PROTOCOL) and fact.removeprefix(_PROTOCOL) not in _DIALS_LISTED


def _unlike(
    base: Sequence[dict[str, Any]],
    new: Sequence[dict[str, Any]],
    matters: Callable[[str], bool],
    prefix: str = "",
) -> list[Difference]:
    names = dict.fromkeys(name for facts in (*base, *new) for name in facts)
    found = []
    for name in names:
        before, after = (_values(side, name) for side in (base, new))
        if len(before | after) == 1:
            continue
        told = (before | after) - {_UNTOLD}
        if name == "python":
            told = frozenset(map(_feature_version, told))
        weighs = matters(name) and len(told) > 1
        found.append(Difference(prefix + name, _words(before), _words(after), weighs))
    return found


def _values(side: Sequence[dict[str, Any]], name: str) -> frozenset[str]:
    return frozenset(_text(facts[name]) if name in facts else _UNTOLD for facts in side)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return " ".join(str(value).split()) or "none"


def _words(values: Iterable[str]) -> str:
    return " or ".join(_shortened(value) for value in sorted(values))


def _shortened(text: str) -> str:
    """A long text, as torch's build flags, as its beginning and a checksum."""
    if len(text) <= _LONGEST:
        return text
    from zlib import crc32

    return f"{text[:_LONGEST]}… ({crc32(text.encode()):08x})"


def _feature_version(value: str) -> str:
    return ".".join(value.split(".")[:2])
