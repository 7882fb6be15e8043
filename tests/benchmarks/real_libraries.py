"""Check all installed libraries on the sizes of published models, and write results/real-libraries.md.

Install the packages under plugins/ first, as .ci/plugins does. Then::

    python tests/benchmarks/real_libraries.py FOLDER [SUITE ...]

checks the suites named, or all (half an hour on two idle cores), keeps a run file of each in FOLDER, goes on
with those that were cut off, and writes the report of all that are there. No suite is checked a second time.

Long suites are reduced: of llama3-8b, qwen2.5-7b and mistral-7b one group of heads that share keys and values
is left, and of llama3-8b no more than 2,048 tokens. The cases from 512 to 16,384 tokens have one head.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from attnbench.api import load
from attnbench.reports.run import Run
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, status_words

REPORT = Path(__file__).parents[2] / "results" / "real-libraries.md"
LIBRARIES = ("torch", "numpy", "numba", "jax", "onnxruntime", "openvino")
MEMORY_GIB = "6"
"""The most memory of a backend."""


def lengths(dtype: str) -> tuple[str, ...]:
    """Return cases of one head of 64 features from 512 to 16,384 tokens, with and without a causal mask."""
    sizes = (f"attention/scaled_dot/H1-L{2**power}-D64" for power in range(9, 15))
    return *(f"{size}/{mask}" for size in sizes for mask in ("none", "causal")), "--dtype", dtype


LLAMA = "attention/scaled_dot/H4-Hkv1"
SUITES: dict[str, tuple[str, ...]] = {
    "bert-base": ("bert-base",),
    "vit-b16": ("vit-b16",),
    "whisper": ("whisper",),
    "gpt2": ("gpt2",),
    "stable-diffusion-1": ("stable-diffusion-1",),
    "llama3-8b": (f"{LLAMA}-L2048-D128/causal", f"{LLAMA}-Lq1-Lk1024-D128/none"),
    "qwen2.5-7b": ("attention/scaled_dot/H7-Hkv1-L4096-D128/causal",),
    "mistral-7b": ("attention/scaled_dot/H4-Hkv1-L8192-D128/causal+window:4096",),
    "float32": lengths("float32"),
    "bfloat16": lengths("bfloat16"),
}
"""What is given to ``attnbench check``, by suite; the two dtypes are those of the lengths."""


def check(folder: Path, suite: str) -> None:
    """Check a suite, or what is left of it.

    Raises:
        SystemExit: it could not be checked.
    """
    file = folder / f"{suite}.jsonl"
    words = (*SUITES[suite], "--memory-limit", MEMORY_GIB, "--out", str(file))
    if file.exists():
        if not load(file).unfinished:
            return
        words = ("--resume", str(file))
    done = subprocess.run([sys.executable, "-m", "attnbench", "check", *words], check=False)
    # 1 and 3 say that some backends failed, which the report tells.
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{suite}: exit status {done.returncode}")


def installed(name: str) -> str:
    """Return a library and its version, or that it is missing."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def report(runs: Mapping[str, Run]) -> str:
    """Return the report as Markdown: where it was made, a table of counts, and all that is not ok."""
    first = next(iter(runs.values())).manifests[0]
    lines = [
        "# Real libraries\n",
        "`python tests/benchmarks/real_libraries.py FOLDER` wrote this page. Backends compute on one thread.",
        f"{first.environment['cpu']}, Python {first.environment['python']}, "
        f"{', '.join(map(installed, LIBRARIES))}; {first.started[:10]}.\n",
        "| suite | cases |\n| --- | --- |",
    ]
    for suite, run in runs.items():
        # Of a case that was cut off the refusals are there already.
        manifest = run.manifests[0]
        done = {record.case for record in run.records if not MEANING[record.status].declined}
        short = [
            case.split("/", 2)[2].removesuffix("/cpu/forward") for case in manifest.cases if case in done
        ]
        left = len(manifest.cases) - len(done)
        lines.append(f"| {suite} | {', '.join(short)}{f'; {left} more not checked' if left else ''} |")
    missing = [suite for suite in SUITES if suite not in runs]
    if missing:
        lines.append(f"\nNot checked: {', '.join(missing)}.")
    every = [record for run in runs.values() for record in run.records]
    total = Counter(record.status for record in every)
    lines += [
        f"\nTogether: {', '.join(f'{total[s]} {status_words(s)}' for s in STATUSES if total[s])}.",
        "Cases that are `ok`, and others by status; those that a backend declines are left out:\n",
        f"| backend | {' | '.join(runs)} |\n{'| --- ' * (1 + len(runs))}|",
    ]
    none = []
    for name in dict.fromkeys(record.backend for record in every):
        cells = [counted([one for one in run.records if one.backend == name]) for run in runs.values()]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
        else:
            none.append(name)
    lines.append(f"\nThese run none of the cases here: {', '.join(none)}.\n\n## What failed\n")
    failed: dict[tuple[str, str], list[Record]] = {}
    for record in every:
        if not record.passed and not MEANING[record.status].declined:
            failed.setdefault((record.backend, record.status), []).append(record)
    for (backend, status), records in failed.items():
        cases = ", ".join(f"`{record.case.removesuffix('/cpu/forward')}`" for record in records)
        lines.append(f"- {backend}: {status_words(status)} in {cases}. In the first, {records[0].reason}.")
    return "\n".join(lines if failed else [*lines, "Nothing."]) + "\n"


def counted(records: Sequence[Record]) -> str:
    """Count the records of a cell of the table by status."""
    counts = Counter(record.status for record in records if not MEANING[record.status].declined)
    ok = counts.pop("ok", 0)
    return ", ".join([str(ok)] * bool(ok) + [f"{n} {status_words(status)}" for status, n in counts.items()])


def main() -> None:
    """Check, then write the report."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; all unless said")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for suite in asked.suites or SUITES:
        if suite not in SUITES:
            parser.error(f"no suite {suite!r}; there are {', '.join(SUITES)}")
        check(asked.folder, suite)
    runs = {suite: load(file) for suite in SUITES if (file := asked.folder / f"{suite}.jsonl").exists()}
    REPORT.write_text(report(runs))


if __name__ == "__main__":
    main()
