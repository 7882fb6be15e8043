"""What nvidia-smi says of GPUs, and what follows from it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnbench.cases.control_groups import whole_number
from attnbench.doctor.finding import Finding
from attnbench.types.words import clean

_FIELDS = (
    "name", "persistence_mode", "clocks.sm", "clocks.max.sm",
    "utilization.gpu", "memory.used", "memory.total",
)  # fmt: skip
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""What lowers clocks, by the name that drivers have for it since 535, and by the one before."""
_HELD_DOWN = {
    0x4: "its power limit",
    0x8: "the hardware, by heat or power",
    0x10: "another GPU, which it keeps step with",
    0x20: "the driver, by heat",
    0x40: "the hardware, by heat",
    0x80: "the power supply",
}
"""By bit, who holds a clock down (nvmlClocksEventReasons in nvml.h). The other bits - nothing to do, a clock
that somebody has set - disturb nothing."""
_WITHIN_S = 20
_BUSY_PERCENT = 5
"""From which on a GPU is at work: the part of the last sampling period, a second or less, in which it ran
something (nvidia-smi, utilization.gpu). Nothing of ours runs there now."""
_HELD = 0.1
"""Of its memory, from which on others hold much of it: drivers keep some hundred MiB for themselves."""


@dataclass(frozen=True)
class Gpus:
    """found: what nvidia-smi says of each, by field. asked: whether there is an nvidia-smi. silent: why that
    says nothing; "" where it does.
    """

    found: tuple[Mapping[str, str], ...] = ()
    asked: bool = True
    silent: str = ""


def read_gpus() -> Gpus:
    """Ask nvidia-smi."""
    for reasons in _REASONS:
        query = f"--query-gpu={','.join((*_FIELDS, reasons))}"
        try:
            done = subprocess.run(
                ["nvidia-smi", query, "--format=csv,noheader,nounits"],
                capture_output=True, text=True, errors="replace", timeout=_WITHIN_S, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            return Gpus(asked=False)
        except (OSError, subprocess.SubprocessError) as failure:
            return Gpus(silent=clean(str(failure)))
        if done.returncode == 0:
            rows = [line.split(", ") for line in done.stdout.splitlines()]
            names = (*_FIELDS, "reasons")
            return Gpus(tuple(dict(zip(names, map(clean, row), strict=False)) for row in rows))
    said = clean(f"{done.stdout} {done.stderr}") or f"it ends with status {done.returncode}"
    return Gpus() if "No devices were found" in said else Gpus(silent=said)


def look_at_gpus(gpus: Gpus, *, usable: bool = True) -> Iterator[Finding]:
    """A finding for each, and more where others use it. usable: whether torch is built for them."""
    if gpus.silent:
        yield Finding("GPU", "note", f"could not be looked at: nvidia-smi says {gpus.silent!r}")
    elif not gpus.asked:
        yield Finding("GPU", "fine", "none was looked for: there is no nvidia-smi")
    elif not gpus.found:
        yield Finding("GPU", "fine", "none that nvidia-smi knows of")
    for index, gpu in enumerate(gpus.found):
        if usable:
            yield _finding(f"GPU {index}", gpu)
            yield from _others(f"busy GPU {index}", gpu)
        else:
            # What others do there can't change a verdict then.
            without = "torch is built without CUDA: nothing can be measured there"
            yield Finding(f"GPU {index}", "note", gpu.get("name", "?"), without, "a build of torch with CUDA")


def _finding(name: str, gpu: Mapping[str, str]) -> Finding:
    clocks = f"{gpu.get('clocks.sm', '?')} of {gpu.get('clocks.max.sm', '?')} MHz"
    persistence = gpu.get("persistence_mode", "?").lower()
    what = f"{gpu.get('name', '?')}, {clocks}, persistence {persistence}"
    try:
        bits = int(gpu.get("reasons", ""), 16)
    except ValueError:
        return Finding(name, "note", what, "whether its clock is held down is not told")
    holders = [who for bit, who in _HELD_DOWN.items() if bits & bit]
    if holders:
        held = f"its clock is held down by {', '.join(holders)}"
        return Finding(name, "bad", what, held, "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE says more")
    if persistence == "disabled":
        loaded = "the driver is loaded anew for every process"
        return Finding(name, "note", what, loaded, "as root: nvidia-smi -pm 1")
    return Finding(name, "fine", what)


def _others(name: str, gpu: Mapping[str, str]) -> Iterator[Finding]:
    """What others do there, as far as it's told: part of a GPU (MIG) has no utilization."""
    fields = ("utilization.gpu", "memory.used", "memory.total")
    percent, used, total = (whole_number(gpu.get(field, "")) for field in fields)
    if percent is not None and percent >= _BUSY_PERCENT:
        shared = "what others run there takes turns with what is measured"
        remedy = "nvidia-smi lists who works there: stop it, or wait"
        yield Finding(name, "bad", f"{percent}% busy", shared, remedy)
    if used is not None and total is not None and used > _HELD * total:
        what = f"{used} of {total} MiB of its memory are taken"
        yield Finding(name, "note", what, "larger cases are out_of_memory", "nvidia-smi lists who holds it")
