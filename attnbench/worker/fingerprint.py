"""A fingerprint of what the parent and its workers say to each other: equal where they agree on it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from msgspec import inspect

from attnbench.worker import channel, messages

MEANING = 1
"""To be raised by whoever changes what a message means, or the words a server is started with, and not the
form of any message."""

_Definitions = dict[str, Any]


def protocol_fingerprint() -> str:
    """Twelve hexadecimal digits of the forms of all messages: names, types and defaults of their fields.

    What makes no difference on the line - comments, sentences about a message, the order of fields, who
    defines what in which file - makes none here.
    """
    spoken = {
        "meaning": MEANING,
        "largest_message_bytes": channel.LARGEST_MESSAGE_BYTES,
        "most_fds": channel.MOST_FDS,
        "request": form(messages.Request),
        "reply": form(messages.Reply),
    }
    return hashlib.sha256(json.dumps(spoken, sort_keys=True).encode()).hexdigest()[:12]


def form(kind: Any) -> dict[str, Any]:
    """What values of a type look like on the line: the type in words, and the messages that it names.

    Raises:
        TypeError: it has a type that no message of ours may have.
    """
    definitions: _Definitions = {}
    return {"type": _words(inspect.type_info(kind), definitions), "messages": definitions}


def _words(kind: inspect.Type, definitions: _Definitions) -> Any:
    match kind:
        case inspect.StructType():
            name = kind.cls.__name__
            if name not in definitions:
                definitions[name] = {}
                definitions[name] = _message(kind, definitions)
            return name
        case inspect.UnionType():
            return {"any of": sorted((_words(one, definitions) for one in kind.types), key=json.dumps)}
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return {"each": _words(kind.item_type, definitions)}
        case inspect.TupleType():
            return {"in order": [_words(one, definitions) for one in kind.item_types]}
        case inspect.DictType():
            keys, values = kind.key_type, kind.value_type
            return {"keys": _words(keys, definitions), "values": _words(values, definitions)}
        case inspect.LiteralType():
            return {"one of": sorted(kind.values, key=repr)}
        case inspect.IntType() | inspect.FloatType() | inspect.StrType() | inspect.BoolType():
            return type(kind).__name__
        case inspect.NoneType() | inspect.BytesType() | inspect.AnyType():
            return type(kind).__name__
        case _:
            raise TypeError(f"no message of ours may have {kind!r}")


def _message(kind: inspect.StructType, definitions: _Definitions) -> dict[str, Any]:
    return {
        "tag": [kind.tag_field, kind.tag],
        "array_like": kind.array_like,
        "fields": {
            field.encode_name: [_words(field.type, definitions), field.required, _default(field)]
            for field in kind.fields
        },
    }


def _default(field: inspect.Field) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return repr(field.default_factory())
    return "" if field.default is msgspec.NODEFAULT else repr(field.default)
