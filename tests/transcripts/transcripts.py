"""Record what command lines print, and read the stored transcripts.

A file of ``golden/`` holds transcripts, one after the other:

    # a comment stays where it is
    $ NAME=value attnbench list ruels
    | a line of stdout
    ! attnbench: no command 'lsit'; did you mean 'list'? Try attnbench list --help.
    @ written.csv
    > a line of the file that the command wrote
    = 2

``= 2`` is the exit status. ``~ 12 more lines, sha256 ...`` stands for the rest of a long text; the sum covers
the whole text. To add a transcript, write its ``$`` line and run ``python tests/transcripts/regenerate.py``.
Run the same after an intended change of the output, and read the diff.

Each command runs in its own folder. The folder holds the files of ``inputs/``, the reference runs of
``results/``, and the damaged runs that :func:`fill` makes. One process imports attnbench; each command is a
fork of that process, and calls the function that the console script calls. New processes take much longer.
"""

from __future__ import annotations

import contextlib
import filecmp
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "golden"
INPUTS = HERE / "inputs"

HEAD_LINES = 40
HEAD_CHARACTERS = 2_500
WHOLE_CHARACTERS = 10_000
"""A text up to this length is stored whole. Of a longer text, only this head and the SHA-256 are stored."""

ENVIRONMENT = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "LC_ALL": "C.UTF-8",
    "ATTNBENCH_LOAD_PLUGINS": "attnbench",  # other packages may be installed
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Normalisation:
    """A replacement in the output of the command lines that match ``of``."""

    of: str
    pattern: str
    by: str
    why: str


NORMALISATIONS = (
    Normalisation(" check ", r"\d{8}T\d{6}-[0-9a-f]{8}", "RUN", "the start time names a run"),
    Normalisation(" check ", r", about [\d.]+ (s|min) left", "", "a forecast for this machine"),
    Normalisation(" check ", r" +\d\.\d+e-\d+", " ERROR", "rounding depends on the processor"),
    Normalisation(" check ", r" on .*, \d+ cores?, torch", " on MACHINE, torch", "machines differ"),
    Normalisation(" check .*markdown", r"\| \d\.\d (?=\|)", "| N ", "a ratio of such errors"),
    Normalisation(" check .*wrong", r"(wrong \| mismatch \|.*\|) .* \|", r"\1 REASON |", "inputs are random"),
    Normalisation(" --plan", r"[\d.]+ (s|ms|min|h)\b", r"N \1", "a forecast for this machine"),
    Normalisation(" --plan", r'(_s": )[\d.]+', r"\1N", "a forecast for this machine"),
    Normalisation(" --plan", r"(/forward[ ,|]+\d+)[ ,|].*", r"\1 N", "a forecast for this machine"),
    Normalisation(" --plan", r"(?m)^that is on idle cores: .*\n", "", "other work on this machine"),
    Normalisation(" --threads", r"\d+ cores; use \d+", "N cores; use N", "the cores of this machine"),
    Normalisation(" --benchmark-json", r'"(datetime|version)": "[^"]*"', r'"\1": "NOW"', "now, and here"),
    Normalisation(" --verbose", r"[\d.]+ (s|ms|µs)\b", r"N \1", "times on this machine"),
    Normalisation(" new ", r"(?m)^pip wheel .*\n", "", "only if attnbench is from no package index"),
    Normalisation("", r"(?m)^Traceback .*\n(  .*\n)+", "Traceback\n", "paths and lines of the code"),
)
"""All replacements but those of paths. :func:`normalised` also rounds the numbers of ``explain`` and
``compare-rules`` to six digits, because the last digits depend on the processor."""


