"""``attnbench compare --ref`` from the repository to the exit status: once with a change, once without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_project import Install, plugin

from attnbench.results.format import read_run

CASE = "attention/dot/B1-H2-L16-D8"
KERNEL = """
from attnbench import Backend, hookimpl

def attend(setup):
    return lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v

def slow(setup):
    call = attend(setup)
    return lambda q, k, v: [call(q, k, v) for _ in range({times})][-1]

def off(setup):
    call = attend(setup)
    return lambda q, k, v: call(q, k, v) * {factor}

@hookimpl
def attnbench_backends():
    for name in {names!r}:
        prepare = {{"slow": slow, "off": off}}.get(name, attend)
        yield Backend(name=name, summary=name, prepare=prepare, rules=("dot",))
"""


def source(*names: str, times: int = 1, factor: float = 1.0) -> str:
    return KERNEL.format(names=names, times=times, factor=factor)


def attnbench(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words],
        cwd=where, capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"COLUMNS": "120"},
    )  # fmt: skip


@pytest.mark.slow
def test_what_a_commit_changed_is_measured_told_and_can_be_looked_at_again(project: Install) -> None:
    there = project("mini_m", "mini_n")
    there.commit(mini_m=source("slow", "off"), mini_n____init__=plugin("same"))
    there.commit(mini_m=source("slow", "off", "new", "hidden", times=6, factor=1.5))
    in_the_tree = source("slow", "off", "new", times=99)
    there.write(mini_m=in_the_tree)
    done = attnbench(
        there.repo, "compare", "--ref", "HEAD~", "--head", "HEAD", CASE, "--budget", "0.05",
        "--out", "out.jsonl", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    cells = {cell["backend"]: cell for cell in found["cells"]}
    assert set(cells) == {"slow", "off", "new", "hidden"}
    assert cells["slow"]["verdict"] == "slower"
    assert 2 < cells["slow"]["ratio"] < 25
    # Fifteen repetitions agree, so the last ten are left out.
    assert len(read_run(there.repo / "out.jsonl").repetitions) == 15
    assert [cells["off"][name] for name in ("verdict", "base_status", "new_status")] == [
        "mismatch", "ok", "mismatch",
    ]  # fmt: skip
    # What the user's tree lacks is measured too.
    assert {(cells[name]["verdict"], cells[name]["reason"]) for name in ("new", "hidden")} == {
        ("none", "not in base")
    }
    assert (found["base"][:7], found["new"][:6]) == ("HEAD~ (", "HEAD (")
    assert found["differences"] == []
    assert found["warnings"] == []
    assert {"same", "eager"} <= set(found["left_out"])
    assert (there.repo / "mini_m.py").read_text() == in_the_tree
    again = attnbench(there.repo, "compare", "out.jsonl", "--format", "json")
    assert (again.returncode, json.loads(again.stdout)) == (1, found)
    larger = attnbench(there.repo, "compare", "out.jsonl", "--delta", "0.99", "--format", "json")
    assert json.loads(larger.stdout)["cells"][0]["delta"] == 0.99
    twice = attnbench(there.repo, "compare", "--ref", "HEAD~", CASE, "--all", "--out", "out.jsonl")
    assert twice.returncode == 2
    assert twice.stderr.splitlines()[-1] == "attnbench: 'out.jsonl' exists; name another file"
    resumed = attnbench(there.repo, "run", "--resume", "out.jsonl")
    assert resumed.returncode == 2
    assert "is a live comparison, which can't be resumed: compare again" in resumed.stderr


BROKEN = "raise RuntimeError('half done')"


@pytest.mark.slow
def test_what_head_lacks_or_cannot_import_fails_the_gate_also_where_the_tree_is_head(
    project: Install,
) -> None:
    there = project("mini_q", "mini_r", "mini_s")
    there.commit(mini_q=source("gone", "stays"), mini_r=source("broken"), mini_s=source("deleted"))
    (there.repo / "mini_s.py").unlink()
    narrower = source("stays").replace('rules=("dot",)', 'rules=("cosine",)')
    there.commit(mini_q=narrower, mini_r=BROKEN)
    done = attnbench(
        there.repo, "compare", "--ref", "HEAD~", "--head", "HEAD", CASE, "--budget", "0.001",
        "--repetitions", "1", "--out", "out.jsonl", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    cells = {cell["backend"]: cell for cell in found["cells"]}
    assert set(cells) == {"gone", "broken", "deleted", "stays"}
    assert {cell["verdict"] for cell in cells.values()} == {"missing"}, cells
    assert "brings no 'gone' here" in cells["gone"]["reason"]
    assert "mini_r" in cells["broken"]["reason"]
    assert "RuntimeError: half done" in cells["broken"]["reason"]
    assert "No module named 'mini_s'" in cells["deleted"]["reason"]
    assert "computes cosine, not dot" in cells["stays"]["reason"]
    assert found["gate"] == "fails: 4 missing of 4 cells"
    assert any("half done" in warning for warning in found["warnings"])
    again = attnbench(there.repo, "compare", "out.jsonl", "--format", "json")
    assert (again.returncode, json.loads(again.stdout)) == (1, found)
    older = attnbench(there.repo, "compare", "--ref", "HEAD", "--head", "HEAD~", CASE, "--budget", "0.001",
        "--repetitions", "1", "--format", "json")  # fmt: skip
    assert json.loads(older.stdout)["warnings"][-1] == (
        'HEAD has 1 commit that HEAD~ lacks, and what they change is told too: --ref "$(git merge-base '
        'HEAD HEAD~)" leaves them out'
    )


@pytest.mark.slow
def test_what_the_gate_file_of_the_base_accepts_is_judged_anew(project: Install) -> None:
    there = project("mini_u")
    there.commit(mini_u=source("gone", "also", "stays"))
    entry = "[[cells]]\nbackend = '{}'\naccept = 'not worth its keep'\n"
    merged = entry.format("gone") + entry.format("gone") + entry.format("stays")
    (there.repo / "gate.toml").write_text(merged)
    there.commit()
    (there.repo / "gate.toml").write_text(merged + entry.format("also"))
    there.commit(mini_u=source("stays"))
    done = attnbench(
        there.repo, "compare", "--ref", "HEAD~", "--head", "HEAD", CASE, "--budget", "0.001",
        "--repetitions", "1", "--gate", "gate.toml", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    verdicts = {cell["backend"]: cell["verdict"] for cell in found["cells"]}
    assert (verdicts["gone"], verdicts["also"]) == ("missing", "accepted")
    (warning,) = [warning for warning in found["warnings"] if "accepted" in warning]
    assert warning == (
        "accepted in HEAD~ already, so judged anew; remove from gate.toml: "
        "case '*', backend 'gone' and 1 more"
    )


CAUSAL = """
from attnbench import Backend, hookimpl

