"""Texts of strangers' files and of plugins: no escape sequence, formula, link or tag gets through."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import SHORT, run_lines, times, write_benchmarks, write_run

from attnbench.choice.table import read_table
from attnbench.types.record import Record

Invoke = Callable[..., Result]

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ednik\u2066\x7f\x00\r\u2028"
EVIL = f"{ESCAPES}\n=cmd|'/c calc'!A1 <script>alert(1)</script> [a](http://evil.test) ![b](http://evil.test)"
FORMULA = '=HYPERLINK("http://evil.test")'
CASE = "attention/dot/H1-L16-D8"
PLUGIN = """
from attnbench import Backend, EnvironmentFact, Metric, Reporter, hookimpl

EVIL = {evil!r}

def prepare(setup):
    raise ValueError(EVIL)

def supports(case, rule):
    # Few of the conformance kit's cases, and that of the runs here.
    sizes = (case.B, case.Lq, case.Lk)
    few = rule.name == "dot" and case.mask.is_none and sizes in ((1, 16, 16), (2, 17, 65))
    return None if few else "is for few cases"

def value(record, case):
    raise ValueError(EVIL)

@hookimpl
def attnbench_metrics():
    yield Metric("metric", "a test", "head", value)

@hookimpl
def attnbench_environment_facts():
    yield EnvironmentFact("raises", "a test", lambda: value(None, None))
    yield EnvironmentFact("says", "a test", lambda: EVIL)

@hookimpl
def attnbench_reporters():
    yield Reporter("says", "a test", lambda rows, runs: EVIL)
    yield Reporter("raises", "a test", lambda rows, runs: value(None, None))

@hookimpl
def attnbench_backends():
    yield Backend(name="raises", summary="a test", prepare=prepare, supports=supports)
    yield Backend(name="declines", summary="a test", prepare=prepare, supports=lambda case, rule: EVIL)
"""
UNUSABLE = """
    yield Backend(name="summary", summary=EVIL, prepare=prepare)
    yield Backend(name="needs", summary="a test", prepare=prepare, requires=(EVIL,))
    yield EVIL
"""
CHOSEN = ("--backend", "raises", "--backend", "declines")


def odd(text: str) -> set[str]:
    """The control, escape and bidi characters of a text."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t"}