@dataclass(frozen=True)
class Transcript:
    """The output of a command line. files: (name, text) of each file that the command wrote or changed."""

    line: str
    status: int = 0
    stdout: str = ""
    stderr: str = ""
    files: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Format the transcript as in ``golden/``."""
        parts = [f"$ {self.line}\n", _shown("|", self.stdout), _shown("!", self.stderr)]
        parts += [f"@ {name}\n{_shown('>', text)}" for name, text in self.files]
        return "".join([*parts, f"= {self.status}\n"])


def _shown(mark: str, text: str) -> str:
    """Put a mark before each line; shorten a long text to its head and a sum."""
    lines = text.removesuffix("\n").split("\n") if text else []
    rest = ["\\ no newline at the end"] if text and not text.endswith("\n") else []
    if len(text) > WHOLE_CHARACTERS:
        head, count = 0, 0
        while count < HEAD_LINES and head + len(lines[count]) < HEAD_CHARACTERS:
            head += len(lines[count])
            count += 1
        digest = hashlib.sha256(text.encode()).hexdigest()
        rest = [f"~ {len(lines) - count} more lines, sha256 {digest}"]
        lines = lines[:count]
    shown = [f"{mark} {_printable(line)}" if line else mark for line in lines]
    return "".join(f"{line}\n" for line in [*shown, *rest])


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def stored(path: Path) -> list[tuple[str, str]]:
    """Read the transcripts of a golden file as (command line, whole text); comments have no line."""
    found: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].strip(), line))
        elif line.startswith("#") or not line.strip():
            found.append(("", line))
        else:
            name, text = found[-1]
            found[-1] = (name, text + line)
    return found


def parameters(pattern: str) -> list[Any]:
    """Make the parameters of a test, (command line, text), from the golden files of a pattern."""
    import pytest

    return [
        pytest.param(line, text, id=line.removeprefix("attnbench "))
        for path in sorted(GOLDEN.glob(pattern))
        for line, text in stored(path)
        if line
    ]


class Recorder:
    """A process that runs command lines. Use it as a context manager."""

    def __enter__(self) -> Recorder:
        self._folder = Path(tempfile.mkdtemp(prefix="transcripts-")).resolve()
        (self._folder / "home").mkdir()
        self._filled = self._folder / "filled"
        fill(self._filled)
        # Of several checkouts, that of these tests is imported.
        places = {"PATH": os.environ["PATH"], "HOME": str(self._folder / "home"), "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=ENVIRONMENT | places, cwd=self._folder,
        )  # fmt: skip
        self._count = 0
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.communicate(timeout=60)
        shutil.rmtree(self._folder)

    def record(self, line: str) -> Transcript:
        """Run a command line in a new folder."""
        self._count += 1
        folder = self._folder / str(self._count) / "work"
        # Times too: a file that a command changes has another one.
        shutil.copytree(self._filled, folder, symlinks=True)
        words = shlex.split(line)
        variables = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        out, err = folder.parent / "stdout", folder.parent / "stderr"
        streams = [os.devnull, str(out), str(err)]
        order = {"argv": words, "folder": str(folder), "environment": variables, "streams": streams}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        files = tuple(_changed(folder, self._filled))
        found = Transcript(line, status, out.read_bytes().decode(), err.read_bytes().decode(), files)
        shutil.rmtree(folder.parent)
        return normalised(found, folder)


def normalised(found: Transcript, folder: Path) -> Transcript:
    """Replace the parts that differ between machines."""

    def of(text: str) -> str:
        for path, name in ((folder, "WORK"), (folder.parents[1] / "home", "HOME"), (ROOT, "REPO")):
            text = text.replace(str(path), name)
        for one in NORMALISATIONS:
            if re.search(one.of, f"{found.line} "):
                text = re.sub(one.pattern, one.by, text)
        if re.search(r"attnbench (explain|compare-rules) .*--format", found.line):
            text = re.sub(r"-?\d+\.\d{6,}(e[-+]?\d+)?", lambda hit: f"{round(float(hit[0]), 9):.6g}", text)
        return text

    files = tuple((of(name), of(text)) for name, text in found.files)
    return replace(found, stdout=of(found.stdout), stderr=of(found.stderr), files=files)


MEASURED = "(measured values)\n"
DRAWN = "(a page or a picture)\n"


def _changed(folder: Path, filled: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file that is not as in ``filled``.

    Links are left out: :func:`fill` makes them.
    """
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        before = filled / name
        # Files of one time and size are not read.
        if path.is_symlink() or not path.is_file() or (before.exists() and filecmp.cmp(path, before)):
            continue
        if name.startswith("results/"):
            yield name, MEASURED
        elif path.suffix in (".html", ".png", ".svg"):
            yield name, DRAWN
        else:
            yield name, path.read_bytes().decode(errors="backslashreplace")


DEVICES = (
    ("AMD EPYC", [], (0,)),
    ("Intel(R) Xeon(R) Platinum 8481C", [], (0, 1)),
    ("AMD EPYC", [], (1,)),
    ("AMD EPYC", ["NVIDIA H100 80GB HBM3"], (0,)),
    ("AMD EPYC", ["NVIDIA A100-SXM4-80GB"], (0,)),
    ("AMD EPYC", ["NVIDIA H100 80GB HBM3"], (1,)),
)
"""The runs of a made fleet: the processor, the cards, and the places of the cases that it measured."""


