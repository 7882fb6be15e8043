"""attnbench selftest: what it runs, prints, writes and exits with; and each command once for real, tiny."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from attnbench.cli.selftest import SWITCHES, command
from attnbench_selftest import commands
from attnbench_selftest.rates import Count
from attnbench_selftest.rates import Scored, rate
from attnbench_selftest.measure import SWITCHES as SWITCHED
from attnbench_selftest.measure import Session

Invoke = Callable[..., Result]

TINY = ("--trials", "2", "--budget", "0.02", "--sets", "2", "--length", "16")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Score so many false alarms instead of measuring; gives what the command was asked."""

    def score(alarms: int, interrupted: bool = False) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def conduct(name: str, choices: Any, session: Session, terms: Any, peers: Any) -> Scored:
            asked.update(name=name, choices=choices, session=session, terms=terms, peers=peers)
            session.interrupted = interrupted
            return Scored(
                (rate("alarms", "at most", 0.002, [Count(alarms, 40)], first=terms.whole, claims=1),)
            )

        monkeypatch.setattr(commands, "conduct", conduct)
        return asked

    return score


def test_the_parts_of_the_protocol_are_those_that_can_be_left_out() -> None:
    assert set(SWITCHES) == set(SWITCHED)
    from attnbench.runner.options import Options

    for changes in SWITCHED.values():
        assert all(getattr(Options(), name) is True for name in changes)
        assert all(value is False for value in changes.values())
        Options(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["aa", "exact", "power", "coverage", "overhead", "judge"])
def test_help_has_an_example_of_itself(invoke: Invoke, name: str) -> None:
    result = invoke("selftest", name, "--help")
    assert result.exit_code == 0
    assert f"attnbench selftest {name}" in result.stdout.partition("Options:")[0].partition("\n")[2]
    assert invoke("selftest", "--help").stdout.count(f"\n  {name} ") == 1


def test_a_name_that_is_no_self_test(invoke: Invoke) -> None:
    result = invoke("selftest", "pwoer")
    assert result.exit_code == 2
    assert "did you mean 'power'?" in result.stderr


def test_nothing_refuted_is_0_and_the_verdict_the_last_line(
    invoke: Invoke, pretend: Callable[..., dict[str, Any]]
) -> None:
    asked = pretend(0)
    result = invoke("selftest", "aa")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("selftest aa: nothing refuted; of 1 targets")
    assert asked["name"] == "aa"
    assert asked["choices"] == commands.Choices()
    assert result.stderr.startswith("selftest aa: about ")


def test_a_refuted_target_is_1(invoke: Invoke, pretend: Callable[..., dict[str, Any]]) -> None:
    pretend(9)
    result = invoke("selftest", "aa")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("selftest aa: REFUTED: alarms: 22.5 %, not ≤ 0.2 %")


def test_ctrl_c_prints_what_there_is_and_is_130(
    invoke: Invoke, pretend: Callable[..., dict[str, Any]]
) -> None:
    pretend(0, interrupted=True)
    result = invoke("selftest", "aa")
    assert result.exit_code == 130
    assert "alarms" in result.stdout
    assert result.stderr.endswith("attnbench: interrupted; what was measured until then is scored\n")


def test_what_is_switched_off_does_not_fail_a_build(
    invoke: Invoke, pretend: Callable[..., dict[str, Any]]
) -> None:
    asked = pretend(9)
    result = invoke("selftest", "aa", "--without", "balance", "--without", "pinning")
    assert result.exit_code == 0
    assert asked["session"].without == ("balance", "pinning")


