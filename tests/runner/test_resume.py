"""A run that was cut off anywhere goes on where it stopped, with the code that it was begun with."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from run_files import manifest_of
from run_parts import CAUSAL, PLAIN, run_of

sys.path.insert(0, str(Path(__file__).parents[1] / "campaign"))
import kills

import attnbench
from attnbench.plugins.registry import Registry, load_registry, load_wanted
from attnbench.results.format import StoredRun, read_run
from attnbench.runner import options
from attnbench.runner.progress import Moment
from attnbench.runner.run import check_same_plugins, resume_run
from attnbench.types.case import Case
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.record import PluginLine

pytestmark = pytest.mark.usefixtures("kept_servers")

NAMES = ("eager", "bmm", "fused_multihead")
REPETITIONS = 2
CHECKED, RECORDED = ["record", "case"], ["record", "record"]
KERNEL = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("own_kernel", "a test", prepare=print)
"""


@pytest.fixture(scope="module", autouse=True)
def one_server() -> Iterator[None]:
    """Workers of all repetitions come from one server, as nothing here depends on their number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "LAUNCHES", 1)
        yield


@pytest.fixture(scope="module")
def whole(one_server: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run_of(
        tmp_path_factory.mktemp("whole"), (PLAIN, CAUSAL), NAMES, named=NAMES, repetitions=REPETITIONS
    )


def cut(run: StoredRun, lines: int, path: Path, *, changed: bool = False) -> bytes:
    """Write the first lines of a run to a file. changed: without digests, so that they can be changed."""
    data = b"".join(run.path.read_bytes().splitlines(keepends=True)[:lines])
    if changed:
        data = re.sub(rb',"digest":"\w{16}"}', b"}", data)
    path.write_bytes(data)
    return data


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def outcome(stored: StoredRun) -> set[tuple[str, str, str, str, int]]:
    return {(r.case, r.backend, r.status, r.reason, r.repetitions) for r in stored.records}


def test_the_lines_of_a_run_come_in_this_order(whole: StoredRun) -> None:
    """The cuts below rely on it."""
    assert kinds(whole.path) == ["manifest", *CHECKED * 2, *["repetition"] * 4, *RECORDED * 2, "end"]


@pytest.mark.parametrize(
    ("kept", "repetitions_measured"),
    [
        pytest.param(1, 4, id="only the manifest"),
        pytest.param(6, 3, id="one repetition of one case"),
        pytest.param(9, 0, id="all repetitions and no record of them"),
        pytest.param(11, 0, id="some of the records"),
        pytest.param(13, 0, id="everything but the end"),
    ],
)
def test_it_goes_on_from_there(
    whole: StoredRun, tmp_path: Path, kept: int, repetitions_measured: int
) -> None:
    path = tmp_path / "run.jsonl"
    data = cut(whole, kept, path)
    moments: list[Moment] = []
    with pytest.warns(UserWarning, match="the run was cut off"):
        assert attnbench.load(path).unfinished == (path,)
    run = attnbench.resume(path, progress=moments.append)
    again = read_run(path)
    assert path.read_bytes().startswith(data), "what was there is as it was"
    assert outcome(again) == outcome(whole)
    assert len(again.records) == len(NAMES) * 2
    assert {(line.case, line.index) for line in again.repetitions} == {
        (s.case, s.index) for s in whole.repetitions
    }
    assert len(again.repetitions) == len(whole.repetitions)
    assert sum(moment.doing.startswith("repetition ") for moment in moments) == repetitions_measured
    assert run.unfinished == ()
    assert run.records == tuple(sorted(again.records, key=lambda one: (PLAIN, CAUSAL).index(one.case)))
    assert kinds(path)[-1] == "end"
    if kept == 9:
        # With all repetitions there the record follows from them, though checks and memory are done anew.
        first = {r.backend: r for r in whole.records if r.case == PLAIN}
        for record in again.records:
            if record.case == PLAIN and record.status == "ok":
                for name in ("median_ms", "ratio", "timed_calls", "tflops", "accuracy", "warmup_ms"):
                    assert getattr(record, name) == getattr(first[record.backend], name), name
    if kept == 13:
        data = path.read_bytes()
        attnbench.resume(path)
        assert path.read_bytes() == data, "a finished run resumes to itself"


def test_a_check_goes_on_too(whole: StoredRun, tmp_path: Path) -> None:
    path = tmp_path / "check.jsonl"
    path.write_bytes(cut(whole, 2, path, changed=True).replace(b'"timed":true', b'"timed":false', 1))
    run = attnbench.resume(path)
    assert [(r.case, r.backend, r.status, r.median_ms) for r in run.records] == [
        (case, name, status, None)
        for case in (PLAIN, CAUSAL)
        for name, status in (("fused_multihead", "unsupported"), ("eager", "ok"), ("bmm", "ok"))
    ]


def without(kind: str, name: str) -> Registry:
    registry = load_registry()
    return replace(registry, **{kind: {k: v for k, v in getattr(registry, kind).items() if k != name}})


@pytest.mark.parametrize(
    ("registry", "old", "new", "begins"),
    [
        (without("backends", "bmm"), b"", b"", "no backend 'bmm'; "),
        (without("rules", "dot"), b"", b"", "no rule 'dot'; "),
        (load_registry(), b'"baseline":"eager"', b'"baseline":"nosuch"', "no backend 'nosuch'; "),
        (
            load_registry(),
            b'"protocol":{',
            b'"protocol":{"unheard_of":1,',
            "the run follows another protocol (un",
        ),
        (
            load_registry(),
            b'"repetitions":2',
            b'"repetitions":0',
            "the protocol in the manifest can't be used: 0 repetitions",
        ),
        (
            load_registry(),
            b'"repetitions":2',
            b'"repetitions":"many"',
            "the protocol in the manifest can't be used: ",
        ),
    ],
)
def test_a_run_that_cannot_go_on_is_a_sentence_and_leaves_the_file_alone(
    whole: StoredRun, tmp_path: Path, registry: Registry, old: bytes, new: bytes, begins: str
) -> None:
    path = tmp_path / "run.jsonl"
    data = cut(whole, 4, path, changed=True).replace(old, new, 1)
    path.write_bytes(data)
    with pytest.raises((BadFile, BadInput)) as caught:
        resume_run(path, registry, None, lambda begun, here: [])
    assert begins in str(caught.value)
    assert path.read_bytes() == data


def test_a_run_goes_on_only_with_the_code_that_it_was_begun_with(tmp_path: Path) -> None:
    file, cases = tmp_path / "own_kernel.py", (Case("attention", "dot", 1, 1, 1, 4, 4, 4, 4),)
    file.write_text(KERNEL)
    begun = load_wanted([str(file)])
    plugins = [PluginLine(s.name, s.distribution, s.version) for s in begun.plugins]
    manifest = manifest_of(plugins=plugins)
    check_same_plugins(("own_kernel",), cases, manifest, load_wanted([str(file)]))
    with pytest.raises(BadInput, match=r"not loaded here: own_kernel of own_kernel\.py \w{12}; install"):
        check_same_plugins(("own_kernel",), cases, manifest, load_wanted())
    file.write_text(KERNEL + "# faster now\n")
    with pytest.raises(BadInput, match=r"begun with own_kernel\.py \w{12}, and here it is \w{12}: its times"):
        check_same_plugins(("own_kernel",), cases, manifest, load_wanted([str(file)]))
    # A check has no times.
    checked = manifest_of(plugins=plugins, protocol={"timed": False})
    with pytest.raises(BadInput, match=r"here it is \w{12}: its results would mix two versions"):
        check_same_plugins(("own_kernel",), cases, checked, load_wanted([str(file)]))
    # A plugin that the run does not need may be another.
    check_same_plugins(("eager",), cases, manifest, load_wanted([str(file)]))
    check_same_plugins(("eager",), cases, manifest, load_wanted())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_on_a_device_goes_on_only_with_that_device(whole: StoredRun, tmp_path: Path) -> None:
    """Else its other backends would be unavailable for good."""
    path = tmp_path / "run.jsonl"
    data = cut(whole, 2, path, changed=True).replace(b'"cuda_devices":[]', b'"cuda_devices":["A GPU"]')
    path.write_bytes(data.replace(b"/float32/cpu/", b"/float32/cuda/"))
    needs = r"cuda_devices \(A GPU, then none\); its cases need a CUDA device: go on where there is one"
    with pytest.raises(BadInput, match=needs):
        attnbench.resume(path, force=True)
    assert len(kinds(path)) == 2


def begun_elsewhere(manifest: bytes, **facts: object) -> bytes:
    """Return a manifest with other facts of its environment; of a library where its name is one."""
    head = json.loads(manifest)
    environment = head["environment"]
    environment["libraries"] |= {name: facts.pop(name) for name in [*facts] if name == "numpy"}
    environment |= facts
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def test_what_was_begun_elsewhere_is_not_continued(whole: StoredRun, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, *rest = cut(whole, 6, path, changed=True).splitlines(keepends=True)
    facts = {"cpu": "Another CPU", "cpu_quota": 96, "torch": "2.0.0", "numpy": "1.26.4", "python": "3.9.1"}
    data = begun_elsewhere(first, **facts) + b"".join(rest)
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"begun under other conditions: .*; go on .*, with --force") as caught:
        attnbench.resume(path)
    for fact, value in facts.items():
        assert f"{fact} ({value}, then " in str(caught.value)
    assert path.read_bytes() == data


@pytest.mark.parametrize("fact", ["torch", pytest.param("cpu", marks=pytest.mark.slow)])
def test_forced_elsewhere_what_is_left_is_a_part_of_its_own(
    whole: StoredRun, tmp_path: Path, fact: str
) -> None:
    """One case is complete; the other has a repetition from elsewhere, which must not count."""
    path = tmp_path / "run.jsonl"
    lines = cut(whole, 13, path, changed=True).splitlines(keepends=True)
    (first, *_), rest = lines[:1], [json.loads(line) for line in lines[1:]]
    done = rest[-1]["case"]
    kept = [
        line for line, read in zip(lines[1:], rest, strict=True)
        if read["case"] == done or read["kind"] == "case"
        or (read["kind"] == "repetition" and read["index"] == 0)
    ]  # fmt: skip
    path.write_bytes(begun_elsewhere(first, **{fact: "2.0"}) + b"".join(kept))
    data = path.read_bytes()
    run = attnbench.resume(path, force=True)
    assert path.read_bytes().startswith(data)
    other = CAUSAL if done == PLAIN else PLAIN
    assert [(set(head.cases), head.environment[fact] == "2.0") for head in run.manifests] == [
        ({done}, True),
        ({other}, False),
    ]
    assert [{record.case for record in records} for records in run.by_file] == [{done}, {other}]
    assert [{case for case, _, _ in times} for times in run.times] == [{done}, {other}]
    assert len(run.times[1]) == REPETITIONS
    assert len(run.parts) == 2, "no mean or order is of both"
    assert run.unfinished == ()
    elsewhere = rf"goes on with .* under other conditions: {fact} \(2\.0, "
    bare = "has no digests"
    with pytest.warns(UserWarning, match=elsewhere), pytest.warns(UserWarning, match=bare):
        assert attnbench.load(path).records == run.records
    # Where a copy was completed as well, and both were merged, nothing of it is hidden.
    merged = tmp_path / "merged.jsonl"
    merged.write_bytes(whole.path.read_bytes() + path.read_bytes().removeprefix(data))
    with pytest.warns(UserWarning, match="goes on with .* under other conditions"):
        assert [len(records) for records in attnbench.load(merged).by_file] == [2 * len(NAMES), len(NAMES)]
    # Cut off again, the last part goes on.
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    with (
        pytest.warns(UserWarning, match=elsewhere),
        pytest.warns(UserWarning, match=bare),
        pytest.warns(UserWarning, match="was cut off"),
    ):
        assert attnbench.load(path).unfinished == (path,)
    resumed = attnbench.resume(path)
    assert resumed.unfinished == ()
    assert resumed.manifests == run.manifests
    assert {(r.case, r.backend, r.status) for r in resumed.records} == {
        (r.case, r.backend, r.status) for r in run.records
    }


# --- processes that are killed --------------------------------------------------------------------


def start(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "attnbench", "run", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_points_it_ends_with_the_records_of_an_unbroken_run(tmp_path: Path) -> None:
    """The trials of the campaign, of which a few come with every change."""
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        kills.trial(random.Random(number), folder, tmp_path)


@pytest.mark.slow
def test_what_a_backend_has_left_behind_ends_with_a_parent_that_is_killed(
    broken_plugin: str, tmp_path: Path
) -> None:
    """It belongs to the group of a process that was forked by another than the server."""
    words = [PLAIN, "--backend", "leave_a_child_when_timed", "--budget", "1", "--out", str(tmp_path)]
    process = start(*words)
    seen: dict[int, psutil.Process] = {}
    while len(seen) < 20:
        assert process.poll() is None
        seen |= {each.pid: each for each in workers_of(process.pid)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(seen.values(), timeout=60)[1] == []


@pytest.mark.nightly
@pytest.mark.slow
def test_two_runs_at_once_into_one_folder(tmp_path: Path) -> None:
    words = [PLAIN, "--backend", "eager", "--budget", "0.01", "--repetitions", "2", "--out", str(tmp_path)]
    both = [start(*words), start(*words)]
    assert [process.wait(120) for process in both] == [0, 0]
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 2
    assert all(read_run(file).finished is not None for file in files)


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_with_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    # The second case takes too long to be measured together with the first, whose records come before.
    words = [PLAIN, "attention/dot/B1-H8-L512-D64", "--backend", "eager", "--backend", "bmm"]
    words += ["--repetitions", "1", "--out", str(path), "--format", "json"]
    command = [sys.executable, "-m", "attnbench", "run", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    workers: list[psutil.Process] = []
    while process.poll() is None and (not path.exists() or b'"kind":"record"' not in path.read_bytes()):
        workers = workers_of(process.pid) or workers
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, notes = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in notes
    assert f"--resume {path}" in notes
    assert '"status": "ok"' in out
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert read_run(path).finished is None
