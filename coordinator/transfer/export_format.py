"""The file format of an export of a cluster's metadata: docs/formats/metadata-export.md. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from coordinator.errors import TransferRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_TYPE: Final = "kafkawire metadata"
VERSION: Final = 1


class _Head(msgspec.Struct, kw_only=True):
    export: str
    v: int
    cluster_id: str
    nodes: int


class _Node(msgspec.Struct, kw_only=True):
    path: Annotated[str, msgspec.Meta(pattern="^/")]
    version: int
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Tail(msgspec.Struct):
    sha256: str


@dataclass(frozen=True, slots=True)
class ExportedNode:
    """A node of the export."""

    path: str
    version: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Export:
    """The content of an export: all nodes that stay, parents before their children."""

    cluster_id: str
    nodes: Sequence[ExportedNode]


def encode_export(export: Export) -> bytes:
    """The whole file. Raises TransferRefused for a node that is damaged."""
    head = _Head(export=FILE_TYPE, v=VERSION, cluster_id=export.cluster_id, nodes=len(export.nodes))
    body = b"".join(line + b"\n" for line in [msgspec.json.encode(head), *map(_line, export.nodes)])
    return body + msgspec.json.encode(_Tail(_digest(body))) + b"\n"


def _line(node: ExportedNode) -> bytes:
    try:
        value = msgspec.Raw(msgspec.json.format(node.value, indent=-1)) if node.value else msgspec.UNSET
    except msgspec.MsgspecError as error:
        raise TransferRefused(f"the metadata node {node.path} is damaged: {error}") from error
    return msgspec.json.encode(_Node(path=node.path, version=node.version, value=value))


def decode_export(content: bytes) -> tuple[Export, str]:
    """The export, and its digest, by which an unfinished import is known again. Raises TransferRefused."""
    *lines, last = content.splitlines(keepends=True) or [b""]
    head = _head(lines[0] if lines else last)
    body = b"".join(lines)
    try:
        digest = msgspec.json.decode(last, type=_Tail).sha256
        if digest != _digest(body) or not last.endswith(b"\n"):
            raise TransferRefused("the export is damaged: it does not match its checksum")
        nodes = [_node(line) for line in lines[1:]]
    except msgspec.MsgspecError as error:
        raise TransferRefused(f"the export is damaged, or not all of it is there: {error}") from error
    return Export(head.cluster_id, nodes), digest


def _node(line: bytes) -> ExportedNode:
    node = msgspec.json.decode(line, type=_Node)
    return ExportedNode(node.path, node.version, bytes(node.value) if isinstance(node.value, msgspec.Raw) else b"")


def _head(line: bytes) -> _Head:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except msgspec.MsgspecError:
        raise TransferRefused("this is no export of a cluster's metadata") from None
    if head.export != FILE_TYPE or head.v != VERSION:
        raise TransferRefused(
            f"the export has the format {head.export} {head.v}; this version knows {FILE_TYPE} {VERSION}"
        )
    return head


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