def causal(setup):
    import torch
    def attend(q, k, v):
        kept = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril({diagonal})
        return (q @ k.transpose(-1, -2)).masked_fill(~kept, float("-inf")).softmax(-1) @ v
    return attend

@hookimpl
def attnbench_backends():
    yield Backend("causal", "a test", prepare=causal, rules=("dot",), masks=("causal",))
"""


@pytest.mark.slow
def test_a_known_mistake_of_head_is_named_as_a_check_there_names_it(project: Install) -> None:
    there = project("mini_w")
    there.commit(mini_w=CAUSAL.format(diagonal=0))
    there.commit(mini_w=CAUSAL.format(diagonal=1))
    # What is here is right: the commit is not.
    there.write(mini_w=CAUSAL.format(diagonal=0))
    done = attnbench(
        there.repo, "compare", "--ref", "HEAD~", "--head", "HEAD", f"{CASE}/causal", "--budget", "0.001",
        "--repetitions", "1", "--format", "markdown",
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "gate fails: 1 mismatch of 1 cell." in done.stdout
    assert "causal: Your output equals the known mistake “causal, one key more”:" in done.stdout


@pytest.mark.slow
def test_a_plugin_that_imports_torch_at_once_is_compared(project: Install) -> None:
    there = project("mini_v")
    there.commit(mini_v=f"import torch\n{source('one')}")
    there.commit(mini_v=f"import torch\n{source()}")
    done = attnbench(
        there.repo, "compare", "--ref", "HEAD~", "--head", "HEAD", CASE, "--budget", "0.001",
        "--repetitions", "1", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["gate"] == "fails: 1 missing of 1 cell"


def test_where_no_code_differs_nothing_is_measured(project: Install) -> None:
    there = project("mini_o")
    there.commit(mini_o____init__=source("one"))
    there.commit(other="new = 1")
    words = ("compare", "--ref", "HEAD~", "--out", "out.jsonl", CASE)
    done = attnbench(there.repo, *words)
    assert done.returncode == 0, done.stderr
    assert "gate holds: nothing was measured" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("left out")]
    assert line.endswith("more; --all measures them too")
    assert not (there.repo / "out.jsonl").exists()


@pytest.mark.slow
def test_what_is_said_about_a_plugin_of_one_file_can_be_followed(
    project: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = project("mini_t")
    there.commit(mini_t=source("one"), more__filed=source("filed"))
    there.commit()
    # As a console script, which does not import from the working folder.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    words = ("compare", "--ref", "HEAD~", "--out", "out.jsonl", CASE, "--plugin")
    by_name = attnbench(there.repo / "more", *words, "filed")
    assert by_name.returncode == 2
    assert "did you mean the file 'filed.py'?" in by_name.stderr
    by_file = attnbench(there.repo / "more", *words, "filed.py")
    assert by_file.returncode == 2
    assert "is a file, which would be the same on both sides" in by_file.stderr
    said = re.search(r"PYTHONPATH=(\S+), and give --plugin (\w+)$", by_file.stderr)
    assert said is not None, by_file.stderr
    monkeypatch.setenv("PYTHONPATH", said[1], prepend=os.pathsep)
    followed = attnbench(there.repo / "more", *words, said[2], "--format", "json")
    assert followed.returncode == 0, followed.stderr
    assert {"one", "filed"} <= set(json.loads(followed.stdout)["left_out"])
