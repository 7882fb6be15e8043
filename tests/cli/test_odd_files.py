"""Files, names and limits that no command can use: exit status 2 with a sentence, nothing torn, no hang."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import SHORT, times, write_benchmarks, write_run

Invoke = Callable[..., Result]
CASE = "attention/dot/H1-L16-D8"
DIGITS = "9" * 5000
HEXADECIMAL = "0x" + "f" * 5000


def refused(done: Result) -> str:
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert "unexpected" not in line
    return line


@pytest.mark.parametrize("number", [DIGITS, HEXADECIMAL, f"-{DIGITS}"])
def test_numbers_of_thousands_of_digits(invoke: Invoke, tmp_path: Path, number: str) -> None:
    suite, gate = tmp_path / "suite.toml", tmp_path / "gate.toml"
    for text in (f"summary = {number}", f'[[cases]]\nrule = "dot"\nH = 1\nL = 8\nD = {number}',
                 f'[[cases]]\nid = "{CASE}"\ncount = {number}'):  # fmt: skip
        suite.write_text(text)
        assert "(4300 digits)" in refused(invoke("list", "cases", str(suite)))
    run = str(write_run(tmp_path / "run.jsonl"))
    gate.write_text(f"delta = {number}")
    assert "(4300 digits)" in refused(invoke("compare", run, run, "--gate", str(gate)))


READING = (
    "report X.jsonl", "report X.json", "history X.jsonl", "compare X.jsonl X.json", "run X.toml --plan",
    "merge X.jsonl --out new.jsonl", "suite from-config X.json", "choose X.jsonl",
    "explain --tokens X.csv", "plugins --plugin X.py", "run --resume X.jsonl",
    "compare r.jsonl r.jsonl --gate X.toml",
)  # fmt: skip
WRITING = (
    "report r.jsonl --html X.html", "report r.jsonl --csv X.csv", "report r.jsonl --markdown X.md",
    "report r.jsonl --benchmark-json X.json", "choose r.jsonl --default one --out X.toml",
    "capture --out X.toml -- true", "explain dot --heatmap X.svg", "explain dot --picture X.svg",
    "merge r.jsonl --out X.jsonl", f"run {CASE} --out X.jsonl --plan",
)  # fmt: skip


def link(path: Path) -> None:
    path.symlink_to(path.name)


ODD = [(line, make) for make in (os.mkfifo, os.mkdir) for line in (*READING, *WRITING)]


@pytest.mark.parametrize(("line", "make"), [*ODD, *((line, link) for line in READING)])
def test_pipes_folders_and_links_to_themselves(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "r.jsonl")
    (odd,) = {word for word in line.split() if word.startswith("X.")} - {"X.json"} or {"X.json"}
    for name in {word for word in line.split() if word.startswith("X.")}:
        make(Path(name))
    before = Path(odd).lstat()
    refused(invoke(*line.split()))
    assert Path(odd).lstat().st_ino == before.st_ino


@pytest.mark.slow
def test_names_that_are_not_utf8(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"n\xff")
    folder.mkdir()
    stem = f"{folder}/{os.fsdecode(bytes([110, 254]))}"
    made = {kind: f"{stem}.{kind}" for kind in ("jsonl", "json", "html", "csv", "md", "toml", "svg", "py")}
    write_run(Path(made["jsonl"]), cells={SHORT: {"sdpa_flash": times(2e5), "eager": times(1e5)}})
    write_benchmarks(Path(made["json"]), {"one": 1e-3})
    targets = ("--html", made["html"], "--csv", made["csv"], "--markdown", made["md"])
    for words in (
        ("report", made["jsonl"], *targets), ("history", str(folder)),
        ("compare", made["jsonl"], made["jsonl"]),
        ("report", made["jsonl"], "--benchmark-json", f"{made['json']}2"), ("report", made["json"]),
        ("merge", made["jsonl"], "--out", f"{folder}/merged.jsonl"),
        ("explain", "dot", "--heatmap", made["svg"]),
        ("choose", made["jsonl"], "--out", made["toml"]),
    ):  # fmt: skip
        for form in ("table", "json", "csv", "markdown"):
            if words[0] == "explain" and form == "csv":
                continue
            more = ("--format", form) if words[0] not in ("merge", "choose") else ()
            done = invoke(*words, *more)
            assert done.exit_code == 0 or "exists" in done.stderr or words[0] == "compare", done.output
            assert "unexpected" not in done.stderr
    Path(made["py"]).write_text("")
    assert "not UTF-8" in refused(invoke("plugins", "--plugin", made["py"]))


def limited(kind: int, soft: int, *words: str, hard: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process with a limit."""

    def limit() -> None:
        resource.setrlimit(kind, (soft, soft if hard is None else hard))

    command = [sys.executable, "-m", "attnbench", *words]
    # Python would write its own compiled files cut off by the limit, and fail on them from then on.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, preexec_fn=limit, env=environment, check=False
    )


@pytest.mark.slow
def test_too_few_file_descriptors_are_named(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "new.jsonl"))
    for words in (("list", "backends"), ("run", CASE, "--backend", "eager", "--plan", *out)):
        few = limited(resource.RLIMIT_NOFILE, 5, *words)
        assert few.returncode == 2, few.stderr
        assert "too few file descriptors" in few.stderr
    few = limited(resource.RLIMIT_NOFILE, 60, "check", CASE, "--backend", "eager", *out)
    assert few.returncode == 2, few.stderr
    assert "60 file descriptors: a run needs" in few.stderr
    raised = limited(resource.RLIMIT_NOFILE, 60, "check", CASE, "--backend", "eager", *out, hard=4096)
    assert raised.returncode == 0, raised.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "before"), [("--html", "before"), ("--csv", ""), ("--csv", "before"), ("--markdown", "")]
)
def test_a_file_that_could_not_be_written_whole_is_not_left(tmp_path: Path, option: str, before: str) -> None:
    run, target = write_run(tmp_path / "run.jsonl"), tmp_path / "target"
    if before:
        target.write_text(before)
    done = limited(resource.RLIMIT_FSIZE, 100, "report", str(run), option, str(target), "--force")
    assert done.returncode == 2, done.stderr
    assert "can't write" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir() if path != run] == [before] * bool(before)
