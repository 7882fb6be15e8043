"""``--live``: commits of one repository compared from outside, with the command that users run.

The repository holds a plugin of eight backends. For ``aa`` both commits hold the same code; for ``power``
three backends of the new commit take 3, 5 and 10 % longer, other ones each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from attnbench.types.errors import MeasuringFailed
from attnbench_selftest.plan import SLOWER_AT_MOST
from attnbench_selftest.rates import Count, Finding, Scored, Side, rate

MODULE = "attnbench_selftest_kernels"
KERNELS = """
import time
from attnbench import Backend, hookimpl

SLOWER_BY = {slower_by!r}

def eager(q, k, v):
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v

def flat(q, k, v):
    import torch
    fold = lambda x: x.flatten(0, 1)
    weights = torch.bmm(fold(q), fold(k).transpose(1, 2)).softmax(-1)
    return torch.bmm(weights, fold(v)).unflatten(0, q.shape[:2])

def fused(q, k, v):
    import torch
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

def summed(q, k, v):
    import torch
    return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v)

def slowed(call, share):
    def slower(q, k, v):
        start = time.perf_counter_ns()
        out = call(q, k, v)
        end = time.perf_counter_ns()
        end += (end - start) * share
        while time.perf_counter_ns() < end:
            pass
        return out
    return slower

@hookimpl
def attnbench_backends():
    for call in (eager, flat, fused, summed):
        for copy in ("a", "b"):
            name = "live_" + call.__name__ + "_" + copy
            # Wrapped on both sides, so that the wrapper itself makes no difference.
            made = slowed(call, SLOWER_BY.get(name, 0))
            yield Backend(name=name, summary=name, prepare=lambda setup, made=made: made, rules=("dot",))
