"""A run file that another program wrote anew: its numbers are as before, or that is told."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from commands import Done, check, in_fork
from files import FORMS, lines_for, originals

Writer = Callable[[dict[str, Any]], bytes]


def _dumps(**style: Any) -> Writer:
    return lambda content: json.dumps(content, **style).encode()


def _without(content: dict[str, Any]) -> bytes:
    return msgspec.json.encode({name: value for name, value in content.items() if name != "digest"})


def _with(value: Any) -> Writer:
    return lambda content: msgspec.json.encode(content | {"digest": value})


def _other_key(key: bytes) -> Writer:
    return lambda content: msgspec.json.encode(content).replace(b'"digest"', key)


WRITERS: dict[str, Writer] = {
    "json": _dumps(),
    "json, short": _dumps(separators=(",", ":")),
    "json, a blank after colons": _dumps(separators=(",", ": ")),
    "json, a blank after commas": _dumps(separators=(", ", ":")),
    "json, blanks around colons": _dumps(separators=(" , ", " : ")),
    "json, sorted": _dumps(sort_keys=True),
    "json, sorted and short": _dumps(sort_keys=True, separators=(",", ":")),
    "json, no escapes": _dumps(ensure_ascii=False),
    "json, over lines": _dumps(indent=1),
    "msgspec": msgspec.json.encode,
    "msgspec, sorted": lambda content: msgspec.json.encode(content, order="sorted"),
    "pandas": lambda content: pd.DataFrame([content]).to_json(orient="records", lines=True).strip().encode(),
    "pandas, a series": lambda content: pd.Series(content).to_json().encode(),
    "keys reversed": lambda content: msgspec.json.encode(dict(reversed(content.items()))),
    "digest first": lambda content: msgspec.json.encode({"digest": content["digest"]} | content),
    "a blank before the digest": _other_key(b' "digest"'),
    "a blank after the digest's name": _other_key(b'"digest" '),
    "the digest's name escaped": _other_key(rb'"d\u0069gest"'),
    "the digest's name in capitals": _other_key(b'"DIGEST"'),
    "no digest": _without,
    "the digest null": _with(None),
    "the digest empty": _with(""),
    "the digest a number": _with(0),
    "the digest twice": lambda content: msgspec.json.encode(content)[:-1] + b',"digest":""}',
    "a blank at the end": lambda content: msgspec.json.encode(content) + b" ",
    "a blank inside the end": lambda content: msgspec.json.encode(content)[:-1] + b" }",
    "a blank in front": lambda content: b" " + msgspec.json.encode(content),
    "CRLF": lambda content: msgspec.json.encode(content) + b"\r",
}  # fmt: skip
SHOWN = ("median_ms", "low_ms", "high_ms", "ratio", "ratio_low", "ratio_high", "peak_extra_bytes", "gbps")


def _numbers(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all numbers in a line."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, each in inside for found in _numbers(each, (*place, key))]
    return [place] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _change_number(content: dict[str, Any], rng: random.Random) -> str:
    """Change a number in a line; return what was changed, "" for nothing."""
    places = _numbers(content)
    shown = [place for place in places if place[0] in SHOWN]
    if not places:
        return ""
    *path, last = rng.choice(shown or places)
    holder: Any = content
    for key in path:
        holder = holder[key]
    old, factor = holder[last], rng.choice([0.5, 0.9, 1.1, 2])
    holder[last] = max(1, int(old * factor)) if isinstance(old, int) else old * factor
    return f"{[*path, last]} of a {content['kind']} from {old} to {holder[last]}"


def rewritten(rng: random.Random, folder: Path, shared: Path) -> None:
    """Write a run file anew as another program would, with numbers changed in it."""
    original = originals(shared)["run.jsonl"]
    contents = [json.loads(line) for line in original.splitlines()]
    records = [place for place, content in enumerate(contents) if content["kind"] == "record"]
    changed = []
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        place = rng.choice([rng.choice(records), rng.randrange(len(contents))])
        changed.append((place, _change_number(contents[place], rng)))
    name, extent = rng.choice(list(WRITERS)), rng.choice(["all", "all", "all", "changed", "some"])
    lines = original.splitlines()
    for place, content in enumerate(contents):
        changed_here = any(place == other for other, _ in changed)
        if changed_here or extent == "all" or (extent == "some" and rng.random() < 0.5):
            lines[place] = WRITERS[name](content)
    (folder / "run.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "whole.jsonl").write_bytes(original)
    words = rng.choice(lines_for("run.jsonl", rng.choice(FORMS)))
    here, there = _shown(folder, words), _of_original(shared, tuple(words))
    new = set(here.stderr.splitlines()) - set(there.stderr.splitlines())
    # compare has its warnings in its answer.
    warned = "has no digests" in here.stdout and "has no digests" not in there.stdout
    told = here.status == 2 or new or warned or here.stdout == there.stdout
    assert told, f"{' '.join(words)} shows other numbers: {name!r} on {extent} lines, {changed}"


@cache
def _of_original(shared: Path, words: tuple[str, ...]) -> Done:
    folder = shared / f"original-{abs(hash(words))}"
    folder.mkdir()
    for name in ("run.jsonl", "whole.jsonl"):
        (folder / name).write_bytes(originals(shared)["run.jsonl"])
    return _shown(folder, list(words))


def _shown(folder: Path, words: list[str]) -> Done:
    """Run a command, and add to what it printed what stands in the files that it wrote."""
    done = check(in_fork(words, folder))
    stdout, stderr = done.stdout, done.stderr
    if (folder / "page.csv").exists():
        stdout += (folder / "page.csv").read_text()
    if (folder / "new.jsonl").exists():
        merged = check(in_fork(["report", "new.jsonl"], folder))
        stdout, stderr = stdout + merged.stdout, stderr + merged.stderr
    return Done(done.words, done.status, stdout, stderr)
