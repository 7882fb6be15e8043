"""Run the main job as a user would and fail if a rule, a backend or a status is missing.

Usage: python tests/ci/main_job.py FOLDER
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

RULES = {
    "dot", "scaled_dot", "general", "additive", "additive_sum", "concat_linear", "cosine", "alibi", "softcap",
    "sinks", "t5_bias",
}  # fmt: skip
ON_CPU = {
    "eager", "sdpa_flash", "sdpa_math", "bmm", "weighted_sum", "per_head_loop", "fused_multihead",
    "nn_multihead_attention", "chunked", "numpy",
}  # fmt: skip
NEED_A_COMPILER = {"flex", "compiled"}
ABSENT_ON_CPU = {"sdpa_efficient", "sdpa_cudnn"}
FINE = {"ok", "unsupported", "unavailable", "suspect"}


def main(folder: str) -> None:
    """Run smoke and check every record."""
    start = time.monotonic()
    done = subprocess.run(
        ["attnbench", "run", "--out", folder, "--format", "json"], stdout=subprocess.PIPE, check=False
    )
    wall_s = time.monotonic() - start
    records = json.loads(done.stdout)
    ok = [record for record in records if record["status"] == "ok"]
    wanted = ON_CPU | (NEED_A_COMPILER if shutil.which("c++") or shutil.which("g++") else set())
    problems = [
        *(f"no ok row for the rule {name}" for name in RULES - {record["rule"] for record in ok}),
        *(f"no ok row for the backend {name}" for name in wanted - {record["backend"] for record in ok}),
        *(
            f"{r['backend']} on {r['case']}: {r['status']}: {r['reason']}"
            for r in records
            if r["status"] not in FINE
        ),
        *(
            f"{r['backend']} is {r['status']}, not unavailable"
            for r in records
            if r["backend"] in ABSENT_ON_CPU and r["status"] != "unavailable"
        ),
    ]
    if done.returncode != 0:
        problems.append(f"exit status {done.returncode}")
    print(f"{len(ok)} ok of {len(records)} records in {wall_s:.0f} s")
    for problem in problems:
        print(f"FAILED: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
