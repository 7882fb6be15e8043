from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.cases.ids import case_id, parse_case
from attnbench.plugins.registry import load_registry


def data(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_rules_show_formula_and_source(invoke: Callable[..., Result]) -> None:
    rules = data(invoke("list", "rules", "--format", "json"))
    registry = load_registry()
    assert [rule["name"] for rule in rules] == list(registry.rules)
    assert all(rule["formula"] and rule["source"] and rule["plugin"] for rule in rules)
    text = invoke("list", "rules").stdout
    assert all(name in text for name in registry.rules)


def test_backends_show_what_they_can(invoke: Callable[..., Result]) -> None:
    backends = {row["name"]: row for row in data(invoke("list", "backends", "--format", "json"))}
    assert set(backends) == set(load_registry().backends)
    eager = backends["eager"]
    assert eager["operations"] == ["attention", "multihead"]
    assert eager["rules"] == "all"
    assert eager["dtypes"] == ["float64", "float32", "bfloat16", "float16"]
    assert backends["sdpa_flash"]["rules"] == "all with a dot form"
    assert backends["compiled"]["compiles"] is True
    lines = invoke("list", "backends").stdout.splitlines()
    assert lines[0].split() == ["name", "summary", "operations", "rules", "dtypes", "devices"]


def test_suites_show_how_many_cases(invoke: Callable[..., Result]) -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("list", "suites", "--format", "csv").stdout)))
    assert {row["name"]: row["cases"] for row in rows}["paper-flash"] == "36"
    assert [row["name"] for row in rows if row["check_only"] == "yes"] == ["edges"]


def test_verdicts_show_whose_rule_each_is(invoke: Callable[..., Result]) -> None:
    rows = data(invoke("list", "verdicts", "--format", "json"))
    assert [row["name"] for row in rows] == list(load_registry().verdict_rules)
    assert all(row["summary"] for row in rows)


def test_cases_are_ids_one_a_line_of_smoke_unless_said(invoke: Callable[..., Result]) -> None:
    expected = [case_id(case) for case in load_registry().suite("smoke").cases]
    assert invoke("list", "cases").stdout.splitlines() == expected
    assert invoke("list", "cases", "smoke").stdout.splitlines() == expected


def test_cases_of_words_and_options(invoke: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[[cases]]\nrule = 'dot'\nH = 1\nL = [2, 3]\nD = 4\n")
    result = invoke(
        "list", "cases", str(file), "attention/cosine/H1-L5-D4", "--rule", "dot", "--dtype", "bfloat16",
        "--mask", "none", "--mask", "causal", "--seed", "7", "--threads", "2",
    )  # fmt: skip
    assert result.stdout.splitlines() == [
        f"attention/dot/B1-H1-Lq{L}-Lk{L}-D4/{mask}/bfloat16/cpu/forward/threads2/seed7"
        for L in (2, 3)
        for mask in ("none", "causal")
    ]


def test_cases_for_programs_have_their_fields(invoke: Callable[..., Result]) -> None:
    (row,) = data(invoke("list", "cases", "attention/dot/H4-Hkv2-L3-D4", "--format", "json"))
    assert row["id"] == "attention/dot/B1-H4-Hkv2-Lq3-Lk3-D4/none/float32/cpu/forward"
    assert (row["rule"], row["Hkv"], row["mask"], row["E"]) == ("dot", 2, "none", None)


def test_every_id_that_is_listed_can_be_asked_for(invoke: Callable[..., Result]) -> None:
    ids = invoke("list", "cases", "edges").stdout.split()
    assert [case_id(parse_case(text)) for text in ids] == ids


def test_plugins_show_what_each_brings(invoke: Callable[..., Result]) -> None:
    plugins = {row["module"]: row for row in data(invoke("plugins", "--format", "json"))}
    assert "scaled_dot" in plugins["attnbench.rules"]["rules"]
    assert "eager" in plugins["attnbench.backends"]["backends"]
    assert "smoke" in plugins["attnbench.suites"]["suites"]
    assert all(row["faults"] == [] for row in plugins.values())


def test_a_plugin_that_fails_is_one_line_on_stderr_and_stdout_is_unharmed(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "attnbench_bad-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attnbench-bad\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[attnbench]\nbad = cli_test_bad_plugin\n")
    (tmp_path / "cli_test_bad_plugin.py").write_text("import sys\nsys.exit('not today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    fault = "attnbench-bad 2.0 (cli_test_bad_plugin): does not import: SystemExit: not today"
    result = invoke("plugins", "--format", "json")
    assert result.stderr == f"attnbench: plugin {fault}\n"
    bad = next(row for row in data(result) if row["name"] == "bad")
    assert bad["faults"] == ["does not import: SystemExit: not today"]
    assert (bad["version"], bad["backends"]) == ("2.0", [])
    assert invoke("list", "suites").stderr == f"attnbench: plugin {fault}\n"
    asked = invoke("run", "attention/dot/H1-L2-D2", "--backend", "badly")
    assert asked.exit_code == 2
    assert f"A plugin failed to load: {fault}." in asked.stderr
