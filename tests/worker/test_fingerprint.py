"""The fingerprint changes with the form of the messages, and is the same in every process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from attnbench.ipc import messages
from attnbench.ipc.messages import protocol_fingerprint
from attnbench.worker import fingerprint


def done(name: str = "Done", tag: str = "Done", more: bool = False) -> type[Struct]:
    """Make a message like ``Done``, in another module and with another docstring."""
    fields = {"count": int} if more else {}
    body = {"__annotations__": fields, "__doc__": "Another docstring.", "__module__": "elsewhere"}
    return type(Struct)(name, (Struct,), body, frozen=True, tag=tag)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda patch: patch.setattr(fingerprint, "MEANING", 99), True),
        (lambda patch: patch.setattr("attnbench.ipc.channel.LARGEST_MESSAGE_BYTES", 1), True),
        (lambda patch: patch.setattr(messages, "Reply", messages.Done | messages.Failed), True),
        (lambda patch: with_done(patch, done()), False),
        (lambda patch: with_done(patch, done(name="Ready", tag="Ready")), True),
        (lambda patch: with_done(patch, done(tag="ready")), True),
        (lambda patch: with_done(patch, done(more=True)), True),
    ],
)
def test_it_changes_with_what_processes_say_to_each_other(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], differs: bool
) -> None:
    before = protocol_fingerprint()
    change(monkeypatch)
    assert (protocol_fingerprint() != before) == differs


def with_done(patch: pytest.MonkeyPatch, kind: type[Struct]) -> None:
    others = tuple(each for each in messages.Reply.__args__ if each is not messages.Done)
    reply: object = kind
    for each in others:
        reply = reply | each  # type: ignore[operator]
    patch.setattr(messages, "Reply", reply)
