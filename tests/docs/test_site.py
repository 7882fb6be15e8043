"""Documents and their site: links lead somewhere, tables and lists are seen as such, nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from site_offline import fetched, main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES]
SITE = (ROOT / "mkdocs.yml").read_text()


def prose(text: str) -> str:
    """Without blocks of code, whose lines are no headings, and whose brackets no links."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchor(heading: str) -> str:
    """As the site makes it."""
    plain = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(text: str) -> set[str]:
    return {anchor(found) for found in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)}


def broken(path: Path, text: str) -> list[str]:
    """Links of a document that lead nowhere."""
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if "://" in target:
            continue
        file, _, part = target.partition("#")
        there = path.parent / file if file else path
        if not there.exists() or (part and part not in anchors(there.read_text())):
            missing.append(target)
    return missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken(path, path.read_text()) == []


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    page = ROOT / "docs" / "index.md"
    text = (
        "# Two words\n[a](no.md) [b](#two-words) [c](#three) [d](learning.md#no-such) ![e](pictures/no.svg)\n"
    )
    text += "```\n[f](nothing.md)\n```\n"
    assert broken(page, text.replace("#two-words", "#start")) == [
        "no.md", "#three", "learning.md#no-such", "pictures/no.svg",
    ]  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_menu_has_every_page_once(path: Path) -> None:
    assert len(re.findall(rf"^ +(?:# )?- [^:]+: {re.escape(path.name)}$", SITE, re.MULTILINE)) == 1


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lists_stand_apart(path: Path) -> None:
    """The site takes a line that follows a paragraph at once for a part of it, where GitHub sees a list."""
    before = ""
    for line in prose(path.read_text()).splitlines():
        if re.match(r"(?:[-*]|\d+\.) ", line):
            assert before == "" or re.match(r"(?:[-*]|\d+\.) | ", before), line
        before = line


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_are_there(path: Path) -> None:
    for named in re.findall(r"`((?:attnbench|tests|docs)/[\w/]+\.(?:py|md))`", path.read_text()):
        assert (ROOT / named).exists(), named


def rows_of_tables(text: str) -> list[list[str]]:
    """The lines of each table outside of blocks of code."""
    return [found[0].splitlines() for found in re.finditer(r"(?:^\|.*\n)+", prose(text), re.MULTILINE)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_have_as_many_cells_in_each_row(path: Path) -> None:
    """GitHub ends a cell at each bar that has no backslash, within code as well: a formula would be cut."""
    for table in rows_of_tables(path.read_text()):
        assert table[0].strip("| "), "it begins with an empty line"
        cells = [len(re.split(r"(?<!\\)\|", line)) for line in table]
        assert set(cells) == {cells[0]}, table[cells.index(next(n for n in cells if n != cells[0]))]


PRINTED = (
    "Your output equals the known mistake",  # by a check
    '"""All that the backend `my_kernel` declares',  # by attnbench new, as is the next one
    "attnbench run attention/scaled_dot/H8-L1024-D64 --backend eager",
    "q·k / √D − slope·|p − j|",  # a formula
)
"""Lines that aren't ours to break."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_code_scrolls_sideways_beside_the_table_of_contents(path: Path) -> None:
    text = path.read_text()
    fenced = "".join(re.findall(r"^ *```\w+\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    indented = [line[4:] for line in text.splitlines() if re.match(r"    (attnbench|pytest) ", line)]
    # What a page of 1280 pixels has room for.
    assert [line for line in fenced + indented if len(line) > 80 and not line.startswith(PRINTED)] == []


def test_what_would_be_fetched_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">said</a> <script src="assets/x.js"></script>'
        '<script src="https://cdn.example.org/x.js"></script> <img alt=x src=//example.org/x.png>'
        '<link rel="canonical" href="https://example.org/a.html">'
    )
    (tmp_path / "a.css").write_text("@font-face{src:url(https://example.org/f.woff)} b{src:url(f.woff)}")
    assert len(fetched(tmp_path)) == 3
    assert main(tmp_path) == 1


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert main(tmp_path) == 1


@pytest.mark.skipif(find_spec("material") is None, reason="the site needs pip install -e '.[docs]'")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert main(tmp_path / "site") == 0
