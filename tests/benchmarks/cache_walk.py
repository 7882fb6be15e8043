"""Take the walk from a config to a cache, word for word. Usage: python tests/benchmarks/cache_walk.py

It takes the config and the commands from the section "Choose a cache" of docs/serving.md, and stores the run
as docs/measured/caches.jsonl. ``python tests/docs/written.py`` then writes what the page shows of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
RUN = DOCS / "measured" / "caches.jsonl"
"""The run that the page shows."""


def walk() -> tuple[str, str]:
    """Return the config of the section, and its first commands."""
    section = (DOCS / "serving.md").read_text().partition("\n## Choose a cache\n")[2]
    found = {
        language: re.search(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)
        for language in ("json", "sh")
    }
    config, commands = found["json"], found["sh"]
    assert config is not None
    assert commands is not None
    return config[1], commands[1]


def main() -> None:
    """Take the steps in an empty folder, with this Python's attnbench."""
    config, commands = walk()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(config)
        subprocess.run(["bash", "-euc", commands], cwd=folder, env=os.environ | {"PATH": path}, check=True)
        shutil.copy(Path(folder) / RUN.name, RUN)


if __name__ == "__main__":
    main()
