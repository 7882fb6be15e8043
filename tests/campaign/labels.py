"""Labels: each number belongs to the code, the machine and the settings that its label says, or that is told.

Each part changes one of these at random and knows by itself what then computed (:mod:`kernel`). A trial fails
if a number and its label differ and attnbench neither refuses nor says so, or if it refuses although nothing
was changed.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import msgspec
from commands import Done, check, in_fork, in_process
from files import CASES, FORMS, lines_for, originals
from kernel import CASE, EDIT, MAIN, PART, Kernel, all_said, base, stored_words, timed
from rewritten import rewritten

import attnbench
from attnbench.results.format import RunWriter, read_run

# -- modules in the working folder -----------------------------------------------------------------------

_AGAIN = """
import sys
sys.path[:] = [entry for entry in sys.path if entry not in ("", {here!r})]
sys.modules.pop(__name__)
__import__(__name__)
"""


@cache
def _names() -> list[str]:
    """The names of all modules of the standard library and of what is installed here."""
    installed = [name for name in packages_distributions() if name.isidentifier()]
    return sorted({*sys.stdlib_module_names, *installed} - {"attnbench"})


def _put(rng: random.Random, folder: Path, executed: Path, name: str) -> None:
    """Put a module of a name into a folder, which writes down that it was executed."""
    body = rng.choice([_AGAIN.format(here=str(folder)), "", "raise ImportError('another module')", "x = 1"])
    if name == "attnbench":
        # Another clone: it works as the one that is installed.
        package = Path(attnbench.__file__).parent
        body = f"__path__ = [{str(package)!r}]\nexec(open({str(package / '__init__.py')!r}).read())"
    elif name == "labelled":
        body = MAIN.replace("TOP", "import labelled.labelled_part as part").replace("INSIDE", "pass")
    text = f"open({str(executed)!r}, 'a').write(__name__ + '\\n')\n{body}"
    if name in ("attnbench", "labelled") or rng.random() < 0.3:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
        (folder / name / "labelled_part.py").write_text(PART)
    else:
        (folder / f"{name}.py").write_text(text)


def _shadows(rng: random.Random, folder: Path) -> tuple[Path, Path, list[str]]:
    """Make a working folder with modules; return it, the file in which they write, and their names."""
    here, executed = folder / "here", folder / "executed"
    here.mkdir()
    chosen = rng.sample(_names(), rng.choice([1, 3, 10]))
    names = rng.choice([["attnbench"], ["labelled"], chosen, chosen])
    for name in names:
        _put(rng, here, executed, name)
    return here, executed, names


def _executed(executed: Path) -> list[str]:
    return sorted(set(executed.read_text().split())) if executed.exists() else []


def shadowed(rng: random.Random, folder: Path, shared: Path) -> None:
    """Have a command that measures nothing run where modules of well-known names lie."""
    here, executed, names = _shadows(rng, folder)
    (here / "run.jsonl").write_bytes(originals(shared)["run.jsonl"])
    (here / "whole.jsonl").write_bytes(originals(shared)["run.jsonl"])
    form = ["--format", rng.choice(FORMS)]
    words = rng.choice([
        *lines_for("run.jsonl", rng.choice(FORMS)),
        ["list", "backends", *form], ["plugins", *form], ["run", *CASES, "--plan", *form],
        ["explain", "dot", *form], ["new", "mine"],
    ])  # fmt: skip
    # As the console script, a process does not import from the working folder by itself.
    done = in_process(words, here) if rng.random() < 0.2 else in_fork(words, here)
    _not_shadowed(done, executed, names)


def shadowed_run(rng: random.Random, folder: Path, shared: Path) -> None:
    """Measure a kernel where modules of its name, of attnbench's or of well-known names lie."""
    form = "package" if rng.random() < 0.7 else "file"
    kernel, _ = base(shared, form)
    here, executed, names = _shadows(rng, folder)
    words = kernel.words(here / "new.jsonl")
    if rng.random() < 0.3:
        words = ["check", CASE, "--backend", "kernel", "--out", str(here / "new.jsonl"), *kernel.plugin]
    done = kernel.measured(words, here)
    _not_shadowed(done, executed, names)
    if _executed(executed):
        return
    files = {file for line in kernel.computed() for file in line["files"]}
    said = all_said(done) + stored_words(here / "new.jsonl")
    assert files == set(map(str, kernel.texts)), f"the kernel ran {sorted(files)}: {said}"


