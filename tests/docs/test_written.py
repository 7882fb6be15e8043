"""What the documents show of commands, rules and weights is what the code says now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from attnbench.cli import attnbench

sys.path.insert(0, str(Path(__file__).parent))
import written

AGAIN = "write it again: python tests/docs/written.py"


def same(path: Path, made: str) -> None:
    assert path.read_text() == made, AGAIN


@pytest.mark.pinned
def test_the_page_of_commands() -> None:
    # In a process of its own: click keeps a command's help as it was first asked for, by whichever test.
    code = "import sys, written; sys.stdout.write(written.commands_page())"
    here = Path(__file__).parent
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True
    ).stdout
    same(written.DOCS / "commands.md", made)
    shown = dict(re.findall(r"^##+ (attnbench[^\n]*)\n\n```text\n(.*?)^```$", made, re.DOTALL | re.MULTILINE))
    assert {f"attnbench {name}" for name in attnbench.summaries} <= shown.keys()  # type: ignore[attr-defined]
    assert [path for path, text in shown.items() if f"\n  {path}" not in text] == [], "without an example"


@pytest.mark.parametrize(
    ("page", "name", "line"),
    [
        ("rules.md", "rules", "## scaled_dot"),
        ("reports.md", "columns", "| `median_ms` | time |"),
        ("reports.md", "summary", "| `next_ratio` |"),
        ("concepts.md", "statuses", "| `mismatch` |"),
        ("files.md", "checks", "| `values` |"),
        ("serving.md", "contracts", "| part of the contract |"),
        ("models.md", "models", "| llama-4-scout |"),
        ("versions.md", "versions", "| `torch` | "),
        ("serving.md", "caches", "| q8_0, float32 | right in int8 |"),
        ("index.md", "exit_status", "| 3 | a backend crashed"),
        ("plugins.md", "hooks", "| `attnbench_backends"),
    ],
)
def test_the_parts_made_from_tables(page: str, name: str, line: str) -> None:
    text = written.with_part(page, name, getattr(written, name)())
    same(written.DOCS / page, text)
    assert line in text


@pytest.mark.pinned
@pytest.mark.parametrize("name", written.PAGES_WITH_OUTPUT)
def test_what_commands_print(name: str) -> None:
    page = written.DOCS / name
    same(page, written.with_outputs(page.read_text()))
    assert all(found[4].strip() for found in written.OUTPUT.finditer(page.read_text()))


def test_every_page_with_output_is_looked_at() -> None:
    marked = {path.name for path in written.DOCS.glob("*.md") if "<!-- output " in path.read_text()}
    assert marked == set(written.PAGES_WITH_OUTPUT)
    for name in marked:
        text = (written.DOCS / name).read_text()
        assert text.count("<!-- output ") == len(written.OUTPUT.findall(text))


def test_the_picture_shows_the_weights() -> None:
    with click.Context(attnbench):
        weights = written.pictured()
    assert written.PICTURE.read_text() == written.svg([weights], written.PICTURED), AGAIN
    shown = [float(text) for text in re.findall(r">(0\.\d{4})</text>", written.PICTURE.read_text())]
    assert shown == [pytest.approx(value, abs=5e-5) for value in weights.values.ravel()]
