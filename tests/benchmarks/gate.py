"""How often ``attnbench compare`` is right: on identical commits, and on one with a planted slowdown.

Makes a repository of its own with four backends, and measures its commits against each other on five cases,
20 cells in all. Run on a quiet machine::

    python tests/benchmarks/gate.py [--rounds N] [--plant PERCENT] [--stored] [--json FILE]

--plant: one backend of the head, another each round, takes so many percent longer; identical commits without.
--stored: instead of live comparisons, a run of each commit one after the other, and the two files compared.
Prints verdicts by kind, what each comparison took, and what the gates of others say of the same samples.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

KERNELS = """
import time
from attnbench import Backend, hookimpl

PLANTED = {planted!r}

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
        name, share = "gate_" + call.__name__, PLANTED.get(call.__name__, 0)
        made = slowed(call, share) if share else call
        yield Backend(name=name, summary=name, prepare=lambda setup, made=made: made, rules=("dot",))
"""
NAMES = ("eager", "flat", "fused", "summed")
CASES = tuple(
    f"attention/dot/B1-H{h}-L{length}-D{d}"
    for h, length, d in ((2, 16, 16), (4, 64, 32), (8, 128, 64), (4, 256, 64), (2, 384, 64))
)
MODULE = "attnbench_gate_kernels"


class Project:
    """A repository with a plugin, installed as an editable install would have it."""

    def __init__(self, folder: Path) -> None:
        self.repo, site = folder / "repo", folder / "site"
        info = site / "gate-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gate\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[attnbench]\ngate = {MODULE}\n")
        self.repo.mkdir()
        self.git("init", "--quiet")
        found = importlib.util.find_spec("attnbench")
        assert found is not None
        assert found.origin is not None
        paths = [str(site), str(self.repo), str(Path(found.origin).parents[1])]
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self.commit({})

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(["git", *who, *words], cwd=self.repo, check=True, capture_output=True)

    def commit(self, planted: dict[str, float]) -> None:
        (self.repo / f"{MODULE}.py").write_text(KERNELS.format(planted=planted))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")

    def attnbench(self, *words: str) -> tuple[str, float]:
        """What a command prints, and the seconds it takes, imports and all."""
        start = time.perf_counter()
        command = [sys.executable, "-m", "attnbench", *words]
        done = subprocess.run(
            command, cwd=self.repo, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")
        return done.stdout, time.perf_counter() - start


def peers(path: Path, truth: dict[str, bool]) -> Counter[str]:
    """What the gates of others say of the samples of a live run, by gate and whether it is planted."""
    from attnbench.plugins.registry import load_registry
    from attnbench.results.format import read_run

    run, said = read_run(path), Counter[str]()
    rules = load_registry().verdict_rules
    for case in run.manifest.cases:
        lines = [line for line in run.sets if line.case == case]
        for backend, slower in truth.items():
            sides = [
                [
                    [ns / block.calls for block in line.blocks[f"{backend}@{side}"] for ns in block.wall_ns]
                    for line in lines
                    if f"{backend}@{side}" in line.blocks
                ]
                for side in ("head", "base")
            ]
            for name, entry in rules.items():
                word = entry.record.decide(sides[0], sides[1])
                said[f"{name} {'planted' if slower else 'identical'} {word}"] += 1
    return said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plant", type=float, default=0.0, metavar="PERCENT")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--budget", default=None)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    budget = ("--budget", chosen.budget) if chosen.budget else ()
    backends = [word for name in NAMES for word in ("--backend", f"gate_{name}")]
    ours, others, seconds, worst = Counter[str](), Counter[str](), [], []
    for number in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:
            project, out = Project(Path(folder)), Path(folder) / "out"
            planted = {NAMES[number % len(NAMES)]: chosen.plant / 100} if chosen.plant else {}
            if chosen.stored:
                _, base_s = project.attnbench(
                    "run",
                    *CASES,
                    *backends,
                    *budget,
                    "--baseline",
                    "gate_eager",
                    "--out",
                    f"{out}/base.jsonl",
                )
                project.commit(planted)
                _, new_s = project.attnbench(
                    "run", *CASES, *backends, *budget, "--baseline", "gate_eager", "--out", f"{out}/new.jsonl"
                )
                printed, last_s = project.attnbench(
                    "compare", f"{out}/base.jsonl", f"{out}/new.jsonl", "--format", "json"
                )
                taken_s = base_s + new_s + last_s
            else:
                project.commit(planted)
                printed, taken_s = project.attnbench(
                    "compare", "--ref", "HEAD~", "--head", "HEAD", *CASES, *backends, *budget,
                    "--out", f"{out}/live.jsonl", "--format", "json",
                )  # fmt: skip
                truth = {f"gate_{name}": name in planted for name in NAMES}
                others += peers(out / "live.jsonl", truth)
        cells = json.loads(printed)["cells"]
        seconds.append(taken_s)
        found = Counter(
            f"{'planted' if cell['backend'][5:] in planted else 'identical'} {cell['verdict']}"
            for cell in cells
        )
        ours += found
        worst += [
            cell["ratio"]
            for cell in cells
            if cell["verdict"] == "slower" and cell["backend"][5:] not in planted
        ]
        print(f"round {number + 1}: {taken_s:.0f} s, {dict(sorted(found.items()))}", flush=True)
    print(
        f"\nattnbench compare{' on stored runs' if chosen.stored else ' live'}: {dict(sorted(ours.items()))}"
    )
    print(f"seconds a comparison: {min(seconds):.0f} to {max(seconds):.0f}; false slower ratios: {worst}")
    for name, count in sorted(others.items()):
        print(f"  {name}: {count}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"ours": ours, "others": others, "seconds": seconds}, indent=1))


if __name__ == "__main__":
    main()
