"""A page of several machines: which run is which, and names from right to left that turn nothing else."""

from __future__ import annotations

from dataclasses import replace as replaced

import pytest
from msgspec.structs import replace
from page_runs import LENGTHS, TIMES, around, case, failed, run_of

from attnbench.reports.html import page as page_module
from attnbench.reports.html.page import charts, page
from attnbench.reports.html.sentences import summary
from attnbench.reports.html.shown import shown
from attnbench.reports.html.words import isolated
from attnbench.runner.run_file import StoredRun

TURNED = "\u202eturned"


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "script", lambda: "window.vegaEmbed = null;")


def on_cuda(*devices: str) -> StoredRun:
    times = {text.replace("/cpu/", "/cuda/"): those for text, those in TIMES.items()}
    run = run_of(times, cpu="A made machine")
    environment = run.manifest.environment | {"cuda_devices": list(devices)}
    return replaced(run, manifest=replace(run.manifest, environment=environment))


def test_a_run_on_a_device_is_called_after_it_and_has_no_threads() -> None:
    (run,) = shown([on_cuda("NVIDIA H200", "NVIDIA H200")])
    assert run.machine == "NVIDIA H200"
    (roofline,) = (chart for chart in charts([run]) if chart.name == "roofline")
    assert [view.label for view in roofline.views] == ["float32, cuda"]
    assert shown([on_cuda()])[0].machine == ""


def test_a_chart_of_one_view_says_of_which_run_and_cases_it_is() -> None:
    """The choice was hidden where there is nothing to choose, and nothing else said it."""
    one_length = run_of({case(64): TIMES[case(128)]}, name="first.jsonl")
    text = page(shown([one_length, run_of(TIMES, name="second.jsonl")]))
    of_time = text.partition('id="chart-time"')[2].partition("</figure>")[0]
    assert "<select>" not in of_time
    assert "<code>run 2: attention/scaled_dot/B1-H4-Lq*-Lk*-D64/none/float32/cpu/forward</code>" in of_time


def test_runs_are_told_apart_by_file_and_version() -> None:
    run = run_of(TIMES, name="first.jsonl")
    environment = run.manifest.environment | {"torch": "2.14.0+cu130"}
    newer = replaced(run, manifest=replace(run.manifest, environment=environment))
    text = page(shown([run, newer]))
    assert "03:04 UTC · torch 2.14.0+cu130 · <code>first.jsonl</code>" in text
    assert '<option value="2">2: first.jsonl</option>' in text


def test_a_name_that_turns_the_direction_turns_nothing_after_it() -> None:
    """In a sentence the numbers after it would be read backwards."""
    times = {case(length): {"eager": around(1, 1), TURNED: around(2, 2)} for length in LENGTHS}
    (run,) = shown([run_of(times, failed(case(128), "odd", "error", TURNED), cpu=TURNED)])
    text = page([run])
    assert f"<h2>{isolated(TURNED)}</h2>" in text
    # Names in sentences stand in elements of their own, which set them apart.
    ours = [piece for one in summary(run) for piece in one.pieces if isinstance(piece, str)]
    ours += [view.about for chart in charts([run]) for view in chart.views]
    assert sum(TURNED in words for words in ours) == 2
    assert not any(TURNED in words.replace(isolated(TURNED), "") for words in ours)
    assert isolated("sdpa_flash") == "sdpa_flash"
