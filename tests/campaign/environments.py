"""Environments: commands work, or say what is missing, under odd locales, folders, terminals and limits."""

from __future__ import annotations

import ctypes
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

from commands import check, in_process
from files import FORMS, originals

VARIABLES: dict[str, tuple[str | None, ...]] = {
    "LC_ALL": ("C", "POSIX", "C.UTF-8", "xx_YY.ISO-8859-1", "", None),
    "LANG": ("C", "tr_TR.UTF-8", None),
    "PYTHONIOENCODING": ("ascii", "latin-1", "utf-8:strict"),
    "PYTHONUTF8": ("0", "1"),
    "PYTHONCOERCECLOCALE": ("0",),
    "PYTHONWARNINGS": ("error", "default"),
    "PYTHONOPTIMIZE": ("2",),
    "HOME": (None, "", "/nonexistent", "/dev/null"),
    "XDG_CACHE_HOME": ("/nonexistent", ""),
    "TMPDIR": ("/nonexistent", "", "/dev/null"),
    "PATH": ("", "/nonexistent", None),
    "TERM": ("dumb", "", "no-such-terminal", None),
    "COLUMNS": ("0", "1", "7", "-5", "100000", "x", ""),
    "LINES": ("0", "x"),
    "NO_COLOR": ("1", ""),
    "FORCE_COLOR": ("1",),
    "TZ": ("no/where", "", "Asia/Kathmandu"),
    "USER": (None,),
    "OMP_NUM_THREADS": ("0", "x", "999"),
    "SOURCE_DATE_EPOCH": ("0",),
    "ATTNBENCH_PLUGINS": ("", "nowhere.py", "os", ":::"),
    "ATTNBENCH_LOAD_PLUGINS": ("", "attnbench", "nobody", ",,"),
    "ATTNBENCH_STRICT_PLUGINS": ("1",),
    "ATTNBENCH_TRACE_PLUGINS": ("1",),
    "GITHUB_STEP_SUMMARY": ("/nonexistent/x", "/dev/full"),
}
"""Values of variables; None removes one."""


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def limits(folder: Path) -> dict[str, Callable[[], object]]:
    """What a process may find itself in, by name."""

    def limited(kind: int, soft: int) -> Callable[[], object]:
        return lambda: resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))

    def read_only() -> None:
        folder.chmod(0o555)
        # For root every folder is writable, unless what it executes may not have this capability.
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)

    def gone() -> None:
        (folder / "gone").mkdir()
        os.chdir(folder / "gone")
        (folder / "gone").rmdir()

    return {
        "few descriptors": limited(resource.RLIMIT_NOFILE, 40),
        "small files": limited(resource.RLIMIT_FSIZE, 200),
        "a small stack": limited(resource.RLIMIT_STACK, 2**20),
        "no core files": limited(resource.RLIMIT_CORE, 0),
        "umask": lambda: os.umask(0o077),
        "read-only folder": read_only,
        "folder gone": gone,
        "no stdin": lambda: os.close(0),
        "no stdout": lambda: os.close(1),
        "no stderr": lambda: os.close(2),
        "one core": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        "nice": lambda: os.nice(5),
    }


def trial(rng: random.Random, folder: Path, shared: Path) -> None:
    """Run a command with a few odd variables, and sometimes an odd limit."""
    run = folder / "run.jsonl"
    run.write_bytes(originals(shared)["run.jsonl"])
    folder.chmod(0o777)
    run.chmod(0o666)
    environment = dict(os.environ)
    for name in rng.sample(list(VARIABLES), rng.randint(0, 4)):
        value = rng.choice(VARIABLES[name])
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    found = limits(folder)
    name = rng.choice([*found, *[""] * len(found)])
    form, case = ("--format", rng.choice(FORMS)), "attention/dot/H1-L8-D8"
    words = rng.choice(
        [
            ["--help"], ["list", "backends", *form], ["list", "suites", *form], ["plugins", *form],
            ["report", str(run), *form, "--details"], ["history", str(run), *form],
            ["compare", str(run), str(run), *form, "--summary"], ["explain", "dot", *form],
            ["explain", "--sentence", "grüß dich 🙂", *form], ["run", case, "--plan", *form],
            ["report", str(run), "--html", "page.html", "--csv", "page.csv"], ["new", "mine"],
            ["merge", str(run), "--out", "merged.jsonl"], ["explain", "dot", "--heatmap", "x.svg"],
            ["check", case, "--backend", "eager", "--out", "new.jsonl", *form],
            ["run", case, "--backend", "eager", "--backend", "bmm", "--budget", "0.01", "--repetitions", "2",
             *form],
        ]
    )  # fmt: skip
    try:
        done = in_process(words, folder, environment, found.get(name))
        try:
            # Of a process without stderr nobody can read a word.
            if name != "no stderr":
                check(done)
        except AssertionError as failure:
            odd = {
                key: environment.get(key) for key in VARIABLES if environment.get(key) != os.environ.get(key)
            }
            raise AssertionError(f"{failure}\n  {name or 'no limit'}, {odd}") from None
    finally:
        folder.chmod(0o777)
    whole = [path for path in folder.iterdir() if path.suffix in (".html", ".csv", ".svg")]
    assert all(path.stat().st_size for path in whole), f"{done.words}: an empty file is left"
