"""The table of hooks in docs/plugins.md, made from the code. Usage: python tests/docs/hook_table.py"""

from __future__ import annotations

import inspect
from pathlib import Path

from attnbench import hookspecs
from attnbench.plugins.kinds import KINDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "plugins.md"
BEGIN = "<!-- hooks: written by python tests/docs/hook_table.py -->\n"
END = "<!-- end of hooks -->\n"


def table() -> str:
    """The hooks as lines of Markdown."""
    lines = ["| hook | what it brings | listed by |", "|---|---|---|"]
    for kind in KINDS:
        specification = getattr(hookspecs, kind.hook)
        signature = str(inspect.signature(specification)).replace("'", "")
        brought = " ".join((inspect.getdoc(specification) or "").split())
        lines.append(f"| `{kind.hook}{signature}` | {brought} | `attnbench list {kind.listed}` |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The document with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
