"""A run on a device that torch only pretends: parent, workers and timer go the ways that they go on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = (
    "attention/scaled_dot/B1-H2-L24-D8/causal/float32/cuda",
    "multihead/scaled_dot/B1-H2-L12-D8-E16/none/bfloat16/cuda/both",
    "attention/sinks/B1-H2-L24-D8/causal/float32/cuda/backward/seed1",
)


@pytest.mark.slow
def test_right_backends_pass_are_timed_and_state_how_a_device_was_timed(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    words = ("run", *CASES, "--backend", "eager", "--backend", "per_head_loop", "--backend", "numpy")
    paths = [str(HERE / "pretended"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "attnbench", *words, "--sets", "3", "--out", str(file)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["environment"]["cuda_devices"] == ["a pretended device"], done.stderr
    records = [line for line in lines if line["kind"] == "record"]
    found = {name: {one["status"] for one in records if one["backend"] == name} for name in words[5::2]}
    assert found == {"eager": {"ok"}, "per_head_loop": {"ok"}, "numpy": {"unavailable"}}, done.stdout
    timed = [one for one in records if one["status"] == "ok"]
    assert all(any(note.startswith("batch") for note in one["notes"]) for one in timed)
    assert {one["peak_extra_bytes"] for one in timed} == {2**20}
    blocks = [b for line in lines if line["kind"] == "set" for of in line["blocks"].values() for b in of]
    assert {mhz for block in blocks for mhz in block["clock_mhz"]} == {1980}
