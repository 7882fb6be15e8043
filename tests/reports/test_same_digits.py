"""The terminal, the page and a notebook show the same ratios of a run, in the same digits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from msgspec import structs
from page_runs import case, run_of

from attnbench.api import load
from attnbench.reports.answer import ABSENT, FASTEST, TIED
from attnbench.reports.html import page as page_module
from attnbench.reports.html.page import page
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.types.record import Record

FILES = Path(__file__).parents[1] / "runs"
Map = Mapping[tuple[str, str], str]


def disturbed() -> Run:
    """Medians say 3.9, and pairs, which leave out preempted samples, 3.19."""
    times = {case(n): {"eager": 3.9, "quick": 1.0, "near": 1.2} for n in (64, 128)}
    paired = {"eager": (3.19, 3.1, 3.3), "quick": (1.0, 1.0, 1.0), "near": (1.043, 1.02, 1.3)}

    def with_pairs(record: Record) -> Record:
        ratio, low, high = paired[record.backend]
        return structs.replace(
            record, ratio_to_best=ratio, ratio_to_best_low=low, ratio_to_best_high=high,
            ratio_to_best_confidence=0.96, ratio_to_best_p_value=0.001,
        )  # fmt: skip

    run = run_of(times)
    return replace(run, by_file=(tuple(map(with_pairs, run.records)),))


RUNS = {"a disturbed run": disturbed, "smoke": lambda: load(FILES / "smoke.jsonl")}


def in_terminal(run: Run) -> Map:
    """The cells of the map in a terminal, by the number of the case and the backend."""
    lines = table(run.parts, View(300)).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("× in case"))
    numbers, found = lines[start].split()[3:], {}
    for line in lines[start + 1 :]:
        name, *cells = line.split() or [""]
        if len(cells) != len(numbers):
            break
        found |= {(number, name): cell for number, cell in zip(numbers, cells, strict=True)}
    return found


def in_html(text: str) -> Map:
    """The cells of the last table of a text in HTML, by the place of the row and the head of the column."""
    rows = re.findall(r"<tr>.*?</tr>", text.rpartition("<table")[2], re.DOTALL)
    cells = [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]
    (_, *backends), *body = cells
    return {
        (str(number), backend): cell
        for number, (_, *those) in enumerate(body, start=1)
        for backend, cell in zip(backends, those, strict=True)
    }


@pytest.mark.parametrize("which", RUNS)
def test_page_notebook_and_terminal_show_the_same_digits(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "vega", lambda: "window.vegaEmbed = null;")
    run = RUNS[which]()
    shown = in_terminal(run)
    assert {FASTEST, TIED, ABSENT} & set(shown.values())
    before, heat = page(run).split("All backends in all cases", 1)
    assert in_html(heat.partition("</table>")[0].rpartition("aria-label")[2]) == shown
    assert in_html(run._repr_html_()) == shown
    leads = before.rpartition("The fastest backend of each case")[2]
    for (_, head), cell in in_html(leads).items():
        if head == "eager ×":
            assert cell.partition(" [")[0] in set(shown.values())


def test_a_ratio_is_that_of_pairs_and_its_digits_are_those_of_its_interval() -> None:
    shown = in_terminal(disturbed())
    assert [shown["1", name] for name in ("quick", "eager", "near")] == ["1", "3.2", "1.04"]
    rows = disturbed().summary_rows
    (first,) = (row for row in rows if row["case"] == case(64))
    assert (first["next"], first["next_ratio"], first["next_high"]) == ("near", 1.043, 1.3)
    assert "near takes 1.04 [1.02, 1.3] times" in table(disturbed().parts, View(200, details=True))
