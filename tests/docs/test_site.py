"""The site: nothing in it is fetched; with MkDocs here (.ci/run has it) it is built without a warning."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from site_offline import fetched, main

ROOT = Path(__file__).parents[2]


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
