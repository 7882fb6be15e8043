"""The campaign for a GPU: every step is gone through on the CPU, and its summary says what does not hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import campaign
import device as facts
import psutil
import pytest
import torch
from device import NEEDED, sensors
from findings import summary
from hypothesis import given
from hypothesis import strategies as st
from steps import FUSED, Step, steps
from tree import use_tree

sys.path.insert(0, str(Path(__file__).parents[1] / "timing"))
from fake_cuda import FakeCuda

HERE = Path(__file__).parent
CARD = steps("cuda", (*FUSED, "flex", "compiled", "sdpa_math"))
DONE = {
    "complete": True,
    "stopped": False,
    "exit": 0,
    "seconds": 1.0,
    "tail": "",
    "sensors": {"clocks.sm": "1980"},
}
PEAKS = {"side": 8192, "gemm_tflops": {"float16": 800.0, "bfloat16": 800.0}, "copy_gbps": 4000.0}
LONG = "attention/scaled_dot/B1-H4-Lq16384-Lk16384-D128/none/float16/cuda/forward"
DECODE = "attention/scaled_dot/B16-H16-Lq1-Lk1024-D128/none/float16/cuda/forward"


def record(case: str, backend: str, **fields: Any) -> dict[str, Any]:
    timed = {"ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1, "baseline": "sdpa_flash", "tflops": 400.0}
    found = {"kind": "record", "case": case, "backend": backend, "status": "ok", "reason": "", "gbps": 1.0}
    return found | {"failed_check": ""} | timed | fields


def told(
    folder: Path, name: str, *lines: dict[str, Any], cut_off: str = "", card: str = "NVIDIA H100 80GB HBM3"
) -> list[str]:
    """What the summary says does not hold, where one step wrote these lines and all others nothing."""
    environment = {"packages": dict.fromkeys(NEEDED, "2.13.0"), "gpu": True, "sensors": {"name": card}}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "peaks.json").write_text(json.dumps(PEAKS))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    return summary(folder, CARD, {step.name: DONE for step in CARD}, "cuda")[1]


UNTIMED = {"ratio": None, "tflops": None, "gbps": None}
FOUND = {"what": "+5 % found", "side": "at least", "target": 0.99, "events": 5, "trials": 5}
ALARM = {"what": "called slower", "side": "at most", "target": 0.002, "events": 1, "trials": 24}


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        # A ratio more than a twentieth from the published one.
        ("whole.jsonl", [record(LONG, "sdpa_cudnn", ratio=1 / 1.66)], []),
        (
            "anchors-forward.jsonl",
            [
                record(LONG, "sdpa_cudnn", ratio=1 / 1.40),
                record(LONG, "kernels_flash_attn3", ratio=1 / 1.90),
            ],
            [
                f"sdpa_cudnn on {LONG}: 1.40 of sdpa_flash, published 1.61",
                f"kernels_flash_attn3 on {LONG}: 1.90 of sdpa_flash, published 1.75",
            ],
        ),
        # Decoding below four fifths of the bandwidth, by the fastest.
        ("decode.jsonl", [record(DECODE, "sdpa_cudnn", gbps=3300.0)], []),
        (
            "decode.jsonl",
            [record(DECODE, "sdpa_efficient", gbps=500.0), record(DECODE, "sdpa_flash", gbps=3100.0)],
            [f"decode: sdpa_flash reaches 78% of the copy's bandwidth on {DECODE}"],
        ),
        # Every status but a refusal.
        (
            "smoke.jsonl",
            [
                record(LONG, "sdpa_cudnn", status="unsupported", **UNTIMED),
                record(LONG, "flex", status="crashed", reason="died of SIGSEGV", **UNTIMED),
            ],
            ["smoke: flex is crashed on 1 of its cases: died of SIGSEGV"],
        ),
        # Identical code that is called slower, and slower code that is not found.
        ("aa.json", [{"findings": [ALARM, FOUND]}], ["selftest aa: called slower: 1 of 24"]),
        ("power.json", [{"findings": [FOUND | {"events": 4}]}], ["selftest power: +5 % found: 4 of 5"]),
        # A wrong backend that passed, and a right one that did not.
        (
            "judge-runs/one.jsonl",
            [
                record(LONG, "wrong_a", status="mismatch", reason="off"),
                record(LONG, "wrong_b"),
                record(LONG, "right_a", status="error", reason="raised"),
                record(LONG, "right_b"),
            ],
            ["judge: wrong_b was not refused: ok: ", "judge: right_a was refused: error: raised"],
        ),
    ],
)
def test_what_does_not_hold_is_told(
    tmp_path: Path, name: str, lines: list[dict[str, Any]], said: list[str]
) -> None:
    assert told(tmp_path, name, *lines) == said


def test_published_ratios_are_of_their_card_alone(tmp_path: Path) -> None:
    slower = record(LONG, "sdpa_cudnn", ratio=1 / 1.40)
    assert told(tmp_path, "anchors-forward.jsonl", slower, card="NVIDIA A100-SXM4-80GB") == []


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    wrong = record(LONG, "flex", status="mismatch", reason="wrong", **UNTIMED)
    failed = told(tmp_path, "half.jsonl", wrong, cut_off='{"kind": "rec')
    assert failed == ["half: flex is mismatch on 1 of its cases: wrong"]


def test_steps_that_are_left_are_told(tmp_path: Path) -> None:
    state = {step.name: DONE for step in CARD} | {"smoke": DONE | {"complete": False, "stopped": True}}
    state["half"] = DONE | {"complete": False, "exit": 1, "tail": "first\nlast words\n"}
    del state["judge"]
    assert summary(tmp_path, CARD, state, "cuda")[1] == [
        "step half failed with status 1: last words",
        "not done yet: smoke, judge; make another visit with the same folder",
    ]


def test_backends_that_are_not_installed_are_not_asked_for() -> None:
    def asked(step: Step) -> set[str]:
        return {name for word, name in zip(step.words, step.words[1:], strict=False) if word == "--backend"}

    (anchors,) = (step for step in steps("cuda", ("sdpa_flash", "eager")) if step.name == "anchors-forward")
    assert asked(anchors) == {"sdpa_flash"}


class PretendedVisit:
    """Steps that take the seconds that they need, on a clock of their own."""

    device = "cpu"

    def __init__(self, needs: dict[str, float]) -> None:
        self.needs, self.now = needs, 0.0
        self.state: dict[str, Any] = {}
        self.got: dict[str, list[float]] = {}

    def write(self, planned: tuple[Step, ...]) -> None:
        pass

    def done(self, step: Step) -> bool:
        return step.name in self.state and not self.state[step.name]["stopped"]

    def make(self, step: Step, most_s: float) -> None:
        before = self.got.setdefault(step.name, [])
        needed = self.needs[step.name] - (0 if step.kind == "selftest" else sum(before))
        before.append(min(needed, most_s))
        self.now += before[-1]
        self.state[step.name] = {"stopped": needed > most_s, "seconds": before[-1]}


REACHED = CARD[: [step.name for step in CARD].index("judge") + 1]


@given(st.lists(st.floats(1, 400), min_size=len(CARD), max_size=len(CARD)), st.floats(1, 20))
def test_one_visit_reaches_all_steps_up_to_the_judge_and_later_ones_end_them(
    needs: list[float], environment: float
) -> None:
    visit = PretendedVisit({step.name: s for step, s in zip(CARD, [environment, *needs[1:]], strict=True)})
    with patch.object(campaign, "time", SimpleNamespace(monotonic=lambda: visit.now)):
        for number in range(15):
            end = visit.now + campaign.SECONDS - campaign.PAGE_S
            campaign._visited(visit, CARD, end)  # type: ignore[arg-type]
            assert visit.now <= end
            assert number or visit.got.keys() >= {step.name for step in REACHED}
    assert all(visit.done(step) for step in CARD)
    for step in (step for step in CARD if step.kind == "selftest"):
        assert visit.got[step.name] == sorted(visit.got[step.name])


def test_a_plain_copy_of_the_tree_has_the_entry_points_of_an_installation(tmp_path: Path) -> None:
    paths = use_tree(tmp_path)
    points = {
        (one.name, point.group, point.name, point.value)
        for one in distributions(path=[paths[0]])
        for point in one.entry_points
    }
    assert ("attnbench", "attnbench", "backends", "attnbench.backends") in points
    selftest = ("attnbench-selftest", "attnbench.commands", "selftest", "attnbench_selftest.cli:command")
    assert selftest in points


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_dry_run_goes_through_every_step_and_a_second_visit_has_nothing_left(tmp_path: Path) -> None:
    words = ("--dry", "--seconds", "1100")
    _, first, _ = went(tmp_path, *words)
    assert {name: one["complete"] for name, one in state(tmp_path)["steps"].items()} == {
        step.name: True for step in steps("cpu", ("sdpa_flash", "eager"))
    }, first
    assert (tmp_path / "out" / "page.html").stat().st_size > 0
    _, second, _ = went(tmp_path, *words)
    assert "s left" not in second
    assert "2 of 2 wrong backends were refused, and 0 of 1 right ones" in second


# --- a folder that can't be used, and visits that end in the middle ---------------------------------


def begun(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "campaign.py"), "--out", str(folder / "out"), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more
    )


def went(folder: Path, *words: str, **more: Any) -> tuple[int, str, str]:
    """A visit's status, and its output on stdout and stderr."""
    process = begun(folder, *words, **more)
    out, err = process.communicate()
    return process.returncode, out, err


