"""The files of a new package, as texts."""

from __future__ import annotations

from pathlib import Path
from string import Template

from attnbench import __version__
from attnbench.starter.names import Names

TEMPLATES = Path(__file__).parent / "templates"

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/ci.yml": "ci.yml",
    "src/$module/__init__.py": "module.py",
    "src/$module/py.typed": "py.typed",
    "tests/test_$backend.py": "test_backend.py",
}
"""By path within the package, the template of each file. Names of both may hold what is put in."""

TRIED = "attention/scaled_dot/H8-L1024-D64"
"""The case that a new backend is first measured on."""


def package(names: Names) -> dict[str, str]:
    """The text of every file, by path within the package; the same for the same names and version."""
    words = {
        "distribution": names.distribution,
        "module": names.module,
        "backend": names.backend,
        "class_name": "Test" + "".join(part.capitalize() for part in names.backend.split("_")),
        "release": ".".join(__version__.split(".")[:2]),
        "run": run_line(names),
    }
    return {
        Template(path).substitute(words): Template(_text(template)).substitute(words)
        for path, template in FILES.items()
    }


def run_line(names: Names) -> str:
    """The command that puts a row of the new backend beside those of two others."""
    beside = " ".join(f"--backend {name}" for name in ("eager", "sdpa_flash", names.backend))
    return f"attnbench run {TRIED} {beside}"


def next_lines(names: Names, folder: str) -> tuple[str, ...]:
    """What to do with a package that was written to ``folder``, as lines for a shell."""
    return (f"cd {folder}", "pip install -e '.[test]'", "pytest", run_line(names))


def _text(template: str) -> str:
    return (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
