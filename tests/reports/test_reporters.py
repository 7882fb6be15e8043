"""Reporters of plugins: their input, and their failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnbench.plugins.registry import Entry
from attnbench.reports.render import reported, run_facts
from attnbench.reports.run import Run
from attnbench.types.errors import PluginFailed
from attnbench.types.extensions import Reporter, Source
from attnbench.types.record import Manifest

SOURCE = Source("mini", "mini_reporters", "attnbench-mini", "1.0")
AGAIN = "; the records are in their files: attnbench report prints them in another --format"
FAILED = "plugin attnbench-mini 1.0 (mini_reporters): the reporter 'lines' "
ROWS = [{"backend": "eager", "median_ms": 0.5}, {"backend": "bmm", "median_ms": None}]
MANIFEST = Manifest(
    format=1, run_id="r", started="2026-01-01T00:00:00+00:00", attnbench="0.1.0", command=["attnbench"],
    cases=["c"], backends=["eager"], named=[], compiled_on=None, protocol={"sets": 9}, plugins=[],
    environment={"cpu": "a cpu", "libraries": {"torch": "2"}},
)  # fmt: skip


def entry(render: Any) -> Entry[Reporter]:
    return Entry(Reporter("lines", "a test", render), SOURCE)


def test_it_is_given_rows_and_facts_and_its_text_ends_in_a_newline() -> None:
    def lines(rows: Any, runs: Any) -> str:
        return "\n".join(f"{row['backend']} {runs[0]['run_id']}" for row in rows)

    assert reported(entry(lines), ROWS, [{"run_id": "r"}]) == "eager r\nbmm r\n"
    assert reported(entry(lambda rows, runs: "one\n"), ROWS, []) == "one\n"
    assert reported(entry(lambda rows, runs: ""), ROWS, []) == ""


def test_facts_are_plain_values_one_for_each_run() -> None:
    two = (Path("a.jsonl"), Path("b.jsonl"))
    first, second = run_facts(Run(two, (MANIFEST, MANIFEST), ((), ()), unfinished=two[1:]))
    assert (first["path"], first["finished"], first["run_id"]) == ("a.jsonl", True, "r")
    assert (second["path"], second["finished"]) == ("b.jsonl", False)
    assert first["environment"] == {"cpu": "a cpu", "libraries": {"torch": "2"}}
    assert first["protocol"] == {"sets": 9}
    assert first["command"] == ["attnbench"]


def raising(rows: Any, runs: Any) -> str:
    raise ValueError("no\nsuch column")


def exiting(rows: Any, runs: Any) -> str:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (raising, "raised ValueError: no such column"),
        (exiting, "raised SystemExit: 0"),
        (lambda rows: "", "raised TypeError: <lambda>() takes 1 positional argument but 2 were given"),
        (lambda rows, runs: rows[0]["price"], "raised KeyError: 'price'"),
        (lambda rows, runs: None, "gave None, where a text is needed"),
        (lambda rows, runs: b"text", "gave b'text', where a text is needed"),
    ],
)
def test_one_that_fails_is_one_sentence_that_ends_the_command_with_3(render: Any, words: str) -> None:
    with pytest.raises(PluginFailed) as failed:
        reported(entry(render), ROWS, [])
    assert str(failed.value) == f"{FAILED}{words}{AGAIN}"
    assert failed.value.exit_code == 3