def clean(done: Result) -> str:
    assert done.exit_code in (0, 1, 2, 3), done
    assert not isinstance(done.exception, UnicodeError | AssertionError), done.exception
    assert not odd(done.output), ascii(done.output)
    assert "\nunexpected" not in done.output
    assert "unexpected" not in done.stderr, done.stderr
    return done.output


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run file with such texts in every place that may hold any."""
    return write_run(tmp_path / "hostile.jsonl", hostile_lines())


def hostile_lines(**said: Any) -> list[Any]:
    facts = {"cpu": EVIL, "cuda_devices": [EVIL], EVIL: EVIL, "plugin_facts": {EVIL: {EVIL: FORMULA}}}
    manifest, *lines = run_lines(environment=facts, **said)
    evil = {
        "run_id": f"run {EVIL}", "started": f"2026{EVIL}", "attnbench": EVIL, "command": ["x", "run", EVIL],
        "backends": [*manifest.backends, EVIL, FORMULA],
    }  # fmt: skip
    changed = [msgspec.structs.replace(manifest, **evil)]
    for line in lines:
        if not isinstance(line, Record):
            changed.append(line)
            continue
        mine = {"notes": [EVIL], "ran": [EVIL], "failed_on": [EVIL], "kernel_of": EVIL, "arithmetic": EVIL}
        changed.append(msgspec.structs.replace(line, **mine))
        if line.backend == "mine":
            for backend, status in ((EVIL, "error"), (FORMULA, "unsupported")):
                failed = {"backend": backend, "status": status, "reason": EVIL, "median_ms": None}
                changed.insert(-1, msgspec.structs.replace(line, **failed))
    return changed


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_a_strangers_run_file_in_every_command(
    invoke: Invoke, hostile: Path, tmp_path: Path, form: str
) -> None:
    other = write_run(tmp_path / "other.jsonl", started="2026-02-01T00:00:00+00:00")
    theirs = write_benchmarks(tmp_path / "theirs.json", {EVIL: 1e-3, FORMULA: 2e-3}, datetime=EVIL)
    manifest, *lines = hostile_lines(cells={SHORT: {f"mine@{side}": times(1e5) for side in ("base", "head")}})
    sides = {side: {"name": EVIL, "commit": EVIL, "subject": EVIL} for side in ("base", "head")}
    live = write_run(tmp_path / "live.jsonl", [msgspec.structs.replace(manifest, sides=sides), *lines])
    for words in (
        ("report", hostile), ("report", hostile, "--details", "--legend", "--trace"),
        ("report", hostile, "--summary"), ("report", hostile, other), ("report", theirs), ("report", live),
        ("history", hostile, other), ("compare", hostile, other, "--details"), ("compare", other, hostile),
        ("compare", hostile, other, "--force", "--details"), ("compare", theirs, theirs), ("compare", live),
        ("compare", hostile, "--baseline", "one", "--details"), ("compare", hostile, "--baseline", EVIL),
        ("run", "--resume", hostile),
    ):  # fmt: skip
        done = invoke(*map(str, words), "--format", form)
        clean(done)
        if form == "markdown":
            assert not re.search(r"(?<!\\)\]\(|<script|://", done.stdout), done.stdout
    if form == "csv":
        for words in (("report", hostile), ("history", hostile), ("report", theirs)):
            cells = csv.reader(io.StringIO(invoke(*map(str, words), "--format", "csv").stdout))
            found = {cell for row in cells for cell in row if "evil.test" in cell}
            assert found
            assert not [cell for cell in found if cell.lstrip()[:1] in "=+-@"]
    if form == "json":
        rows = json.loads(invoke("report", str(hostile), "--format", "json").stdout)
        assert {r"\x1b" in row["backend"] for row in rows} == {True, False}


def test_files_that_commands_write(invoke: Invoke, hostile: Path, tmp_path: Path) -> None:
    targets = {kind: tmp_path / f"written.{kind}" for kind in ("html", "csv", "markdown")}
    options = [word for kind, path in targets.items() for word in (f"--{kind}", str(path))]
    done = invoke("report", str(hostile), *options, "--benchmark-json", str(tmp_path / "b.json"))
    assert done.exit_code in (0, 3), done.output
    clean(done)
    for kind, path in targets.items():
        text = path.read_text(encoding="utf-8")
        if kind == "html":
            assert "<script>alert" not in text
            # The page puts names between isolates, which keep text that runs from right to left apart.
            text = re.sub("[\u2066-\u2069]", "", html.unescape(text.rpartition("</script>")[2]))
        assert not odd(text), kind
    clean(invoke("report", str(tmp_path / "b.json")))
    clean(invoke("merge", str(hostile), "--out", str(tmp_path / "merged.jsonl")))
    cells = {SHORT: {"sdpa_flash": times(2e5), "eager": times(1e5)}}
    faster = write_run(tmp_path / "faster.jsonl", hostile_lines(cells=cells))
    table = tmp_path / "choice.toml"
    assert invoke("choose", str(faster), "--out", str(table)).exit_code == 0
    assert not odd(table.read_text(encoding="utf-8"))
    assert read_table(table).choices
    clean(invoke("choose", str(faster), "--out", str(table)))


def test_words_of_the_command_line_and_names_of_files(invoke: Invoke, tmp_path: Path) -> None:
    name = ESCAPES.replace("\x00", "")
    folder = tmp_path / name
    folder.mkdir()
    run = write_run(folder / f"{name}.jsonl")
    said = clean(invoke("report", str(run), "--html", f"{run}.html", "--csv", f"{run}.csv"))
    assert r"\x1b" in said, "a name is still told"
    for words in (
        ("report", run, run), ("history", folder), ("compare", run, run),
        ("merge", run, "--out", f"{run}2.jsonl"),
        ("run", name), ("run", CASE, "--backend", name), ("check", f"{name}.toml"), ("list", name), (name,),
        ("list", "cases", "--mask", name), ("explain", name), ("new", name), ("suite", "from-config", name),
        ("capture", "--", f"./{name}"), ("run", CASE, f"--{name}"), ("run", CASE, "--repetitions", name),
        ("plugins", "--plugin", f"{name}.py"), ("compare", run, run, "--gate", name), ("choose", name),
        ("explain", "--sentence", f"a {name}", "--format", "json"), ("explain", "--sentence", f"a {name}"),
        ("explain", "--sentence", f"a {name}", "--format", "markdown"), ("merge", run, "--out", name),
        ("doctor", "--threads", name),
    ):  # fmt: skip
        clean(invoke(*map(str, words)))


def test_other_files(invoke: Invoke, tmp_path: Path) -> None:
    text = json.dumps(EVIL)  # A string of TOML too: all its characters are in escapes.
    suite, gate = tmp_path / "suite.toml", tmp_path / "gate.toml"
    suite.write_text(f"summary = {text}\n{text} = 1\n[[cases]]\nid = {text}\n")
    clean(invoke("list", "cases", str(suite)))
    suite.write_text(f"[[cases]]\nid = {text}\n")
    clean(invoke("list", "cases", str(suite)))
    run = str(write_run(tmp_path / "run.jsonl"))
    for content in (f"{text} = 1\n", f"[[cells]]\ncase = {text}\nignore = {text}\n", f"fail-on = [{text}]\n"):
        gate.write_text(content)
        clean(invoke("compare", run, run, "--gate", str(gate)))
    gate.write_text(f"[[cells]]\nignore = {text}\n")
    for form in ("table", "json", "csv", "markdown"):
        clean(invoke("compare", run, run, "--gate", str(gate), "--format", form, "--details"))
    config = tmp_path / "config.json"
    for content in ({"model_type": EVIL}, {"model_type": "gpt2", "torch_dtype": EVIL, "n_head": EVIL}):
        config.write_text(json.dumps(content))
        clean(invoke("suite", "from-config", str(config)))
    for name, content in (
        ("tokens.csv", f'"{EVIL}",1,2\n{FORMULA},3,4\n'),
        ("bad.csv", f'"{EVIL}",1,2\nb,"{EVIL}",4\n'),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
        for form in ("table", "json", "markdown"):
            clean(invoke("explain", "--tokens", str(tmp_path / name), "--format", form))


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN.format(evil=EVIL))
    return path


def test_a_plugin_whose_records_cannot_be_used_is_told(invoke: Invoke, plugin: Path) -> None:
    plugin.write_text(plugin.read_text() + UNUSABLE)
    done = invoke("list", "backends", "--plugin", str(plugin))
    assert done.exit_code == 2
    assert r"\x1b" in clean(done)


@pytest.mark.slow
def test_what_a_plugin_says_in_every_command(invoke: Invoke, plugin: Path, tmp_path: Path) -> None:
    named = ("--plugin", str(plugin))
    for kind in ("backends", "metrics", "reporters", "facts"):
        clean(invoke("list", kind, *named))
    clean(invoke("plugins", *named))
    run = tmp_path / "run.jsonl"
    cells = (CASE, "--budget", "0.01", "--repetitions", "1", "--backend", "eager", *named)
    shown = clean(invoke("run", *cells, *CHOSEN, "--out", str(run), "--details"))
    assert shown.count(r"\x1b]0;owned") >= 3, "of each backend and the metric"
    assert not odd(run.read_text())
    for form in ("table", "json", "csv", "markdown", "says", "raises"):
        clean(invoke("report", str(run), *named, "--format", form))
    clean(invoke("check", *named, "--out", str(tmp_path)))


def test_metadata_of_a_distribution(invoke: Invoke, add_distribution: Callable[..., None]) -> None:
    bad = ESCAPES.replace("\r", "").replace("\x00", "").replace("\u2028", "")
    add_distribution("attnbench-x", {"x.py": ""}, commands={"x": f"x:{bad}"}, summary=bad)
    for words in (("--help",), ("plugins",), ("x",)):
        clean(invoke(*words))


@pytest.mark.slow
def test_a_captured_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom torch.nn.attention.flex_attention import flex_attention\n"
        "def changes(score, b, h, q, k): return score\n"
        f"changes.__name__ = {EVIL!r}\n"
        "q = torch.ones(1, 1, 4, 16)\nflex_attention(q, q, q, score_mod=changes)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q)\n"
    )
    words = [sys.executable, "-m", "attnbench", "capture", "--", sys.executable, str(program)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own = "".join(line for line in done.stderr.splitlines(keepends=True) if "Warning" not in line)
    assert r"\x1b]0;owned" in own
    assert not odd(own)
    suite = (tmp_path / "captured.toml").read_text()
    assert not odd(suite)
    assert next(line for line in suite.splitlines() if "owned" in line).startswith("# ")


RICH = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""What colours and the bar of a run are made of."""


def on_a_terminal(folder: Path, *words: str) -> str:
    """All that a command prints on a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "ATTNBENCH_LOAD_PLUGINS": "attnbench"}
    process = subprocess.Popen(
        [sys.executable, "-m", "attnbench", *words], cwd=folder, env=environment,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 1 << 16):
            found += part
    os.close(ours)
    process.wait()
    return found.decode()


@pytest.mark.slow
def test_on_a_real_terminal(hostile: Path, plugin: Path, tmp_path: Path) -> None:
    named = ("--plugin", str(plugin))
    chosen = ("--backend", "eager", *CHOSEN)
    for words in (
        ("report", str(hostile), "--details"), ("history", str(hostile)), ("plugins", *named),
        ("run", CASE, f"{CASE}/causal", "--budget", "0.01", "--repetitions", "1", *chosen, *named,
         "--details"),
        ("report", str(hostile), *named, "--format", "says"), ("run", EVIL.replace("\x00", "")),
    ):  # fmt: skip
        shown = on_a_terminal(tmp_path, *words)
        assert "owned" in shown or words[0] == "plugins", shown
        assert "\x1b[2J" not in shown
        assert not odd(RICH.sub("", shown)), ascii(shown)
