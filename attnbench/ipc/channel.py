"""A private line between two processes: typed messages and file descriptors over a Unix socket."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Generic, TypeVar

import msgspec

LARGEST_MESSAGE_BYTES = 192 * 1024
"""A sequenced packet must fit the kernel's default send buffer; arrays travel as descriptors."""
MOST_FDS = 253
"""The most descriptors that Linux sends with one message (SCM_MAX_FD)."""

_ROOM_WITHIN_S = 10.0

S = TypeVar("S")
R = TypeVar("R")


class Channel(Generic[S, R]):
    """One end of the line: sends messages of type S, receives those of type R.

    Sequenced packets keep message boundaries and carry descriptors with the message they belong to.
    """

    def __init__(self, sock: socket.socket, receives: type[R]) -> None:
        self.sock = sock
        self._decode = msgspec.msgpack.Decoder(receives).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def send(self, message: S, fds: tuple[int, ...] = ()) -> None:
        """Send one message with descriptors; raises ConnectionError if the other end is gone."""
        data, end = self._encode(message), time.monotonic() + _ROOM_WITHIN_S
        while True:
            try:
                if fds:
                    socket.send_fds(self.sock, [data], list(fds))
                else:
                    self.sock.send(data)
                return
            except OSError as failure:
                # The kernel limits the descriptors that are under way in all processes of a user.
                if failure.errno != errno.ETOOMANYREFS or time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def receive(self, timeout_s: float | None = None) -> tuple[R, list[int]]:
        """Wait for one message; return it with its descriptors, which the caller must close.

        Raises:
            ConnectionError: the other end is gone.
            TimeoutError: nothing came in ``timeout_s``.
            msgspec.DecodeError: the data are not one of our messages.
        """
        self.sock.settimeout(timeout_s)
        data, fds, _, _ = socket.recv_fds(self.sock, LARGEST_MESSAGE_BYTES, MOST_FDS)
        if not data:
            raise ConnectionResetError
        try:
            return self._decode(data), fds
        except msgspec.DecodeError:
            close_all(fds)
            raise


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends of a line of sequenced packets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def close_all(fds: list[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)