def state(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "steps" / "state.json").read_text())


def pretend_card(folder: Path, name: str) -> dict[str, str]:
    """The environment in which nvidia-smi tells a card of this name; "" for its error, on stdout."""
    program = folder / f"bin-{name}" / "nvidia-smi"
    program.parent.mkdir()
    cells = ", ".join([name, *["1"] * 10]) if name else "No devices were found"
    program.write_text(f'#!/bin/sh\necho "{cells}"\n')
    program.chmod(0o755)
    return os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


NOTHING = ("--seconds", "0")


@pytest.mark.parametrize(
    ("status", "asked"), [((0, 0, 0), "0000:3B:00.0"), ((100, 0, 0), "0"), ((0, 101, 0), "0"), (None, "0")]
)
def test_the_card_that_is_asked_is_the_first_that_cuda_shows(
    status: tuple[int, int, int] | None, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi and CUDA_VISIBLE_DEVICES count cards in other orders."""

    def driver(name: str) -> SimpleNamespace:
        if status is None:
            raise OSError(f"{name}: cannot open shared object file")

        def get(number: Any, place: int) -> int:
            number._obj.value = 5
            return status[1]

        def address(text: Any, size: int, number: Any) -> int:
            assert (size, number.value) == (32, 5)
            text.value = b"0000:3B:00.0"
            return status[2]

        return SimpleNamespace(cuInit=lambda flags: status[0], cuDeviceGet=get, cuDeviceGetPCIBusId=address)

    monkeypatch.setattr(facts, "ctypes", SimpleNamespace(**vars(facts.ctypes) | {"CDLL": driver}))
    monkeypatch.setenv("PATH", pretend_card(tmp_path, "$3")["PATH"])
    assert sensors()["name"] == f"--id={asked}"


MEASURED = """
import sys, torch
import device, json

device.SIDE, device.COPY_BYTES, device.WARM_S, device.SAMPLES = 64, 2**16, 0.0, 2
torch.backends.cudnn.version = lambda: 90100
json.dump([device.environment("cuda"), device.peaks("cuda")], sys.stdout)
"""


def test_the_facts_and_the_peaks_are_those_of_the_device() -> None:
    """The words ``import sys, torch`` have torch pretend one."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(HERE / "pretended"), str(HERE)))},
    )  # fmt: skip
    environment, peaks = json.loads(done.stdout)
    assert environment["gpu"]
    assert environment["reach_device_s"] > 0
    told = ("card", "capability", "processors", "l2_bytes", "memory_bytes", "cudnn")
    assert [environment[key] for key in told] == ["a pretended device", "9.0", 1, 2**20, 2**24, 90100]
    assert (peaks["side"], peaks["copy_bytes"]) == (64, 2**16)
    assert peaks["gemm_tflops"].keys() == {"float16", "bfloat16"}
    assert min(*peaks["gemm_tflops"].values(), peaks["copy_gbps"]) > 0


