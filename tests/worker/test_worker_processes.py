"""Servers and forks: their threads, cores and memory, their end with the parent, and their first steps."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Union

import numpy as np
import pytest
from asked import ENOUGH_S, Asked
from msgspec import defstruct

from attnbench.ipc import messages
from attnbench.ipc.process import NOT_FROM, forbidden, keep_off_other_code
from attnbench.runner.machine import thread_environment
from attnbench.runner.processes import start_server
from attnbench.worker.server import HUGE_BYTES, collapse_memory

CASE = "attention/dot/B1-H1-L4-D4/none/float32/cpu/forward"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_torch_and_the_blas_of_numpy_have_the_threads_of_the_case(
    threads: int, plugins_on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment of the user says."""
    for name in thread_environment(1):
        monkeypatch.setenv(name, "3")
    server = start_server(threads)
    try:
        prepared_worker = server.fork(timed=False, cpus=tuple(os.sched_getaffinity(0)))
        worker = Asked(prepared_worker, CASE, [prepared_worker])
        prepared_worker.ask(messages.Wait(), messages.Done, ENOUGH_S)
        # torch's thread pool stands before two threads could ask for it at once, as those of autograd do in a
        # first backward pass: one of them would find none, and the process would end.
        assert len(list(Path(f"/proc/{prepared_worker.pid}/task").iterdir())) == threads
        worker.prepare("counts_threads")
        worker.give()
        said, between, of_torch, of_blas = worker.output().ravel()[:4]
        assert (said, between) == (threads, threads)
        # Each starts what it needs beside the first when it first works.
        assert (of_torch, of_blas) == (threads - 1, threads - 1)
        prepared_worker.kill()
    finally:
        server.kill()


def test_memory_is_collapsed_and_keeps_its_values() -> None:
    held = np.arange(4 * HUGE_BYTES, dtype=np.uint32)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # In a fork, so that no other test runs on huge pages.
        collapsed = collapse_memory()
        kept = bool((held == np.arange(4 * HUGE_BYTES, dtype=np.uint32)).all())
        os.write(writer, f"{collapsed} {int(kept)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    collapsed, kept = (int(word) for word in os.read(reader, 100).split())
    os.close(reader)
    os.close(writer)
    assert kept == 1
    if collapsed == 0:
        pytest.skip("this kernel does not collapse memory on demand")
    # 32 MiB of the array, at the very least all but its ends.
    assert collapsed >= 14


PARENT = """
import os, sys
from attnbench.runner.processes import start_process, start_server

cpus = tuple(os.sched_getaffinity(0))
server = start_server(2)
worker = server.fork(timed=False, cpus=cpus)
child = worker.fork(timed=True, cpus=cpus)
verifier = start_process("attnbench.verifier.process", [], {})
print(server.pid, worker.pid, child.pid, verifier.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_when_the_parent_is_killed_all_end() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 4
        watched = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
    for fd in watched:
        assert select.select([fd], [], [], ENOUGH_S)[0] == [fd], "it ends"
        os.close(fd)


# --- first steps, and messages ----------------------------------------------------------------------

NO_TORCH = """
import sys
from attnbench.ipc import verifier_messages as rm
from attnbench.types.extensions import Source
from attnbench.verifier import process as verifier
rules = Source("rules", "attnbench.rules", "attnbench", "0")
for rule in ("dot", "additive", "concat_linear", "sinks", "alibi"):
    case = f"multihead/{rule}/H2-L4-D4-E8-bias/causal+padding/bfloat16"
    opened = verifier._open(rm.OpenCase(case, rules, 1, 1, 1e9))
    for index in range(len(opened.stress_inputs) + 1):
        opened.draw(index)
print(sorted({"torch", "pandas", "rich"} & set(sys.modules)))
"""


def test_the_verifier_loads_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("name", ["tree", "site-packages/tree"])
def test_the_import_path_loses_the_tree_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tree, link, beside = tmp_path / name, tmp_path / "link", str(tmp_path / f"{name}house")
    tree.mkdir(parents=True)
    link.symlink_to(tree)
    installed = str(tree / ".venv" / "lib" / "site-packages")
    paths = [str(tree), str(tree / "src"), str(link), installed, beside, str(tmp_path), "/usr/lib"]
    monkeypatch.setattr(sys, "path", paths)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.delenv(NOT_FROM, raising=False)
    assert forbidden() is None
    keep_off_other_code()
    assert len(sys.path) == 7
    monkeypatch.setenv(NOT_FROM, str(tree))
    keep_off_other_code()
    assert sys.path == [installed, beside, str(tmp_path), "/usr/lib"]


def test_a_server_keeps_off_before_it_imports_anything_of_others(tmp_path: Path) -> None:
    """It takes the folder off, then meets our torch, which ends it."""
    (tmp_path / "user").mkdir()
    (tmp_path / "torch.py").write_text("import sys; sys.exit('PATH ' + ' '.join(sys.path))")
    there = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join([str(tmp_path / "user"), str(tmp_path), *filter(None, [there])])
    done = subprocess.run(
        [sys.executable, "-m", "attnbench.worker.server", "0", "1", str(os.getpid())],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", NOT_FROM: str(tmp_path / "user")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PATH " in done.stderr, done.stderr
    assert str(tmp_path) in done.stderr.split()
    assert str(tmp_path / "user") not in done.stderr.split()


@pytest.mark.parametrize(
    ("fields", "differs"), [([], False), ([("more", int)], True)], ids=["other words", "another field"]
)
def test_the_protocol_is_the_fields_of_messages(
    monkeypatch: pytest.MonkeyPatch, fields: list[tuple[str, type]], differs: bool
) -> None:
    before = messages.protocol_fingerprint()
    others = [each for each in messages.Reply.__args__ if each is not messages.Done]
    changed = defstruct("Done", fields, frozen=True, tag=True)
    monkeypatch.setattr(messages, "Reply", Union[(changed, *others)])
    assert (messages.protocol_fingerprint() != before) == differs
