"""The steps of a campaign, most valuable first: what each runs, how long it may take, what it is to show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

FUSED = (
    "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "triton_flash", "flash_attn", "flash_attn_3",
    "kernels_flash_attn3",
)  # fmt: skip
"""Backends without a score matrix, which run at 16k tokens. The first is the baseline: FlashAttention-2."""

BATCHES = (
    "attention/scaled_dot/q5s40_q1s33_q40_q0s7-H4-Hkv2-D64/causal:lower_right/bfloat16/packed/lse",
    "attention/scaled_dot/q3s300_2q1s513-H4-Hkv2-D64/causal:lower_right/bfloat16/paged:256/lse",
    "attention/scaled_dot/4q1s513-H8-Hkv2-D128/causal:lower_right/bfloat16/paged:256",
    "recurrent/gated_delta/q17_q0_q70-H4-Hkv2-D128/bfloat16/packed",
    "recurrent/gated/B2-H4-L70-D64/float32",
)
"""Cases of the libraries' functions for serving and recurrences."""


@dataclass(frozen=True)
class Step:
    """One process of a campaign.

    name: of its file. kind: what makes the file: device.py, or a command of attnbench. words: of the command.
    most_s: how long it may take before it is interrupted; a run goes on in a later visit. One visit reaches
    all steps up to the slower code, since these limits together are a visit. shows: what it is to show, for
    the summary.
    """

    name: str
    kind: Literal["device", "run", "check", "selftest"]
    words: tuple[str, ...]
    most_s: float
    shows: str

    @property
    def file(self) -> str:
        """The name of the file that it writes."""
        return f"{self.name}.jsonl" if self.kind in ("run", "check") else f"{self.name}.json"


def steps(device: str, have: Collection[str]) -> tuple[Step, ...]:
    """Return the steps on a device; on the CPU the same steps, as small as they can be.

    have: the names of the backends that are installed.
    """
    card = device == "cuda"
    on, part = ("--device", device), 8 if card else 64

    def backends(*names: str) -> tuple[str, ...]:
        asked = names if card else ("sdpa_flash", "eager")
        return tuple(word for name in asked if name in have for word in ("--backend", name))

    def case(D: int, mask: str, pass_: str, width: int = 512, L: int = 16384) -> str:
        # A quarter of the heads of paper-flash: of the whole shape the oracle needs a minute for each case.
        H, length, dtype = (width // D, L, "float16") if card else (2, 48, "float32")
        return f"attention/scaled_dot/B1-H{H}-L{length}-D{D}/{mask}/{dtype}/{device}/{pass_}"

    def edges(k: int) -> Step:
        words = ("edges", *on, "--shard", f"{k}/{part}", *few)
        return Step(f"edges-{k}", "check", words, 45, f"backends are right at the edges, part {k}")

    few = () if card else backends()
    timed = (*on, "--baseline", "sdpa_flash", "--repetitions", "3", "--budget", "0.3" if card else "0.01")
    fused = (*backends(*FUSED), *timed)
    prefill, layer = (
        "attention/scaled_dot/B2-H4-Hkv2-L256-D64/causal",
        "multihead/scaled_dot/B2-H4-L128-D64-E256",
    )
    forward = (case(D, mask, "forward") for D in (128, 64) for mask in ("none", "causal"))
    backward = (case(D, "none", "backward") for D in (128, 64))
    decode = ("B16-H32-Hkv8-Lq1-Lk2048", "B16-H16-Lq1-Lk1024") if card else ("B2-H4-Hkv2-Lq1-Lk64",)
    half = ("--dtype", "bfloat16", *(("--dtype", "float16") if card else ()))
    trials = ("--budget", "0.25", "--trials", "2") if card else ("--budget", "0.05", "--trials", "1")
    lengths = ("--length", "512") if card else ("--length", "16")
    plain = () if card else ("--backend", "per_sequence", "--backend", "recurrent_loop")
    mutants = () if card else ("--only", "scale_twice", "--only", "zeros_after_3_calls", "--only", "plain")
    return (
        Step("environment", "device", ("environment",), 60, "the device and its software"),
        Step("peaks", "device", ("peaks",), 30, "products and a copy at full speed"),
        Step("smoke", "run", ("smoke", *on, *few, *(() if card else ("--rule", "dot"))), 80, "every status"),
        Step("aa", "selftest", ("aa", *on, *trials, *lengths), 90, "identical code"),
        Step("anchors-forward", "run", (*forward, *fused), 80, "forward passes of 16k tokens"),
        Step(
            "decode", "run", (*(f"attention/scaled_dot/{each}-D128/none/float16" for each in decode), *fused),
            60, "decoding against the bandwidth",
        ),
        Step("judge", "selftest", ("judge", *on, *mutants), 50, "wrong backends are refused"),
        Step("power", "selftest", ("power", *on, *trials[:2], "--trials", "1", *lengths), 80, "slower code"),
        Step("anchors-backward", "run", (*backward, *fused), 50, "backward passes of 16k tokens"),
        Step(
            "half", "check",
            (prefill, layer, *on, *few, *half, "--pass", "forward", "--pass", "both"),
            75, "every backend is right in half precision",
        ),
        Step(
            "batches", "check", (*(each for each in BATCHES if card or "256" not in each), *on, *plain),
            60, "packed sequences, pages and recurrences are right",
        ),
        Step(
            "kernels", "run",
            (case(128, "causal", "forward", 2048, 4096), *backends("sdpa_math", "flex", "compiled"), *fused),
            75, "kernels with a score matrix, or compiled, beside the fused ones",
        ),
        Step(
            "whole", "run", (case(128, "none", "forward", 2048), *backends(*FUSED[:3]), *timed),
            150, "the whole shape of the papers",
        ),
        *(edges(k) for k in range(1, part + 1 if card else 2)),
    )  # fmt: skip