def _not_shadowed(done: Done, executed: Path, names: list[str]) -> None:
    ran = _executed(executed)
    told = any(re.search(rf"\b{re.escape(name)}(\.py)?\b", done.stderr) for name in ran) and done.status != 0
    outcome = f"status {done.status}, {done.stderr[-300:]!a}"
    words = " ".join(done.words)
    assert not ran or told, f"{words} executes {ran} of the working folder: {outcome}"
    assert ran or done.status in (0, 3), f"{words} beside {names}: {outcome}"


# -- runs that go on elsewhere ---------------------------------------------------------------------------

VARYING = ("load_average", "git_commit")
ALWAYS = ("cpu", "cpu_quota", "torch", "python", "numpy")
"""Facts that no run may mix, whatever ``compare`` calls different."""


def _facts(environment: dict[str, Any]) -> list[tuple[str, ...]]:
    """The places of the facts: of those inside a fact, each for itself."""
    found: list[tuple[str, ...]] = []
    for name, value in environment.items():
        found += [(name, key) for key in value] if isinstance(value, dict) else [(name,)]
    return found


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return "another"
    if isinstance(value, int | float):
        return value + rng.choice([1, 2, 64])
    if isinstance(value, list):
        return [*value, "another" if not value else value[-1]]
    if re.match(r"\d+\.\d+", str(value)):
        major, rest = str(value).split(".", 1)
        return f"{int(major) + rng.choice([1, 2])}.{rest}"
    return f"{value} {rng.choice(['X', '2', 'of another kind'])}"


def _cut(path: Path, new: Path, rng: random.Random, environment: dict[str, Any] | None = None) -> None:
    """Write the beginning of a run as it would stand there after a kill, on a machine with these facts."""
    run = read_run(path)
    manifest = run.manifest
    if environment is not None:
        manifest = msgspec.structs.replace(manifest, environment=environment)
    with RunWriter.create(new, manifest) as writer:
        for line in (*run.cases, *run.repetitions[: rng.choice([0, 1, 1, 1])]):
            writer.append(line)


def resumed(rng: random.Random, folder: Path, shared: Path) -> None:
    """Go on with a run that was begun where one fact, or one variable, was another."""
    kernel, path = base(shared)
    environment = json.loads(msgspec.json.encode(read_run(path).manifest.environment))
    variables: dict[str, str] = {}
    new = folder / "run.jsonl"
    if rng.random() < 0.2:
        name = rng.choice(list(SETTINGS))
        variables = {name: rng.choice(SETTINGS[name])}
        fact, what = name, f"{variables} set"
        _cut(path, new, rng)
    else:
        place = rng.choice(_facts(environment))
        fact = place[-1]
        old = environment[place[0]][fact] if len(place) == 2 else environment[fact]
        other_value = _other(old, rng)
        # The version of torch stands in two places.
        for holder in (environment, *environment.values()):
            if isinstance(holder, dict) and fact in holder:
                holder[fact] = other_value
        what = f"begun with {'.'.join(place)} {str(other_value)[:60]!r}, gone on with {str(old)[:60]!r}"
        _cut(path, new, rng, environment)
    before = new.read_bytes()
    done = check(kernel.measured(["run", "--resume", str(new), *kernel.plugin], folder, **variables))
    mixed = done.status in (0, 3) and bool(kernel.computed())
    if variables:
        other = bool(_in_force(variables, kernel))
    else:
        other = fact in ALWAYS or _compare_refuses(path, new, folder)
        if fact in VARYING:
            assert mixed, f"{what}: {all_said(done)}{stored_words(new)}"
            other = False
    told = _names_fact(fact, done.stderr + stored_words(new))
    assert not (mixed and other) or told, f"goes on without a word: {what}"
    if done.status == 2:
        assert new.read_bytes() == before, f"refused, and changed the file: {what}"
        if "--force" in done.stderr and rng.random() < 0.2:
            forced = ["run", "--resume", str(new), "--force", *kernel.plugin]
            check(kernel.measured(forced, folder, **variables), [0, 3])
            told = _names_fact(fact, stored_words(new))
            assert told, f"forced, and the report tells nothing: {what}"


