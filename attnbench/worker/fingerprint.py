"""A fingerprint of the messages between the parent and its workers, to compare two versions by."""

from __future__ import annotations

import hashlib
import json
from typing import get_args

import msgspec

from attnbench.ipc import channel, messages

MEANING = 1
"""Raise this number when the meaning of a message, or the command line of a server, changes but no field
does."""


def protocol_fingerprint() -> str:
    """Return twelve hexadecimal digits of the JSON schema of all messages: their fields, types and defaults.

    Docstrings, comments and the files that define a message make no difference.
    """
    kinds = get_args(messages.Request) + get_args(messages.Reply)
    _, schemas = msgspec.json.schema_components(kinds)
    for schema in schemas.values():
        schema.pop("description", None)
    limits = channel.LARGEST_MESSAGE_BYTES, channel.MOST_FDS
    spoken = json.dumps([MEANING, limits, schemas], sort_keys=True)
    return hashlib.sha256(spoken.encode()).hexdigest()[:12]
