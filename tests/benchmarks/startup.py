"""How long help takes, over the interpreter alone, and with many plugins over none. Asserts nothing.

The targets are 100 ms more than the interpreter alone, and 60 ms more with plugins than without.
Usage: python tests/benchmarks/startup.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

TIMES = 30
PLUGINS = 20
HELP = ["-m", "attnbench", "--help"]


def start_ms(words: list[str], environment: dict[str, str]) -> float:
    """The wall time of one process, ms."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begin) * 1e3


def install(folder: Path) -> None:
    """Plugins that bring a command each and import torch, as a distribution has them."""
    for number in range(PLUGINS):
        name = f"attnbench_made_{number}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = (f"[{group}]\nmade-{number} = {name}:it\n" for group in ("attnbench", "attnbench.commands"))
        (info / "entry_points.txt").write_text("\n".join(points))
        (folder / f"{name}.py").write_text("import torch\n")


def main() -> None:
    """Take turns, so that a busy moment hits all."""
    with tempfile.TemporaryDirectory() as name:
        install(Path(name))
        bare = dict(os.environ)
        paths = [name, *filter(None, [os.environ.get("PYTHONPATH")])]
        full = bare | {"PYTHONPATH": os.pathsep.join(paths)}
        taken = [
            (start_ms(["-c", ""], bare), start_ms(HELP, bare), start_ms(HELP, full)) for _ in range(TIMES)
        ]
    words = ("interpreter alone", "attnbench --help", f"with {PLUGINS} plugins")
    for word, column in zip(words, zip(*taken, strict=True), strict=True):
        print(f"{word:18} {median(column):6.1f} ms")
    print(f"{'help, more':18} {median(helping - alone for alone, helping, _ in taken):6.1f} ms")
    print(f"{'plugins, more':18} {median(many - helping for _, helping, many in taken):6.1f} ms")


if __name__ == "__main__":
    main()
