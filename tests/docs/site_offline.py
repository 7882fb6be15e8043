"""Whether a site that was built fetches anything. Usage: python tests/docs/site_offline.py FOLDER"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TAGS = re.compile(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*>", re.IGNORECASE)
FETCHED = re.compile(r"""\b(?:src|srcset|href)\s*=\s*["']?(?:https?:)?//""", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""", re.IGNORECASE)
NOT_FETCHED = re.compile(r"""\brel\s*=\s*["']?canonical""", re.IGNORECASE)


def fetched(folder: Path) -> list[str]:
    """Tags and rules of styles that load something from another host, each with its file."""
    found = []
    for page in sorted(folder.rglob("*.html")):
        tags = [tag for tag in TAGS.findall(page.read_text()) if FETCHED.search(tag)]
        found += [f"{page.name}: {tag}" for tag in tags if not NOT_FETCHED.search(tag)]
    for styles in sorted(folder.rglob("*.css")):
        found += [f"{styles.name}: {rule}" for rule in IN_STYLES.findall(styles.read_text())]
    return found


def main(folder: Path) -> int:
    """Say what is fetched; 1 where anything is, or where there are no pages."""
    pages = len(list(folder.rglob("*.html")))
    found = fetched(folder)
    print(*found, f"{pages} pages, {len(found)} things fetched", sep="\n")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
