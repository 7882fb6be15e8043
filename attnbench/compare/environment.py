"""Differences between the environments of two sides, and which of them keep times from being compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from attnbench.types.compared import VARIABLE, Difference, Measured
from attnbench.types.errors import BadInput

_MATTER = frozenset({
    "cpu", "cpu_details", "gpu", "cuda_devices", "cuda_details", "cpu_quota", "governor", "python", "torch",
    "numpy", "scipy", "triton", "cuda", "cudnn", "jax", "flash_attn", "xformers", "machine",
})  # fmt: skip
"""Facts that times depend on. Times also depend on torch's flags (``torch.NAME``), and on libraries that
plugins need (``library NAME``)."""

_DIALS_LISTED = frozenset({
    "budget_s", "repetitions", "baseline", "delta", "timeout_s", "memory_limit_bytes", "oracle_flops",
    "timed_draws", "timed", "without", "note", "min_rounds", "max_time", "min_time", "calibration_precision",
    "rounds", "iterations",
})  # fmt: skip
"""Settings that change the amount of measuring or the report. All others change the meaning of a time."""

_UNKNOWN = "not stated"
_PROTOCOL = "protocol "
_FOLDERS = ("_HOME", "_DIR")
"""Ends of the names of variables that only say where files lie."""
_SHARED = ("attnbench", "backends", "plugin ", _PROTOCOL)
_LONGEST = 60


def _matters(fact: str) -> bool:
    if fact.startswith(_PROTOCOL):
        return fact.removeprefix(_PROTOCOL) not in _DIALS_LISTED
    if fact.startswith(VARIABLE):
        return not fact.endswith(_FOLDERS)
    return fact in _MATTER or fact.startswith(("torch.", "library "))


def _missing(fact: str) -> str:
    """Return the text for a fact that a run does not state; a variable is then most likely not set."""
    return "no value" if fact.startswith(VARIABLE) else _UNKNOWN


def differences(base: Sequence[Measured], new: Sequence[Measured]) -> tuple[Difference, ...]:
    """Return every fact and setting that differs between runs of both sides, those that matter first.

    If the runs of one side differ, all its values are listed, joined by ``or``. Only the first two numbers of
    the Python version matter. Settings are compared among runs of one format. A fact that only one side
    states is listed, and does not matter, unless it is a variable: the other side had it not set.
    """
    found = _unlike([run.environment for run in base], [run.environment for run in new])
    before, after = ({run.origin for run in side} for side in (base, new))
    if before != after:
        found.append(Difference("measured by", _words(before), _words(after), matters=True))
    for origin in sorted(before & after):
        found += _unlike(_settings(base, origin), _settings(new, origin))
    return _first(found)


def unlike_versions(base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the versions that differ between the sides of a live comparison, the important ones first.

    None of them keeps the sides from being compared, because a user may want to compare versions.
    """
    return tuple(replace(difference, matters=False) for difference in _first(_unlike([base], [new])))


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the facts that times depend on and that differ between two runs, each with both values."""
    return [f"{d.fact} ({d.base}, then {d.new})" for d in _unlike([before], [after]) if d.matters]


def unlike(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the facts that the runs of one selection should share and do not, with a text for each run.

    These are what times depend on, settings (``protocol NAME``), backends, and versions of attnbench and
    plugins.
    """
    found = {}
    for fact in dict.fromkeys(name for facts in runs for name in facts):
        values = [_words([_text(facts[fact])]) if fact in facts else _missing(fact) for facts in runs]
        if len(set(values)) > 1 and (_matters(fact) or fact.startswith(_SHARED)):
            found[fact] = values
    return found


def check_alike(found: Iterable[Difference]) -> None:
    """Raise :class:`BadInput` with all differences that matter, if there is one."""
    words = [f"{d.fact} ({d.base} in base, {d.new} in new)" for d in found if d.matters]
    if words:
        raise BadInput(
            f"the sides were measured under different conditions, so their times can't be compared: "
            f"{', '.join(words)}; --force compares them anyway"
        )


def one_sided(found: Iterable[Difference]) -> list[str]:
    """Return warnings of facts that matter and that only one side states."""
    return [
        f"only one side states {d.fact} ({d.base} in base, {d.new} in new)"
        for d in found
        if _matters(d.fact) and _UNKNOWN in (d.base, d.new)
    ]


def _settings(side: Sequence[Measured], origin: str) -> list[dict[str, Any]]:
    return [{_PROTOCOL + k: v for k, v in run.protocol.items()} for run in side if run.origin == origin]


def _unlike(base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Difference]:
    found = []
    for fact in dict.fromkeys(name for facts in (*base, *new) for name in facts):
        before, after = (
            {_text(facts[fact]) if fact in facts else _missing(fact) for facts in side}
            for side in (base, new)
        )
        if len(before | after) > 1:
            known = (before | after) - {_UNKNOWN}
            if fact == "python":
                known = {".".join(version.split(".")[:2]) for version in known}
            matters = _matters(fact) and len(known) > 1
            # Both sides may have the same several values: that matters only where times depend on them.
            if matters or before != after:
                found.append(Difference(fact, _words(before), _words(after), matters))
    return found


def _first(found: Iterable[Difference]) -> tuple[Difference, ...]:
    return tuple(sorted(found, key=lambda one: (not one.matters, not _matters(one.fact))))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return " ".join(str(value).split()) or "none"


def _words(values: Iterable[str]) -> str:
    """Join values; of a long text, such as torch's build flags, show the beginning and a checksum."""
    return " or ".join(
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({crc32(text.encode()):08x})"
        for text in sorted(values)
    )
