"""One visit to a GPU: measure what only a card can show, most valuable first, in under nine minutes.

    python tests/gpu/campaign.py --out FOLDER [--work FOLDER] [--seconds N] [--only STEP]... [--dry]

Runs from a plain copy of the tree with the torch that is there, and installs nothing. Writes summary.md,
page.html and steps.tar.gz into the folder, after every step. A second visit with the same folder goes on
where the first ended. --dry makes every step on the CPU, with small sizes; --seconds 0 writes the summary of
what is there. The exit status is 1 if something does not hold, 2 if the folder can't be used, and 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device import sensors
from findings import json_of, last_line, lines_of, summary
from steps import Step, steps
from tree import TREE, use_tree

SECONDS = 525.0
PAGE_S, LEAST_S, ENDING_S = 25.0, 15.0, 10.0
"""For the page at the end; the least that is worth starting a step; from Ctrl-C until a step is killed."""

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1


class Unusable(Exception):  # noqa: N818
    """The folder can't be used; the text says why, and what to do."""


class Visit:
    """The files of a campaign, and the environment of its processes. state: of each step that was begun.

    Raises:
        Unusable: the folder holds files of others, or of a campaign on another device or under way.
        OSError: it can't be read or written.
    """

    def __init__(self, out: Path, work: Path, device: str, site: Path) -> None:
        self.out, self.work, self.device = out, work, device
        out.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(work)
        self.archive, self._state_file = out / "steps.tar.gz", work / "state.json"
        self._refuse_files_of_others()
        if self.archive.is_file() and not any(work.iterdir()):
            with tarfile.open(self.archive) as packed:
                packed.extractall(work, filter="data")
        found = json_of(self._state_file)
        self.card = self._same_card(found)
        self.state: dict[str, Any] = found.get("steps", {})
        if device == "cuda" and not self.reached:
            # A device may be there now.
            self.state.pop("environment", None)
        self._keep_state()
        before = os.environ.get("PYTHONPATH", "")
        paths = [*use_tree(site), *([before] if before else [])]
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1", "COLUMNS": "160",
            # An installation that nobody may write to, or without its compiled files: each process would
            # compile torch's sources anew, for three seconds.
            "PYTHONPYCACHEPREFIX": str(site / "pycache"),
        }  # fmt: skip
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)

    def _refuse_files_of_others(self) -> None:
        if any(self.work.iterdir()) and not self._state_file.is_file():
            raise Unusable(f"{self.work} has files that no campaign wrote: choose another folder")
        shown = self.out / "summary.md"
        if shown.exists() and not self._state_file.is_file() and not self.archive.is_file():
            raise Unusable(f"{shown} is there already, and no campaign wrote it: choose another folder")

    def _same_card(self, found: dict[str, Any]) -> str:
        """Return the name of the card, "" where none is known."""
        begun = found.get("card") or ""
        here = sensors().get("name", "") if self.device == "cuda" else ""
        was = found.get("device", self.device)
        if was != self.device or (begun and here and begun != here):
            words = f"has a campaign on {begun or was}, and this one is on {here or self.device}"
            raise Unusable(f"{self.out} {words}: choose another folder")
        return begun or here

    def _keep_state(self) -> None:
        """Write the state so that a kill leaves the old one or the new one."""
        new = self._state_file.with_name("new-state.json")
        kept = {"device": self.device, "card": self.card, "steps": self.state}
        new.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        new.replace(self._state_file)

    def done(self, step: Step) -> bool:
        """Return whether a step has written all of its file."""
        return bool(self.state.get(step.name, {}).get("complete"))

    @property
    def reached(self) -> bool:
        """Return whether the first step found a CUDA device."""
        return bool(json_of(self.work / "environment.json").get("gpu"))

    def backends(self) -> set[str]:
        """Return the names of the backends that attnbench finds; none where it does not start."""
        command = [sys.executable, "-m", "attnbench", "list", "backends", "--format", "json"]
        done = subprocess.run(command, cwd=TREE, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"attnbench does not start here: {last_line(done.stderr)}", flush=True)
            return set()
        return {row["name"] for row in json.loads(done.stdout)}

    def make(self, step: Step, most_s: float) -> None:
        """Run a step for so many seconds at most, and note how it went."""
        began = time.monotonic()
        with (self.work / f"{step.name}.log").open("a", encoding="utf-8") as log:
            code, stopped = _finished(self._command(step), self.env, log, most_s)
        self.state[step.name] = {
            "complete": not stopped and _complete(self.work / step.file),
            "stopped": stopped,
            "exit": code,
            "seconds": round(time.monotonic() - began, 1),
            "tail": _text(self.work / f"{step.name}.log")[-1500:],
            "sensors": sensors(),
        }
        self._keep_state()

    def _command(self, step: Step) -> list[str]:
        file = self.work / step.file
        if step.kind == "device":
            return [sys.executable, str(HERE / "device.py"), *step.words, str(file), self.device]
        attnbench = [sys.executable, "-m", "attnbench"]
        if step.kind in ("run", "check"):
            if _text(file).count("\n") > 1:
                return [*attnbench, step.kind, "--resume", str(file)]
            file.unlink(missing_ok=True)
            return [*attnbench, step.kind, *step.words, "--out", str(file)]
        runs = self.work / f"{step.name}-runs"
        for old in runs.glob("*.jsonl"):
            old.unlink()
        return [*attnbench, "selftest", *step.words, "--keep", str(runs), "--json", str(file)]

    def write(self, planned: Sequence[Step], no_page: str = "") -> list[str]:
        """Write the summary and pack the files of all steps; return what does not hold.

        no_page: why there is no page.
        """
        text, failed = summary(self.work, planned, self.state, self.device, no_page)
        (self.out / "summary.md").write_text(text, "utf-8")
        new = self.archive.with_name("new-steps.tar.gz")
        with tarfile.open(new, "w:gz") as packed:
            for path in sorted(self.work.iterdir()):
                packed.add(path, path.name)
        new.replace(self.archive)
        return failed

    def page(self) -> str:
        """Write a page of all run files; return why that failed, "" where it did not."""
        runs = [str(path) for path in sorted(self.work.glob("*.jsonl")) if _text(path).count("\n") > 1]
        if not runs:
            return ""
        html, noted = str(self.out / "page.html"), self.work / "page.log"
        with noted.open("w", encoding="utf-8") as log:
            words = [sys.executable, "-m", "attnbench", "report", *runs, "--html", html]
            code, stopped = _finished(words, self.env, log, PAGE_S)
        reason = f"it took more than {PAGE_S:.0f} s" if stopped else last_line(_text(noted))
        return f"page.html was not written: {reason}" if code else ""


