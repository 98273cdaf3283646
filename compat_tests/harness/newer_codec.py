"""Requests from plain dictionaries and replies to plain dictionaries in versions that kio does not know yet.

They are encoded and decoded by kafkawire's own classes. So a mistake in those can hide here, but both brokers get the
same bytes, and Apache Kafka has to understand them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkawire.wire.message import RESPONSE_ELEMENT_CAP, MessageStruct
from kafkawire.wire.schema import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from kafkawire.wire.message import Message
    from kafkawire.wire.schema import Field

    Kind = Literal["Request", "Response"]

RENAMED = {"generation_id_or_member_epoch": "generation_id"}  # by Apache Kafka, after kio was generated


def message_class(api: str, kind: Kind) -> type[Message]:
    name = "".join(part.capitalize() for part in api.split("_"))
    found: type[Message] = getattr(import_module(f"kafkawire.messages.{api}"), f"{name}{kind}")
    return found


def is_flexible(api: str, version: int) -> bool:
    return version >= message_class(api, "Request").FLEXIBLE_FROM


def encode_body(api: str, version: int, fields: Mapping[str, Any], kind: Kind = "Request") -> bytes:
    message: Any = _built(message_class(api, kind), version, fields)
    return b"".join(bytes(segment) for segment in message.encode(version))


def decode_body(api: str, version: int, frame: bytes, start: int, kind: Kind = "Response") -> dict[str, Any]:
    """The fields of a body that ends with the frame. Raises DecodeError."""
    found: dict[str, Any] = _plain(
        message_class(api, kind).decode(frame, version, start, cap=RESPONSE_ELEMENT_CAP), version
    )
    return found


def _built(struct: type[MessageStruct], version: int, fields: Mapping[str, Any]) -> MessageStruct:
    values = {}
    for row in _rows(struct, version):
        name = row.name if row.name in fields else RENAMED.get(row.name, row.name)
        if name in fields:
            values[row.name] = _value(row, version, fields[name])
    return struct(**values)


def _value(row: Field, version: int, given: Any) -> Any:
    if row.struct is None or given is None:
        return given
    return [_built(row.struct, version, each) for each in given] if row.array else _built(row.struct, version, given)


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, MessageStruct):
        return {row.name: _plain(getattr(value, row.name), version) for row in _rows(type(value), version)}
    if isinstance(value, list):
        return [_plain(each, version) for each in value]
    return value


def _rows(struct: type[MessageStruct], version: int) -> list[Field]:
    plain, tagged, _ = fields_of(struct, version)
    return [*plain, *tagged]
