"""The values of `/history` and `/accepting`: between `History` and JSON. Pure; see docs/formats/metadata.md."""

from __future__ import annotations

import msgspec

from coordinator.metadata.history import History
from coordinator.metadata.node_format import Id, decode, encode


class _History(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    generation: int
    history_id: Id
    first_change: int
    leader_epoch: int
    broker_epoch: int
    controller_epoch: int
    next_producer_id: int
    keeps_strays: bool


class _Accepting(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    cluster_id: str
    history: _History


def encode_history(history: History) -> bytes:
    """The value of `/history`."""
    return encode(_of(history))


def decode_history(path: str, value: bytes) -> History:
    """The history that the changes of the store belong to."""
    return _from(decode(path, value, _HISTORY))


def encode_accepting(cluster_id: str, history: History) -> bytes:
    """The value of `/accepting`."""
    return encode(_Accepting(cluster_id=cluster_id, history=_of(history)))


def decode_accepting(path: str, value: bytes) -> tuple[str, History]:
    """The cluster id, and the history that is about to begin."""
    node = decode(path, value, _ACCEPTING)
    return node.cluster_id, _from(node.history)


def _of(history: History) -> _History:
    return _History(**{name: getattr(history, name) for name in _History.__struct_fields__})


def _from(node: _History) -> History:
    return History(**{name: getattr(node, name) for name in _History.__struct_fields__})


_HISTORY = msgspec.json.Decoder(_History)
_ACCEPTING = msgspec.json.Decoder(_Accepting)