def _locked(folder: Path) -> int:
    """Lock a folder for as long as this process lives."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as busy:
        raise Unusable(f"another campaign writes to {folder} now: wait for it") from busy
    return descriptor


def _finished(command: list[str], env: dict[str, str], log: Any, most_s: float) -> tuple[int, bool]:
    """Run a command; return its status and whether it was stopped because its time was over.

    It is in a session of its own, so that Ctrl-C reaches it once, from here.
    """
    process = subprocess.Popen(
        command, cwd=TREE, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        start_new_session=True, preexec_fn=_end_with_campaign,
    )  # fmt: skip
    try:
        return process.wait(timeout=most_s), False
    except subprocess.TimeoutExpired:
        return _ended(process), True
    except KeyboardInterrupt:
        _ended(process)
        raise


def _end_with_campaign() -> None:
    """Have the kernel end this process with the campaign: a second visit would find it still writing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """End a process as Ctrl-C does, so that what was measured until then is kept; return its status."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(timeout=ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _complete(file: Path) -> bool:
    """Return whether a file was written to its end: a run file ends with a line that says so."""
    if file.suffix == ".json":
        found = json_of(file)
        return bool(found) and not found.get("interrupted", False)
    return any(line.get("kind") == "end" for line in lines_of(file))


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def _visited(visit: Visit, planned: Sequence[Step], end: float) -> None:
    """Make the steps that are not done, within their limits; those cut off get what time is left."""
    visit.write(planned)
    for limited in (True, False):
        for step in planned:
            left = end - time.monotonic()
            before = visit.state.get(step.name, {})
            cut_off = before.get("stopped", False)
            had_s = before["seconds"] if cut_off else 0.0
            # More than before, since a case whose check was cut off begins anew.
            most_s = min(max(step.most_s, 2 * had_s), left) if limited else left
            # A self-test begins anew as a whole: in less time than before it would find less.
            least_s = max(LEAST_S, had_s if step.kind == "selftest" else 0.0)
            if visit.done(step) or most_s < least_s or not (limited or cut_off):
                continue
            print(f"{left:4.0f} s left: {step.name}", flush=True)
            visit.make(step, most_s)
            visit.write(planned)
            if step.name == "environment" and visit.device == "cuda" and not visit.reached:
                return


def _asked() -> argparse.Namespace:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("--out", type=Path, required=True, help="Folder for summary, page and archive.")
    parser.add_argument("--work", type=Path, help="Folder for the files of steps; inside --out by default.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="End after so many seconds.")
    parser.add_argument("--only", action="append", metavar="STEP", help="Make this step; repeatable.")
    parser.add_argument("--dry", action="store_true", help="Make every step on the CPU, with small sizes.")
    asked = parser.parse_args()
    if not 0 <= asked.seconds < float("inf"):
        parser.error(f"--seconds {asked.seconds}: give a number of seconds from 0 on")
    return asked


def main() -> int:
    """Make a visit; return the exit status."""
    end, asked = time.monotonic(), _asked()
    end += asked.seconds - PAGE_S
    # A shell that starts this in the background has its processes ignore Ctrl-C, which stops a step.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, device = asked.out.resolve(), "cpu" if asked.dry else "cuda"
    with tempfile.TemporaryDirectory(prefix="campaign-") as site:
        try:
            return _visit(asked, out, device, Path(site), end)
        except Unusable as reason:
            print(f"campaign: {reason}", file=sys.stderr)
        except (OSError, tarfile.TarError, EOFError) as failure:
            words = getattr(failure, "strerror", None) or failure
            where = getattr(failure, "filename", None) or out
            print(f"campaign: {where}: {words}; the same command goes on from what is there", file=sys.stderr)
        except KeyboardInterrupt:
            print("campaign: stopped; the same command goes on from what is there", file=sys.stderr)
            return 130
    return 2


def _visit(asked: argparse.Namespace, out: Path, device: str, site: Path, end: float) -> int:
    visit = Visit(out, (asked.work or out / "steps").resolve(), device, site)
    planned = steps(device, visit.backends())
    if asked.only and (unknown := set(asked.only) - {step.name for step in planned}):
        names = ", ".join(step.name for step in planned)
        raise Unusable(f"no step {', '.join(sorted(unknown))}; there are {names}")
    planned = [step for step in planned if step.name in (asked.only or step.name)]
    try:
        _visited(visit, planned, end)
    finally:
        # After Ctrl-C too.
        failed = visit.write(planned)
    if no_page := visit.page():
        failed = visit.write(planned, no_page)
    print((out / "summary.md").read_text("utf-8"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
