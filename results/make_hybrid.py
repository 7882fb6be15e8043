"""Measure a step of a hybrid model, and write its answer into docs/recurrent.md.

Usage: python results/make_hybrid.py

On an idle machine with two cores, about two minutes. docs/hybrid.json has the fields of Qwen3-Next,
sized for a CPU: 18 gated delta nets and 6 layers of full attention. results/reference-hybrid.jsonl gets the
run. With --only-documents it measures nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "docs" / "hybrid.json"
RUN = ROOT / "results" / "reference-hybrid.jsonl"
DOCS = ROOT / "docs" / "recurrent.md"
BACKENDS = ("recurrent_loop", "recurrent_chunked", "eager", "sdpa_math", "sdpa_flash", "bmm")
BEGIN = "<!-- hybrid: written by python results/make_hybrid.py -->\n"
END = "<!-- end of hybrid -->\n"


def suite(prefill: int = 512, decode: int = 4096) -> str:
    """Return the suite of the model, as TOML: a prompt, and a new token behind so many."""
    words = [f"--prefill={prefill}", f"--decode={decode}", "--threads=1"]
    command = [sys.executable, "-m", "attnbench", "suite", "from-config", str(CONFIG), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(text: str, out: Path, budget: float = 2.0, repetitions: int = 15) -> None:
    """Run a suite in a folder of its own, so that the file names none, and keep the run in ``out``."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hybrid.toml").write_text(text)
        words = [f"--backend={name}" for name in BACKENDS]
        words += [f"--budget={budget}", f"--repetitions={repetitions}", "--cache=rotating"]
        command = [sys.executable, "-m", "attnbench", "run", "hybrid.toml", *words, "--out", "run.jsonl"]
        subprocess.run(command, cwd=folder, check=True)
        shutil.copyfile(Path(folder) / "run.jsonl", out)


def answer(file: Path) -> str:
    """Return the answer of a run as a terminal shows it, and where it comes from."""
    from attnbench.api import load
    from attnbench.reports.table import View, table

    run = load(file)
    manifest = run.manifests[0]
    return (
        f"`attnbench report results/{file.name}`, measured on {manifest.started[:10]}, one thread of "
        f"{manifest.environment['cpu']}:\n\n```text\n{table(run.parts, View(width=80))}```\n"
    )


def with_answer(text: str) -> str:
    """Return the page with the answer as it should be: none before there is a run."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    between = f"\n{answer(RUN)}\n" if RUN.exists() else ""
    return f"{before}{BEGIN}{between}{END}{after}"


def main() -> None:
    """Measure unless told otherwise; then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only-documents", action="store_true", help="measure nothing")
    if not parser.parse_args().only_documents:
        measure(suite(), RUN)
    DOCS.write_text(with_answer(DOCS.read_text()))


if __name__ == "__main__":
    main()