def test_options_are_passed_on(
    invoke: Invoke, pretend: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    asked = pretend(0)
    words = (
        "--length",
        "512",
        "--length",
        "512",
        "--full",
        "--budget",
        "0.3",
        "--sets",
        "11",
        "--trials",
        "4",
    )
    invoke("selftest", "power", *words, "--keep", str(tmp_path / "kept"))
    assert asked["choices"] == commands.Choices(True, (512,), "cpu", 0.3, 11, 4)
    assert asked["session"].folder == tmp_path / "kept"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--length", "64"), "no length '64'; there are 16 and 512."),
        (("--without", "luck"), "no part of the protocol 'luck'"),
        (("--budget", "0"), "a number of seconds above 0 is needed"),
        (("--sets", "0"), "a whole number of 1 or more is needed"),
        (("--json", "/no/such/folder/x.json"), "there is no folder '/no/such/folder'"),
    ],
)
def test_what_can_not_be_is_wrong_usage(invoke: Invoke, words: tuple[str, ...], said: str) -> None:
    result = invoke("selftest", "aa", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_without_a_device_there_is_none(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnbench.cli.finish._has_cuda", lambda: False)
    result = invoke("selftest", "aa", "--device", "cuda")
    assert (result.exit_code, "finds no CUDA device" in result.stderr) == (2, True)


def test_everything_is_in_the_json_file(
    invoke: Invoke, pretend: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    pretend(9)
    invoke("selftest", "aa", "--stress", "--json", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["selftest"], found["refuted"], found["interrupted"]) == ("aa", True, False)
    assert found["options"]["stress"] is True
    (one,) = found["findings"]
    assert (one["events"], one["trials"], one["outcome"], one["first"]) == (9, 40, "refuted", True)
    assert len(found["load_before"]) == 3
    assert found["verdict"].startswith("selftest aa: REFUTED")


def test_listing_commands_and_help_need_nothing_heavy() -> None:
    import subprocess
    import sys

    script = (
        "import sys\nfrom attnbench.cli import attnbench\n"
        "attnbench(['selftest', 'aa', '--help'], standalone_mode=False)\n"
        "print({'torch', 'numpy', 'scipy', 'pandas', 'rich', 'pluggy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_every_command_is_one_that_can_be_conducted() -> None:
    assert set(command.commands) == {"judge", *commands.NAMES}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed plugin whose verdict rule raises."""
    info = tmp_path / "attnbench_hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attnbench-hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[attnbench]\nhostile = selftest_hostile\n")
    (tmp_path / "selftest_hostile.py").write_text(
        "from attnbench import VerdictRule, hookimpl\n"
        "def decide(contender, baseline):\n    raise SystemExit('not today')\n"
        "@hookimpl\ndef attnbench_verdict_rules():\n"
        "    yield VerdictRule('hostile', 'a test', decide)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def measured(invoke: Invoke, tmp_path: Path, name: str, *words: str) -> tuple[Result, dict[str, Any]]:
    file = tmp_path / "found.json"
    result = invoke("selftest", name, *words, "--json", str(file))
    assert result.exit_code == 0, result.stdout + result.stderr
    return result, json.loads(file.read_text())


@pytest.mark.slow
def test_aa_for_real_with_a_rule_that_raises(invoke: Invoke, tmp_path: Path, hostile: None) -> None:
    result, found = measured(invoke, tmp_path, "aa", *TINY, "--keep", str(tmp_path / "kept"))
    assert (
        "attnbench: verdict rule hostile (attnbench-hostile 1.0 (selftest_hostile)) "
        "raised SystemExit: not today"
    ) in result.stderr
    assert found["rules_left_out"] == {"hostile": "raised SystemExit: not today"}
    slower = found["findings"][0]
    assert slower["trials"] == 2 * 8
    assert set(slower["peers"]) == {
        "median_5pct", "min_5pct", "t_test", "pyperf", "u_test", "bootstrap", "asv",
    }  # fmt: skip
    assert [one["what"].partition(",")[0] for one in found["findings"]].count("proved the same") == 3
    assert found["findings"][3]["what"] == "proved the same, L=16 in 0.02 s"
    assert found["measuring_s"] > 0
    assert found["setup_s"] > 0
    # What was kept is a run like any other.
    (path,) = (tmp_path / "kept").glob("*.jsonl")
    assert [str(path)] == found["files"]
    assert invoke("report", str(path)).exit_code == 0


@pytest.mark.slow
def test_exact_for_real(invoke: Invoke, tmp_path: Path) -> None:
    _, found = measured(invoke, tmp_path, "exact", *TINY)
    (one,) = found["findings"]
    assert (one["trials"], one["target"], one["events"]) == (2 * 91, 0.0, 0)


@pytest.mark.slow
def test_power_for_real(invoke: Invoke, tmp_path: Path) -> None:
    words = ("--trials", "1", "--budget", "0.02", "--sets", "2", "--length", "16")
    result, found = measured(invoke, tmp_path, "power", *words)
    assert [(effect["nominal"], effect["sets"]) for effect in found["effects"]] == [(0.05, 16), (0.03, 14)]
    assert "realised" in result.stdout
    assert [one["trials"] for one in found["findings"]] == [8, 8, 7, 7]


@pytest.mark.slow
def test_coverage_for_real(invoke: Invoke, tmp_path: Path) -> None:
    words = ("--trials", "2", "--budget", "0.02", "--sets", "8", "--length", "16")
    result, found = measured(invoke, tmp_path, "coverage", *words)
    assert "2 launches, each with processes of its own" in result.stdout
    assert [one["trials"] for one in found["findings"]] == [6, 6]
    assert len(found["files"]) == 2


@pytest.mark.slow
def test_overhead_for_real_while_cores_are_kept_busy(invoke: Invoke, tmp_path: Path) -> None:
    words = ("--trials", "1", "--budget", "0.05", "--sets", "3", "--length", "512", "--stress")
    _, found = measured(invoke, tmp_path, "overhead", *words)
    assert [(one["unit"], one["trials"]) for one in found["findings"]] == [("ns", 3)]
    # No threshold: a no-op and the loop it is held against take some tens of nanoseconds each.
    assert abs(found["findings"][0]["estimate"]) < 10_000
