"""Links between documents lead to pages and headings that are there, and every page is in the site's menu."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

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
