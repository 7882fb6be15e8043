"""The jobs of a Slurm cluster as places for attnbench."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from attnbench import BadInput, Executor, Fleet, Place, Task, hookimpl
from attnbench.types.fleet import Pieces
from attnbench_slurm.desk import Desk, beat, serve

if TYPE_CHECKING:
    from submitit.core.core import Job

GPU_WORDS = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
"""With one of these options of ``sbatch``, each job has a card."""

_MINUTES = 240


@dataclass(frozen=True)
class Wanted:
    """What an address asks for.

    jobs: how many, each a place. folder: on a disk that all machines share. wait_min: the longest that a job
    may wait to be started. cluster: ``slurm``, or ``local`` for processes of this machine. sbatch: options of
    ``sbatch`` by their names; True for one without a value.
    """

    jobs: int = 1
    folder: Path = Path()
    wait_min: float = 60.0
    cluster: str = "slurm"
    sbatch: dict[str, str | bool] = field(default_factory=dict)

    @property
    def on_card(self) -> bool:
        """Whether each job has a card."""
        return any(name in self.sbatch for name in GPU_WORDS)


def wanted(address: str) -> Wanted:
    """Read an address: words with commas between, as ``jobs=4,partition=h100,gpus-per-node=1``.

    Raises:
        BadInput: a value has another form.
    """
    words = dict(word.partition("=")[::2] for word in address.split(",") if word)
    try:
        jobs, wait_min = int(words.pop("jobs", "1")), float(words.pop("wait", "60"))
    except ValueError:
        raise BadInput(
            f"--on slurm:{address}: jobs is a whole number, and wait a number of minutes"
        ) from None
    if jobs < 1:
        raise BadInput(f"--on slurm:{address}: at least one job")
    folder = Path(words.pop("folder", "."))
    if not folder.is_dir():
        raise BadInput(f"--on slurm:{address}: there is no folder {str(folder)!r}")
    cluster = words.pop("cluster", "slurm")
    if cluster not in ("slurm", "local"):
        raise BadInput(f"--on slurm:{address}: cluster is slurm or local")
    return Wanted(
        jobs, folder.absolute(), wait_min, cluster, {name: text or True for name, text in words.items()}
    )


@contextmanager
def connect(address: str) -> Iterator[Fleet]:
    """Submit jobs and yield them as places; they are cancelled at the end.

    Raises:
        BadInput: as :func:`wanted`, there is no Slurm here, or it refuses the jobs.
    """
    asked = wanted(address)
    home = asked.folder / f".attnbench-slurm-{secrets.token_hex(4)}"
    home.mkdir(mode=0o700)  # Its files hold the user's suites, plugins and variables.
    desks: dict[str, Desk] = {}
    ended = Event()
    # The jobs end by themselves when this process does not write any more.
    beating = Thread(target=beat, args=(home / "driver", ended), daemon=True)
    try:
        beating.start()
        submit = _submitter(asked, home)
        for number in range(asked.jobs):
            folder = home / f"job{number}"
            folder.mkdir()
            desks[folder.name] = Desk(folder, submit(folder), asked.wait_min)
        jobs = ", ".join(desk.job.job_id for desk in desks.values())
        sys.stderr.write(f"attnbench: submitted as {asked.cluster} jobs {jobs}\n")

        def run(place: Place, task: Task) -> Pieces:
            yield from desks[place.name].run(task)

        given = {name: text for name, text in asked.sbatch.items() if isinstance(text, str)}
        device = "cuda" if asked.on_card else "cpu"
        yield Fleet(
            tuple(Place(name, device, given | {"job": desk.job.job_id}) for name, desk in desks.items()), run
        )
    finally:
        for desk in desks.values():
            desk.let_end()
        for desk in desks.values():
            desk.cancel()
        ended.set()
        beating.join()
        shutil.rmtree(home, ignore_errors=True)


def _submitter(asked: Wanted, home: Path) -> Any:
    """Return a function that submits the job of a folder.

    Raises:
        BadInput: there is no Slurm here.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError
    from submitit.local.local import LocalExecutor
    from submitit.slurm.slurm import SlurmExecutor

    try:
        executor = (SlurmExecutor if asked.cluster == "slurm" else LocalExecutor)(home / "submitit")
    except RuntimeError:
        raise BadInput("--on slurm: there is no srun here: is this a machine of the cluster?") from None
    if asked.cluster == "slurm":
        # A case on a processor has its machine alone. A job that starts again would serve tasks twice.
        alone = {} if asked.on_card else {"exclusive": True}
        executor.update_parameters(
            job_name="attnbench",
            time=_MINUTES,
            use_srun=False,
            additional_parameters={"no-requeue": True} | alone | asked.sbatch,
        )
    else:
        executor.update_parameters(timeout_min=_MINUTES)

    def submit(folder: Path) -> Job[None]:
        try:
            return executor.submit(serve, str(folder))
        except (OSError, subprocess.SubprocessError, FailedJobError, FailedSubmissionError) as failure:
            lines = [line for line in str(failure).splitlines() if line.strip()]
            raise BadInput(f"--on slurm: the job was refused: {lines[-1].strip()}") from failure

    return submit


@hookimpl
def attnbench_executors() -> tuple[Executor, ...]:
    """Bring the executor."""
    return (Executor("slurm", "Jobs of a Slurm cluster, each a place until the run ends.", connect),)
