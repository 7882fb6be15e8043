"""The line between processes: whole messages, descriptors with the message they belong to, clear ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import msgspec
import pytest

from attnbench.ipc import messages as m
from attnbench.ipc.channel import Channel, ChannelClosed, ChannelTimeout, close_all, socket_pair

Ends = tuple[Channel[m.Request, m.Reply], Channel[m.Reply, m.Request], socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket_pair()
    with ours, theirs:
        yield Channel(ours, m.Reply), Channel(theirs, m.Request), theirs  # type: ignore[arg-type]


def test_a_descriptor_arrives_with_its_message(ends: Ends) -> None:
    parent, worker, _ = ends
    read_end, write_end = os.pipe()
    parent.send(m.Compute())
    parent.send(m.Reap(1), (write_end,))
    assert worker.receive(1) == (m.Compute(), [])
    request, fds = worker.receive(1)
    assert request == m.Reap(1)
    os.write(fds[0], b"through")
    assert os.read(read_end, 10) == b"through"
    close_all([read_end, write_end, *fds])


def test_silence_and_an_end_are_told_apart(ends: Ends) -> None:
    parent, worker, _ = ends
    with pytest.raises(ChannelTimeout):
        parent.receive(0.01)
    worker.close()
    with pytest.raises(ChannelClosed):
        parent.receive(1)
    with pytest.raises(ChannelClosed):
        parent.send(m.Compute())


@pytest.mark.parametrize("rubbish", [b"rubbish", b"\x81\xa4type\xa4Nope", b"\xff" * 9])
def test_rubbish_is_told_from_a_message(ends: Ends, rubbish: bytes) -> None:
    parent, _, theirs = ends
    theirs.send(rubbish)
    with pytest.raises(msgspec.DecodeError):
        parent.receive(1)
