"""Run files of format 1 in the words of format 2: other keys and names, the same numbers.

The table stands in docs/files.md. Decoded lines are renamed, so digests are checked on the file as it is.
What has not the form of a line stays as it is, for the typed decoding to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KEYS: dict[str, dict[str, str]] = {
    "protocol": {"sets": "repetitions", "stretches": "segments", "turn_s": "sample_s"},
    "case": {"stretches": "segments", "contenders": "candidates"},
    "plan": {"sets": "repetitions", "stretches": "segments"},
    "set": {"blocks": "samples", "changes": "transforms"},
    "record": {"sets": "repetitions"},
    "phases": {"near": "variant_case", "sets": "repetitions"},
    "samples": {"stretch": "segment", "turns": "slots", "renewed_ns": "refreshed_ns"},
}
"""By part of a file, the keys that have another name in format 2."""

_INPUTS = {
    "loud": "large_logits",
    "quiet": "unlikely_values",
    "one_key": "one_hot",
    "deep_change": "near_duplicate",
}
"""Names of stress inputs."""

_OPTIONS = {"--sets": "--repetitions"}
"""Options of commands, so that a stored command can be given again."""

_WITHOUT = _INPUTS | {"near": "variant_case", "canaries": "trivial_answers", "renewal": "refreshed"}
"""Parts of a check that a run left out."""


def in_format_2(line: Any) -> Any:
    """Return a decoded line of format 1 in the words of format 2."""
    if not isinstance(line, dict):
        return line
    kind = line.get("kind")
    line = _renamed(line, _KEYS.get(kind, {}) if isinstance(kind, str) else {})
    if kind == "manifest":
        _change(line, "protocol", protocol_in_format_2)
        _change(line, "command", _each(lambda word: _word(word, _OPTIONS)))
    elif kind == "case":
        _change(line, "candidates", _each(lambda plan: _renamed(plan, _KEYS["plan"])))
    elif kind == "set":
        line["kind"] = "repetition"
        _change(line, "samples", _each(_each(lambda samples: _renamed(samples, _KEYS["samples"]))))
    elif kind == "record":
        _change(line, "failed_on", _each(_inputs))
    elif kind == "end":
        _change(line, "phases_s", lambda phases: _renamed(phases, _KEYS["phases"]))
    return line


def protocol_in_format_2(protocol: Any) -> Any:
    """Return the protocol of a run of format 1 in the words of format 2."""
    protocol = _renamed(protocol, _KEYS["protocol"])
    _change(protocol, "without", _each(lambda word: _word(word, _WITHOUT)))
    return protocol


def _inputs(name: Any) -> Any:
    """Return a name of inputs, which may be those of the variant case."""
    if isinstance(name, str) and name.startswith("near:"):
        return f"variant:{_inputs(name.removeprefix('near:'))}"
    return _word(name, _INPUTS)


def _word(word: Any, names: dict[str, str]) -> Any:
    return names.get(word, word) if isinstance(word, str) else word


def _renamed(fields: Any, names: dict[str, str]) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {names.get(key, key): value for key, value in fields.items()}


def _change(fields: Any, key: str, change: Callable[[Any], Any]) -> None:
    if isinstance(fields, dict) and key in fields:
        fields[key] = change(fields[key])


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that changes each value of an object or a list."""

    def changed(values: Any) -> Any:
        if isinstance(values, dict):
            return {key: change(value) for key, value in values.items()}
        return [change(value) for value in values] if isinstance(values, list) else values

    return changed