def _names_fact(fact: str, text: str) -> bool:
    """Whether a text has the name of a fact, other than in paths and ids of cases."""
    return re.search(rf"\b{re.escape(fact)}\b", re.sub(r"\S*/\S*", "", text)) is not None


def _compare_refuses(path: Path, new: Path, folder: Path) -> bool:
    """Whether ``compare`` calls the conditions of two files different."""
    whole, other = read_run(path), folder / "other.jsonl"
    with RunWriter.create(other, read_run(new).manifest) as writer:
        for line in (*whole.cases, *whole.repetitions, *whole.records):
            writer.append(line)
        if whole.finished is not None:
            writer.append(whole.finished)
    done = in_fork(["compare", str(path), str(other)], folder)
    return done.status == 2 and "different conditions" in done.stderr


# -- code that is edited ---------------------------------------------------------------------------------

MOMENTS = ("before the import", "after the import", "call")


def edited(rng: random.Random, folder: Path, shared: Path) -> None:
    """Edit a module of a kernel at any moment of a run, or between a run and going on with it."""
    form, at_top = rng.choice(["file", "package"]), rng.random() < 0.5
    kernel, path = base(shared, form, at_top=at_top)
    file = rng.choice([kernel.part, kernel.part, kernel.main])
    asked = {
        "file": str(file), "counter": str(folder / "counter"), "moment": rng.choice(MOMENTS),
        "at": rng.randint(1, 4), "replaced": rng.random() < 0.3, "same time": rng.random() < 0.3,
    }  # fmt: skip
    new = folder / "run.jsonl"
    between = rng.random() < 0.3
    if between:
        _cut(path, new, rng)
        told_time = file.stat()
        file.write_text(file.read_text().replace("VERSION = 1", "VERSION = 2"))
        if asked["same time"]:
            os.utime(file, ns=(told_time.st_atime_ns, told_time.st_mtime_ns))
        done = check(kernel.measured(["run", "--resume", str(new), *kernel.plugin], folder))
        asked["moment"] = "between a run and --resume"
    else:
        asked |= {"at": 1000} if rng.random() < 0.1 else {}
        done = check(kernel.measured(kernel.words(new), folder, **{EDIT: json.dumps(asked)}))
    versions = {tuple(line["versions"]) for line in kernel.computed()} | ({(1, 1)} if between else set())
    what = f"a {form} that imports its part {'at the top' if at_top else 'inside prepare'}, {asked}"
    kernel.as_before()
    if len(versions) < 2:
        unhurt = timed(new)
        assert asked["at"] != 1000 or unhurt, f"nothing was edited, and yet: {done.stderr[-500:]!a}"
        return
    said = done.stderr + stored_words(new)
    told = done.status == 2 or not timed(new) or (file.name in said and re.search("chang|differ|edit", said))
    assert told, f"versions {sorted(versions)} are measured as one: {what}"


# -- variables that change what libraries compute with ---------------------------------------------------

