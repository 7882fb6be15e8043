"""What a page says of a run, in words no firmer than what is proved."""

from __future__ import annotations

from dataclasses import replace as replaced

from msgspec.structs import replace
from page_runs import HOSTILE, LEVEL, TIMES, UNSURE, WHOLE, around, case, failed, run_of
from syrupy.assertion import SnapshotAssertion

from attnbench.reports.html.against_baseline import standings
from attnbench.reports.html.sentences import summary
from attnbench.reports.html.shown import shown
from attnbench.reports.html.words import Name, Sentence, listed, sentence
from attnbench.reports.judged import judge
from attnbench.runner.run_file import StoredRun


def said(run: StoredRun) -> list[Sentence]:
    (one,) = shown([run])
    return summary(one)


def text_of(run: StoredRun) -> str:
    return "\n".join(one.text for one in said(run))


def test_a_run_with_everything_in_it(snapshot: SnapshotAssertion) -> None:
    assert [f"{one.tone}: {one.text}" for one in said(WHOLE)] == snapshot


def test_only_what_is_proved_is_called_the_fastest() -> None:
    assert "quick is the fastest in all 3 cases, and that is proved" in text_of(run_of(TIMES))
    unsure = text_of(run_of({case(64): UNSURE}))
    assert "it is not proved who is the fastest" in unsure
    assert "is the fastest in" not in unsure
    level = text_of(run_of({case(64): LEVEL}))
    assert "share the lead in the one case" in level
    assert "within 2 % of the fastest, and all others with a time are proved slower" in level


def test_a_case_that_is_the_only_one_of_its_kind_is_named_and_others_unfold() -> None:
    run = run_of({**TIMES, case(64): LEVEL})
    (one,) = (one for one in said(run) if "share the lead" in one.text)
    assert "share the lead on Lq64-Lk64" in one.text
    assert one.cases == ()
    (many,) = (one for one in said(run) if "is the fastest" in one.text)
    assert len(many.cases) == 3


def test_a_run_that_was_cut_off_says_so_and_what_is_missing() -> None:
    run = run_of(TIMES, failed(case(128), "wrong", "mismatch", "far off"), finished=False)
    (cut,) = (one for one in said(run) if "cut off" in one.text)
    assert "2 outcomes of it are missing" in cut.text
    assert "--resume made.jsonl" in cut.text
    assert cut.tone == "bad"


def test_a_run_that_only_checked_or_has_nothing_says_so() -> None:
    run = run_of({}, failed(case(64), "eager", "ok", ""))
    checked = run.manifest
    assert "Nothing was timed" in text_of(_with(run, {**checked.protocol, "timed": False}))
    assert text_of(run_of({})) == "The run has no outcome yet."


def test_a_run_that_was_cut_off_before_its_first_outcome_says_how_to_go_on() -> None:
    assert "--resume made.jsonl" in text_of(run_of({}, finished=False))


def test_one_missing_outcome_is_told_as_well() -> None:
    run = run_of({case(64): {"eager": around(1, 1), "quick": around(0.5, 2)}}, finished=False)
    run = replaced(run, records=run.records[:1])
    assert "cut off: 1 outcome of it is missing" in text_of(run)


def test_how_much_faster_is_told_only_of_what_is_proved() -> None:
    """One sentence over both would say that 0.97, which may be chance, is what it takes."""
    run = run_of({case(64): {"eager": around(1, 1), "quick": around(0.5, 2)}, case(96): UNSURE})
    (one,) = (one.text for one in said(run) if one.text.startswith("quick against"))
    beginning, _, end = one.partition(", where")
    assert beginning == "quick against eager: faster in 1 of its 2 cases"
    assert end == " it takes 0.500 of the time; unclear in 1."


def test_the_time_it_takes_grows_with_the_records_and_no_faster() -> None:
    """Each record of a backend that was refused everywhere was once sought in all the others."""

    class Counted(str):
        """A name that counts how often it is compared."""

        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

    refused = [failed(case(64), Counted(f"b{place}"), "unsupported", "no") for place in range(300)]
    assert len(standings(judge(refused))) == 300
    assert Counted.compared < 10 * 300


def test_a_ratio_that_is_proved_is_never_rounded_to_none() -> None:
    run = run_of({case(64): {"eager": around(1, 1), "slow": around(1.035, 2)}})
    records = [replace(one, ratio_low=1.01, ratio_high=1.2) if one.ratio != 1 else one for one in run.records]
    assert "slower in its one case, where it takes 1.04 times as long" in text_of(
        replaced(run, records=tuple(records))
    )


def _with(run: StoredRun, protocol: dict[str, object]) -> StoredRun:
    return replaced(run, manifest=replace(run.manifest, protocol=protocol))


def test_failures_are_told_by_backend_and_reason_the_wrong_ones_first() -> None:
    failures = [one for one in said(WHOLE) if one.tone == "bad"]
    assert failures[0].text.startswith("wrong gave a wrong output in 2 cases: rms error")
    assert failures[0].cases == (case(128), case(256))
    assert failures[1].text.startswith("theirs crashed in 1 case: ended by signal 11")


def test_many_failures_are_cut_short_and_counted() -> None:
    many = [failed(case(64), f"b{i}", "error", f"reason {i}") for i in range(12)]
    bad = [one for one in said(run_of({}, *many)) if one.tone == "bad"]
    assert len(bad) == 9
    assert bad[-1].text.startswith("4 more outcomes failed")


def test_a_missing_baseline_is_said() -> None:
    run = run_of({case(64): {"quick": around(1.0, 1), "slow": around(2.0, 2)}})
    assert "There are no ratios: the baseline eager has no time." in text_of(run)


def test_names_stay_apart_from_words() -> None:
    run = run_of({case(64): {"eager": around(1.0, 1), HOSTILE: around(0.5, 2)}})
    (lead,) = (one for one in said(run) if "is the fastest" in one.text)
    assert lead.pieces[0] == Name(HOSTILE)
    assert sentence("a ", listed(["b", "c", "d"])).text == "a b, c and d"
