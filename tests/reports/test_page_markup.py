"""The page as a document: whole, escaped, and made so that it can be read in any way."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec.structs import replace
from page_runs import HOSTILE, LENGTHS, TIMES, WHOLE, around, case, failed, run_of

from attnbench.reports.html import page as page_module
from attnbench.reports.html.against_baseline import TABLE_OF_BACKENDS
from attnbench.reports.html.bundle import script
from attnbench.reports.html.lead_sentences import TABLE_OF_LEADS
from attnbench.reports.html.page import harmless, page
from attnbench.reports.html.shown import shown
from attnbench.runner.run_file import StoredRun
from attnbench.types.errors import BadInput

VOID = {"meta", "link", "input", "wbr", "br", "img"}


class Document(HTMLParser):
    """Elements with their attributes, the text in each, and whether all were closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The charts' library takes seconds to gather, and nothing here runs it."""
    monkeypatch.setattr(page_module, "script", lambda: "window.vegaEmbed = null;")


def document(*runs: StoredRun) -> Document:
    return Document(page(shown(runs)))


def hostile_run() -> StoredRun:
    times = {case(length): {"eager": around(1, 1), HOSTILE: around(2, 2)} for length in LENGTHS}
    run = run_of(times, failed(case(128), "theirs", "error", HOSTILE, notes=[HOSTILE]), cpu=HOSTILE)
    manifest = replace(run.manifest, command=[HOSTILE], protocol={HOSTILE: [HOSTILE]})
    return StoredRun(**{**vars(run), "manifest": manifest})


def test_a_page_is_whole_and_leads_nowhere_else() -> None:
    found = document(WHOLE)
    assert found.open == []
    for tag, attributes in found.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith("#") or target == "data:,", (tag, target)
    assert not {"iframe", "object", "embed", "base"} & {tag for tag, _ in found.elements}


def test_links_within_the_page_lead_somewhere() -> None:
    found = document(WHOLE)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in found.of("a"):
        assert (attributes["href"] or "").lstrip("#") in ids


def test_regions_have_names_of_their_own_and_what_scrolls_can_be_reached() -> None:
    found = document(WHOLE, run_of(TIMES, name="other.jsonl"))
    regions = [
        attributes for _, attributes in found.elements if attributes.get("role") in ("region", "group")
    ]
    names = [attributes.get("aria-label") for attributes in regions]
    assert None not in names
    assert len(set(names)) == len(names)
    assert all(attributes.get("tabindex") == "0" for attributes in regions)
    labelled = [a["aria-labelledby"] for _, a in found.elements if "aria-labelledby" in a]
    assert len(set(labelled)) == len(labelled)
    (wide,) = (a for a in regions if a.get("role") == "group")
    assert wide["aria-label"] == "Ratios, case by backend, drawn"


def test_sentences_call_tables_as_the_page_does() -> None:
    found = document(WHOLE)
    summaries = {words.strip() for words in found.texts["summary"]}
    assert {TABLE_OF_LEADS, TABLE_OF_BACKENDS} <= summaries


def test_names_from_files_are_text_wherever_they_stand() -> None:
    text = page(shown([hostile_run()]))
    found = Document(text)
    assert found.open == []
    assert len(found.of("script")) == 4
    assert found.of("img") == []
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert HOSTILE in found.texts["code"]
    assert HOSTILE in found.texts["option"]
    assert any(HOSTILE in words for words in found.texts["td"])
    assert "<script>alert" not in text


def test_the_data_of_the_charts_arrive_as_they_were() -> None:
    found = document(hostile_run())
    (data,) = [one for one, tag in _scripts(found) if tag.get("type") == "application/json"]
    charts: dict[str, Any] = json.loads(data)
    assert HOSTILE in charts["time"]["views"][0]["holds"]["names"]
    assert {row["backend"] for row in charts["time"]["views"][0]["values"]} == {"eager", HOSTILE}


def _scripts(found: Document) -> list[tuple[str, dict[str, str | None]]]:
    return list(zip(found.texts["script"], found.of("script"), strict=True))


def test_the_policy_lets_these_scripts_run_and_nothing_else_happen() -> None:
    found = document(WHOLE)
    (policy,) = (a["content"] or "" for a in found.of("meta") if a.get("http-equiv"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    allowed = set(re.findall(r"'sha256-([^']+)'", rules["script-src"]))
    assert "unsafe" not in rules["script-src"]
    run = [text for text, tag in _scripts(found) if "type" not in tag]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run} == allowed


def test_a_script_can_not_be_ended_by_what_stands_in_it() -> None:
    assert harmless('a = "</script><!--"') == 'a = "<\\/script><\\!--"'


def test_tables_are_tables_with_heads_and_captions() -> None:
    text = page(shown([WHOLE]))
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert "<caption" in table
        assert all('scope="' in head for head in re.findall(r"<th\b[^>]*>", table))
    (records,) = re.findall(r'<table id="records".*?</table>', text, re.DOTALL)
    heads = re.findall(r"<button[^>]*>(.*?)</button>", records)
    assert heads[:5] == ["backend", "case", "status", "verdict", "time"]
    assert records.count("<tr") == 1 + len(WHOLE.records)


def test_everything_that_is_chosen_has_a_label_and_scrolling_parts_a_name() -> None:
    text = page(shown([WHOLE]))
    assert all(
        "<select" in label or "<input" in label for label in re.findall(r"<label.*?</label>", text, re.DOTALL)
    )
    assert len(re.findall(r"<(?:select|input)\b", text)) == text.count("<label")
    for region in re.findall(r'<div class="scroll[^>]*>', text):
        assert 'tabindex="0"' in region
        assert "aria-label" in region


def test_rows_beyond_the_first_hundred_wait_hidden() -> None:
    many = [failed(case(64), f"b{i}", "error", "no") for i in range(130)]
    text = page(shown([run_of({}, *many)]))
    assert text.count("<tr hidden>") == 30


def test_several_runs_stand_in_one_page_each_judged_by_itself() -> None:
    found = document(WHOLE, run_of(TIMES, name="other.jsonl", cpu="Another machine"))
    assert "Run 2: Another machine" in found.texts["h2"]
    assert "f-run" in {attributes.get("id") for attributes in found.of("select")}
    assert len(found.of("article")) == 4


def test_sorting_goes_by_numbers_not_by_their_text() -> None:
    text = page(shown([WHOLE]))
    keys = [float(key) for key in re.findall(r'<td class="n" data-k="([^"]+)">[\d.]+ (?:ns|µs|ms|s)<', text)]
    assert len(keys) == sum(record.median_ms is not None for record in WHOLE.records)
    assert len(re.findall(r'<td class="n" data-k="0[.][^"]+">[<\d.&lt;]+%<', text)) >= len(keys) - 1


def test_a_run_without_any_outcome_has_a_page_too() -> None:
    found = document(run_of({}), run_of({}, finished=False))
    assert found.open == []
    assert any("no outcome yet" in words for words in found.texts["li"])


@pytest.mark.parametrize("package", ["vl_convert", "jinja2"])
def test_without_its_packages_a_page_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(page_module, "script", script)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match=r"pip install 'attnbench\[html\]'"):
        page(shown([WHOLE]))
