"""The details of a processor: in clouds several generations have the same name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from attnbench.cases.memory import PROC, read

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_IDENTITY = (
    ("cpu family", "family"),
    ("model", "model"),
    ("CPU implementer", "implementer"),
    ("CPU part", "part"),
)
"""Fields of /proc/cpuinfo, of x86 and then of ARM, and how they are called here."""
_INSTRUCTIONS = (
    ("AMX", "amx_tile"),
    ("AVX-512 FP16", "avx512_fp16"),
    ("AVX-512 BF16", "avx512_bf16"),
    ("AVX-512", "avx512f"),
    ("AVX2", "avx2"),
    ("AVX", "avx"),
    ("SVE2", "sve2"),
    ("SVE", "sve"),
    ("NEON", "asimd"),
)
"""Instruction sets for matrices and vectors, the widest first, each with the flag that says it is there."""
_CACHE_UNITS = {"K": 2**10, "M": 2**20}


def cpu_details(proc: Path = PROC, caches: Path = _CACHES) -> str:
    """Return family, model, caches from the first level on, and the widest instructions; "" if unknown."""
    facts: dict[str, str] = {}
    for line in read(proc / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    words = [
        " ".join(f"{word} {facts[name]}" for name, word in _IDENTITY if facts.get(name)),
        _cache_words(caches),
        _widest(facts),
    ]
    return ", ".join(filter(None, words))


def _widest(facts: Mapping[str, str]) -> str:
    flags = {*facts.get("flags", "").split(), *facts.get("Features", "").split()}
    return next((name for name, flag in _INSTRUCTIONS if flag in flags), "")


def largest_cache_bytes(details: str) -> int | None:
    """Return the bytes of the largest cache that :func:`cpu_details` tells; None where it tells none."""
    sizes = re.search(r"\bcaches((?: \d+[KM])+)", details)
    if sizes is None:
        return None
    return max(int(size[:-1]) * _CACHE_UNITS[size[-1]] for size in sizes[1].split())


def _cache_words(caches: Path) -> str:
    """Return the sizes of the caches that hold data, by level: ``caches 48K 1M 32M``."""
    sizes: dict[str, str] = {}
    for index in sorted(caches.glob("index*")):
        size = re.fullmatch(r"(\d+)K", read(index / "size").strip())
        if size and read(index / "type").strip() in ("Data", "Unified"):
            kib = int(size[1])
            sizes[read(index / "level").strip()] = f"{kib}K" if kib % 1024 else f"{kib // 1024}M"
    return " ".join(["caches", *(sizes[level] for level in sorted(sizes))]) if sizes else ""
