"""In what two sides were not measured alike, and what a reader must know of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log1p
from typing import Any

from attnbench.compare.judging import percent_of_log
from attnbench.compare.numbers import ENOUGH_BESIDE, Numbers
from attnbench.compare.pairing import Key, Pair, failed_on_both
from attnbench.types.compared import Difference, Measured
from attnbench.types.errors import BadInput
from attnbench.types.words import count_of

_MATTER = frozenset({
    "cpu", "gpu", "cuda_devices", "cpu_quota", "governor", "python", "torch", "numpy", "scipy", "triton",
    "cuda", "cudnn", "jax", "flash_attn", "xformers", "machine",
})  # fmt: skip
"""Facts that times depend on; those of torch's flags (``torch.NAME``) do so as well."""

_DIALS_LISTED = frozenset({
    "budget_s", "sets", "baseline", "delta", "timeout_s", "memory_limit_bytes", "oracle_flops", "timed_draws",
    "timed", "without", "min_rounds", "max_time", "min_time", "calibration_precision", "rounds", "iterations",
})  # fmt: skip
"""Dials that change how much is measured, or what is said of it. All others change what a time is."""

_UNTOLD = "not told"
_PROTOCOL = "protocol "
_LONGEST = 60


def differences(base: Sequence[Measured], new: Sequence[Measured]) -> tuple[Difference, ...]:
    """Every fact and dial that isn't alike over all runs of both sides, those that matter first.

    A side whose own runs differ has all its values, joined by ``or``. Of python only the first two numbers
    matter. Dials are compared among runs of one format. A fact that one side doesn't tell is listed.
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
    """Versions that the two sides of a live comparison don't have alike, those that times depend on first.

    None is in the way: they may be the very thing that is compared.
    """
    found = [
        Difference(fact, _text(base.get(fact)), _text(new.get(fact)), matters=False)
        for fact in dict.fromkeys((*base, *new))
        if base.get(fact) != new.get(fact)
    ]
    return tuple(sorted(found, key=lambda difference: not _matters(difference.fact)))


def check_alike(found: Iterable[Difference]) -> None:
    """Raise :class:`BadInput` where any difference matters, naming all that do."""
    words = [f"{d.fact} ({d.base} in base, {d.new} in new)" for d in found if d.matters]
    if words:
        raise BadInput(
            f"the sides were not measured alike, so their times can't be compared: {', '.join(words)}; "
            "--force compares them all the same, and says so"
        )


def untold(found: Iterable[Difference]) -> list[str]:
    """Facts and dials that matter and that one side alone tells, as warnings."""
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
    """Long texts (how torch was built) by their beginning and a number that tells them apart."""
    if len(text) <= _LONGEST:
        return text
    from zlib import crc32

    return f"{text[:_LONGEST]}… ({crc32(text.encode()):08x})"


def _feature_version(value: str) -> str:
    return ".".join(value.split(".")[:2])


_SHOWN = 3
_TOGETHER = 0.05
"""From here on it is said that all backends of a case moved one way."""


def warnings_of(
    base: Sequence[Measured],
    new: Sequence[Measured],
    pairs: Mapping[Key, Pair],
    numbers: Mapping[Key, Numbers],
) -> tuple[str, ...]:
    """Everything that a strict gate fails on besides verdicts."""
    return (
        *(problem for run in (*base, *new) for problem in run.problems),
        *_versions(base, new),
        *_the_same_run(base, new),
        *_by_both_tools(base, new),
        *_one_sided(pairs),
        *_now_and_then(pairs),
        *_together(numbers),
    )


def _versions(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    for origin in sorted({run.origin for run in (*base, *new)}):
        versions = sorted({run.version for run in (*base, *new) if run.origin == origin})
        if len(versions) > 1:
            yield f"files of unequal versions of the format of {origin}: {' and '.join(versions)}"


def _the_same_run(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    for before in base:
        for after in new:
            if before.path.resolve() == after.path.resolve():
                yield f"{before.path} stands on both sides"
            elif before.started == after.started and before.cells and before.cells == after.cells:
                yield f"{before.path} and {after.path} hold the same run"


def _by_both_tools(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    keys: dict[str, set[Key]] = defaultdict(set)
    for run in (*base, *new):
        keys[run.origin] |= {cell.key for cell in run.cells} if run.cells else set()
    if len(keys) > 1 and (both := sorted(set.intersection(*keys.values()))):
        yield f"{count_of(len(both), 'cell')} measured by {' and by '.join(sorted(keys))}: {_some(both)}"


def _one_sided(pairs: Mapping[Key, Pair]) -> Iterator[str]:
    only_base = [key for key, pair in pairs.items() if not pair.new]
    only_new = [key for key, pair in pairs.items() if not pair.base]
    both_failed = [key for key, pair in pairs.items() if failed_on_both(pair)]
    healed = [key for key, pair in pairs.items() if pair.base and pair.timed_new and not pair.timed_base]
    for keys, words in (
        (only_base, "only in base"), (only_new, "only in new, with nothing to be compared with"),
        (both_failed, "without a time on both sides, because it failed"),
        (healed, "with a time in new alone"),
    ):  # fmt: skip
        if keys:
            yield f"{count_of(len(keys), 'cell')} {words}: {_some(keys)}"


def _now_and_then(pairs: Mapping[Key, Pair]) -> Iterator[str]:
    base = [key for key, pair in pairs.items() if 0 < len(pair.timed_base) < len(pair.base)]
    new = [key for key, pair in pairs.items() if 0 < len(pair.timed_new) < len(pair.new)]
    for side, flaky in (("base", base), ("new", new)):
        if flaky:
            yield f"{count_of(len(flaky), 'cell')} with a time in some runs of {side} alone: {_some(flaky)}"


def _together(numbers: Mapping[Key, Numbers]) -> Iterator[str]:
    """Cases on which all backends moved one way: the machine, or what they have in common."""
    by_case: dict[str, list[float]] = defaultdict(list)
    for (case, _), found in numbers.items():
        by_case[case].append(found.log_ratio)
    moved = {
        case: min(logs, key=abs) for case, logs in by_case.items()
        if len(logs) > ENOUGH_BESIDE and (min(logs) > log1p(_TOGETHER) or max(logs) < -log1p(_TOGETHER))
    }  # fmt: skip
    for case, least in list(moved.items())[:_SHOWN]:
        direction = "slower" if least > 0 else "faster"
        yield (
            f"all {len(by_case[case])} backends are {direction} by {percent_of_log(least)} or more "
            f"on {case}: the machine, or something they share; only a live comparison tells which"
        )
    if len(moved) > _SHOWN:
        yield f"and so on {count_of(len(moved) - _SHOWN, 'more case')}"


def _some(keys: Sequence[Key]) -> str:
    shown = ", ".join(f"{backend} on {case}" if backend else case for case, backend in keys[:_SHOWN])
    return shown + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