"""
NAMES = tuple(f"live_{call}_{copy}" for call in ("eager", "flat", "fused", "summed") for copy in "ab")
FOUND_AT_LEAST = {0.03: 0.80, 0.05: 0.95, 0.10: 0.99}
"""By planted slowdown, the share of cells in which it must be found."""

P_BELOW = {0.05: 0.065, 0.001: 0.003}
"""By level, the largest share of identical cells whose p-value may lie below it."""

FAILED_AT_MOST = 0.01
"""The largest share of comparisons of identical commits that may fail."""

CASES = tuple(
    f"attention/dot/B1-H{heads}-L{length}-D{dim}"
    for heads, length, dim in ((2, 16, 16), (8, 128, 64), (4, 64, 32), (4, 256, 64), (2, 384, 64))
)
QUICK_CASES = 2


@dataclass(frozen=True)
class LiveCell:
    """A backend on a case in one comparison. slower_by: the planted slowdown, as a share of the time."""

    case: str
    backend: str
    verdict: str
    ratio: float | None
    p_value: float | None
    slower_by: float = 0.0


@dataclass(frozen=True)
class LiveComparison:
    """One comparison of two commits: whether they hold the same code, its exit status, and its seconds."""

    identical: bool
    exit_status: int
    seconds: float
    cells: Sequence[LiveCell] = field(default=())


def kernels(slower_by: Mapping[str, float]) -> dict[str, str]:
    """The files of the plugin, with these backends slower."""
    return {f"{MODULE}.py": KERNELS.format(slower_by=dict(slower_by))}


class Repository:
    """A repository with a plugin, which is installed as an editable install would have it.

    module: of the plugin. files: the plugin's files by name, with some backends slower.
    """

    def __init__(
        self,
        folder: Path,
        module: str = MODULE,
        files: Callable[[Mapping[str, float]], Mapping[str, str]] = kernels,
    ) -> None:
        self._files = files
        self._folder, site, info = folder / "repo", folder / "site", folder / "site" / "live-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: live\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[attnbench]\nlive = {module}\n")
        self._folder.mkdir()
        paths = [str(site), str(self._folder), os.environ.get("PYTHONPATH", "")]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._git("init", "--quiet")
        self.commit({})

    def _git(self, *args: str) -> None:
        author = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(["git", *author, *args], cwd=self._folder, check=True, capture_output=True)

    def commit(self, slower_by: Mapping[str, float]) -> None:
        """Commit the plugin with these backends slower; an empty commit where nothing changes."""
        for name, text in self._files(slower_by).items():
            (self._folder / name).parent.mkdir(exist_ok=True)
            (self._folder / name).write_text(text)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", "change")

    def attnbench(self, *args: str) -> tuple[int, str, float]:
        """Run attnbench; return its exit status, its output and its seconds.

        Raises:
            MeasuringFailed: it ended with another status than 0 or 1.
        """
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "attnbench", *args],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise MeasuringFailed(f"attnbench {' '.join(args)} failed: {done.stderr.strip()}")
        return done.returncode, done.stdout, time.perf_counter() - begun


def compare_commits(
    trials: int,
    cases: Sequence[str],
    options: Sequence[str],
    tell: Callable[[str], None],
    keep: Path | None,
    *,
    planted: bool,
) -> tuple[LiveComparison, ...]:
    """Compare ``trials`` pairs of commits, identical ones or with ``planted`` slowdowns.

    options: of ``attnbench compare``. keep: a folder that gets the run files.
    """
    done: list[LiveComparison] = []
    for number in range(trials):
        slower = {
            NAMES[(3 * number + place) % len(NAMES)]: share for place, share in enumerate(FOUND_AT_LEAST)
        }
        tell(f"comparison {number + 1} of {trials}")
        with tempfile.TemporaryDirectory(prefix="attnbench-") as folder:
            out = (keep.absolute() if keep else Path(folder)) / f"live-{number + 1}.jsonl"
            words = [*options, "--out", str(out)]
            done.append(_compare(Repository(Path(folder)), slower if planted else {}, cases, words))
    return tuple(done)


def _compare(
    repository: Repository, slower_by: Mapping[str, float], cases: Sequence[str], options: Sequence[str]
) -> LiveComparison:
    repository.commit(slower_by)
    names = [word for name in NAMES for word in ("--backend", name)]
    refs = ("--ref", "HEAD~", "--head", "HEAD")
    status, printed, seconds = repository.attnbench(
        "compare", *refs, "--all", *cases, *names, *options, "--format", "json"
    )
    cells = tuple(
        LiveCell(
            case=cell["case"],
            backend=cell["backend"],
            verdict=cell["verdict"],
            ratio=cell["ratio"],
            p_value=cell["p_value"],
            slower_by=slower_by.get(cell["backend"], 0.0),
        )
        for cell in json.loads(printed)["cells"]
    )
    return LiveComparison(not slower_by, status, seconds, cells)


def score_live(comparisons: Sequence[LiveComparison]) -> Scored:
    """How often identical cells are called slower, how their p-values lie, and what is found.

    Cells of one comparison count as a cluster: they share two worktrees and an hour of the machine.
    """
    claims = 2 + len(P_BELOW) + len(FOUND_AT_LEAST)

    def share(
        what: str,
        side: Side,
        target: float,
        cells: Sequence[list[LiveCell]],
        holds: Callable[[LiveCell], bool],
    ) -> Finding:
        counts = [Count(sum(map(holds, group)), len(group)) for group in cells if group]
        return rate(what, side, target, counts, first=True, claims=claims)

    def chosen(slower_by: float) -> list[list[LiveCell]]:
        return [[cell for cell in one.cells if cell.slower_by == slower_by] for one in comparisons]

    def is_slower(cell: LiveCell) -> bool:
        return cell.verdict == "slower"

    findings = [share("identical cells called slower", "at most", SLOWER_AT_MOST, chosen(0.0), is_slower)]
    for level, most in P_BELOW.items():
        below = partial(_p_below, level)
        findings.append(share(f"identical cells with p < {level}", "at most", most, chosen(0.0), below))
    failed = [Count(int(one.exit_status != 0), 1) for one in comparisons if one.identical]
    findings.append(
        rate("identical commits that fail", "at most", FAILED_AT_MOST, failed, first=True, claims=claims)
    )
    for size, least in FOUND_AT_LEAST.items():
        findings.append(share(f"+{100 * size:.0f} % found", "at least", least, chosen(size), is_slower))
    return Scored(tuple(one for one in findings if one.trials))


def _p_below(level: float, cell: LiveCell) -> bool:
    return cell.p_value is not None and cell.p_value < level
