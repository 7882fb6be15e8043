"""Rows of plain values as JSON, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Sequence
from typing import Any

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""Where HTML would begin, which Markdown lets through."""


def as_json(rows: Sequence[dict[str, Any]]) -> str:
    """A list of objects, one a line. Values must be finite: JSON has no NaN."""
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return "[\n" + ",\n".join(f" {line}" for line in lines) + "\n]\n" if rows else "[]\n"


def as_csv(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Comma-separated values under a line of names; empty for None."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_exact(row[name]) for name in columns] for row in rows)
    return out.getvalue()


def as_markdown(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], *, right: Collection[str] = ()
) -> str:
    """A table as GitHub shows it; numbers and the columns ``right`` to the right.

    Bars in texts are escaped, and what would be a tag: of a reason like "got <class 'int'>" nothing is lost.
    """
    cells = [[as_text(plain(row[name])).replace("|", "\\|") for name in columns] for row in rows]
    numeric = [name in right or _numeric([row[name] for row in rows]) for name in columns]
    rule = ["---:" if to_the_right else "---" for to_the_right in numeric]
    lines = [columns, rule, *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_text(words: str) -> str:
    """Words from files as Markdown takes them, so that none of them is taken for HTML."""
    return _MARKUP.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", words)


def _numeric(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, int | float | None) for value in values)


def _exact(value: Any) -> str:
    return repr(value) if isinstance(value, float) else plain(value)


def plain(value: Any) -> str:
    """A value as a cell: numbers to the digits that matter, lists joined, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return " ".join(str(value).split())
