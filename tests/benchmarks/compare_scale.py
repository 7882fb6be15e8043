"""Print the time and the peak memory of comparing two runs of 50,000 records.

Usage: compare_scale.py [RECORDS], where RECORDS is the number of records a side. The runs are made up, in a
temporary folder of up to 810 MiB. Their lines are those of a run with the default budget: ten backends, nine
sets of two stretches of eight samples.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import msgspec

from attnbench.runner.options import Options
from attnbench.types.record import (
    FORMAT_VERSION,
    Block,
    CandidatePlan,
    CaseLine,
    EndLine,
    MachineScale,
    Manifest,
    Record,
    SetLine,
)  # fmt: skip

BACKENDS = [f"backend_{i}" for i in range(10)]
SETS, STRETCHES, SAMPLES = 9, 2, 8
RECORDS = 50_000
MOST_CPU_S, MOST_GIB = 15.0, 0.7


def write_run(path: Path, cases: list[str], seed: int) -> None:
    """A whole run of made-up times: 10 % from process to process, 5 % from sample to sample."""
    rng = Random(seed)
    encode = msgspec.json.Encoder().encode
    manifest = Manifest(
        FORMAT_VERSION, f"run-{seed}", f"2026-01-0{seed}T00:00:00+00:00", "0.1.0", [], cases, BACKENDS, [],
        None, Options().protocol(), [], {"cpu": "made up", "libraries": {}, "torch_flags": {}},
    )  # fmt: skip
    plan = CandidatePlan(2, SAMPLES, 2, SETS, None, 1.0, 1.0, [0.1] * 10, fresh=True, anew=True)
    with path.open("wb") as file:
        file.write(encode(manifest) + b"\n")
        for case in cases:
            lines: list[object] = [
                CaseLine(case, STRETCHES, 1, 100, 1e6, 1e6, dict.fromkeys(BACKENDS, plan)),
                *(_set(case, index, rng) for index in range(SETS)),
                *(_record(case, backend) for backend in BACKENDS),
            ]
            file.write(b"".join(encode(line) + b"\n" for line in lines))
        file.write(encode(EndLine("2026-01-01T01:00:00+00:00", 1.0, {})) + b"\n")


def _set(case: str, index: int, rng: Random) -> SetLine:
    def block(stretch: int, middle: float) -> Block:
        wall = [int(middle * (0.95 + 0.1 * rng.random())) for _ in range(SAMPLES)]
        zeros = [0] * SAMPLES
        return Block(stretch, list(range(stretch, 10 * SAMPLES, 10)), 2, wall, wall, zeros, zeros, wall)

    def blocks() -> list[Block]:
        middle = 2e5 * (0.9 + 0.2 * rng.random())
        return [block(stretch, middle) for stretch in range(STRETCHES)]

    scale = MachineScale({256: [440_000], 320: [970_000]}, 131_072, [4_000] * 8, [65.0] * 3, [1_800.0] * 8)
    return SetLine(
        case, index, [0] * 4, BACKENDS, {name: [200_000] * 12 for name in BACKENDS},
        {name: blocks() for name in BACKENDS}, BACKENDS, {}, scale, [0] * 4, dict.fromkeys(BACKENDS, 4),
    )  # fmt: skip


def _record(case: str, backend: str) -> Record:
    return Record(case, "dot", backend, "ok", median_ms=0.1, low_ms=0.09, high_ms=0.11, sets=SETS)


def main() -> None:
    """Make two runs, compare them as a user would, print what that took; fail beyond the limits."""
    begun = time.process_time()
    sum(1 for _ in range(10_000_000))
    print(f"this core counts to ten million in {time.process_time() - begun:.2f} s")
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    cases = [f"attention/dot/B1-H4-Lq{i}-Lk{i}-D64/none/float32/cpu/forward" for i in range(records // 10)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "base.jsonl", Path(folder) / "new.jsonl"]
        for seed, path in enumerate(paths, start=1):
            write_run(path, cases, seed)
        size = sum(path.stat().st_size for path in paths) / 2**20
        spent = 0.0
        for format_ in ("json", "markdown", "table"):
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "attnbench", "compare", *map(str, paths), "--format", format_],
                stdout=subprocess.PIPE, check=False,
            )  # fmt: skip
            took = time.perf_counter() - begun
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s, spent = used.ru_utime + used.ru_stime - spent, used.ru_utime + used.ru_stime
            peak = used.ru_maxrss / 2**20
            print(
                f"{records} records a side, {size:.0f} MiB of files, --format {format_}: {took:.1f} s "
                f"({cpu_s:.1f} s of CPU), "
                f"peak so far {peak:.2f} GiB, exit {done.returncode}, {len(done.stdout) / 2**20:.1f} MiB out"
            )
            if done.returncode not in (0, 1):
                sys.exit("not compared")
            # CPU time: other work on the machine adds to the wall time.
            if records <= RECORDS and (cpu_s > MOST_CPU_S or peak > MOST_GIB):
                sys.exit(f"beyond {MOST_CPU_S} s or {MOST_GIB} GiB")


if __name__ == "__main__":
    main()
