"""``attnbench run --on``: real runs on places that are processes of this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import psutil
import pytest
from click.testing import CliRunner
from run_files import manifest_of

import attnbench
from attnbench.cases.select import select
from attnbench.cli import attnbench as attnbench_cli
from attnbench.executors import local
from attnbench.fleet.drive import AGAIN
from attnbench.fleet.facts import DeviceFacts, check_given
from attnbench.fleet.node import run_here
from attnbench.fleet.run import run_on
from attnbench.fleet.sites import sites_of
from attnbench.fleet.units import CommandWords
from attnbench.plugins.registry import load_registry
from attnbench.runner.forecast import plan_run
from attnbench.runner.options import Options
from attnbench.types.errors import BadInput
from attnbench.types.fleet import Ended, Fleet, Place, Task
from attnbench.types.record import Manifest, PluginLine, Record

EXECUTOR = Path(__file__).parent / "pretended_executor.py"
FACTS = DeviceFacts(
    cpu="a processor", cpu_quota=8, memory_bytes=2**36, cuda_devices=["NVIDIA H100"],
    cuda_details=["132 multiprocessors, 80.0 GiB, 700 W"], attnbench="0.1.0", python="3.12.1",
    torch="2.13.0",
    plugins={"attnbench": "0.1.0"},
)  # fmt: skip
ANSWER = Ended(0, msgspec.json.encode(FACTS).decode(), "")
STILL = Fleet(
    tuple(Place(name, "cpu", {"rack": rack}) for name, rack in (("a", "one"), ("b", "two"))),
    lambda place, task: (piece for piece in [ANSWER]),
)
CASES = [f"attention/dot/H1-L{length}-D4" for length in (8, 16, 24)]
QUICK = ("--backend", "eager", "--backend", "bmm", "--repetitions", "1")
WHOLE = (*QUICK, "--budget", "0.01")


@pytest.mark.slow
def test_the_list_of_a_fleet_has_what_the_doctor_finds() -> None:
    done = CliRunner().invoke(attnbench_cli, ["fleet", "--on", "local", "--format", "json"])
    assert done.exit_code == 0, done.output
    (row,) = (row for row in json.loads(done.stdout) if row["place"] == "cpu")
    known = {"fine", "threads", "cores", "busy core", "clock", "memory", "swap", "allocator", "torch", "GPU"}
    assert {*row["doctor"].split(", ")} <= known, row["doctor"]


def test_a_fleet_whose_doctor_can_not_run_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(place: Place, task: Task) -> Iterator[Ended]:
        yield Ended(2, "", "attnbench: no such option") if "doctor" in task.words else ANSWER

    @contextmanager
    def connected(*_: object) -> Iterator[Fleet]:
        yield Fleet((Place("a", "cpu", {}),), run)

    monkeypatch.setattr("attnbench.cli.fleet.connected", connected)
    done = CliRunner().invoke(attnbench_cli, ["fleet", "--on", "local"])
    assert done.exit_code == 3
    assert "failed: no such option" in " ".join(done.stdout.split())


def on(
    address: str, *words: str, out: Path, loud: str = "--verbose", cases: int = len(CASES)
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "attnbench", loud, "run", *CASES[:cases], "--plugin", str(EXECUTOR)]
    command += ["--on", address, "--out", str(out), "--format", "json", *words]
    return subprocess.Popen(command, stdout=-1, stderr=-1, text=True, cwd=out.parent)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=240)
    return process.returncode, stdout, stderr


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def check_whole(out: Path, cases: int = len(CASES)) -> tuple[Record, ...]:
    """Assert that a run has all records of so many cases; return them."""
    records = attnbench.load(out, plugins=str(EXECUTOR)).records
    found = Counter((record.case, record.backend, record.status) for record in records)
    assert set(found.values()) == {1}
    assert len(found) == 2 * cases
    assert {status for _, _, status in found} == {"ok"}
    return records


@pytest.mark.slow
def test_the_devices_of_this_machine_measure_what_a_run_measures(out: Path, tmp_path: Path) -> None:
    other = tmp_path / "benchmark.json"
    (tmp_path / "run.units").mkdir()
    (tmp_path / "run.units" / "mine.txt").touch()
    status, stdout, stderr = ended(on("local", *WHOLE, "--benchmark-json", str(other), out=out, cases=2))
    assert status == 0, stderr
    check_whole(out, cases=2)
    assert len(json.loads(stdout)) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "run.units", "benchmark.json"}
    assert [path.name for path in (tmp_path / "run.units").iterdir()] == ["mine.txt"]
    assert len(json.loads(other.read_text())["benchmarks"]) == 4
    assert "2/2 attention/dot/" in stderr


@pytest.mark.slow
def test_a_lost_machine_costs_the_case_under_way_which_runs_again(out: Path) -> None:
    kept = [word for case in CASES for word in ("--case", case)]
    note = ("--note", "for mine.toml")
    status, _, stderr = ended(on("pretended:loses", *WHOLE, *kept, *note, out=out, loud="--quiet"))
    assert status == 0, stderr
    assert re.fullmatch(r"[ab]: lost \(its machine was switched off\); it is left out\n", stderr)
    again = {record.case for record in check_whole(out) if AGAIN in record.notes}
    assert len(again) == 2


@pytest.mark.slow
def test_a_killed_process_is_lost_and_its_place_goes_on(out: Path) -> None:
    status, _, stderr = ended(on("pretended:kills", *WHOLE, out=out))
    assert status == 0, stderr
    assert ": lost (its process was killed by signal 9)\n" in stderr
    check_whole(out)


@pytest.mark.slow
def test_a_damaged_unit_is_measured_again(out: Path) -> None:
    """It was damaged on its way, or lies damaged in the folder of an earlier call."""
    units = out.with_suffix(".units")
    units.mkdir()
    (units / "0001.jsonl").write_text('{"kind":"manifest","format":2}\n')
    status, _, stderr = ended(on("pretended:damages", *WHOLE, out=out, loud="--quiet", cases=1))
    assert status == 0, stderr
    before, during = stderr.splitlines()
    assert before.startswith("a unit is measured again: ")
    assert "missing required field `run_id`); it is kept as 0001-" in before
    assert re.fullmatch(r"[ab]: lost \(.*, line \d+: .*; it is kept as 0001-\w{4}\.damaged\)", during)
    check_whole(out, cases=1)
    assert len(list(units.glob("*.damaged"))) == 2


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_lost_twice_is_not_tried_again(out: Path) -> None:
    status, stdout, stderr = ended(on("pretended:loses_all", *WHOLE, out=out))
    assert (status, stdout) == (3, "")
    assert stderr.count("1 case not measured") == 3
    assert not out.exists()
    assert "Traceback" not in stderr


@pytest.mark.nightly
@pytest.mark.slow
def test_another_torch_is_refused_with_the_list(out: Path) -> None:
    status, _, stderr = ended(on("pretended:unlike", *WHOLE, out=out))
    assert status == 2
    assert "the places have different software: torch is " in stderr
    assert "2.0.0 (b)" in stderr
    status, _, stderr = ended(on("pretended:unlike", *WHOLE, "--where", "rack=one", out=out))
    assert status == 0, stderr


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_driver_was_killed(out: Path) -> None:
    units = out.with_suffix(".units")
    driver = on("local", *WHOLE, out=out)
    until(lambda: any(b'"kind":"repetition"' in path.read_bytes() for path in units.glob("*.jsonl")))
    others = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    until(lambda: not any(other.is_running() and other.status() != "zombie" for other in others))
    status, _, stderr = ended(on("local", *WHOLE, out=out))
    assert status == 0, stderr
    check_whole(out)
    assert not units.exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_units_of_another_run_are_kept_and_refused(out: Path) -> None:
    units = out.with_suffix(".units")
    status, _, stderr = ended(on("local", *WHOLE, out=out))
    assert status == 0, stderr
    stored = out.read_bytes()
    units.mkdir()
    out.rename(units / "0001.jsonl")
    status, _, stderr = ended(on("local", *QUICK, "--budget", "0.02", out=out))
    assert status == 2
    assert "has other cases, backends or options than this run" in stderr
    assert (units / "0001.jsonl").read_bytes() == stored


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("rack", "--where 'rack': give NAME=TEXT"),
        ("rack=three", "--where rack=three leaves no place: rack can be one, two"),
        ("colour=red", "--where colour=red leaves no place: no place says it"),
    ],
)
def test_a_choice_of_places_that_cannot_be_is_said(where: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        sites_of(STILL, Task(()), [where], print)


def test_cases_on_a_device_that_no_place_has_are_refused(out: Path, tmp_path: Path) -> None:
    registry = load_registry()
    cases = select([f"{CASES[0]}/none/float32/cuda"], registry)
    with pytest.raises(BadInput, match="1 case on cuda, but no place has such a device"):
        run_on(
            STILL,
            plan_run(cases, ["eager"], registry, Options()),
            CommandWords(()),
            out,
            tell=print,
            done=print,
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("pretended:fine", "--shard", "1/1"), 2, "--on divides the cases itself: leave out --shard"),
        (("pretended:fine", "--out", "folder"), 2, "--on needs --out FILE.jsonl"),
        (("locale",), 2, "did you mean 'local'?"),
        (("pretended:raises",), 3, "a is left out: its executor failed: RuntimeError: no such queue\n"),
    ],
)
def test_what_cannot_be_run_on_is_said_before_anything_starts(
    words: tuple[str, ...], status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", CASES[0], "--plugin", str(EXECUTOR), "--out", "run.jsonl", *QUICK, "--on", *words]
    done = CliRunner().invoke(attnbench_cli, command, prog_name="attnbench")
    assert done.exit_code == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def until(holds: Callable[[], bool], limit_s: float = 120.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# A run is refused if it got another device than its place has.


def given(**changes: Any) -> Manifest:
    """What a run says that got the device of these facts, but for some changes."""
    found = {
        "cpu": FACTS.cpu, "cpu_quota": FACTS.cpu_quota, "memory_bytes": FACTS.memory_bytes,
        "torch": FACTS.torch, "cuda_devices": FACTS.cuda_devices, "cuda_details": FACTS.cuda_details,
    }  # fmt: skip
    return manifest_of(plugins=[PluginLine("builtins", "attnbench", "0.1.0")], environment=found | changes)


def test_the_device_of_the_place_is_accepted() -> None:
    check_given(FACTS, given(), "node0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cuda_devices": ["NVIDIA H200"]}, r"cuda_devices \['NVIDIA H200'\] instead of \['NVIDIA H100'\]"),
        ({"cuda_details": ["114 multiprocessors, 80.0 GiB, 350 W"]}, "cuda_details .*114 multi"),
        ({"cuda_details": ["132 multiprocessors, 80.0 GiB, 500 W"]}, "500 W.* instead of .*700 W"),
        ({"cpu_quota": 4}, "cpu_quota 4 instead of 8"),
        ({"torch": "2.12.0"}, "torch 2.12.0 instead of 2.13.0"),
    ],
)
def test_another_device_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_given(FACTS, given(**changes), "node0")


def test_cards_work_at_once_and_the_processor_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``local`` on a machine that has two cards, as its facts say."""
    facts = msgspec.structs.replace(FACTS, cuda_devices=["a card", "a card"])

    def run_here(task: Task, stop: object = None) -> Iterator[bytes | Ended]:
        yield Ended(0, msgspec.json.encode(facts).decode(), "")

    monkeypatch.setattr(local, "run_here", run_here)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    happened: list[str] = []
    with local.connect("") as fleet:
        places = {place.name: place for place in fleet.places}
        assert list(places) == ["cpu", "gpu0", "gpu1"]
        measuring = Task((), follow="unit.jsonl")
        cards = [fleet.run(places[name], measuring) for name in ("gpu0", "gpu1")]
        assert [next(card).status for card in cards] == [0, 0]

        def measure() -> None:
            next(fleet.run(places["cpu"], measuring))
            happened.append("processor")

        thread = Thread(target=measure, daemon=True)
        thread.start()
        assert [ended.status for ended in fleet.run(places["cpu"], Task(()))] == [0]
        for card in cards:
            happened.append("card")
            card.close()
        thread.join(60)
    assert happened == ["card", "card", "processor"]


def test_a_task_that_nobody_follows_any_more_ends(tmp_path: Path) -> None:
    sleeper = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    (tmp_path / "sleeper.py").write_text(sleeper)
    pieces = run_here(Task(words=("sleeper",), follow="pid", variables={"PYTHONPATH": str(tmp_path)}))
    process = psutil.Process(int(next(pieces)))
    pieces.close()
    assert not process.is_running()
