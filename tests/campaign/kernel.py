"""A kernel that writes down what computes: its files, its environment and its threads; runs of it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from commands import Done, check, in_fork, in_process

from attnbench.results.format import read_run

CASE = "attention/dot/H1-L8-D8"
THREADED = "attention/dot/H8-L512-D64"
"""A case whose calls take long enough for several threads."""

TIMED = ("ok", "inaccurate", "suspect")
LOG = "LABELS_LOG"
"""The variable that names the file in which each prepared kernel writes a line."""

EDIT = "LABELS_EDIT"
"""The variable that holds the edit that the kernel makes, see :func:`edited`."""

FAMILIES = ("OMP_", "MKL_", "KMP_", "GOMP_", "ONEDNN_", "DNNL_", "ATEN_", "OPENBLAS_", "TORCH")
MAIN = f'''"""A kernel in two files that writes down what computes."""
import json, os
from pathlib import Path
from attnbench import Backend, hookimpl
TOP
VERSION = 1
MOMENTS = []

def reached(moment):
    """Make the edit that is asked for, if this is its moment."""
    MOMENTS.append(moment)
    asked = json.loads(os.environ.get("{EDIT}", "{{}}"))
    if not asked or moment != asked["moment"]:
        return
    with open(asked["counter"], "a") as counter:
        counter.write(".")
        counter.flush()
        if os.fstat(counter.fileno()).st_size != asked["at"]:
            return
    file, before = Path(asked["file"]), os.stat(asked["file"])
    text = file.read_text().replace("VERSION = 1", "VERSION = 2")
    if asked["replaced"]:
        new = file.with_suffix(".new")
        new.write_text(text)
        new.replace(file)
    else:
        file.write_text(text)
    if asked["same time"]:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

def prepare(setup):
    import torch
    reached("before the import")
    INSIDE
    reached("after the import")
    if setup.case.threads > 1:
        torch.ones(512, 512) @ torch.ones(512, 512)
    line = {{
        "files": [__file__, part.__file__], "versions": [VERSION, part.VERSION],
        "threads": len(os.listdir("/proc/self/task")), "case_threads": setup.case.threads,
        "environment": {{k: v for k, v in os.environ.items() if k.startswith({FAMILIES})}},
    }}
    with open(os.environ["{LOG}"], "a") as log:
        log.write(json.dumps(line) + "\\n")

    def call(q, k, v):
        if "call" not in MOMENTS:
            reached("call")
        return part.attend(q, k, v)

    return call

@hookimpl
def attnbench_backends():
    yield Backend(name="kernel", summary="a kernel", prepare=prepare, rules=("dot",), dtypes=("float32",))
'''
PART = '''"""The part of the kernel that computes."""
VERSION = 1

def attend(q, k, v):
    import torch
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v
'''
IMPORTS = {"file": "import labelled_part as part", "package": "import labelled.labelled_part as part"}
CONTENT = {"METADATA": "Metadata-Version: 2.1\nName: labelled\nVersion: 1.0\n",
           "entry_points.txt": "[attnbench]\nlabelled = labelled\n",
           "RECORD": "labelled/__init__.py,,\nlabelled/labelled_part.py,,\n"}  # fmt: skip


class Kernel:
    """A kernel in a folder: a file plugin with a module beside it, or an installed package.

    at_top: whether its part is imported with it, and not inside ``prepare``. usual: the variables of its
    families that a worker has where the user sets none.
    """

    def __init__(self, folder: Path, form: str, *, at_top: bool) -> None:
        self.folder, self.form, self.log = folder, form, folder / "log"
        self.usual: dict[str, str] = {}
        inside = folder if form == "file" else folder / "labelled"
        self.main = inside / ("labelled.py" if form == "file" else "__init__.py")
        self.part = inside / "labelled_part.py"
        line = IMPORTS[form]
        top, within = (line, "pass") if at_top else ("", line)
        self.texts = {self.main: MAIN.replace("TOP", top).replace("INSIDE", within), self.part: PART}
        inside.mkdir(parents=True, exist_ok=True)
        for path, text in self.texts.items():
            if not path.exists():
                path.write_text(text)
        self._times = {path: path.stat().st_mtime_ns for path in self.texts}
        if form == "package":
            about = folder / "labelled-1.0.dist-info"
            about.mkdir(exist_ok=True)
            for name, text in CONTENT.items():
                (about / name).write_text(text)

    def as_before(self) -> None:
        """Undo edits, with the times of the files, and forget what computed."""
        for path, text in self.texts.items():
            path.write_text(text)
            os.utime(path, ns=(self._times[path], self._times[path]))
        self.log.unlink(missing_ok=True)

    def words(self, out: Path, threads: int = 1) -> list[str]:
        """The command that measures it."""
        case = CASE if threads == 1 else THREADED
        return ["run", case, "--backend", "eager", "--backend", "kernel", "--budget", "0.002",
                "--repetitions", "2", "--threads", str(threads), "--out", str(out), *self.plugin]  # fmt: skip

    @property
    def plugin(self) -> list[str]:
        return ["--plugin", str(self.main)] if self.form == "file" else []

    def measured(self, words: list[str], where: Path, **variables: str) -> Done:
        """Run a command that measures it in a new process."""
        own = {LOG: str(self.log)}
        if self.form == "package":
            path = [str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            own |= {"PYTHONPATH": os.pathsep.join(path), "ATTNBENCH_LOAD_PLUGINS": "attnbench,labelled"}
        return in_process(words, where, os.environ | own | variables)

    def computed(self) -> list[dict[str, Any]]:
        """What computed since the last reset: a value for each preparation."""
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in self.log.read_text().splitlines()]
        return []


@cache
def _base(shared: Path, form: str, at_top: bool, threads: int) -> tuple[Kernel, Path]:
    """A kernel, and a whole run of it that nothing disturbed."""
    folder = shared / f"{form}-{at_top}-{threads}"
    kernel = Kernel(folder, form, at_top=at_top)
    path = folder / "base.jsonl"
    path.unlink(missing_ok=True)
    done = check(kernel.measured(kernel.words(path, threads), shared), [0, 3])
    # On a machine that is busy with other work, exit status 3 tells of a suspect time.
    assert timed(path), f"no base: {all_said(done)}{stored_words(path)}"
    kernel.usual = kernel.computed()[0]["environment"]
    return kernel, path


def base(shared: Path, form: str = "file", *, at_top: bool = True, threads: int = 1) -> tuple[Kernel, Path]:
    kernel, path = _base(shared, form, at_top, threads)
    kernel.as_before()
    return kernel, path


def all_said(done: Done) -> str:
    return f"{done.stdout}\n{done.stderr}"


def timed(path: Path) -> bool:
    """Whether a run has times of the kernel."""
    return path.exists() and any(
        record.backend == "kernel" and record.status in TIMED for record in read_run(path).records
    )


def stored_words(path: Path) -> str:
    """The sentences that stand in a run file, and those that ``report`` says about it."""
    if not path.exists():
        return ""
    said = [" ".join([record.reason, *record.notes]) for record in read_run(path).records]
    return "\n".join([*said, in_fork(["report", str(path)], path.parent).stderr])
