"""What a campaign found: its files read back, published ratios beside ours, and what does not hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device import MUST, NEEDED, NEWEST_TORCH, OLDEST_TORCH
from steps import Step

NEAR = 0.05
"""How far a ratio may be from the published one."""
BANDWIDTH_AT_LEAST, CLOCK_AT_LEAST = 0.80, 0.75
FINE = ("ok", "unsupported", "unavailable")
REFUSED = {"mismatch", "suspect", "inaccurate"}

SENSED = (("clocks.sm", "MHz"), ("temperature.gpu", "°C"), ("power.draw", "W"))
WENT = (("complete", "complete"), ("stopped", "cut off"))

Json = dict[str, Any]


@dataclass(frozen=True)
class Anchor:
    """A published speed of one backend over that of ``sdpa_flash`` (FlashAttention-2).

    over: the backend, by any of its names. D: of the head, 0 where the source states none. cards: it holds on
    those with one of these words in their name.
    """

    over: tuple[str, ...]
    D: int
    mask: str
    pass_: str
    ratio: float
    source: str = "H100, 16k: Shah et al., FlashAttention-3 (2024)"
    cards: tuple[str, ...] = ("H100", "H200")
    steps: tuple[str, ...] = ("anchors-forward", "anchors-backward", "whole")


CUDNN, FA3 = ("sdpa_cudnn",), ("flash_attn_3", "kernels_flash_attn3")
ANCHORS = (
    Anchor(CUDNN, 64, "none", "forward", 1.27),
    Anchor(CUDNN, 64, "causal", "forward", 1.30),
    Anchor(CUDNN, 128, "none", "forward", 1.61),
    Anchor(CUDNN, 128, "causal", "forward", 1.61),
    Anchor(CUDNN, 64, "none", "backward", 1.49),
    Anchor(CUDNN, 128, "none", "backward", 1.60),
    Anchor(FA3, 64, "none", "forward", 1.53),
    Anchor(FA3, 64, "causal", "forward", 1.58),
    Anchor(FA3, 128, "none", "forward", 1.75),
    Anchor(FA3, 128, "causal", "forward", 1.84),
    Anchor(FA3, 64, "none", "backward", 1.63),
    Anchor(FA3, 128, "none", "backward", 1.74),
    Anchor(("triton_flash",), 128, "none", "forward", 1.07, "H100, 16k: Triton's tutorial, ibid."),
    Anchor(
        ("flex",), 0, "", "forward", 0.90, "A100: He et al., FlexAttention (2024)", ("A100",), ("kernels",)
    ),
)


def summary(
    work: Path, planned: Sequence[Step], state: Json, device: str, no_page: str = ""
) -> tuple[str, list[str]]:
    """Return the summary as Markdown, and what does not hold, a sentence each.

    no_page: why there is no page, the first of these.
    """
    environment, peaks = json_of(work / "environment.json"), json_of(work / "peaks.json")
    records = {step.name: _records(work / step.file) for step in planned if step.kind in ("run", "check")}
    failed = [no_page] if no_page else []
    card = environment.get("sensors", {}).get("name") or environment.get("card", "")
    parts = [
        f"# Campaign on {card or 'a machine without a GPU'}",
        "A dry run on the CPU: its figures mean nothing." if device == "cpu" else "",
        _software(environment, device, failed),
        _went(planned, state, failed),
        _statuses(records, failed),
        _anchors(records, card, failed),
        _speeds(records, peaks, failed),
        _selftest(work, failed),
        _judge(work, failed),
        _clocks(work, planned, failed),
        "\n".join(
            ["## What does not hold", "", *(f"- {one}" for one in failed)]
            if failed
            else ["Everything holds."]
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n", failed


def _software(environment: Json, device: str, failed: list[str]) -> str:
    if not environment:
        return ""
    found = environment["packages"]
    carry = ": put what its wheel holds on PYTHONPATH"
    failed += [
        f"{name} is not installed; it is needed for {NEEDED[name]}{carry if name in MUST else ''}"
        for name, version in found.items() if not version
    ]  # fmt: skip
    if found["torch"] and not _tried(found["torch"]):
        failed.append(f"torch {found['torch']}: attnbench was tried with {OLDEST_TORCH} to {NEWEST_TORCH}")
    if device == "cuda" and not environment["gpu"]:
        failed.append("torch finds no CUDA device; --dry, with another folder, makes every step on the CPU")
    facts = {name: value for name, value in environment.items() if not isinstance(value, dict)}
    rows = [(name, _shown(value)) for name, value in (facts | found | environment["sensors"]).items()]
    return _table(("device and software", ""), rows)


def _tried(version: str) -> bool:
    numbers = [
        tuple(map(int, re.findall(r"\d+", text)[:2])) for text in (OLDEST_TORCH, version, NEWEST_TORCH)
    ]
    return numbers == sorted(numbers)


def _went(planned: Sequence[Step], state: Json, failed: list[str]) -> str:
    rows, later = [], []
    for step in planned:
        one = state.get(step.name, {})
        went = "not begun" if not one else next((word for key, word in WENT if one[key]), "failed")
        after = ", ".join(
            f"{one['sensors'][key]} {unit}" for key, unit in SENSED if one and key in one["sensors"]
        )
        rows.append((step.name, step.shows, went, f"{one['seconds']:.0f} s" if one else "", after))
        if went == "failed":
            failed.append(f"step {step.name} failed with status {one['exit']}: {last_line(one['tail'])}")
        elif went != "complete":
            later.append(step.name)
    if later:
        failed.append(f"not done yet: {', '.join(later)}; make another visit with the same folder")
    return _table(("step", "shows", "", "took", "device afterwards"), rows)


def _statuses(records: dict[str, list[Json]], failed: list[str]) -> str:
    rows = []
    for name, some in ((name, some) for name, some in records.items() if some):
        rows.append(
            (name, ", ".join(f"{n} {word}" for word, n in Counter(r["status"] for r in some).items()))
        )
        odd = Counter((r["backend"], r["status"], r["reason"]) for r in some if not _is_fine(r))
        failed += [
            f"{name}: {backend} is {status} on {count_} of its cases: {reason}"
            for (backend, status, reason), count_ in odd.items()
        ]
    return _table(("run", "records"), rows) if rows else ""


def _is_fine(record: Json) -> bool:
    return record["status"] in FINE or (record["status"] == "inaccurate" and not record["failed_check"])


def _anchors(records: dict[str, list[Json]], card: str, failed: list[str]) -> str:
    """Put published ratios of this card, and of the shapes that have them, beside ours."""
    rows = []
    anchored = (
        (anchor, one)
        for anchor in ANCHORS if any(word in card for word in anchor.cards)
        for step in anchor.steps
        for one in records.get(step, ()) if _is_of(anchor, one)
    )  # fmt: skip
    for anchor, one in anchored:
        ours, low, high = (1 / one[end] if one[end] else None for end in ("ratio", "ratio_high", "ratio_low"))
        off = ours / anchor.ratio - 1
        here = f"{ours:.2f} ({_shown(low)} to {_shown(high)})"
        rows.append((one["backend"], one["case"], here, f"{anchor.ratio:.2f}", f"{off:+.0%}", anchor.source))
        if abs(off) > NEAR:
            failed.append(
                f"{one['backend']} on {one['case']}: {ours:.2f} of sdpa_flash, published {anchor.ratio:.2f}"
            )
    head = ("backend", "case", "speed over sdpa_flash", "published", "off by", "source")
    return _table(head, rows) if rows else ""


def _is_of(anchor: Anchor, record: Json) -> bool:
    _, _, sizes, mask, _, _, pass_, *_ = record["case"].split("/")
    same = (
        anchor.mask in ("", mask)
        and anchor.pass_ == pass_
        and (not anchor.D or sizes.endswith(f"-D{anchor.D}"))
    )
    return bool(
        same and record["backend"] in anchor.over and record["ratio"] and record["baseline"] == "sdpa_flash"
    )


def _speeds(records: dict[str, list[Json]], peaks: Json, failed: list[str]) -> str:
    """Put the fastest backend of each case beside the peak that this campaign measured."""
    products = peaks.get("gemm_tflops", {})
    rows = [
        (f"product of side {peaks['side']}", dtype, f"{rate:.4g} TFLOP/s", "")
        for dtype, rate in products.items()
    ]
    rows += [("copy, read and written", "", f"{peaks['copy_gbps']:.4g} GB/s", "")] if peaks else []
    for name, some in ((name, some) for name, some in records.items() if name != "smoke"):
        decodes = name == "decode"
        key, unit = ("gbps", "GB/s") if decodes else ("tflops", "TFLOP/s")
        best = {one["case"]: one for one in sorted(some, key=lambda one: one[key] or 0.0) if one[key]}
        for case, one in best.items():
            peak = peaks.get("copy_gbps") if decodes else products.get(case.split("/")[4])
            share = one[key] / peak if peak else 0.0
            rows.append((case, one["backend"], f"{one[key]:.4g} {unit}", f"{share:.0%}" if share else ""))
            if decodes and 0 < share < BANDWIDTH_AT_LEAST:
                failed.append(
                    f"decode: {one['backend']} reaches {share:.0%} of the copy's bandwidth on {case}"
                )
    return _table(("case", "fastest", "speed", "of the peak"), rows) if rows else ""


def _selftest(work: Path, failed: list[str]) -> str:
    rows = []
    for name in ("aa", "power"):
        for one in (one for one in json_of(work / f"{name}.json").get("findings", []) if one["trials"]):
            cells = f"{one['events']} of {one['trials']}"
            rows.append((name, one["what"], cells, f"{one['side']} {one['target']:.1%}"))
            if one["events"] > 0 if one["side"] == "at most" else one["events"] < one["trials"]:
                failed.append(f"selftest {name}: {one['what']}: {cells}")
    return _table(("self-test", "", "cells", "target"), rows) if rows else ""


def _judge(work: Path, failed: list[str]) -> str:
    """Count mutants by their records, which are there also where the judge was cut off."""
    seen: dict[str, dict[str, str]] = {}
    for file in sorted((work / "judge-runs").glob("*.jsonl")):
        for one in (one for one in _records(file) if one["status"] not in FINE[1:]):
            seen.setdefault(one["backend"], {})[one["status"]] = one["reason"]
    wrong = [name for name in seen if name.startswith("wrong_")]
    passed = [name for name in wrong if not seen[name].keys() & REFUSED]
    wronged = [name for name in seen if name.startswith("right_") and seen[name].keys() != {"ok"}]
    for words, names in (("was not refused", passed), ("was refused", wronged)):
        failed += [
            f"judge: {name} {words}: {'; '.join(map(': '.join, seen[name].items()))}" for name in names
        ]
    if not seen:
        return ""
    counts = f"{len(wrong) - len(passed)} of {len(wrong)} wrong backends were refused"
    return f"Judge: {counts}, and {len(wronged)} of {len(seen) - len(wrong)} right ones."


def _clocks(work: Path, planned: Sequence[Step], failed: list[str]) -> str:
    """Return the range of the clock in the samples of each run, beside the device's own."""
    rows = []
    for step in (step for step in planned if step.kind == "run"):
        repetitions = [line for line in lines_of(work / step.file) if line.get("kind") == "repetition"]
        blocks = [
            block
            for line in repetitions
            for of in line["samples"].values()
            for block in of
            if block.get("mode")
        ]
        clocks = [mhz for block in blocks for mhz in block["clock_mhz"] if mhz]
        own = max((block["default_clock_mhz"] for block in blocks), default=0)
        if clocks:
            rows.append((step.name, f"{min(clocks)} to {max(clocks)} MHz", f"{own} MHz"))
        if blocks and (not clocks or min(clocks) < CLOCK_AT_LEAST * own):
            failed.append(
                f"{step.name}: the clock of some samples is {min(clocks, default='unknown')} MHz, of {own}"
            )
    return _table(("run", "clock of its samples", "the device's own"), rows) if rows else ""


def _records(file: Path) -> list[Json]:
    return [line for line in lines_of(file) if line.get("kind") == "record"]


def lines_of(file: Path) -> Iterator[Json]:
    """Yield the lines of a run file; the last may be cut off."""
    for line in file.read_text("utf-8", "replace").splitlines() if file.is_file() else ():
        try:
            found = json.loads(line)
        except ValueError:
            return
        yield found


def json_of(file: Path) -> Json:
    """Return the object in a file; an empty one where there is none, or a kill cut it off."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _shown(value: object) -> str:
    return "missing" if value in (None, "") else f"{value:.2f}" if isinstance(value, float) else str(value)


def last_line(text: str) -> str:
    """Return the last line of an output that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
