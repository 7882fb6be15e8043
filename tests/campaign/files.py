"""Files: damaged ones and changed fields are refused or told, or change nothing."""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path

from commands import Done, check, in_fork

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import write_benchmarks
from test_field_changes import changed

import attnbench

CASES = ("attention/dot/H2-L16-D8", "attention/dot/H2-L16-D8/causal")
SUITE = f"""name = "mine"
summary = "a suite"
[defaults]
dtype = "bfloat16"
[[cases]]
id = "{CASES[0]}"
[[cases]]
rule = "scaled_dot"
H = 2
L = [8, 16]
D = 4
mask = ["none", "causal"]
"""
GATE = '[[cells]]\ncase = "*"\nbackend = "eager"\ndelta = "3%"\nfail-on = ["slower"]\n'
CONFIG = {
    "model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64,
    "num_hidden_layers": 2, "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
NOISE = (
    b"", b"\x00", b"\xff\xfe", b"\x1b[2J", b"\xe2\x80\xae", b"9" * 5000, b"[" * 5000, b'"', b"\r",
    b"\xef\xbb\xbf",    b"NaN", b"1e999", b"-", b"\\u202e", b"\\ud800",
)  # fmt: skip
FORMS = ("table", "json", "csv", "markdown")


@cache
def originals(shared: Path) -> dict[str, bytes]:
    """A file of each kind, by name."""
    run = attnbench.run(CASES, ["eager", "bmm"], budget=0.01, repetitions=2, out=shared / "whole.jsonl")
    write_benchmarks(shared / "theirs.json", {"one": 1e-3, "two": 2e-3})
    return {
        "run.jsonl": run.path.read_bytes(),
        "theirs.json": (shared / "theirs.json").read_bytes(),
        "suite.toml": SUITE.encode(),
        "gate.toml": GATE.encode(),
        "config.json": json.dumps(CONFIG).encode(),
        "tokens.csv": b"a,1,2\nb,3,4\n",
    }


def lines_for(name: str, form: str) -> list[list[str]]:
    """The commands that read a file."""
    shown = ["--format", form]
    return {
        "run.jsonl": [
            ["report", name, *shown], ["report", name, "--html", "page.html", "--csv", "page.csv"],
            ["history", name, *shown], ["compare", name, "whole.jsonl", *shown],
            ["compare", name, "--baseline", "bmm", *shown],
            ["merge", name, "whole.jsonl", "--out", "new.jsonl"],
            ["choose", name, "--default", "eager", "--out", "choice.toml"],
        ],
        "theirs.json": [
            ["report", name, *shown], ["history", name, *shown], ["compare", name, name, *shown],
            ["report", "whole.jsonl", "--benchmark-json", name],
        ],
        "suite.toml": [["list", "cases", name, *shown], ["run", name, "--plan", *shown]],
        "gate.toml": [["compare", "whole.jsonl", "whole.jsonl", "--gate", name, *shown]],
        "config.json": [["suite", "from-config", name]],
        "tokens.csv": [["explain", "--tokens", name, *shown]],
    }[name]  # fmt: skip


def trial(rng: random.Random, folder: Path, shared: Path) -> None:
    """Damage a file, and have a command read it. Of a run, the change is told or changes nothing."""
    found = originals(shared)
    name, form = rng.choice(["run.jsonl", *found]), rng.choice(FORMS)
    (folder / "whole.jsonl").write_bytes(found["run.jsonl"])
    if name == "run.jsonl" and rng.random() < 0.5:
        lines = found[name].splitlines(keepends=True)
        place = rng.randrange(len(lines))
        new, what = changed(lines[place].rstrip(b"\n"), rng)
        data = b"".join([*lines[:place], new + b"\n", *lines[place + 1 :]])
    else:
        data, what = damaged(found[name], rng)
    (folder / name).write_bytes(data)
    done = check(in_fork(rng.choice(lines_for(name, form)), folder))
    if name == "run.jsonl":
        told(rng, folder, data, what)
    assert not list(folder.glob(".*")), f"{done.words}: an unfinished file is left"


def told(rng: random.Random, folder: Path, data: bytes, what: str) -> None:
    """Assert that ``report`` refuses the file, says what it lacks, or prints what it did before."""
    (folder / "run.jsonl").write_bytes(data)
    (folder / "other").mkdir()
    form = rng.choice(FORMS[:3])
    here: Done = check(in_fork(["report", "run.jsonl", "--format", form], folder))
    (folder / "run.jsonl").write_bytes((folder / "whole.jsonl").read_bytes())
    before = check(in_fork(["report", "run.jsonl", "--format", form], folder), [0])
    same = here.stdout == before.stdout
    assert here.status == 2 or here.stderr.strip() or same, f"not told: {what}"


def damaged(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The bytes with some damage, and what it is."""
    lines = data.splitlines(keepends=True)
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    noise = rng.choice(NOISE) or rng.randbytes(8)
    kind = rng.choice(
        ["cut", "drop", "insert", "flip", "twice", "swap", "without", "empty", "replace", "grow"]
    )
    made = {
        "cut": data[:a],
        "drop": data[:a] + data[b:],
        "insert": data[:a] + noise + data[a:],
        "flip": data[:a] + bytes([rng.randrange(256)]) + data[a + 1 :],
        "twice": b"".join([*lines[: i + 1], *lines[i:]]),
        "swap": b"".join(lines[j] if n == i else lines[i] if n == j else x for n, x in enumerate(lines)),
        "without": b"".join(lines[:i] + lines[i + 1 :]),
        "empty": b"",
        "replace": data[:a] + noise + data[b:],
        "grow": data + noise + b"\n",
    }[kind]
    return made, f"{kind} at {a} to {b}, line {i + 1}, {noise[:20]!r}"
