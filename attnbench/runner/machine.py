"""The machine as this process sees it: cores, threads of libraries, other work, facts for the run file."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnbench.cases.memory import CGROUP, PROC, control_groups, read, whole_number
from attnbench.runner.processor import cpu_details
from attnbench.stats.records import CROWDED
from attnbench.types.errors import BadInput

_VARIABLES = (
    "OMP_NUM_THREADS",  # OpenMP: torch, scikit-learn, most compiled kernels
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",  # numpy's wheels
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",  # libraries written in Rust
    "PJRT_NPROC",  # JAX: the size of the CPU client's pool
    "NPROC",  # the same in older ones
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


_OF_SERVERS = {
    # Otherwise idle threads spin on the cores where the next worker takes its slot. They still spin between
    # the operations of a call.
    "GOMP_SPINCOUNT": "2000",  # torch's wheels; about 50 µs instead of about 8 ms
    "KMP_BLOCKTIME": "0",  # ms; the OpenMP of LLVM and Intel, whose default is 200
    "OPENBLAS_THREAD_TIMEOUT": "17",  # 2**17 cycles, about 50 µs instead of about 100 ms
    # attnbench pins workers itself. OpenMP would move the thread of the first call to a core of its choice.
    "OMP_PROC_BIND": "false",
    "KMP_AFFINITY": "disabled",
    # One thread while compiling too: a pool of compilers would outlive the worker that is forked.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}

_CHANGE_KERNELS = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "ONEDNN_", "DNNL_", "ATEN_", "OPENBLAS_",
    "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_",
)  # fmt: skip
"""Beginnings of the names of variables by which libraries choose kernels and threads.

Whole words, since Open MPI (``OMPI_``) and torchrun (``TORCHELASTIC_``) set variables anew for each job.
"""


def server_environment(threads: int) -> dict[str, str]:
    """Return the variables that attnbench sets for servers and so for workers, whatever the user has set."""
    return thread_environment(threads) | _OF_SERVERS


def variables() -> dict[str, str]:
    """Return the user's variables that may change kernels in workers; not those that attnbench sets there."""
    ours = server_environment(1)
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_CHANGE_KERNELS) and name not in ours
    }


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that give libraries ``threads`` threads.

    Some libraries have no variable (ONNX Runtime and OpenVINO have an option of the session). Their plugins
    find the number in ``case.threads``.
    """
    return dict.fromkeys(_VARIABLES, str(threads))


_LIBRARIES = ("numpy", "torch", "pandas", "msgspec", "pluggy", "click")


def check_linux() -> None:
    """Raise :class:`BadInput` on a system that cannot pin a process to a core."""
    if not hasattr(os, "sched_getaffinity"):
        raise BadInput(
            f"attnbench measures on Linux only, and this is {platform.system()}: use a container, for "
            "example docker run -it -v .:/work -w /work python:3.12 bash"
        )


def allowed_cpus() -> tuple[int, ...]:
    """Return the cores that this process may run on, in order; raises as :func:`check_linux`."""
    check_linux()
    return tuple(sorted(os.sched_getaffinity(0)))


def cpu_quota(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Return the number of whole cores of this process, at least 1.

    It is the minimum of its affinity and the quotas of its control group and all groups around it.
    """
    quota, cores = group_quota(proc, cgroup), len(allowed_cpus())
    return cores if quota is None else max(1, min(cores, int(quota)))


def group_quota(proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Return the smallest quota of this process's control group and all groups around it, in cores (0.5 too).

    None where none of them has a quota, or none can be seen.
    """
    quotas = [_quota_in(group) for group in control_groups("cpu", proc, cgroup)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_in(group: Path) -> float | None:
    """Return the quota of one group in cores; None where it has none."""
    for words in (
        read(group / "cpu.max").split(),
        [*read(group / "cpu.cfs_quota_us").split(), *read(group / "cpu.cfs_period_us").split()],
    ):
        quota, period = map(whole_number, words if len(words) == 2 else ("", ""))
        if quota and period:
            return quota / period
    return None


def check_threads(threads: int) -> None:
    """Raise :class:`BadInput` for more threads than this process has cores."""
    quota = cpu_quota()
    if threads > quota:
        cores = "1 core" if quota == 1 else f"{quota} cores"
        raise BadInput(f"{threads} threads: this process has {cores}; use {quota} or fewer")


LEAST_DESCRIPTORS = 256
"""The file descriptors of a run: for each worker its line, its memory and its place in the slots."""


def allow_descriptors() -> None:
    """Let this process open as many files as a run needs.

    Raises:
        BadInput: the system does not allow it.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_DESCRIPTORS:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_DESCRIPTORS, hard))
    except (OSError, ValueError):
        raise BadInput(
            f"{soft} file descriptors: a run needs {LEAST_DESCRIPTORS}; allow more, as by ulimit -n"
        ) from None


