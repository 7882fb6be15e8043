"""The page in a browser: quiet, quick, and all in it works. Needs Chromium, the distribution's package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_runs import HOSTILE, LENGTHS, TIMES, WHOLE, around, case, failed, large_run, run_of

from attnbench.reports.html.page import page
from attnbench.reports.html.shown import shown
from attnbench.runner.run_file import StoredRun

pytestmark = pytest.mark.slow
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium here: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: see .[test]")

CHARTS = ("ratios", "time", "memory", "roofline", "pareto")
INTERACTIVE_MS = 2000
TRIES = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Chromium's sandbox refuses to start as root, as in a container.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


class Opened:
    """A page that is open, with what it said and asked for."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab = browser.new_context(**context).new_page()
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda failure: self.said.append(str(failure)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(file.as_uri())

    def draw(self, *names: str) -> None:
        """Scroll to charts, which draws them."""
        for name in names:
            self.tab.locator(f"#chart-{name}").scroll_into_view_if_needed()
            self.tab.wait_for_selector(f"#chart-{name}[data-drawn]")

    def column(self, name: str) -> list[str]:
        """The cells of a column of the table, of rows that are shown."""
        heads = self.tab.locator("#records thead th").all_inner_texts()
        place = [head.strip() for head in heads].index(name) + 1
        return self.tab.locator(f"#records tbody tr:not([hidden]) > :nth-child({place})").all_inner_texts()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("whole"), WHOLE)


def written(folder: Path, *runs: StoredRun) -> Path:
    file = folder / "page.html"
    file.write_text(page(shown(runs)), encoding="utf-8")
    return file


def test_it_opens_without_errors_or_requests_and_draws_marks(browser: Any, whole: Path) -> None:
    opened = Opened(browser, whole)
    opened.draw(*CHARTS)
    for name in CHARTS:
        marks = opened.tab.locator(f"#chart-{name} svg .role-mark").locator("path, line, text")
        assert marks.count() >= 8, name
        assert opened.tab.locator(f"#chart-{name} .canvas").get_attribute("aria-label")
    assert opened.said == []
    assert opened.asked == [whole.as_uri()]


def test_a_chart_follows_its_choice_and_unfolds_as_a_table(browser: Any, whole: Path) -> None:
    opened = Opened(browser, whole)
    opened.draw("pareto")
    figure = opened.tab.locator("#chart-pareto")
    before = figure.locator(".about").inner_text()
    figure.locator("select").select_option(index=4)
    opened.tab.wait_for_function(
        "text => document.querySelector('#chart-pareto .about').textContent !== text", arg=before
    )
    figure.locator(".numbers summary").click()
    rows = figure.locator(".numbers tbody tr")
    sync_api.expect(rows).to_have_count(2)
    assert figure.locator(".numbers caption").inner_text().endswith(case(96, rule="dot"))


def test_sorting_tells_its_direction_and_keeps_what_is_empty_last(browser: Any, whole: Path) -> None:
    opened = Opened(browser, whole)
    head = opened.tab.locator("#records thead th", has_text="time")
    for direction, reverse in (("ascending", False), ("descending", True)):
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == direction
        keys = opened.tab.eval_on_selector_all(
            "#records tbody tr", "rows => rows.map(row => row.cells[4].dataset.k ?? '')"
        )
        numbers = [float(key) for key in keys if key]
        assert numbers == sorted(numbers, reverse=reverse)
        assert keys == [key for key in keys if key] + [""] * (len(keys) - len(numbers))
    assert opened.tab.locator("#records th[aria-sort]").count() == 1


def test_filters_narrow_together_and_clear(browser: Any, whole: Path) -> None:
    opened = Opened(browser, whole)
    everything = len(WHOLE.records)
    opened.tab.select_option("#f-verdict", "faster")
    assert set(opened.column("backend")) == {"quick"}
    assert opened.column("verdict") == ["faster"] * 3
    opened.tab.fill("#f-words", "lq256 FLOAT32")
    assert len(opened.column("backend")) == 1
    assert opened.tab.locator("#count").inner_text() == f"1 of {everything} outcomes"
    opened.tab.fill("#f-words", "nothing like it")
    assert opened.column("backend") == []
    opened.tab.locator("#filters button[type=reset]").click()
    opened.tab.wait_for_function(
        "text => document.querySelector('#count').textContent === text", arg=f"{everything} outcomes"
    )


