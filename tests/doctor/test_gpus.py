"""What the doctor says of GPUs, by programs that stand in for nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.doctor.finding import Finding
from attnbench.doctor.gpus import look_at_gpus, read_gpus


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program that stands in for nvidia-smi belongs; no other is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "nvidia-smi"


def found(program: Path, text: str) -> list[Finding]:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return list(look_at_gpus(read_gpus()))


@pytest.mark.parametrize(
    ("persistence", "reasons", "level", "effect"),
    [
        ("Enabled", "0x0000000000000000", "fine", ""),
        ("Enabled", "0x0000000000000001", "fine", ""),  # nothing to do
        ("Enabled", "0x0000000000000002", "fine", ""),  # a clock that somebody has set
        ("Enabled", "0x0000000000000004", "bad", "its clock is held down by its power limit"),
        ("Enabled", "0x0000000000000021", "bad", "its clock is held down by the driver, by heat"),
        ("Enabled", "[N/A]", "note", "whether its clock is held down is not told"),
        ("Disabled", "0x0000000000000001", "note", "the driver is loaded anew for every process"),
    ],
)
def test_clocks_and_persistence(says: Path, persistence: str, reasons: str, level: str, effect: str) -> None:
    (finding,) = found(says, f"echo 'NVIDIA H200, {persistence}, 345, 1980, 0, 4, 143771, {reasons}'")
    what = f"NVIDIA H200, 345 of 1980 MHz, persistence {persistence.lower()}"
    assert (finding.name, finding.level, finding.what, finding.effect) == ("GPU 0", level, what, effect)
    assert bool(finding.remedy) == bool(effect and reasons != "[N/A]")


def test_drivers_that_know_the_field_by_its_older_name(says: Path) -> None:
    (finding,) = found(
        says,
        'case "$*" in *event_reasons*) echo "Field is not a valid field to query."; exit 2;; esac\n'
        "echo 'Tesla T4, Enabled, 300, 1590, [N/A], 2, 15360, 0x0000000000000001'",
    )
    assert (finding.level, finding.what) == ("fine", "Tesla T4, 300 of 1590 MHz, persistence enabled")


@pytest.mark.parametrize(
    ("used", "told"),
    [
        ("0, 620, 143771", []),
        ("4, 620, 143771", []),
        ("97, 620, 143771", [("bad", "97% busy")]),
        ("0, 70000, 143771", [("note", "70000 of 143771 MiB of its memory are taken")]),
        ("97, 70000, 143771", [("bad", "97% busy"), ("note", "70000 of 143771 MiB of its memory are taken")]),
        ("[N/A], [N/A], [N/A]", []),
    ],
)
def test_what_others_do_there(says: Path, used: str, told: list[tuple[str, str]]) -> None:
    itself, *others = found(says, f"echo 'NVIDIA H200, Enabled, 345, 1980, {used}, 0x0000000000000001'")
    assert (itself.name, itself.level) == ("GPU 0", "fine")
    assert [(one.level, one.what) for one in others] == told
    assert all(one.name == "busy GPU 0" and one.effect and one.remedy for one in others)


def test_one_that_torch_is_not_built_for_changes_no_verdict(says: Path) -> None:
    found(says, "echo 'NVIDIA H200, Enabled, 345, 1980, 97, 70000, 143771, 0x0000000000000004'")
    (finding,) = look_at_gpus(read_gpus(), usable=False)
    assert (finding.name, finding.level, finding.what) == ("GPU 0", "note", "NVIDIA H200")
    assert finding.effect == "torch is built without CUDA: nothing can be measured there"


@pytest.mark.parametrize("text", ["echo 'x'", "echo ', , , , '", "printf '\\377\\033[31m, a, b'"])
def test_rubbish_is_never_fine(says: Path, text: str) -> None:
    (finding,) = found(says, text)
    assert finding.level == "note"
    assert finding.what.isprintable()


def test_a_program_that_fails_is_not_a_machine_without_gpus(says: Path) -> None:
    (finding,) = found(says, 'echo "can\'t talk to the driver"; exit 9')
    assert (finding.level, finding.what) == (
        "note",
        'could not be looked at: nvidia-smi says "can\'t talk to the driver"',
    )
    says.chmod(0o644)
    (finding,) = look_at_gpus(read_gpus())
    assert finding.level == "note"


def test_no_gpu(says: Path) -> None:
    (finding,) = look_at_gpus(read_gpus())
    assert (finding.level, finding.what) == ("fine", "none was looked for: there is no nvidia-smi")
    (finding,) = found(says, "echo 'No devices were found'; exit 6")
    assert (finding.level, finding.what) == ("fine", "none that nvidia-smi knows of")
