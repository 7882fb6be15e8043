"""How long help takes, over the interpreter alone. Prints figures; asserts nothing.

The target is 100 ms more than the interpreter alone. Usage: python tests/benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

TIMES = 30
COMMANDS = {"interpreter alone": ["-c", ""], "attnbench --help": ["-m", "attnbench", "--help"]}


def start_ms(words: list[str]) -> float:
    """The wall time of one process, ms."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    """Take turns, so that a busy moment hits both."""
    taken = [[start_ms(words) for words in COMMANDS.values()] for _ in range(TIMES)]
    for name, column in zip(COMMANDS, zip(*taken, strict=True), strict=True):
        print(f"{name:18} {median(column):6.1f} ms")
    print(f"{'more':18} {median(helping - bare for bare, helping in taken):6.1f} ms")


if __name__ == "__main__":
    main()
