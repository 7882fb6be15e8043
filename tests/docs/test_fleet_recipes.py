"""The recipes of docs/fleet.md are files that parse, and their commands run or resume the right shard."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SLURM, KUBERNETES, GITHUB = (
    DOCS / "recipes" / name for name in ("slurm.sh", "kubernetes.yaml", "github.yml")
)


def parsed(path: Path) -> Any:
    return pytest.importorskip("yaml").safe_load(path.read_text())


def script_of_kubernetes() -> str:
    """The script after ``args:``, without its indentation."""
    found = re.search(r"^ +- \|\n((?:^ {14}.*\n)+)", KUBERNETES.read_text(), re.MULTILINE)
    return re.sub("^ {14}", "", found[1], flags=re.MULTILINE)


def asked(folder: Path, script: str, **variables: str) -> str:
    """Run a script with an attnbench that only writes down its words; return them."""
    tool = folder / "tools" / "attnbench"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    env = os.environ | variables | {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_page_shows_the_files_as_they_are() -> None:
    page = (DOCS / "fleet.md").read_text()
    shown = re.findall(r"^```(?:bash|yaml)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert shown == [path.read_text() for path in (SLURM, KUBERNETES, GITHUB)]


def test_a_task_of_slurm_runs_its_shard_and_then_resumes_it(tmp_path: Path) -> None:
    script, task = SLURM.read_text(), {"SLURM_ARRAY_TASK_ID": "3"}
    assert asked(tmp_path, script, **task) == "run mine.toml --out shards/3.jsonl --shard 3/16"
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "3.jsonl").touch()
    assert asked(tmp_path, script, **task) == "run --resume shards/3.jsonl --force"
    assert "#SBATCH --array=1-16\n" in script


def test_a_pod_runs_the_shard_after_its_index_and_then_resumes_it(tmp_path: Path) -> None:
    script = script_of_kubernetes().replace("/data/", f"{tmp_path}/")
    first, last = (asked(tmp_path, script, JOB_COMPLETION_INDEX=index) for index in ("0", "15"))
    assert first == f"run {tmp_path}/mine.toml --out {tmp_path}/shards/1.jsonl --shard 1/16"
    assert last.endswith("--shard 16/16")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "1.jsonl").touch()
    again = asked(tmp_path, script, JOB_COMPLETION_INDEX="0")
    assert again == f"run --resume {tmp_path}/shards/1.jsonl --force"


def test_the_job_has_as_many_indexes_as_shards() -> None:
    spec = parsed(KUBERNETES)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", 16)
    assert container["args"] == [script_of_kubernetes()]
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]


def test_the_matrix_has_as_many_jobs_as_shards() -> None:
    jobs = parsed(GITHUB)["jobs"]
    assert jobs["shard"]["strategy"]["matrix"]["shard"] == [1, 2, 3, 4]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert [line for line in commands if line.startswith("attnbench")] == [
        "attnbench run smoke --shard ${{ matrix.shard }}/4 --out shards/${{ matrix.shard }}.jsonl",
        "attnbench merge shards --out results/all.jsonl",
        'attnbench report results/all.jsonl --format markdown --summary >> "$GITHUB_STEP_SUMMARY"',
    ]
