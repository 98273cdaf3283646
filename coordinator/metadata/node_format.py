"""The format of a metadata node's value: a JSON object with the format version of its kind. Pure.

A broker of another version may write fields that this one does not know: they are kept. With an unknown format version,
this broker must not go on.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from coordinator.errors import CannotStart

Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class _Version(msgspec.Struct):
    v: int


_N = TypeVar("_N", bound=msgspec.Struct)
_VERSION = msgspec.json.Decoder(_Version)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def format_of(kind: type[msgspec.Struct]) -> Any:
    return kind.__struct_config__.tag


def version_of(path: str, value: bytes) -> int:
    """The format version of this node. Raises CannotStart."""
    try:
        return _VERSION.decode(value).v
    except msgspec.MsgspecError as error:
        raise CannotStart(f"the metadata node {path} is damaged: {error}") from error


def decode(path: str, value: bytes, decoder: msgspec.json.Decoder[_N]) -> _N:
    """Decode a node. Its version is checked first, as another version may have other fields altogether. Raises
    CannotStart."""
    known = format_of(decoder.type)
    if not value.startswith(b'{"v":%d,' % known) and (version := version_of(path, value)) != known:
        raise CannotStart(f"the metadata node {path} has the format {version}; this version knows {known} only")
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CannotStart(f"the metadata node {path} is damaged: {error}") from error


def encode(node: msgspec.Struct, extra: bytes = b"") -> bytes:
    """The node's value, with the fields of another version."""
    encoded = msgspec.json.encode(node)
    return encoded[:-1] + b"," + extra[1:] if extra else encoded


def unknown_fields(value: bytes, node: msgspec.Struct) -> bytes:
    """The fields that are not of this version, as a JSON object; nothing when there are none. `node`: the known fields
    of the value."""
    if msgspec.json.encode(node) == value:  # nearly always, and much faster than to look
        return b""
    known = {"v", *node.__struct_fields__}
    unknown = {name: raw for name, raw in _FIELDS.decode(value).items() if name not in known}
    return msgspec.json.encode(unknown) if unknown else b""
