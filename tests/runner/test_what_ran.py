"""What ran stands in the record, and whose kernel it is; a trace that fails costs nothing but itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import PLAIN, by_backend, declared, run_of

from attnbench.plugins.registry import load_registry
from attnbench.runner.examine import kernel_of
from attnbench.types.backend import Backend

FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def backend(name: str, *marks: str) -> Backend:
    return Backend(name, "a test", lambda setup: lambda q, k, v: v, marks=marks)


THEIRS = backend("theirs", "_their_kernel", "_their_other_kernel")
MINE = backend("mine")


@pytest.mark.parametrize(
    ("ran", "owner"),
    [
        (["mul", "_their_kernel"], "theirs"),
        (["mul", "_their_other_kernel x12"], "theirs"),
        (["mul", "_their_kernel_too", "the _their_kernel"], ""),
        ([], ""),
    ],
)
def test_a_kernel_is_known_by_a_name_that_ran(ran: list[str], owner: str) -> None:
    assert kernel_of(ran, MINE, [MINE, THEIRS]) == owner


def test_what_a_backend_declares_is_its_own() -> None:
    assert kernel_of(["_their_kernel"], THEIRS, [MINE, THEIRS]) == ""
    as_theirs = backend("mine", "_their_kernel")
    assert kernel_of(["_their_kernel"], as_theirs, [as_theirs, THEIRS]) == ""
    assert kernel_of(["_their_kernel", "_their_other_kernel"], as_theirs, [as_theirs, THEIRS]) == "theirs"


def test_of_several_the_one_that_ran_first() -> None:
    others = [backend("a", "_a"), backend("b", "_b")]
    assert kernel_of(["_b", "_a"], MINE, others) == "b"


@pytest.mark.parametrize("timed", [True, False])
def test_a_backend_that_calls_anothers_kernel_is_labelled(
    odd_plugins: None, tmp_path: Path, timed: bool
) -> None:
    """Also where the other isn't part of the run."""
    records = by_backend(run_of(tmp_path, (PLAIN,), ("eager", "calls_flash"), timed=timed))
    assert {name: (r.status, r.ran, r.kernel_of) for name, r in records.items()} == {
        "eager": ("ok", ["bmm x2", "_softmax"], ""),
        "calls_flash": ("ok", [FLASH], "sdpa_flash"),
    }
    assert not any("what ran" in note for record in records.values() for note in record.notes)


def test_a_backend_is_not_labelled_as_itself(tmp_path: Path) -> None:
    records = by_backend(run_of(tmp_path, (PLAIN,), ("sdpa_flash", "sdpa_math"), timed=False))
    assert [record.kernel_of for record in records.values()] == ["", ""]
    assert records["sdpa_flash"].ran == [FLASH]
    assert records["sdpa_math"].ran[0] == "_scaled_dot_product_attention_math"


@pytest.mark.parametrize("forkable", [True, False])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("traced_raise_an_error", "the call raised ValueError: not today"),
        ("traced_exit_at_once", "exited with status 3 during the tracing of a call"),
    ],
)
def test_a_trace_that_fails_breaks_nothing(
    odd_plugins: None, tmp_path: Path, name: str, words: str, forkable: bool
) -> None:
    registry = declared(load_registry(), name, forkable=forkable)
    record = by_backend(run_of(tmp_path, (PLAIN,), ("eager", name), registry=registry))[name]
    assert (record.status, record.sets) == ("ok", 2), record.reason
    assert record.verified_calls >= 2 * record.sets, "in each of two stretches"
    assert (record.ran, record.kernel_of) == ([], "")
    assert record.median_ms is not None
    assert f"what ran is not known: {words}" in record.notes


def test_what_ran_is_known_of_a_backend_that_fails_when_it_is_timed(
    odd_plugins: None, tmp_path: Path
) -> None:
    record = by_backend(run_of(tmp_path, (PLAIN,), ("third_raise_an_error",)))["third_raise_an_error"]
    assert (record.status, record.ran) == ("error", ["bmm x2", "_softmax"])
