"""A field of a stored run is changed at random: it is refused, or the reader is told, or nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import attnbench
from attnbench.api import loaded
from attnbench.cli import attnbench as command
from attnbench.plugins.registry import Registry, load_registry
from attnbench.types.errors import BadFile

CASES = ["attention/dot/H2-L16-D8", "attention/dot/H2-L16-D8/causal"]
DROPPED = object()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of a real run, of every kind."""
    folder = tmp_path_factory.mktemp("run")
    run = attnbench.run(CASES, ["eager", "bmm", "fused_multihead"], budget=0.01, repetitions=1, out=folder)
    found = run.path.read_bytes().splitlines()
    kinds = {msgspec.json.decode(line)["kind"] for line in found}
    assert kinds == {"manifest", "case", "repetition", "record", "end"}
    return found


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values that hold no others."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, each in inside for leaf in leaves(each, (*place, key))]
    yield from below or [place]


def other_value(old: Any, rng: random.Random) -> Any:
    number = old if isinstance(old, int | float) else 1
    choices = [None, DROPPED, "", "x", f"{old}x", True, 0, -1, 1.5, 10**30, [], {}]
    choices += [number / 10, number * 10, -number]
    return rng.choice([new for new in choices if new is DROPPED or repr(new) != repr(old)])


def changed(line: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A line with one leaf changed, and what was changed."""
    content = msgspec.json.decode(line)
    assert msgspec.json.encode(content) == line
    *path, last = rng.choice(list(leaves(content)))
    holder = content
    for key in path:
        holder = holder[key]
    new = other_value(holder[last], rng)
    said = (
        f"{content['kind']} {[*path, last]}: {holder[last]!r} to {'nothing' if new is DROPPED else repr(new)}"
    )
    if new is DROPPED:
        del holder[last]
    else:
        holder[last] = new
    return msgspec.json.encode(content), said


def printed(path: Path, registry: Registry) -> str | None:
    """What ``report`` prints; None if the file is refused, or the reader is told what it lacks."""
    try:
        # As attnbench.load, which loads the plugins each time.
        flaws = loaded(path, registry).flaws
    except BadFile:
        return None
    done = [
        CliRunner().invoke(command, ["report", str(path), "--format", form]) for form in ("table", "json")
    ]
    assert all(flaw in done[0].stderr for flaw in flaws)
    return None if flaws else "".join(one.stdout for one in done)


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_changed_field_is_seen(lines: list[bytes], tmp_path: Path, count: int) -> None:
    path, rng, registry = tmp_path / "run.jsonl", random.Random(19), load_registry()
    path.write_bytes(b"\n".join(lines) + b"\n")
    before = printed(path, registry)
    assert before is not None
    for number in range(count):
        place = number % len(lines)
        line, what = changed(lines[place], rng)
        path.write_bytes(b"\n".join([*lines[:place], line, *lines[place + 1 :]]) + b"\n")
        assert printed(path, registry) in (None, before), what


def test_a_missing_line_is_seen(lines: list[bytes], tmp_path: Path) -> None:
    path, registry = tmp_path / "run.jsonl", load_registry()
    for place in range(len(lines)):
        path.write_bytes(b"\n".join(lines[:place] + lines[place + 1 :]) + b"\n")
        assert printed(path, registry) is None, lines[place][:60]
    assert CliRunner().invoke(command, ["report", str(path)]).stderr, "report says it too"


@pytest.mark.parametrize("field", ["median_ms", "ratio", "tflops", "gbps"])
def test_without_digests_a_changed_number_of_a_record_is_refused(
    lines: list[bytes], tmp_path: Path, field: str
) -> None:
    path, contents = tmp_path / "run.jsonl", [msgspec.json.decode(line) for line in lines]
    for content in contents:
        del content["digest"]
    path.write_bytes(b"".join(msgspec.json.encode(content) + b"\n" for content in contents))
    with pytest.warns(UserWarning, match="has no digests .* changed samples can't be seen"):
        attnbench.load(path)
    record = next(one for one in contents if one["kind"] == "record" and one.get(field) not in (None, 1.0))
    record[field] *= 2
    path.write_bytes(b"".join(msgspec.json.encode(content) + b"\n" for content in contents))
    with pytest.raises(BadFile, match=f"does not follow from its samples: {field} is .*measure again"):
        attnbench.load(path)
