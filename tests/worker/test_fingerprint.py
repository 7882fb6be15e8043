"""The fingerprint of the messages between the parent and its workers."""

from __future__ import annotations

import pytest
from msgspec import Struct, defstruct

from attnbench.ipc import messages
from attnbench.ipc.messages import protocol_fingerprint


def done(doc: str, *fields: tuple[str, type]) -> type[Struct]:
    made = defstruct("Done", fields, frozen=True, tag=True)
    made.__doc__ = doc
    return made


@pytest.mark.parametrize(
    ("kind", "differs"),
    [(done("Other words."), False), (done("It was done.", ("more", int)), True)],
    ids=["other words", "another field"],
)
def test_it_changes_with_the_fields_of_messages_alone(
    monkeypatch: pytest.MonkeyPatch, kind: type[Struct], differs: bool
) -> None:
    before = protocol_fingerprint()
    others = [each for each in messages.Reply.__args__ if each is not messages.Done]  # type: ignore[attr-defined]
    reply: object = kind
    for each in others:
        reply = reply | each  # type: ignore[operator]
    monkeypatch.setattr(messages, "Reply", reply)
    assert (protocol_fingerprint() != before) == differs
