"""One visit to a GPU: measure what only a card can show, most valuable first, in under nine minutes.

    python tests/gpu/campaign.py --out FOLDER [--work FOLDER] [--seconds N] [--only STEP]... [--dry]

Runs from a plain copy of the tree with the torch that is there, and installs nothing. Writes summary.md,
page.html and steps.tar.gz into the folder, after every step. A second visit with the same folder goes on
where the first ended. --dry makes every step on the CPU, with small sizes; --seconds 0 writes the summary of
what is there. The exit status is 1 if something does not hold, and 2 if nothing could be done.
"""

from __future__ import annotations

import argparse
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
from findings import last_line, summary
from steps import Step, steps
from tree import TREE, use_tree

SECONDS = 525.0
PAGE_S, LEAST_S, ENDING_S = 25.0, 15.0, 10.0
"""For the page at the end; the least that is worth starting a step; from Ctrl-C until a step is killed."""

HERE = Path(__file__).resolve().parent


class Visit:
    """The files of a campaign, and the environment of its processes. state: of each step that was begun."""

    def __init__(self, out: Path, work: Path, device: str, site: Path) -> None:
        self.out, self.work, self.device = out, work, device
        out.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        self.archive = out / "steps.tar.gz"
        if self.archive.is_file() and not any(work.iterdir()):
            with tarfile.open(self.archive) as packed:
                packed.extractall(work, filter="data")
        self._state_file = work / "state.json"
        self.state: dict[str, Any] = json.loads(_text(self._state_file) or "{}")
        before = os.environ.get("PYTHONPATH", "")
        paths = [*use_tree(site), *([before] if before else [])]
        self.env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1", "COLUMNS": "160"}

    def done(self, step: Step) -> bool:
        """Return whether a step has written all of its file."""
        return bool(self.state.get(step.name, {}).get("complete"))

    @property
    def reached(self) -> bool:
        """Return whether the first step found a CUDA device."""
        return bool(json.loads(_text(self.work / "environment.json") or "{}").get("gpu"))

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
        self._state_file.write_text(json.dumps(self.state, indent=1) + "\n", "utf-8")

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

    def write(self, planned: Sequence[Step]) -> list[str]:
        """Write the summary and pack the files of all steps; return what does not hold."""
        text, failed = summary(self.work, planned, self.state, self.device)
        (self.out / "summary.md").write_text(text, "utf-8")
        new = self.archive.with_name("new-steps.tar.gz")
        with tarfile.open(new, "w:gz") as packed:
            for path in sorted(self.work.iterdir()):
                packed.add(path, path.name)
        new.replace(self.archive)
        return failed

    def page(self) -> None:
        """Write a page of all run files, where its packages are there."""
        runs = [str(path) for path in sorted(self.work.glob("*.jsonl")) if _text(path).count("\n") > 1]
        if runs:
            html = str(self.out / "page.html")
            with (self.work / "page.log").open("w", encoding="utf-8") as log:
                words = [sys.executable, "-m", "attnbench", "report", *runs, "--html", html]
                _finished(words, self.env, log, PAGE_S)


def _finished(command: list[str], env: dict[str, str], log: Any, most_s: float) -> tuple[int, bool]:
    """Run a command; return its status and whether it was stopped because its time was over."""
    process = subprocess.Popen(command, cwd=TREE, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        return process.wait(timeout=most_s), False
    except subprocess.TimeoutExpired:
        # As Ctrl-C: what was measured until then is kept.
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(timeout=ENDING_S), True
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), True


def _complete(file: Path) -> bool:
    """Return whether a file was written to its end: a run file ends with a line that says so."""
    lines = _text(file).splitlines()
    if file.suffix == ".json":
        return bool(lines) and not json.loads("\n".join(lines)).get("interrupted", False)
    return bool(lines) and json.loads(lines[-1]).get("kind") == "end"


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def _visited(visit: Visit, planned: Sequence[Step], end: float) -> list[str]:
    """Make the steps that are not done, each within its limit; steps that were cut off get what time is left.

    Return what does not hold.
    """
    failed = visit.write(planned)
    for limited in (True, False):
        for step in planned:
            left = end - time.monotonic()
            cut_off = visit.state.get(step.name, {}).get("stopped", False)
            if visit.done(step) or left < LEAST_S or not (limited or cut_off):
                continue
            print(f"{left:4.0f} s left: {step.name}", flush=True)
            visit.make(step, min(step.most_s, left) if limited else left)
            failed = visit.write(planned)
            if visit.device == "cuda" and not visit.reached:
                return failed
    return failed


def _asked() -> argparse.Namespace:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("--out", type=Path, required=True, help="Folder for summary, page and archive.")
    parser.add_argument("--work", type=Path, help="Folder for the files of steps; inside --out by default.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="End after so many seconds.")
    parser.add_argument("--only", action="append", metavar="STEP", help="Make this step; repeatable.")
    parser.add_argument("--dry", action="store_true", help="Make every step on the CPU, with small sizes.")
    return parser.parse_args()


def main() -> int:
    """Make a visit; return the exit status."""
    end, asked = time.monotonic(), _asked()
    end += asked.seconds - PAGE_S
    # A shell that starts this in the background has its processes ignore Ctrl-C, which stops a step.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, device = asked.out.resolve(), "cpu" if asked.dry else "cuda"
    with tempfile.TemporaryDirectory(prefix="campaign-") as site:
        visit = Visit(out, (asked.work or out / "steps").resolve(), device, Path(site))
        planned = steps(device, visit.backends())
        if asked.only and (unknown := set(asked.only) - {step.name for step in planned}):
            print(f"no step {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in planned)}")
            return 2
        failed = _visited(visit, [step for step in planned if step.name in (asked.only or step.name)], end)
        failed = visit.write(planned)
        visit.page()
    print((out / "summary.md").read_text("utf-8"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
