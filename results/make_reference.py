"""Make the reference runs anew, and what documents show of them. Usage: python results/make_reference.py

On an idle machine, with an attnbench that is installed (pip install -e .): about eight minutes. Writes
results/reference-SUITE.jsonl for each suite, then the table of the README and docs/pictures/report.png, for
which Chromium and playwright must be there; with --only-documents it measures nothing.
tests/docs/test_reference.py holds the documents against the files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "pictures" / "report.png"
MADE_OF = PICTURE.with_suffix(".json")
"""Which runs the picture shows."""
CHARTS = ("time",)
"""Which charts of the page have a picture of their own."""
SOME = ("eager", "sdpa_math", "sdpa_flash", "chunked", "per_head_loop")
"""Backends that are measured at every length of results/lengths.toml."""
SUITES: dict[str, tuple[str, ...]] = {
    "smoke": (),
    # Longer calls: enough budget for nine repetitions of each, which a verdict needs.
    "gpt2": ("--budget", "0.5", "--repetitions", "9"),
    "lengths": (
        "--budget",
        "0.5",
        "--repetitions",
        "9",
        *(word for one in SOME for word in ("--backend", one)),
    ),
    "bert-base": ("--budget", "0.5", "--repetitions", "9"),
}
SHOWN = "gpt2"
"""The suite whose answer stands in the README."""
BEGIN = "<!-- reference: written by python results/make_reference.py -->\n"
END = "<!-- end of reference -->\n"


def file_of(suite: str) -> Path:
    """The file of a suite's reference run."""
    return RESULTS / f"reference-{suite}.jsonl"


def shown_files() -> list[Path]:
    """The files of the page that the README's command makes, as a shell lists them."""
    return sorted(RESULTS.glob("reference-*.jsonl"))


def run_ids() -> list[str]:
    """The runs of these files, in order."""
    return [json.loads(file.read_text().partition("\n")[0])["run_id"] for file in shown_files()]


def table() -> str:
    """The answer of a run as a terminal shows it, and where it comes from."""
    from attnbench.api import load
    from attnbench.reports.table import View
    from attnbench.reports.table import table as shown

    run = load(file_of(SHOWN))
    started, cpu = run.manifests[0].started, run.manifests[0].environment["cpu"]
    text = shown(run.parts, View(width=100))
    return (
        f"`attnbench report results/reference-{SHOWN}.jsonl`, measured on {started[:10]}, one thread of "
        f"{cpu}:\n\n```text\n{text}```\n"
    )


def with_table(text: str) -> str:
    """The README with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def measure(suites: Iterable[str]) -> None:
    """Run suites into a file each, in the place of the one before."""
    for suite in suites:
        options = SUITES[suite]
        with tempfile.TemporaryDirectory() as folder:
            # In a folder of its own, so that the file names none.
            own = RESULTS / f"{suite}.toml"
            if own.exists():
                shutil.copy(own, folder)
            word = own.name if own.exists() else suite
            command = [sys.executable, "-m", "attnbench", "run", word, *options, "--out", "run.jsonl"]
            done = subprocess.run(command, cwd=folder, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}")
            shutil.copyfile(Path(folder) / "run.jsonl", file_of(suite))


def draw() -> None:
    """Take a picture of the page that all reference runs make."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        files = [str(file.relative_to(ROOT)) for file in shown_files()]
        command = [sys.executable, "-m", "attnbench", "report", *files, "--html", str(page)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        # Chromium's sandbox refuses to start as root, as in a container.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 1600})
        tab.goto(page.as_uri())
        PICTURE.parent.mkdir(exist_ok=True)
        tab.screenshot(path=str(PICTURE))
        for name in CHARTS:
            tab.wait_for_selector(f"#chart-{name}[data-drawn]")
            tab.locator(f"#chart-{name}").screenshot(path=str(PICTURE.with_stem(f"report-{name}")))
        browser.close()
    MADE_OF.write_text(json.dumps({"runs": run_ids()}) + "\n")


def main() -> None:
    """Measure unless told otherwise; then write documents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; all unless said")
    parser.add_argument("--only-documents", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    unknown = [suite for suite in asked.suites if suite not in SUITES]
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    if not asked.only_documents:
        measure(asked.suites or SUITES)
    README.write_text(with_table(README.read_text()))
    draw()


if __name__ == "__main__":
    main()