SETTINGS: dict[str, tuple[str, ...]] = {
    "OMP_THREAD_LIMIT": ("1", "2"), "OMP_DYNAMIC": ("TRUE", "true"), "OMP_PROC_BIND": ("true", "close"),
    "OMP_PLACES": ("cores", "threads"), "OMP_SCHEDULE": ("dynamic", "static,1"), "OMP_NESTED": ("true",),
    "OMP_WAIT_POLICY": ("ACTIVE", "PASSIVE"), "OMP_STACKSIZE": ("1M",), "OMP_MAX_ACTIVE_LEVELS": ("1",),
    "OMP_CANCELLATION": ("true",), "OMP_NUM_THREADS": ("1", "2"), "MKL_NUM_THREADS": ("1", "2"),
    "MKL_CBWR": ("COMPATIBLE", "AVX2"), "MKL_DYNAMIC": ("FALSE",), "MKL_VERBOSE": ("0",),
    "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX2"), "MKL_DOMAIN_NUM_THREADS": ("MKL_BLAS=1",),
    "MKL_THREADING_LAYER": ("SEQUENTIAL", "GNU"), "MKL_FAST_MEMORY_LIMIT": ("0",),
    "KMP_AFFINITY": ("disabled", "compact"), "KMP_LIBRARY": ("serial", "throughput"),
    "KMP_BLOCKTIME": ("0", "200"), "KMP_DUPLICATE_LIB_OK": ("TRUE",), "KMP_STACKSIZE": ("1M",),
    "GOMP_CPU_AFFINITY": ("0",), "GOMP_SPINCOUNT": ("0", "infinity"), "GOMP_STACKSIZE": ("1024",),
    "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2"), "ONEDNN_CPU_ISA_HINTS": ("PREFER_YMM",),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("BF16", "STRICT"), "ONEDNN_PRIMITIVE_CACHE_CAPACITY": ("0",),
    "ONEDNN_VERBOSE": ("0",), "DNNL_MAX_CPU_ISA": ("SSE41", "AVX2"), "DNNL_VERBOSE": ("0",),
    "DNNL_PRIMITIVE_CACHE_CAPACITY": ("0",), "DNNL_DEFAULT_FPMATH_MODE": ("BF16",),
    "ATEN_CPU_CAPABILITY": ("default", "avx2"), "OPENBLAS_CORETYPE": ("Prescott", "Haswell"),
    "OPENBLAS_NUM_THREADS": ("1", "2"), "OPENBLAS_MAIN_FREE": ("1",), "TORCH_LOGS": ("-dynamo",),
    "TORCH_CPP_LOG_LEVEL": ("ERROR",), "TORCH_SHOW_CPP_STACKTRACES": ("1",),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("1",), "TORCHINDUCTOR_FREEZING": ("1",),
}  # fmt: skip
"""Variables of the libraries that compute, with values that all of them accept."""

ALONE = re.compile(r"second thread|one thread|1 thread|only one worked", re.IGNORECASE)


def _in_force(variables: dict[str, str], kernel: Kernel) -> set[str]:
    """The variables that the kernel ran with; a value that attnbench gives its workers itself is not one."""
    return {
        name
        for name, value in variables.items()
        if value != kernel.usual.get(name)
        and any(line["environment"].get(name) == value for line in kernel.computed())
    }


def settings(rng: random.Random, folder: Path, shared: Path) -> None:
    """Measure with a few variables set, and put the file beside one that was measured without them."""
    threads = rng.choice([1, 2]) if len(os.sched_getaffinity(0)) > 1 else 1
    kernel, path = base(shared, threads=threads)
    names = rng.sample(list(SETTINGS), rng.choice([1, 1, 2, 3]))
    variables = {name: rng.choice(SETTINGS[name]) for name in names}
    new = folder / "new.jsonl"
    done = check(kernel.measured(kernel.words(new, threads), folder, **variables))
    if done.status == 2 or not timed(new):
        return
    inside = _in_force(variables, kernel)
    command = rng.choice([
        ["compare", str(path), str(new)], ["history", str(path), str(new)],
        ["choose", str(path), str(new), "--default", "eager", "--out", "choice.toml"],
    ])  # fmt: skip
    beside = in_fork(command, folder)
    said = done.stderr + all_said(beside)
    unsaid = sorted(name for name in inside if name not in said)
    refused = beside.status == 2 and "conditions" in beside.stderr
    assert refused or not unsaid, f"{command[0]} tells nothing of {unsaid}: {variables}"
    alone = threads > 1 and any(line["threads"] < 2 for line in kernel.computed())
    told = ALONE.search(done.stderr + stored_words(new))
    assert not alone or told, f"{threads} threads, of which one worked: {variables}"


LABELS = {
    "rewritten": (rewritten, 1100), "shadowed": (shadowed, 500), "shadowed-run": (shadowed_run, 50),
    "resumed": (resumed, 200), "edited": (edited, 75), "settings": (settings, 75),
}  # fmt: skip
"""The parts, and how many of 2,000 trials each makes. The last four measure."""
