"""A run as a notebook shows it."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import pytest
from page_runs import TIMES, WHOLE, case, failed, hostile_run, run_of, together

from attnbench.reports.html.notebook import MOST_CASES


class Elements(HTMLParser):
    """The elements of a text, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += f"{data} "


def test_it_says_what_to_use_and_has_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    # It needs no package that the page needs.
    for name in ("jinja2", "vl_convert"):
        monkeypatch.setitem(sys.modules, name, None)
    shown = Elements(WHOLE._repr_html_())
    assert shown.tags.count("table") == 3
    failures = " ".join(shown.words.partition(" Failures ")[2].split())
    assert "wrong wrong rms error 3.2e-01 is 2.1e+06 times the plain reference's L128, L256" in failures
    assert "Use quick in all 3 cases; eager takes 3.00 [2.96, 3.04] times as long." in shown.words
    assert "wrong is wrong in 2 of 3 cases (L128 and L256)." in shown.words
    assert "2026-01-02 03:04 UTC · A made machine · torch 2.13.0 · made.jsonl" in shown.words


def test_a_model_has_its_steps_and_stages_and_how_sure_its_ratios_are() -> None:
    counts = {case(64): 2.0, case(128): 10.0}
    stages = {case(64): "prefill", case(128): "decode"}
    times = {one: {"eager": 3.0, "bmm": 1.0} for one in counts}
    shown = Elements(run_of(times, counts=counts, stages=stages)._repr_html_()).words
    assert "Step of decode backend time × loses most in case" in " ".join(shown.split())
    assert shown.count("L128 decode") == 2
    # Sentence and table of each stage, the sentence over all, the columns of the baseline and the next.
    assert shown.count("3.00 [2.96, 3.04]") == 2 * 2 + 1 + 2 * 2
    assert (
        shown.count(
            "Prefill: use bmm, 2.00 ms of attention a step; eager takes 3.00 [2.96, 3.04] times as long."
        )
        == 1
    )


def test_one_case_has_one_table_of_its_backends() -> None:
    shown = Elements(run_of({case(64): {"eager": 3.0, "bmm": 1.0}})._repr_html_())
    assert shown.tags.count("table") == 1
    assert case(64) not in shown.words
    assert "eager 3.00 ms 3.00 [2.96, 3.04]" in " ".join(shown.words.split())


def test_a_run_prints_its_answer() -> None:
    text = str(run_of(TIMES))
    assert "Use quick in all 3 cases; eager takes 3.00" in text
    assert "× in case" in text
    assert max(map(len, text.splitlines())) <= 100
    # A run that ends a cell of a console stays one line.
    assert len(repr(run_of(TIMES)).splitlines()) == 1


def test_what_does_not_run_in_some_cases_has_its_reasons() -> None:
    reason = "rope has 2 more tensors"
    declined = failed(case(512), "quick", "unsupported", reason)
    shown = Elements(
        run_of({case(n): {"eager": 2.0, "quick": 1.0} for n in (64, 128)}, declined)._repr_html_()
    )
    assert f"·: quick ({reason})" in shown.words


def test_names_of_files_are_text() -> None:
    shown = Elements(hostile_run()._repr_html_())
    assert set(shown.tags) <= {"div", "p", "br", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert "alert(" in shown.words


def test_several_runs_and_many_cases_are_told_apart_and_cut() -> None:
    many = run_of({case(n): {"eager": 2.0, "b": 1.0} for n in range(2, MOST_CASES + 5)}, name="many.jsonl")
    shown = Elements(together(run_of(TIMES), many)._repr_html_())
    # The label of each run, and the title of each table.
    assert shown.tags.count("b") == 2 + shown.tags.count("table")
    assert "3 more cases: attnbench report FILE --html page.html" in shown.words
    assert Elements(run_of({})._repr_html_()).tags.count("table") == 0
