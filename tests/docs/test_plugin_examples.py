"""The examples of docs/plugins.md in one run: a rule, backend, suite, metric, reporter and fact."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
FILES = ("rbf.py", "my_layer.py", "my_suite.py", "tokens.py", "lines.py", "rack.py", "lab.py")
LAYER = "multihead/scaled_dot/B1-H2-Lq16-Lk16-D8-E16/causal/float32/cpu/both"


def attnbench(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    plugins = [word for name in FILES for word in ("-p", name)]
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words, *plugins],
        cwd=folder, env=os.environ | {"RACK": "b7"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_examples_work_together(tmp_path: Path) -> None:
    shown = re.findall(r"^```python\n(# (\S+)\n.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    for text, name in shown:
        (tmp_path / name).write_text(text)
    backends = ("--backend", "eager", "--backend", "my_layer", "--budget", "0.01", "--sets", "2")
    done = attnbench(tmp_path, "run", "my-model", LAYER, *backends, "--out", "r.jsonl", "--format", "lines")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line.rpartition(" ")[0] for line in lines) == [
        *["ok eager"] * 4, *["ok my_layer"] * 3, "unsupported my_layer",
    ]  # fmt: skip
    assert f"ok my_layer {LAYER}" in lines
    manifest = json.loads((tmp_path / "r.jsonl").read_text().partition("\n")[0])
    assert manifest["environment"]["plugin_facts"]["rack.py"] == {"rack": "b7"}
    rows = json.loads(attnbench(tmp_path, "report", "r.jsonl", "--format", "json").stdout)
    for row in rows:
        if row["status"] == "ok":
            assert row["queries_per_s"] == pytest.approx(row["B"] * row["Lq"] / (row["median_ms"] / 1e3))
    places = attnbench(tmp_path, "fleet", "--on", "lab", "--where", "room=12", "--format", "json")
    assert [place["place"] for place in json.loads(places.stdout)] == ["desk"], places.stderr
