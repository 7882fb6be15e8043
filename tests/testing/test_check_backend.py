"""The kit on backends that are wrong, each in one way: the findings that its author gets."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch  # here, since pytester has those modules imported anew that are first imported in its tests
import wrong_by_habit as habits
import wrong_first_tries as tries
from click.testing import CliRunner, Result

from attnbench import Backend, api
from attnbench.api import start
from attnbench.cli import attnbench
from attnbench.starter.package import names_of, package
from attnbench.testing import BackendConformance, NotConforming, check_backend, conformance_cases, judge
from attnbench.testing.findings import Finding, Report
from attnbench.testing.judge import reported
from attnbench.types.errors import BadInput, Interrupted

pytest_plugins = ("pytester",)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kept_servers")]

FILE = Path(tries.__file__)
HERE = FILE.relative_to(Path.cwd()) if FILE.is_relative_to(Path.cwd()) else FILE

TESTS = """
from attnbench.testing import BackendConformance
class TestMine(BackendConformance):
    backend = {backend!r}
    large = False
class TestAbsent(BackendConformance):
    backend = "sdpa_cudnn"
"""

ONE_CASE = """
from attnbench import Backend, hookimpl
def prepare(setup):
    return lambda q, k, v: (q @ k.mT).softmax(-1) @ v
def supports(case, rule):
    sizes = (case.B, case.Lq, case.D, case.Dv, case.group)
    if sizes == (3, 17, 16, 16, 1) and case.mask.is_none and not case.constants:
        return None
    return "is for one case"
@hookimpl
def attnbench_backends():
    yield Backend("one_case", "a test", prepare, supports, rules=("scaled_dot",), dtypes=("float32",))
