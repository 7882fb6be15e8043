"""Compare time and memory of ``fused_additive`` with those of the broadcast form.

Run on a quiet machine, one thread::

    python plugins/attnbench-additive/tests/measure.py [--rounds N] [--length L] [--long L] [--pass PASS]

Calls of both take turns, on new inputs in each round; the script compares their outputs once. It prints
medians, the median ratio of the rounds with its range, and the extra memory of a call. Then it measures
``fused_additive`` alone on a case of length ``--long``, which is too long for the broadcast form. Sizes: B1
H8 D64 float32. ``attnbench check`` checks the outputs.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

# Thresholds of the C allocator, as in timed processes: memory that a call frees is kept for the next.
PINNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import torch
from attnbench_additive import FUSED_ADDITIVE

from attnbench.backends.eager import EAGER
from attnbench.cases.ids import parse_case
from attnbench.check.gradients import leaf_inputs, passed, with_gradients
from attnbench.inputs.draw import draw_activations, draw_parameters
from attnbench.rules import attnbench_rules
from attnbench.timing.memory import peak_extra_bytes
from attnbench.types.backend import Setup

BACKENDS = {backend.name: backend for backend in (EAGER, FUSED_ADDITIVE)}
RULES = {rule.name: rule for rule in attnbench_rules()}


class Contender:
    """A backend prepared for a case: a call without arguments, on inputs of its own."""

    def __init__(self, name: str, text: str) -> None:
        case = parse_case(text)
        rule = RULES[case.rule]
        own = {name: torch.from_numpy(x) for name, x in draw_parameters(case, rule).rule.items()}
        setup = Setup(case, rule, rule.bind(case, own), own, {})
        drawn = tuple(torch.from_numpy(x) for x in draw_activations(case, rule, 1, 0))
        self.pass_ = case.pass_
        if case.pass_ == "forward":
            self.call, self.inputs = BACKENDS[name].prepare(setup), drawn
            return
        setup = with_gradients(setup)
        self.inputs = leaf_inputs(drawn)  # type: ignore[arg-type]
        upstream = torch.randn(case.B, case.H, case.Lq, case.Dv)
        self.call = passed(BACKENDS[name].prepare(setup), setup, upstream)

    def __call__(self) -> torch.Tensor:
        with torch.inference_mode(self.pass_ == "forward"):
            out = self.call(*self.inputs)
        return out if self.pass_ == "forward" else out[0]

    def renew(self, drawn: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for own, new in zip(self.inputs, drawn, strict=True):
                own.copy_(new)

    def timed_ms(self) -> float:
        begin = time.perf_counter()
        self()
        return (time.perf_counter() - begin) * 1e3


def extra_mib(contender: Contender) -> float:
    peak = peak_extra_bytes(contender)
    return float("nan") if peak is None else peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--long", type=int, default=8192)
    parser.add_argument("--rule", choices=("additive", "additive_sum"), default="additive")
    parser.add_argument("--pass", dest="pass_", choices=("forward", "both"), default="forward")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    form = f"attention/{chosen.rule}/B1-H8-L{{}}-D64/none/float32/{chosen.pass_}"
    print(f"{form.format(chosen.length)}, torch {torch.__version__}, load average {os.getloadavg()[0]:.1f}")
    names = ("eager", "fused_additive")
    both = [Contender(name, form.format(chosen.length)) for name in names]
    taken: list[list[float]] = []
    for number in range(chosen.rounds + 1):
        drawn = [torch.randn_like(x) for x in both[0].inputs]
        for contender in both:
            contender.renew(drawn)
        if number == 0:
            first, second = (contender() for contender in both)
            print(f"outputs differ by {float((first - second).abs().max()):.1e} at most")
            continue
        # A call before the timed one has whatever the other's call pushed out of the caches back again.
        order = (0, 1) if number % 2 else (1, 0)
        times = {at: both[at].timed_ms() for at in order if both[at]() is not None}
        taken.append([times[0], times[1]])
    ratios = [slow / fast for slow, fast in taken]
    for at, name in enumerate(names):
        column = [times[at] for times in taken]
        print(
            f"{name:15} {median(column):9.1f} ms ({min(column):.1f} to {max(column):.1f}), "
            f"{extra_mib(both[at]):7.0f} MiB extra"
        )
    print(f"{'times faster':15} {median(ratios):9.1f}    ({min(ratios):.1f} to {max(ratios):.1f})")
    del both
    alone = Contender("fused_additive", form.format(chosen.long))
    alone()
    print(f"L{chosen.long:<14} {alone.timed_ms():9.1f} ms, {extra_mib(alone):7.0f} MiB extra")


if __name__ == "__main__":
    if any(name not in os.environ for name in PINNED):
        import sys

        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | PINNED)
    main()
