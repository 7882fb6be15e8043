"""The driver: gives units to sites, keeps what comes home, and has run again what was lost."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Condition, Lock, Thread

from attnbench.fleet.facts import check_given
from attnbench.fleet.sites import Site, last_line, pieces_of, site_of
from attnbench.fleet.units import CommandWords, Unit, complete_cases, keep_complete
from attnbench.results.disk import force_to_disk
from attnbench.results.format import StoredRun, read_run
from attnbench.types.errors import AttnbenchError, BadFile, BadInput
from attnbench.types.fleet import Ended, Fleet, PlaceLost
from attnbench.types.words import clean, count_of

AGAIN = "measured again, since its machine was lost the first time"


@dataclass
class Queue:
    """The units for one kind of device, which its sites share. A unit that is lost comes back to it."""

    waiting: deque[Unit]
    under_way: int = 0
    changed: Condition = field(default_factory=Condition)

    def take(self) -> Unit | None:
        """Return a unit; wait for one while others are under way; None when all are done."""
        with self.changed:
            while not self.waiting and self.under_way:
                self.changed.wait()
            if not self.waiting:
                return None
            self.under_way += 1
            return self.waiting.popleft()

    def give_back(self, lost: Sequence[Unit]) -> None:
        """Say that a unit is done but for what is lost."""
        with self.changed:
            self.under_way -= 1
            self.waiting.extendleft(reversed(lost))
            self.changed.notify_all()


@dataclass(frozen=True)
class Outcome:
    """The end of a unit. left: cases without records. lost: whether its place went away. why: in words."""

    left: tuple[str, ...] = ()
    lost: bool = False
    why: str = ""


@dataclass
class Driver:
    """Measures units on the places of a fleet.

    folder: for the files of units. tell: is told in words of what was lost. done: is told of the cases that
    are done on a site, with their run. failed: what could not be measured, in words.
    """

    fleet: Fleet
    words: CommandWords
    folder: Path
    tell: Callable[[str], None]
    done: Callable[[Site, StoredRun], None]
    failed: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def measure(self, queues: Mapping[str, Queue], sites: Sequence[Site]) -> None:
        """Measure all units; each site takes those for its kind of device until none is left."""
        broken: list[BaseException] = []

        def serve(site: Site) -> None:
            try:
                self._serve(site, queues[site.kind])
            except BaseException as failure:
                broken.append(failure)

        # Daemons, since Ctrl-C ends the driver while they wait.
        threads = [Thread(target=serve, args=(site,), daemon=True) for site in sites]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if broken:
            raise broken[0]
        for kind, queue in queues.items():
            if left := [case for unit in queue.waiting for case in unit.cases]:
                self._fail(left, f"no place is left of {kind}")

    def _serve(self, site: Site, queue: Queue) -> None:
        """Take units for a site until none is left, or the site is gone."""
        there = True
        while there and (unit := queue.take()) is not None:
            again: list[Unit] = []
            try:
                outcome = self._run(site, unit)
                if outcome.lost:
                    there = self._answers(site)
                    self.tell(
                        f"{site.place.name}: lost ({outcome.why})" + ("" if there else "; it is left out")
                    )
                if outcome.lost and not unit.again:
                    # Each alone: the case that costs a machine must not take others with it.
                    again = [Unit((case,), AGAIN) for case in outcome.left]
                elif outcome.left:
                    self._fail(outcome.left, f"{site.place.name}: {outcome.why}")
            finally:
                queue.give_back(again)

    def _run(self, site: Site, unit: Unit) -> Outcome:
        path = self._new_path()
        lost, why = False, "its file lacks records"
        try:
            pieces = pieces_of(self.fleet, site.place, self.words.task(unit))
            checked = False
            with closing(pieces), path.open("ab") as file:
                for piece in pieces:
                    if isinstance(piece, Ended):
                        lost, why = piece.status < 0, last_line(piece)
                        break
                    file.write(piece)
                    file.flush()
                    force_to_disk(file.fileno(), path)
                    if not checked and (checked := path.read_bytes().count(b"\n") > 0):
                        check_given(site.facts, read_run(path).manifest, site.place.name)
        except PlaceLost as failure:
            lost, why = True, clean(str(failure))
        except BadFile:
            pass  # Settling it says so.
        except BadInput as failure:
            path.unlink()
            return Outcome(unit.cases, why=clean(str(failure)))
        try:
            run = settled(path)
        except BadFile as failure:
            lost, why, run = True, set_aside(path, failure), None
        if run is not None:
            with self._lock:
                self.done(site, run)
        there = set() if run is None else set(run.manifest.cases)
        return Outcome(tuple(case for case in unit.cases if case not in there), lost, why)

    def _answers(self, site: Site) -> bool:
        try:
            return site_of(self.fleet, site.place, self.words.facts()).facts == site.facts
        except (PlaceLost, AttnbenchError):
            return False

    def _fail(self, cases: Sequence[str], why: str) -> None:
        sentence = f"{count_of(len(cases), 'case')} not measured ({why}): {', '.join(cases)}"
        self.failed.append(sentence)
        self.tell(sentence)

    def _new_path(self) -> Path:
        with self._lock:
            path = next(path for n in count(1) if not (path := self.folder / f"{n:04d}.jsonl").exists())
            path.touch()
            return path


def set_aside(path: Path, damage: BadFile) -> str:
    """Give the damaged file of a unit a name that no run reads; return what happened, in words."""
    aside = path.with_name(f"{path.stem}-{secrets.token_hex(2)}.damaged")
    path.replace(aside)
    return f"{clean(str(damage))}; it is kept as {aside.name}"


def settled(path: Path) -> StoredRun | None:
    """Keep the complete cases of a unit's file alone; return them as a run, None if there are none.

    Raises:
        BadFile: the file is damaged.
    """
    if b"\n" not in path.read_bytes():
        path.unlink()
        return None
    run = read_run(path)
    complete = complete_cases(run)
    if run.finished is not None and complete == run.manifest.cases:
        return run
    if not complete:
        path.unlink()
        return None
    whole = path.with_suffix(".new")
    # A driver that was killed here may have left one.
    whole.unlink(missing_ok=True)
    keep_complete(run, whole)
    whole.replace(path)
    return read_run(path)