def test_hostile_names_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    # Charts look names up in objects of JavaScript, which have this one already.
    names = {"eager": around(1, 1), HOSTILE: around(2, 2), "constructor": around(3, 3)}
    names["__proto__"] = around(4, 4)
    times = dict.fromkeys(map(case, LENGTHS), names)
    run = run_of(times, failed(case(128), "theirs", "error", HOSTILE), cpu=HOSTILE)
    opened = Opened(browser, written(tmp_path, run))
    opened.tab.on("dialog", lambda dialog: opened.said.append("a dialog"))
    opened.draw(*CHARTS)
    opened.tab.locator("#chart-time svg .mark-symbol path").first.hover()
    assert HOSTILE in opened.tab.eval_on_selector_all(
        "#records code", "all => all.map(one => one.textContent)"
    )
    assert opened.tab.locator("img").count() == 0
    assert opened.said == []
    # However long a name, the page is no wider than its window.
    assert opened.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_five_thousand_records_stay_responsive(browser: Any, tmp_path: Path) -> None:
    """The best of a few: other work on the machine only adds."""
    file = written(tmp_path, large_run(cases=500, backends=10))
    times = []
    for _ in range(TRIES):
        opened = Opened(browser, file)
        times.append(opened.tab.evaluate("performance.getEntriesByName('interactive')[0].startTime"))
        if times[-1] < INTERACTIVE_MS:
            break
    assert min(times) < INTERACTIVE_MS, times
    assert len(opened.column("backend")) == 100
    opened.tab.fill("#f-words", "backend_7 lq500-")
    assert opened.column("backend") == ["backend_7"]
    opened.draw(*CHARTS)
    assert opened.said == []


def test_pages_are_turned_from_the_keyboard_and_its_focus_stays(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, written(tmp_path, large_run(cases=11, backends=10)))
    where, later = opened.tab.locator("#where"), opened.tab.locator("#later")
    assert where.inner_text() == "1 to 100 of 110"
    opened.tab.locator("#earlier").press("Enter")
    later.press("Enter")
    assert where.inner_text() == "101 to 110 of 110"
    assert later.get_attribute("aria-disabled") == "true"
    assert opened.tab.evaluate("document.activeElement.id") == "later"
    later.press("Enter")
    assert where.inner_text() == "101 to 110 of 110"


def test_paper_has_all_columns_and_says_what_it_leaves_out(browser: Any, tmp_path: Path) -> None:
    """What is printed can't be scrolled, and has no pages of a table to turn."""
    file = written(tmp_path, WHOLE, large_run(cases=30, backends=9))
    opened = Opened(browser, file, viewport={"width": 1280, "height": 900})
    opened.draw(*CHARTS)
    ink = "getComputedStyle(document.body).color"
    black = opened.tab.evaluate(ink)
    opened.tab.locator("#theme").click()
    assert opened.tab.evaluate(ink) != black
    opened.tab.emulate_media(media="print")
    assert opened.tab.evaluate(ink) == black
    # A4 in inches less the margins, at 96 pixels: upright, and for the table of outcomes on its side.
    for width, parts in ((718, "#found, #charts, #measured"), (1047, "#outcomes")):
        opened.tab.set_viewport_size({"width": width, "height": 900})
        wide = "all => all.every(one => one.scrollWidth <= document.documentElement.clientWidth)"
        assert opened.tab.eval_on_selector_all(parts, wide), parts
    assert opened.tab.locator("#where").inner_text().startswith("1 to 100 of ")
    assert opened.tab.locator("#where").is_visible()
    assert opened.tab.locator("#chart-time .choice").is_visible()


def test_a_phone_shows_it_without_scrolling_sideways_in_light_and_dark(browser: Any, tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE, run_of(TIMES, name="other.jsonl"))
    ink = "getComputedStyle(document.body).color"
    opened = Opened(browser, file, viewport={"width": 360, "height": 740}, color_scheme="dark")
    opened.draw(*CHARTS)
    assert opened.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    button = opened.tab.get_by_role("button", name="Dark", exact=True)
    assert button.get_attribute("aria-pressed") == "true"
    dark = opened.tab.evaluate(ink)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert opened.tab.evaluate(ink) != dark
    assert opened.said == []