def split_cpus(cpus: tuple[int, ...], threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the cores that are measured, and the cores for everything else meanwhile.

    The last ``threads`` cores are measured; where none are left, everything shares all of them.
    """
    measured = cpus[-threads:]
    rest = tuple(cpu for cpu in cpus if cpu not in measured)
    return measured, rest or cpus


def sharing_note(cpus: tuple[int, ...], threads: int) -> str:
    """Return a note for the record if no core is left for attnbench itself; "" otherwise."""
    if threads < len(cpus):
        return ""
    cores = "the only core" if len(cpus) == 1 else f"all {len(cpus)} cores"
    fewer = "" if len(cpus) == 1 else "; fewer threads leave it a core"
    return f"{CROWDED} {cores} with this backend, so its time may be too long{fewer}"


def environment() -> dict[str, Any]:
    """Return facts of the machine and the software for the manifest, without names of users and hosts."""
    return {
        "cpu": _cpu_model(),
        "cpu_details": cpu_details() or None,
        "cpus_allowed": list(allowed_cpus()),
        "cpu_quota": cpu_quota(),
        "governor": read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")).strip() or None,
        "load_average": list(os.getloadavg()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "variables": variables(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "git_commit": _git_commit(),
    }


def _cpu_model() -> str:
    for line in read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


WATCHED_S = 0.25
BUSY_SHARE = 0.2
"""A core that other work uses for more than this share of its time is busy."""


def watch_cores(seconds: float = WATCHED_S) -> dict[int, float]:
    """Return the share of time in which each core is used while this process sleeps.

    Waiting for a disk counts as idle; time that the host of a virtual machine took counts as used.
    """
    import psutil

    return {core: share / 100 for core, share in enumerate(psutil.cpu_percent(seconds, percpu=True))}


class OtherWork:
    """Watches how much of its cores others use from now on, while children of this process work."""

    MUCH = BUSY_SHARE
    """A larger share disturbs several threads."""

    def __init__(self) -> None:
        self._cpus = allowed_cpus()
        self._began_s, self._used_s = time.monotonic(), self._others_s()

    def share(self) -> float:
        """Return the share of the time of all cores that others took; children that ended are none."""
        core_s = (time.monotonic() - self._began_s) * len(self._cpus)
        return max(0.0, self._others_s() - self._used_s) / core_s

    def _others_s(self) -> float:
        import psutil

        times = [one for core, one in enumerate(psutil.cpu_times(percpu=True)) if core in self._cpus]
        # Linux counts the time of guests in that of users too.
        used_s = sum(sum(one) - one.idle - one.iowait - one.guest - one.guest_nice for one in times)
        return float(used_s - sum(os.times()[:4]))


def longer_words(cpus: Collection[int], shares: Mapping[int, float]) -> str:
    """Say that a forecast is of idle cores where other work uses these; "" where it does not."""
    used = sum(shares.get(cpu, 0.0) for cpu in cpus) / len(cpus)
    if used <= BUSY_SHARE:
        return ""
    return (
        f"that is on idle cores: other work uses {used:.0%} of them now, "
        "and may make a run several times as long"
    )


def busy_warning(threads: int, cpus: tuple[int, ...], shares: Mapping[int, float]) -> str:
    """Warn of measuring ``threads`` threads on the last of ``cpus`` while they are busy; "" if they are not.

    One thread alone shares its core fairly with other work, and samples that lost time are left out. Among
    several threads, one that waits holds up all the others.
    """
    if threads < 2:
        return ""
    busy = {cpu: share for cpu in split_cpus(cpus, threads)[0] if (share := shares.get(cpu, 0)) > BUSY_SHARE}
    if not busy:
        return ""
    cores = ", ".join(f"core {cpu} is {share:.0%} busy" for cpu, share in sorted(busy.items()))
    return (
        f"{threads} threads are going to share cores with other work ({cores}): one that waits holds up "
        "all the others, and times can be many times too long; stop other work, or ask for fewer --threads"
    )
