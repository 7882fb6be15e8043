"""A comparison in the format that was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict

import msgspec

from attnbench.reports.compared.markdown import markdown
from attnbench.reports.compared.rows import COLUMNS, cell_row
from attnbench.reports.formats import as_csv
from attnbench.stored.gate import GateResult
from attnbench.types.compared import Compared
from attnbench.types.formats import Format


def render_compared(
    compared: Compared, gate: GateResult, format: Format, *, width: int = 120, colour: bool = False
) -> str:
    """A comparison and what the gate says of it, as text that ends in a newline.

    JSON is an object whose ``cells`` have the columns of :data:`attnbench.reports.compared.rows.COLUMNS`; CSV
    has these alone. width and colour are for the table.
    """
    if format == "table":
        from attnbench.reports.compared.table import table

        return table(compared, gate, width, colour=colour)
    if format == "markdown":
        return markdown(compared, gate)
    rows = [cell_row(cell, forced=compared.forced) for cell in compared.cells]
    if format == "csv":
        return as_csv(rows, COLUMNS)
    head = {
        "base": compared.base,
        "new": compared.new,
        "forced": compared.forced,
        "exit_code": gate.exit_code,
        "gate": gate.sentence,
        "failing": [[cell.case, cell.backend] for cell in gate.failing],
        "ignored": [[cell.case, cell.backend, why] for cell, why in gate.ignored],
        "warnings": list(gate.warnings),
        "differences": [asdict(difference) for difference in compared.differences],
    }

    text = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=1)
    # A hundred thousand rows are written in a fifth of json's time.
    lines = [f"\n  {line.decode()}" for line in map(msgspec.json.Encoder().encode, rows)]
    cells = ",".join(lines) + "\n " if lines else ""
    return f'{text[:-2]},\n "cells": [{cells}]\n}}\n'
