"""Words: random command lines, ids of cases and TOML never end as an unexpected error, and never hang."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import click
from commands import check, in_fork
from files import FORMS, GATE, SUITE, damaged, originals

IDS = (
    "attention/dot/H2-L16-D8", "attention/dot/H1-L8-D8/padding:3",
    "attention/scaled_dot/B2-H4-Hkv2-Lq8-Lk16-D8-Dv4/causal:lower_right+window:4/bfloat16",
    "attention/scaled_dot@scale=0.5/H1-L8-D8/bool:per_head/float16/cpu/both",
    "multihead/general/B1-H2-L6-D4-E8-bias/causal/float32/cpu/both",
    "attention/dot/H1-L8-D8/none/dropout0.1/seed3",
)  # fmt: skip
PIECES = (
    "", "0", "-1", "1", "2", "16", "1e3", "nan", "inf", "-inf", "9" * 30, "9" * 5000, "0.5", "2%",
    "none", "x", "/", "..", ".", "run.jsonl", "whole.jsonl", "theirs.json", "suite.toml", "gate.toml",
    "config.json", "nowhere/x.toml", "eager", "dot", "scaled_dot", "smoke", "gpt2", "table", "json",
    "causal", "window:3", "float16", "cuda", "cpu", "\x1b[2J", "\u202e", "\udcff", "ü", "🙂", "=1+1",
    "a b", "--", "-", "@", "%s", "{}", "'", '"', "\\", "\n", "~", "multihead", "five-tokens", "masks",
    "sdpa_flash", "README.md", "both", "hot", "2k", "512x4k", "new.jsonl", "x.svg",
)  # fmt: skip
NOT_TRIED = ("doctor", "capture", "selftest", "pytest")
"""Commands that take long, or start what they are told."""


@cache
def commands() -> dict[tuple[str, ...], click.Command]:
    """The commands of attnbench by their words."""
    from attnbench.cli import attnbench

    found: dict[tuple[str, ...], click.Command] = {}
    ctx = click.Context(attnbench)
    for name in attnbench.summaries:  # type: ignore[attr-defined]
        if name in NOT_TRIED:
            continue
        command = attnbench.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {(name, sub): each for sub, each in command.commands.items()}
        else:
            found[name,] = command
    return found


def text(rng: random.Random) -> str:
    """A word: a piece, several pieces, or an id of a case with some changes."""
    if rng.random() < 0.4:
        return changed_id(rng)
    word = "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 1, 1, 2, 3])))
    return word.replace("\x00", "")


def changed_id(rng: random.Random) -> str:
    """An id of a case with a few characters or parts changed."""
    word = rng.choice(IDS)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        place = rng.randrange(len(word) + 1)
        parts = word.split("/")
        word = rng.choice(
            [
                word[:place] + rng.choice(PIECES) + word[place:],
                word[:place] + word[place + 1 :],
                word[:place] + chr(rng.randrange(1, 0x3000)) + word[place + 1 :],
                "/".join(rng.sample(parts, len(parts))),
                "/".join([*parts, rng.choice(parts)]),
            ]
        )
    return word.replace("\x00", "") or "x"


def words(rng: random.Random) -> list[str]:
    """A command line of known and unknown options with random values; nothing is measured."""
    name = rng.choice(list(commands()))
    command = commands()[name]
    made = list(name)
    if name[0] in ("run", "check") and rng.random() < 0.97:
        made.append("--plan")
    for param in rng.sample(command.params, rng.randint(0, min(4, len(command.params)))):
        if isinstance(param, click.Option):
            made.append(rng.choice(param.opts))
            if not param.is_flag and rng.random() < 0.97:
                made.append(text(rng) if rng.random() < 0.7 else rng.choice([*FORMS, "eager", "2", "0.1"]))
        else:
            made += [text(rng) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.1:
        made.insert(rng.randrange(len(made) + 1), text(rng))
    return made


def toml(rng: random.Random) -> bytes:
    """A suite or a gate with random keys and values, or a damaged one."""
    if rng.random() < 0.5:
        return damaged(rng.choice([SUITE, GATE]).encode(), rng)[0]
    keys = (
        "id", "rule", "B", "H", "Hkv", "L", "Lq", "Lk", "D", "Dv", "E", "mask", "dtype", "pass", "dropout",
        "count", "compiled", "seed", "threads", "device", "cache", "bias", "name", "summary", "delta",
        "ignore",
    )  # fmt: skip
    lines = []
    for _ in range(rng.randint(1, 12)):
        value = rng.choice(
            ["1", "0", "-3", "16", "true", "1.5", "nan", "inf", "[]", "[1, 2]", '["none", "causal"]', "{}",
             '"dot"', '"float16"', '"\\u001b"', "0x" + "f" * 5000, "9" * 400, "2026-01-01", "[[1]]",
             '"' + rng.choice(IDS) + '"', "[" * 2000 + "]" * 2000, '""']
        )  # fmt: skip
        lines.append(rng.choice(["[[cases]]", "[defaults]", "[[cells]]", f"{rng.choice(keys)} = {value}",
                                 f"{rng.choice(keys)} = {value}"]))  # fmt: skip
    return "\n".join(lines).encode()


def trial(rng: random.Random, folder: Path, shared: Path) -> None:
    """Give a command random words, where files of every kind are, or random TOML."""
    for name, data in originals(shared).items():
        (folder / name).write_bytes(data)
    (folder / "whole.jsonl").write_bytes(originals(shared)["run.jsonl"])
    if rng.random() < 0.3:
        (folder / "fuzzed.toml").write_bytes(toml(rng))
        lines = (
            ["list", "cases", "fuzzed.toml"], ["run", "fuzzed.toml", "--plan"],
            ["compare", "whole.jsonl", "whole.jsonl", "--gate", "fuzzed.toml"],
        )  # fmt: skip
        check(in_fork(rng.choice(lines), folder))
    elif rng.random() < 0.3:
        check(in_fork(["list", "cases", "--", changed_id(rng)], folder))
    else:
        check(in_fork(words(rng), folder))