def fleet(lines: list[str], *, moved: bool = False) -> list[str]:
    """Make a merged file of one run: as if each device had measured some of its cases.

    On the A100 the kernels ``bmm`` and ``sdpa_flash`` have changed their names. moved: the third run and the
    second have changed their processors.
    """
    head = json.loads(lines[0])
    made = []
    for number, (cpu, cards, places) in enumerate(DEVICES):
        other = DEVICES[3 - number][0] if moved and number in (1, 2) else cpu
        cases = [head["cases"][place] for place in places]
        environment = head["environment"] | {"cpu": other, "cuda_devices": cards}
        named = {
            "run_id": f"run-{number}{'-moved' if moved else ''}",
            "started": f"2026-01-0{number + 1}T00:00:00+00:00",
        }
        manifest = json.dumps(
            head | named | {"cases": cases, "environment": environment}, separators=(",", ":")
        )
        rest = (line for line in lines[1:] if '"case":"' not in line or any(case in line for case in cases))
        text = "".join([f"{manifest}\n", *rest])
        if cards:
            text = text.replace("/cpu/", "/cuda/")
        if "A100" in str(cards):
            text = (
                text.replace('"bmm"', '"?"').replace('"sdpa_flash"', '"bmm"').replace('"?"', '"sdpa_flash"')
            )
        made += text.splitlines()
    return made


def anew(*lines: str) -> list[str]:
    """The lines of a file that was written like this."""
    from attnbench.results.digest import digested

    return [line.decode() for line in digested(line.encode() for line in lines)]


def fill(folder: Path) -> None:
    """Make a folder with all the files that command lines name."""
    shutil.copytree(INPUTS, folder)
    runs = ROOT / "tests" / "runs"
    for path in runs.glob("*.jsonl"):
        (folder / path.name).symlink_to(path)
    text = (runs / "bert-base.jsonl").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    made = {
        "unfinished": lines[:20],
        "torn": [*lines[:20], lines[20][:100]],
        "damaged": [*lines[:20], "{]\n", *lines[20:]],
        "no-record": lines[:1],
        "newer": anew(lines[0].replace('"format":1,', '"format":99,'), *lines[1:]),
        "unknown-kind": anew(*lines[:20], '{"kind":"other"}'),
        "no-manifest": lines[1:],
        "twice": [*lines, lines[0]],
        "changed": [lines[0], *lines[2:]],
        "empty": [],
        "prose": ["no JSON\n"],
        "other-cpu": anew(lines[0].replace('"cpu":"', '"cpu":"Other '), *lines[1:]),
        "other-torch": anew(lines[0].replace('"torch":"', '"torch":"9.'), *lines[1:]),
        "fleet": anew(*fleet(lines)),
        "moved": anew(*fleet(lines, moved=True)),
        "undigested": [re.sub(r',"digest":"\w+"}', "}", line) for line in lines],
        "rewritten": [json.dumps(json.loads(line)) + "\n" for line in lines],
    }  # fmt: skip
    for name, made_lines in made.items():
        (folder / f"{name}.jsonl").write_text("".join(made_lines), encoding="utf-8")
    for name in ("empty-folder", "folder.toml", "folder.jsonl"):
        (folder / name).mkdir()
    (folder / "runs").mkdir()
    for name in ("gpt2", "smoke"):
        (folder / "runs" / f"{name}.jsonl").symlink_to(runs / f"{name}.jsonl")


def serve() -> None:
    """Read orders from stdin, run each in a fork, and write its exit status to stdout."""
    sys.path.pop(0)  # this folder, which is not on the path of a console script
    answers = os.fdopen(os.dup(1), "w")
    for name in _modules():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    importlib.import_module("attnbench.plugins.registry").load_registry()  # its suites are kept
    main = importlib.import_module("attnbench.__main__").main
    gc.freeze()  # a fork would copy the pages that collections write to
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            os.chdir(order["folder"])
            os.environ.update(order["environment"])
            for number, name in enumerate(order["streams"]):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
            sys.argv = order["argv"]
            _exit_by(main)
        status = os.waitpid(child, 0)[1]
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _exit_by(main: Callable[[], None]) -> NoReturn:
    """Call the function, and exit without the time that it takes to free all modules."""
    try:
        main()
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _modules() -> Iterator[str]:
    """Name the modules of attnbench, and modules of others that most commands import."""
    import attnbench

    yield from ("numpy", "pandas", "rich.console", "rich.table", "click.shell_completion")
    for module in pkgutil.walk_packages(attnbench.__path__, "attnbench."):
        yield module.name


if __name__ == "__main__":
    serve()
