"""The whole way to a program that uses a choice, for a program that sets no threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from distributions import write_distribution

SLOW = """
import time
import attnbench
def prepare(setup):
    from torch.nn.functional import scaled_dot_product_attention
    def attend(q, k, v):
        time.sleep(0.2)
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return attend
@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="slow", summary="a test", prepare=prepare)
"""
"""A backend that waits: whatever else a machine does, another one is proved to be faster."""
PROGRAM = """
import os
import sys

import torch
from torch.nn import functional

torch.manual_seed(0)
attention = real = functional.scaled_dot_product_attention
length, *choice = sys.argv[1:]
if "THREADS" in os.environ:
    torch.set_num_threads(int(os.environ["THREADS"]))
if choice:
    import attnbench.choice

    attention = attnbench.choice.load(*choice)
q = torch.randn(1, 8, int(length), 32)
k, v = torch.randn(2, 1, 2, int(length), 32)
for _ in range(3):
    expected = real(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attention(q, k, v, is_causal=True, enable_gqa=True), expected)
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "torch_dtype": "float32",
}  # fmt: skip


def ran(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    unset = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    unset["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=unset | variables, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def captured(folder: Path) -> list[str]:
    ran(folder, "-m", "attnbench", "capture", "--out", "mine.toml", "--", sys.executable, "program.py", "512")
    return []


def from_config(folder: Path) -> list[str]:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = ["--prefill", "512", "--chunked", "none", "--decode", "none"]
    done = ran(folder, "-m", "attnbench", "suite", "from-config", "config.json", *words)
    (folder / "mine.toml").write_text(done.stdout)
    return ["--threads", ran(folder, "-c", "import torch; print(torch.get_num_threads())").stdout.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param(captured, marks=pytest.mark.nightly), from_config])
def test_a_program_that_sets_no_threads_is_served_and_others_hear_why_not(
    way: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    """``slow`` stands for torch's function."""
    (tmp_path / "site").mkdir()
    write_distribution(tmp_path / "site", "slow", {"attnbench": {"slow": "slow"}}, {"slow.py": SLOW})
    (tmp_path / "program.py").write_text(PROGRAM)
    options = way(tmp_path)
    backends = ["--backend", "slow", "--backend", "sdpa_flash"]
    ran(tmp_path, "-m", "attnbench", "run", "mine.toml", "--out", "mine.jsonl", *options, *backends)
    told = ran(tmp_path, "-m", "attnbench", "choose", "mine.jsonl", "--default", "slow").stdout
    assert "512 queries and keys" in told
    said = ran(tmp_path, "program.py", "512", "choice.toml").stderr
    assert ", as now: 1 entry" in said
    assert said.count("the choice serves: sdpa_flash for scaled_dot/H8-Hkv2-L512-D32/causal") == 1
    longer = ran(tmp_path, "program.py", "1024", "choice.toml").stderr
    assert "the choice leaves: torch's function: no entry is for" in longer
    assert longer.rstrip().endswith("differs in Lq, Lk")
    more = (os.cpu_count() or 1) + 1
    others = ran(tmp_path, "program.py", "512", "choice.toml", THREADS=str(more)).stderr
    assert f"{more} threads, as now: none; no entry fits, so torch's function computes" in others