"""


def test_the_tests_of_a_package_that_is_not_installed_say_so(pytester: pytest.Pytester) -> None:
    for path, text in package(names_of("not-there")).items():
        (pytester.path / path).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / path).write_text(text)
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        "*no backend 'not_there': attnbench-not-there, the package of this folder, is not installed; "
        "run pip install -e '.[[]test]' first"
    )


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Report]:
    """The result of ``attnbench check --plugin``, and the report that it printed.

    All of them in one run of the command, since they share inputs and exact answers.
    """
    reports: list[Report] = []

    def kept(*args: Any) -> Report:
        reports.append(reported(*args))
        return reports[0]

    words = [
        "check",
        "--plugin",
        str(FILE),
        "--search",
        "off",
        "--out",
        str(tmp_path_factory.mktemp("check") / "run.jsonl"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "reported", kept)
        result = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    return result, reports[0]


@pytest.fixture
def report(checked: tuple[Result, Report]) -> Report:
    return checked[1]


def test_the_command_prints_the_report(checked: tuple[Result, Report]) -> None:
    result, report = checked
    assert result.exit_code == 1
    assert result.stdout == f"{report}\n"
    assert "run.jsonl" in result.stderr
    assert re.search(r"problem: wrong answers: on attention/scaled_dot/\S+: RMS error", result.stdout)
    assert len(re.findall("Ctrl-C ends it with the diagnosis so far", result.stderr)) == 1
    asking = f"--backend no_scale --plugin {HERE}"
    commands = [line for line in result.stdout.splitlines() if " again: attnbench check " in line]
    assert [line for line in commands if asking in line]


def test_ctrl_c_ends_a_check_with_the_diagnosis_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any) -> NoReturn:
        raise Interrupted(start(*args).path)

    (tmp_path / "one_case.py").write_text(ONE_CASE)
    monkeypatch.setattr(api, "start", stopped)
    words = ["check", "--plugin", str(tmp_path / "one_case.py"), "--out", str(tmp_path / "run.jsonl")]
    result = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert result.exit_code == 130
    assert "multiply the products by setup.scoring.dot.scale" in result.stdout
    assert "the report is of the cases checked so far, 0 are left; continue with --resume " in result.stderr
    assert "searching" not in result.stderr


def test_a_check_of_one_case_gives_the_same_advice(tmp_path: Path) -> None:
    file, out = str(Path(habits.__file__)), str(tmp_path / "run.jsonl")
    case = "attention/scaled_dot/H2-L17-D8/causal"
    words = ["check", case, "--backend", "fills_in_minus_5", "--plugin", file, "--out", out]
    result = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert result.exit_code == 1
    advice = result.stdout.splitlines()[-1]
    assert advice.startswith("advice for fills_in_minus_5: Your output equals the known mistake ")
    assert "dropped keys still have weight: use -inf" in advice


def test_the_plan_of_a_check_counts_cases_and_says_how_long() -> None:
    words = ["check", "--plugin", str(FILE), "--plan"]
    result = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert result.exit_code == 0
    total, search = result.stdout.splitlines()
    assert re.search(r"then a search of 60 s for each right backend, \d+ min in all", search)
    listed = CliRunner().invoke(attnbench, [*words, "--details"], prog_name="attnbench").stdout
    asked = [line for line in listed.splitlines() if line.startswith("attention/")]
    assert total.startswith(f"{len(asked)} cases, ")
    assert "s checking" in total


def only(report: Report, backend: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.backend == backend]
    return finding


def test_a_right_one_passes(report: Report) -> None:
    assert not [finding for finding in report.findings if finding.backend == "right_one"]
    counts = next(counts for counts in report.counts if counts.backend == "right_one")
    assert counts.right == counts.judged > 1
    assert counts.declined == counts.asked - counts.judged > 100


@pytest.mark.parametrize(
    ("backend", "about", "check", "mistake", "words"),
    [
        ("no_scale", "answers", "values", "scale_omitted", "products by setup.scoring.dot.scale"),
        ("in_place", "answers", "inputs_changed", "", "no operation in place (add_, masked_fill_, out=)"),
        ("keeps_answers", "answers", "values", "", "compute it anew in each call"),
        ("root_always", "answers", "values", "constants_ignored", "decline cases with constants"),
        ("by_last", "steadiness", "repeatability", "", "nothing for all cases in a global"),
        ("square_only", "answers", "", "", "another width than keys (case.Dv != case.D)"),
    ],
)
def test_a_wrong_one_has_one_finding(
    report: Report, backend: str, about: str, check: str, mistake: str, words: str
) -> None:
    found = only(report, backend)
    assert (found.about, found.check, found.mistake) == (about, check, mistake), str(found)
    assert words in found.do
    assert found.problem in str(report)
    assert found.do in str(report)


def test_a_case_that_supports_let_through(report: Report) -> None:
    found = only(report, "square_only")
    assert found.problem.startswith("supports() let this case through, and preparation raised NotImplemented")
    assert "Inputs were q (3, " in found.do


def test_a_test_for_each_case(pytester: pytest.Pytester, not_in_xdist: None, tmp_path: Path) -> None:
    (tmp_path / "one_case.py").write_text(ONE_CASE)
    pytester.makepyfile(test_mine=TESTS.format(backend=str(tmp_path / "one_case.py")))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:attnbench", "-v", "-rs")
    result.assert_outcomes(passed=2, failed=1, skipped=0 if torch.cuda.is_available() else 3)
    result.stdout.fnmatch_lines(
        [
            "*TestMine::test_what_it_declares PASSED*",
            "*TestMine::test_case?attention/scaled_dot/B3-H*-Lq17-Lk65-D16/none/float32/cpu/forward? FAILED*",
            "*TestMine::test_answers_stay_the_same PASSED*",
            "problem: wrong answers: on attention/scaled_dot/B*: RMS error *",
            "*“not divided by √D”: multiply the products by setup.scoring.dot.scale.",
            "SKIPPED*this machine has no CUDA device",
        ]
    )


class Unknown(BackendConformance):
    backend = "no_such_kernel"


class Unsaid(BackendConformance):
    pass


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (Unknown, r"Unknown: no backend 'no_such_kernel'.* Or name a file, for example my_kernel\.py\."),
        (Unsaid, "Unsaid: it names no backend: add backend = 'name'"),
    ],
)
def test_a_class_whose_backend_can_not_be_found(tests: type[BackendConformance], words: str) -> None:
    asked: Any = SimpleNamespace(fixturenames=["conformance_case"])
    with pytest.raises(pytest.fail.Exception, match=words):
        tests().pytest_generate_tests(asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it can run here")
def test_a_backend_that_can_not_run_here_does_not_conform() -> None:
    with pytest.raises(NotConforming, match="nothing was checked: this machine has no"):
        check_backend("sdpa_cudnn")


HOOK = "from attnbench import Backend, hookimpl\n@hookimpl\ndef attnbench_backends():\n    return "


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("[]", "brings no backend and no rule: add a function attnbench_backends"),
        (
            "[Backend(name, 'a test', prepare=print) for name in ('one', 'two')]",
            r"brings 2 backends \(one, two\): name one of them",
        ),
    ],
)
def test_a_file_that_brings_no_backend_or_several(tmp_path: Path, hook: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(HOOK + hook)
    with pytest.raises(BadInput, match=words):
        conformance_cases(tmp_path / "mine.py")


def test_cases_by_name() -> None:
    cases = conformance_cases("numpy", large=False)
    assert 20 < len(cases) <= 45
    assert not any(one.large for one in cases)
    with pytest.raises(
        BadInput, match=r"no backend 'bmn'; did you mean 'bmm'\? Or name a file, for example my_kernel"
    ):
        conformance_cases("bmn")
    with pytest.raises(BadInput, match="Backend: give the name of an installed backend or the file"):
        conformance_cases(Backend("mine", "a test", prepare=print))  # type: ignore[arg-type]
