"""The fingerprint changes with what is said on the line, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest
from msgspec import Struct, defstruct, field

from attnbench.worker import fingerprint, messages
from attnbench.worker.fingerprint import form, protocol_fingerprint


class Plain(Struct, tag=True):
    """A message."""

    count: int
    names: tuple[str, ...] = ()


def message(*fields: Any, name: str = "Plain", **how: Any) -> Any:
    return defstruct(name, list(fields), **({"tag": True} | how))


SAME = [("count", int), ("names", tuple[str, ...], ())]


@pytest.mark.parametrize(
    "other",
    [
        message(*SAME),
        message(*reversed(SAME), kw_only=True),
        message(*SAME, module="elsewhere"),
        message(*SAME, frozen=True),
        message(("count", int), ("names", list[str], field(default_factory=tuple))),
    ],
)
def test_what_makes_no_difference_on_the_line_makes_none(other: Any) -> None:
    assert form(other) == form(Plain)


@pytest.mark.parametrize(
    "other",
    [
        message(*SAME, ("more", int, 0)),
        message(("count", int)),
        message(("number", int), SAME[1]),
        message(("count", float), SAME[1]),
        message(("count", int | None), SAME[1]),
        message(("count", int, 0), SAME[1]),
        message(SAME[0], ("names", tuple[str, ...], ("a",))),
        message(SAME[0], ("names", tuple[str, str], ("", ""))),
        message(SAME[0], ("names", tuple[bytes, ...], ())),
        message(*SAME, name="Other"),
        message(*SAME, tag="other"),
        message(*SAME, tag_field="kind"),
        message(*SAME, array_like=True),
        message(*SAME, rename="upper"),
    ],
)
def test_what_makes_a_difference_on_the_line_makes_one(other: Any) -> None:
    assert form(other) != form(Plain)


def test_words_dictionaries_and_messages_in_messages_count() -> None:
    one = message(("inner", dict[str, message(("x", int), name="Inner")]), ("word", Literal["a", "b"]))
    same = message(("inner", dict[str, message(("x", int), name="Inner")]), ("word", Literal["b", "a"]))
    deeper = message(("inner", dict[str, message(("x", str), name="Inner")]), ("word", Literal["a", "b"]))
    keys = message(("inner", dict[int, message(("x", int), name="Inner")]), ("word", Literal["a", "b"]))
    word = message(("inner", dict[str, message(("x", int), name="Inner")]), ("word", Literal["a", "c"]))
    assert form(one) == form(same)
    assert form(one) not in (form(deeper), form(keys), form(word))


def test_a_type_that_is_not_thought_of_is_no_silence() -> None:
    import datetime

    with pytest.raises(TypeError, match="no message of ours"):
        form(message(("when", datetime.datetime)))


def test_every_message_is_in_it() -> None:
    said = form(messages.Request)["messages"] | form(messages.Reply)["messages"]
    defined = {name for name, value in vars(messages).items()
               if isinstance(value, type) and issubclass(value, Struct) and value is not Struct}  # fmt: skip
    assert defined <= set(said)
    assert {"Block", "MachineScale"} <= set(said)


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(fingerprint, "MEANING", 99),
        lambda patch: patch.setattr("attnbench.worker.channel.LARGEST_MESSAGE_BYTES", 1),
        lambda patch: patch.setattr("attnbench.worker.channel.MOST_FDS", 1),
        lambda patch: patch.setattr(messages, "Reply", messages.Done | messages.Failed),
    ],
)
def test_all_of_it_counts(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    before = protocol_fingerprint()
    change(monkeypatch)
    assert protocol_fingerprint() != before


def test_it_is_the_same_in_another_process() -> None:
    code = "from attnbench.worker.fingerprint import protocol_fingerprint as p; print(p())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == protocol_fingerprint()
