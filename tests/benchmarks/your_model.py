"""From small models to a choice: the gain that was predicted, and the one that is measured.

For each model: one step is captured, its suite is run, a backend is chosen for each case, and the choice is
installed. Then steps with and without it alternate in random order in one process, with one set of weights.
The table has the time that the run predicts the choice to save, and the time that it saves.

    python tests/benchmarks/your_model.py [--pairs 100] [MODEL]...

It needs transformers. On a quiet machine of two cores it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

Step = Callable[[], Any]
THREADS = 1


def decoder(kind: str, window: int | None) -> Any:
    """A Mistral of four layers and two key/value heads."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=256, hidden_size=256, intermediate_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, sliding_window=window, max_position_embeddings=2048,
    )  # fmt: skip
    return MistralForCausalLM._from_config(config, attn_implementation=kind)


def prefill(kind: str) -> tuple[Any, Step]:
    """One forward pass of the decoder, with a window of 64 keys, over 1,024 tokens."""
    import torch

    model, tokens = decoder(kind, 64).eval(), torch.randint(1, 256, (1, 1024))

    def step() -> Any:
        with torch.no_grad():
            return model(tokens, use_cache=False).logits

    return model, step


def decoding(kind: str) -> tuple[Any, Step]:
    """Eight further tokens of four sentences, with a cache of 1,024 keys each and no window."""
    import torch
    from transformers import DynamicCache

    model, token, cache = decoder(kind, None).eval(), torch.randint(1, 256, (4, 1)), DynamicCache()
    for layer in range(4):
        cache.update(torch.randn(4, 2, 1024, 32), torch.randn(4, 2, 1024, 32), layer)

    def step() -> Any:
        with torch.no_grad():
            logits = [model(token, past_key_values=cache, use_cache=True).logits for _ in range(8)]
        cache.crop(-8)
        return torch.cat(logits, dim=1)

    return model, step


def encoder(kind: str) -> tuple[Any, Step]:
    """One forward pass of a BERT of four layers, over 16 sentences of 64 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=256, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=256
    )
    model = BertModel._from_config(config, attn_implementation=kind).eval()
    tokens = torch.randint(1, 256, (16, 64))

    def step() -> Any:
        with torch.no_grad():
            return model(tokens).last_hidden_state

    return model, step


MODELS = {"prefill": prefill, "decoding": decoding, "encoder": encoder}


def measure(name: str, choice: str, pairs: int) -> dict[str, Any]:
    """Return the times of steps in seconds, without and with the choice, and how far outputs differ."""
    import torch

    import attnbench.integrations.transformers as integration

    integration.install(choice)
    torch.set_num_threads(THREADS)
    model, step = MODELS[name]("sdpa")
    outputs, times = {}, {"sdpa": [], "attnbench": []}
    for kind in times:
        model.set_attn_implementation(kind)
        outputs[kind] = step()
        step()
    for _ in range(pairs):
        for kind in random.sample(list(times), 2):
            model.set_attn_implementation(kind)
            start = time.perf_counter()
            step()
            times[kind].append(time.perf_counter() - start)
    first, second = outputs.values()
    return times | {"apart": float((first - second).abs().max()), "scale": float(first.abs().max())}


def run(folder: Path, *words: str) -> None:
    """Run a command, with what it prints in a file."""
    with (folder / "log.txt").open("a") as log:
        subprocess.run([sys.executable, *words], cwd=folder, check=True, stdout=log, stderr=log)


def told(folder: Path, name: str, pairs: int) -> list[str]:
    """Go the whole way for a model, and return a row of the table."""
    import msgspec

    from attnbench.api import load
    from attnbench.choice.table import decide, saving
    from attnbench.cli.choose import LEAST_CALLS
    from attnbench.plugins.registry import load_registry
    from attnbench.stats.tests import median_interval

    here = str(Path(__file__).resolve())
    run(
        folder, "-m", "attnbench", "capture", "--out", "mine.toml", "--", sys.executable, here, "--step", name
    )
    run(folder, "-m", "attnbench", "run", "mine.toml", "--out", "mine.jsonl")
    run(folder, "-m", "attnbench", "choose", "mine.jsonl")
    found = load(folder / "mine.jsonl")
    (answer,) = found.answers
    torchs = next(one for one in answer.totals if one.backend == "sdpa_flash")
    decisions = decide(found, load_registry(), "sdpa_flash", LEAST_CALLS)
    chosen = sum(one.choice is not None for one in decisions)
    predicted = saving(found, decisions, "sdpa_flash").get(("", 0))
    done = subprocess.run(
        [sys.executable, here, "--measure", name, "--pairs", str(pairs), str(folder / "choice.toml")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    times = msgspec.json.decode(done.stdout)
    apart = [a - b for a, b in zip(times["sdpa"], times["attnbench"], strict=True)]
    whole = sorted(times["sdpa"])[pairs // 2]
    return [
        name, f"{chosen} of {len(decisions)}", f"{1e3 * whole:.1f}", f"{torchs.ms:.2f}", in_ms(*predicted),
        in_ms(1e3 * median(apart), median_interval([1e3 * one for one in apart])),
        f"{times['apart'] / times['scale']:.0e}",
    ]  # fmt: skip


def in_ms(ms: float, interval: Any) -> str:
    """Return a time with its interval."""
    return f"{ms:.2f}" + (f" [{interval.low:.2f}, {interval.high:.2f}]" if interval and interval.high else "")


HEADS = (
    "| model | cases chosen | step, ms | attention in it | predicted gain, ms | measured gain, ms "
    "| outputs apart |"
)


def main() -> None:
    """Print the table, or do one of its parts."""
    options = argparse.ArgumentParser()
    options.add_argument("models", nargs="*", default=[])
    options.add_argument("--pairs", type=int, default=100)
    options.add_argument("--step", choices=MODELS)
    options.add_argument("--measure", choices=MODELS)
    given = options.parse_args()
    if given.step:
        import torch

        torch.set_num_threads(THREADS)
        MODELS[given.step]("sdpa")[1]()
    elif given.measure:
        json.dump(measure(given.measure, given.models[0], given.pairs), sys.stdout)
    else:
        print(f"{HEADS}\n|{'---|' * 7}", flush=True)
        for name in given.models or MODELS:
            with tempfile.TemporaryDirectory() as folder:
                print("| " + " | ".join(told(Path(folder), name, given.pairs)) + " |", flush=True)


if __name__ == "__main__":
    main()
