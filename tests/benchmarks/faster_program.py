"""From a config, or from a program, to a faster program: the gain that was promised, and the one measured.

The programs are written with torch's function, and set no threads. Each goes both ways:
config -> suite -> run -> choose, and capture -> run -> choose. Then steps with torch's function and with the
choice alternate in random order in one process, with one set of weights. The ratio is of a pair of steps, its
interval over the pairs. A program for which the table has nothing must hear it. Stderr has what each hears.

    python tests/benchmarks/faster_program.py [--pairs 100] [--way capture|config] [--backend NAME]...
        [PROGRAM]...

Without --backend all are measured, and on a quiet machine of two cores it takes about half an hour. The exit
status is 1 if a gain that was promised isn't seen, or if a program isn't told that there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Attention = Callable[..., Any]
Step = Callable[[Attention], Any]
LAYERS, WIDTH, H, HKV, D = 4, 256, 8, 2, 32
CONFIG = {
    "model_type": "mistral", "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": H,
    "num_key_value_heads": HKV, "head_dim": D, "max_position_embeddings": 8192, "torch_dtype": "float32",
}  # fmt: skip
TIMEOUT_S = 900


class Layer:
    """Projections and a feed-forward layer with random weights, as a Llama has."""

    def __init__(self) -> None:
        import torch

        def weights(out: int) -> torch.nn.Linear:
            return torch.nn.Linear(WIDTH, out, bias=False)

        self.q, self.k, self.v, self.out = weights(H * D), weights(HKV * D), weights(HKV * D), weights(WIDTH)
        self.up, self.down = weights(2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def heads(self, x: Any) -> tuple[Any, Any, Any]:
        """Return queries, keys and values, (B, heads, L, D)."""
        B, L, _ = x.shape
        parts = ((self.q, H), (self.k, HKV), (self.v, HKV))
        q, k, v = (linear(x).view(B, L, heads, D).transpose(1, 2) for linear, heads in parts)
        return q, k, v

    def after(self, x: Any, attended: Any) -> Any:
        """Return what the next layer gets."""
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(self.up(x).relu())


def made() -> tuple[list[Layer], Any]:
    """Return the layers, and torch."""
    import torch

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    return [Layer() for _ in range(LAYERS)], torch


def decoding() -> Step:
    """Eight further tokens of four sentences, with a cache that grows from 4,096 keys."""
    layers, torch = made()
    caches = [[torch.randn(4, HKV, 4096, D) for _ in "kv"] for _ in layers]
    token = torch.randn(4, 1, WIDTH)

    def step(attention: Attention) -> Any:
        x, own = token, [list(cache) for cache in caches]
        for _ in range(8):
            for layer, cache in zip(layers, own, strict=True):
                q, k, v = layer.heads(x)
                cache[:] = [torch.cat(pair, dim=2) for pair in zip(cache, (k, v), strict=True)]
                x = layer.after(x, attention(q, *cache, enable_gqa=True))
        return x

    return step


def prefill(tokens: int, window: int | None = None) -> Step:
    """One prompt."""
    layers, torch = made()
    prompt, masked = torch.randn(1, tokens, WIDTH), {"is_causal": True}
    if window is not None:
        masked = {"attn_mask": torch.ones(tokens, tokens).tril().triu(1 - window).bool()}

    def step(attention: Attention) -> Any:
        x = prompt
        for layer in layers:
            x = layer.after(x, attention(*layer.heads(x), enable_gqa=True, **masked))
        return x

    return step


@dataclass(frozen=True)
class Program:
    """make: its step. stages: options of ``suite from-config``. layout: of its inputs; "" for ``own``."""

    make: Callable[[], Step]
    stages: tuple[str, ...]
    layout: str = ""
    config: dict[str, Any] = field(default_factory=dict)


def prompt_of(tokens: int) -> tuple[str, ...]:
    """Return the options for one prompt."""
    return "--prefill", str(tokens), "--decode", "none"


PROGRAMS = {
    "decoding": Program(decoding, ("--prefill", "none", "--decode", "4k,8k", "--batch", "4")),
    "prefill": Program(lambda: prefill(1024), prompt_of(1024), "BLHD"),
    "window": Program(lambda: prefill(4096, 128), prompt_of(4096), "BLHD", {"sliding_window": 128}),
}


def measure(name: str, choice: str, pairs: int) -> dict[str, Any]:
    """Return the ratio of each pair of steps, the one with the choice first, and how far outputs differ."""
    from torch.nn.functional import scaled_dot_product_attention

    import attnbench.choice

    step = PROGRAMS[name].make()
    functions = {"torch": scaled_dot_product_attention, "choice": attnbench.choice.load(choice)}
    outputs = {kind: step(function) for kind, function in functions.items()}
    for function in functions.values():
        step(function)
    taken: dict[str, list[float]] = {kind: [] for kind in functions}
    for _ in range(pairs):
        for kind in random.sample(list(functions), 2):
            start = time.perf_counter()
            step(functions[kind])
            taken[kind].append(time.perf_counter() - start)
    apart = float((outputs["torch"] - outputs["choice"]).abs().max() / outputs["torch"].abs().max())
    return taken | {"apart": apart}


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, and return it; raises if it fails."""
    threads = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, check=True, capture_output=True, text=True, env=threads,
        timeout=TIMEOUT_S,
    )  # fmt: skip


