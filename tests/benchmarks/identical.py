"""Measure identical code against itself, and print how its p-values are distributed.

Needs attnbench-selftest. Run on a quiet machine::

    python tests/benchmarks/identical.py live [--cells 96] [--own] [--busy [4]]
    python tests/benchmarks/identical.py files [--cells 112] [--busy [4]]
    python tests/benchmarks/identical.py batches [--cells 224] [--busy [4]]

live: ``attnbench compare`` of two commits with the same eight backends, on four cases. The commits are those
of a small project, whose sides share servers; with --own, HEAD of this repository: sides have their own.
files: ``attnbench run`` of eight identical plugin files, whose pairs are the cells. All pairs of a run
are judged together, as a run judges its ratios.
batches: the same with the backends and cases of packed and paged sequences.
--busy: so many other processes, or one, are busy all the time.
--cells: repeat until there are so many. p-values of identical code are uniform: 5 % are below 0.05.
Options of compare or run follow after --: with ``-- --head-python OTHER/bin/python`` the sides of a live
comparison have unlike interpreters, and the ratios show what these alone are worth.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from attnbench_selftest.live import Repository

import attnbench
from attnbench.results.format import read_run
from attnbench.runner.options import Options
from attnbench.stats.pairs import compare
from attnbench.stats.tests import ends
from attnbench.stats.verdict import benjamini_hochberg, decide

HOME = Path(attnbench.__file__).parent
MODULE = "attnbench_identical_kernels"
MODULES = ("eager", "sdpa", "bmm", "weighted_sum", "per_head_loop", "chunked", "numpy")
BACKENDS = (
    "eager", "sdpa_flash", "sdpa_math", "bmm", "weighted_sum", "per_head_loop", "chunked", "numpy"
)  # fmt: skip
CASES = (
    "attention/dot/B1-H2-L64-D32",
    "attention/dot/B1-H4-L256-D64",
    "attention/cosine/B1-H2-L128-D32",
    "attention/additive/B1-H2-L32-D16",
)
_MIX = "3q24_q9s60_4q1s96-H4-Hkv2-D32/causal:lower_right"
_DECODE = "6q1s256-H8-Hkv2-D64"
BATCHES = {
    "per_sequence": tuple(f"attention/scaled_dot/{sizes}/packed" for sizes in (_MIX, _DECODE)),
    "gather": tuple(f"attention/scaled_dot/{sizes}/paged" for sizes in (_MIX, _DECODE)),
}
LEVELS = (0.05, 0.01, 0.001)
HOOK = """
from attnbench import Backend, hookimpl
from attnbench.hookspecs import defined_in

@hookimpl
def attnbench_backends():
    return defined_in(__name__, Backend)
