"""Runs in jobs: processes of this machine, and those of commands that stand for a Slurm cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attnbench_slurm
import psutil
import pytest

import attnbench
from attnbench.fleet.drive import AGAIN

HERE = Path(__file__).parent
CASES = [f"attention/dot/H1-L{length}-D4" for length in (8, 16, 24)]
LONGEST_S = 300


@dataclass
class Cluster:
    """A folder for the files of a test, and commands that stand for Slurm's."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        path = f"{HERE / 'cluster'}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "CLUSTER": str(self.folder), "WRITTEN": str(self.folder / "written")}

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "attnbench", *words, "--plugin", str(HERE / "environment.py")],
            env=os.environ | self.variables | variables, cwd=self.folder, stdout=-1, stderr=-1, text=True,
        )  # fmt: skip

    def run(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Begin a run of three cases, each a unit."""
        backends = ("--backend", "bmm", "--backend", "reads", "--budget", "0.02", "--repetitions", "3")
        return self.start("run", *CASES, *backends, "--out", "all.jsonl", *words, **variables)

    def written(self) -> list[dict[str, Any]]:
        file = self.folder / "written"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def processes(self) -> list[psutil.Process]:
        """The processes that were started here, by what only they have in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                here = process.environ().get("CLUSTER") == str(self.folder)
                if here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for process in cluster.processes():
        process.kill()


def records_of(cluster: Cluster, process: subprocess.Popen[str]) -> dict[tuple[str, str], tuple[str, bool]]:
    """Wait for a run that must succeed; return by cell its status, and whether it was measured again."""
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, errors
    assert list(cluster.folder.glob(".attnbench-slurm-*")) == []
    records = attnbench.load(cluster.folder / "all.jsonl", plugins=str(HERE / "environment.py")).records
    assert set(Counter((each.case, each.backend) for each in records).values()) == {1}
    return {(each.case, each.backend): (each.status, AGAIN in each.notes) for each in records}


def until(met: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_script_of_a_job(cluster: Cluster) -> None:
    words = "jobs=2,partition=h100,gres=gpu:h100:1,time=02:00:00"
    process = cluster.start("fleet", "--on", f"slurm:{words}", CLUSTER_FULL="yes")
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2
    assert "--on slurm: the job was refused: sbatch: error: Invalid partition" in errors
    script = (cluster.folder / "refused.sh").read_text()
    script = script.replace(sys.executable, "PYTHON").replace(str(cluster.folder.resolve()), "FOLDER")
    script = re.sub(r"slurm-\w{8}", "slurm-ID", script)
    assert script == (HERE / "job.sh").read_text()
    assert list(cluster.folder.glob(".attnbench-slurm-*")) == []


def test_nobody_else_reads_the_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the suites, the plugins and the variables of its owner."""
    modes = []

    def refuse(asked: object, home: Path) -> None:
        modes.append(home.stat().st_mode & 0o777)
        raise attnbench.BadInput("no job today")

    monkeypatch.setattr(attnbench_slurm, "_submitter", refuse)
    with pytest.raises(attnbench.BadInput), attnbench_slurm.connect(f"folder={tmp_path}"):
        pass
    assert modes == [0o700]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("jobs=two", "jobs is a whole number"),
        ("jobs=0", "at least one job"),
        ("folder=nowhere", "there is no folder 'nowhere'"),
        ("cluster=cloud", "cluster is slurm or local"),
    ],
)
def test_an_address_that_cannot_be_is_refused(cluster: Cluster, address: str, said: str) -> None:
    process = cluster.start("fleet", "--on", f"slurm:{address}")
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2
    assert said in errors
    assert "Traceback" not in errors


def test_without_slurm(cluster: Cluster) -> None:
    process = cluster.start("fleet", "--on", "slurm", PATH="/nowhere")
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2
    assert "there is no srun here" in errors


@pytest.mark.slow
@pytest.mark.parametrize("address", ["slurm:jobs=2", "slurm:cluster=local"])
def test_a_run_in_jobs_has_the_records_of_a_plain_run(cluster: Cluster, address: str) -> None:
    plain = records_of(cluster, cluster.run())
    seen = {name for line in cluster.written() for name in line["environment"]}
    (cluster.folder / "all.jsonl").unlink()
    (cluster.folder / "written").unlink()
    assert records_of(cluster, cluster.run("--on", address)) == plain
    assert set(plain.values()) == {("ok", False)}
    for line in cluster.written():
        assert [name for name in line["environment"] if name.startswith(("SLURM", "SUBMITIT"))] == []
        assert line["environment"]["OMP_NUM_THREADS"] == "1"
        assert set(line["environment"]) <= seen | {"CUDA_VISIBLE_DEVICES"}
    until(lambda: not cluster.processes())


@pytest.mark.slow
def test_what_a_killed_job_had_not_measured_is_measured_again(cluster: Cluster) -> None:
    gate = cluster.folder / "gate"
    process = cluster.run("--on", "slurm:jobs=2", GATE=str(gate))
    until(lambda: any(line["Lk"] == 24 for line in cluster.written()))
    above = {pid for line in cluster.written() if line["Lk"] == 24 for pid in line["above"]}
    (job,) = above & {int(file.read_text()) for file in cluster.folder.glob("*.pid")}
    os.killpg(job, signal.SIGKILL)
    gate.touch()
    records = records_of(cluster, process)
    assert {status for status, _ in records.values()} == {"ok"}
    assert {case for (case, _), (_, again) in records.items() if again} == {
        case for case, _ in records if "Lk24" in case
    }


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_driver_was_killed(cluster: Cluster) -> None:
    gate = cluster.folder / "gate"
    process = cluster.run("--on", "slurm:jobs=1", GATE=str(gate))
    until(lambda: any(line["Lk"] == 24 for line in cluster.written()))
    process.kill()
    process.communicate()
    # Jobs end by themselves when nothing comes from the driver.
    until(lambda: not cluster.processes())
    gate.touch()
    for left in cluster.folder.glob(".attnbench-slurm-*"):
        left.rename(cluster.folder / "left")
    records = records_of(cluster, cluster.run("--on", "slurm:jobs=1"))
    assert {status for status, _ in records.values()} == {"ok"}
    assert len(records) == 6