@given(
    st.lists(st.integers(10_000, 10**7), min_size=facts.SAMPLES, max_size=facts.SAMPLES),
    st.integers(0, 10**7),
)
def test_the_peaks_are_taken_from_the_time_of_the_device_after_warm_calls(
    lengths: list[int], warm_ns: int
) -> None:
    """Each call has ended before the next is launched, so that none waits for another."""
    cuda, upcoming = FakeCuda(launch_ns=0), iter([warm_ns, *lengths])

    def call() -> None:
        assert cuda.idle
        cuda.kernel(next(upcoming))

    clock = SimpleNamespace(perf_counter=lambda: float(len(cuda.worked)))
    with patch.object(torch, "cuda", cuda), patch.multiple(facts, time=clock, WARM_S=1.0):
        taken = facts._seconds(call, "cuda")
    assert taken == pytest.approx([ns / 1e9 for ns in lengths])


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("out/summary.md", "summary.md is there already, and no campaign wrote it: choose another folder\n"),
        ("out/steps/mine", "steps has files that no campaign wrote: choose another folder\n"),
        ("out", "File exists"),
    ],
)
def test_a_folder_that_cant_be_used_is_a_sentence_and_left_alone(
    tmp_path: Path, file: str, said: str
) -> None:
    mine = tmp_path / file
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    code, _, err = went(tmp_path, *NOTHING)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("campaign: ")
    assert said in err
    assert mine.read_text() == "mine"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_campaign_has_one_device(tmp_path: Path) -> None:
    """Else a dry run would count for the card, or two cards would be one."""
    (dry := tmp_path / "dry").mkdir()
    (real := tmp_path / "real").mkdir()
    one, other, none = (pretend_card(tmp_path, name) for name in ("A card", "Another card", ""))
    went(dry, "--dry", *NOTHING)
    went(real, *NOTHING, env=none)
    assert state(real)["card"] == ""
    went(real, *NOTHING, env=one)
    assert state(real)["card"] == "A card"
    code, _, err = went(dry, *NOTHING, env=one)
    assert (code, "has a campaign on cpu, and this one is on A card: choose another" in err) == (2, True)
    code, _, err = went(real, *NOTHING, env=other)
    assert (code, "has a campaign on A card, and this one is on Another card" in err) == (2, True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.slow
def test_without_a_device_each_visit_looks_for_one_and_ends(tmp_path: Path) -> None:
    for _ in range(2):
        code, out, _ = went(tmp_path)
        assert code == 1
        assert [line.split()[-1] for line in out.splitlines() if " s left: " in line] == ["environment"]
        assert (
            "- torch finds no CUDA device; --dry, with another folder, makes every step on the CPU\n" in out
        )
        assert not (tmp_path / "out" / "steps" / "peaks.json").exists()


@pytest.mark.slow
def test_a_page_that_cant_be_written_is_told(tmp_path: Path) -> None:
    went(tmp_path, "--dry", *NOTHING)
    (tmp_path / "out" / "steps" / "half.jsonl").write_text("{}\n{}\n")
    code, out, _ = went(tmp_path, "--dry", *NOTHING)
    assert code == 1
    assert "## What does not hold\n\n- page.html was not written: " in out
    assert not (tmp_path / "out" / "page.html").exists()


@pytest.mark.slow
def test_a_full_disk_is_a_sentence_and_the_next_visit_goes_on(tmp_path: Path) -> None:
    went(tmp_path, "--dry", *NOTHING)
    summary = tmp_path / "out" / "summary.md"
    summary.unlink()
    summary.symlink_to("/dev/full")
    code, _, err = went(tmp_path, "--dry", *NOTHING)
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("No space left on device; the same command goes on from what is there\n")
    summary.unlink()
    code, out, _ = went(tmp_path, "--dry", *NOTHING)
    assert (code, "not done yet: environment" in out) == (1, True)


@pytest.mark.slow
def test_files_that_a_kill_cut_off_are_made_again(tmp_path: Path) -> None:
    went(tmp_path, "--dry", *NOTHING)
    folder = tmp_path / "out" / "steps"
    for name in ("state.json", "environment.json", "peaks.json", "aa.json", "half.jsonl"):
        (folder / name).write_text('{"kind": "manifest"}\n{"gpu": tr')
    code, out, err = went(tmp_path, "--dry", *NOTHING)
    assert (code, err) == (1, "")
    assert "not done yet: environment, peaks, smoke" in out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_visit_that_is_stopped_takes_its_step_with_it_and_the_next_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    words = ("--dry", "--only", "half")
    process, file = begun(tmp_path, *words), tmp_path / "out" / "steps" / "half.jsonl"
    while not (file.is_file() and file.read_bytes().count(b"\n") > 2):
        assert process.poll() is None
        time.sleep(0.01)
    (step,) = psutil.Process(process.pid).children()
    code, _, err = went(tmp_path, *words)
    assert (code, "another campaign writes to" in err) == (2, True)
    process.send_signal(number)
    _, err = process.communicate()
    psutil.wait_procs([step], timeout=30)
    assert not step.is_running()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err == "campaign: stopped; the same command goes on from what is there\n"
    begun_with = file.read_bytes()
    code, out, _ = went(tmp_path, *words)
    assert code == 0, out
    assert file.read_bytes().startswith(begun_with.rpartition(b"\n")[0])
    assert state(tmp_path)["steps"]["half"]["complete"]


def test_an_old_python_is_a_sentence(tmp_path: Path) -> None:
    """Python 3.10 has no tomllib."""
    code = (
        "import runpy, sys; sys.modules['tomllib'] = None\n"
        f"sys.argv = {[str(HERE / 'campaign.py'), '--help']}; sys.path.insert(0, {str(HERE)!r})\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 or later is needed; this is ")
    assert done.stderr.count("\n") == 1
