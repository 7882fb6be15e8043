"""The line between processes: whole messages, descriptors with the message they belong to, clear ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from attnbench.ipc import messages as m
from attnbench.ipc.channel import MOST_FDS, Channel, ChannelClosed, ChannelTimeout, close_all, socket_pair
from attnbench.runner.plan import MOST_SAMPLES
from attnbench.types.record import Block

Ends = tuple[Channel[m.Request, m.Reply], Channel[m.Reply, m.Request], socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket_pair()
    with ours, theirs:
        yield Channel(ours, m.Reply), Channel(theirs, m.Request), theirs  # type: ignore[arg-type]


def test_messages_keep_their_boundaries_and_types(ends: Ends) -> None:
    parent, worker, _ = ends
    parent.send(m.Reap(7))
    turns = m.TakeSlots(1, (0, 3), (2, -1), 4, 5)
    parent.send(turns)
    assert worker.receive(1) == (m.Reap(7), [])
    assert worker.receive(1) == (turns, [])


def test_a_long_block_fits(ends: Ends) -> None:
    parent, worker, _ = ends
    """The most samples of a stretch, with clocks of a machine that has been on for weeks; of a device too."""
    many = [2**62] * MOST_SAMPLES
    block = Block(0, many, 1, *[many] * 5, mode="batch", host_ns=many, clock_mhz=many, default_clock_mhz=1)
    taken = m.SlotsTaken(block, many, many)
    worker.send(taken)
    assert parent.receive(1)[0] == taken
    asked = m.TakeSlots(1, tuple(many), (252,) * MOST_SAMPLES, 10**6, 10**6)
    parent.send(asked)
    assert worker.receive(1)[0] == asked


def test_a_baton_for_each_of_many_contenders_arrives(ends: Ends) -> None:
    parent, worker, _ = ends
    handoffs = [os.eventfd(0) for _ in range(MOST_FDS)]
    parent.send(m.TakeSlots(0, (0,), (MOST_FDS - 1,), 1, 0), tuple(handoffs))
    _, fds = worker.receive(1)
    os.eventfd_write(fds[-1], 7)
    assert os.eventfd_read(handoffs[-1]) == 7
    close_all([*handoffs, *fds])


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


CROWDED = """
import os, resource, sys, threading
from attnbench.ipc import messages as m
from attnbench.ipc.channel import Channel, close_all, socket_pair

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.setgid(65534), os.setuid(65534)
ours, theirs = socket_pair()
parent, worker = Channel(ours, m.Reply), Channel(theirs, m.Request)
batons = [os.eventfd(0) for _ in range(100)]

def take_them(arrived):
    waiting.wait()
    for _ in range(10):
        _, fds = worker.receive(60)
        arrived.append(len(fds))
        close_all(fds)

class Late(list):
    def __iter__(self):
        waiting.set()
        return super().__iter__()

waiting, arrived = threading.Event(), []
thread = threading.Thread(target=take_them, args=(arrived,))
thread.start()
for number in range(10):
    parent.send(m.Compute(), tuple(batons) if number < 3 else Late(batons))
thread.join()
print(arrived == [100] * 10)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_where_no_more_descriptors_may_be_on_their_way_it_waits_for_room() -> None:
    """Nobody takes any until the fourth message, for which there is none."""
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True\n", done.stderr


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