def here() -> str:
    """Return this file, for a process that is one of the programs."""
    return str(Path(__file__).resolve())


def suite(folder: Path, name: str, way: str) -> list[str]:
    """Write ``mine.toml``, by one of the ways; return the options that a run of it needs."""
    program = PROGRAMS[name]
    if way == "capture":
        words = ["capture", "--force", "--out", "mine.toml", "--", sys.executable, here(), "--step", name]
        ran(folder, "-m", "attnbench", *words)
        return []
    (folder / "config.json").write_text(json.dumps(CONFIG | program.config))
    words = ["suite", "from-config", "config.json", "--chunked", "none", *program.stages]
    (folder / "mine.toml").write_text(ran(folder, "-m", "attnbench", *words).stdout)
    default = ran(folder, "-c", "import torch; print(torch.get_num_threads())").stdout.strip()
    return ["--threads", default, *(["--layout", program.layout] if program.layout else [])]


def chosen(folder: Path, name: str, way: str, *options: str) -> str:
    """Go from a config or a program to ``choice.toml``; return what ``choose`` says. options: of the run."""
    words = ["run", "mine.toml", "--out", "mine.jsonl", *suite(folder, name, way), *options]
    ran(folder, "-m", "attnbench", *words)
    return ran(folder, "-m", "attnbench", "choose", "mine.jsonl", "--force").stdout


def heard(stderr: str) -> list[str]:
    """Return the sentences of attnbench on stderr."""
    return [line[line.index("attnbench: ") :] for line in stderr.splitlines() if "attnbench: " in line]


def told(name: str, way: str, pairs: int, options: list[str]) -> bool:
    """Go the whole way for a program, and print its row. Return whether it keeps what was promised."""
    from attnbench.choice.table import read_table
    from attnbench.stats.tests import median_interval

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        chosen(folder, name, way, *options)
        entries = read_table(folder / "choice.toml").choices
        words = ["--measure", name, "--pairs", str(pairs), "choice.toml"]
        done = ran(folder, here(), *words)
    found = json.loads(done.stdout)
    ratios = [one / other for one, other in zip(found["choice"], found["torch"], strict=True)]
    interval = median_interval(ratios)
    promised = ", ".join(f"{one.backend} {one.gain:.2f}" for one in entries) or "none"
    print(
        f"| {name} | {way} | {promised} | {1e3 * median(found['torch']):.1f} | {median(ratios):.3f} "
        f"[{interval.low:.3f}, {interval.high:.3f}] | {found['apart']:.0e} |"
    )
    sentences = heard(done.stderr)
    print("\n".join(f"    {one}" for one in sentences), file=sys.stderr, flush=True)
    if entries:
        return interval.high < 1 and any("the choice serves" in one for one in sentences)
    return any("no entry" in one for one in sentences)


HEADS = (
    "| program | way | promised: torch's function, times as long | step, ms | with the choice / without "
    "| outputs apart |"
)


def main() -> int:
    """Print the table, or be one of the programs."""
    options = argparse.ArgumentParser()
    options.add_argument("programs", nargs="*", default=[])
    options.add_argument("--pairs", type=int, default=100)
    options.add_argument("--way", choices=("capture", "config"))
    options.add_argument("--backend", action="append", default=[])
    options.add_argument("--step", choices=PROGRAMS)
    options.add_argument("--measure", choices=PROGRAMS)
    given = options.parse_args()
    if given.step:
        from torch.nn import functional

        PROGRAMS[given.step].make()(functional.scaled_dot_product_attention)
        return 0
    if given.measure:
        json.dump(measure(given.measure, given.programs[0], given.pairs), sys.stdout)
        return 0
    print(f"{HEADS}\n|{'---|' * 6}", flush=True)
    ways = [given.way] if given.way else ["capture", "config"]
    words = [f"--backend={name}" for name in given.backend]
    kept = [told(name, way, given.pairs, words) for name in given.programs or PROGRAMS for way in ways]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