"""


def copied(name: str, prefix: str) -> str:
    """Return the source of a built-in backend with ``prefix`` before its name."""
    text = (HOME / "backends" / f"{name}.py").read_text()
    return re.sub(r'(\bname=f?")', rf"\g<1>{prefix}", text)


def copies(slower_by: Mapping[str, float]) -> dict[str, str]:
    """Return a package of copies of built-in backends. ``slower_by`` is empty: nothing is planted here."""
    modules = {f"{MODULE}/{name}.py": copied(name, "copy_") for name in MODULES}
    return {f"{MODULE}/__init__.py": HOOK} | modules


@dataclass(frozen=True)
class IdenticalCell:
    """One comparison of identical code."""

    name: str
    p_value: float
    ratio: float
    verdict: str


Outcomes = Counter[str]
"""How many rows have each status. A row that is not ``ok`` has no cell."""


def live(folder: Path, words: list[str], own: bool, outcomes: Outcomes) -> Iterator[IdenticalCell]:
    """Yield the cells of one live comparison; add the outcomes of its rows."""
    prefix, base = ("", "HEAD") if own else ("copy_", "HEAD~")
    chosen = [word for name in BACKENDS for word in ("--backend", prefix + name)]
    command = ["compare", "--ref", base, "--head", "HEAD", *CASES, *chosen, *words]
    command += ["--out", str(folder / "live.jsonl"), "--format", "json"]
    if own:
        process = [sys.executable, "-m", "attnbench", *command]
        printed = subprocess.run(process, cwd=HOME.parent, stdout=-1, text=True, check=False).stdout
    else:
        project = Repository(folder, MODULE, copies)
        project.commit({})
        _, printed, _ = project.attnbench(*command)
    for cell in json.loads(printed)["cells"]:
        outcomes.update((cell["base_status"], cell["new_status"]))
        if cell["p_value"] is not None:
            name = f"{cell['backend']} on {cell['case']}"
            yield IdenticalCell(name, cell["p_value"], cell["ratio"], cell["verdict"])


def files(
    folder: Path, words: list[str], outcomes: Outcomes, module: str, cases: Sequence[str]
) -> Iterator[IdenticalCell]:
    """Yield the pairs of identical files, copies of a module, in a run; add the outcomes of its rows."""
    names = [f"file{number}_{module}" for number in range(8)]
    plugins = []
    for number in range(8):
        file = folder / f"file{number}.py"
        file.write_text(
            copied(module, f"file{number}_")
            + HOOK.replace("defined_in(__name__, Backend)", f"({module.upper()},)")
        )
        plugins += ["--plugin", str(file), "--backend", names[number]]
    out = folder / f"{module}.jsonl"
    command = [sys.executable, "-m", "attnbench", "run", *cases, *plugins, *words]
    subprocess.run([*command, "--baseline", names[0], "--out", str(out)], check=True, capture_output=True)
    run = read_run(out)
    outcomes.update(record.status for record in run.records)
    found = []
    for case in run.manifest.cases:
        lines = [line for line in run.repetitions if line.case == case]
        for one, other in combinations(names, 2):
            compared = compare(lines, one, other)
            if compared is not None:
                found.append((f"{one} against {other} on {case}", compared))
    adjusted = benjamini_hochberg([each.p_value for _, each in found])
    for (name, each), p_adjusted in zip(found, adjusted, strict=True):
        low, high, _ = ends(each)
        verdict = decide(each.ratio, low, high, each.p_value, p_adjusted, Options().delta)
        yield IdenticalCell(name, each.p_value, each.ratio, verdict)


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Keep so many cores busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> None:
    """Measure and print."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("live", "files", "batches"))
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--busy", type=int, nargs="?", const=1, default=0)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    ours, words = sys.argv[1:end], sys.argv[end + 1 :]
    chosen = parser.parse_args(ours)
    found: list[IdenticalCell] = []
    outcomes: Outcomes = Counter()
    print(f"load average before: {os.getloadavg()[0]:.1f}", flush=True)
    while len(found) < chosen.cells:
        with tempfile.TemporaryDirectory() as name, other_work(chosen.busy):
            folder = Path(name)
            if chosen.what == "live":
                cells = list(live(folder, words, chosen.own, outcomes))
            else:
                kernels = BATCHES if chosen.what == "batches" else {"eager": CASES}
                cells = [
                    cell
                    for each, cases in kernels.items()
                    for cell in files(folder, words, outcomes, each, cases)
                ]
        if not cells:
            raise SystemExit("no cell was measured")
        found += cells
        below = ", ".join(
            f"{sum(one.p_value < level for one in found)} with p < {level:g}" for level in LEVELS
        )
        print(f"{len(found)} cells: {below}", flush=True)
    print(f"expected: {', '.join(f'{level * len(found):.1f}' for level in LEVELS)}")
    print(f"load average after: {os.getloadavg()[0]:.1f}")
    print(f"rows: {dict(outcomes)}")
    print(f"verdicts: {dict(Counter(one.verdict for one in found))}")
    ratios = sorted(one.ratio for one in found)
    ends = ratios[0], ratios[len(ratios) // 20], median(ratios), ratios[-1 - len(ratios) // 20], ratios[-1]
    print("ratios, smallest, 5 %, median, 95 %, largest: " + ", ".join(f"{ratio:.3f}" for ratio in ends))
    for one in found:
        if one.verdict in ("slower", "faster") or one.p_value < LEVELS[-1]:
            print(f"  {one.name}: {one.ratio:.3f}, p = {one.p_value:.2g} {one.verdict}")


if __name__ == "__main__":
    main()
